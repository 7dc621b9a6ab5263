//! In a virtual world: transactions, loads, large values, deletions and compactions beside backups,
//! under several designs of the flash. What is restored is the state of one moment.
//!
//! Each writer notes what each of its transactions did, when its commit was called and when that
//! returned. A row of the writer says how many of its transactions the database has. So a copy has
//! to have the first so many of each writer, and there has to be a moment, while the backup was
//! taken, before which no commit of others was over, and after which none of these was called.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace::{
    BackupMark, BackupOptions, Checkpoint, Database, Devices, Durability, Error, Nanos, TableDef,
};
use terrace_policy::designs;
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{LeafMutex, Prng, Task, sleep, spawn, yield_now};

use super::{ROWS, Rows, in_world, memory, restore, rows_of};

const WRITERS: u64 = 3;
const KEYS: u64 = 400;
const BACKUPS: usize = 3;
/// Of histories that are tried each time.
const SEEDS: [u64; 8] = [12, 0, 1, 2, 3, 4, 5, 6];
/// The key of the row that counts a writer's transactions.
const COUNT: u64 = u64::MAX;

/// What a transaction did: keys, with their values if they were put.
type Changes = Vec<(u64, Option<Vec<u8>>)>;

struct Commit {
    changes: Changes,
    called: u64,
    returned: u64,
}

/// What the writers have done. Steps count calls and returns.
#[derive(Default)]
struct Ledger {
    step: AtomicU64,
    commits: LeafMutex<Vec<Vec<Commit>>>,
    is_over: AtomicBool,
}

impl Ledger {
    fn step(&self) -> u64 {
        self.step.fetch_add(1, Ordering::SeqCst)
    }
}

fn value(prng: &mut Prng) -> Vec<u8> {
    let len = match prng.below(60) {
        0 => (1 << 20) + prng.below(400_000),
        1..4 => 14_000 + prng.below(60_000),
        4..12 => 4_100 + prng.below(8_000),
        12..20 => prng.below(3_900),
        _ => prng.below(120),
    };
    let mut value = vec![prng.below(256) as u8; len as usize];
    value.iter_mut().step_by(512).for_each(|byte| *byte = prng.next_u64() as u8);
    value
}

/// One transaction of writer `me`, the `count`th: what it did and when its commit was called.
/// `None` if it was rolled back.
fn transact(
    (db, ledger): (&Database, &Ledger),
    (me, count): (u64, u64),
    prng: &mut Prng,
) -> Result<Option<(Changes, u64)>, Error> {
    let txn = db.begin_write()?;
    let mut rows = txn.open_table(ROWS)?;
    let mut changes = Changes::new();
    let thins = prng.chance(3);
    for _ in 0..1 + prng.below(if thins { 40 } else { 8 }) {
        let key = prng.below(KEYS);
        let put = (!thins && !prng.chance(4)).then(|| value(prng));
        match &put {
            Some(value) => rows.insert((me, key), &value[..]).map(drop)?,
            None => rows.remove((me, key)).map(drop)?,
        }
        changes.push((key, put));
        if prng.chance(3) {
            yield_now();
        }
    }
    rows.insert((me, COUNT), &(count + 1).to_le_bytes())?;
    drop(rows);
    if prng.chance(3) {
        sleep(Nanos::from_micros(prng.below(800)));
    }
    if prng.chance(6) {
        txn.rollback()?;
        return Ok(None);
    }
    let called = ledger.step();
    txn.commit(Durability::None)?;
    Ok(Some((changes, called)))
}

