//! Compaction: the same rows in fewer pages, whatever happens between its steps and beside them.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrace_page::{Lsn, PageId};
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{LeafMutex, Prng, yield_now};

use super::tasks::{Committed, scan_while_it_changes, transaction};
use super::{Model, compare, done, filled, here, in_world, step};
use crate::Error;
use crate::btree::node::LEVEL_MAX;
use crate::btree::testing::Bench;
use crate::btree::{Moved, Put, Tightened, Tree};
use crate::space::EXTENT_PAGES;

/// What compactions have done: a test in which they do nothing shows nothing.
#[derive(Default)]
struct Done {
    merged: u64,
    moved: u64,
}

/// Merges all that finds room, as `Trees::tighten` does.
fn tighten(bench: &Bench, tree: &Tree, counts: &mut Done) {
    for level in 0..LEVEL_MAX {
        let mut key = Vec::new();
        loop {
            let mut txn = bench.begin();
            let done = match tree.after_dense(&txn, level, &key).expect("no error") {
                Some(done) => done,
                None => tree.tighten(&mut txn, level, &key).expect("no error"),
            };
            txn.commit();
            match done {
                Tightened::Merged => counts.merged += 1,
                Tightened::Next(next) => key = next,
                Tightened::Last => break,
                Tightened::TooHigh => return,
            }
            yield_now();
        }
    }
}

/// Moves pages from anywhere to anywhere.
fn shuffle(bench: &Bench, tree: &Tree, prng: &mut Prng, counts: &mut Done) {
    let extents = bench.space.extents_of(tree.id()).expect("no error");
    for _ in 0..200 {
        let from = extents[prng.below(extents.len() as u64) as usize];
        let to = extents[prng.below(extents.len() as u64) as usize];
        let page = prng.below(EXTENT_PAGES);
        if from.first == to.first || from.used & 1 << page == 0 {
            continue;
        }
        let page = from.first.plus(page);
        let mut txn = bench.begin();
        if tree.move_node(&mut txn, page, to.first).expect("no error") == Moved::Yes {
            counts.moved += 1;
        }
        txn.commit();
        yield_now();
    }
}

/// Punches what is free: with no log to redo, home alone must have all that is dirty elsewhere.
fn punch(bench: &Bench) -> u64 {
    let unused = bench.space.unused(|| Lsn(0)).expect("no error");
    bench.pool.flush_all().expect("no error");
    unused.runs.into_iter().map(|run| bench.space.punch(run).expect("no error")).sum()
}

#[test]
fn a_compacted_tree_agrees_with_a_map() {
    let (mut counts, mut punched) = (Done::default(), 0);
    for seed in 0..16 {
        in_world(seed, 0, || {
            let mut prng = Prng::from_seed(seed);
            let shape = seed % 4;
            // So few frames that holes are met at home.
            let bench = Bench::new(here(), 40_000, 60);
            let tree = bench.tree(7);
            let mut model = Model::new();
            for round in 0..40 {
                let mut txn = bench.begin();
                let before = model.clone();
                for _ in 0..prng.below(200) {
                    step(&tree, &mut txn, &mut model, &mut prng, shape);
                }
                // A step of a compaction may come while a transaction is open.
                if prng.below(2) == 0 {
                    tighten(&bench, &tree, &mut counts);
                    shuffle(&bench, &tree, &mut prng, &mut counts);
                }
                if prng.below(3) == 0 {
                    txn.roll_back(&tree);
                    model = before;
                } else {
                    txn.commit();
                }
                bench.purge(&tree);
                if prng.below(3) == 0 {
                    punched += punch(&bench);
                }
                let mut txn = bench.begin();
                compare(&tree, &mut txn, &model, &mut prng, shape);
                let stats = tree.check().expect("a sound tree");
                assert_eq!(stats.keys, model.len() as u64, "seed {seed} round {round}");
                txn.commit();
            }
            bench.replay();
            bench.pool.shutdown();
        });
    }
    assert!(counts.merged > 50 && counts.moved > 500, "{} {}", counts.merged, counts.moved);
    assert!(punched > 0);
}

