//! Random point reads, updates and scans in real time: the engine's own speed.
//!
//! Rows have keys of 8 bytes and values of random bytes. Tasks are spread over the threads and run
//! operations one after another, several in one transaction if the configuration says so; the
//! measuring task only sleeps and reads counters.
//!
//! - P1: what is measured lies between two readings of the counters, after a warm-up.
//! - P2: one operation in `TIMED_ONE_IN` is timed, so that the clock does not weigh on the others.
//! - P3: a file that holds the rows already is used again; one that holds others is refused.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hdrhistogram::Histogram;
use terrace::{Database, DirectIo, Durability, Table, TableDef, Transaction, WriteTransaction};
use terrace_page::PAGE_SIZE;
use terrace_rt::{LeafMutex, Nanos, Prng, Real, World, now, sleep, yield_now};

use crate::{Error, PageRecording};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");

/// One operation in this number is timed.
const TIMED_ONE_IN: u64 = 64;

/// Time before the measurement.
const WARM_UP: Nanos = Nanos::from_millis(500);

/// What the tasks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads one random row.
    Read,
    /// Replaces the value of one random row.
    Update,
    /// Reads `Config::scan_rows` rows from a random one on.
    Scan,
}

impl Operation {
    /// Operations of one transaction, unless told otherwise: reads in batches, all else alone.
    pub const fn usual_batch(self) -> u64 {
        match self {
            Operation::Read => 1000,
            Operation::Update | Operation::Scan => 1,
        }
    }
}

/// All that decides a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Decides the rows drawn.
    pub seed: u64,
    /// What the tasks do.
    pub operation: Operation,
    /// Operations of one transaction; updates are committed without a wait for the log.
    pub batch: u64,
    /// Rows: 5 million.
    pub rows: u64,
    /// Bytes of a value: 100. Keys have 8.
    pub value_bytes: usize,
    /// Rows of one scan: 100.
    pub scan_rows: u64,
    /// Pages in memory.
    pub memory_pages: u32,
    /// How long the log may get, if that is not the default.
    pub log_max: Option<u64>,
    /// Where the database is; it is created if it is not there.
    pub path: PathBuf,
    /// Threads.
    pub threads: usize,
    /// Tasks, spread over the threads.
    pub tasks: usize,
    /// Measured time.
    pub duration: Nanos,
    /// What records page references; none, unless they are asked for.
    pub recording: Option<Arc<dyn PageRecording>>,
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Operations done in the measured time.
    pub operations: u64,
    /// Operations per second.
    pub operations_per_s: f64,
    /// Time of an operation in nanoseconds, one in 64 measured.
    pub latency_ns: Histogram<u64>,
    /// Times that a transaction was run again after a conflict.
    pub conflicts: u64,
    /// Share of page requests that memory served.
    pub memory_hit_ratio: f64,
    /// Pages read from home per second.
    pub home_reads_per_s: f64,
    /// Bytes written for each operation.
    pub written: Written,
}

/// Bytes written for each operation, on average.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    /// Records of the log.
    pub log: f64,
    /// Copies of pages in the doublewrite area.
    pub doublewrite: f64,
    /// Pages at home.
    pub home: f64,
}

/// Bytes that a row takes in a page beside its value: key, header, its share of free room.
const ROW_OVERHEAD_BYTES: u64 = 24;
/// The limit of a home for which no size is given.
const SPARSE_HOME_BYTES: u64 = 64 << 30;

/// Loads the rows if they are not there, then runs the operation.
///
/// # Errors
///
/// Whatever the engine says of the path or of a device.
pub fn run(config: &Config) -> Result<RunResult, Error> {
    let real = Real::new(config.threads);
    let world = real.world();
    real.run(|| {
        let mut builder = Database::builder()
            .memory(u64::from(config.memory_pages) * PAGE_SIZE as u64)
            .world(world.clone())
            .direct_io(DirectIo::Required)
            .tune(|tier| tier.observer = config.recording.clone().map(|it| it as _));
        if let Some(bytes) = config.log_max {
            builder = builder.log_max(bytes);
        }
        let rows_bytes = config.rows * (config.value_bytes as u64 + ROW_OVERHEAD_BYTES);
        if rows_bytes > SPARSE_HOME_BYTES / 2 {
            builder = builder.home_size(rows_bytes.saturating_mul(2));
        }
        let db = builder.open_or_create(&config.path)?;
        load(&db, config)?;
        warm(&db, config)?;
        let result = measure(&db, config, &world)?;
        db.close()?;
        Ok(result)
    })
}

