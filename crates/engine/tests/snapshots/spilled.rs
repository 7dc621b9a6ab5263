//! Versions on disk.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace::{Database, Durability, Error, Nanos, ReadTransaction, TableDef};
use terrace_device::model::{Preset, build};
use terrace_device::{Device, FaultPlan, FaultyDevice, Keep, Store};
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{Prng, World, now, sleep};

use super::{SHAPE, Shape, in_world};

pub(super) const TEXTS: TableDef<u64, &[u8]> = TableDef::new("texts");
const QUEUE: TableDef<u64, &[u8]> = TableDef::new("queue");

pub(super) const SPILLS: Shape = Shape { version_bytes: 64 << 10, spill_bytes: 8 << 20, ..SHAPE };

pub(super) fn text(row: u64, round: u64) -> Vec<u8> {
    let mut text = vec![row as u8; 60 + (row % 90) as usize];
    text[..8].copy_from_slice(&round.to_be_bytes());
    text
}

pub(super) fn put(db: &Database, row: u64, round: u64) {
    let put = |txn: &terrace::WriteTransaction| {
        txn.open_table(TEXTS)?.insert(row, &text(row, round)).map(drop)
    };
    db.write_with(Durability::None, put).expect("no reader is in the way");
}

pub(super) fn fill(db: &Database, rows: u64) {
    let filled = db.write(|txn| {
        let mut texts = txn.open_table(TEXTS)?;
        (0..rows).try_for_each(|row| texts.insert(row, &text(row, 0)).map(drop))
    });
    filled.expect("room");
}

/// Lets the tasks of the background run.
pub(super) fn pause() {
    sleep(Nanos::from_millis(1));
}

/// Whether a snapshot sees `rows` rows, as they were at first.
pub(super) fn is_as_it_was(snapshot: &ReadTransaction, rows: u64) -> Result<bool, Error> {
    let texts = snapshot.open_table(TEXTS)?;
    for row in 0..rows + 10 {
        let found = texts.get(row)?.map(|value| value.value().to_vec());
        if found != (row < rows).then(|| text(row, 0)) {
            return Ok(false);
        }
    }
    let mut up = Vec::new();
    for entry in texts.range(..)? {
        let entry = entry?;
        up.push((entry.key(), entry.value().to_vec()));
    }
    let mut down = Vec::new();
    for entry in texts.range(..)?.rev() {
        let entry = entry?;
        down.push((entry.key(), entry.value().to_vec()));
    }
    down.reverse();
    let mut keys = Vec::new();
    for entry in texts.keys(..)? {
        keys.push(entry?.key());
    }
    if !keys.iter().eq(up.iter().map(|(key, _)| key)) {
        return Ok(false);
    }
    let is_whole = up.iter().map(|(key, _)| *key).eq(0..rows)
        && up.iter().all(|(key, value)| *value == text(*key, 0));
    Ok(is_whole && up == down)
}

#[test]
fn a_snapshot_stays_open_while_many_times_its_memory_is_written() {
    const ROWS: u64 = 2_000;
    in_world(1, 0, || {
        let db = SPILLS.create();
        fill(&db, ROWS);
        let snapshot = db.begin_read().expect("open");
        let mut prng = Prng::from_seed(1);
        let mut runs = 0;
        for round in 1..20_000 {
            put(&db, prng.below(2 * ROWS), round);
            if prng.chance(5) {
                let row = prng.below(2 * ROWS);
                db.write(|txn| txn.open_table(TEXTS)?.remove(row).map(drop)).expect("room");
            }
            if round % 8 == 0 {
                pause();
            }
            let stats = db.stats().transactions;
            assert!(stats.version_bytes <= 80 << 10, "{stats:?}");
            assert!(stats.version_disk_bytes <= 8 << 20, "{stats:?}");
            runs = runs.max(stats.version_runs);
            if round % 4_000 == 0 {
                assert!(is_as_it_was(&snapshot, ROWS).expect("it stays open"), "round {round}");
            }
        }
        let stats = db.stats().transactions;
        assert!(stats.version_disk_bytes > 128 << 10 && runs > 3, "{runs} runs, {stats:?}");
        assert!(stats.oldest_snapshot > Nanos::from_millis(1_000), "{stats:?}");
        drop(snapshot);
        sleep(Nanos::from_millis(100));
        let stats = db.stats().transactions;
        assert_eq!((stats.version_disk_bytes, stats.version_runs), (0, 0));
        assert_eq!(stats.oldest_snapshot, Nanos(0));
    });
}

