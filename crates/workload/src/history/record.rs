//! Records a history: clients read, write, remove and scan a few keys of one table at once.
//!
//! Few keys and long transactions, so that nearly all of them meet: every pair of operations on a
//! key or a range happens in both orders within a few hundred transactions. All writes carry
//! unique values.
//!
//! Moments are counted as operations return. In a virtual world no other task runs between the
//! return of an operation and its entry here, so the moments are those of the engine.

use std::sync::Arc;

use terrace::{Database, Durability, Error, TableDef, WriteTransaction};
use terrace_rt::{LeafMutex, Prng, World, yield_now};

use super::checker::{History, Key, Op, Outcome, Transaction, Value};

const TABLE: TableDef<u64, &[u8]> = TableDef::new("history");

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Decides every operation.
    pub seed: u64,
    /// Tasks.
    pub clients: u32,
    /// Transactions of each.
    pub transactions: u32,
    /// Keys, from 0 on; half of them exist at first.
    pub keys: u64,
    /// Operations of a transaction, at most.
    pub operations_max: u64,
    /// Bytes of a value, at least 8: large ones make the table larger than memory.
    pub value_bytes: usize,
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
        }
    }
}

/// Runs the clients on `db` in `world` and returns all that they did.
///
/// # Errors
///
/// Those of the engine, but conflicts, which are part of a history.
pub fn record(db: &Database, world: &World, options: Options) -> Result<History, Error> {
    let mut prng = Prng::from_seed(options.seed);
    let log = Arc::new(LeafMutex::new(Log::default()));
    fill(db, options, &log)?;
    let tasks: Vec<_> = (0..options.clients)
        .map(|_| {
            let client =
                Client { db: db.clone(), log: Arc::clone(&log), options, prng: prng.fork() };
            world.spawn("history", move || client.run())
        })
        .collect();
    for task in tasks {
        task.join();
    }
    let mut log = log.lock();
    match log.failure.take() {
        Some(error) => Err(error),
        None => Ok(std::mem::take(&mut log.history)),
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
fn fill(db: &Database, options: Options, log: &LeafMutex<Log>) -> Result<(), Error> {
    let txn = db.begin_write()?;
    for key in (0..options.keys).step_by(2) {
        let value = log.lock().new_value();
        txn.open_table(TABLE)?.insert(key, &stored(value, options.value_bytes))?;
        log.lock().history.initial.insert(key, value);
    }
    txn.commit(Durability::Buffered)
}

fn stored(value: Value, bytes: usize) -> Vec<u8> {
    let mut stored = vec![value as u8; bytes.max(8)];
    stored[..8].copy_from_slice(&value.to_le_bytes());
    stored
}

fn value_of(stored: &[u8]) -> Value {
    stored.first_chunk().map_or(0, |bytes| Value::from_le_bytes(*bytes))
}

struct Client {
    db: Database,
    log: Arc<LeafMutex<Log>>,
    options: Options,
    prng: Prng,
}

impl Client {
    fn run(mut self) {
        for _ in 0..self.options.transactions {
            if let Err(error) = self.transact() {
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
                let durable = self.prng.chance(2);
                let durability = if durable { Durability::Durable } else { Durability::None };
                txn.commit(durability).map(|()| Outcome::Committed)
            }
            Err(error) => Err(error),
        };
        let outcome = match outcome {
            Err(error) if error.is_transient() => Outcome::Aborted,
            other => other?,
        };
        let mut log = self.log.lock();
        let end = log.tick();
        log.history.transactions.push(Transaction { begin, end, outcome, ops });
        Ok(())
    }

    fn operate(&mut self, txn: &WriteTransaction, ops: &mut Vec<Op>) -> Result<(), Error> {
        let mut table = txn.open_table(TABLE)?;
        for _ in 0..=self.prng.below(self.options.operations_max) {
            let key = self.prng.below(self.options.keys);
            let op = match self.prng.below(8) {
                0..=2 => {
                    let found = table.get(key)?.map(|stored| value_of(stored.value()));
                    Op::Read { key, found, at: self.log.lock().tick() }
                }
                3 => {
                    let found = table.get_for_update(key)?.map(|stored| value_of(stored.value()));
                    Op::Read { key, found, at: self.log.lock().tick() }
                }
                4 => self.scan(&table, key)?,
                5 => match table.remove(key)? {
                    true => Op::Write { key, value: None, at: self.log.lock().tick() },
                    // To remove what is not there is to see that it is not.
                    false => Op::Read { key, found: None, at: self.log.lock().tick() },
                },
                _ => {
                    let value = self.log.lock().new_value();
                    table.insert(key, &stored(value, self.options.value_bytes))?;
                    Op::Write { key, value: Some(value), at: self.log.lock().tick() }
                }
            };
            ops.push(op);
            if self.prng.chance(3) {
                yield_now();
            }
        }
        Ok(())
    }

    /// Reads a range from `low` on, in either direction.
    fn scan(
        &mut self,
        table: &terrace::Table<'_, u64, &'static [u8]>,
        low: Key,
    ) -> Result<Op, Error> {
        let high = low + 1 + self.prng.below(self.options.keys);
        let range = table.range(low..high)?;
        let rows = match self.prng.chance(2) {
            true => range.rev().collect::<Result<Vec<_>, _>>()?,
            false => range.collect::<Result<Vec<_>, _>>()?,
        };
        let found = rows.iter().map(|row| (row.key(), value_of(row.value()))).collect();
        Ok(Op::Scan { low, high, found, at: self.log.lock().tick() })
    }
}
