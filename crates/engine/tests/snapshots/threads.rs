//! Snapshots beside threads of the operating system, on files, with so little memory that versions
//! are spilled: held against copies of what was committed when each was opened. A watchdog fails
//! a test that stands still.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use terrace::{Database, Durability, Error, ReadTransaction, Table, TableDef};
use terrace_rt::Prng;

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const QUEUE: TableDef<u64, &[u8]> = TableDef::new("queue");
const WRITERS: u64 = 3;
const READERS: u64 = 3;
const KEYS: u64 = 2_000;
const QUEUED: u64 = 100;
const STANDSTILL: Duration = Duration::from_secs(60);
const VERSION_LIMIT: u64 = 8 << 20;

type Rows = BTreeMap<u64, Vec<u8>>;

/// What is committed. A transaction commits, and a snapshot is opened, with it locked.
#[derive(Clone, Default)]
struct Model {
    rows: Rows,
    queue: Rows,
}

#[derive(Default)]
struct Shared {
    model: Mutex<Model>,
    is_over: AtomicBool,
    progress: AtomicU64,
    agreed: AtomicU64,
    ended: AtomicU64,
    disk_bytes_max: AtomicU64,
}

impl Shared {
    fn goes_on(&self) -> bool {
        self.progress.fetch_add(1, Ordering::Relaxed);
        !self.is_over.load(Ordering::Relaxed)
    }
}

fn value(prng: &mut Prng) -> Vec<u8> {
    let len = match prng.below(200) {
        0 => 5_000 + prng.below(15_000),
        1..20 => 1_000 + prng.below(2_000),
        _ => prng.below(250),
    };
    vec![prng.below(256) as u8; len as usize]
}

/// Transactions on the rows of writer `number`.
fn write(db: &Database, shared: &Shared, number: u64, prng: &mut Prng) -> Result<(), Error> {
    while shared.goes_on() {
        let txn = db.begin_write()?;
        let mut changes = Vec::new();
        {
            let mut rows = txn.open_table(ROWS)?;
            for _ in 0..1 + prng.below(4) {
                let row = prng.below(KEYS / WRITERS) * WRITERS + number;
                let new = (!prng.chance(5)).then(|| value(prng));
                match &new {
                    Some(value) => rows.insert(row, value).map(drop)?,
                    None => rows.remove(row).map(drop)?,
                }
                changes.push((row, new));
            }
        }
        if prng.chance(10) {
            txn.rollback()?;
            continue;
        }
        let mut model = shared.model.lock().expect("no panic");
        txn.commit(Durability::None)?;
        for (row, new) in changes {
            match new {
                Some(value) => drop(model.rows.insert(row, value)),
                None => drop(model.rows.remove(&row)),
            }
        }
    }
    Ok(())
}

/// Puts rows behind all others, changes some, and removes the oldest.
fn queue(db: &Database, shared: &Shared, prng: &mut Prng) -> Result<(), Error> {
    let mut tail = QUEUED;
    while shared.goes_on() {
        let (new, changed) = (value(prng), tail - 1 - prng.below(QUEUED / 2));
        let txn = db.begin_write()?;
        {
            let mut queue = txn.open_table(QUEUE)?;
            queue.insert(tail, &new)?;
            queue.remove(tail - QUEUED)?;
            queue.insert(changed, &new[..new.len() / 2])?;
        }
        let mut model = shared.model.lock().expect("no panic");
        txn.commit(Durability::None)?;
        model.queue.remove(&(tail - QUEUED));
        model.queue.insert(changed, new[..new.len() / 2].to_vec());
        model.queue.insert(tail, new);
        tail += 1;
    }
    Ok(())
}

type Seen<'t> = Table<'t, u64, &'static [u8], ReadTransaction>;

/// A range in one direction or the other, and some rows by themselves, are as in the model.
fn agrees(seen: &Seen<'_>, model: &Rows, range: Range<u64>, prng: &mut Prng) -> Result<(), Error> {
    let own = |entry: Result<terrace::Entry<u64, &'static [u8]>, Error>| {
        entry.map(|entry| (entry.key(), entry.value().to_vec()))
    };
    let entries = seen.range(range.clone())?;
    let found: Vec<(u64, Vec<u8>)> = if prng.chance(2) {
        entries.map(own).collect::<Result<_, _>>()?
    } else {
        let mut found = entries.rev().map(own).collect::<Result<Vec<_>, _>>()?;
        found.reverse();
        found
    };
    let there = model.range(range.clone()).map(|(row, value)| (*row, value.clone()));
    let is_same = there.eq(found.iter().cloned());
    assert!(is_same, "{range:?}: {} rows", found.len());
    for _ in 0..8 {
        let row = range.start + prng.below(range.end - range.start + 20);
        let found = seen.get(row)?.map(|value| value.value().to_vec());
        assert_eq!(found.as_ref(), model.get(&row), "row {row}");
    }
    Ok(())
}

