//! Many tasks in one tree at once, with preemption: transactions that end either way, and scans.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use terrace_rt::{LeafMutex, Prng, yield_now};

use super::{Model, compare, here, in_world, key, value};
use crate::LockMode;
use crate::btree::testing::Bench;
use crate::btree::{Batch, Direction, Put, Scan, Tree};
use crate::writer::Step;

/// Shared by tasks: what is committed.
pub(super) type Committed = Arc<LeafMutex<Model>>;

/// One transaction of a few operations, rolled back when a lock is busy for too long. No other task
/// changes what it locks, so that the model needs no lock of its own.
pub(super) fn transaction(
    bench: &Bench,
    tree: &Tree,
    committed: &Committed,
    prng: &mut Prng,
    shape: u64,
) {
    let mut txn = bench.begin();
    let mut own: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
    for _ in 0..1 + prng.below(12) {
        let key = key(prng, shape);
        let value = value(prng, &key);
        let operation = prng.below(4);
        let mut waits = 0;
        // A miss locks a gap only, which these locks do not know: it says nothing.
        let mut removed = false;
        loop {
            let step = match operation {
                0 | 1 => tree.put(&mut txn, &key, &value, Put::Upsert, None).map(void),
                2 => tree.remove(&mut txn, &key, None).map(|step| {
                    removed = matches!(step, Step::Done(true));
                    void(step)
                }),
                _ => tree.get(&mut txn, &key, LockMode::Shared, <[u8]>::to_vec).map(|step| {
                    if let Step::Done(found) = &step {
                        let there = committed.lock().get(&key).cloned();
                        let there = own.get(&key).cloned().unwrap_or(there);
                        assert!(found.is_none() || *found == there, "{key:?}");
                    }
                    void(step)
                }),
            };
            match step.expect("no error") {
                Step::Done(()) => break,
                Step::Wait(_) if waits == 3 => return txn.roll_back(tree),
                Step::Wait(_) => {
                    waits += 1;
                    yield_now();
                }
            }
        }
        match operation {
            0 | 1 => own.insert(key, Some(value)),
            2 if removed => own.insert(key, None),
            _ => None,
        };
    }
    if prng.below(4) == 0 {
        return txn.roll_back(tree);
    }
    {
        let mut committed = committed.lock();
        for (key, value) in own {
            match value {
                Some(value) => committed.insert(key, value),
                None => committed.remove(&key),
            };
        }
    }
    txn.commit();
}

fn void<T>(step: Step<T>) -> Step<()> {
    match step {
        Step::Done(_) => Step::Done(()),
        Step::Wait(request) => Step::Wait(request),
    }
}

#[test]
fn many_tasks_change_one_tree() {
    for seed in 0..24 {
        in_world(seed, 3, || {
            let bench = Bench::new(here(), 40_000, 100);
            let tree = bench.tree(7);
            let committed = Committed::default();
            let tasks = (0..10).map(|task| {
                let (bench, tree, committed) = (bench.clone(), tree.clone(), committed.clone());
                let mut prng = Prng::from_seed(seed * 100 + task);
                here().spawn("client", move || {
                    for _ in 0..40 {
                        transaction(&bench, &tree, &committed, &mut prng, seed % 4);
                    }
                })
            });
            let mut tasks: Vec<_> = tasks.collect();
            let scanner = (bench.clone(), tree.clone());
            tasks.push(here().spawn("scanner", move || {
                let (bench, tree) = scanner;
                for round in 0..30 {
                    scan_while_it_changes(&bench, &tree, round % 2 == 0);
                }
            }));
            let purger = (bench.clone(), tree.clone());
            tasks.push(here().spawn("purger", move || {
                for _ in 0..200 {
                    purger.0.purge(&purger.1);
                    yield_now();
                }
            }));
            for task in tasks {
                task.join();
            }
            let model = committed.lock().clone();
            let stats = tree.check().expect("a sound tree");
            assert_eq!(stats.keys, model.len() as u64, "seed {seed}");
            let mut txn = bench.begin();
            let mut prng = Prng::from_seed(seed);
            for _ in 0..4 {
                compare(&tree, &mut txn, &model, &mut prng, seed % 4);
            }
            txn.commit();
            bench.replay();
            bench.pool.shutdown();
        });
    }
}

/// Keys come in order, each once, whatever others do.
pub(super) fn scan_while_it_changes(bench: &Bench, tree: &Tree, forward: bool) {
    let direction = if forward { Direction::Forward } else { Direction::Backward };
    let mut txn = bench.begin();
    let mut scan = Scan::new(Bound::Unbounded, Bound::Unbounded, direction, LockMode::Shared);
    let mut batch = Batch::default();
    let mut last: Option<Vec<u8>> = None;
    let mut waits = 0;
    loop {
        match scan.next_batch(tree, &mut txn, 7, &mut batch).expect("no error") {
            Step::Wait(_) if waits == 5 => break,
            Step::Wait(_) => {
                waits += 1;
                yield_now();
                continue;
            }
            Step::Done(()) if batch.len() == 0 => break,
            Step::Done(()) => {}
        }
        for (key, _) in batch.entries() {
            let ordered = last.as_ref().is_none_or(|last| (&**last < key) == forward);
            assert!(ordered && last.as_deref() != Some(key));
            last = Some(key.to_vec());
        }
    }
    txn.commit();
}
