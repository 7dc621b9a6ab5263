//! Merges, cursors and multimaps, held against maps, among threads and with the power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use terrace::{Cursor, Database, Durability, Error, Multimap, MultimapDef, TableDef, Transaction};
use terrace_rt::{LeafMutex, Prng, Stopped, Virtual, VirtualConfig};

mod rig;

use rig::Rig;

const SUMS: TableDef<u64, u64> = TableDef::new("sums");
const TEXTS: TableDef<&str, &str> = TableDef::new("texts");
const TAGS: MultimapDef<u8, &str> = MultimapDef::new("tags");

/// The bug: `LogFull`, after which the transaction was doomed.
#[test]
fn a_value_that_is_too_long_is_told_and_the_transaction_goes_on() -> Result<(), Error> {
    const BLOBS: TableDef<u64, &[u8]> = TableDef::new("blobs");
    let db = Database::in_memory()?;
    let value = vec![0; (1 << 30) + 1];
    let txn = db.begin_write()?;
    let mut blobs = txn.open_table(BLOBS)?;
    blobs.insert(1, b"one")?;
    let is_told = |refused: Result<(), Error>| match refused {
        Err(Error::ValueTooLong { len, max, .. }) => len == max + 1,
        _ => false,
    };
    assert!(is_told(blobs.insert(2, &value)));
    assert!(is_told(blobs.insert_many([(1, &b"more"[..]), (3, &value)]).map(drop)));
    assert!(is_told(blobs.merge(1, &value, |_, operand, merged| merged.set(operand)).map(drop)));
    assert_eq!(blobs.range(..)?.count(), 1);
    txn.commit(Durability::None)
}

#[test]
fn merges_agree_with_a_map() -> Result<(), Error> {
    let db = Database::in_memory()?;
    let (mut prng, mut model) = (Prng::from_seed(4), BTreeMap::<String, String>::new());
    for _ in 0..200 {
        let txn = db.begin_write()?;
        let (mut texts, before) = (txn.open_table(TEXTS)?, model.clone());
        for _ in 0..prng.below(20) {
            let key = format!("{}", prng.below(30));
            let (choice, operand) = (prng.below(4), "x".repeat(prng.below(400) as usize));
            let mut seen = None;
            texts.merge(&key, &operand, |old, operand, merged| {
                seen = old.map(str::to_string);
                match choice {
                    0 => {}
                    1 => merged.remove(),
                    2 => {
                        merged.remove();
                        merged.set(operand);
                    }
                    _ => merged.set(&format!("{}{operand}", old.unwrap_or_default())),
                }
            })?;
            assert_eq!(seen, model.get(&key).cloned());
            match choice {
                0 => {}
                1 => drop(model.remove(&key)),
                2 => drop(model.insert(key, operand)),
                _ => model.entry(key).or_default().push_str(&operand),
            }
        }
        drop(texts);
        if prng.chance(4) {
            txn.rollback()?;
            model = before;
        } else {
            txn.commit(Durability::None)?;
        }
        let txn = db.begin_read()?;
        if let Ok(texts) = txn.open_table(TEXTS) {
            let rows =
                texts.range(..)?.map(|row| row.map(|row| (row.key().into(), row.value().into())));
            assert_eq!(rows.collect::<Result<BTreeMap<String, String>, Error>>()?, model);
            assert_eq!(texts.len()?, model.len() as u64);
        }
    }
    db.check()?;
    Ok(())
}

#[test]
fn an_operator_that_panics_changes_nothing() {
    panicking_operators().expect("no error");
}

