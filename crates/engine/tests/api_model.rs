//! The public API at random, against a model: every outcome and every error of it.
//!
//! One task runs transactions one after the other, so that all outcomes are known: the model is a
//! map of tables for what is committed, and a copy of it for what the open transaction sees. Tables
//! are opened typed, raw and as multimaps. What would depend on others, locks, is left to the
//! histories; here it is only that a nested transaction never sees what is not committed.
//!
//! The database is closed and opened again, and the power is cut: what is there then is a state
//! that was committed, no older than the last one that was durable.

#[path = "api_model/lives.rs"]
mod lives;
#[path = "api_model/rows.rs"]
mod rows;
#[path = "api_model/sets.rs"]
mod sets;

mod rig;

use std::collections::BTreeMap;

use terrace::{
    Checkpoint, Column, Database, Durability, Error, Loader, Multimap, MultimapDef, Nanos,
    RawTable, Savepoint, SavepointFlaw, Schema, Table, TableDef, TableInfo, TableSpec,
    WriteTransaction,
};
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{LeafMutex, Prng};

use self::lives::{life, lives};
use self::rows::{Bytes, Rows, Shape, reads, same, stale, writes};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// There from the beginning, for keys that are too long.
const LONG: TableDef<Bytes, u64> = TableDef::new("long");

/// A table of the model. Its number tells it from another one of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Modelled {
    number: u64,
    shape: Shape,
    schema: Option<Schema>,
    rows: Rows,
}

type Tables = BTreeMap<&'static str, Modelled>;