fn load(db: &Database, config: &Config) -> Result<(), Error> {
    match last_row(db)? {
        None => {}
        Some(found) if found == (config.rows, config.value_bytes) => return Ok(()),
        Some(_) => return Err(Error::OtherScale),
    }
    let mut prng = Prng::from_seed(config.seed);
    let mut value = vec![0; config.value_bytes];
    let txn = db.begin_write()?;
    let mut loader = txn.bulk_load(ROWS)?;
    for key in 0..config.rows {
        prng.fill(&mut value);
        loader.push(key, &value)?;
    }
    loader.finish()?;
    txn.commit(Durability::Buffered)?;
    Ok(())
}

/// Reads everything into memory, if there is room for it.
fn warm(db: &Database, config: &Config) -> Result<(), Error> {
    let rows_bytes = config.rows * (config.value_bytes as u64 + ROW_OVERHEAD_BYTES);
    if rows_bytes > u64::from(config.memory_pages) * PAGE_SIZE as u64 {
        return Ok(());
    }
    let txn = db.begin_read()?;
    for row in txn.open_table(ROWS)?.range(..)? {
        row?;
    }
    Ok(())
}

/// How many rows there are and how large the last one's value is, if there is any.
fn last_row(db: &Database) -> Result<Option<(u64, usize)>, Error> {
    let txn = db.begin_read()?;
    match txn.open_table(ROWS) {
        Err(terrace::Error::NoSuchTable { .. }) => Ok(None),
        other => Ok(other?.last()?.map(|row| (row.key() + 1, row.value().len()))),
    }
}

/// Counts of one task, alone on their cache line.
#[derive(Default)]
#[repr(align(128))]
struct Counts {
    operations: AtomicU64,
    conflicts: AtomicU64,
}

/// What the tasks share.
struct Floor {
    db: Database,
    config: Config,
    is_closed: AtomicBool,
    counts: Vec<Counts>,
    latency_ns: LeafMutex<Histogram<u64>>,
    failure: LeafMutex<Option<Error>>,
}

fn measure(db: &Database, config: &Config, world: &World) -> Result<RunResult, Error> {
    let floor = Arc::new(Floor {
        db: db.clone(),
        config: config.clone(),
        is_closed: AtomicBool::new(false),
        counts: (0..config.tasks).map(|_| Counts::default()).collect(),
        latency_ns: LeafMutex::new(histogram()),
        failure: LeafMutex::new(None),
    });
    if let Some(recording) = &config.recording {
        recording.begin();
    }
    let mut prng = Prng::from_seed(config.seed);
    let tasks: Vec<_> = (0..config.tasks)
        .map(|number| {
            let worker = Worker { floor: Arc::clone(&floor), number, prng: prng.fork() };
            world.spawn("points", move || worker.run())
        })
        .collect();
    sleep(WARM_UP);
    let (begun, stats, counted) = (now(), db.stats(), floor.counted());
    sleep(config.duration);
    let (ended, stats_after, counted_after) = (now(), db.stats(), floor.counted());
    floor.is_closed.store(true, Ordering::Relaxed);
    for task in tasks {
        task.join();
    }
    if let Some(recording) = &config.recording {
        recording.end();
    }
    let failure = floor.failure.lock().take();
    if let Some(error) = failure {
        return Err(error);
    }
    let seconds = ended.saturating_sub(begun).as_secs_f64();
    let operations = counted_after.0 - counted.0;
    let hits = stats_after.pool.hits - stats.pool.hits;
    let misses = stats_after.pool.misses - stats.pool.misses;
    let home_reads = stats_after.pool.home_read_pages - stats.pool.home_read_pages;
    let latency_ns = floor.latency_ns.lock().clone();
    let each = |of: fn(&terrace::Stats) -> u64| {
        (of(&stats_after) - of(&stats)) as f64 / operations.max(1) as f64
    };
    let written = Written {
        log: each(|stats| stats.log.bytes),
        doublewrite: each(|stats| stats.pool.doublewrite_pages) * PAGE_SIZE as f64,
        home: each(|stats| stats.pool.home_write_pages) * PAGE_SIZE as f64,
    };
    Ok(RunResult {
        operations,
        operations_per_s: operations as f64 / seconds,
        latency_ns,
        conflicts: counted_after.1 - counted.1,
        memory_hit_ratio: hits as f64 / (hits + misses).max(1) as f64,
        home_reads_per_s: home_reads as f64 / seconds,
        written,
    })
}