#[test]
fn a_thin_tree_becomes_dense() {
    // With two rows of 3,900 bytes a page is 95% full, with one 48%; with three of 2,600 95%.
    for (len, rows) in
        [(20usize, 20_000u64), (100, 20_000), (400, 20_000), (2_600, 4_000), (3_900, 4_000)]
    {
        in_world(1, 0, || {
            let bench = Bench::new(here(), 40_000, 500);
            let tree = filled(&bench, rows, len);
            let mut prng = Prng::from_seed(9);
            let mut left = 0;
            let mut txn = bench.begin();
            for number in 0..rows {
                match prng.below(10) {
                    0 => left += 1,
                    _ => assert!(done(tree.remove(&mut txn, &number.to_be_bytes(), None))),
                }
            }
            txn.commit();
            bench.purge(&tree);
            tighten(&bench, &tree, &mut Done::default());
            let stats = tree.check().expect("a sound tree");
            let fill = stats.leaf_bytes as f64 / (stats.leaves * 8192) as f64;
            assert_eq!(stats.keys, left);
            assert!(fill > 0.83, "leaves of rows of {len} bytes are {fill:.2} full");
            bench.pool.shutdown();
        });
    }
}

/// The bug: the leaf that gives rows away gets a longer fence, for which it had no room.
#[test]
fn leaves_with_long_keys_and_short_fences_give_rows_away() {
    let mut counts = Done::default();
    for seed in 0..400 {
        in_world(seed, 0, || {
            let mut prng = Prng::from_seed(seed);
            let bench = Bench::new(here(), 40_000, 500);
            let tree = bench.tree(3);
            // Groups of about a leaf: rows with long keys that differ at their ends, and others.
            let mut rows = Vec::new();
            for group in 0..16u8 {
                let shared = if group % 2 == 1 { 100 + prng.below(850) as usize } else { 0 };
                let (rows_of, len) = (10 + prng.below(100), prng.below(400) as usize);
                let len = len.min(7_900 / rows_of as usize);
                for number in 0..rows_of as u16 {
                    let mut key = vec![b'a' + group];
                    key.resize(1 + shared, b'x');
                    key.extend_from_slice(&number.to_be_bytes());
                    rows.push((key, vec![7; len], shared == 0));
                }
            }
            if seed % 2 == 1 {
                prng.shuffle(&mut rows);
            }
            let mut txn = bench.begin();
            for (key, value, _) in &rows {
                done(tree.put(&mut txn, key, value, Put::InsertNew, None));
            }
            txn.commit();
            let mut txn = bench.begin();
            rows.retain(|(key, _, is_short)| {
                let goes = *is_short && prng.below(3) > 0;
                assert!(!goes || done(tree.remove(&mut txn, key, None)));
                !goes
            });
            txn.commit();
            tighten(&bench, &tree, &mut counts);
            let stats = tree.check().expect("a sound tree");
            assert_eq!(stats.keys, rows.len() as u64, "seed {seed}");
            bench.pool.shutdown();
        });
    }
    assert!(counts.merged > 1_000, "{}", counts.merged);
}

/// Transactions, scans and purges beside compactions, with preemption at every step.
#[test]
fn many_tasks_change_a_tree_that_is_compacted() {
    let counts = Arc::new(LeafMutex::new(Done::default()));
    for seed in 0..24 {
        let counts = Arc::clone(&counts);
        in_world(seed, 3, move || {
            let bench = Bench::new(here(), 40_000, 100);
            let tree = bench.tree(7);
            let committed = Committed::default();
            let tasks = (0..8).map(|task| {
                let (bench, tree, committed) = (bench.clone(), tree.clone(), committed.clone());
                let mut prng = Prng::from_seed(seed * 100 + task);
                here().spawn("client", move || {
                    for _ in 0..40 {
                        transaction(&bench, &tree, &committed, &mut prng, seed % 4);
                    }
                })
            });
            let mut tasks: Vec<_> = tasks.collect();
            let (scanned, all) = (bench.clone(), tree.clone());
            tasks.push(here().spawn("scanner", move || {
                for round in 0..30 {
                    scan_while_it_changes(&scanned, &all, round % 2 == 0);
                }
            }));
            let (purged, all) = (bench.clone(), tree.clone());
            tasks.push(here().spawn("compactor", move || {
                let mut prng = Prng::from_seed(seed);
                for _ in 0..12 {
                    let mut own = Done::default();
                    purged.purge(&all);
                    tighten(&purged, &all, &mut own);
                    shuffle(&purged, &all, &mut prng, &mut own);
                    punch(&purged);
                    let mut counts = counts.lock();
                    counts.merged += own.merged;
                    counts.moved += own.moved;
                }
            }));
            for task in tasks {
                task.join();
            }
            let model = committed.lock().clone();
            let stats = tree.check().expect("a sound tree");
            assert_eq!(stats.keys, model.len() as u64, "seed {seed}");
            let mut txn = bench.begin();
            compare(&tree, &mut txn, &model, &mut Prng::from_seed(seed), seed % 4);
            txn.commit();
            bench.replay();
            bench.pool.shutdown();
        });
    }
    let counts = counts.lock();
    assert!(counts.merged > 40 && counts.moved > 250, "{} {}", counts.merged, counts.moved);
}

