//! The public API at random, against a model: every outcome and every error of it.
//!
//! One task runs transactions one after the other, so that all outcomes are known: the model is a
//! map of tables for what is committed, and a copy of it for what the open transaction sees. What
//! would depend on others, locks, is left to the histories; here it is only that a nested
//! transaction never sees what is not committed.

#[path = "api_model/rows.rs"]
mod rows;

use std::collections::BTreeMap;
use std::sync::Arc;

use terrace::{
    Checkpoint, Database, Devices, Durability, Error, Loader, Nanos, Savepoint, SavepointFlaw,
    Table, TableDef, World, WriteTransaction,
};
use terrace_device::model::{Preset, build};
use terrace_device::{Device, Keep, Store};
use terrace_rt::{Prng, Virtual, VirtualConfig};

use self::rows::{Bytes, Kind, Rows, reads, same, stale, writes};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// There from the beginning, for keys that are too long.
const LONG: TableDef<Bytes, u64> = TableDef::new("long");
const LOG_BYTES: u64 = 4 << 20;

/// A table of the model. Its number tells it from another one of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Modelled {
    number: u64,
    is_number: bool,
    rows: Rows,
}

type Tables = BTreeMap<&'static str, Modelled>;

/// A table that the transaction has open.
enum Handle<'t> {
    Bytes(Table<'t, u64, Bytes>),
    Numbers(Table<'t, u64, u64>),
}

struct Opened<'t> {
    name: &'static str,
    number: u64,
    table: Handle<'t>,
}

enum Load<'t> {
    Bytes(Loader<'t, u64, Bytes>),
    Numbers(Loader<'t, u64, u64>),
}

/// A load that was begun: its rows are there at the end, or one by one.
struct Loading<'t> {
    name: &'static str,
    number: u64,
    load: Load<'t>,
    is_built: bool,
    rows: Rows,
}

impl<'t> Handle<'t> {
    fn open(txn: &'t WriteTransaction, name: &'static str, number: bool) -> Result<Self, Error> {
        Ok(match number {
            true => Handle::Numbers(txn.open_table(TableDef::new(name))?),
            false => Handle::Bytes(txn.open_table(TableDef::new(name))?),
        })
    }
}

/// One transaction of a run, and its model.
struct Run<'r> {
    db: &'r Database,
    prng: &'r mut Prng,
    committed: &'r mut Tables,
    /// Tables made.
    made: &'r mut u64,
    /// A savepoint of a transaction that has ended.
    foreign: &'r mut Option<Savepoint>,
    /// What the transaction sees.
    tables: Tables,
    /// Every savepoint, what was there then, and whether it is still good.
    savepoints: Vec<(Savepoint, Tables, bool)>,
    /// A load was begun and never finished.
    is_unfinished: bool,
    what: String,
}

