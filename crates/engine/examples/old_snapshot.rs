//! How many one-row commits a thread makes while a snapshot stays open that was opened before all
//! of them, and how fast that snapshot reads afterwards what has changed since.
//!
//! ```text
//! cargo run --release -p terrace --example old_snapshot -- \
//!     [FOLDER [SECONDS [MEMORY_MIB [ROUNDS EVERY]]]]
//! ```
//!
//! With ROUNDS, one snapshot stays open for all of them; a round begins EVERY seconds. Each writes
//! beside the snapshot for SECONDS, by either load, and for a fifth of that in a second database
//! without a snapshot: so the ratio of the two is of the same machine, whatever else that does. It
//! is that of the processor's time for a commit, which other processes lengthen least.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use terrace::{Database, Durability, Error, ReadTransaction, TableDef};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const QUEUE: TableDef<u64, &[u8]> = TableDef::new("queue");
const ROW_COUNT: u64 = 600_000;
const VALUE: [u8; 100] = [7; 100];
/// The most that versions take on disk.
const DISK_BYTES: u64 = 16 << 30;
/// Rows in the queue while it is in use.
const QUEUED: u64 = 1_000;
/// Commits between two looks at the clock.
const BETWEEN_LOOKS: u64 = 512;

/// What the writer does.
#[derive(Clone, Copy, Debug)]
enum Writes {
    /// Replaces a row at random.
    Updates,
    /// Appends a row, and removes the oldest one in the next transaction.
    Queue,
}

/// Whether the snapshot is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    /// Without a limit on disk, so that there is no file for versions.
    NoFile,
    Nothing,
    Snapshot,
}

/// Numbers at random (Marsaglia, "Xorshift RNGs", 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// The writer, and how far it got.
struct Writer<'d> {
    db: &'d Database,
    random: Random,
    written: u64,
    appended: u64,
}

impl Writer<'_> {
    fn write(&mut self, writes: Writes) -> Result<(), Error> {
        self.written += 1;
        // A row that stays as it was is not logged.
        let value = [self.written as u8; VALUE.len()];
        let row = self.random.below(ROW_COUNT);
        let (appended, is_push) = (self.appended, self.written.is_multiple_of(2));
        self.db.write_with(Durability::None, |txn| match writes {
            Writes::Updates => txn.open_table(ROWS)?.insert(row, &value[..]).map(drop),
            Writes::Queue if is_push => {
                txn.open_table(QUEUE)?.insert(appended, &value[..]).map(drop)
            }
            Writes::Queue => txn.open_table(QUEUE)?.remove(appended - QUEUED).map(drop),
        })?;
        self.appended += u64::from(matches!(writes, Writes::Queue) && is_push);
        Ok(())
    }

    /// Commits per second, and nanoseconds of the processor for each, over `span`.
    fn round(&mut self, writes: Writes, span: Duration) -> Result<(f64, f64), Error> {
        let (began, began_ns, mut commits) = (Instant::now(), processor_ns(), 0_u64);
        while began.elapsed() < span {
            for _ in 0..BETWEEN_LOOKS {
                self.write(writes)?;
            }
            commits += BETWEEN_LOOKS;
        }
        let commits = commits as f64;
        Ok((commits / began.elapsed().as_secs_f64(), (processor_ns() - began_ns) / commits))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let temporary = tempfile::tempdir()?;
    let folder = arguments.next().map_or_else(|| temporary.path().to_path_buf(), PathBuf::from);
    let seconds: f64 = arguments.next().map_or(Ok(0.2), |it| it.parse())?;
    let memory: u64 = arguments.next().map_or(Ok(64), |it| it.parse())?;
    let span = Duration::from_secs_f64(seconds);
    if let Some(rounds) = arguments.next() {
        let every = arguments.next().map_or(Ok(0.0), |it| it.parse())?;
        let every = Duration::from_secs_f64(every);
        return Ok(in_turns(&folder, (span, every), memory << 20, rounds.parse()?)?);
    }
    println!("writes   beside    commits/s  ns/commit  memory    disk  runs  the snapshot");
    for writes in [Writes::Updates, Writes::Queue] {
        for beside in [Beside::NoFile, Beside::Nothing, Beside::Snapshot] {
            let name = format!("{writes:?}-{beside:?}.terrace").to_lowercase();
            measure(&folder.join(name), (writes, beside), span, memory << 20)?;
        }
    }
    Ok(())
}

fn measure(
    path: &Path,
    (writes, beside): (Writes, Beside),
    span: Duration,
    version_bytes: u64,
) -> Result<(), Error> {
    let db = loaded(path, version_bytes, beside)?;
    let random = Random(88_172_645_463_325_252);
    let mut writer = Writer { db: &db, random, written: 0, appended: QUEUED };
    writer.round(writes, span / 10)?;
    let snapshot = if beside == Beside::Snapshot { Some(db.begin_read()?) } else { None };
    let (commits, ns) = writer.round(writes, span)?;
    let stats = db.stats().transactions;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let (writes, beside) = (format!("{writes:?}"), format!("{beside:?}"));
    print!("{:8} {:8} {commits:10.0} {ns:10.0} ", writes.to_lowercase(), beside.to_lowercase());
    print!("{:7.1} {:7.1} ", mib(stats.version_bytes), mib(stats.version_disk_bytes));
    print!("{:5}  ", stats.version_runs);
    match snapshot.map(|snapshot| reads(&snapshot)) {
        None => println!("-"),
        Some(Ok((gets, scanned))) => println!("{gets:.0} gets/s, {scanned:.0} rows scanned/s"),
        Some(Err(error)) => println!("{error}"),
    }
    db.close()
}