fn panicking_operators() -> Result<(), Error> {
    let db = Database::in_memory()?;
    db.write(|txn| txn.open_table(SUMS)?.insert(1, 10))?;
    let txn = db.begin_write()?;
    let mut sums = txn.open_table(SUMS)?;
    sums.insert(2, 20)?;
    for key in [1, 2, 3] {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            sums.merge(key, 5, |_, _, merged| {
                merged.set(99);
                panic!("an operator of a test");
            })
        }));
        assert!(panicked.is_err());
    }
    let found = [1, 2, 3].map(|key| sums.get(key).map(|found| found.map(|found| found.value())));
    assert_eq!(found.into_iter().collect::<Result<Vec<_>, _>>()?, [Some(10), Some(20), None]);
    // Both go on. An operator may use its transaction, and its table.
    let other = txn.open_table(SUMS)?;
    sums.merge(1, 5, |old, more, merged| {
        let beside = other.get(2).expect("memory").expect("there").value();
        merged.set(old.expect("there") + more + beside);
    })?;
    drop((sums, other));
    txn.commit(Durability::None)?;
    let sums: Vec<_> = db.read(|txn| {
        txn.open_table(SUMS)?.range(..)?.map(|row| row.map(|row| row.value())).collect()
    })?;
    assert_eq!(sums, [35, 20]);
    // One that ends its transaction by its panic rolls it back.
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        db.write(|txn| {
            let mut sums = txn.open_table(SUMS)?;
            sums.insert(7, 7)?;
            sums.merge(7, 1, |_, _, _| panic!("an operator of a test"))
        })
    }));
    assert!(panicked.is_err());
    let began = Instant::now();
    // Another task rolls back.
    while db.write(|txn| txn.open_table(SUMS)?.contains(7))? {
        assert!(began.elapsed() < Duration::from_secs(60));
    }
    db.check()?;
    Ok(())
}

type Walk<'a, T> = Cursor<'a, u64, u64, T>;

/// Moves a cursor at random, and a place among `keys` with it: 0 is before the first of them.
fn walk<T: Transaction>(
    mut cursor: Walk<'_, T>,
    keys: &[u64],
    prng: &mut Prng,
) -> Result<(), Error> {
    let mut place = 0;
    let end = keys.len() + 1;
    for _ in 0..200 {
        let key = prng.below(120);
        let found = match prng.below(9) {
            0 => {
                place = 1 + keys.partition_point(|other| *other < key);
                cursor.seek(key)?
            }
            1 => {
                place = keys.partition_point(|other| *other <= key);
                cursor.seek_back(key)?
            }
            2 => {
                place = 1;
                cursor.first()?
            }
            3 => {
                place = keys.len();
                cursor.last()?
            }
            4..7 => {
                place = (place + 1).min(end);
                cursor.next()?
            }
            _ => {
                place = place.saturating_sub(1);
                cursor.prev()?
            }
        };
        let expected = place.checked_sub(1).and_then(|at| keys.get(at)).copied();
        assert_eq!(
            found.map(|entry| (entry.key(), entry.value())),
            expected.map(|key| (key, 2 * key))
        );
        assert_eq!(cursor.current().map(|entry| entry.key()), expected);
    }
    Ok(())
}

#[test]
fn cursors_agree_with_a_sorted_list() {
    walks().expect("no error");
}

fn walks() -> Result<(), Error> {
    let db = Database::in_memory()?;
    for seed in 0..60 {
        let mut prng = Prng::from_seed(seed);
        let keys: BTreeSet<u64> = (0..prng.below(70)).map(|_| prng.below(120)).collect();
        let keys: Vec<u64> = keys.into_iter().collect();
        let txn = db.begin_write()?;
        let mut sums = txn.open_table(SUMS)?;
        sums.remove_range(..)?;
        keys.iter().try_for_each(|key| sums.insert(*key, 2 * key))?;
        walk(sums.cursor(), &keys, &mut prng)?;
        drop(sums);
        txn.commit(Durability::None)?;
        let txn = db.begin_read()?;
        walk(txn.open_table(SUMS)?.cursor(), &keys, &mut prng)?;
    }
    Ok(())
}

/// A cursor of a write transaction reads anew where it is sent.
#[test]
fn a_cursor_that_seeks_sees_changes_of_its_transaction() -> Result<(), Error> {
    let db = Database::in_memory()?;
    db.write(|txn| {
        let (sums, mut other) = (txn.open_table(SUMS)?, txn.open_table(SUMS)?);
        (0..50).try_for_each(|key| other.insert(key, 2 * key))?;
        let mut cursor = sums.cursor();
        assert_eq!(cursor.seek(10)?.map(|entry| entry.key()), Some(10));
        other.remove_range(5..40)?;
        assert_eq!(cursor.current().map(|entry| entry.key()), Some(10));
        assert_eq!(cursor.prev()?.map(|entry| entry.key()), Some(4));
        assert_eq!(cursor.seek(10)?.map(|entry| entry.key()), Some(40));
        Ok(())
    })
}

type Sets = BTreeMap<u8, BTreeSet<String>>;

