//! Versions on disk: the room that they may have, merges, and what was found by reviews.

use std::sync::Arc;

use terrace::{Durability, Error, Nanos};
use terrace_device::model::{Preset, build};
use terrace_device::{Device, Keep, Store};
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{Prng, World, sleep};

use super::spilled::{SPILLS, TEXTS, fill, is_as_it_was, pause, put, text};
use super::{SHAPE, Shape, in_world};

/// Whether a snapshot sees a row that is put behind all others, changed and spilled while it is
/// being looked for.
fn sees_a_later_row(mutations: Mutations) -> bool {
    const ROWS: u64 = 1_000;
    in_world(9, 0, || {
        let db = Shape { version_bytes: 256 << 10, mutations, ..SPILLS }.create();
        fill(&db, ROWS);
        let snapshot = db.begin_read().expect("open");
        let change_all = |db: &terrace::Database, round: u64| {
            for row in 0..ROWS {
                put(db, row, round);
                if row % 4 == 0 {
                    pause();
                }
            }
        };
        change_all(&db, 1);
        assert!(db.stats().transactions.version_runs > 0);
        let writer = db.clone();
        let writes = terrace_rt::spawn("writes", move || {
            sleep(Nanos::from_millis(1));
            put(&writer, 2 * ROWS, 2);
            // Another snapshot sees the row, so that its next change has a version.
            let _other = writer.begin_read().expect("open");
            put(&writer, 2 * ROWS, 3);
            for row in 0..ROWS {
                put(&writer, row, 2);
                if row % 32 == 0 {
                    pause();
                }
            }
        });
        let texts = snapshot.open_table(TEXTS).expect("there");
        let is_there = texts.get(2 * ROWS).expect("readable").is_some();
        writes.join();
        is_there
    })
}

/// The bug: a snapshot saw a row that did not exist for it. See spill.T6.
#[test]
fn what_a_row_behind_all_others_says_is_asked_for_after_runs_were_read() {
    assert!(!sees_a_later_row(Mutations::NONE));
    assert!(sees_a_later_row(Mutation::KeepFirstBound.into()));
}

/// The bug: merges that lag, and both sides of one that runs, counted against the limit, so that
/// snapshots ended though what they need has room.
#[test]
fn a_snapshot_stays_while_what_is_needed_has_room() {
    const ROWS: u64 = 4_000;
    in_world(10, 0, || {
        // Rows have 300 bytes and more in runs: what the snapshot needs takes 1.2 MB, and the file
        // has 2 MiB. What is spilled in vain, since the ends of 4,000 rows have no room in memory,
        // is several times as much.
        let db = Shape { spill_bytes: 2 << 20, ..SPILLS }.create();
        let long = |row: u64, round: u64| [text(row, round), vec![1; 180]].concat();
        let filled = db.write(|txn| {
            let mut texts = txn.open_table(TEXTS)?;
            (0..ROWS).try_for_each(|row| texts.insert(row, &long(row, 0)).map(drop))
        });
        filled.expect("room");
        let snapshot = db.begin_read().expect("open");
        let mut prng = Prng::from_seed(10);
        for round in 1..30_000 {
            let row = prng.below(ROWS);
            db.write_with(Durability::None, |txn| {
                txn.open_table(TEXTS)?.insert(row, &long(row, round)).map(drop)
            })
            .expect("no reader is in the way");
            if round % 4 == 0 {
                pause();
            }
            let stats = db.stats().transactions;
            assert!(stats.version_disk_bytes <= 2 << 20, "{stats:?}");
            assert!(stats.version_bytes <= 80 << 10, "{stats:?}");
        }
        let texts = snapshot.open_table(TEXTS).expect("there");
        for row in 0..ROWS {
            let found = texts.get(row).expect("it stays open").expect("there").value().to_vec();
            assert_eq!(found, long(row, 0));
        }
    });
}

/// With much memory and a small file, what has no room in the file stays in memory.
#[test]
fn a_small_file_beside_much_memory_ends_no_snapshot() {
    const ROWS: u64 = 30_000;
    in_world(11, 0, || {
        let db = Shape { version_bytes: 16 << 20, spill_bytes: 1 << 20, frames: 2048, ..SHAPE };
        let db = db.create();
        fill(&db, ROWS);
        let snapshot = db.begin_read().expect("open");
        let mut most = 0;
        for row in 0..ROWS {
            put(&db, row, 1);
            if row % 8 == 0 {
                pause();
            }
            let stats = db.stats().transactions;
            assert!(stats.version_disk_bytes <= 1 << 20 && stats.version_bytes <= 16 << 20);
            most = most.max(stats.version_disk_bytes);
        }
        assert!(most > 512 << 10, "{most} bytes were on disk");
        assert!(is_as_it_was(&snapshot, ROWS).expect("it stays open"));
    });
}

