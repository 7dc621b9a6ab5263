//! Records a history: clients read, write, remove and scan a few keys of a few tables at once, set
//! savepoints and go back to them, and delete tables that they or others make again.
//!
//! Few keys and long transactions, so that nearly all of them meet: every pair of operations on a
//! key or a range happens in both orders within a few hundred transactions. All writes carry
//! unique values.
//!
//! Moments are counted as operations return. In a virtual world no other task runs between the
//! return of an operation and its entry here, so the moments are those of the engine. Threads of
//! the real world enter them later, but while they hold their locks: the moments of the writes of
//! a key are in the order of the writes, and a transaction begins before and ends after its
//! moments of begin and end.
//!
//! A table is its keys: key `n` of table `t` is `t * KEYS_MAX + n` in the history, and to delete
//! a table is to remove all of its keys. What a savepoint takes back is not in the history: the
//! writes, and what was read of keys that were written since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use terrace::{
    Database, Durability, Error, ReadTransaction, Savepoint, Table, TableDef, WriteTransaction,
};
use terrace_rt::{LeafMutex, Prng, World, yield_now};

use super::checker::{History, Key, Op, Outcome, Transaction, Value};

type Rows = TableDef<'static, u64, &'static [u8]>;

const TABLES: [Rows; 3] =
    [TableDef::new("history"), TableDef::new("history 2"), TableDef::new("history 3")];
/// A snapshot reads this many times as often as another transaction operates.
const LOOKS: u64 = 3;
/// Keys of a table, at most.
const KEYS_MAX: u64 = 1 << 32;

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Decides every operation; in the real world, not their order.
    pub seed: u64,
    /// Tasks.
    pub clients: u32,
    /// Transactions of each.
    pub transactions: u32,
    /// Keys of a table, from 0 on; half of them exist at first.
    pub keys: u64,
    /// Operations of a transaction, at most.
    pub operations_max: u64,
    /// Bytes of a value, at least 8: large ones make the table larger than memory.
    pub value_bytes: usize,
    /// How many tables, three at most.
    pub tables: usize,
    /// One in this number of operations deletes a table; zero for none.
    pub deletes_table_one_in: u64,
    /// One in this number of operations sets a savepoint or goes back to one; zero for none.
    pub savepoint_one_in: u64,
    /// Rows, evenly spread over the keys, that three of four operations fall on, so that clients
    /// meet in a table that is larger than memory; zero for none.
    pub hot_rows: u64,
    /// Keys of a range, at most.
    pub scan_keys_max: u64,
    /// One in this number of commits is durable, the others are not forced.
    pub durable_one_in: u64,
    /// One in this number of transactions reads a snapshot; zero for none.
    pub snapshot_one_in: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: 1,
            clients: 6,
            transactions: 40,
            keys: 12,
            operations_max: 6,
            value_bytes: 200,
            tables: 1,
            deletes_table_one_in: 0,
            savepoint_one_in: 0,
            hot_rows: 0,
            scan_keys_max: u64::MAX,
            durable_one_in: 2,
            snapshot_one_in: 0,
        }
    }
}

/// What a history left in its tables, where the next one on the same database begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Every key that is there.
    pub rows: BTreeMap<Key, Value>,
    /// The last value that was given out: each is written once only, in all of the histories.
    pub values: Value,
}

impl Left {
    /// Whether `db` holds these rows and no others.
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn is_in(&self, db: &Database) -> Result<bool, Error> {
        Ok(self.rows == all_rows(db)?)
    }
}

/// Runs the clients on `db` in `world` and returns all that they did.
///
/// # Errors
///
/// Those of the engine, but conflicts, which are part of a history.
pub fn record(db: &Database, world: &World, options: Options) -> Result<History, Error> {
    let (recording, clients) = Recording::begin(db, options)?;
    let tasks: Vec<_> =
        clients.into_iter().map(|client| world.spawn("history", move || client.run())).collect();
    for task in tasks {
        task.join();
    }
    recording.finish()
}

/// A history that is being recorded.
#[derive(Clone)]
pub struct Recording {
    log: Arc<LeafMutex<Log>>,
}

impl Recording {
    /// Fills the first table, and returns the clients that are to run, each on a task or thread of
    /// its own.
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn begin(
        db: &Database,
        options: Options,
    ) -> Result<(Recording, Vec<HistoryClient>), Error> {
        let mut left = Left::default();
        fill(db, options, &mut left)?;
        Ok(Recording::resume(db, options, left))
    }