/// Keys with the least and the greatest byte among them.
fn key(prng: &mut Prng) -> u8 {
    [0, 1, 7, 254, 255][prng.below(5) as usize]
}

fn tag(prng: &mut Prng) -> String {
    ["", "\0", "a", "ab", "\u{10ffff}"][prng.below(5) as usize].to_string()
}

fn pairs<'s>(sets: impl Iterator<Item = (&'s u8, &'s BTreeSet<String>)>) -> Vec<(u8, String)> {
    sets.flat_map(|(key, tags)| tags.iter().map(|tag| (*key, tag.clone()))).collect()
}

fn compare<T: Transaction>(
    tags: &Multimap<'_, u8, &'static str, T>,
    model: &Sets,
    prng: &mut Prng,
) -> Result<(), Error> {
    let own = |entry: Result<terrace::Entry<(u8, &'static str), ()>, Error>| {
        entry.map(|entry| (entry.key().0, entry.key().1.to_string()))
    };
    let all: Result<Vec<_>, Error> = tags.range(..)?.map(own).collect();
    assert_eq!(all?, pairs(model.iter()));
    assert_eq!(tags.len()?, pairs(model.iter()).len() as u64);
    assert_eq!(tags.is_empty()?, model.is_empty());
    let (one, tag) = (key(prng), tag(prng));
    let of_one: Result<Vec<_>, Error> = tags.get(one)?.rev().map(own).collect();
    let expected = pairs(model.iter().filter(|(key, _)| **key == one));
    assert_eq!(of_one?, expected.into_iter().rev().collect::<Vec<_>>());
    let is_there = model.get(&one).is_some_and(|tags| tags.contains(&tag));
    assert_eq!(tags.contains(one, &tag)?, is_there);
    let mut bound = || match prng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(key(prng)),
        _ => Bound::Included(key(prng)),
    };
    let (lower, upper) = (bound(), bound());
    let above = |key: &u8| match lower {
        Bound::Unbounded => true,
        Bound::Included(bound) => *key >= bound,
        Bound::Excluded(bound) => *key > bound,
    };
    let below = |key: &u8| match upper {
        Bound::Unbounded => true,
        Bound::Included(bound) => *key <= bound,
        Bound::Excluded(bound) => *key < bound,
    };
    let within: Result<Vec<_>, Error> = tags.range((lower, upper))?.map(own).collect();
    let expected = pairs(model.iter().filter(|(key, _)| above(key) && below(key)));
    assert_eq!(within?, expected, "{lower:?} {upper:?}");
    Ok(())
}

#[test]
fn multimaps_agree_with_a_map_of_sets() {
    multimaps().expect("no error");
}

fn multimaps() -> Result<(), Error> {
    for seed in 0..10 {
        let db = Database::in_memory()?;
        let (mut prng, mut model) = (Prng::from_seed(seed), Sets::new());
        for _ in 0..100 {
            let txn = db.begin_write()?;
            let (mut tags, before) = (txn.open_multimap(TAGS)?, model.clone());
            for _ in 0..prng.below(12) {
                let (key, tag) = (key(&mut prng), tag(&mut prng));
                match prng.below(6) {
                    0 | 1 => {
                        let is_there = model.get_mut(&key).is_some_and(|tags| tags.remove(&tag));
                        assert_eq!(tags.remove(key, &tag)?, is_there);
                    }
                    2 if prng.chance(3) => {
                        let removed = model.remove(&key).unwrap_or_default();
                        assert_eq!(tags.remove_all(key)?, removed.len() as u64);
                    }
                    _ => {
                        let is_new = model.entry(key).or_default().insert(tag.clone());
                        assert_eq!(tags.insert(key, &tag)?, is_new);
                    }
                }
                model.retain(|_, tags| !tags.is_empty());
            }
            compare(&tags, &model, &mut prng)?;
            drop(tags);
            if prng.chance(5) {
                txn.rollback()?;
                model = before;
            } else {
                txn.commit(Durability::None)?;
            }
            let txn = db.begin_read()?;
            match txn.open_multimap(TAGS) {
                Ok(tags) => compare(&tags, &model, &mut prng)?,
                Err(Error::NoSuchTable { .. }) => assert!(model.is_empty()),
                Err(error) => return Err(error),
            }
        }
        db.check()?;
    }
    Ok(())
}