/// A table that the transaction has open.
enum Handle<'t> {
    Bytes(Table<'t, u64, Bytes>),
    Numbers(Table<'t, u64, u64>),
    Pairs(Multimap<'t, u64, u64>),
    Raw(RawTable<'t>),
}

struct Opened<'t> {
    number: u64,
    shape: Shape,
    table: Handle<'t>,
}

enum Load<'t> {
    Bytes(Loader<'t, u64, Bytes>),
    Numbers(Loader<'t, u64, u64>),
    Raw(Loader<'t, Bytes, Bytes>),
}

/// A load that was begun: its rows are there at the end, or one by one.
struct Loading<'t> {
    number: u64,
    shape: Shape,
    load: Load<'t>,
    is_built: bool,
    /// The place of the last key that was drawn.
    place: u64,
    rows: Rows,
}

impl<'t> Handle<'t> {
    fn open(txn: &'t WriteTransaction, name: &'static str, shape: Shape) -> Result<Self, Error> {
        Ok(match shape {
            Shape::Numbers => Handle::Numbers(txn.open_table(TableDef::new(name))?),
            Shape::Bytes => Handle::Bytes(txn.open_table(TableDef::new(name))?),
            Shape::Pairs => Handle::Pairs(txn.open_multimap(MultimapDef::new(name))?),
        })
    }
}

/// The types of a table's rows.
fn spec(shape: Shape) -> TableSpec {
    match shape {
        Shape::Bytes => TableSpec::of::<u64, Bytes>(),
        Shape::Numbers => TableSpec::of::<u64, u64>(),
        Shape::Pairs => TableSpec::of::<(u64, u64), ()>(),
    }
}

/// One of three schemas, or none.
fn schema(prng: &mut Prng) -> Option<Schema> {
    let name = ["id", "number", "it"].get(prng.below(6) as usize)?;
    let column = Column { name: (*name).into(), type_name: "INT".into(), is_nullable: false };
    Some(Schema::new(vec![column], 1).expect("sound"))
}

/// What the catalog says of a table of the model.
fn info(name: &str, table: &Modelled) -> TableInfo {
    let (key_type, value_type) = match table.shape {
        _ if name == LONG.name() => ("bytes", "u64"),
        Shape::Bytes => ("u64", "bytes"),
        Shape::Numbers => ("u64", "u64"),
        Shape::Pairs => ("(u64,u64)", "()"),
    };
    let [name, key_type, value_type] = [name, key_type, value_type].map(str::to_string);
    TableInfo { name, key_type, value_type, schema: table.schema.clone(), damage: None }
}

fn infos(tables: &Tables) -> Vec<TableInfo> {
    tables.iter().map(|(name, table)| info(name, table)).collect()
}

/// The table of a number, and its name now.
fn numbered(tables: &mut Tables, number: u64) -> Option<(&'static str, &mut Modelled)> {
    let mut tables = tables.iter_mut();
    tables.find(|(_, table)| table.number == number).map(|(name, table)| (*name, table))
}

/// States that a power cut may leave: the last one that is durable, and those committed since.
type States = LeafMutex<Vec<Tables>>;

/// All that was committed is durable.
fn all_durable(states: &States) {
    let mut states = states.lock();
    let last = states.len() - 1;
    states.drain(..last);
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
    states: &'r States,
    /// What the transaction sees.
    tables: Tables,
    /// Every savepoint, what was there then, and whether it is still good.
    savepoints: Vec<(Savepoint, Tables, bool)>,
    /// A load was begun and never finished.
    is_unfinished: bool,
    /// One of them was dropped: it stays so.
    has_dropped: bool,
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
                self.states.lock().push(self.tables.clone());
                same(&what, txn.commit(durability), Ok(()));
                self.committed.clone_from(&self.tables);
                if durability == Durability::Durable {
                    all_durable(self.states);
                }
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
            5 => same(&self.what, txn.tables(), Ok(infos(&self.tables))),
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
            19 => self.rename(txn),
            20 | 21 => self.open_raw(txn, handles),
            _ => self.use_table(txn, handles, loading),
        }
    }

    /// A table that is not there is made.
    fn make(&mut self, name: &'static str, shape: Shape, schema: Option<Schema>) {
        if !self.tables.contains_key(name) {
            *self.made += 1;
            let made = Modelled { number: *self.made, shape, schema, rows: Rows::new() };
            self.tables.insert(name, made);
        }
    }

    fn open<'t>(&mut self, txn: &'t WriteTransaction, handles: &mut Vec<Opened<'t>>) {
        let (name, shape) = (self.name(), Shape::draw(self.prng));
        let opened = Handle::open(txn, name, shape);
        if self.tables.get(name).is_some_and(|there| there.shape != shape) {
            return same(&self.what, opened.map(drop), Err("TableTypes"));
        }
        let table = opened.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        self.make(name, shape, None);
        handles.push(Opened { number: self.tables[name].number, shape, table });
    }

    /// Opens a table by its name alone, or by the names of its types and perhaps a schema.
    fn open_raw<'t>(&mut self, txn: &'t WriteTransaction, handles: &mut Vec<Opened<'t>>) {
        let (name, shape, asked) = (self.name(), Shape::draw(self.prng), schema(self.prng));
        let there = self.tables.get(name);
        let opened = match self.prng.chance(2) {
            true if there.is_none() => {
                return same(&self.what, txn.open_raw(name).map(drop), Err("NoSuchTable"));
            }
            true => txn.open_raw(name),
            false => {
                let spec = match asked.clone() {
                    Some(schema) => spec(shape).schema(schema),
                    None => spec(shape),
                };
                let opened = txn.open_raw_with(name, &spec);
                let is_other = |there: &Modelled| asked.is_some() && there.schema != asked;
                match there {
                    Some(there) if there.shape != shape => {
                        return same(&self.what, opened.map(drop), Err("TableTypes"));
                    }
                    Some(there) if is_other(there) => {
                        return same(&self.what, opened.map(drop), Err("TableSchema"));
                    }
                    _ => opened,
                }
            }
        };
        let table = opened.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        self.make(name, shape, asked);
        let Modelled { number, shape, .. } = self.tables[name];
        handles.push(Opened { number, shape, table: Handle::Raw(table) });
    }

    fn rename(&mut self, txn: &WriteTransaction) {
        let (from, to) = (self.name(), self.name());
        let renamed = txn.rename_table(from, to);
        let (is_there, is_taken) = (self.tables.contains_key(from), self.tables.contains_key(to));
        let expected = match (self.is_unfinished, is_there) {
            (true, _) => Err("UnfinishedLoad"),
            (false, true) if is_taken && from != to => Err("TableExists"),
            (false, is_there) => Ok(is_there),
        };
        if expected == Ok(true) {
            let table = self.tables.remove(from).expect("it is there");
            self.tables.insert(to, table);
        }
        same(&self.what, renamed, expected);
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
        let (name, shape, raw) =
            (self.name(), Shape::draw(self.prng), spec(Shape::draw(self.prng)));
        let (load, shape) = match shape {
            Shape::Numbers => (txn.bulk_load(TableDef::new(name)).map(Load::Numbers), shape),
            Shape::Bytes => (txn.bulk_load(TableDef::new(name)).map(Load::Bytes), shape),
            Shape::Pairs => {
                let all = [Shape::Bytes, Shape::Numbers, Shape::Pairs];
                let shape = all.into_iter().find(|shape| spec(*shape) == raw).expect("one of them");
                (txn.bulk_load_raw(name, &raw).map(Load::Raw), shape)
            }
        };
        let is_built = match self.tables.get(name) {
            Some(there) if there.shape != shape => {
                return same(&self.what, load.map(drop), Err("TableTypes"));
            }
            Some(there) if !there.rows.is_empty() => {
                return same(&self.what, load.map(drop), Err("NotEmpty"));
            }
            there => there.is_none(),
        };
        let load = load.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        self.make(name, shape, None);
        self.is_unfinished |= is_built;
        let number = self.tables[name].number;
        *loading = Some(Loading { number, shape, load, is_built, place: 0, rows: Rows::new() });
    }

    /// Adds a few rows to a load, or ends it.
    fn load(&mut self, loading: &mut Option<Loading<'_>>) {
        let Some(Loading { number, shape, load, is_built, place, rows }) = loading else { return };
        let mut there = numbered(&mut self.tables, *number);
        if self.prng.below(4) > 0 {
            for _ in 0..self.prng.below(5) {
                *place += self.prng.below(9);
                let (key, value) = (shape.key_at(*place), shape.value(self.prng));
                let pushed = match load {
                    Load::Numbers(load) => {
                        let value = u64::from_le_bytes(value[..].try_into().expect("eight"));
                        load.push(*place, value)
                    }
                    Load::Bytes(load) => load.push(*place, &value),
                    Load::Raw(load) => load.push(&key, &value),
                };
                let Some((_, there)) = &mut there else {
                    same(&self.what, pushed, Err("NoSuchTable"));
                    continue;
                };
                if rows.contains_key(&key) {
                    same(&self.what, pushed, Err("NotAscending"));
                    continue;
                }
                same(&self.what, pushed, Ok(()));
                if !*is_built {
                    there.rows.insert(key.clone(), value.clone());
                }
                rows.insert(key, value);
            }
            return;
        }
        let Loading { load, is_built, rows, .. } = loading.take().expect("there is one");
        if self.prng.below(6) == 0 {
            // Dropped: a table that was being built stays unfinished.
            self.has_dropped |= is_built;
            return;
        }
        let finished = match load {
            Load::Numbers(load) => load.finish(),
            Load::Bytes(load) => load.finish(),
            Load::Raw(load) => load.finish(),
        };
        let Some((_, there)) = there else {
            return same(&self.what, finished, Err("NoSuchTable"));
        };
        same(&self.what, finished, Ok(()));
        if is_built {
            self.is_unfinished = self.has_dropped;
            there.rows = rows;
        }
    }

    /// What does not touch the transaction.
    fn beside(&mut self) {
        let name = self.name();
        let what = &self.what;
        match self.prng.below(7) {
            0 => same(what, self.db.checkpoint(Checkpoint::Sharp), Ok(())),
            1 => same(what, self.db.checkpoint(Checkpoint::Indirect), Ok(())),
            2 => {
                same(what, self.db.flush(), Ok(()));
                all_durable(self.states);
            }
            3 => terrace_rt::sleep(Nanos::from_millis(self.prng.below(20))),
            4 => same(what, self.db.tables(), Ok(infos(self.committed))),
            _ => {
                // Within another transaction of its task: a snapshot waits for nothing, and sees
                // nothing that is not committed.
                let txn = self.db.begin_read().expect("open");
                let Some(there) = self.committed.get(name) else {
                    return same(what, txn.open_raw(name).map(drop), Err("NoSuchTable"));
                };
                let raw = txn.open_raw(name).unwrap_or_else(|error| panic!("{what}: {error}"));
                let of = (&there.rows, there.shape);
                reads(what, &raw, of, self.prng);
                sets::prefix(what, &raw, of, self.prng);
                let shape = Shape::draw(self.prng);
                let opened = match shape {
                    Shape::Numbers => txn
                        .open_table(TableDef::<u64, u64>::new(name))
                        .map(|table| reads(what, &table, of, self.prng)),
                    Shape::Bytes => txn
                        .open_table(TableDef::<u64, Bytes>::new(name))
                        .map(|table| reads(what, &table, of, self.prng)),
                    Shape::Pairs => txn
                        .open_multimap(MultimapDef::<u64, u64>::new(name))
                        .map(|tags| sets::reads(what, &tags, of.0, self.prng)),
                };
                same(what, opened, if shape == there.shape { Ok(()) } else { Err("TableTypes") });
            }
        }
    }

    fn use_table<'t>(
        &mut self,
        txn: &'t WriteTransaction,
        handles: &mut [Opened<'t>],
        loading: &Option<Loading<'_>>,
    ) {
        if handles.is_empty() {
            return;
        }
        let at = self.prng.below(handles.len() as u64) as usize;
        let Opened { number, shape, table } = &mut handles[at];
        if loading.as_ref().is_some_and(|loading| loading.number == *number) {
            // Not while it is filled.
            return;
        }
        let (what, prng) = (format!("{} table {number}", self.what), &mut *self.prng);
        let Some((name, there)) = numbered(&mut self.tables, *number) else {
            return match table {
                Handle::Bytes(table) => stale(&what, table, *shape, prng),
                Handle::Numbers(table) => stale(&what, table, *shape, prng),
                Handle::Pairs(tags) => sets::stale(&what, tags, prng),
                Handle::Raw(table) => stale(&what, table, *shape, prng),
            };
        };
        let mut beside = txn.open_raw(name).unwrap_or_else(|error| panic!("{what}: {error}"));
        let (beside, rows, shape) = (&mut beside, &mut there.rows, there.shape);
        match (table, prng.chance(2)) {
            (Handle::Bytes(table), true) => reads(&what, table, (rows, shape), prng),
            (Handle::Numbers(table), true) => reads(&what, table, (rows, shape), prng),
            (Handle::Raw(table), true) if prng.chance(4) => {
                sets::prefix(&what, table, (rows, shape), prng);
            }
            (Handle::Raw(table), true) => reads(&what, table, (rows, shape), prng),
            (Handle::Pairs(tags), true) if prng.chance(2) => {
                reads(&what, tags.table(), (rows, shape), prng);
            }
            (Handle::Pairs(tags), true) => sets::reads(&what, tags, rows, prng),
            (Handle::Bytes(table), false) => {
                writes(&what, table, beside, (rows, shape), (self.db, prng));
            }
            (Handle::Numbers(table), false) => {
                writes(&what, table, beside, (rows, shape), (self.db, prng));
            }
            (Handle::Raw(table), false) => {
                writes(&what, table, beside, (rows, shape), (self.db, prng));
            }
            (Handle::Pairs(tags), false) => sets::writes(&what, tags, rows, prng),
        }
    }
}