#[test]
fn a_queue_beside_a_snapshot_takes_next_to_nothing() {
    const COUNT: u64 = 60_000;
    in_world(2, 0, || {
        let db = SPILLS.create();
        let push = |txn: &terrace::WriteTransaction, row: u64| {
            txn.open_table(QUEUE)?.insert(row, &[row as u8; 100]).map(drop)
        };
        db.write(|txn| (0..50).try_for_each(|row| push(txn, row))).expect("room");
        let snapshot = db.begin_read().expect("open");
        let mut most = (0, 0);
        for row in 50..COUNT {
            let turn = db.write_with(Durability::None, |txn| {
                push(txn, row)?;
                txn.open_table(QUEUE)?.remove(row - 50).map(drop)
            });
            turn.expect("room");
            if row % 16 == 0 {
                pause();
            }
            let stats = db.stats().transactions;
            most = (most.0.max(stats.version_bytes), most.1.max(stats.version_disk_bytes));
        }
        assert!(most.0 < 64 << 10 && most.1 < 256 << 10, "{most:?}");
        let queue = snapshot.open_table(QUEUE).expect("there");
        let keys = |rows: Vec<Result<terrace::Entry<u64, &'static [u8]>, Error>>| -> Vec<u64> {
            rows.into_iter().map(|row| row.expect("readable").key()).collect()
        };
        let up = keys(queue.range(..).expect("readable").collect());
        assert_eq!(up, (0..50).collect::<Vec<_>>());
        let down = keys(queue.range(..).expect("readable").rev().collect());
        assert_eq!(down, (0..50).rev().collect::<Vec<_>>());
        assert!(queue.get(51).expect("readable").is_none());
        assert!(queue.get(COUNT - 1).expect("readable").is_none());
    });
}

#[test]
fn past_the_limit_on_disk_the_oldest_snapshot_ends() {
    const ROWS: u64 = 20_000;
    in_world(3, 0, || {
        let db = Shape { spill_bytes: 1 << 20, ..SPILLS }.create();
        fill(&db, ROWS);
        let old = db.begin_read().expect("open");
        for row in 0..ROWS {
            put(&db, row, 1);
            if row % 8 == 0 {
                pause();
            }
            assert!(db.stats().transactions.version_disk_bytes <= 1 << 20);
        }
        assert!(matches!(is_as_it_was(&old, ROWS), Err(Error::SnapshotTooOld)));
        let young = db.begin_read().expect("open");
        put(&db, 1, 2);
        let texts = young.open_table(TEXTS).expect("there");
        assert_eq!(texts.get(1).expect("readable").expect("there").value(), text(1, 1));
    });
}

/// The longest that a write took beside a reader that reads a file which takes long.
fn longest_write(mutations: Mutations) -> Nanos {
    const ROWS: u64 = 500;
    in_world(4, 0, || {
        let store = Store::new(16 << 20, Keep::Plain);
        let disk = build(Preset::Hdd7200, World::current(), store);
        let shape = Shape { version_bytes: 512 << 10, mutations, ..SPILLS };
        let db = shape.create_with(Some(disk));
        fill(&db, ROWS);
        let stage = Arc::new(AtomicU64::new(0));
        let await_stage = |stage: &AtomicU64, wanted: u64| {
            while stage.load(Ordering::Relaxed) < wanted {
                pause();
            }
        };
        let (reader, reader_stage) = (db.clone(), Arc::clone(&stage));
        let reads = terrace_rt::spawn("reads", move || {
            let snapshot = reader.begin_read().expect("open");
            reader_stage.store(1, Ordering::Relaxed);
            await_stage(&reader_stage, 2);
            let began = now();
            assert!(is_as_it_was(&snapshot, ROWS).expect("it stays open"));
            assert!(now().saturating_sub(began) > Nanos::from_millis(20), "the disk is slow");
        });
        await_stage(&stage, 1);
        let mut round = 1;
        while db.stats().transactions.version_runs == 0 {
            round += 1;
            (0..ROWS).for_each(|row| put(&db, row, round));
            pause();
            assert!(round < 200, "versions are spilled");
        }
        stage.store(2, Ordering::Relaxed);
        let mut longest = Nanos(0);
        for row in 0..ROWS {
            let began = now();
            put(&db, row, round + 1);
            longest = longest.max(now().saturating_sub(began));
            sleep(Nanos::from_micros(200));
        }
        reads.join();
        longest
    })
}

