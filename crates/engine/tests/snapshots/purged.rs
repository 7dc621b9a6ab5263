//! Versions on disk of rows that were removed, and whose ghosts were purged; and of rows that one
//! transaction has changed several times.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use terrace::{Database, Durability, Error, ReadTransaction};
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{Prng, spawn, yield_now};

use super::spilled::{SPILLS, TEXTS, pause, put, text};
use super::{Shape, in_world};

/// A snapshot sees rows `0..2 * rows` with an even number.
fn fill_even(db: &Database, rows: u64) {
    let filled = db.write(|txn| {
        let mut texts = txn.open_table(TEXTS)?;
        (0..rows).try_for_each(|row| texts.insert(2 * row, &text(2 * row, 0)).map(drop))
    });
    filled.expect("room");
}

/// Removes the even rows of a range, and puts and removes odd ones, so that leaves are full and
/// purge their ghosts.
fn churn(db: &Database, rows: Range<u64>, round: u64, prng: &mut Prng) -> Result<(), Error> {
    db.write_with(Durability::None, |txn| {
        let mut texts = txn.open_table(TEXTS)?;
        for row in rows.clone() {
            texts.remove(2 * row)?;
        }
        Ok::<(), Error>(())
    })?;
    db.write_with(Durability::None, |txn| {
        let mut texts = txn.open_table(TEXTS)?;
        for row in rows.clone() {
            let row = 2 * row + 1;
            match prng.chance(3) {
                true => texts.remove(row).map(drop)?,
                false => texts.insert(row, &text(row, round)).map(drop)?,
            }
        }
        Ok(())
    })
}

/// Whether a scan, in one direction or the other, has the even rows, and no others.
fn has_even(snapshot: &ReadTransaction, rows: u64, prng: &mut Prng) -> Result<bool, Error> {
    let texts = snapshot.open_table(TEXTS)?;
    let mut keys = Vec::new();
    let is_up = prng.chance(2);
    let mut entries = texts.range(..)?;
    loop {
        let entry = if is_up { entries.next() } else { entries.next_back() };
        let Some(entry) = entry else { break };
        let entry = entry?;
        if entry.value() != text(entry.key(), 0) {
            return Ok(false);
        }
        keys.push(entry.key());
    }
    if !is_up {
        keys.reverse();
    }
    Ok(keys.into_iter().eq((0..rows).map(|row| 2 * row)))
}

/// Looks that were right and snapshots that were ended; or the first of `seeds` with a scan that
/// missed a row.
fn scans(seeds: Range<u64>, mutations: Mutations) -> Result<(u64, u64), u64> {
    const ROWS: u64 = 300;
    let (mut right, mut ended) = (0, 0);
    for seed in seeds {
        let (own_right, own_ended, is_wrong) = in_world(seed, 2 + seed as u32 % 4, || {
            let db = Shape { mutations, ..SPILLS }.create();
            fill_even(&db, ROWS);
            let snapshot = db.begin_read().expect("open");
            let is_over = Arc::new(AtomicBool::new(false));
            let (writer, stop) = (db.clone(), Arc::clone(&is_over));
            let mut own = Prng::from_seed(seed);
            let writes = spawn("writes", move || {
                for round in 1..40 {
                    for first in (0..ROWS).step_by(10) {
                        churn(&writer, first..first + 10, round, &mut own).expect("room");
                        yield_now();
                    }
                    pause();
                }
                stop.store(true, Ordering::Relaxed);
            });
            let (mut prng, mut right, mut wrong) = (Prng::from_seed(seed), 0, false);
            let mut ended = 0;
            while !is_over.load(Ordering::Relaxed) && ended == 0 && !wrong {
                match has_even(&snapshot, ROWS, &mut prng) {
                    Ok(true) => right += 1,
                    Ok(false) => wrong = true,
                    Err(Error::SnapshotTooOld) => ended = 1,
                    Err(error) => panic!("seed {seed}: {error}"),
                }
                yield_now();
            }
            writes.join();
            (right, ended, wrong)
        });
        if is_wrong {
            return Err(seed);
        }
        (right, ended) = (right + own_right, ended + own_ended);
    }
    Ok((right, ended))
}

/// The bug: a row that was purged left the graves before it could be seen in what is frozen, and a
/// scan in between missed it.
#[test]
fn a_scan_sees_a_purged_row_while_it_is_taken_out_of_its_part() {
    let (right, ended) = scans(0..20, Mutations::NONE).expect("no row is missed");
    assert!(right > 100, "{right} right, {ended} ended");
    scans(0..200, Mutation::ForgetGravesEarly.into()).expect_err("a row is missed");
}

