//! Keys and values of every size: what splits must make room for, and what space they take.

use super::super::TreeStats;
use super::super::node::{CELL_MAX, LEAF_CELL, SLOT};
use super::super::overflow::DATA_MAX;
use super::super::reference::{TAIL_CELL, TAIL_PAGES_MAX};
use super::super::runs::RAW_DATA;
use super::super::split::Need;
use super::*;
use crate::space::Purpose;

/// The length of a value with which something changes in how it is stored, or one byte more or
/// less.
pub(super) fn at_a_limit(prng: &mut Prng, key_len: usize) -> usize {
    let cell_max = CELL_MAX - SLOT - LEAF_CELL - key_len;
    let tail_max = CELL_MAX - TAIL_CELL - key_len;
    let limits = [
        1,
        cell_max,
        DATA_MAX,
        DATA_MAX + tail_max,
        8_192,
        RAW_DATA,
        RAW_DATA + tail_max,
        2 * DATA_MAX,
        65_536,
        TAIL_PAGES_MAX * DATA_MAX + tail_max,
        (TAIL_PAGES_MAX + 1) * DATA_MAX,
        1 << 20,
    ];
    limits[prng.below(limits.len() as u64) as usize] + prng.below(3) as usize - 1
}

/// A key whose fences are short, or as long as can be.
fn long_key(prng: &mut Prng) -> Vec<u8> {
    let first = b"aab"[prng.below(3) as usize];
    let shared = [0, 1, 30, 700, KEY_MAX - 2][prng.below(5) as usize];
    let mut key = vec![first; shared];
    key.extend_from_slice(&(prng.below(40) as u16).to_be_bytes());
    if prng.chance(3) {
        key.resize(KEY_MAX - prng.below(3) as usize, 0);
    }
    key
}

/// The length of a value whose cell is the largest, about half of that, or small.
fn inline_len(prng: &mut Prng, key_len: usize) -> usize {
    let max = CELL_MAX - SLOT - LEAF_CELL - key_len;
    match prng.below(6) {
        0..2 => max,
        2 => max - prng.below(40) as usize,
        3 => max / 2 + prng.below(200) as usize,
        4 => prng.below(max as u64) as usize,
        _ => prng.below(100) as usize,
    }
}

#[test]
fn a_split_makes_room_whatever_the_sizes_and_the_place() {
    for seed in 0..40 {
        in_world(seed, 0, || {
            let mut prng = Prng::from_seed(seed);
            let bench = Bench::new(here(), 40_000, 400);
            let tree = bench.tree(7);
            let mut model = Model::new();
            for _ in 0..30 {
                let mut txn = bench.begin();
                let before = model.clone();
                for _ in 0..prng.below(40) {
                    let key = long_key(&mut prng);
                    if prng.chance(4) {
                        assert_eq!(
                            done(tree.remove(&mut txn, &key, None)),
                            model.contains_key(&key)
                        );
                        model.remove(&key);
                        continue;
                    }
                    let value = vec![prng.below(256) as u8; inline_len(&mut prng, key.len())];
                    done(tree.put(&mut txn, &key, &value, Put::Upsert, None));
                    model.insert(key, value);
                }
                if prng.chance(3) {
                    txn.roll_back(&tree);
                    model = before;
                } else {
                    txn.commit();
                }
                if prng.chance(2) {
                    bench.purge(&tree);
                }
                let stats = tree.check().expect("a sound tree");
                assert_eq!((stats.keys, stats.overflow_pages), (model.len() as u64, 0));
            }
            let mut txn = bench.begin();
            let all = (&Unbounded, &Unbounded);
            assert!(scan(&tree, &mut txn, all, Direction::Forward, 100) == range(&model, all));
            txn.commit();
            empty(&bench, &tree, &mut model);
            bench.replay();
            bench.pool.shutdown();
        });
    }
}