    /// The same on a database in which a history before it left `left`.
    pub fn resume(db: &Database, options: Options, left: Left) -> (Recording, Vec<HistoryClient>) {
        let mut prng = Prng::from_seed(options.seed);
        let history = History { initial: left.rows, ..History::default() };
        let log = Log { history, values: left.values, ..Log::default() };
        let log = Arc::new(LeafMutex::new(log));
        let mut client =
            || HistoryClient { db: db.clone(), log: Arc::clone(&log), options, prng: prng.fork() };
        let clients = (0..options.clients).map(|_| client()).collect();
        (Recording { log }, clients)
    }

    /// A count that grows with each operation.
    pub fn progress(&self) -> u64 {
        self.log.lock().clock
    }

    /// What the clients did, once all have run.
    ///
    /// # Errors
    ///
    /// What stopped a client, but for conflicts.
    pub fn finish(self) -> Result<History, Error> {
        self.taken().map(|(history, _)| history)
    }

    /// The same, and a last transaction that reads all that is there, which the next history is to
    /// begin with.
    ///
    /// # Errors
    ///
    /// What stopped a client, or the last transaction.
    pub fn finish_all(self, db: &Database) -> Result<(History, Left), Error> {
        let (begin, at, end) = {
            let mut log = self.log.lock();
            (log.tick(), log.tick(), log.tick())
        };
        let (mut history, values) = self.taken()?;
        let rows = all_rows(db)?;
        let scan = |table: usize| {
            let (low, high) = (key_of(table, 0), key_of(table + 1, 0));
            let found = rows.range(low..high).map(|(&key, &value)| (key, value)).collect();
            Op::Scan { low, high, found, at }
        };
        let ops = (0..TABLES.len()).map(scan).collect();
        let (outcome, snapshot) = (Outcome::Committed, Some(at));
        let last = Transaction { begin, end, outcome, ops, snapshot };
        history.transactions.push(last);
        Ok((history, Left { rows, values }))
    }

    fn taken(&self) -> Result<(History, Value), Error> {
        let mut log = self.log.lock();
        match log.failure.take() {
            Some(error) => Err(error),
            None => Ok((std::mem::take(&mut log.history), log.values)),
        }
    }
}

#[derive(Default)]
struct Log {
    history: History,
    clock: u64,
    values: Value,
    failure: Option<Error>,
}

impl Log {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn new_value(&mut self) -> Value {
        self.values += 1;
        self.values
    }
}

/// Every other key is there at first.
fn fill(db: &Database, options: Options, left: &mut Left) -> Result<(), Error> {
    let txn = db.begin_write()?;
    for key in (0..options.keys).step_by(2) {
        left.values += 1;
        let value = stored(left.values, options.value_bytes);
        txn.open_table(TABLES[0])?.insert(key, &value)?;
        left.rows.insert(key, left.values);
    }
    txn.commit(Durability::Buffered)
}

/// Every row of every table, read in one transaction.
fn all_rows(db: &Database) -> Result<BTreeMap<Key, Value>, Error> {
    let txn = db.begin_read()?;
    let mut rows = BTreeMap::new();
    for (number, definition) in TABLES.into_iter().enumerate() {
        let table = match txn.open_table(definition) {
            Err(Error::NoSuchTable { .. }) => continue,
            other => other?,
        };
        for row in table.range(..)? {
            let row = row?;
            rows.insert(key_of(number, row.key()), value_of(row.value()));
        }
    }
    Ok(rows)
}

fn stored(value: Value, bytes: usize) -> Vec<u8> {
    let mut stored = vec![value as u8; bytes.max(8)];
    stored[..8].copy_from_slice(&value.to_le_bytes());
    stored
}

/// The value of a row, or one that no transaction wrote if its bytes are not those of one value.
fn value_of(stored: &[u8]) -> Value {
    let Some((value, filler)) = stored.split_first_chunk() else { return Value::MAX };
    let value = Value::from_le_bytes(*value);
    let is_whole = filler.iter().all(|&byte| byte == value as u8);
    if is_whole { value } else { Value::MAX }
}

/// One client of a history.
pub struct HistoryClient {
    db: Database,
    log: Arc<LeafMutex<Log>>,
    options: Options,
    prng: Prng,
}