/// The same beside threads of the operating system, with parts so large that they are held for
/// long.
#[test]
fn a_scan_of_a_thread_sees_purged_rows_while_they_are_taken_out() {
    const ROWS: u64 = 6_000;
    const SPAN: Duration = Duration::from_secs(3);
    let folder = tempfile::tempdir().expect("a folder");
    let builder = Database::builder().memory(8 << 20).home_size(64 << 20).log_size(64 << 20);
    let builder = builder.version_memory(8 << 20).version_limit(64 << 20);
    let db = builder.create(folder.path().join("db")).expect("a new path");
    fill_even(&db, ROWS);
    let is_over = Arc::new(AtomicBool::new(false));
    let (writer, stop) = (db.clone(), Arc::clone(&is_over));
    let writes = thread::spawn(move || {
        let mut prng = Prng::from_seed(1);
        for round in 1.. {
            // All even rows are there again for the next snapshot.
            for first in (0..ROWS).step_by(50) {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                churn(&writer, first..first + 50, round, &mut prng).expect("room");
                let back = writer.write_with(Durability::None, |txn| {
                    let mut texts = txn.open_table(TEXTS)?;
                    (first..first + 50)
                        .try_for_each(|row| texts.insert(2 * row, &[round as u8; 300]).map(drop))
                });
                back.expect("room");
            }
        }
    });
    let mut prng = Prng::from_seed(2);
    let mut snapshot: Option<(ReadTransaction, Rows)> = None;
    let (mut right, mut disk, begun) = (0, 0, Instant::now());
    while begun.elapsed() < SPAN {
        if snapshot.is_none() || prng.chance(40) {
            let opened = db.begin_read().expect("open");
            snapshot = match rows_of(&opened) {
                Ok(first) => Some((opened, first)),
                Err(Error::SnapshotTooOld) => continue,
                Err(error) => panic!("{error}"),
            };
        }
        let (opened, first) = snapshot.as_ref().expect("just opened");
        match rows_of(opened) {
            Ok(rows) => {
                assert!(rows == *first, "{} rows, not {}", rows.len(), first.len());
                right += 1;
            }
            Err(Error::SnapshotTooOld) => snapshot = None,
            Err(error) => panic!("{error}"),
        }
        disk = disk.max(db.stats().transactions.version_disk_bytes);
    }
    is_over.store(true, Ordering::Relaxed);
    writes.join().expect("no panic");
    assert!(right > 2 && disk > 0, "{right} right, {disk} bytes on disk");
}

type Rows = Vec<(u64, Vec<u8>)>;

fn rows_of(snapshot: &ReadTransaction) -> Result<Rows, Error> {
    let texts = snapshot.open_table(TEXTS)?;
    let own = |entry: Result<terrace::Entry<u64, &'static [u8]>, Error>| {
        entry.map(|entry| (entry.key(), entry.value().to_vec()))
    };
    texts.range(..)?.map(own).collect()
}

/// The bug: of several entries of one row and one transaction, a run knew no order, and a snapshot
/// saw a value that was never committed.
#[test]
fn a_row_changed_twice_before_a_snapshot_and_again_after_it_is_seen_as_it_was() {
    const ROWS: u64 = 600;
    const CHANGED: u64 = 60;
    for seed in 0..12 {
        in_world(seed, 2 + seed as u32 % 4, || {
            let db = Shape { version_bytes: 128 << 10, ..SPILLS }.create();
            let mut prng = Prng::from_seed(seed);
            super::spilled::fill(&db, ROWS);
            let change = |txn: &terrace::WriteTransaction, round: u64| {
                let mut texts = txn.open_table(TEXTS)?;
                (0..CHANGED).try_for_each(|row| match (row + round) % 7 {
                    0 => texts.remove(row).map(drop),
                    _ => texts.insert(row, &text(row, round)).map(drop),
                })
            };
            // Its undo is looked through when the first snapshot is opened.
            let writer = db.begin_write().expect("open");
            let before = 1 + prng.below(4);
            (0..before).for_each(|round| change(&writer, 1 + round).expect("room"));
            let snapshot = db.begin_read().expect("open");
            let after = prng.below(3);
            (0..after).for_each(|round| change(&writer, 10 + round).expect("room"));
            writer.commit(Durability::None).expect("room");
            for row in 0..1_500 {
                put(&db, CHANGED + row % (ROWS - CHANGED), row);
                if row % 4 == 0 {
                    pause();
                }
            }
            assert!(db.stats().transactions.version_runs > 0);
            let is_same = super::spilled::is_as_it_was(&snapshot, ROWS);
            assert!(is_same.expect("it stays open"), "seed {seed}");
        });
    }
}
