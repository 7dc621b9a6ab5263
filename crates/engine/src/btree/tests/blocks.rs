//! Blocks: against a map, with several transactions open at once, and swept as after a crash.

use terrace_pool::{Mutation, Mutations};

use super::super::reference::{Form, Reference};
use super::super::runs::RAW_DATA;
use super::*;
use crate::space::blocks_of;
use crate::writer::Writer;

/// The page of the block that `key` has.
fn page_of(tree: &Tree, key: &[u8]) -> terrace_page::PageId {
    let leaf = tree.leaf_shared(Seek::Key(key)).expect("no error");
    let node = tree.node(leaf.id(), &leaf).expect("a leaf");
    let slot = node.search(key).expect("there");
    let reference = Reference::of(leaf.id(), node.record(slot).1).expect("a reference");
    assert_eq!(reference.form, Form::Block);
    reference.first
}

/// A transaction, the keys that are its own, and what it makes of them.
struct Open {
    txn: Txn,
    keys: std::ops::Range<u64>,
    rows: Model,
}

fn change(tree: &Tree, open: &mut Open, prng: &mut Prng) {
    let key = (open.keys.start + prng.below(8)).to_be_bytes().to_vec();
    if prng.chance(4) {
        let existed = done(tree.remove(&mut open.txn, &key, None));
        assert_eq!(existed, open.rows.remove(&key).is_some());
        return;
    }
    let len = [100, 4_030, 4_100, RAW_DATA, RAW_DATA + 1, 8_192, 8_192, 12_000, 20_000];
    let value = vec![prng.below(256) as u8; len[prng.below(len.len() as u64) as usize]];
    done(tree.put(&mut open.txn, &key, &value, Put::Upsert, None));
    open.rows.insert(key, value);
}

#[test]
fn blocks_of_several_transactions_agree_with_a_map() {
    for seed in 0..12 {
        in_world(seed, 0, || {
            let mut prng = Prng::from_seed(seed);
            let bench = Bench::new(here(), 20_000, 400);
            let tree = bench.tree(7);
            let mut model = Model::new();
            let begin = |range: u64, model: &Model| {
                let keys = range * 8..range * 8 + 8;
                let within = |key: &Vec<u8>| {
                    let number = u64::from_be_bytes(key[..].try_into().expect("eight bytes"));
                    keys.contains(&number)
                };
                let rows = model.iter().filter(|(key, _)| within(key));
                let rows = rows.map(|(key, value)| (key.clone(), value.clone())).collect();
                Open { txn: bench.begin(), keys, rows }
            };
            let mut open: BTreeMap<u64, Open> = BTreeMap::new();
            for _ in 0..400 {
                let at = prng.below(4);
                let mut now = open.remove(&at).unwrap_or_else(|| begin(at, &model));
                change(&tree, &mut now, &mut prng);
                if prng.chance(8) {
                    let Open { txn, keys, rows } = now;
                    if prng.chance(3) {
                        txn.roll_back(&tree);
                    } else {
                        txn.commit();
                        for number in keys {
                            model.remove(&number.to_be_bytes()[..]);
                        }
                        model.extend(rows);
                    }
                } else {
                    open.insert(at, now);
                }
                if prng.chance(20) {
                    tidy(&bench, &tree, Keep::Some);
                    tree.check().expect("whole");
                }
            }
            open.into_values().for_each(|open| open.txn.roll_back(&tree));
            let mut txn = bench.begin();
            compare(&tree, &mut txn, &model, &mut prng, 0);
            txn.commit();
            tidy(&bench, &tree, Keep::None);
            while tree.has_pending().expect("no error") {
                let mut txn = bench.begin();
                tree.free_chain(&mut txn).expect("no error");
                txn.commit();
            }
            assert_eq!(tree.check().expect("whole").pending_pages, 0);
            bench.replay();
        });
    }
}

/// Puts or removes a row.
fn put(tree: &Tree, txn: &mut Txn, model: &mut Model, prng: &mut Prng) {
    let key = prng.below(300).to_be_bytes().to_vec();
    if prng.chance(3) {
        done(tree.remove(txn, &key, None));
        model.remove(&key);
    } else {
        let value = vec![prng.below(256) as u8; 8_192];
        done(tree.put(txn, &key, &value, Put::Upsert, None));
        model.insert(key, value);
    }
}

