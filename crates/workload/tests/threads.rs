//! The engine under threads of the operating system, on real files: histories that must be
//! serializable, and a mixed load that must leave a sound database. A watchdog fails a test that
//! stands still, and prints which transaction waits for what.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use terrace::{
    Builder, Checkpoints, Database, Durability, Error, Nanos, TableDef, WriteTransaction,
};
use terrace_policy::designs;
use terrace_rt::Prng;
use terrace_workload::history::checker::check;
use terrace_workload::history::{Options, Recording};

/// Without any progress for this long, a test has failed.
const STANDSTILL: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Longer than that, so that no time limit hides a circle of waits that nothing finds.
const LOCK_TIMEOUT: Nanos = Nanos::from_secs(600);

/// Waits for `threads`, as long as `progress` grows.
fn join_watched(db: &Database, threads: Vec<JoinHandle<()>>, progress: impl Fn() -> u64) {
    let (mut last, mut since) = (progress(), Instant::now());
    while threads.iter().any(|thread| !thread.is_finished()) {
        thread::sleep(LOOK_EVERY);
        let now = progress();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        // Its threads are left behind: they would not end.
        assert!(since.elapsed() < STANDSTILL, "it stands still:\n{}", db.debug_waits());
    }
    for thread in threads {
        thread.join().expect("no client panics");
    }
}

fn builder(folder: &Path, design: &str) -> Builder {
    Database::builder()
        .memory(512 << 10)
        .log_size(16 << 20)
        .lock_timeout(LOCK_TIMEOUT)
        .flash(folder.join("flash"), 2 << 20)
        .design(designs::find(design).expect("a row of the table"))
}

fn history_on(design: &str, seed: u64) -> (usize, usize) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let db = builder(folder.path(), design).create(folder.path().join("db")).expect("creates");
    let mut prng = Prng::from_seed(seed);
    let options = Options {
        seed,
        clients: 4,
        transactions: 150,
        keys: 4 + prng.below(40),
        value_bytes: [16, 400, 3000][prng.below(3) as usize],
        tables: 1 + prng.below(3) as usize,
        deletes_table_one_in: [0, 60][prng.below(2) as usize],
        savepoint_one_in: [0, 6][prng.below(2) as usize],
        snapshot_one_in: [0, 3][prng.below(2) as usize],
        ..Options::default()
    };
    let (recording, clients) = Recording::begin(&db, options).expect("an empty database");
    let threads = clients.into_iter().map(|client| thread::spawn(move || client.run())).collect();
    join_watched(&db, threads, || recording.progress());
    let history = recording.finish().expect("conflicts alone");
    let summary = check(&history).unwrap_or_else(|it| panic!("{design}, seed {seed}: {it:?}"));
    db.check().expect("sound");
    db.close().expect("closes");
    (summary.committed, summary.dependencies)
}

#[test]
fn histories_of_threads_are_serializable_on_every_design_that_keeps_dirty_pages() {
    let (mut committed, mut dependencies) = (0, 0);
    let designs = ["no-ssd", "lc", "lazy", "exclusive", "hetero", "face", "fasc", "cac", "auto"];
    for (seed, design) in (1..).zip(designs) {
        let (of_this, between) = history_on(design, seed);
        committed += of_this;
        dependencies += between;
    }
    assert!(committed > 1000, "{committed} committed");
    assert!(dependencies > committed, "clients must meet: {dependencies} of {committed}");
}

type Bytes = TableDef<'static, u64, &'static [u8]>;
const TABLES: [Bytes; 3] = [TableDef::new("a"), TableDef::new("b"), TableDef::new("c")];
const LOADED: Bytes = TableDef::new("loaded");
const ROWS: u64 = 1500;
const LOADED_ROWS: u64 = 2000;
const MIXED_FOR: Duration = Duration::from_secs(3);

/// Why a client ended its own transaction.
#[derive(Debug)]
enum Stopped {
    OnPurpose,
    Engine(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped::Engine(error)
    }
}

/// Every value of row `key` is bytes `key as u8`.
fn check_row(key: u64, value: &[u8]) {
    assert!(value.iter().all(|&byte| byte == key as u8), "row {key} has another row's value");
}

