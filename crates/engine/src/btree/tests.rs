//! Trees against `BTreeMap`: random operations, rollbacks, many tasks at once, both directions.

use std::collections::BTreeMap;
use std::ops::Bound::{self, Unbounded};

use terrace_rt::{Prng, Virtual, VirtualConfig};

use super::descend::Seek;
use super::node::{KEY_MAX, OVERFLOW, RIGHT_AT};
use super::testing::{Bench, Txn};
use super::{Batch, Direction, Keep, Put, Scan, Tree, Wanted};
use crate::reclaim::Progress;
use crate::writer::Step;
use crate::{Error, LockMode};

mod blocks;
mod compaction;
mod sizes;
mod space;
mod tasks;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn in_world<T>(seed: u64, switch_one_in: u32, run: impl FnOnce() -> T) -> T {
    let world = Virtual::new(VirtualConfig { seed, switch_one_in, ..VirtualConfig::default() });
    world.run(run).expect("the world goes on to the end")
}

fn here() -> terrace_rt::World {
    terrace_rt::World::current()
}

fn done<T>(step: Result<Step<T>, Error>) -> T {
    match step.expect("no error") {
        Step::Done(value) => value,
        Step::Wait(request) => panic!("nobody else has a lock: {request:?}"),
    }
}

/// A tree of `rows` rows in ascending order, with values of `len` bytes.
fn filled(bench: &Bench, rows: u64, len: usize) -> Tree {
    let tree = bench.tree(3);
    let mut txn = bench.begin();
    for number in 0..rows {
        done(tree.put(&mut txn, &number.to_be_bytes(), &vec![7; len], Put::InsertNew, None));
    }
    txn.commit();
    tree
}

fn key(prng: &mut Prng, shape: u64) -> Vec<u8> {
    match shape {
        0 => prng.below(3_000).to_be_bytes().to_vec(),
        1 => (0..prng.below(6)).map(|_| prng.below(4) as u8).collect(),
        2 => {
            let mut key = vec![b'k'; 200 * prng.below(5) as usize];
            key.extend_from_slice(&(prng.below(600) as u16).to_be_bytes());
            key
        }
        _ => {
            let len = [3, 30, 300, KEY_MAX as u64 + 1][prng.below(4) as usize];
            let mut seeded = Prng::from_seed(prng.below(1_500));
            (0..seeded.below(len)).map(|_| seeded.below(256) as u8).collect()
        }
    }
}

fn value(prng: &mut Prng, key: &[u8]) -> Vec<u8> {
    let len = match prng.below(40) {
        0 => prng.below(60_000) as usize,
        1..4 => prng.below(4_500) as usize,
        4..8 => 0,
        8 => sizes::at_a_limit(prng, key.len()),
        _ => prng.below(120) as usize,
    };
    let mut value = vec![0; len];
    prng.fill(&mut value);
    value
}

/// A value that differs from `old` in a range.
fn touched(prng: &mut Prng, old: &[u8]) -> Vec<u8> {
    let mut new = old.to_vec();
    if !new.is_empty() {
        let at = prng.below(new.len() as u64) as usize;
        let end = (at + 1 + prng.below(8) as usize).min(new.len());
        prng.fill(&mut new[at..end]);
    }
    new
}

fn bound(prng: &mut Prng, shape: u64) -> Bound<Vec<u8>> {
    match prng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(prng, shape)),
        _ => Bound::Excluded(key(prng, shape)),
    }
}

fn scan(
    tree: &Tree,
    txn: &mut Txn,
    bounds: (&Bound<Vec<u8>>, &Bound<Vec<u8>>),
    direction: Direction,
    limit: usize,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    scan_of(Wanted::Rows, tree, txn, bounds, direction, limit)
}

fn scan_of(
    wanted: Wanted,
    tree: &Tree,
    txn: &mut Txn,
    bounds: (&Bound<Vec<u8>>, &Bound<Vec<u8>>),
    direction: Direction,
    limit: usize,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let scan = Scan::new(bounds.0.clone(), bounds.1.clone(), direction, LockMode::Shared);
    let mut scan = scan.reading(wanted);
    let mut batch = Batch::default();
    let mut found = Vec::new();
    loop {
        done(scan.next_batch(tree, txn, limit, &mut batch));
        if batch.len() == 0 {
            return found;
        }
        assert!(batch.len() <= limit);
        found.extend(batch.entries().map(|(key, value)| (key.to_vec(), value.to_vec())));
    }
}