fn histogram() -> Histogram<u64> {
    const HIGHEST_NS: u64 = 60_000_000_000;
    Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("three digits")
}

impl Floor {
    /// Operations and conflicts so far.
    fn counted(&self) -> (u64, u64) {
        let sum = |of: fn(&Counts) -> &AtomicU64| {
            self.counts.iter().map(|counts| of(counts).load(Ordering::Relaxed)).sum()
        };
        (sum(|counts| &counts.operations), sum(|counts| &counts.conflicts))
    }
}

struct Worker {
    floor: Arc<Floor>,
    number: usize,
    prng: Prng,
}

/// Buffers and timings of one task.
struct Scratch {
    value: Vec<u8>,
    timings: Histogram<u64>,
}

impl Worker {
    fn run(mut self) {
        let floor = Arc::clone(&self.floor);
        let counts = &floor.counts[self.number];
        let value = vec![0; floor.config.value_bytes];
        let mut scratch = Scratch { value, timings: histogram() };
        while !floor.is_closed.load(Ordering::Relaxed) {
            // Reads of memory never wait: without this, no other task of the thread had a turn.
            yield_now();
            match self.batch(&mut scratch) {
                Ok(()) => {
                    counts.operations.fetch_add(floor.config.batch, Ordering::Relaxed);
                    // Nothing blocks a task whose pages are all in memory: let the others run.
                    yield_now();
                }
                Err(Error::Engine(error)) if error.is_transient() => {
                    counts.conflicts.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    floor.failure.lock().get_or_insert(error);
                    return;
                }
            }
        }
        floor.latency_ns.lock().add(&scratch.timings).expect("the same bounds");
    }

    /// The operations of one transaction.
    fn batch(&mut self, scratch: &mut Scratch) -> Result<(), Error> {
        let floor = Arc::clone(&self.floor);
        let Config { operation, batch, .. } = floor.config;
        if operation == Operation::Update {
            let txn = floor.db.begin_write()?;
            self.update(&txn, scratch)?;
            return Ok(txn.commit(Durability::None)?);
        }
        let txn = floor.db.begin_read()?;
        let table = txn.open_table(ROWS)?;
        for _ in 0..batch {
            let begun = self.begun();
            self.read(&table, scratch)?;
            scratch.note(begun);
        }
        Ok(())
    }

    fn update(&mut self, txn: &WriteTransaction, scratch: &mut Scratch) -> Result<(), Error> {
        let Config { batch, rows, .. } = self.floor.config;
        let mut table = txn.open_table(ROWS)?;
        for _ in 0..batch {
            let begun = self.begun();
            let key = self.prng.below(rows);
            let changed = scratch.value.len().min(8);
            self.prng.fill(&mut scratch.value[..changed]);
            table.update(key, &scratch.value)?;
            scratch.note(begun);
        }
        Ok(())
    }

    fn read<T: Transaction>(
        &mut self,
        table: &Table<'_, u64, &'static [u8], T>,
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let Config { operation, rows, scan_rows, .. } = self.floor.config;
        let key = self.prng.below(rows);
        if operation == Operation::Read {
            return match table.get_into(key, &mut scratch.value)? {
                true => Ok(()),
                false => Err(Error::MissingRow { table: "rows" }),
            };
        }
        let mut sum = 0u64;
        for row in table.range(key..key.saturating_add(scan_rows))? {
            sum += u64::from(row?.value()[0]);
        }
        std::hint::black_box(sum);
        Ok(())
    }

    /// The time, if this operation is one of those that are timed.
    fn begun(&mut self) -> Option<Nanos> {
        self.prng.chance(TIMED_ONE_IN).then(now)
    }
}

impl Scratch {
    fn note(&mut self, begun: Option<Nanos>) {
        if let Some(begun) = begun {
            self.timings.saturating_record(now().saturating_sub(begun).0);
        }
    }
}