/// What little memory has room for is not spilled.
#[test]
fn what_has_room_in_memory_is_not_spilled() {
    in_world(12, 0, || {
        let db = Shape { version_bytes: 4 << 20, ..SPILLS }.create();
        fill(&db, 2_000);
        let snapshot = db.begin_read().expect("open");
        for round in 1..4 {
            (0..2_000).for_each(|row| put(&db, row, round));
            pause();
        }
        assert_eq!(db.stats().transactions.version_disk_bytes, 0);
        assert!(is_as_it_was(&snapshot, 2_000).expect("it stays open"));
    });
}

#[test]
fn a_snapshot_of_a_closed_database_is_told_so_though_its_versions_are_spilled() {
    in_world(13, 0, || {
        let db = SPILLS.create();
        fill(&db, 1_000);
        let snapshot = db.begin_read().expect("open");
        for row in 0..1_000 {
            put(&db, row, 1);
            if row % 4 == 0 {
                pause();
            }
        }
        assert!(db.stats().transactions.version_runs > 0);
        let texts = snapshot.open_table(TEXTS).expect("there");
        db.clone().close().expect("memory");
        assert!(matches!(texts.get(1).map(drop), Err(Error::Closed)));
        let rows = texts.range(..).and_then(|mut rows| rows.next().transpose());
        assert!(matches!(rows.map(drop), Err(Error::Closed)));
    });
}

/// Whether a snapshot sees what it should once runs were merged, in several steps.
fn is_right_after_merges(mutations: Mutations) -> bool {
    const ROWS: u64 = 3_000;
    in_world(14, 0, || {
        let db = Shape { mutations, ..SPILLS }.create();
        fill(&db, ROWS);
        let snapshot = db.begin_read().expect("open");
        let mut prng = Prng::from_seed(14);
        let mut runs = Vec::new();
        for round in 1..12_000 {
            put(&db, prng.below(ROWS), round);
            if round % 8 == 0 {
                pause();
            }
            runs.push(db.stats().transactions.version_runs);
        }
        let merges = runs.windows(2).filter(|two| two[1] < two[0]).count();
        assert!(merges > 3, "{merges} merges");
        is_as_it_was(&snapshot, ROWS).expect("it stays open")
    })
}

#[test]
fn a_merge_cuts_off_its_inputs_what_it_has_written() {
    assert!(is_right_after_merges(Mutations::NONE));
    assert!(!is_right_after_merges(Mutation::CutInputsLate.into()));
}

/// A byte of a run changes: the snapshot is right, if it does not read it, or ended.
#[test]
fn a_damaged_byte_of_a_run_is_never_taken_for_a_row() {
    let (mut right, mut lost) = (0, 0);
    for seed in 0..24 {
        in_world(seed, 0, || {
            let store = Store::new(16 << 20, Keep::Plain);
            let device: Arc<dyn Device> = build(Preset::Ram, World::current(), store);
            let db = SPILLS.create_with(Some(Arc::clone(&device)));
            fill(&db, 600);
            let snapshot = db.begin_read().expect("open");
            for row in 0..600 {
                put(&db, row, 1);
                if row % 4 == 0 {
                    pause();
                }
            }
            let mut prng = Prng::from_seed(seed);
            let used = db.stats().transactions.version_disk_bytes;
            let at = prng.below(used.max(1) / 4096) * 4096;
            let mut sector = vec![0; 4096];
            terrace_device::read(&*device, at, &mut sector).expect("memory");
            sector[prng.below(4096) as usize] ^= 1 << prng.below(8);
            terrace_device::write(&*device, at, &sector).expect("memory");
            match is_as_it_was(&snapshot, 600) {
                Ok(is_right) => {
                    assert!(is_right, "seed {seed}");
                    right += 1;
                }
                Err(Error::SnapshotLost { .. }) => lost += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
            put(&db, 1, 2);
            drop(snapshot);
            db.check().expect("sound");
        });
    }
    assert!(right > 0 && lost > 3, "{right} right, {lost} lost");
}