/// Neither for the file, nor for a reader that waits for it.
#[test]
fn no_writer_waits_for_the_file_of_versions() {
    let longest = longest_write(Mutations::NONE);
    assert!(longest < Nanos::from_micros(500), "a write took {longest:?}");
    let longest = longest_write(Mutation::ReadRunsLatched.into());
    assert!(longest > Nanos::from_millis(2), "a write took {longest:?}");
}

/// A database whose file of versions fails as `plan` says from now on.
fn failing(plan: FaultPlan) -> (Database, Arc<FaultyDevice>) {
    let store = Store::new(16 << 20, Keep::Plain);
    let below: Arc<dyn Device> = build(Preset::Ram, World::current(), store);
    let device = FaultyDevice::new(below, plan);
    let shape = Shape { version_bytes: 128 << 10, ..SPILLS };
    (shape.create_with(Some(Arc::clone(&device) as _)), device)
}

/// What a snapshot returns of rows that were changed many times since.
fn beside_faults(plan: FaultPlan, later: FaultPlan) -> (Result<bool, Error>, u64) {
    const ROWS: u64 = 1_000;
    in_world(5, 0, || {
        let (db, device) = failing(plan);
        fill(&db, ROWS);
        let snapshot = db.begin_read().expect("open");
        for round in 1..4 {
            for row in 0..ROWS {
                put(&db, row, round);
                if row % 4 == 0 {
                    pause();
                }
            }
        }
        device.set_plan(later);
        let seen = is_as_it_was(&snapshot, ROWS);
        let again = snapshot.open_table(TEXTS).and_then(|texts| texts.get(1).map(drop));
        assert_eq!(again.is_err(), seen.is_err(), "an ended snapshot stays ended");
        let late = db.begin_read().expect("open");
        put(&db, 1, 9);
        let found = late.open_table(TEXTS).expect("there").get(1).expect("readable");
        assert_eq!(found.expect("there").value(), text(1, 3), "others are not concerned");
        device.set_plan(FaultPlan::default());
        drop((snapshot, late));
        // Once the file is well again, it is used again.
        let snapshot = db.begin_read().expect("open");
        let before: Vec<u8> =
            snapshot.open_table(TEXTS).expect("there").get(7).unwrap().unwrap().value().to_vec();
        sleep(Nanos::from_secs(10));
        for row in 0..ROWS {
            put(&db, row, 10);
            if row % 4 == 0 {
                pause();
            }
        }
        let stats = db.stats().transactions;
        assert!(stats.version_runs > 0, "{stats:?}");
        let texts = snapshot.open_table(TEXTS).expect("there");
        assert_eq!(texts.get(7).expect("readable").expect("there").value(), before);
        let faults = device.counts().faults();
        drop(texts);
        drop(snapshot);
        db.check().expect("sound");
        db.close().expect("closes");
        (seen, faults)
    })
}

#[test]
fn a_file_of_versions_that_fails_ends_snapshots_and_nothing_else() {
    let sound = FaultPlan::default();
    let (seen, _) = beside_faults(sound.clone(), sound.clone());
    assert!(seen.expect("the file is well"));
    let reads = FaultPlan { read_error_one_in: 1, ..FaultPlan::default() };
    let (seen, faults) = beside_faults(sound.clone(), reads);
    assert!(matches!(seen, Err(Error::SnapshotLost { .. })) && faults > 0, "{seen:?}");
    for writes in [
        FaultPlan { write_error_one_in: 1, ..FaultPlan::default() },
        FaultPlan { partial_error_one_in: 1, ..FaultPlan::default() },
    ] {
        let (seen, faults) = beside_faults(writes, sound.clone());
        assert!(matches!(seen, Err(Error::SnapshotLost { .. })) && faults > 0, "{seen:?}");
    }
    let punches = FaultPlan { resize_error_one_in: 1, ..FaultPlan::default() };
    let (seen, _) = beside_faults(punches.clone(), punches);
    assert!(seen.expect("room that the file keeps is room"));
}