fn open(rig: &Rig) -> Result<Database, Error> {
    rig.open(Database::builder().memory(512 << 10))
}

fn world(seed: u64) -> Virtual {
    Virtual::new(VirtualConfig { seed, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 })
}

/// The sum of all merges, and the pairs, that a database has.
fn found(db: &Database) -> Result<(u64, u64), Error> {
    db.read(|txn| {
        let none = |error: Error| match error {
            Error::NoSuchTable { .. } => Ok((0, 0)),
            error => Err(error),
        };
        let tables = txn.open_table(SUMS).and_then(|sums| Ok((sums, txn.open_multimap(TAGS)?)));
        let (sums, tags) = match tables {
            Ok(tables) => tables,
            Err(error) => return none(error),
        };
        let sum = sums.range(..)?.try_fold(0, |sum, row| row.map(|row| sum + row.value()))?;
        Ok((sum, tags.len()?))
    })
}

/// Each transaction merges 1 into five sums, and adds one pair.
fn merge_and_tag(rig: &Rig, committed: &LeafMutex<u64>) -> Result<(), Error> {
    let db = open(rig)?;
    for number in 0..12_u64 {
        db.write(|txn| {
            let (mut sums, mut tags) = (txn.open_table(SUMS)?, txn.open_multimap(TAGS)?);
            for key in 0..5 {
                sums.merge(number % 3 + key, 1, |old, one, now| now.set(old.unwrap_or(0) + one))?;
            }
            tags.insert(number as u8 % 4, &number.to_string()).map(drop)
        })?;
        *committed.lock() = number + 1;
    }
    db.close()
}

#[test]
fn merges_and_multimaps_survive_every_cut() {
    for at in (1..).step_by(3) {
        let first = world(at);
        let rig = Rig::blank(&first.world());
        let committed = LeafMutex::new(0);
        first.cut_at_event(at);
        let mut prng = Prng::from_seed(at);
        match first.run(|| merge_and_tag(&rig, &committed)) {
            Ok(ran) => {
                ran.expect("no error");
                assert!(at > 100, "the history has only {at} events");
                return;
            }
            Err(Stopped::PowerCut { .. }) => {
                rig.cut(&mut prng);
            }
            Err(stopped) => panic!("{stopped:?}"),
        }
        let last = world(at);
        let rig = rig.in_world(&last.world());
        let opened = last.run(|| {
            let db = open(&rig).unwrap_or_else(|error| panic!("event {at}: {error}"));
            db.check().unwrap_or_else(|error| panic!("event {at}: {error}"));
            let (sum, pairs) = found(&db).expect("readable");
            let committed = *committed.lock();
            assert!([committed, committed + 1].contains(&pairs), "event {at}: {pairs}");
            assert_eq!(sum, 5 * pairs, "event {at}");
            db.close().expect("good devices");
        });
        opened.expect("nobody waits for ever");
    }
}

#[test]
fn merges_of_threads_lose_nothing() {
    const THREADS: u64 = 4;
    const MERGES: u64 = 400;
    let db = Database::in_memory().expect("memory");
    let ended = AtomicBool::new(false);
    let work = |thread: u64| {
        let mut prng = Prng::from_seed(thread);
        for number in 0..MERGES {
            let key = prng.below(6);
            let did = db.write_with(Durability::None, |txn| {
                let (mut sums, mut tags) = (txn.open_table(SUMS)?, txn.open_multimap(TAGS)?);
                sums.merge(key, 1, |old, one, now| now.set(old.unwrap_or(0) + one))?;
                tags.insert(key as u8, &format!("{thread} {number}")).map(drop)
            });
            did.expect("conflicts are run again");
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let work = &work;
                scope.spawn(move || work(thread))
            })
            .collect();
        scope.spawn(|| {
            let began = Instant::now();
            while !ended.load(Ordering::Relaxed) {
                if began.elapsed() > Duration::from_secs(120) {
                    eprintln!("threads stand still:\n{}", db.debug_waits());
                    std::process::abort();
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        let joined: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        ended.store(true, Ordering::Relaxed);
        assert!(joined.iter().all(Result::is_ok));
    });
    assert_eq!(found(&db).expect("memory"), (THREADS * MERGES, THREADS * MERGES));
    db.check().expect("sound");
}
