//! One client: random transactions, each noted in the ledger before, during and after.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use terrace::{
    Checkpoint, Database, Durability, Error, ReadTable, Table, TableDef, Transaction,
    WriteTransaction,
};
use terrace_rt::Prng;

use super::Shared;
use super::ledger::{Entry, Failure, Found, Mark, Opened, Promise, RowPlace, STAMP_SIZE, Stamp};
use super::mishaps::{is_of_device, is_stuck, is_too_large};
use super::scenario::{Scenario, TABLES};

/// A row: bytes that name their writer.
pub(super) type Row = &'static [u8];

/// The ordinary tables.
pub(super) const ROWS: [TableDef<u32, Row>; TABLES as usize] =
    [TableDef::new("left"), TableDef::new("middle"), TableDef::new("right")];

/// A row for each transaction that is there.
pub(super) const MARKERS: TableDef<u32, ()> = TableDef::new("markers");

/// Most operations of one transaction.
const OPERATIONS_MAX: u64 = 7;

/// Rows of one transaction that preloads.
const PRELOADED_TOGETHER: usize = 30;

/// Keys that one scan covers, at most.
const SCAN_KEYS_MAX: u64 = 24;

/// Keys that one does which reports, at most.
const REPORTED_KEYS_MAX: u64 = 500;

/// Transactions that a client runs while it has a snapshot open, less than this.
const TRANSACTIONS_BESIDE: u64 = 4;

/// Rows that a transaction changes which changes many, at most.
const BULK_ROWS_MAX: u64 = 600;

/// Lengths of values with keys of four bytes, beyond which another one is stored in another way: in
/// a leaf, in a block, in a block with a tail, in two pages, in two and a tail.
const LIMITS: [u64; 5] = [4_025, 8_160, 12_153, 16_240, 20_233];

/// Why a transaction did not commit.
enum Stop {
    Engine(Error),
    Found(Failure),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Engine(error)
    }
}

/// What a client panics with.
struct Mishap;

/// Where a transaction is to panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PanicAt {
    /// Before this operation.
    Operation(u64),
    /// In the middle of the next scan.
    Scan,
    /// In the closure that changes a row.
    Change,
}

/// A client of the database.
pub struct Client {
    /// The database.
    db: Database,
    /// Ledger and findings.
    shared: Arc<Shared>,
    /// What the torture is like.
    scenario: Scenario,
    /// The client's own generator.
    prng: Prng,
    /// Where the transaction that runs is to panic.
    panic_at: Option<PanicAt>,
}

impl Client {
    /// A client that does what `prng` says.
    pub fn new(db: Database, shared: Arc<Shared>, scenario: Scenario, prng: Prng) -> Client {
        Client { db, shared, scenario, prng, panic_at: None }
    }

    /// Runs the transactions of one round, or until something is found to be wrong, or the engine
    /// has stopped as it may.
    pub fn run(mut self) {
        for _ in 0..self.scenario.transactions {
            if self.shared.has_failed() || self.shared.has_stopped() {
                return;
            }
            if self.prng.chance(self.scenario.mishaps.report_one_in) {
                self.report();
            } else {
                self.transact();
            }
            self.shared.note_stats(&self.db.stats());
            if self.prng.chance(u64::from(self.scenario.checkpoint_one_in)) {
                self.checkpoint();
            }
        }
    }

    /// Fills two thirds of all places, so that the database is larger than memory from the start.
    pub fn preload(mut self) {
        let keys = self.scenario.keys;
        let all = (0..TABLES).flat_map(|table| (0..keys).map(move |key| RowPlace { table, key }));
        let mut places: Vec<RowPlace> = all.collect();
        self.prng.shuffle(&mut places);
        places.truncate(places.len() * 2 / 3);
        for group in places.chunks(PRELOADED_TOGETHER) {
            let entry = self.shared.ledger().begin();
            let outcome = self.db.begin_write().map_err(Stop::from).and_then(|txn| {
                txn.open_table(MARKERS)?.insert(entry.0, ())?;
                for (write, &place) in group.iter().enumerate() {
                    let mut table = txn.open_table(ROWS[usize::from(place.table)])?;
                    self.write(&mut table, entry, place, write as u64)?;
                }
                self.commit(txn, entry);
                Ok(())
            });
            if let Err(stop) = outcome {
                self.shared.ledger().give_up(entry);
                self.judge(stop);
            }
            if self.shared.has_failed() || self.shared.has_stopped() {
                return;
            }
            self.shared.note_stats(&self.db.stats());
        }
    }

