//! `Table::len`: exact in a transaction with its own changes and at each snapshot, after every cut
//! of the power, among threads, and for tables whose count is not known.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use terrace::{
    Checkpoint, Database, Durability, Error, ReadTransaction, TableDef, TableSpec, WriteTransaction,
};
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{Prng, Stopped, Virtual, VirtualConfig};

mod rig;

use rig::Rig;

#[path = "len/logged.rs"]
mod logged;

const NAMES: [&str; 3] = ["apples", "pears", "quinces"];
const NUMBERS: TableDef<u64, u64> = TableDef::new("numbers");
const KEYS: u64 = 60;

/// The keys of each table.
type Model = BTreeMap<&'static str, Vec<u64>>;

fn table(name: &'static str) -> TableDef<'static, u64, &'static [u8]> {
    TableDef::new(name)
}

fn put(keys: &mut Vec<u64>, key: u64) {
    if !keys.contains(&key) {
        keys.push(key);
    }
}

/// One operation of a transaction.
fn step(txn: &WriteTransaction, model: &mut Model, prng: &mut Prng) -> Result<(), Error> {
    let name = NAMES[prng.below(3) as usize];
    match prng.below(12) {
        0 => {
            let was_there = txn.delete_table(name)?;
            assert_eq!(was_there, model.remove(name).is_some());
        }
        1 => {
            let to = NAMES[prng.below(3) as usize];
            match txn.rename_table(name, to) {
                Ok(true) if name != to => {
                    let keys = model.remove(name).expect("it was there");
                    model.insert(to, keys);
                }
                Ok(_) | Err(Error::TableExists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        2 if !model.contains_key(name) => {
            let rows = prng.below(2 * KEYS);
            let mut loader = txn.bulk_load(table(name))?;
            (0..rows).try_for_each(|key| loader.push(key, b"loaded"))?;
            loader.finish()?;
            model.insert(name, (0..rows).collect());
        }
        3 => {
            let (mut rows, keys) = (txn.open_table(table(name))?, model.entry(name).or_default());
            let from = prng.below(KEYS);
            let before = keys.len();
            keys.retain(|key| !(from..from + 9).contains(key));
            assert_eq!(rows.remove_range(from..from + 9)?, (before - keys.len()) as u64);
        }
        _ => {
            let (mut rows, keys) = (txn.open_table(table(name))?, model.entry(name).or_default());
            for _ in 0..prng.below(9) {
                let key = prng.below(KEYS);
                let len = if prng.chance(9) { 5_000 } else { prng.below(90) };
                match prng.below(5) {
                    0 | 1 => {
                        rows.remove(key)?;
                        keys.retain(|other| *other != key);
                    }
                    2 => drop(rows.update(key, b"updated")?),
                    3 => {
                        rows.insert_new(key, b"new")?;
                        put(keys, key);
                    }
                    _ => {
                        rows.insert(key, &vec![7; len as usize])?;
                        put(keys, key);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Whether the transaction finds the model's counts.
fn is_right<E>(model: &Model, len: impl Fn(&'static str) -> Result<u64, E>) -> Result<bool, E> {
    let mut is_right = true;
    for (&name, keys) in model {
        is_right &= len(name)? == keys.len() as u64;
    }
    Ok(is_right)
}

fn len_in(txn: &WriteTransaction, name: &'static str) -> Result<u64, Error> {
    let rows = txn.open_table(table(name))?;
    let len = rows.len()?;
    // The table is locked now.
    assert_eq!(rows.len_unlocked()?, len);
    Ok(len)
}

fn len_seen(txn: &ReadTransaction, name: &'static str) -> Result<u64, Error> {
    txn.open_table(table(name))?.len()
}

/// A transaction with savepoints; what it leaves, if it commits. `None` in a result: a count was
/// wrong.
fn transact(db: &Database, now: &Model, prng: &mut Prng) -> Result<(bool, Option<Model>), Error> {
    let (txn, mut model, mut is_right_now) = (db.begin_write()?, now.clone(), true);
    let mut saved = None;
    for _ in 0..1 + prng.below(6) {
        match prng.below(8) {
            0 => saved = Some((txn.savepoint()?, model.clone())),
            1 => {
                if let Some((savepoint, then)) = &saved {
                    txn.rollback_to(savepoint)?;
                    model.clone_from(then);
                }
            }
            _ => step(&txn, &mut model, prng)?,
        }
        if prng.chance(3) {
            is_right_now &= is_right(&model, |name| len_in(&txn, name))?;
        }
    }
    if prng.chance(4) {
        txn.rollback()?;
        return Ok((is_right_now, None));
    }
    let all = [Durability::None, Durability::Durable];
    txn.commit(all[prng.below(2) as usize])?;
    Ok((is_right_now, Some(model)))
}

/// How many counts are wrong in a history with snapshots that stay open for long.
fn wrong_counts(seed: u64, mutations: Mutations) -> u64 {
    let config = VirtualConfig { seed, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 };
    let world = Virtual::new(config);
    // Snapshots keep the tables that were dropped since.
    let rig = Rig::with(&world.world(), 192 << 20, 4 << 20);
    let ran = world.run(|| {
        let db = open(&rig, mutations)?;
        let (mut prng, mut wrong, mut model) = (Prng::from_seed(seed), 0, Model::new());
        let mut snapshots: Vec<(ReadTransaction, Model)> = Vec::new();
        for number in 0..400 {
            let (is_right_then, left) = transact(&db, &model, &mut prng)?;
            wrong += u64::from(!is_right_then);
            model = left.unwrap_or(model);
            if number % 40 == 7 {
                db.checkpoint(Checkpoint::Indirect)?;
            }
            if prng.chance(20) && snapshots.len() < 4 {
                snapshots.push((db.begin_read()?, model.clone()));
            }
            for (snapshot, then) in &snapshots {
                wrong += u64::from(!is_right(then, |name| len_seen(snapshot, name))?);
            }
            if prng.chance(30) && !snapshots.is_empty() {
                snapshots.swap_remove(prng.below(snapshots.len() as u64) as usize);
            }
        }
        drop(snapshots);
        if mutations == Mutations::NONE {
            db.check()?;
        }
        db.close()?;
        let db = open(&rig, mutations)?;
        let stats = db.table_stats()?;
        let is_known =
            |(name, keys): (&&str, &Vec<u64>)| stats[*name].rows == Some(keys.len() as u64);
        wrong += u64::from(!model.iter().all(is_known));
        wrong += u64::from(!db.read(|txn| is_right(&model, |name| len_seen(txn, name)))?);
        db.close()?;
        Ok::<_, Error>(wrong)
    });
    ran.expect("nobody waits for ever").unwrap_or_else(|error| panic!("seed {seed}: {error}"))
}

#[test]
fn counts_agree_with_a_model_at_each_snapshot() {
    for seed in 0..6 {
        assert_eq!(wrong_counts(seed, Mutations::NONE), 0, "seed {seed}");
    }
}

#[test]
fn counts_that_are_summed_up_too_early_are_noticed() {
    let wrong: u64 = (0..3).map(|seed| wrong_counts(seed, Mutation::SumUpUnseenRows.into())).sum();
    assert!(wrong > 0);
}

fn open(rig: &Rig, mutations: Mutations) -> Result<Database, Error> {
    let builder = Database::builder().memory(1 << 20);
    rig.open(builder.tune(move |tier| tier.mutations = mutations))
}

fn world(seed: u64) -> Virtual {
    Virtual::new(VirtualConfig { seed, switch_one_in: 3, cores: 1, stack_bytes: 256 << 10 })
}

/// Two tasks that commit while a third one takes checkpoints.
fn history(rig: &Rig, seed: u64, mutations: Mutations) -> Result<(), Error> {
    let db = open(rig, mutations)?;
    let client = |task: u64, db: Database| {
        terrace_rt::spawn("client", move || {
            let mut prng = Prng::from_seed(seed * 7 + task);
            for _ in 0..20 {
                let name = NAMES[prng.below(3) as usize];
                let did: Result<(), Error> = db.write(|txn| {
                    let mut rows = txn.open_table(table(name))?;
                    for _ in 0..1 + prng.below(4) {
                        let key = prng.below(KEYS);
                        match prng.chance(3) {
                            true => drop(rows.remove(key)?),
                            false => rows.insert(key, b"row")?,
                        }
                    }
                    Ok(())
                });
                // The power may be cut meanwhile.
                let is_expected =
                    |error: &Error| error.is_transient() || matches!(error, Error::Closed);
                assert!(did.as_ref().err().is_none_or(is_expected), "{did:?}");
            }
        })
    };
    let clients: Vec<_> = (0..2).map(|task| client(task, db.clone())).collect();
    for _ in 0..6 {
        terrace_rt::yield_now();
        db.checkpoint(Checkpoint::Indirect)?;
    }
    clients.into_iter().for_each(terrace_rt::Task::join);
    db.check()?;
    db.close()
}

/// Cuts the history at event `at`, opens and cuts again, and checks the counts; `None` if the
/// history ended before.
fn cut_at(seed: u64, at: u64, mutations: Mutations) -> Option<Result<(), Error>> {
    let first = world(seed);
    let mut rig = Rig::blank(&first.world());
    first.cut_at_event(at);
    let mut prng = Prng::from_seed(at);
    match first.run(|| history(&rig, seed, mutations)) {
        Ok(ran) => {
            if let (Err(error), true) = (&ran, mutations == Mutations::NONE) {
                panic!("seed {seed}: {error}");
            }
            return None;
        }
        Err(Stopped::PowerCut { .. }) => rig.cut(&mut prng),
        Err(stopped) => panic!("{stopped:?} at event {at} of seed {seed}"),
    }
    if at.is_multiple_of(3) {
        let again = world(at);
        rig = rig.in_world(&again.world());
        again.cut_at_event(1 + prng.below(80));
        match again.run(|| open(&rig, mutations).map(drop)) {
            Ok(opened) => opened.expect("recovers"),
            Err(_) => rig.cut(&mut prng),
        }
    }
    let last = world(at);
    let rig = rig.in_world(&last.world());
    let checked = last.run(|| {
        let db = open(&rig, mutations)?;
        // All are known: nothing is counted after a crash.
        let stats = db.table_stats()?;
        assert!(stats.values().all(|table| table.rows.is_some()), "event {at}: {stats:?}");
        // It compares each count that is known with the rows.
        db.check()?;
        let counted = db.read(|txn| {
            txn.table_names()?.iter().try_for_each(|name| {
                let rows = txn.open_raw(name)?;
                assert_eq!(rows.len()?, rows.range(..)?.count() as u64, "event {at}");
                Ok(())
            })
        });
        counted.and_then(|()| db.close())
    });
    Some(checked.expect("nobody waits for ever"))
}

#[test]
fn counts_survive_every_cut() {
    // As checkpoints list rows, and in each of them: so short a history needs one list.
    for (seed, mutations) in [
        (1, Mutations::NONE),
        (2, Mutations::NONE),
        (3, Mutation::CountsTakeSlack.into()),
        (4, Mutation::CountsTakeSlack.into()),
    ] {
        let mut at = 40;
        while let Some(checked) = cut_at(seed, at, mutations) {
            checked.unwrap_or_else(|error| panic!("event {at} of seed {seed}: {error}"));
            at += 1 + at / 40 + seed % 3;
        }
        assert!(at > 200, "the history has only {at} events");
    }
}

#[test]
fn commits_that_are_counted_twice_are_noticed() {
    let finds = |seed| {
        let cuts = (40..).step_by(5);
        let mutations = [Mutation::CountTwice, Mutation::CountsTakeSlack];
        let mutations: Mutations = mutations.into_iter().collect();
        let mut checked = cuts.map_while(|at| cut_at(seed, at, mutations));
        checked.any(|checked| checked.is_err())
    };
    assert!((1..12).any(finds), "no cut finds a wrong count");
}

/// The lanes were read one after the other: a row that one thread put in, and another one took away
/// meanwhile, counted as minus one.
#[test]
fn threads_never_see_fewer_rows_than_none() {
    let db = Database::in_memory().expect("memory");
    db.write(|txn| txn.open_table(NUMBERS).map(drop)).expect("room");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for removes in [false, true, false, true] {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || {
                let mut prng = Prng::from_seed(u64::from(removes));
                while !stop.load(Ordering::Relaxed) {
                    let key = prng.below(2);
                    let did = db.write_with(Durability::None, |txn| {
                        let mut numbers = txn.open_table(NUMBERS)?;
                        match removes {
                            true => numbers.remove(key).map(drop),
                            false => numbers.insert(key, 1),
                        }
                    });
                    did.expect("conflicts are run again");
                }
            });
        }
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(1) {
            let rows = db.table_stats().expect("memory")["numbers"].rows;
            assert!(rows.is_some_and(|rows| rows <= 2), "{rows:?}");
            let rows = db.write(|txn| txn.open_table(NUMBERS)?.len_unlocked()).expect("memory");
            assert!(rows <= 2, "{rows}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// A database of a version that counts nothing.
#[test]
fn tables_that_are_not_known_are_counted_once() {
    let world = world(1);
    let rig = Rig::blank(&world.world());
    let ran = world.run(|| {
        let fill = |db: &Database, rows: std::ops::Range<u64>| {
            db.write(|txn| {
                let mut numbers = txn.open_table(NUMBERS)?;
                rows.clone().try_for_each(|row| numbers.insert(row, row))
            })
        };
        let db = open(&rig, Mutation::LogNoCounts.into())?;
        fill(&db, 0..700)?;
        db.close()?;
        // Counted by the snapshot of an older moment, while others commit.
        let db = open(&rig, Mutations::NONE)?;
        let before = db.begin_read()?;
        fill(&db, 700..900)?;
        let after = db.begin_read()?;
        let (table, pages) = (before.open_table(NUMBERS)?, || {
            let pool = db.stats().pool;
            pool.hits + pool.misses
        });
        assert_eq!(db.table_stats()?["numbers"].rows, None);
        // The gauges read pages of maps themselves.
        let first = pages();
        let (unread, own) = (pages(), pages() - first);
        let own = own / 2;
        assert_eq!(table.len()?, 700);
        // Once it is known no page is read for it.
        let read = pages();
        assert!(read > unread + 2 * own, "{read} after {unread}");
        assert_eq!(table.len()?, 700);
        assert_eq!(pages(), read + own);
        drop(table);
        assert_eq!(after.open_table(NUMBERS)?.len()?, 900);
        drop((before, after));
        db.close()?;
        // Known from then on, also if the counting was interrupted by nothing but a closing.
        let db = open(&rig, Mutations::NONE)?;
        assert_eq!(db.table_stats()?["numbers"].rows, Some(900));
        db.check()?;
        assert_eq!(db.read(|txn| txn.open_table(NUMBERS)?.len())?, 900);
        db.close()?;
        // Counted in a transaction that has changed rows itself.
        let db = open(&rig, Mutation::LogNoCounts.into())?;
        db.close()?;
        let db = open(&rig, Mutations::NONE)?;
        let txn = db.begin_write()?;
        let mut numbers = txn.open_table(NUMBERS)?;
        numbers.remove(5)?;
        assert_eq!(numbers.len()?, 899);
        numbers.insert(5, 5)?;
        numbers.insert(1_000, 5)?;
        assert_eq!(numbers.len()?, 901);
        drop(numbers);
        txn.rollback()?;
        assert_eq!(db.read(|txn| txn.open_table(NUMBERS)?.len())?, 900);
        db.check()?;
        db.close()
    });
    ran.expect("nobody waits for ever").expect("no error");
}

/// Threads that add and remove two rows at a time: no snapshot has an odd number.
#[test]
fn threads_never_see_half_of_a_commit() {
    const SPAN: Duration = Duration::from_secs(2);
    let db = Database::in_memory().expect("memory");
    db.write(|txn| txn.open_table(NUMBERS).map(drop)).expect("room");
    let (stop, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let writes = |prng: &mut Prng| {
        let key = 2 * prng.below(500);
        let did = db.write_with(Durability::None, |txn| {
            let mut numbers = txn.open_table(NUMBERS)?;
            match numbers.contains(key)? {
                true => drop((numbers.remove(key)?, numbers.remove(key + 1)?)),
                false => {
                    numbers.insert(key, 1)?;
                    numbers.insert(key + 1, 1)?;
                }
            }
            Ok::<_, Error>(())
        });
        did.expect("conflicts are run again");
    };
    let reads = |prng: &mut Prng| {
        if prng.chance(20) {
            db.checkpoint(Checkpoint::Indirect).expect("memory");
        }
        if prng.chance(20) {
            let locked = db.write_with(Durability::None, |txn| {
                let numbers = txn.open_table(NUMBERS)?;
                assert_eq!(numbers.len()?, numbers.range(..)?.count() as u64);
                Ok::<_, Error>(())
            });
            locked.expect("conflicts are run again");
        }
        let txn = db.begin_read().expect("open");
        let numbers = txn.open_table(NUMBERS).expect("there");
        let rows = numbers.len().expect("memory");
        assert_eq!(rows % 2, 0);
        assert_eq!(rows, numbers.range(..).expect("memory").count() as u64);
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let (stop, writes, reads) = (&stop, &writes, &reads);
                scope.spawn(move || {
                    let mut prng = Prng::from_seed(client);
                    while !stop.load(Ordering::Relaxed) {
                        if client == 0 { reads(&mut prng) } else { writes(&mut prng) }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let began = Instant::now();
            while !ended.load(Ordering::Relaxed) {
                if began.elapsed() > Duration::from_secs(90) {
                    eprintln!("threads stand still:\n{}", db.debug_waits());
                    std::process::abort();
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        thread::sleep(SPAN);
        stop.store(true, Ordering::Relaxed);
        let joined: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        ended.store(true, Ordering::Relaxed);
        assert!(joined.iter().all(Result::is_ok));
    });
    db.check().expect("sound");
}

#[test]
fn a_raw_table_is_counted_too() -> Result<(), Error> {
    let db = Database::in_memory()?;
    db.write(|txn| {
        let mut raw = txn.open_raw_with("raw", &TableSpec::bytes())?;
        assert_eq!(raw.len()?, 0);
        raw.insert(b"a", b"1")?;
        assert!(!raw.insert_new(b"a", b"2")?);
        assert_eq!(raw.len()?, 1);
        assert!(raw.pop_first(..)?.is_some());
        assert_eq!((raw.len()?, raw.is_empty()?), (0, true));
        Ok(())
    })
}

#[test]
fn what_tables_take_is_told() -> Result<(), Error> {
    let db = Database::in_memory()?;
    db.write(|txn| {
        let mut rows = txn.open_table(table("apples"))?;
        (0..3_000).try_for_each(|key| rows.insert(key, &[7; 100]))?;
        txn.open_table(table("pears"))?.insert(1, &[8; 200_000])
    })?;
    let stats = db.table_stats()?;
    assert_eq!(stats.keys().collect::<Vec<_>>(), ["apples", "pears"]);
    let (apples, pears) = (stats["apples"], stats["pears"]);
    assert_eq!((apples.rows, apples.depth), (Some(3_000), 2));
    assert_eq!((pears.rows, pears.depth), (Some(1), 1));
    assert!(apples.pages > 3_000 * 100 / 8_192 && pears.pages > 200_000 / 8_192);
    let bytes: BTreeMap<_, _> =
        stats.into_iter().map(|(name, stats)| (name, stats.bytes)).collect();
    assert_eq!(bytes, db.table_bytes()?);
    // Rows that are not committed are not among them.
    let txn = db.begin_write()?;
    txn.open_table(table("apples"))?.remove_range(..100)?;
    assert_eq!(db.table_stats()?["apples"].rows, Some(3_000));
    txn.commit(Durability::None)?;
    assert_eq!(db.table_stats()?["apples"].rows, Some(2_900));
    Ok(())
}

#[test]
fn the_oldest_snapshot_and_the_holder_of_the_log_are_told() -> Result<(), Error> {
    let db = Database::in_memory()?;
    let insert = |key| db.write(|txn| txn.open_table(NUMBERS)?.insert(key, 1));
    insert(1)?;
    assert_eq!((db.stats().transactions.oldest_snapshot_at, db.stats().log.holder), (None, None));
    let first = db.begin_read()?;
    let at = db.stats().transactions.oldest_snapshot_at;
    insert(2)?;
    let second = db.begin_read()?;
    assert!(at.is_some() && db.stats().transactions.oldest_snapshot_at == at);
    drop(first);
    assert!(db.stats().transactions.oldest_snapshot_at > at);
    drop(second);
    assert_eq!(db.stats().transactions.oldest_snapshot_at, None);
    let txn = db.begin_write()?;
    txn.open_table(NUMBERS)?.insert(3, 1)?;
    insert(0)?;
    let log = db.stats().log;
    assert_eq!(log.holder, Some(txn.id()));
    assert!(log.held_bytes > 0 && log.held_bytes <= log.used_bytes);
    txn.commit(Durability::None)?;
    assert_eq!(db.stats().log.holder, None);
    Ok(())
}