/// Rounds of both loads, beside a snapshot that is older each time, and without one.
fn in_turns(
    folder: &Path,
    (span, every): (Duration, Duration),
    version_bytes: u64,
    rounds: u32,
) -> Result<(), Error> {
    let old = loaded(&folder.join("old.terrace"), version_bytes, Beside::Snapshot)?;
    let none = loaded(&folder.join("none.terrace"), version_bytes, Beside::Nothing)?;
    let writer =
        |db| Writer { db, random: Random(88_172_645_463_325_252), written: 0, appended: QUEUED };
    let (mut beside, mut alone) = (writer(&old), writer(&none));
    for writer in [&mut beside, &mut alone] {
        writer.round(Writes::Updates, span / 5)?;
        writer.round(Writes::Queue, span / 5)?;
    }
    let (snapshot, opened) = (old.begin_read()?, Instant::now());
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("   age  updates/s      of none  queue/s        of none  memory    disk  runs");
    let mut ratios = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        std::thread::sleep((every * round).saturating_sub(opened.elapsed()));
        let mut rates = [0.0; 2];
        for (load, writes) in [Writes::Updates, Writes::Queue].into_iter().enumerate() {
            let (with, with_ns) = beside.round(writes, span)?;
            let (_, without_ns) = alone.round(writes, span / 5)?;
            rates[load] = with;
            ratios[load].push(without_ns / with_ns);
        }
        let last = |load: usize| ratios[load].last().copied().unwrap_or_default();
        let stats = old.stats().transactions;
        println!(
            "{:6.0} {:10.0} {:12.3} {:8.0} {:14.3} {:7.1} {:7.1} {:5}",
            opened.elapsed().as_secs_f64(),
            rates[0],
            last(0),
            rates[1],
            last(1),
            mib(stats.version_bytes),
            mib(stats.version_disk_bytes),
            stats.version_runs,
        );
    }
    for (writes, ratios) in [Writes::Updates, Writes::Queue].iter().zip(&mut ratios) {
        ratios.sort_by(f64::total_cmp);
        let (median, least) = (ratios[ratios.len() / 2], ratios[0]);
        println!(
            "{writes:?}: {median:.3} of none in the median of {rounds} rounds, {least:.3} at least"
        );
    }
    let (gets, scanned) = reads(&snapshot)?;
    println!("the snapshot: {gets:.0} gets/s, {scanned:.0} rows scanned/s, all as they were");
    drop(snapshot);
    old.close()?;
    none.close()
}

fn loaded(path: &Path, version_bytes: u64, beside: Beside) -> Result<Database, Error> {
    let builder = Database::builder().memory(1 << 30).version_memory(version_bytes);
    let disk = if beside == Beside::NoFile { 0 } else { DISK_BYTES };
    let db = builder.version_limit(disk).create(path)?;
    let txn = db.begin_write()?;
    for (table, count) in [(ROWS, ROW_COUNT), (QUEUE, QUEUED)] {
        let mut loader = txn.bulk_load(table)?;
        for key in 0..count {
            loader.push(key, &VALUE[..])?;
        }
        loader.finish()?;
    }
    txn.commit(Durability::Buffered)?;
    Ok(db)
}

/// Rows per second: one by one at random, and in their order. All are as they were at first.
fn reads(snapshot: &ReadTransaction) -> Result<(f64, f64), Error> {
    const GETS: u64 = 20_000;
    let rows = snapshot.open_table(ROWS)?;
    let (mut random, mut value) = (Random(0x2545_F491_4F6C_DD1D), Vec::new());
    let began = Instant::now();
    for _ in 0..GETS {
        rows.get_into(random.below(ROW_COUNT), &mut value)?;
    }
    let gets = GETS as f64 / began.elapsed().as_secs_f64();
    let (began, mut count) = (Instant::now(), 0_u64);
    for row in rows.range(..)? {
        row?;
        count += 1;
    }
    assert_eq!(count, ROW_COUNT, "the snapshot sees the rows that were there");
    let queue = snapshot.open_table(QUEUE)?;
    let queued = queue.range(..)?.map(|row| row.map(|row| row.key()));
    let queued: u64 = queued.sum::<Result<u64, Error>>()?;
    assert!(queued >= QUEUED * (QUEUED - 1) / 2, "and a whole queue");
    Ok((gets, count as f64 / began.elapsed().as_secs_f64()))
}

/// Nanoseconds that this thread had a processor for; zero where the system does not tell.
fn processor_ns() -> f64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    times.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0)
}