/// Pages of the lower extents are in use, of the upper ones free: moves to another map and back.
#[test]
fn a_page_moves_from_one_map_to_another() {
    in_world(1, 0, || {
        let bench = Bench::new(here(), 100_000, 200);
        let tree = bench.tree(3);
        let mut txn = bench.begin();
        let mut last = PageId(0);
        while last.0 < 1021 * EXTENT_PAGES {
            let run = bench.space.take_run(&mut txn, tree.id(), 500, 0).expect("room");
            last = *run.last().expect("extents");
        }
        for number in 0..3_000u64 {
            done(tree.put(&mut txn, &number.to_be_bytes(), &[7; 100], Put::InsertNew, None));
        }
        txn.commit();
        let used = |bench: &Bench| -> BTreeMap<PageId, u32> {
            let extents = bench.space.extents_of(tree.id()).expect("no error");
            extents.iter().map(|extent| (extent.first, extent.used)).collect()
        };
        let before = tree.check().expect("a sound tree");
        let mut moved = 0;
        for (first, bits) in used(&bench) {
            for bit in (0..EXTENT_PAGES).filter(|bit| bits & 1 << bit != 0) {
                let mut txn = bench.begin();
                let there = tree.move_node(&mut txn, first.plus(bit), last).expect("no error");
                moved += u64::from(there == Moved::Yes);
                txn.commit();
            }
        }
        assert_eq!(moved, 32, "the extent is full then");
        assert_eq!(used(&bench).get(&last), Some(&u32::MAX));
        let low = *used(&bench).keys().nth(5).expect("extents");
        for bit in 0..EXTENT_PAGES {
            let mut txn = bench.begin();
            let back = tree.move_node(&mut txn, last.plus(bit), low).expect("no error");
            assert!(matches!(back, Moved::Yes | Moved::NoRoom));
            txn.commit();
        }
        let after = tree.check().expect("a sound tree");
        assert_eq!((after.keys, after.leaves), (before.keys, before.leaves));
        bench.replay();
        bench.pool.shutdown();
    });
}

/// What checks a tree finds a move that forgot the left neighbour.
#[test]
fn a_move_without_the_left_neighbour_is_found() {
    for (mutations, is_found) in
        [(Mutations::NONE, false), (Mutation::MoveWithoutNeighbour.into(), true)]
    {
        in_world(1, 0, || {
            let bench = Bench::mutated(here(), 40_000, 200, mutations);
            let tree = bench.tree(3);
            let mut txn = bench.begin();
            for number in 0..4_000u64 {
                done(tree.put(&mut txn, &number.to_be_bytes(), &[7; 100], Put::InsertNew, None));
            }
            txn.commit();
            let mut counts = Done::default();
            shuffle(&bench, &tree, &mut Prng::from_seed(1), &mut counts);
            assert!(counts.moved > 20, "{}", counts.moved);
            let checked = tree.check();
            assert_eq!(matches!(checked, Err(Error::Corrupt { .. })), is_found, "{checked:?}");
            bench.pool.shutdown();
        });
    }
}