/// Now and then a read or a write fails: a snapshot is right, or ended.
#[test]
fn beside_faults_now_and_then_a_snapshot_is_right_or_ended() {
    let (mut right, mut ended) = (0, 0);
    for seed in 0..20 {
        let one_in = 2 + seed % 4;
        let plan = FaultPlan {
            seed,
            read_error_one_in: if seed % 2 == 0 { 20 * one_in } else { 0 },
            write_error_one_in: one_in,
            passing_error_one_in: 10,
            ..FaultPlan::default()
        };
        match beside_faults(plan.clone(), plan).0 {
            Ok(is_right) => {
                assert!(is_right, "seed {seed}");
                right += 1;
            }
            Err(Error::SnapshotLost { .. }) => ended += 1,
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(right > 2 && ended > 2, "{right} right, {ended} ended");
}

#[test]
fn what_is_read_back_is_verified() {
    in_world(6, 0, || {
        let store = Store::new(16 << 20, Keep::Plain);
        let device: Arc<dyn Device> = build(Preset::Ram, World::current(), store);
        let db = SPILLS.create_with(Some(Arc::clone(&device)));
        fill(&db, 1_000);
        let snapshot = db.begin_read().expect("open");
        for row in 0..1_000 {
            put(&db, row, 1);
            if row % 4 == 0 {
                pause();
            }
        }
        let bytes = vec![7; 16 << 20];
        terrace_device::write(&*device, 0, &bytes).expect("memory");
        let seen = is_as_it_was(&snapshot, 1_000);
        assert!(matches!(seen, Err(Error::SnapshotLost { .. })), "{seen:?}");
    });
}

/// A database on files in `folder`, with little memory for versions.
fn in_folder(folder: &Path, version_limit: Option<u64>) -> Database {
    let builder = Database::builder().memory(4 << 20).home_size(32 << 20).log_size(32 << 20);
    let mut builder = builder.version_memory(1 << 20);
    if let Some(bytes) = version_limit {
        builder = builder.version_limit(bytes);
    }
    builder.create(folder.join("db")).expect("a new path")
}

/// How many files without a name in `folder` this process has open.
fn nameless_in(folder: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").expect("Linux");
    let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let is_nameless = |target: &std::path::PathBuf| {
        target.starts_with(folder) && target.to_string_lossy().ends_with(" (deleted)")
    };
    targets.filter(is_nameless).count()
}

#[test]
fn without_a_limit_on_disk_versions_stay_in_memory() {
    for limit in [None, Some(0)] {
        let folder = tempfile::tempdir().expect("a folder");
        let db = in_folder(folder.path(), limit);
        fill(&db, 20_000);
        let snapshot = db.begin_read().expect("open");
        (0..20_000).for_each(|row| put(&db, row, 1));
        let stats = db.stats().transactions;
        assert_eq!((stats.version_disk_bytes, stats.version_runs), (0, 0), "{stats:?}");
        assert_eq!(nameless_in(folder.path()), 0);
        let seen = is_as_it_was(&snapshot, 20_000);
        assert!(matches!(seen, Err(Error::SnapshotTooOld)), "{seen:?}");
    }
}

#[test]
fn nothing_is_left_of_the_file_of_versions() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(folder.path())
            .expect("a folder")
            .map(|entry| entry.expect("readable").file_name())
            .collect();
        names.sort();
        names
    };
    let db = in_folder(folder.path(), Some(64 << 20));
    fill(&db, 3_000);
    let before = names();
    let snapshot = db.begin_read().expect("open");
    for row in 0..3_000 {
        put(&db, row, 1);
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    let stats = db.stats().transactions;
    assert!(stats.version_disk_bytes > 0, "{stats:?}");
    assert_eq!(names(), before, "it has no name");
    assert_eq!(nameless_in(folder.path()), 1);
    let seen = is_as_it_was(&snapshot, 3_000);
    assert!(matches!(seen, Ok(true) | Err(Error::SnapshotTooOld)), "{seen:?}");
    drop(snapshot);
    db.close().expect("closes");
    assert_eq!(names(), before);
}
