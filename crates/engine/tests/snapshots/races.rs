//! Snapshots that are opened at any moment of transactions of other tasks.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use terrace::{Database, Durability, Error, TableDef};
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{Prng, Task, spawn, yield_now};

use super::{SHAPE, Shape, in_world};

const PAIRS: TableDef<u64, &[u8]> = TableDef::new("pairs");
const WRITERS: u64 = 3;
const THREAD_LOOKS: u64 = 1_000;

/// The value of round `round`, of which other tasks may see nothing else.
fn value(round: u64) -> Vec<u8> {
    let mut value = vec![(round % 251) as u8; 120];
    value[..8].copy_from_slice(&round.to_be_bytes());
    value
}

fn fill(db: &Database) {
    let filled = db.write(|txn| {
        let mut pairs = txn.open_table(PAIRS)?;
        (0..2 * WRITERS).try_for_each(|row| pairs.insert(row, &value(0)).map(drop))
    });
    filled.expect("room");
}

/// Transactions that change both rows of a pair several times, and leave both the same, or nothing.
fn write(db: &Database, pair: u64, prng: &mut Prng) -> Result<(), Error> {
    for round in 1..6 {
        let txn = db.begin_write()?;
        let mut pairs = txn.open_table(PAIRS)?;
        for _ in 0..1 + prng.below(4) {
            let savepoint = txn.savepoint()?;
            for _ in 0..1 + prng.below(3) {
                let row = 2 * pair + prng.below(2);
                let mut changed = value(round - 1);
                changed[8 + prng.below(112) as usize] ^= 1 + prng.below(255) as u8;
                match prng.chance(6) {
                    true => pairs.remove(row).map(drop)?,
                    false => pairs.insert(row, &changed).map(drop)?,
                }
                yield_now();
            }
            if prng.chance(2) {
                txn.rollback_to(&savepoint)?;
            }
        }
        pairs.insert(2 * pair, &value(round))?;
        pairs.insert(2 * pair + 1, &value(round))?;
        if prng.chance(2) {
            txn.rollback()?;
            let done = db.write_with(Durability::None, |txn| {
                let mut pairs = txn.open_table(PAIRS)?;
                pairs.insert(2 * pair, &value(round))?;
                pairs.insert(2 * pair + 1, &value(round)).map(drop)
            });
            done?;
        } else {
            txn.commit(Durability::None)?;
        }
    }
    Ok(())
}

/// What is wrong with what a snapshot sees, if anything is.
fn look(db: &Database, prng: &mut Prng) -> Option<String> {
    let txn = db.begin_read().expect("open");
    for _ in 0..4 {
        let pair = prng.below(WRITERS);
        let read = |row| {
            yield_now();
            let found = txn.open_table(PAIRS)?.get(row)?;
            Ok(found.map(|value| value.value().to_vec()))
        };
        let found = match (read(2 * pair), read(2 * pair + 1)) {
            (Ok(one), Ok(other)) => [one, other],
            (Err(Error::SnapshotTooOld), _) | (_, Err(Error::SnapshotTooOld)) => return None,
            (one, other) => return Some(format!("{one:?} and {other:?}")),
        };
        let [Some(one), Some(other)] = found else { return Some(format!("{found:?}")) };
        let round = u64::from_be_bytes(one[..8].try_into().expect("8 bytes"));
        if one != other || one != value(round) {
            return Some(format!("{one:?} and {other:?}"));
        }
    }
    None
}

/// The first of `seeds` in which a snapshot sees what it should not, and that.
fn first_wrong(seeds: Range<u64>, mutations: Mutations) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| {
        let wrong = in_world(seed, 2 + seed as u32 % 5, || {
            let db = Shape { mutations, ..SHAPE }.create();
            fill(&db);
            let writes = |pair| {
                let (db, mut prng) = (db.clone(), Prng::from_seed(seed << 8 | pair));
                spawn("writes", move || write(&db, pair, &mut prng).expect("room"))
            };
            let writers: Vec<Task> = (0..WRITERS).map(writes).collect();
            let mut prng = Prng::from_seed(seed);
            (0..prng.below(60)).for_each(|_| yield_now());
            let wrong = (0..8).find_map(|_| look(&db, &mut prng));
            writers.into_iter().for_each(Task::join);
            wrong
        });
        wrong.map(|wrong| (seed, wrong))
    })
}

#[test]
fn a_snapshot_opened_amid_transactions_sees_none_of_their_changes() {
    assert_eq!(first_wrong(0..400, Mutations::NONE), None);
}

#[test]
fn each_rule_of_opening_a_snapshot_is_needed() {
    for mutation in [
        Mutation::SkipVersions,
        Mutation::SkipOwnIndexing,
        Mutation::ChangeUnderDifference,
        Mutation::LookBeforeSorting,
        Mutation::WaitAfterCut,
    ] {
        // What is read may be nothing that undo fits: that is caught, too.
        let caught = std::panic::catch_unwind(|| first_wrong(0..10_000, mutation.into()));
        assert!(!matches!(caught, Ok(None)), "{mutation:?} shows in no history");
    }
}