/// Opens snapshots, for up to `most`, and looks at them again and again.
fn read(db: &Database, shared: &Shared, most: Duration, prng: &mut Prng) -> Result<(), Error> {
    while shared.goes_on() {
        let (snapshot, model) = {
            let model = shared.model.lock().expect("no panic");
            (db.begin_read()?, model.clone())
        };
        let until = Instant::now() + most.mul_f64(prng.below(1_000) as f64 / 1_000.0);
        while shared.goes_on() {
            let rows = snapshot.open_table(ROWS).and_then(|rows| {
                let first = prng.below(KEYS);
                let count = if prng.chance(8) { KEYS } else { 1 + prng.below(100) };
                agrees(&rows, &model.rows, first..first + count, prng)
            });
            let queue = rows.and_then(|()| {
                let first = model.queue.first_key_value().map_or(0, |(first, _)| *first);
                let first = first.saturating_sub(prng.below(20));
                agrees(&snapshot.open_table(QUEUE)?, &model.queue, first..first + 400, prng)
            });
            let stats = db.stats().transactions;
            assert!(stats.version_disk_bytes <= VERSION_LIMIT, "{stats:?}");
            shared.disk_bytes_max.fetch_max(stats.version_disk_bytes, Ordering::Relaxed);
            match queue {
                Ok(()) => shared.agreed.fetch_add(1, Ordering::Relaxed),
                Err(Error::SnapshotTooOld) => {
                    shared.ended.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                Err(error) => return Err(error),
            };
            if Instant::now() >= until {
                break;
            }
        }
    }
    Ok(())
}

/// Waits for the threads until they have run for `span`, and after that, as long as they go on.
fn join_watched(shared: &Shared, threads: Vec<JoinHandle<()>>, span: Duration) {
    let begun = Instant::now();
    let (mut last, mut since) = (0, Instant::now());
    while threads.iter().any(|thread| !thread.is_finished()) {
        thread::sleep(Duration::from_millis(20));
        let is_one_gone = threads.iter().any(|thread| thread.is_finished());
        if begun.elapsed() > span || is_one_gone {
            shared.is_over.store(true, Ordering::Relaxed);
        }
        let now = shared.progress.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        // Its threads are left behind: they would not end.
        assert!(since.elapsed() < STANDSTILL, "it stands still");
    }
    threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
}

/// For how long the threads run.
fn span() -> Duration {
    let asked = std::env::var("TERRACE_SNAPSHOT_SECONDS").ok();
    Duration::from_secs(asked.and_then(|seconds| seconds.parse().ok()).unwrap_or(4))
}

#[test]
fn snapshots_beside_threads_agree_with_a_model_while_versions_are_spilled() {
    let folder = tempfile::tempdir().expect("a folder");
    let builder = Database::builder().memory(2 << 20).home_size(64 << 20).log_size(64 << 20);
    let builder = builder.version_memory(512 << 10).version_limit(VERSION_LIMIT);
    let db = builder.create(folder.path().join("db")).expect("a new path");
    let shared = Arc::new(Shared::default());
    {
        let mut model = shared.model.lock().expect("new");
        let filled = db.write(|txn| {
            let mut queue = txn.open_table(QUEUE)?;
            (0..QUEUED).try_for_each(|row| queue.insert(row, &[1; 50]).map(drop))?;
            let mut rows = txn.open_table(ROWS)?;
            (0..KEYS).try_for_each(|row| rows.insert(row, &[2; 90]).map(drop))
        });
        filled.expect("room");
        model.queue.extend((0..QUEUED).map(|row| (row, vec![1; 50])));
        model.rows.extend((0..KEYS).map(|row| (row, vec![2; 90])));
    }
    let start = |number: u64, run: fn(&Database, &Shared, u64, &mut Prng) -> Result<(), Error>| {
        let (db, shared, mut prng) = (db.clone(), Arc::clone(&shared), Prng::from_seed(number));
        thread::spawn(move || run(&db, &shared, number, &mut prng).expect("nothing fails"))
    };
    let mut threads: Vec<_> = (0..WRITERS).map(|number| start(number, write)).collect();
    threads.push(start(WRITERS, |db, shared, _, prng| queue(db, shared, prng)));
    for number in 0..READERS {
        threads.push(start(WRITERS + 1 + number, |db, shared, number, prng| {
            // One of them keeps its snapshots for long.
            let most = [3_000, 400, 50][(number % READERS) as usize];
            read(db, shared, Duration::from_millis(most), prng)
        }));
    }
    join_watched(&shared, threads, span());
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (agreed, ended, disk) = (of(&shared.agreed), of(&shared.ended), of(&shared.disk_bytes_max));
    assert!(agreed > 20 && disk > 0, "{agreed} agreed, {ended} ended, {disk} bytes on disk");
    db.check().expect("sound");
    db.close().expect("closes");
}