/// Leaves pages over, and sweeps them in another opening while a transaction changes the rows.
fn sweep_beside_changes(seed: u64, mutations: Mutations) {
    let mut prng = Prng::from_seed(seed);
    let bench = Bench::mutated(here(), 20_000, 400, mutations);
    let tree = bench.tree(7);
    let mut model = Model::new();
    let mut txn = bench.begin();
    for _ in 0..600 {
        put(&tree, &mut txn, &mut model, &mut prng);
    }
    txn.commit();
    // Another opening knows nothing of what was given up.
    let (again, tree) = bench.reopened(&tree);
    assert!(tree.finds_left_over().expect("no error"));
    let mut txn = again.begin();
    let mark = txn.changes();
    let saved = model.clone();
    for _ in 0..60 {
        put(&tree, &mut txn, &mut model, &mut prng);
        let mut sweeper = again.begin();
        let _progress = tree.tidy_blocks(&mut sweeper, Keep::Some).expect("no error");
        sweeper.commit();
    }
    if prng.chance(2) {
        txn.roll_back_to(&tree, mark);
        model = saved;
    }
    txn.commit();
    let mut txn = again.begin();
    for _ in 0..200 {
        put(&tree, &mut txn, &mut model, &mut prng);
    }
    txn.commit();
    tidy(&again, &tree, Keep::None);
    assert_eq!(tree.check().expect("whole").pending_pages, 0);
    let mut txn = again.begin();
    compare(&tree, &mut txn, &model, &mut prng, 0);
    tree.end_blocks(&mut txn, |_| true).expect("no error");
    txn.commit();
    assert!(!tree.finds_left_over().expect("no error"), "it is tidy");
}

/// What a crash leaves over is found by the records that are there, while others change them.
#[test]
fn a_sweep_frees_what_no_record_refers_to() {
    for seed in 0..12 {
        in_world(seed, 3, || sweep_beside_changes(seed, Mutations::NONE));
    }
}

#[test]
fn a_sweep_must_leave_alone_what_was_touched() {
    let is_found = (0..12).any(|seed| {
        let sweep = || sweep_beside_changes(seed, Mutation::SweepTouched.into());
        std::panic::catch_unwind(|| in_world(seed, 3, sweep)).is_err()
    });
    assert!(is_found, "SweepTouched is not noticed");
}

/// A page that was given up is not used again while its transaction may be rolled back, and is
/// used again after that, without a change of the map.
#[test]
fn pages_are_used_again_once_nothing_wants_them_back() {
    in_world(1, 0, || {
        let bench = Bench::new(here(), 20_000, 400);
        let tree = filled(&bench, 4, 8_192);
        let before: Vec<_> = (0..4_u64).map(|key| page_of(&tree, &key.to_be_bytes())).collect();
        let mut txn = bench.begin();
        for round in 0..100_u64 {
            let key = (round % 4).to_be_bytes();
            done(tree.put(&mut txn, &key, &[9; 8_192], Put::Upsert, None));
            assert!(!before.contains(&page_of(&tree, &key)), "round {round}");
        }
        txn.roll_back(&tree);
        let after: Vec<_> = (0..4_u64).map(|key| page_of(&tree, &key.to_be_bytes())).collect();
        assert_eq!(before, after);
        let (_, used) = bench.space.used().expect("no error");
        for _ in 0..300_u64 {
            let mut txn = bench.begin();
            done(tree.put(&mut txn, &1_u64.to_be_bytes(), &[3; 8_192], Put::Upsert, None));
            txn.commit();
        }
        assert_eq!(bench.space.used().expect("no error").1, used);
        tree.check().expect("whole");
        bench.replay();
    });
}