    /// Whether what ended a transaction may be.
    fn judge(&self, stop: Stop) {
        match stop {
            Stop::Found(failure) => self.shared.fail(failure),
            Stop::Engine(error) if is_of_device(&error) => self.shared.stopped_by(&error),
            Stop::Engine(error) if is_stuck(&error) => {
                self.shared.fail(Failure::Stuck(error.to_string()));
            }
            Stop::Engine(error) if is_too_large(&error) => {
                self.shared.count(|counts| counts.too_large += 1);
            }
            Stop::Engine(error) if error.is_transient() => {}
            Stop::Engine(error) => self.shared.fail(Failure::Error(error.to_string())),
        }
    }

    fn judged(&self, outcome: Result<(), Error>) {
        if let Err(error) = outcome {
            self.judge(Stop::Engine(error));
        }
    }

    fn checkpoint(&mut self) {
        let kind = match self.prng.below(8) {
            0 => return self.judged(self.db.compact().map(drop)),
            1 => Checkpoint::Sharp,
            _ => Checkpoint::Indirect,
        };
        self.shared.enter_checkpoint();
        self.judged(self.db.checkpoint(kind));
        self.shared.leave_checkpoint();
    }

    /// Reads hundreds of rows through a snapshot that stays open for a while.
    fn report(&mut self) {
        let place = self.place();
        let keys = place.key..place.key + 1 + self.prng.below(REPORTED_KEYS_MAX) as u32;
        let before = self.shared.ledger().now();
        let txn = match self.db.begin_read() {
            Ok(txn) => txn,
            Err(error) => return self.judge(Stop::Engine(error)),
        };
        let opened = self.shared.ledger().opened(before);
        for _ in 0..self.prng.below(TRANSACTIONS_BESIDE) {
            self.transact();
        }
        let seen = txn.open_table(ROWS[usize::from(place.table)]).map_err(Stop::from);
        match seen.and_then(|table| self.look(&table, opened, place.table, keys)) {
            // Its maker had not committed then.
            Ok(()) | Err(Stop::Engine(Error::NoSuchTable { .. })) => {}
            Err(stop) => self.judge(stop),
        }
    }

    /// Scans `keys` through a snapshot.
    fn look(
        &mut self,
        table: &ReadTable<'_, u32, Row>,
        opened: Opened,
        of_table: u8,
        keys: std::ops::Range<u32>,
    ) -> Result<(), Stop> {
        let rows = self.rows(table, keys.clone())?;
        let mut rows = rows.iter().peekable();
        for key in keys {
            let row = rows.next_if(|row| row.key() == key).map(|row| row.value());
            let place = RowPlace { table: of_table, key };
            self.shared.ledger().check_seen(opened, place, row).map_err(Stop::Found)?;
        }
        Ok(())
    }