/// The same with threads of the operating system, and pauses in which versions are turned off.
#[test]
fn a_snapshot_opened_amid_transactions_of_threads_sees_none_of_their_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let builder = Database::builder().memory(1 << 20).home_size(16 << 20).log_size(32 << 20);
    let builder = builder.version_memory(64 << 10);
    let db = builder.create(folder.path().join("db")).expect("a new path");
    fill(&db);
    let stop = Arc::new(AtomicBool::new(false));
    let writes = |pair| {
        let (db, stop, mut prng) = (db.clone(), Arc::clone(&stop), Prng::from_seed(pair));
        thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                write(&db, pair, &mut prng).expect("room");
            }
        })
    };
    let writers: Vec<_> = (0..WRITERS).map(writes).collect();
    let mut prng = Prng::from_seed(WRITERS);
    let looks = (0..THREAD_LOOKS).find_map(|round| {
        if round % 50 == 0 {
            thread::sleep(Duration::from_millis(120));
        }
        look(&db, &mut prng)
    });
    stop.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
    assert_eq!(looks, None);
}

const ACCOUNTS: u64 = 150;
const BALANCE: u64 = 1_000;

fn account(balance: u64) -> Vec<u8> {
    [&balance.to_be_bytes()[..], &[0; 300]].concat()
}

fn balance(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().expect("8 bytes"))
}

fn transfer(db: &Database, prng: &mut Prng) -> Result<(), Error> {
    let from = prng.below(ACCOUNTS);
    let to = (from + 1 + prng.below(ACCOUNTS - 1)) % ACCOUNTS;
    db.write_with(Durability::None, |txn| {
        let mut accounts = txn.open_table(PAIRS)?;
        for (row, amount) in [(from, u64::MAX), (to, 1)] {
            let old = balance(accounts.get_for_update(row)?.expect("there").value());
            accounts.insert(row, &account(old.wrapping_add(amount)))?;
        }
        Ok(())
    })
}

/// Whether a snapshot sees what it should, if it was not ended: the sum, and each row the same
/// again, one by one and in scans both ways.
fn is_sound(db: &Database, prng: &mut Prng) -> Result<bool, Error> {
    let txn = db.begin_read()?;
    let accounts = txn.open_table(PAIRS)?;
    let read = |row| accounts.get(row).map(|found| found.map(|value| balance(value.value())));
    let first = (0..ACCOUNTS).map(read).collect::<Result<Vec<_>, _>>()?;
    for _ in 0..ACCOUNTS {
        let row = prng.below(ACCOUNTS);
        if read(row)? != first[row as usize] {
            return Ok(false);
        }
        yield_now();
    }
    let entry = |entry: Result<terrace::Entry<u64, &'static [u8]>, Error>| {
        yield_now();
        entry.map(|entry| Some(balance(entry.value())))
    };
    let up = accounts.range(..)?.map(entry).collect::<Result<Vec<_>, _>>()?;
    let mut down = accounts.range(..)?.rev().map(entry).collect::<Result<Vec<_>, _>>()?;
    down.reverse();
    if up != first || down != first {
        return Ok(false);
    }
    let sum = first.into_iter().flatten().fold(0, u64::wrapping_add);
    Ok(sum == ACCOUNTS * BALANCE)
}