impl HistoryClient {
    /// Runs its transactions, one after the other.
    pub fn run(mut self) {
        for _ in 0..self.options.transactions {
            let looks = self.one_in(self.options.snapshot_one_in);
            let done = if looks { self.look() } else { self.transact() };
            if let Err(error) = done {
                self.log.lock().failure.get_or_insert(error);
                return;
            }
            yield_now();
        }
    }

    /// One transaction, to whatever end.
    fn transact(&mut self) -> Result<(), Error> {
        let begin = self.log.lock().tick();
        let mut ops = Vec::new();
        let txn = self.db.begin_write()?;
        let outcome = match self.operate(&txn, &mut ops) {
            Ok(()) if self.prng.chance(8) => txn.rollback().map(|()| Outcome::Aborted),
            Ok(()) => {
                let durable = self.prng.chance(self.options.durable_one_in);
                let durability = if durable { Durability::Durable } else { Durability::None };
                txn.commit(durability).map(|()| Outcome::Committed)
            }
            Err(error) => Err(error),
        };
        let outcome = match outcome {
            Err(error) if ends_it_alone(&error) => Outcome::Aborted,
            other => other?,
        };
        self.ends(Transaction { begin, end: 0, outcome, ops, snapshot: None });
        Ok(())
    }

    fn ends(&self, mut transaction: Transaction) {
        let mut log = self.log.lock();
        transaction.end = log.tick();
        log.history.transactions.push(transaction);
    }

    /// A transaction that reads through a snapshot. What it has read before the snapshot is too old
    /// counts.
    fn look(&mut self) -> Result<(), Error> {
        let begin = self.tick();
        let durable = self.prng.chance(4);
        let txn = match durable {
            true => self.db.begin_read_durable(),
            false => self.db.begin_read(),
        };
        let txn = match txn {
            Err(Error::SnapshotTooOld) => return Ok(()),
            other => other?,
        };
        let there = self.tick();
        let mut ops = Vec::new();
        for _ in 0..=self.prng.below(LOOKS * self.options.operations_max) {
            let table = self.prng.below(self.options.tables as u64) as usize;
            match self.look_at(&txn, table, there) {
                Err(Error::SnapshotTooOld) => break,
                op => ops.push(op?),
            }
            if self.prng.chance(2) {
                yield_now();
            }
        }
        drop(txn);
        let (outcome, snapshot) = (Outcome::Committed, Some(there));
        self.ends(Transaction { begin, end: 0, outcome, ops, snapshot });
        Ok(())
    }

    fn look_at(&mut self, txn: &ReadTransaction, number: usize, at: u64) -> Result<Op, Error> {
        let (row, keys_max) = (self.row(), self.options.keys.min(self.options.scan_keys_max));
        let high = row + 1 + self.prng.below(keys_max);
        let table = match txn.open_table(TABLES[number]) {
            Err(Error::NoSuchTable { .. }) => {
                let (low, high) = (key_of(number, 0), key_of(number, self.options.keys));
                return Ok(Op::Scan { low, high, found: Vec::new(), at });
            }
            other => other?,
        };
        if self.prng.chance(2) {
            let key = key_of(number, row);
            let found = table.get(row)?.map(|stored| value_of(stored.value()));
            return Ok(Op::Read { key, found, at });
        }
        self.scan(&table, number, row..high, at)
    }

    fn operate(&mut self, txn: &WriteTransaction, ops: &mut Vec<Op>) -> Result<(), Error> {
        let mut savepoint = None;
        for _ in 0..=self.prng.below(self.options.operations_max) {
            let table = self.prng.below(self.options.tables as u64) as usize;
            if self.one_in(self.options.deletes_table_one_in) {
                self.delete(txn, table, ops)?;
            } else if self.one_in(self.options.savepoint_one_in) {
                match savepoint.take() {
                    None => savepoint = Some((txn.savepoint()?, ops.len())),
                    Some((place, before)) => take_back(txn, &place, ops, before)?,
                }
            } else {
                let op = self.operate_on(txn, table)?;
                ops.push(op);
            }
            if self.prng.chance(3) {
                yield_now();
            }
        }
        Ok(())
    }

    fn one_in(&mut self, count: u64) -> bool {
        count > 0 && self.prng.below(count) == 0
    }

    fn tick(&self) -> u64 {
        self.log.lock().tick()
    }