fn one_change(txn: &WriteTransaction, prng: &mut Prng) -> Result<(), Error> {
    let mut table = txn.open_table(TABLES[prng.below(3) as usize])?;
    let key = prng.below(ROWS);
    let len = if prng.chance(20) { 30_000 } else { prng.below(900) as usize };
    match prng.below(20) {
        0..=8 => table.insert(key, &vec![key as u8; len])?,
        9..=12 => drop(table.remove(key)?),
        13..=14 => {
            for row in table.range(key..key + 60)? {
                let row = row?;
                check_row(row.key(), row.value());
            }
        }
        15 => {
            for row in table.range(..key)?.rev().take(40) {
                let row = row?;
                check_row(row.key(), row.value());
            }
        }
        16..=17 => {
            if let Some(value) = table.get_for_update(key)? {
                check_row(key, value.value());
            }
        }
        _ => {
            let mut value = Vec::new();
            let resize = |value: &mut Vec<u8>| {
                value.clear();
                value.resize(len, key as u8);
                Ok::<_, Error>(())
            };
            table.modify(key, &mut value, resize)?;
        }
    }
    Ok(())
}

fn table_change(txn: &WriteTransaction, prng: &mut Prng) -> Result<(), Error> {
    let table = TABLES[prng.below(3) as usize];
    match prng.below(4) {
        0 => drop(txn.delete_table(table.name())?),
        1 => {
            txn.delete_table(table.name())?;
            txn.open_table(table)?.insert(7, &[7; 70])?;
        }
        2 => drop(txn.delete_table(LOADED.name())?),
        _ => {
            if txn.delete_table(LOADED.name())? {
                return Ok(());
            }
            let mut loader = txn.bulk_load(LOADED)?;
            for key in 0..LOADED_ROWS {
                loader.push(key, &[key as u8; 100])?;
            }
            loader.finish()?;
        }
    }
    Ok(())
}

fn mixed_transaction(db: &Database, prng: &mut Prng) -> Result<(), Stopped> {
    db.write_with(Durability::None, |txn| {
        let mut savepoint = None;
        for _ in 0..=prng.below(24) {
            match prng.below(40) {
                0 => savepoint = Some(txn.savepoint()?),
                1 => {
                    if let Some(savepoint) = savepoint.take() {
                        txn.rollback_to(&savepoint)?;
                    }
                }
                2 if prng.chance(6) => table_change(txn, prng)?,
                3 if prng.chance(20) => panic!("on purpose"),
                _ => one_change(txn, prng)?,
            }
        }
        if prng.chance(10) { Err(Stopped::OnPurpose) } else { Ok(()) }
    })
}

/// Errors that a client of a sound database may meet.
fn is_expected(error: &Error) -> bool {
    error.is_transient() || matches!(error, Error::LogFull { .. } | Error::TooManyLocks)
}

#[test]
fn a_mixed_load_of_threads_ends_and_leaves_a_sound_database() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("db");
    let builder = builder(folder.path(), "lc")
        .checkpoints(Checkpoints::Every(Nanos::from_millis(50)))
        .log_size(4 << 20);
    let db = builder.clone().create(&path).expect("creates");
    let (is_over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let client = |number: u64| {
        let (db, is_over, done) = (db.clone(), Arc::clone(&is_over), Arc::clone(&done));
        let mut prng = Prng::from_seed(number);
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let run = AssertUnwindSafe(|| mixed_transaction(&db, &mut prng));
                match catch_unwind(run) {
                    Ok(Err(Stopped::Engine(error))) => assert!(is_expected(&error), "{error}"),
                    Err(panic) => {
                        let said = panic.downcast_ref::<&str>();
                        assert_eq!(said, Some(&"on purpose"), "another panic");
                    }
                    Ok(Ok(()) | Err(Stopped::OnPurpose)) => (),
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let threads: Vec<_> = (0..5).map(client).collect();
    let until = Instant::now() + MIXED_FOR;
    let watched = || {
        if Instant::now() > until {
            is_over.store(true, Ordering::Relaxed);
        }
        done.load(Ordering::Relaxed)
    };
    join_watched(&db, threads, watched);
    assert!(done.load(Ordering::Relaxed) > 100, "{done:?} transactions");
    db.check().expect("sound");
    db.close().expect("closes");
    let db = builder.open(&path).expect("opens again");
    db.check().expect("sound after opening");
    db.close().expect("closes");
}