/// Snapshots that were ended, and whole ones; or the first of `seeds` with an unsound one.
fn endings(seeds: Range<u64>, mutations: Mutations, spill_bytes: u64) -> Result<(u64, u64), u64> {
    let (mut ended, mut whole) = (0, 0);
    for seed in seeds {
        let found = in_world(seed, 2 + seed as u32 % 5, || {
            let version_bytes = (64 << 10) << (seed % 4);
            let db = Shape { mutations, version_bytes, spill_bytes, ..SHAPE }.create();
            let filled = db.write(|txn| {
                let mut accounts = txn.open_table(PAIRS)?;
                (0..ACCOUNTS).try_for_each(|row| accounts.insert(row, &account(BALANCE)).map(drop))
            });
            filled.expect("room");
            let transfers = |number| {
                let (db, mut prng) = (db.clone(), Prng::from_seed(seed << 8 | number));
                spawn("transfers", move || {
                    for _ in 0..300 {
                        transfer(&db, &mut prng).expect("room");
                        yield_now();
                    }
                })
            };
            let writers: Vec<Task> = (0..3).map(transfers).collect();
            let mut prng = Prng::from_seed(seed);
            let found: Vec<_> = (0..6).map(|_| is_sound(&db, &mut prng)).collect();
            writers.into_iter().for_each(Task::join);
            found
        });
        for is_sound in found {
            match is_sound {
                Ok(true) => whole += 1,
                Ok(false) => return Err(seed),
                Err(Error::SnapshotTooOld) => ended += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
    }
    Ok((ended, whole))
}

#[test]
fn a_snapshot_that_is_ended_shows_nothing_that_it_did_not_see() {
    let (ended, whole) = endings(0..60, Mutations::NONE, 0).expect("sound");
    assert!(ended > 20 && whole > 20, "{ended} were ended, {whole} whole");
    endings(0..300, Mutation::EndAfterCollecting.into(), 0).expect_err("what ends is told first");
}

#[test]
fn a_snapshot_sees_the_same_while_versions_are_spilled() {
    let (ended, whole) = endings(0..60, Mutations::NONE, 1 << 20).expect("sound");
    assert!(whole > 100, "{ended} were ended, {whole} whole");
}

/// Whether a fault shows in what snapshots see while versions are spilled.
fn shows_in_endings(mutation: Mutation) -> bool {
    endings(0..200, mutation.into(), 1 << 20).is_err()
}

#[test]
fn what_ends_is_marked_before_its_spilled_versions_go() {
    assert!(shows_in_endings(Mutation::EndAfterCollecting));
}

#[test]
fn what_is_frozen_is_seen_before_it_leaves_its_part() {
    assert!(shows_in_endings(Mutation::ShowFrozenLate));
}

#[test]
fn parts_are_looked_at_before_what_is_spilled() {
    assert!(shows_in_endings(Mutation::LookAtSpilledFirst));
}

const TAIL_ROWS: u64 = 150;

/// Rows that are put behind all others, each changed again at once, one transaction for each.
fn append(db: &Database, tail: &AtomicU64, prng: &mut Prng) -> Result<(), Error> {
    let put = |row, round: u64| {
        db.write_with(Durability::None, |txn| {
            let value = [round as u8; 1_500];
            txn.open_table(PAIRS)?.insert(row, &value).map(drop)
        })
    };
    let mut others = std::collections::VecDeque::new();
    for row in 0..TAIL_ROWS {
        tail.store(row, Ordering::Relaxed);
        for round in 0..2 + prng.below(4) {
            put(row, round)?;
            yield_now();
            // What it is from now on is seen by another snapshot.
            if prng.chance(2) {
                others.push_back(db.begin_read()?);
            }
        }
        others.drain(..others.len().saturating_sub(4));
        put(prng.below(row + 1), 9)?;
        yield_now();
    }
    Ok(())
}

/// Whether a snapshot sees the rows that were there when it was opened, and none behind them.
fn sees_its_tail(db: &Database, tail: &AtomicU64, prng: &mut Prng) -> Result<bool, Error> {
    let txn = db.begin_read()?;
    let Ok(rows) = txn.open_table(PAIRS) else { return Ok(true) };
    let keys = |range: std::ops::Range<u64>| -> Result<Vec<u64>, Error> {
        rows.range(range)?.map(|row| row.map(|row| row.key())).collect()
    };
    let count = keys(0..u64::MAX)?.len() as u64;
    for _ in 0..20 {
        let last = tail.load(Ordering::Relaxed);
        let (first, row) = (last.saturating_sub(4), last + prng.below(2));
        if rows.get(row)?.is_some() != (row < count) {
            return Ok(false);
        }
        if keys(first..u64::MAX)? != (first..count).collect::<Vec<_>>() {
            return Ok(false);
        }
        yield_now();
    }
    Ok(true)
}

/// Snapshots that were ended, and whole ones; or the first of `seeds` in which one sees rows that
/// were put behind all others later.
fn tails(seeds: Range<u64>, mutations: Mutations) -> Result<(u64, u64), u64> {
    let (mut ended, mut whole) = (0, 0);
    for seed in seeds {
        let found = in_world(seed, 2 + seed as u32 % 3, || {
            let spill_bytes = 4 << 20;
            let db = Shape { mutations, version_bytes: 256 << 10, spill_bytes, ..SHAPE }.create();
            let tail = Arc::new(AtomicU64::new(0));
            let (writes, its_tail, mut own) = (db.clone(), tail.clone(), Prng::from_seed(seed));
            let writer = spawn("appends", move || {
                append(&writes, &its_tail, &mut own).expect("room");
            });
            let mut prng = Prng::from_seed(seed);
            let mut found = Vec::new();
            while tail.load(Ordering::Relaxed) + 1 < TAIL_ROWS {
                found.push(sees_its_tail(&db, &tail, &mut prng));
                yield_now();
            }
            writer.join();
            found
        });
        for sees_its_tail in found {
            match sees_its_tail {
                Ok(true) => whole += 1,
                Ok(false) => return Err(seed),
                Err(Error::SnapshotTooOld) => ended += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
    }
    Ok((ended, whole))
}

/// The bug: the bound that a look at memory gave was used after runs had been read, though a row
/// had been put behind all others meanwhile, changed, and spilled.
#[test]
fn a_snapshot_sees_no_row_that_was_put_behind_all_others_later() {
    let (ended, whole) = tails(0..4, Mutations::NONE).expect("sound");
    assert!(whole > 50, "{ended} were ended, {whole} whole");
}