impl Run<'_> {
    /// Runs a transaction from its begin to its end.
    fn transaction(mut self) -> Option<Savepoint> {
        let txn = self.db.begin_write().expect("open");
        let (mut handles, mut loading) = (Vec::new(), None);
        let begin = std::mem::take(&mut self.what);
        for step in 0..self.prng.below(40) {
            self.what = format!("{begin} step {step}");
            self.step(&txn, &mut handles, &mut loading);
        }
        self.is_unfinished |= loading.is_some_and(|loading: Loading<'_>| loading.is_built);
        drop(handles);
        let what = format!("{begin} end");
        match self.prng.below(4) {
            0 => same(&what, txn.rollback(), Ok(())),
            1 => drop(txn),
            _ if self.is_unfinished => {
                same(&what, txn.commit(Durability::Buffered), Err("UnfinishedLoad"));
            }
            _ => {
                let all = [Durability::None, Durability::Buffered, Durability::Durable];
                let durability = all[self.prng.below(3) as usize];
                same(&what, txn.commit(durability), Ok(()));
                self.committed.clone_from(&self.tables);
            }
        }
        self.savepoints.pop().map(|(savepoint, ..)| savepoint)
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.prng.below(4) as usize]
    }

    fn step<'t>(
        &mut self,
        txn: &'t WriteTransaction,
        handles: &mut Vec<Opened<'t>>,
        loading: &mut Option<Loading<'t>>,
    ) {
        match self.prng.below(40) {
            0..4 => self.open(txn, handles),
            4 => self.delete(txn),
            5 => {
                let names: Vec<String> = self.tables.keys().map(|name| name.to_string()).collect();
                same(&self.what, txn.table_names(), Ok(names));
            }
            6 | 7 => self.mark(txn),
            8 | 9 => self.roll_back_to(txn),
            10 => self.begin_load(txn, loading),
            11..16 => self.load(loading),
            16 => self.beside(),
            17 => {
                let long = vec![7; 1_100 + self.prng.below(9_000) as usize];
                let refused = txn.open_table(LONG).and_then(|mut table| table.insert(&long, 1));
                same(&self.what, refused, Err("KeyTooLong"));
            }
            18 => {
                let filled = txn.bulk_load_filled(TableDef::<u64, u64>::new("none"), 101);
                same(&self.what, filled.map(drop), Err("InvalidOption"));
            }
            _ => self.use_table(handles, loading),
        }
    }

    fn open<'t>(&mut self, txn: &'t WriteTransaction, handles: &mut Vec<Opened<'t>>) {
        let (name, is_number) = (self.name(), self.prng.chance(2));
        let opened = Handle::open(txn, name, is_number);
        if self.tables.get(name).is_some_and(|there| there.is_number != is_number) {
            return same(&self.what, opened.map(drop), Err("TableTypes"));
        }
        let table = opened.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        if !self.tables.contains_key(name) {
            *self.made += 1;
            let made = Modelled { number: *self.made, is_number, rows: Rows::new() };
            self.tables.insert(name, made);
        }
        handles.push(Opened { name, number: self.tables[name].number, table });
    }

    /// Whether the transaction may neither be marked, nor rolled back in part, nor lose a table.
    fn delete(&mut self, txn: &WriteTransaction) {
        let name = self.name();
        let deleted = txn.delete_table(name);
        match self.is_unfinished {
            true => same(&self.what, deleted, Err("UnfinishedLoad")),
            false => same(&self.what, deleted, Ok(self.tables.remove(name).is_some())),
        }
    }

    fn mark(&mut self, txn: &WriteTransaction) {
        match txn.savepoint() {
            Ok(savepoint) if !self.is_unfinished => {
                self.savepoints.push((savepoint, self.tables.clone(), true));
            }
            made => {
                assert!(self.is_unfinished);
                same(&self.what, made.map(drop), Err("UnfinishedLoad"));
            }
        }
    }

    fn roll_back_to(&mut self, txn: &WriteTransaction) {
        if let Some(foreign) = self.foreign.as_ref().filter(|_| self.prng.below(4) == 0) {
            let Err(error) = txn.rollback_to(foreign) else { panic!("{}", self.what) };
            let flaw = SavepointFlaw::OtherTransaction;
            match error {
                Error::UnfinishedLoad if self.is_unfinished => (),
                Error::Savepoint { flaw: found } => assert_eq!(found, flaw, "{}", self.what),
                error => panic!("{}: {error}", self.what),
            }
            return;
        }
        if self.savepoints.is_empty() {
            return;
        }
        let at = self.prng.below(self.savepoints.len() as u64) as usize;
        let (savepoint, then, is_good) = &self.savepoints[at];
        let rolled = txn.rollback_to(savepoint);
        if self.is_unfinished {
            return same(&self.what, rolled, Err("UnfinishedLoad"));
        }
        if !is_good {
            return same(&self.what, rolled, Err("Savepoint { flaw: RolledBack"));
        }
        same(&self.what, rolled, Ok(()));
        self.tables.clone_from(then);
        self.savepoints[at + 1..].iter_mut().for_each(|(.., good)| *good = false);
    }

    fn begin_load<'t>(&mut self, txn: &'t WriteTransaction, loading: &mut Option<Loading<'t>>) {
        if loading.is_some() {
            return;
        }
        let (name, is_number) = (self.name(), self.prng.chance(2));
        let load = match is_number {
            true => txn.bulk_load(TableDef::new(name)).map(Load::Numbers),
            false => txn.bulk_load(TableDef::new(name)).map(Load::Bytes),
        };
        let is_built = match self.tables.get(name) {
            Some(there) if there.is_number != is_number => {
                return same(&self.what, load.map(drop), Err("TableTypes"));
            }
            Some(there) if !there.rows.is_empty() => {
                return same(&self.what, load.map(drop), Err("NotEmpty"));
            }
            there => there.is_none(),
        };
        let load = load.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        if is_built {
            *self.made += 1;
            let made = Modelled { number: *self.made, is_number, rows: Rows::new() };
            self.tables.insert(name, made);
            self.is_unfinished = true;
        }
        let number = self.tables[name].number;
        *loading = Some(Loading { name, number, load, is_built, rows: Rows::new() });
    }

    /// Adds a few rows to a load, or ends it.
    fn load(&mut self, loading: &mut Option<Loading<'_>>) {
        let Some(Loading { name, number, load, is_built, rows }) = loading else { return };
        let is_there = self.tables.get(name).is_some_and(|there| there.number == *number);
        if self.prng.below(4) > 0 {
            for _ in 0..self.prng.below(5) {
                let least = rows.keys().next_back().map_or(0, |last| *last);
                let key = least + self.prng.below(9);
                let (pushed, value) = match load {
                    Load::Numbers(load) => {
                        let value = u64::draw(self.prng);
                        (load.push(key, u64::view(&value)), value)
                    }
                    Load::Bytes(load) => {
                        let value = Bytes::draw(self.prng);
                        (load.push(key, Bytes::view(&value)), value)
                    }
                };
                if !is_there {
                    same(&self.what, pushed, Err("NoSuchTable"));
                    continue;
                }
                if rows.contains_key(&key) {
                    same(&self.what, pushed, Err("NotAscending"));
                    continue;
                }
                same(&self.what, pushed, Ok(()));
                if !*is_built {
                    let there = self.tables.get_mut(name).expect("it is there");
                    there.rows.insert(key, value.clone());
                }
                rows.insert(key, value);
            }
            return;
        }
        let Loading { name, load, is_built, rows, .. } = loading.take().expect("there is one");
        if self.prng.below(6) == 0 {
            // Dropped: a table that was being built stays unfinished.
            return;
        }
        let finished = match load {
            Load::Numbers(load) => load.finish(),
            Load::Bytes(load) => load.finish(),
        };
        if !is_there {
            return same(&self.what, finished, Err("NoSuchTable"));
        }
        same(&self.what, finished, Ok(()));
        if is_built {
            self.is_unfinished = false;
            self.tables.get_mut(name).expect("nobody deletes it meanwhile").rows = rows;
        }
    }

    /// What does not touch the transaction.
    fn beside(&mut self) {
        let name = self.name();
        match self.prng.below(6) {
            0 => same(&self.what, self.db.checkpoint(Checkpoint::Sharp), Ok(())),
            1 => same(&self.what, self.db.checkpoint(Checkpoint::Indirect), Ok(())),
            2 => same(&self.what, self.db.flush(), Ok(())),
            3 => terrace_rt::sleep(Nanos::from_millis(self.prng.below(20))),
            _ => {
                // Within another transaction of its task: it waits for nothing, and sees nothing
                // that is not committed.
                let read = self.db.read(|inner| {
                    let rows = inner.open_table(TableDef::<u64, u64>::new(name))?;
                    rows.range(..)?.map(|row| row.map(|row| (row.key(), row.value()))).collect()
                });
                let read: Result<Vec<(u64, u64)>, Error> = read;
                let there = self.committed.get(name);
                match (read, there) {
                    (Err(Error::Nested(_)), _) => (),
                    (Err(Error::NoSuchTable { .. }), None) => (),
                    (Err(Error::TableTypes { .. }), Some(there)) => assert!(!there.is_number),
                    (Ok(rows), Some(there)) => {
                        let model = there.rows.iter();
                        let model: Vec<_> = model.map(|(k, v)| (*k, u64::view(v))).collect();
                        assert_eq!(rows, model, "{}", self.what);
                    }
                    (read, there) => panic!("{}: {read:?}, {there:?}", self.what),
                }
            }
        }
    }

    fn use_table(&mut self, handles: &mut [Opened<'_>], loading: &Option<Loading<'_>>) {
        if handles.is_empty() {
            return;
        }
        let at = self.prng.below(handles.len() as u64) as usize;
        let Opened { name, number, table } = &mut handles[at];
        if loading.as_ref().is_some_and(|loading| loading.number == *number) {
            // Not while it is filled.
            return;
        }
        let (what, prng) = (format!("{} table {name}", self.what), &mut *self.prng);
        let there = self.tables.get_mut(name).filter(|there| there.number == *number);
        match (table, there) {
            (Handle::Bytes(table), None) => stale(&what, table, prng),
            (Handle::Numbers(table), None) => stale(&what, table, prng),
            (Handle::Bytes(table), Some(there)) => match prng.chance(2) {
                true => reads(&what, table, &there.rows, prng),
                false => writes(&what, table, &mut there.rows, (self.db, prng)),
            },
            (Handle::Numbers(table), Some(there)) => match prng.chance(2) {
                true => reads(&what, table, &there.rows, prng),
                false => writes(&what, table, &mut there.rows, (self.db, prng)),
            },
        }
    }
}

