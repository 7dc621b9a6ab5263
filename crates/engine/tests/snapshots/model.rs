//! Random histories of several open transactions and snapshots at once, held against copies of what
//! was committed when each snapshot was opened.

use std::collections::BTreeMap;
use std::ops::Range;

use terrace::{
    Checkpoint, Database, Durability, Error, Nanos, ReadTransaction, Savepoint, TableDef,
    WriteTransaction,
};
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{Prng, sleep};

use super::{SHAPE, Shape, in_world};

const NAMES: [&str; 3] = ["apples", "pears", "quinces"];
const WRITERS: usize = 3;
const SNAPSHOTS: usize = 5;
const STEPS: u64 = 700;

/// Tables, and their rows.
type Model = BTreeMap<&'static str, BTreeMap<u64, Vec<u8>>>;

fn table(name: &'static str) -> TableDef<'static, u64, &'static [u8]> {
    TableDef::new(name)
}

/// A change of a row; `None` removes it.
type Write = (&'static str, u64, Option<Vec<u8>>);

/// An open transaction.
struct Writer {
    txn: WriteTransaction,
    writes: Vec<Write>,
    savepoints: Vec<(Savepoint, usize)>,
}

struct History {
    db: Database,
    prng: Prng,
    /// What is committed.
    model: Model,
    writers: [Option<Writer>; WRITERS],
    snapshots: Vec<(ReadTransaction, Model)>,
    rows: u64,
    /// Snapshots that were ended, and looks that agreed.
    ended: u64,
    agreed: u64,
    wrong: Option<String>,
}

fn apply(model: &mut Model, writes: Vec<Write>) {
    for (name, row, value) in writes {
        let rows = model.get_mut(name).expect("a table that is there");
        match value {
            Some(value) => rows.insert(row, value),
            None => rows.remove(&row),
        };
    }
}

impl History {
    fn value(&mut self, old: Option<Vec<u8>>) -> Vec<u8> {
        let prng = &mut self.prng;
        match old {
            Some(mut old) if !old.is_empty() && prng.chance(2) => {
                let at = prng.below(old.len() as u64) as usize;
                old[at] ^= 1 + prng.below(255) as u8;
                old
            }
            _ => {
                let len = match prng.below(10) {
                    0 => 5_000 + prng.below(20_000),
                    1..4 => 500 + prng.below(1_500),
                    _ => prng.below(200),
                };
                vec![prng.below(256) as u8; len as usize]
            }
        }
    }

    fn name(&mut self) -> Option<&'static str> {
        let names: Vec<_> = self.model.keys().copied().collect();
        (!names.is_empty()).then(|| names[self.prng.below(names.len() as u64) as usize])
    }

    /// A few changes of one transaction, whose rows are its own; it is rolled back if it meets the
    /// lock of a gap.
    fn write(&mut self, number: usize) -> Result<(), Error> {
        match self.try_write(number) {
            Err(Error::Nested(_)) => Ok(()),
            done => done,
        }
    }

    fn try_write(&mut self, number: usize) -> Result<(), Error> {
        let mut writer = match self.writers[number].take() {
            Some(writer) => writer,
            None => {
                let (writes, savepoints) = (Vec::new(), Vec::new());
                Writer { txn: self.db.begin_write()?, writes, savepoints }
            }
        };
        for _ in 0..1 + self.prng.below(12) {
            let Some(name) = self.name() else { break };
            let row = self.prng.below(self.rows) * WRITERS as u64 + number as u64;
            let mut rows = writer.txn.open_table(table(name))?;
            if self.prng.chance(3) {
                rows.remove(row)?;
                writer.writes.push((name, row, None));
            } else {
                let own = writer.writes.iter().rfind(|write| (write.0, write.1) == (name, row));
                let old = match own {
                    Some(own) => own.2.clone(),
                    None => self.model[name].get(&row).cloned(),
                };
                let value = self.value(old);
                rows.insert(row, &value)?;
                writer.writes.push((name, row, Some(value)));
            }
        }
        self.writers[number] = Some(writer);
        Ok(())
    }

    fn save_or_return(&mut self, number: usize) -> Result<(), Error> {
        let prng = &mut self.prng;
        let Some(writer) = &mut self.writers[number] else { return Ok(()) };
        if writer.savepoints.is_empty() || prng.chance(2) {
            writer.savepoints.push((writer.txn.savepoint()?, writer.writes.len()));
            return Ok(());
        }
        let at = prng.below(writer.savepoints.len() as u64) as usize;
        writer.savepoints.truncate(at + 1);
        let (savepoint, writes) = writer.savepoints.last().expect("one is left");
        writer.txn.rollback_to(savepoint)?;
        writer.writes.truncate(*writes);
        Ok(())
    }

    fn end(&mut self, number: usize) -> Result<(), Error> {
        let Some(writer) = self.writers[number].take() else { return Ok(()) };
        if self.prng.chance(3) {
            return writer.txn.rollback();
        }
        writer.txn.commit(Durability::None)?;
        apply(&mut self.model, writer.writes);
        Ok(())
    }

    /// Makes or drops tables, in a transaction that is alone; some are taken back.
    fn rename(&mut self) -> Result<(), Error> {
        for number in 0..WRITERS {
            self.end(number)?;
        }
        let mut model = self.model.clone();
        let txn = self.db.begin_write()?;
        for _ in 0..1 + self.prng.below(2) {
            let name = NAMES[self.prng.below(3) as usize];
            if model.remove(name).is_some() && self.prng.chance(3) {
                assert!(txn.delete_table(name)?);
                continue;
            }
            txn.delete_table(name)?;
            let count = self.prng.below(2 * self.rows);
            let rows: BTreeMap<u64, Vec<u8>> =
                (0..count).map(|row| (row, self.value(None))).collect();
            if self.prng.chance(2) {
                let mut loader = txn.bulk_load(table(name))?;
                rows.iter().try_for_each(|(row, value)| loader.push(*row, value))?;
                loader.finish()?;
            } else {
                let mut made = txn.open_table(table(name))?;
                rows.iter().try_for_each(|(row, value)| made.insert(*row, value).map(drop))?;
            }
            model.insert(name, rows);
        }
        if self.prng.chance(3) {
            return txn.rollback();
        }
        txn.commit(Durability::None)?;
        self.model = model;
        Ok(())
    }

    /// Looks through a snapshot; it is gone if it was ended.
    fn look(&mut self, at: usize) {
        let (txn, model) = &self.snapshots[at];
        match agrees(txn, model, self.rows * WRITERS as u64, &mut self.prng) {
            Ok(None) => self.agreed += 1,
            Ok(Some(wrong)) => self.wrong = Some(wrong),
            Err(Error::SnapshotTooOld) => {
                self.snapshots.swap_remove(at);
                self.ended += 1;
            }
            Err(error) => self.wrong = Some(error.to_string()),
        }
    }

    fn step(&mut self) -> Result<(), Error> {
        let writer = self.prng.below(WRITERS as u64) as usize;
        match self.prng.below(100) {
            0..45 => self.write(writer)?,
            45..53 => self.save_or_return(writer)?,
            53..63 => self.end(writer)?,
            63..65 => self.rename()?,
            65..73 if self.snapshots.len() < SNAPSHOTS => {
                self.snapshots.push((self.db.begin_read()?, self.model.clone()));
            }
            65..93 if !self.snapshots.is_empty() => {
                let at = self.prng.below(self.snapshots.len() as u64) as usize;
                self.look(at);
            }
            93..96 if !self.snapshots.is_empty() => {
                let at = self.prng.below(self.snapshots.len() as u64) as usize;
                self.snapshots.swap_remove(at);
            }
            96 => {
                self.db.checkpoint(Checkpoint::Sharp)?;
            }
            97 => {
                // Long enough for versions to be turned off.
                self.snapshots.clear();
                sleep(Nanos::from_millis(150));
            }
            _ => sleep(Nanos::from_millis(self.prng.below(30))),
        }
        Ok(())
    }
}

