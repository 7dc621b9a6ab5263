//! One client: random transactions, each noted in the ledger before, during and after.

use std::sync::Arc;

use terrace::{
    Checkpoint, Database, Durability, Error, Table, TableDef, Transaction, WriteTransaction,
};
use terrace_rt::Prng;

use super::Shared;
use super::ledger::{Entry, Failure, Found, Place, Promise, STAMP_SIZE, Stamp};
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

/// Why a transaction did not commit.
enum Stop {
    Conflict,
    Failure(Failure),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        match error {
            error if error.is_transient() => Stop::Conflict,
            other => Stop::Failure(Failure::Error(other.to_string())),
        }
    }
}

/// A client of the database.
pub struct Client {
    /// The database.
    pub db: Database,
    /// Ledger and findings.
    pub shared: Arc<Shared>,
    /// What the torture is like.
    pub scenario: Scenario,
    /// The client's own generator.
    pub prng: Prng,
}

impl Client {
    /// Runs the transactions of one round, or until something is found to be wrong.
    pub fn run(mut self) {
        for _ in 0..self.scenario.transactions {
            if self.shared.has_failed() {
                return;
            }
            self.transact();
            self.shared.note_stats(&self.db.stats());
            if self.prng.chance(u64::from(self.scenario.checkpoint_one_in)) {
                self.checkpoint();
            }
        }
    }

    /// Fills two thirds of all places, so that the database is larger than memory from the start.
    pub fn preload(mut self) {
        let keys = self.scenario.keys;
        let all = (0..TABLES).flat_map(|table| (0..keys).map(move |key| Place { table, key }));
        let mut places: Vec<Place> = all.collect();
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
            match outcome {
                Err(Stop::Failure(failure)) => return self.shared.fail(failure),
                Err(Stop::Conflict) => self.shared.ledger().give_up(entry),
                Ok(()) => self.shared.note_stats(&self.db.stats()),
            }
        }
    }

    fn checkpoint(&mut self) {
        let kind = match self.prng.chance(4) {
            true => Checkpoint::Sharp,
            false => Checkpoint::Indirect,
        };
        self.shared.enter_checkpoint();
        if let Err(error) = self.db.checkpoint(kind) {
            self.shared.fail(Failure::Error(error.to_string()));
        }
        self.shared.leave_checkpoint();
    }

    fn transact(&mut self) {
        let entry = self.shared.ledger().begin();
        let txn = match self.db.begin_write() {
            Ok(txn) => txn,
            Err(error) => return self.shared.fail(Failure::Error(error.to_string())),
        };
        if let Err(stop) = self.operate(&txn, entry) {
            self.abandon(txn, entry);
            if let Stop::Failure(failure) = stop {
                self.shared.fail(failure);
            }
        } else if self.prng.chance(10) {
            self.roll_back(txn, entry);
        } else {
            self.commit(txn, entry);
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
        if let Err(error) = outcome {
            self.shared.fail(Failure::Error(error.to_string()));
        }
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
            Err(error) => self.shared.fail(Failure::Error(error.to_string())),
        }
    }

    /// The operations of one transaction, its marker among them.
    fn operate(&mut self, txn: &WriteTransaction, entry: Entry) -> Result<(), Stop> {
        let operations = 1 + self.prng.below(OPERATIONS_MAX);
        let marker_at = self.prng.below(operations);
        for operation in 0..operations {
            if operation == marker_at {
                txn.open_table(MARKERS)?.insert(entry.0, ())?;
            }
            let place = Place {
                table: self.prng.below(u64::from(TABLES)) as u8,
                key: self.prng.below(u64::from(self.scenario.keys)) as u32,
            };
            let mut table = txn.open_table(ROWS[usize::from(place.table)])?;
            match self.prng.below(10) {
                0 | 1 => self.read(&table, entry, place)?,
                2 => self.scan(&table, entry, place)?,
                3 => {
                    table.remove(place.key)?;
                    self.shared.ledger().wrote(entry, place, None);
                }
                4 => {
                    let found = table.get_for_update(place.key)?;
                    self.compare(entry, place, found.as_ref().map(|row| row.value()))?;
                    self.write(&mut table, entry, place, operation)?;
                }
                _ => self.write(&mut table, entry, place, operation)?,
            }
        }
        Ok(())
    }

    fn write(
        &mut self,
        table: &mut Table<'_, u32, Row>,
        entry: Entry,
        place: Place,
        write: u64,
    ) -> Result<(), Stop> {
        let stamp = Stamp { transaction: entry.0, write: write as u32, length: self.length() };
        table.insert(place.key, &stamp.value(place))?;
        self.shared.ledger().wrote(entry, place, Some(stamp));
        Ok(())
    }

    /// Mostly short, some long, a few of several pages.
    fn length(&mut self) -> u32 {
        let beyond_stamp = match self.prng.below(100) {
            0 => 8_000 + self.prng.below(20_000),
            1..=10 => self.prng.below(2_500),
            _ => self.prng.below(400),
        };
        STAMP_SIZE as u32 + beyond_stamp as u32
    }

    fn read<T: Transaction>(
        &mut self,
        table: &Table<'_, u32, Row, T>,
        entry: Entry,
        place: Place,
    ) -> Result<(), Stop> {
        let found = table.get(place.key)?;
        self.compare(entry, place, found.as_ref().map(|row| row.value()))
    }

    fn compare(&self, entry: Entry, place: Place, found: Option<&[u8]>) -> Result<(), Stop> {
        self.shared.ledger().check_read(entry, place, found).map_err(Stop::Failure)
    }

    /// Scans a few keys from `place` on, forwards or backwards; absent keys are compared too.
    fn scan<T: Transaction>(
        &mut self,
        table: &Table<'_, u32, Row, T>,
        entry: Entry,
        place: Place,
    ) -> Result<(), Stop> {
        let keys = place.key..place.key + 1 + self.prng.below(SCAN_KEYS_MAX) as u32;
        let range = table.range(keys.clone())?;
        let mut rows = match self.prng.chance(2) {
            true => range.rev().collect::<Result<Vec<_>, _>>()?,
            false => range.collect::<Result<Vec<_>, _>>()?,
        };
        rows.sort_by_key(|row| row.key());
        let mut rows = rows.iter().peekable();
        for key in keys {
            let row = rows.next_if(|row| row.key() == key);
            self.compare(entry, Place { key, ..place }, row.map(|row| row.value()))?;
        }
        if rows.next().is_some() {
            let what = Failure::Error("a scan returned a key twice or out of its range".into());
            return Err(Stop::Failure(what));
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
            let place = Place { table: number as u8, key: entry.key() };
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