/// All tables of the database are the model's.
fn compare(db: &Database, tables: &Tables, what: &str) {
    let names: Vec<String> = tables.keys().map(|name| name.to_string()).collect();
    same(what, db.read(|txn| txn.table_names()), Ok(names));
    for (name, there) in tables {
        let found: Result<Vec<(u64, Vec<u8>)>, Error> = db.read(|txn| match *name {
            "long" => Ok(Vec::new()),
            name if there.is_number => {
                let table = txn.open_table(TableDef::<u64, u64>::new(name))?;
                let rows = table.range(..)?;
                rows.map(|row| row.map(|row| (row.key(), row.value_bytes().to_vec()))).collect()
            }
            name => {
                let table = txn.open_table(TableDef::<u64, Bytes>::new(name))?;
                let rows = table.range(..)?;
                rows.map(|row| row.map(|row| (row.key(), row.value_bytes().to_vec()))).collect()
            }
        });
        same(&format!("{what} table {name}"), found, Ok(there.rows.clone().into_iter().collect()));
    }
    same(what, db.check().map(drop), Ok(()));
}

/// An operation for which the log is too small dooms its transaction, whatever comes then.
fn doomed(db: &Database, what: &str) {
    let txn = db.begin_write().expect("open");
    let mut table = txn.open_table(TableDef::<u64, Bytes>::new("doomed")).expect("room");
    // Larger ones are not logged.
    let large = vec![7; 900_000];
    let full = (0..2 * LOG_BYTES / 900_000).try_for_each(|key| table.insert(key, &large));
    same(what, full, Err("LogFull"));
    same(what, table.insert(1, b"small"), Err("Doomed"));
    same(what, table.get(1).map(drop), Err("Doomed"));
    same(what, txn.savepoint().map(drop), Err("Doomed"));
    same(what, txn.table_names(), Err("Doomed"));
    drop(table);
    same(what, txn.commit(Durability::Durable), Err("Doomed"));
}

