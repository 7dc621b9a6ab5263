//! Versions on a disk that is slow, or fails for a while: closing, and the number of runs.

use std::sync::Arc;

use terrace::{Database, Nanos, ReadTransaction};
use terrace_device::model::{Preset, build};
use terrace_device::{Device, FaultPlan, FaultyDevice, Keep, Store};
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{World, now, sleep};

use super::spilled::{SPILLS, fill, is_as_it_was, pause, put};
use super::{Shape, in_world};

fn disk(preset: Preset) -> Arc<dyn Device> {
    build(preset, World::current(), Store::new(32 << 20, Keep::Plain))
}

/// A database whose task that spills has begun to write, and when it has.
fn that_spills(rows: u64) -> (Database, ReadTransaction, Nanos) {
    let shape = Shape { version_bytes: 2 << 20, ..SPILLS };
    let db = shape.create_with(Some(disk(Preset::Hdd7200)));
    fill(&db, rows);
    let snapshot = db.begin_read().expect("open");
    for row in 0..rows {
        put(&db, row, 1);
        let stats = db.stats().transactions;
        if stats.version_disk_bytes > 0 {
            assert_eq!(stats.version_runs, 0);
            return (db, snapshot, now());
        }
        if row % 8 == 0 {
            pause();
        }
    }
    panic!("versions are spilled")
}

/// The bug: closing waited until all that was taken out of memory was on disk.
#[test]
fn closing_does_not_wait_for_a_slow_disk_of_versions() {
    const ROWS: u64 = 6_000;
    let span = |is_closed: bool| {
        in_world(21, 0, || {
            let (db, _snapshot, began) = that_spills(ROWS);
            if is_closed {
                // This task has the snapshot, which is not waited for.
                db.close().expect("memory");
                return now().saturating_sub(began);
            }
            while db.stats().transactions.version_runs == 0 {
                pause();
            }
            now().saturating_sub(began)
        })
    };
    let (spilling, closing) = (span(false), span(true));
    assert!(spilling > Nanos::from_millis(100), "the disk is slow: {spilling:?}");
    assert!(closing.0 < spilling.0 / 4, "{closing:?} beside {spilling:?}");
}

/// The most runs beside a slow disk.
fn runs_max(mutations: Mutations) -> u64 {
    const ROWS: u64 = 40_000;
    // The disk has time for all that is merged, on average.
    const BETWEEN_PUTS: Nanos = Nanos::from_millis(2);
    in_world(22, 0, || {
        let (version_bytes, spill_bytes, log_bytes) = (128 << 10, 16 << 20, 128 << 20);
        let shape = Shape { version_bytes, spill_bytes, log_bytes, mutations, ..SPILLS };
        let db = shape.create_with(Some(disk(Preset::Hdd7200)));
        fill(&db, ROWS);
        let snapshot = db.begin_read().expect("open");
        let mut most = 0;
        for row in 0..ROWS {
            put(&db, row, 1);
            sleep(BETWEEN_PUTS);
            most = most.max(db.stats().transactions.version_runs);
        }
        let texts = snapshot.open_table(super::spilled::TEXTS).expect("there");
        let found = texts.get(5).expect("it stays open").expect("there");
        assert_eq!(found.value(), super::spilled::text(5, 0));
        most
    })
}

/// The bug: while large runs were merged, no others were, and they piled up.
#[test]
fn runs_do_not_pile_up_beside_a_long_merge() {
    let (most, unbounded) = (runs_max(Mutations::NONE), runs_max(Mutation::MergeToTheEnd.into()));
    assert!(
        most < 40 && unbounded > most + most / 2,
        "{most} runs, and {unbounded} if no merge gives way"
    );
}

/// The bug: a run of which one read had failed was never merged again.
#[test]
fn runs_that_could_not_be_read_for_a_while_are_merged_again() {
    const ROWS: u64 = 3_000;
    in_world(23, 0, || {
        let device = FaultyDevice::new(disk(Preset::Ram), FaultPlan::default());
        let db = Shape { spill_bytes: 16 << 20, ..SPILLS }
            .create_with(Some(Arc::clone(&device) as Arc<dyn Device>));
        fill(&db, ROWS);
        let snapshot = db.begin_read().expect("open");
        let change = |rows: std::ops::Range<u64>, round: u64| {
            for row in rows {
                put(&db, row, round);
                if row % 4 == 0 {
                    pause();
                }
            }
        };
        device.set_plan(FaultPlan { read_error_one_in: 1, ..FaultPlan::default() });
        change(0..2_000, 1);
        let stats = db.stats().transactions;
        assert!(stats.version_runs >= 8 && stats.version_failures > 0, "{stats:?}");
        device.set_plan(FaultPlan::default());
        sleep(Nanos::from_secs(6));
        change(2_000..ROWS, 1);
        sleep(Nanos::from_secs(6));
        let later = db.stats().transactions;
        assert!(later.version_runs < stats.version_runs, "{later:?} after {stats:?}");
        assert!(is_as_it_was(&snapshot, ROWS).expect("it stays open"));
    });
}