fn write(db: &Database, ledger: &Ledger, me: u64, prng: &mut Prng) {
    let mut count = 0;
    while !ledger.is_over.load(Ordering::SeqCst) {
        match transact((db, ledger), (me, count), prng) {
            Ok(Some((changes, called))) => {
                let returned = ledger.step();
                let commit = Commit { changes, called, returned };
                ledger.commits.lock()[me as usize].push(commit);
                count += 1;
            }
            Ok(None) => {}
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        sleep(Nanos::from_micros(prng.below(300)));
    }
}

/// Loads tables, of which every key has a value that its table's number decides, deletes them
/// again, and compacts.
fn load(db: &Database, ledger: &Ledger, prng: &mut Prng) {
    let mut number = 0;
    while !ledger.is_over.load(Ordering::SeqCst) {
        number += 1;
        let name = format!("loaded {}", number % 5);
        let table: TableDef<u64, &[u8]> = TableDef::new(&name);
        let rows = prng.below(4_000);
        let mut done = || {
            let txn = db.begin_write()?;
            txn.delete_table(&name)?;
            let mut loader = txn.bulk_load(table)?;
            for key in 0..rows {
                let len = if key % 997 == 5 { 9_000 } else { key % 150 };
                loader.push(key, &vec![number as u8; len as usize])?;
                if prng.chance(40) {
                    yield_now();
                }
            }
            loader.finish()?;
            if prng.chance(5) { txn.rollback() } else { txn.commit(Durability::None) }
        };
        let done: Result<(), Error> = done();
        assert!(
            done.as_ref().is_ok_and(|()| true) || done.as_ref().is_err_and(Error::is_transient)
        );
        match prng.below(4) {
            0 => drop(db.compact().expect("no error")),
            1 => db.checkpoint(Checkpoint::Indirect).expect("no error"),
            2 => db.checkpoint(Checkpoint::Sharp).expect("no error"),
            _ => {}
        }
        sleep(Nanos::from_micros(prng.below(2_000)));
    }
}

/// An output that takes its time.
struct Slow<'p>(Vec<u8>, &'p mut Prng);