/// Closes the database while the caller has a transaction and a table open.
fn close(db: Database, what: &str) {
    let other = db.clone();
    let txn = db.begin_write().expect("open");
    let mut table = txn.open_table(TableDef::<u64, u64>::new("never")).expect("room");
    same(what, table.insert(1, 1), Ok(()));
    let savepoint = txn.savepoint().expect("sound");
    same(what, db.close(), Ok(()));
    same(what, table.insert(2, 2), Err("Closed"));
    same(what, table.get(1).map(drop), Err("Closed"));
    same(what, txn.rollback_to(&savepoint), Err("Closed"));
    same(what, txn.open_table(LONG).map(drop), Err("Closed"));
    drop(table);
    same(what, txn.commit(Durability::Durable), Err("Closed"));
    same(what, other.begin_read().map(drop), Err("Closed"));
    same(what, other.begin_write().map(drop), Err("Closed"));
    same(what, other.checkpoint(Checkpoint::Sharp), Err("Closed"));
    same(what, other.flush(), Err("Closed"));
    same(what, other.check().map(drop), Err("Closed"));
}

fn run(seed: u64) {
    let mut prng = Prng::from_seed(seed);
    let memory = |bytes| -> Arc<dyn Device> {
        build(Preset::Ram, World::current(), Store::new(bytes, Keep::Plain))
    };
    let devices = Devices { home: memory(32 << 20), flash: None, log: memory(LOG_BYTES) };
    let builder = Database::builder().memory(1 << 20).devices(devices);
    let mut db = builder.clone().create_on_devices().expect("memory is there");
    same("long", db.write(|txn| txn.open_table(LONG).map(drop)), Ok(()));
    let long = Modelled { number: 0, is_number: true, rows: Rows::new() };
    let mut committed = Tables::from([("long", long)]);
    let (mut made, mut foreign) = (0, None);
    for number in 0..30 {
        let what = format!("seed {seed} transaction {number}");
        let run = Run {
            db: &db,
            prng: &mut prng,
            tables: committed.clone(),
            committed: &mut committed,
            made: &mut made,
            foreign: &mut foreign,
            savepoints: Vec::new(),
            is_unfinished: false,
            what: what.clone(),
        };
        foreign = run.transaction().or(foreign);
        match prng.below(12) {
            0 | 1 => compare(&db, &committed, &what),
            2 => doomed(&db, &what),
            3 => {
                close(db, &what);
                db = builder.clone().open_on_devices().expect("it was closed");
                compare(&db, &committed, &what);
            }
            4 => terrace_rt::sleep(Nanos::from_millis(500)),
            _ => (),
        }
    }
    compare(&db, &committed, "end");
    close(db, "end");
}

#[test]
fn every_operation_agrees_with_a_model() {
    for seed in 0..60 {
        let config = VirtualConfig { seed, switch_one_in: 5, cores: 1, stack_bytes: 256 << 10 };
        Virtual::new(config).run(|| run(seed)).expect("nobody waits for ever");
    }
}
