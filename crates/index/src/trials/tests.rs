//! The trials on few entries: the same seed gives the same times, and the cost model is near them.

use super::papers::{QUEUES, Trial};
use super::{Drive, Loaded, Measured, Scale, Setup, Workload, measure, tune};
use crate::cost::{self, Demand};
use crate::{Kind, LeafRead, PioOptions};

const SCALE: Scale = Scale { divisor: 2_000 };

fn drive(name: &str) -> Drive {
    name.parse().expect("a drive of the list")
}

fn trial(name: &str) -> Trial {
    Trial { drive: drive(name), scale: SCALE, seed: 3 }
}

fn once(setup: &Setup, workload: Workload) -> Measured {
    let loaded = Loaded::new(setup, SCALE).expect("no faults");
    measure(&drive("p300"), setup, &loaded, workload, 3).expect("no faults")
}

#[test]
fn the_same_seed_gives_the_same_times_and_traffic() {
    let latencies = trial("p300").latencies().expect("no faults");
    for kind in Kind::ALL {
        let setup = Setup::first(kind, SCALE, &latencies, 0.5);
        let workload = Workload::Mixed { count: 3_000, inserts: 50 };
        assert_eq!(once(&setup, workload), once(&setup, workload), "{kind}");
    }
}

#[test]
fn a_group_of_reads_takes_less_than_so_many_single_ones() {
    let latencies = trial("p300").latencies().expect("no faults");
    let reads = latencies.read_alone[0] / latencies.read_group[0];
    assert!((4.0..9.0).contains(&reads), "{reads}: {latencies:?}");
    // A longer request costs no less.
    assert!(latencies.read_alone.is_sorted() && latencies.read_group.is_sorted(), "{latencies:?}");
}

#[test]
fn the_cost_model_is_near_what_is_measured() {
    let trial = trial("p300");
    let latencies = trial.latencies().expect("no faults");
    let demand = Demand { entries: SCALE.entries(), insert_share: 0.5 };
    let by_segments = LeafRead::Segment { operations: 2 };
    for (segments, leaf_read) in
        [(1, LeafRead::Whole), (4, LeafRead::Whole), (16, LeafRead::Whole), (32, by_segments)]
    {
        let options = Setup::pio(SCALE.room(), SCALE.pages(QUEUES[1]), segments);
        let options = PioOptions { leaf_read, ..options };
        let setup = Setup::Pio(options);
        let inserts = once(&setup, Workload::Inserts { count: 20_000 });
        let searches = once(&setup, Workload::Searches { count: 2_000 });
        let estimate = cost::estimate(&latencies, &demand, &options);
        for (what, model, measured) in [
            ("insert", estimate.insert, inserts.op_ns()),
            ("search", estimate.search, searches.op_ns()),
        ] {
            let ratio = model / measured;
            assert!((0.5..2.0).contains(&ratio), "{what}, L {segments}: {model} for {measured}");
        }
    }
}

#[test]
fn a_search_for_parameters_never_ends_worse_than_it_began() {
    let trial = trial("p300");
    let latencies = trial.latencies().expect("no faults");
    let firsts = Kind::ALL.map(|kind| Setup::first(kind, SCALE, &latencies, 0.9));
    let by_segments = Setup::first_by_segments(SCALE, &latencies, 0.9);
    for first in firsts.into_iter().chain([by_segments]) {
        let kind = first.kind();
        let workload = Workload::Mixed { count: 2_000, inserts: 90 };
        let tuned = tune(&trial.drive, first, SCALE, workload, 3).expect("no faults");
        assert_eq!(tuned.setup.kind(), kind);
        assert!(tuned.measured.elapsed <= tuned.first.elapsed, "{kind}");
        assert!(tuned.tried > 4, "{kind}: {} setups", tuned.tried);
        assert_eq!(once(&tuned.setup, workload), tuned.measured, "{kind}: measured again");
    }
}

#[test]
fn deletes_and_updates_run_beside_inserts() {
    let latencies = trial("p300").latencies().expect("no faults");
    for kind in Kind::ALL {
        let setup = Setup::first(kind, SCALE, &latencies, 0.5);
        let changes = once(&setup, Workload::Changes { count: 3_000 });
        assert_eq!(changes.ops, 3_000);
        assert!(changes.traffic.writes > 0, "{kind} writes");
    }
}

/// A large leaf that is read by segments costs a search less than one that is read whole, and no
/// more requests than two.
#[test]
fn a_search_by_segments_reads_a_part_of_a_large_leaf() {
    let whole = Setup::pio(SCALE.room(), 1, 32);
    let parts = PioOptions { leaf_read: LeafRead::Segment { operations: 4 }, ..whole };
    let mixed = |options| once(&Setup::Pio(options), Workload::Mixed { count: 6_000, inserts: 50 });
    assert!(mixed(parts).searches < mixed(whole).searches);
    let searches = once(&Setup::Pio(parts), Workload::Searches { count: 500 });
    assert!(searches.traffic.reads <= 2 * 500, "{searches:?}");
}

/// A load that is computed when it is read has the bytes of one that was written.
#[test]
fn a_computed_load_gives_the_same_times() {
    let trial = trial("p300");
    let latencies = trial.latencies().expect("no faults");
    for kind in Kind::ALL {
        let setup = Setup::first(kind, SCALE, &latencies, 0.5);
        let workload = Workload::Mixed { count: 1_000, inserts: 50 };
        let computed = Loaded::computed(&setup, SCALE);
        let measured = measure(&trial.drive, &setup, &computed, workload, 3).expect("no faults");
        assert_eq!(measured, once(&setup, workload), "{kind}");
    }
}

/// What waits in memory, the tables and the pool share the memory that all structures have.
#[test]
fn queue_tables_and_pool_share_the_memory() {
    let latencies = trial("p300").latencies().expect("no faults");
    let room = SCALE.room();
    let all = (room.memory_pages * room.page_bytes) as u64;
    for kind in [Kind::BTree, Kind::Pio, Kind::Fd] {
        let setup = Setup::first(kind, SCALE, &latencies, 0.5);
        let memory = once(&setup, Workload::Inserts { count: 10 }).memory;
        let used = memory.pool + memory.queue + memory.tables;
        // Each part is whole pages, and the pool has one at least.
        assert!(used <= all + room.page_bytes as u64, "{kind}: {memory:?} of {all}");
    }
}