/// Two large cells fill a leaf; a third one comes before, between and after them, and each grows in
/// its place.
#[test]
fn a_leaf_of_two_large_cells_is_parted_at_any_place() {
    for key_len in [1, 8, 400, KEY_MAX] {
        for (place, grows) in [(0, false), (1, false), (2, false), (0, true), (1, true)] {
            in_world(1, 0, || {
                let bench = Bench::new(here(), 2_000, 100);
                let tree = bench.tree(3);
                let mut txn = bench.begin();
                let key = |number: u8| vec![number; key_len];
                let max = CELL_MAX - SLOT - LEAF_CELL - key_len;
                let mut model = Model::new();
                let mut put = |txn: &mut Txn, number: u8, len: usize| {
                    done(tree.put(txn, &key(number), &vec![number; len], Put::Upsert, None));
                    model.insert(key(number), vec![number; len]);
                };
                let len = if grows { max / 2 } else { max };
                for number in [1, 3] {
                    put(&mut txn, number, len);
                }
                if grows {
                    put(&mut txn, 5, max);
                }
                put(&mut txn, if grows { 1 + 2 * place } else { 2 * place }, max);
                assert_eq!(tree.check().expect("a sound tree").overflow_pages, 0);
                let all = (&Unbounded, &Unbounded);
                let found = scan(&tree, &mut txn, all, Direction::Forward, 9);
                assert!(found == range(&model, all), "{key_len} {place} {grows}");
                txn.commit();
                bench.replay();
                bench.pool.shutdown();
            });
        }
    }
}

/// The bug: another put the key there, as large as it was to be, while room was made for it. The
/// leaf was split before its first key, which was its lower fence, so that no key was in the left
/// part.
#[test]
fn no_room_is_made_for_a_key_that_another_has_put_there() {
    in_world(1, 0, || {
        let bench = Bench::new(here(), 2_000, 100);
        let tree = bench.tree(3);
        let mut txn = bench.begin();
        let len = CELL_MAX - SLOT - LEAF_CELL - 1;
        for number in 1..5 {
            done(tree.put(&mut txn, &[number], &vec![number; len], Put::InsertNew, None));
        }
        for number in 1..5 {
            let need = Need::Insert { body_len: 1 + len };
            tree.make_room(&mut txn, &[number], need, Purpose::Forward).expect("room");
            assert_eq!(tree.check().expect("a sound tree").keys, 4);
        }
        txn.commit();
        bench.pool.shutdown();
    });
}

/// Values that live in a leaf and in pages at once, changed and taken back.
#[test]
fn a_tail_comes_back_with_its_chain() {
    in_world(1, 0, || {
        let mut prng = Prng::from_seed(3);
        let bench = Bench::new(here(), 20_000, 300);
        let tree = bench.tree(3);
        let mut model = Model::new();
        for number in 0..200u64 {
            let key = number.to_be_bytes().to_vec();
            let mut txn = bench.begin();
            for _ in 0..2 {
                let mut value = vec![0; at_a_limit(&mut prng, key.len()).min(200_000)];
                prng.fill(&mut value);
                done(tree.put(&mut txn, &key, &value, Put::Upsert, None));
                model.insert(key.clone(), value);
            }
            txn.commit();
            let mut txn = bench.begin();
            let other = vec![5; at_a_limit(&mut prng, key.len()).min(200_000)];
            done(tree.put(&mut txn, &key, &other, Put::Upsert, None));
            assert!(done(tree.remove(&mut txn, &key, None)));
            txn.roll_back(&tree);
        }
        let mut txn = bench.begin();
        let all = (&Unbounded, &Unbounded);
        assert!(scan(&tree, &mut txn, all, Direction::Forward, 9) == range(&model, all));
        txn.commit();
        assert_eq!(tree.check().expect("a sound tree").keys, 200);
        empty(&bench, &tree, &mut model);
        bench.replay();
        bench.pool.shutdown();
    });
}

/// The order in which keys come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Ascending,
    Loaded,
    Random,
}