/// What a snapshot sees that its model does not have, if it does.
fn agrees(
    txn: &ReadTransaction,
    model: &Model,
    keys: u64,
    prng: &mut Prng,
) -> Result<Option<String>, Error> {
    let names = txn.table_names()?;
    if names != model.keys().copied().collect::<Vec<_>>() {
        return Ok(Some(format!("tables {names:?}")));
    }
    let name = NAMES[prng.below(3) as usize];
    let (rows, model) = match (txn.open_table(table(name)), model.get(name)) {
        (Err(Error::NoSuchTable { .. }), None) => return Ok(None),
        (Ok(rows), Some(model)) => (rows, model),
        (Err(error @ Error::SnapshotTooOld), _) => return Err(error),
        (opened, _) => return Ok(Some(format!("{name}: {:?}", opened.map(drop)))),
    };
    for _ in 0..4 {
        let row = prng.below(keys);
        let found = rows.get(row)?.map(|value| value.value().to_vec());
        if found.as_ref() != model.get(&row) {
            let len = |value: Option<&Vec<u8>>| value.map(Vec::len);
            let (found, there) = (len(found.as_ref()), len(model.get(&row)));
            return Ok(Some(format!("{name} {row}: {found:?}, not {there:?}")));
        }
    }
    let (low, high) = (prng.below(keys), prng.below(keys));
    let range = if prng.chance(3) { 0..keys } else { low.min(high)..low.max(high) };
    let entries = rows.range(range.clone())?;
    let own = |entry: Result<terrace::Entry<u64, &'static [u8]>, Error>| {
        entry.map(|entry| (entry.key(), entry.value().to_vec()))
    };
    let found: Vec<(u64, Vec<u8>)> = match prng.below(4) {
        0 => entries.map(own).collect::<Result<_, _>>()?,
        way @ (1 | 2) => {
            let (mut entries, mut found) = (entries, Vec::new());
            loop {
                let rows = if way == 1 { entries.next_rows() } else { entries.next_rows_back() };
                let Some(rows) = rows? else { break };
                for row in rows {
                    found.push(row.map(|(key, value)| (key, value.to_vec()))?);
                }
            }
            if way == 2 {
                found.reverse();
            }
            found
        }
        _ => {
            let mut found = entries.rev().map(own).collect::<Result<Vec<_>, _>>()?;
            found.reverse();
            found
        }
    };
    let there = model.range(range.clone()).map(|(row, value)| (*row, value.clone()));
    if !there.clone().eq(found.iter().cloned()) {
        let keys =
            |rows: Vec<(u64, Vec<u8>)>| -> Vec<u64> { rows.iter().map(|row| row.0).collect() };
        let (found, there) = (keys(found), keys(there.collect()));
        return Ok(Some(format!("{name} {range:?}: {found:?}, not {there:?}")));
    }
    Ok(None)
}