/// The rows of all tables, by a way that the model does not take.
fn found(db: &Database) -> Result<Vec<(TableInfo, Rows)>, Error> {
    db.read(|txn| {
        let tables = txn.tables()?;
        let with_rows = |info: TableInfo| {
            let table = txn.open_raw(&info.name)?;
            let rows: Result<Rows, Error> = table
                .range(..)?
                .map(|row| row.map(|row| (row.key().to_vec(), row.value().to_vec())))
                .collect();
            let rows = rows?;
            assert_eq!(table.len()?, rows.len() as u64, "{}", info.name);
            drop(table);
            Ok((info, rows))
        };
        tables.into_iter().map(with_rows).collect()
    })
}

fn modelled(tables: &Tables) -> Vec<(TableInfo, Rows)> {
    tables.iter().map(|(name, table)| (info(name, table), table.rows.clone())).collect()
}

/// All tables of the database are the model's.
fn compare(db: &Database, tables: &Tables, what: &str) {
    same(what, found(db), Ok(modelled(tables)));
    same(what, db.check().map(drop), Ok(()));
}

#[test]
fn every_operation_agrees_with_a_model() {
    for seed in 0..60 {
        life(seed, Mutations::NONE, 30);
    }
}

#[test]
fn power_cuts_between_any_operations_leave_what_the_model_has_committed() {
    let cuts: u64 = (0..40).map(|seed| lives(seed, Mutations::NONE)).sum();
    assert!(cuts > 50, "{cuts} cuts");
}

#[test]
fn versions_that_are_not_kept_are_noticed() {
    let is_noticed = |seed| {
        let run = || life(seed, Mutation::SkipVersions.into(), 30);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
    };
    assert!((0..5).any(is_noticed));
}