/// Bytes of all pages of a tree over those of its keys and values.
fn space_over_data(order: Order, value_len: usize) -> f64 {
    let count = (16 << 20) / value_len.max(400) as u64;
    let stats: TreeStats = in_world(1, 0, || {
        let bench = Bench::new(here(), 40_000, 500);
        let tree = bench.tree(3);
        let mut numbers: Vec<u64> = (0..count).collect();
        if order == Order::Random {
            Prng::from_seed(7).shuffle(&mut numbers);
        }
        let value = vec![7; value_len];
        let mut txn = bench.begin();
        if order == Order::Loaded {
            let mut loader = tree.load(&mut txn, 100).expect("an empty tree");
            for number in numbers {
                loader.push(&mut txn, &number.to_be_bytes(), &value).expect("ascending");
            }
            loader.finish(&mut txn).expect("no error").install(&mut txn).expect("no error");
        } else {
            for number in numbers {
                done(tree.put(&mut txn, &number.to_be_bytes(), &value, Put::InsertNew, None));
            }
        }
        txn.commit();
        let stats = tree.check().expect("a sound tree");
        bench.pool.shutdown();
        stats
    });
    let pages = 1 + stats.leaves + stats.inner_nodes + stats.overflow_pages;
    (pages * 8_192) as f64 / (count * (8 + value_len as u64)) as f64
}

#[test]
fn pages_take_little_more_than_their_data() {
    let large = 65_536 + 4_500;
    let ascending = [(100, 1.1), (2_000, 1.15), (4_000, 1.2), (8_192, 1.02), (large, 1.1)];
    let random = [(100, 1.6), (2_000, 1.6), (4_000, 1.6), (8_192, 1.03), (large, 1.1)];
    let orders =
        [(Order::Ascending, ascending), (Order::Loaded, ascending), (Order::Random, random)];
    let mut over = Vec::new();
    for (order, (value_len, most)) in
        orders.into_iter().flat_map(|(order, most)| most.map(|most| (order, most)))
    {
        let ratio = space_over_data(order, value_len);
        if ratio > most {
            over.push((order, value_len, ratio));
        }
    }
    assert!(over.is_empty(), "{over:?}");
}

/// From 64 KiB on a tenth at most is wasted, with tails of any length.
#[test]
fn large_values_waste_a_tenth_at_most() {
    let mut prng = Prng::from_seed(1);
    let around = [65_536, 8 * DATA_MAX + 4_200, TAIL_PAGES_MAX * DATA_MAX, 16 * DATA_MAX];
    for value_len in around.into_iter().flat_map(|len| [len + 1, len + 2_000]) {
        for order in [Order::Ascending, Order::Loaded, Order::Random] {
            let value_len = value_len + prng.below(50) as usize;
            let ratio = space_over_data(order, value_len);
            assert!(ratio <= 1.1, "{order:?}, {value_len} bytes: {ratio:.3}");
        }
    }
}

/// The bug: a leaf that had one row of a quarter of a page or more was never merged.
#[test]
fn deletions_of_large_rows_leave_full_leaves() {
    for len in [2_100usize, 2_600, 3_900] {
        in_world(1, 0, || {
            let bench = Bench::new(here(), 40_000, 500);
            let tree = filled(&bench, 3_000, len);
            let mut prng = Prng::from_seed(9);
            for number in 0..3_000u64 {
                if prng.below(4) > 0 {
                    let mut txn = bench.begin();
                    assert!(done(tree.remove(&mut txn, &number.to_be_bytes(), None)));
                    txn.commit();
                    bench.purge(&tree);
                }
            }
            let stats = tree.check().expect("a sound tree");
            let fill = stats.leaf_bytes as f64 / (stats.leaves * 8192) as f64;
            assert!(fill > 0.6, "leaves of rows of {len} bytes are {fill:.2} full");
            bench.pool.shutdown();
        });
    }
}