    fn transact(&mut self) {
        self.panic_at = self.prng.chance(self.scenario.mishaps.panic_one_in).then(|| {
            [PanicAt::Operation(self.prng.below(3)), PanicAt::Scan, PanicAt::Change]
                [self.prng.below(3) as usize]
        });
        let entry = self.shared.ledger().begin();
        // The transaction is dropped while its task is unwound.
        let ran = catch_unwind(AssertUnwindSafe(|| self.transact_as(entry)));
        self.panic_at = None;
        match ran {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                self.shared.ledger().give_up(entry);
                self.judge(Stop::Engine(error));
            }
            Err(payload) if payload.is::<Mishap>() => {
                self.shared.ledger().give_up(entry);
                self.shared.count(|counts| counts.panics += 1);
            }
            Err(payload) => resume_unwind(payload),
        }
    }

    fn transact_as(&mut self, entry: Entry) -> Result<(), Error> {
        let txn = self.db.begin_write()?;
        if let Err(stop) = self.operate(&txn, entry) {
            self.abandon(txn, entry);
            self.judge(stop);
        } else if self.prng.chance(10) {
            self.roll_back(txn, entry);
        } else {
            self.commit(txn, entry);
        }
        Ok(())
    }

    fn panic_if(&mut self, at: PanicAt, entry: Entry) {
        if self.panic_at == Some(at) {
            self.panic_at = None;
            self.shared.ledger().set_calling(entry, true);
            resume_unwind(Box::new(Mishap));
        }
    }

    fn abandon(&mut self, txn: WriteTransaction, entry: Entry) {
        self.shared.ledger().set_calling(entry, true);
        drop(txn);
        self.shared.ledger().give_up(entry);
    }

    fn roll_back(&mut self, txn: WriteTransaction, entry: Entry) {
        self.shared.ledger().set_calling(entry, true);
        let outcome = txn.rollback();
        self.shared.ledger().give_up(entry);
        self.judged(outcome);
    }

    fn commit(&mut self, txn: WriteTransaction, entry: Entry) {
        let (durability, promise) = match self.prng.below(8) {
            0 => (Durability::None, Promise::Buffered),
            1..=3 => (Durability::Buffered, Promise::Buffered),
            _ => (Durability::Durable, Promise::Durable),
        };
        self.shared.ledger().ask(entry);
        match txn.commit(durability) {
            Ok(()) => self.shared.ledger().acknowledge(entry, promise),
            Err(error) if is_of_device(&error) => self.shared.stopped_by(&error),
            Err(error) => self.shared.fail(Failure::Error(error.to_string())),
        }
    }

    /// The operations of one transaction, its marker among them.
    fn operate(&mut self, txn: &WriteTransaction, entry: Entry) -> Result<(), Stop> {
        let operations = 1 + self.prng.below(OPERATIONS_MAX);
        let marker_at = self.prng.below(operations);
        let mishaps = self.scenario.mishaps;
        let goes_back = self.prng.chance(mishaps.savepoint_one_in);
        let mut savepoint: Option<(terrace::Savepoint, Mark)> = None;
        for operation in 0..operations {
            self.panic_if(PanicAt::Operation(operation), entry);
            if goes_back && savepoint.is_none() {
                savepoint = Some((txn.savepoint()?, self.shared.ledger().mark(entry)));
            }
            if operation == marker_at {
                txn.open_table(MARKERS)?.insert(entry.0, ())?;
            }
            self.operation(txn, entry, operation)?;
        }
        if let Some((savepoint, mark)) = savepoint {
            txn.rollback_to(&savepoint)?;
            self.shared.ledger().went_back(entry, mark);
            txn.open_table(MARKERS)?.insert(entry.0, ())?;
            self.shared.count(|counts| counts.savepoints += 1);
            self.operation(txn, entry, operations)?;
        }
        if self.prng.chance(mishaps.remake_one_in) {
            self.remake(txn, entry)?;
        }
        if self.prng.chance(mishaps.bulk_one_in) {
            self.change_many(txn, entry)?;
        }
        Ok(())
    }

    fn place(&mut self) -> RowPlace {
        RowPlace {
            table: self.prng.below(u64::from(TABLES)) as u8,
            key: self.prng.below(u64::from(self.scenario.keys)) as u32,
        }
    }

    fn operation(
        &mut self,
        txn: &WriteTransaction,
        entry: Entry,
        operation: u64,
    ) -> Result<(), Stop> {
        let place = self.place();
        let mut table = txn.open_table(ROWS[usize::from(place.table)])?;
        if self.panic_at == Some(PanicAt::Change) {
            table.modify(place.key, &mut Vec::new(), |_| {
                self.panic_if(PanicAt::Change, entry);
                Ok::<_, Error>(())
            })?;
        }
        match self.prng.below(10) {
            0 | 1 => self.read(&table, entry, place),
            2 => {
                let keys = place.key..place.key + 1 + self.prng.below(SCAN_KEYS_MAX) as u32;
                self.scan(&table, entry, place.table, keys)
            }
            3 => self.remove(&mut table, entry, place),
            4 => {
                let found = table.get_for_update(place.key)?;
                self.compare(entry, place, found.as_ref().map(|row| row.value()))?;
                drop(found);
                self.write(&mut table, entry, place, operation)
            }
            _ => self.write(&mut table, entry, place, operation),
        }
    }

    /// Deletes a table and makes it again, with a row.
    fn remake(&mut self, txn: &WriteTransaction, entry: Entry) -> Result<(), Stop> {
        let place = self.place();
        let of_place = ROWS[usize::from(place.table)];
        txn.delete_table(of_place.name())?;
        self.shared.ledger().emptied(entry, place.table);
        let mut table = txn.open_table(of_place)?;
        self.shared.count(|counts| counts.remade += 1);
        self.write(&mut table, entry, place, OPERATIONS_MAX + 1)
    }

    /// Writes or removes hundreds of rows that follow each other.
    fn change_many(&mut self, txn: &WriteTransaction, entry: Entry) -> Result<(), Stop> {
        let first = self.place();
        let removes = self.prng.chance(3);
        let mut table = txn.open_table(ROWS[usize::from(first.table)])?;
        for nth in 0..1 + self.prng.below(BULK_ROWS_MAX) {
            let key = ((u64::from(first.key) + nth) % u64::from(self.scenario.keys)) as u32;
            let place = RowPlace { key, ..first };
            if removes {
                self.remove(&mut table, entry, place)?;
            } else {
                self.write(&mut table, entry, place, OPERATIONS_MAX + 2 + nth)?;
            }
        }
        Ok(())
    }

    fn write(
        &mut self,
        table: &mut Table<'_, u32, Row>,
        entry: Entry,
        place: RowPlace,
        write: u64,
    ) -> Result<(), Stop> {
        let stamp = Stamp { transaction: entry.0, write: write as u32, length: self.length() };
        table.insert(place.key, &stamp.value(place))?;
        self.shared.ledger().wrote(entry, place, Some(stamp));
        Ok(())
    }

    fn remove(
        &mut self,
        table: &mut Table<'_, u32, Row>,
        entry: Entry,
        place: RowPlace,
    ) -> Result<(), Stop> {
        if table.remove(place.key)? {
            self.shared.ledger().wrote(entry, place, None);
            return Ok(());
        }
        // Nothing was written, and others may remove the same nothing.
        self.compare(entry, place, None)
    }

    /// Mostly short, some long, a few of several pages or where something changes in how a value
    /// is stored.
    fn length(&mut self) -> u32 {
        let length = match self.prng.below(100) {
            0 => STAMP_SIZE as u64 + 8_000 + self.prng.below(20_000),
            1 => LIMITS[self.prng.below(LIMITS.len() as u64) as usize] - 2 + self.prng.below(5),
            2..=10 => STAMP_SIZE as u64 + self.prng.below(4_200),
            _ => STAMP_SIZE as u64 + self.prng.below(400),
        };
        length as u32
    }

    fn read<T: Transaction>(
        &mut self,
        table: &Table<'_, u32, Row, T>,
        entry: Entry,
        place: RowPlace,
    ) -> Result<(), Stop> {
        let found = table.get(place.key)?;
        self.compare(entry, place, found.as_ref().map(|row| row.value()))
    }

    fn compare(&self, entry: Entry, place: RowPlace, found: Option<&[u8]>) -> Result<(), Stop> {
        self.shared.ledger().check_read(entry, place, found).map_err(Stop::Found)
    }

    /// The rows of `keys`, read forwards or backwards.
    fn rows<T: Transaction>(
        &mut self,
        table: &Table<'_, u32, Row, T>,
        keys: std::ops::Range<u32>,
    ) -> Result<Vec<terrace::Entry<u32, Row>>, Error> {
        let range = table.range(keys)?;
        let mut rows = match self.prng.chance(2) {
            true => range.rev().collect::<Result<Vec<_>, _>>()?,
            false => range.collect::<Result<Vec<_>, _>>()?,
        };
        rows.sort_by_key(|row| row.key());
        Ok(rows)
    }

    /// Scans `keys`; absent keys are compared too.
    fn scan<T: Transaction>(
        &mut self,
        table: &Table<'_, u32, Row, T>,
        entry: Entry,
        of_table: u8,
        keys: std::ops::Range<u32>,
    ) -> Result<(), Stop> {
        if self.panic_at == Some(PanicAt::Scan) {
            let mut range = table.range(keys.clone())?;
            let first = range.next().transpose()?;
            self.panic_if(PanicAt::Scan, entry);
            drop(first);
        }
        let rows = self.rows(table, keys.clone())?;
        let mut rows = rows.iter().peekable();
        for key in keys {
            let row = rows.next_if(|row| row.key() == key);
            let place = RowPlace { table: of_table, key };
            self.compare(entry, place, row.map(|row| row.value()))?;
        }
        if rows.next().is_some() {
            let what = Failure::Error("a scan returned a key twice or out of its range".into());
            return Err(Stop::Found(what));
        }
        Ok(())
    }
}

/// All that the database holds.
///
/// # Errors
///
/// Those of the engine.
pub fn read_all(db: &Database) -> Result<Found, Error> {
    let txn = db.begin_read()?;
    let mut found = Found::default();
    for (number, table) in ROWS.into_iter().enumerate() {
        let table = match txn.open_table(table) {
            Err(Error::NoSuchTable { .. }) => continue,
            other => other?,
        };
        for entry in table.range(..)? {
            let entry = entry?;
            let place = RowPlace { table: number as u8, key: entry.key() };
            found.rows.insert(place, entry.value().to_vec());
        }
    }
    match txn.open_table(MARKERS) {
        Err(Error::NoSuchTable { .. }) => {}
        other => {
            for entry in other?.range(..)? {
                found.markers.insert(entry?.key());
            }
        }
    }
    Ok(found)
}