/// A page that the map refuses to free has another owner, or none: it is used no more.
#[test]
fn a_page_that_the_map_refuses_is_left_alone() {
    in_world(4, 0, || {
        let bench = Bench::new(here(), 20_000, 400);
        let tree = filled(&bench, 4, 8_192);
        let mut txn = bench.begin();
        let page = tree.take_block(&mut txn).expect("there is one").page;
        let mut freeing = bench.space.freeing(blocks_of(tree.id()), &[page]).expect("in use");
        let nested = txn.begin_nested();
        freeing.free(&mut txn).expect("no error");
        txn.end_nested(nested).expect("no error");
        freeing.done();
        let refused = tree.tidy_blocks(&mut txn, Keep::None);
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
        assert_eq!(tree.tidy_blocks(&mut txn, Keep::None).expect("no error"), Progress::Done);
        let pages: Vec<_> = (0..40).map_while(|_| bench.space.take_block(tree.id())).collect();
        assert!(pages.is_empty(), "{pages:?} are to be used");
        tree.end_blocks(&mut txn, |_| true).expect("no error");
        txn.commit();
        assert!(tree.finds_left_over().expect("no error"), "the next opening sweeps");
        let (again, tree) = bench.reopened(&tree);
        assert!(tree.finds_left_over().expect("no error"));
        tidy(&again, &tree, Keep::None);
        assert_eq!(tree.check().expect("whole").pending_pages, 0);
    });
}

/// One that cannot be written stands in the way of no other.
#[test]
fn a_page_that_was_put_back_is_the_last_to_be_tried_again() {
    in_world(5, 0, || {
        let bench = Bench::new(here(), 20_000, 400);
        let tree = filled(&bench, 4, 8_192);
        let mut txn = bench.begin();
        let first = tree.take_block(&mut txn).expect("there is one").page;
        let second = tree.take_block(&mut txn).expect("there is one").page;
        assert_ne!(first, second);
        txn.commit();
    });
}

/// What changes nothing takes no page, and leaves no mark.
#[test]
fn only_what_is_written_takes_a_page() {
    in_world(6, 0, || {
        let bench = Bench::new(here(), 20_000, 400);
        let tree = filled(&bench, 4, 100);
        let (key, absent) = (1_u64.to_be_bytes(), 9_u64.to_be_bytes());
        let mut txn = bench.begin();
        assert!(done(tree.put(&mut txn, &key, &[1; 8_192], Put::InsertNew, None)));
        assert!(!done(tree.put(&mut txn, &absent, &[1; 8_192], Put::Update, None)));
        assert!(!bench.space.knows_blocks(tree.id()), "nothing was written");
        assert!(!tree.finds_left_over().expect("no error"));
        assert!(done(tree.put(&mut txn, &key, &[2; 8_192], Put::Update, None)));
        assert!(!done(tree.put(&mut txn, &absent, &[3; 8_192], Put::InsertNew, None)));
        done(tree.remove(&mut txn, &absent, None));
        txn.commit();
        let mut txn = bench.begin();
        assert!(!done(tree.put(&mut txn, &absent, &[4; 8_192], Put::Update, None)), "a ghost");
        assert!(!done(tree.put(&mut txn, &absent, &[5; 8_192], Put::InsertNew, None)));
        txn.commit();
        assert_ne!(page_of(&tree, &key), page_of(&tree, &absent));
        tree.check().expect("whole");
    });
}

/// A transaction that begins while the mark is being taken away relies on it, or sets it again.
#[test]
fn the_mark_stays_for_a_transaction_that_has_just_begun() {
    in_world(7, 0, || {
        let bench = Bench::new(here(), 20_000, 400);
        let tree = filled(&bench, 4, 8_192);
        tidy(&bench, &tree, Keep::None);
        let mut txn = bench.begin();
        let begins = |_: &Txn| {
            let mut other = bench.begin();
            tree.know_blocks(&mut other).expect("it is known");
            other.commit();
            true
        };
        tree.end_blocks(&mut txn, begins).expect("no error");
        assert!(tree.finds_left_over().expect("no error") && bench.space.knows_blocks(tree.id()));
        tree.end_blocks(&mut txn, |_| true).expect("no error");
        assert!(!tree.finds_left_over().expect("no error") && !bench.space.knows_blocks(tree.id()));
        txn.commit();
    });
}