/// What `BTreeMap::range` gives, without its panics.
fn range(model: &Model, bounds: (&Bound<Vec<u8>>, &Bound<Vec<u8>>)) -> Vec<(Vec<u8>, Vec<u8>)> {
    use std::ops::RangeBounds;
    let inside = |key: &Vec<u8>| (bounds.0.clone(), bounds.1.clone()).contains(key);
    model.iter().filter(|(key, _)| inside(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn compare(tree: &Tree, txn: &mut Txn, model: &Model, prng: &mut Prng, shape: u64) {
    let bounds = (bound(prng, shape), bound(prng, shape));
    let bounds = (&bounds.0, &bounds.1);
    let wanted = if prng.chance(4) { Wanted::Keys } else { Wanted::Rows };
    let limit = 1 + prng.below(50) as usize;
    let mut expected = range(model, bounds);
    if wanted == Wanted::Keys {
        expected.iter_mut().for_each(|(_, value)| value.clear());
    }
    assert!(
        scan_of(wanted, tree, txn, bounds, Direction::Forward, limit) == expected,
        "forward {bounds:?}"
    );
    expected.reverse();
    assert!(
        scan_of(wanted, tree, txn, bounds, Direction::Backward, limit) == expected,
        "back {bounds:?}"
    );
}

fn step(tree: &Tree, txn: &mut Txn, model: &mut Model, prng: &mut Prng, shape: u64) {
    let key = key(prng, shape);
    let there = model.get(&key).cloned();
    let mut old = Vec::new();
    match prng.below(10) {
        0..4 => {
            let value = value(prng, &key);
            let put = [Put::Upsert, Put::InsertNew, Put::Update][prng.below(3) as usize];
            let existed = done(tree.put(txn, &key, &value, put, Some(&mut old)));
            assert_eq!(existed, there.is_some());
            if existed && put != Put::InsertNew || !existed && put != Put::Update {
                model.insert(key, value);
            }
            assert_eq!(old, there.unwrap_or_default());
        }
        4..6 => {
            let value = touched(prng, there.as_deref().unwrap_or_default());
            done(tree.put(txn, &key, &value, Put::Upsert, None));
            model.insert(key, value);
        }
        6..8 => {
            assert_eq!(done(tree.remove(txn, &key, Some(&mut old))), there.is_some());
            assert_eq!(old, there.unwrap_or_default());
            model.remove(&key);
        }
        _ => {
            let found = done(tree.get(txn, &key, LockMode::Shared, <[u8]>::to_vec));
            assert_eq!(found, there);
        }
    }
}

#[test]
fn a_tree_agrees_with_a_map() {
    for seed in 0..16 {
        in_world(seed, 0, || {
            let mut prng = Prng::from_seed(seed);
            let shape = seed % 4;
            let bench = Bench::new(here(), 40_000, 200);
            let tree = bench.tree(7);
            let mut model = Model::new();
            for round in 0..60 {
                let mut txn = bench.begin();
                let before = model.clone();
                for _ in 0..prng.below(80) {
                    step(&tree, &mut txn, &mut model, &mut prng, shape);
                }
                if prng.below(4) == 0 {
                    let (mark, middle) = (txn.changes(), model.clone());
                    step(&tree, &mut txn, &mut model, &mut prng, shape);
                    txn.roll_back_to(&tree, mark);
                    model = middle;
                }
                if prng.below(3) == 0 {
                    txn.roll_back(&tree);
                    model = before;
                } else {
                    txn.commit();
                }
                if prng.below(2) == 0 {
                    bench.purge(&tree);
                }
                let mut txn = bench.begin();
                if round % 5 == 0 {
                    compare(&tree, &mut txn, &model, &mut prng, shape);
                    let stats = tree.check().expect("a sound tree");
                    assert_eq!(stats.keys, model.len() as u64, "seed {seed} round {round}");
                }
                txn.commit();
            }
            empty(&bench, &tree, &mut model);
            bench.replay();
            bench.pool.shutdown();
        });
    }
}

/// Does what the reclaim task does for blocks, to its end.
fn tidy(bench: &Bench, tree: &Tree, keep: Keep) {
    let mut txn = bench.begin();
    for _ in 0..10_000 {
        let progress = tree.tidy_blocks(&mut txn, keep).expect("no error");
        if progress != Progress::More {
            return txn.commit();
        }
    }
    panic!("it comes to no end");
}

/// Removes all that is there; merges lead back to a single page.
fn empty(bench: &Bench, tree: &Tree, model: &mut Model) {
    let mut txn = bench.begin();
    for key in model.keys() {
        assert!(done(tree.remove(&mut txn, key, None)));
    }
    txn.commit();
    model.clear();
    bench.purge(tree);
    for _ in 0..100 {
        let mut txn = bench.begin();
        while tree.free_chain(&mut txn).expect("no error") == Progress::More {}
        txn.commit();
    }
    tidy(bench, tree, Keep::None);
    let stats = tree.check().expect("a sound tree");
    assert_eq!((stats.keys, stats.pending_pages), (0, 0));
    assert!(stats.leaves + stats.inner_nodes < 20, "merges give pages back: {stats:?}");
}

/// The last leaf as an older day had it, from which the way goes back to the first.
#[test]
fn a_walk_in_a_circle_is_corruption() {
    in_world(1, 0, || {
        let bench = Bench::new(here(), 20_000, 500);
        let tree = bench.tree(3);
        let mut txn = bench.begin();
        for number in 0..1000u64 {
            done(tree.put(&mut txn, &number.to_be_bytes(), &[7; 100], Put::InsertNew, None));
        }
        let first = tree.leaf_shared(Seek::Key(b"")).expect("a leaf").id();
        let mut last = tree.leaf_exclusive(Seek::Last).expect("a leaf");
        let _ = last.dirty();
        let lsn = terrace_page::lsn(&last);
        last.apply(lsn, |page| page[RIGHT_AT..][..8].copy_from_slice(&first.0.to_le_bytes()));
        drop(last);
        let mut scan = Scan::new(Unbounded, Unbounded, Direction::Forward, LockMode::Shared);
        let mut batch = Batch::default();
        let ended = (0..99).find_map(|_| scan.next_batch(&tree, &mut txn, 200, &mut batch).err());
        assert!(matches!(ended, Some(Error::Corrupt { .. })), "{ended:?}");
        txn.commit();
        bench.pool.shutdown();
    });
}

#[test]
fn ascending_keys_fill_their_leaves() {
    in_world(1, 0, || {
        let bench = Bench::new(here(), 20_000, 500);
        let tree = bench.tree(3);
        let mut txn = bench.begin();
        // Two runs, so that one of them is not at the end of the tree.
        for number in 0..20_000u64 {
            for run in [1u64 << 40, 0] {
                let key = (number + run).to_be_bytes();
                done(tree.put(&mut txn, &key, &[7; 100], Put::InsertNew, None));
            }
        }
        txn.commit();
        let stats = tree.check().expect("a sound tree");
        let fill = stats.leaf_bytes as f64 / (stats.leaves * 8192) as f64;
        assert!(fill > 0.92, "leaves are {fill:.2} full");
        assert_eq!(stats.levels, 3);
        bench.pool.shutdown();
    });
}

/// A split at the end of the tree kept all cells of a full leaf, which had no upper fence before
/// and no room for one: the change did not fit its page.
#[test]
fn a_full_leaf_makes_room_for_its_fence() {
    in_world(1, 0, || {
        let bench = Bench::new(here(), 20_000, 500);
        let mut txn = bench.begin();
        for value_len in 8..72usize {
            let tree = bench.tree(3 + value_len as u32);
            let value = vec![7; value_len];
            for number in 0..700u32 {
                // Ten numbers share their first bytes, so that prefixes come and go.
                let key = [&(number / 10).to_be_bytes()[..], &[0; 9], &number.to_be_bytes()];
                done(tree.put(&mut txn, &key.concat(), &value, Put::InsertNew, None));
            }
            assert_eq!(tree.check().expect("a sound tree").keys, 700);
        }
        txn.commit();
        bench.pool.shutdown();
    });
}

/// The bug: a node that was full to the brim had no room for the longer fence of its split.
#[test]
fn fences_have_room_in_full_nodes() {
    for (seed, prefix) in [0usize, 3, 40, 300, 700, 1_000].into_iter().enumerate() {
        for order in 0..4 {
            in_world(1, 0, || {
                let mut prng = Prng::from_seed(seed as u64);
                let bench = Bench::new(here(), 60_000, 1_000);
                let tree = bench.tree(3);
                let mut numbers: Vec<u64> = (0..3_000).map(|number| number * 7).collect();
                match order {
                    0 => numbers.reverse(),
                    1 => prng.shuffle(&mut numbers),
                    _ => {}
                }
                let mut txn = bench.begin();
                for number in numbers {
                    let mut key = vec![b'm'; prefix];
                    if order == 3 && prng.below(20) == 0 {
                        key[..prefix.min(1)].fill(prng.below(256) as u8);
                        key.truncate(prng.below(prefix as u64 + 1) as usize);
                    }
                    key.extend_from_slice(&number.to_be_bytes());
                    let value = vec![1; prng.below(200) as usize];
                    done(tree.put(&mut txn, &key, &value, Put::Upsert, None));
                }
                txn.commit();
                tree.check().expect("a sound tree");
                bench.pool.shutdown();
            });
        }
    }
}

#[test]
fn random_keys_fill_two_thirds() {
    in_world(1, 0, || {
        let bench = Bench::new(here(), 20_000, 500);
        let tree = bench.tree(3);
        let mut prng = Prng::from_seed(5);
        let mut txn = bench.begin();
        for _ in 0..20_000 {
            let key = prng.next_u64().to_be_bytes();
            done(tree.put(&mut txn, &key, &[7; 100], Put::InsertNew, None));
        }
        txn.commit();
        let stats = tree.check().expect("a sound tree");
        let fill = stats.leaf_bytes as f64 / (stats.leaves * 8192) as f64;
        assert!(fill > 0.64, "leaves are {fill:.2} full");
        bench.pool.shutdown();
    });
}

#[test]
fn a_full_home_fails_the_insertion_and_not_the_undo() {
    in_world(1, 0, || {
        let bench = Bench::new(here(), 32 * 20, 200);
        let tree = bench.tree(3);
        let mut prng = Prng::from_seed(9);
        let mut model = Model::new();
        let mut txn = bench.begin();
        for _ in 0..200 {
            let (key, value) = (prng.next_u64().to_be_bytes(), vec![1; 500]);
            done(tree.put(&mut txn, &key, &value, Put::InsertNew, None));
            model.insert(key.to_vec(), value);
        }
        txn.commit();
        for round in 0..6 {
            let mut txn = bench.begin();
            for key in model.keys().step_by(2) {
                done(tree.remove(&mut txn, key, None));
            }
            let failed = loop {
                let len = if round % 2 == 0 { 900 } else { 50_000 };
                let key = prng.next_u64().to_be_bytes();
                match tree.put(&mut txn, &key, &vec![2; len], Put::Upsert, None) {
                    Ok(Step::Done(_)) => {}
                    other => break other,
                }
            };
            assert!(matches!(failed, Err(Error::HomeFull { .. })), "{failed:?}");
            txn.roll_back(&tree);
            let mut txn = bench.begin();
            for _ in 0..40 {
                while tree.free_chain(&mut txn).expect("no error") == Progress::More {}
            }
            txn.commit();
            let mut txn = bench.begin();
            compare(&tree, &mut txn, &model, &mut prng, 0);
            txn.commit();
            assert_eq!(tree.check().expect("a sound tree").keys, model.len() as u64);
        }
        bench.replay();
        bench.pool.shutdown();
    });
}

#[test]
fn a_loaded_tree_goes_on() {
    for seed in 0..12 {
        in_world(seed, 0, || {
            let mut prng = Prng::from_seed(seed);
            let shape = seed % 4;
            let bench = Bench::new(here(), 40_000, 300);
            let tree = bench.tree(7);
            let mut model = Model::new();
            for _ in 0..prng.below(6_000) {
                let key = key(&mut prng, shape);
                let value = value(&mut prng, &key);
                model.insert(key, value);
            }
            let mut txn = bench.begin();
            let fill = 40 + prng.below(61) as usize;
            let mut loader = tree.load(&mut txn, fill).expect("an empty tree");
            for (key, value) in &model {
                loader.push(&mut txn, key, value).expect("ascending");
                let again = loader.push(&mut txn, key, value);
                assert!(matches!(again, Err(Error::NotAscending { .. })));
            }
            assert_eq!(loader.keys(), model.len() as u64);
            let loaded = loader.finish(&mut txn).expect("no error");
            assert!(tree.is_loading().expect("no error"));
            loaded.install(&mut txn).expect("no error");
            txn.commit();
            let stats = tree.check().expect("a sound tree");
            assert_eq!(stats.keys, model.len() as u64, "seed {seed}");
            let mut txn = bench.begin();
            compare(&tree, &mut txn, &model, &mut prng, shape);
            for _ in 0..300 {
                step(&tree, &mut txn, &mut model, &mut prng, shape);
            }
            compare(&tree, &mut txn, &model, &mut prng, shape);
            txn.commit();
            tree.check().expect("a sound tree");
            bench.replay();
            bench.pool.shutdown();
        });
    }
}

#[test]
fn a_load_fills_as_asked_and_lies_in_order() {
    in_world(1, 0, || {
        let bench = Bench::new(here(), 40_000, 300);
        let tree = bench.tree(7);
        let mut txn = bench.begin();
        let mut loader = tree.load(&mut txn, 70).expect("an empty tree");
        for number in 0..60_000u64 {
            loader.push(&mut txn, &number.to_be_bytes(), &[1; 100]).expect("ascending");
        }
        loader.finish(&mut txn).expect("no error").install(&mut txn).expect("no error");
        tree.reserve(&mut txn, 100).expect("room");
        txn.commit();
        let stats = tree.check().expect("a sound tree");
        let fill = stats.leaf_bytes as f64 / (stats.leaves * 8192) as f64;
        assert!((0.67..0.71).contains(&fill), "leaves are {fill:.2} full");
        let before = bench.pool.stats();
        let mut txn = bench.begin();
        let all = (&Bound::Unbounded, &Bound::Unbounded);
        assert_eq!(scan(&tree, &mut txn, all, Direction::Forward, 100).len(), 60_000);
        let after = bench.pool.stats();
        let (pages, reads) =
            (after.home_read_pages - before.home_read_pages, after.home_reads - before.home_reads);
        assert!(reads * 4 < pages, "{reads} reads for {pages} pages");
        txn.commit();
        bench.pool.shutdown();
    });
}

#[test]
fn an_interrupted_load_is_taken_back() {
    in_world(1, 0, || {
        let bench = Bench::new(here(), 32 * 40, 200);
        for number in 7..11 {
            let tree = bench.tree(number);
            let mut txn = bench.begin();
            let mut loader = tree.load(&mut txn, 90).expect("an empty tree");
            for number in 0..40_000u64 {
                loader.push(&mut txn, &number.to_be_bytes(), &[1; 100]).expect("ascending");
            }
            drop(loader);
            txn.commit();
            let mut txn = bench.begin();
            assert!(tree.is_loading().expect("no error"));
            bench.free(&mut txn, &tree);
            txn.commit();
        }
        bench.pool.shutdown();
    });
}

#[test]
fn dropped_trees_leave_their_room() {
    in_world(1, 0, || {
        let bench = Bench::new(here(), 32 * 20, 200);
        for round in 0..20 {
            let tree = bench.tree(round);
            let mut txn = bench.begin();
            for number in 0..500u64 {
                let key = number.to_be_bytes();
                done(tree.put(&mut txn, &key, &[7; 1_500], Put::InsertNew, None));
            }
            txn.commit();
            tree.check().expect("a sound tree");
            let mut txn = bench.begin();
            bench.free(&mut txn, &tree);
            txn.commit();
        }
        bench.pool.shutdown();
    });
}

#[test]
fn a_key_too_long_is_refused() {
    in_world(1, 0, || {
        let bench = Bench::new(here(), 2_000, 100);
        let tree = bench.tree(3);
        let mut txn = bench.begin();
        let long = vec![1; KEY_MAX + 1];
        let error = tree.put(&mut txn, &long, b"", Put::Upsert, None);
        assert!(matches!(error, Err(Error::KeyTooLong { len: 1025, max: 1024, .. })));
        assert_eq!(done(tree.get(&mut txn, &long, LockMode::Shared, |_| ())), None);
        done(tree.put(&mut txn, &long[1..], &vec![OVERFLOW; 100_000], Put::Upsert, None));
        let len = done(tree.get(&mut txn, &long[1..], LockMode::Shared, <[u8]>::len));
        assert_eq!(len, Some(100_000));
        txn.commit();
        bench.pool.shutdown();
    });
}