/// What a history has shown: snapshots ended, looks that agreed, and the most bytes of versions on
/// disk.
#[derive(Debug, Default)]
struct Shown {
    ended: u64,
    agreed: u64,
    disk_bytes: u64,
}

fn run(seed: u64, mutations: Mutations, spill_bytes: u64) -> Result<Shown, String> {
    let mut prng = Prng::from_seed(seed);
    let is_tight = prng.chance(2) || spill_bytes > 0;
    let shape = Shape {
        frames: if prng.chance(2) { 32 } else { 256 },
        version_bytes: if is_tight { 64 << 10 } else { 32 << 20 },
        mutations,
        spill_bytes,
        ..SHAPE
    };
    in_world(seed, 0, || {
        let db = shape.create();
        let mut history = History {
            rows: 4 + prng.below(60),
            prng,
            model: Model::new(),
            writers: [const { None }; WRITERS],
            snapshots: Vec::new(),
            ended: 0,
            agreed: 0,
            wrong: None,
            db: db.clone(),
        };
        let mut disk_bytes = 0;
        for step in 0..STEPS {
            history.step().map_err(|error| format!("seed {seed}, step {step}: {error}"))?;
            if let Some(wrong) = history.wrong {
                return Err(format!("seed {seed}, step {step}: {wrong}"));
            }
            disk_bytes = disk_bytes.max(db.stats().transactions.version_disk_bytes);
        }
        let (ended, agreed) = (history.ended, history.agreed);
        if ended > 0 && !is_tight {
            return Err(format!("seed {seed}: {ended} snapshots ended, though there was room"));
        }
        if disk_bytes > spill_bytes {
            return Err(format!("seed {seed}: {disk_bytes} bytes are on disk"));
        }
        drop(history);
        db.check().map_err(|error| format!("seed {seed}: {error}"))?;
        db.close().map_err(|error| format!("seed {seed}: {error}"))?;
        Ok(Shown { ended, agreed, disk_bytes })
    })
}

fn run_all(seeds: Range<u64>, mutations: Mutations, spill_bytes: u64) -> Result<Shown, String> {
    let mut all = Shown::default();
    for seed in seeds {
        let shown = run(seed, mutations, spill_bytes)?;
        all.ended += shown.ended;
        all.agreed += shown.agreed;
        all.disk_bytes = all.disk_bytes.max(shown.disk_bytes);
    }
    Ok(all)
}

/// How many seeds are run, if nothing else is asked for.
fn seeds() -> u64 {
    let asked = std::env::var("TERRACE_SNAPSHOT_SEEDS").ok();
    asked.and_then(|seeds| seeds.parse().ok()).unwrap_or(40)
}

#[test]
fn snapshots_agree_with_a_model() {
    let shown = run_all(0..seeds(), Mutations::NONE, 0).expect("as in the model");
    assert!(shown.agreed > 2_000 && shown.ended > 10, "{shown:?}");
}

#[test]
fn snapshots_whose_versions_are_spilled_agree_with_a_model() {
    let shown = run_all(0..seeds(), Mutations::NONE, 16 << 20).expect("as in the model");
    assert!(shown.agreed > 4_000 && shown.disk_bytes > 128 << 10, "{shown:?}");
}

#[test]
fn each_rule_of_spilled_versions_is_needed() {
    for mutation in [Mutation::DropNeededRuns, Mutation::MarkAnyInsert] {
        let caught = std::panic::catch_unwind(|| run_all(0..100, mutation.into(), 16 << 20));
        assert!(!matches!(caught, Ok(Ok(_))), "{mutation:?} shows in no history");
    }
}

#[test]
fn each_rule_of_what_snapshots_see_is_needed() {
    for mutation in [
        Mutation::SkipVersions,
        Mutation::CollectSeenVersions,
        Mutation::LookBeforeSorting,
        Mutation::PurgeWithoutGrave,
        Mutation::FreeSeenPages,
        Mutation::ChangeUnderDifference,
    ] {
        // What undo does not fit is caught, too.
        let caught = std::panic::catch_unwind(|| run_all(0..100, mutation.into(), 0));
        assert!(!matches!(caught, Ok(Ok(_))), "{mutation:?} shows in no history");
    }
}