impl Write for Slow<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.1.chance(4) {
            sleep(Nanos::from_micros(self.1.below(900)));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Taken {
    bytes: Vec<u8>,
    /// Steps before it and after it.
    began: u64,
    ended: u64,
}

/// What is wrong with a copy, taken as `taken`, if anything is.
fn flaw(copy: &Database, ledger: &Ledger, taken: &Taken) -> Option<String> {
    if let Err(error) = copy.check() {
        return Some(error.to_string());
    }
    let found = rows_of(copy);
    let commits = ledger.commits.lock();
    let mut expected = Rows::new();
    let (mut first, mut last) = (taken.began, taken.ended);
    for (me, commits) in (0..).zip(commits.iter()) {
        let count = found
            .get(&(me, COUNT))
            .map_or(0, |count| u64::from_le_bytes(count[..].try_into().expect("eight bytes")))
            as usize;
        if count > commits.len() {
            return Some(format!("writer {me} has {} commits, not {count}", commits.len()));
        }
        for commit in &commits[..count] {
            first = first.max(commit.called);
            for (key, value) in &commit.changes {
                match value {
                    Some(value) => drop(expected.insert((me, *key), value.clone())),
                    None => drop(expected.remove(&(me, *key))),
                }
            }
        }
        if count > 0 {
            expected.insert((me, COUNT), (count as u64).to_le_bytes().to_vec());
        }
        last = last.min(commits.get(count).map_or(u64::MAX, |commit| commit.returned));
    }
    if first > last {
        return Some(format!("of no moment: after {first} and before {last}"));
    }
    let differs = |key: &(u64, u64)| found.get(key) != expected.get(key);
    let wrong = found.keys().chain(expected.keys()).find(|key| differs(key));
    let wrong = wrong.map(|key| format!("{key:?} is not what it was"));
    drop(commits);
    wrong.or_else(|| loaded_flaw(copy))
}

/// Tables that were loaded have equal values.
fn loaded_flaw(copy: &Database) -> Option<String> {
    let txn = copy.begin_read().expect("open");
    for number in 0..5 {
        let name = format!("loaded {number}");
        let table: TableDef<u64, &[u8]> = TableDef::new(&name);
        let Ok(table) = txn.open_table(table) else { continue };
        let (mut keys, mut fills) = (0, std::collections::BTreeSet::new());
        for entry in table.range(..).expect("readable") {
            let Ok(entry) = entry else { return Some(format!("{name} cannot be read")) };
            if entry.key() != keys {
                return Some(format!("{name} lacks {keys}"));
            }
            keys += 1;
            fills.extend(entry.value().iter().copied());
        }
        if fills.len() > 1 || table.len().expect("readable") != keys {
            return Some(format!("{name} is of no moment"));
        }
    }
    None
}

/// Runs one history; what is wrong with what is restored, if anything is.
fn history(seed: u64, mutations: Mutations) -> Option<String> {
    in_world(seed, 3 + seed as u32 % 20, || {
        let mut prng = Prng::from_seed(seed);
        let design = ["no-ssd", "lc", "face", "auto", "dw"][prng.below(5) as usize];
        let flash = (design != "no-ssd").then(|| memory(4 << 20) as _);
        let devices = Devices { home: memory(128 << 20), flash, log: memory(16 << 20) };
        let builder = Database::builder()
            .memory((64 + 64 * prng.below(6)) * 8192)
            .design(designs::find(design).expect("a row"))
            .checkpoints(terrace::Checkpoints::Every(Nanos::from_millis(1 + prng.below(40))))
            .tune(|tier| tier.mutations = mutations);
        let db = builder.clone().devices(devices).create_on_devices().expect("blank");
        let ledger = Arc::new(Ledger::default());
        ledger.commits.lock().resize_with(WRITERS as usize, Vec::new);
        let mut tasks: Vec<Task> = Vec::new();
        for me in 0..WRITERS {
            let (db, ledger, mut own) = (db.clone(), Arc::clone(&ledger), prng.fork());
            tasks.push(spawn("writer", move || write(&db, &ledger, me, &mut own)));
        }
        let (of_loads, ledger_of_loads, mut own) = (db.clone(), Arc::clone(&ledger), prng.fork());
        tasks.push(spawn("loads", move || load(&of_loads, &ledger_of_loads, &mut own)));
        let mut taken: Vec<Taken> = Vec::new();
        let mut mark: Option<BackupMark> = None;
        for _ in 0..BACKUPS {
            sleep(Nanos::from_micros(prng.below(20_000)));
            let options = BackupOptions::new();
            let options = mark.map_or(options.clone(), |mark| options.since(mark));
            let began = ledger.step();
            let mut out = Slow(Vec::new(), &mut prng);
            let done = db.backup(&mut out, &options);
            let bytes = out.0;
            match done {
                Ok(backed_up) => mark = backed_up.mark,
                Err(terrace::BackupError::Behind) => break,
                Err(error) => panic!("seed {seed}: {error}"),
            }
            taken.push(Taken { bytes, began, ended: ledger.step() });
        }
        ledger.is_over.store(true, Ordering::SeqCst);
        tasks.into_iter().for_each(Task::join);
        db.close().expect("no error");
        (1..=taken.len()).find_map(|count| {
            let backups: Vec<&[u8]> = taken[..count].iter().map(|it| &it.bytes[..]).collect();
            let builder = super::Builder::new().memory(4 << 20);
            let builder = builder.tune(|tier| tier.mutations = mutations);
            let flawed = |error: &dyn std::fmt::Display| Some(format!("{count}: {error}"));
            let (devices, restored) = match restore(builder.clone(), &backups) {
                Ok(restored) => restored,
                Err(error) => return flawed(&error),
            };
            let copy = match builder.devices(devices).open_on_devices() {
                Ok(copy) => copy,
                Err(error) => return flawed(&error),
            };
            assert_eq!((copy.id(), restored.id), (77, 77));
            let found = flaw(&copy, &ledger, &taken[count - 1]);
            copy.close().expect("no error");
            found.and_then(|found| flawed(&found))
        })
    })
}

#[test]
fn a_copy_is_the_state_of_one_moment() {
    // 12: a page of a load was freed and punched before it was copied.
    for seed in SEEDS {
        assert_eq!(history(seed, Mutations::NONE), None, "seed {seed}");
    }
}

#[test]
fn each_rule_of_backups_is_needed() {
    for mutation in [
        Mutation::BackupForgetsUnlogged,
        Mutation::BackupSkipsFreed,
        Mutation::BackupReadsHome,
        Mutation::RestoreKeepsBufWrites,
    ] {
        // A copy that makes no sense may end in a panic: that is caught, too.
        let wrong = |seed| {
            let ran = std::panic::catch_unwind(|| history(seed, mutation.into()));
            !matches!(ran, Ok(None))
        };
        assert!((0..60).any(wrong), "{mutation:?} shows in no history");
    }
}