    fn row(&mut self) -> u64 {
        let Options { keys, hot_rows, .. } = self.options;
        if hot_rows > 0 && !self.prng.chance(4) {
            return self.prng.below(hot_rows) * (keys / hot_rows).max(1) % keys;
        }
        self.prng.below(keys)
    }

    /// One operation on a row or a range.
    fn operate_on(&mut self, txn: &WriteTransaction, number: usize) -> Result<Op, Error> {
        let mut table = txn.open_table(TABLES[number])?;
        let row = self.row();
        let key = key_of(number, row);
        Ok(match self.prng.below(8) {
            0..=2 => {
                let found = table.get(row)?.map(|stored| value_of(stored.value()));
                Op::Read { key, found, at: self.tick() }
            }
            3 => {
                let found = table.get_for_update(row)?.map(|stored| value_of(stored.value()));
                Op::Read { key, found, at: self.tick() }
            }
            4 => {
                let keys_max = self.options.keys.min(self.options.scan_keys_max);
                let high = row + 1 + self.prng.below(keys_max);
                let mut read = self.scan(&table, number, row..high, 0)?;
                if let Op::Scan { at, .. } = &mut read {
                    *at = self.tick();
                }
                read
            }
            5 => match table.remove(row)? {
                true => Op::Write { key, value: None, at: self.tick() },
                // To remove what is not there is to see that it is not.
                false => Op::Read { key, found: None, at: self.tick() },
            },
            _ => {
                let value = self.log.lock().new_value();
                table.insert(row, &stored(value, self.options.value_bytes))?;
                Op::Write { key, value: Some(value), at: self.tick() }
            }
        })
    }

    fn delete(
        &mut self,
        txn: &WriteTransaction,
        number: usize,
        ops: &mut Vec<Op>,
    ) -> Result<(), Error> {
        let is_there = txn.delete_table(TABLES[number].name())?;
        for row in 0..self.options.keys {
            let (key, at) = (key_of(number, row), self.tick());
            ops.push(match is_there {
                true => Op::Write { key, value: None, at },
                false => Op::Read { key, found: None, at },
            });
        }
        Ok(())
    }

    /// Reads a range, in either direction.
    fn scan<T: terrace::Transaction>(
        &mut self,
        table: &Table<'_, u64, &'static [u8], T>,
        number: usize,
        rows: std::ops::Range<u64>,
        at: u64,
    ) -> Result<Op, Error> {
        let (low, high) = (key_of(number, rows.start), key_of(number, rows.end));
        let range = table.range(rows)?;
        let rows = match self.prng.chance(2) {
            true => range.rev().collect::<Result<Vec<_>, _>>()?,
            false => range.collect::<Result<Vec<_>, _>>()?,
        };
        let entry = |row: &terrace::Entry<u64, &'static [u8]>| {
            (key_of(number, row.key()), value_of(row.value()))
        };
        let found = rows.iter().map(entry).collect();
        Ok(Op::Scan { low, high, found, at })
    }
}

/// Whether a transaction that met `error` was rolled back, and nothing else has happened.
fn ends_it_alone(error: &Error) -> bool {
    match error {
        Error::LogFull { .. } | Error::TooManyLocks => true,
        Error::Doomed { cause: Some(cause) } => ends_it_alone(cause),
        error => error.is_transient(),
    }
}

fn key_of(table: usize, row: u64) -> Key {
    table as u64 * KEYS_MAX + row
}

/// Goes back to a savepoint, and takes from `ops` what it takes back.
fn take_back(
    txn: &WriteTransaction,
    savepoint: &Savepoint,
    ops: &mut Vec<Op>,
    before: usize,
) -> Result<(), Error> {
    txn.rollback_to(savepoint)?;
    let since = ops.split_off(before);
    let written = |op: &Op| match op {
        Op::Write { key, .. } => Some(*key),
        _ => None,
    };
    let written: BTreeSet<Key> = since.iter().filter_map(written).collect();
    for op in since {
        match op {
            Op::Write { .. } => (),
            Op::Read { key, .. } if written.contains(&key) => (),
            Op::Read { .. } => ops.push(op),
            Op::Scan { low, high, found, at } => {
                let read = |key| {
                    let found = found.iter().find(|(other, _)| *other == key);
                    Op::Read { key, found: found.map(|(_, value)| *value), at }
                };
                ops.extend((low..high).filter(|key| !written.contains(key)).map(read));
            }
        }
    }
    Ok(())
}
