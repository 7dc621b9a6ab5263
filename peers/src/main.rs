//! Terrace beside other embedded engines: the same rows, the same operations, one run.
//!
//! Rounds go through all engines, so that what else the machine does meets each alike; the table
//! shows medians. Every engine keeps all rows in memory, and syncs nothing while it is measured.

mod fjall;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;
mod terrace;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;

/// What may go wrong in any of them.
type Fault = Box<dyn std::error::Error + Send + Sync>;

/// An engine with its rows: keys of eight bytes, 0 to n - 1, and values of equal length.
trait Engine: Sync {
    /// What one thread uses.
    fn session(&self) -> Result<Box<dyn Session + '_>, Fault>;
}

/// What one thread does; each call is one transaction, if the engine has such.
trait Session {
    /// Reads rows, and returns how many bytes of values there were.
    fn read(&mut self, keys: &[u64]) -> Result<usize, Fault>;
    /// Replaces values. A conflict is run again.
    fn update(&mut self, keys: &[u64], value: &[u8]) -> Result<(), Fault>;
    /// Reads `count` rows from `first` on, and returns their bytes.
    fn scan(&mut self, first: u64, count: usize) -> Result<usize, Fault>;
    /// The same, many rows at a time, if the engine has such a way.
    fn scan_in_batches(&mut self, _: u64, _: usize) -> Result<Option<usize>, Fault> {
        Ok(None)
    }
}

/// Opens an engine in a folder of its own, and fills it.
type Open = fn(&Path, u64, usize) -> Result<Box<dyn Engine>, Fault>;

const ENGINES: &[(&str, Open)] = &[
    ("terrace", terrace::open),
    ("redb", redb::open),
    ("lmdb", lmdb::open),
    ("sqlite", sqlite::open),
    ("fjall", fjall::open),
    #[cfg(feature = "rocksdb")]
    ("rocksdb", rocksdb::open),
];

/// What is measured, on how many threads, and how many rows a call has.
#[derive(Clone, Copy)]
enum Operation {
    Read,
    Update,
    Scan,
    ScanInBatches,
}

/// As many as there are.
const ALL: usize = usize::MAX;

const MEASURED: [(&str, Operation, u64, usize); 13] = [
    ("get, 1000/txn", Operation::Read, 1, 1000),
    ("get, txn each", Operation::Read, 1, 1),
    ("get, 1000/txn, 2 threads", Operation::Read, 2, 1000),
    ("get, txn each, 2 threads", Operation::Read, 2, 1),
    ("rows scanned, 100/txn", Operation::Scan, 1, 100),
    ("rows scanned, 1000/txn", Operation::Scan, 1, 1000),
    ("rows scanned, all", Operation::Scan, 1, ALL),
    ("in batches, 100/txn", Operation::ScanInBatches, 1, 100),
    ("in batches, 1000/txn", Operation::ScanInBatches, 1, 1000),
    ("in batches, all", Operation::ScanInBatches, 1, ALL),
    ("update, 1000/txn", Operation::Update, 1, 1000),
    ("update, txn each", Operation::Update, 1, 1),
    ("update, txn each, 2 threads", Operation::Update, 2, 1),
];

/// Terrace beside redb, LMDB (heed), SQLite (rusqlite), fjall and, with the feature `rocksdb`,
/// RocksDB: thousands of rows a second.
#[derive(Parser)]
struct Arguments {
    /// Rows.
    #[arg(long, default_value_t = 5_000_000)]
    rows: u64,
    /// Bytes of a value.
    #[arg(long, default_value_t = 100)]
    value: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Rounds through all engines.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Engines to run, by name; all unless told otherwise.
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// Measurements to take, by a part of their names; all unless told otherwise.
    #[arg(long)]
    only: Option<String>,
    /// A folder for the databases [default: a temporary one].
    #[arg(long)]
    folder: Option<PathBuf>,
}

fn main() -> Result<(), Fault> {
    let arguments = Arguments::parse();
    let temporary = tempfile::tempdir()?;
    let folder = arguments.folder.as_deref().unwrap_or(temporary.path());
    let mut engines = Vec::new();
    for &(name, open) in ENGINES {
        if arguments.engines.is_empty() || arguments.engines.iter().any(|wanted| wanted == name) {
            eprintln!("loading {name}");
            let own = folder.join(name);
            std::fs::create_dir_all(&own)?;
            engines.push((name, open(&own, arguments.rows, arguments.value)?));
        }
    }
    let is_wanted =
        |what: &str| arguments.only.as_ref().is_none_or(|part| what.contains(part.as_str()));
    let mut rates = vec![vec![Vec::new(); engines.len()]; MEASURED.len()];
    for round in 0..arguments.rounds {
        for (row, (what, operation, threads, batch)) in MEASURED.into_iter().enumerate() {
            if !is_wanted(what) {
                continue;
            }
            eprintln!("round {} of {}: {what}", round + 1, arguments.rounds);
            for (column, (_, engine)) in engines.iter().enumerate() {
                let rate = measure(&**engine, &arguments, operation, threads, batch)?;
                rates[row][column].push(rate);
            }
        }
    }
    print!("| thousand/s |");
    engines.iter().for_each(|(name, _)| print!(" {name} |"));
    print!("\n|---|");
    engines.iter().for_each(|_| print!("---|"));
    println!();
    for ((what, ..), rates) in MEASURED.iter().zip(&mut rates) {
        if !is_wanted(what) {
            continue;
        }
        print!("| {what} |");
        for rates in rates {
            rates.sort_by(f64::total_cmp);
            match rates[rates.len() / 2] {
                0.0 => print!(" - |"),
                rate => print!(" {:.0} |", rate / 1000.0),
            }
        }
        println!();
    }
    Ok(())
}

/// Rows a second; 0 if the engine has no such operation.
fn measure(
    engine: &dyn Engine,
    arguments: &Arguments,
    operation: Operation,
    threads: u64,
    batch: usize,
) -> Result<f64, Fault> {
    let batch = batch.min(arguments.rows as usize);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    let work = |seed| -> Result<(), Fault> {
        let mut session = engine.session()?;
        let mut prng = fastrand::Rng::with_seed(seed);
        let is_scan = matches!(operation, Operation::Scan | Operation::ScanInBatches);
        let mut keys = vec![0; if is_scan { 1 } else { batch }];
        let mut value = vec![0; arguments.value];
        while !stop.load(Ordering::Relaxed) {
            keys.iter_mut().for_each(|key| *key = prng.u64(..arguments.rows));
            let bytes = match operation {
                Operation::Read => session.read(&keys)?,
                Operation::Scan => {
                    session.scan(prng.u64(..=arguments.rows - batch as u64), batch)?
                }
                Operation::ScanInBatches => {
                    let first = prng.u64(..=arguments.rows - batch as u64);
                    match session.scan_in_batches(first, batch)? {
                        Some(bytes) => bytes,
                        None => return Ok(()),
                    }
                }
                Operation::Update => {
                    prng.fill(&mut value[..8]);
                    session.update(&keys, &value)?;
                    batch * value.len()
                }
            };
            assert_eq!(bytes, batch * value.len(), "a row is missing");
            done.fetch_add(batch as u64, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|seed| {
                scope.spawn({
                    let work = &work;
                    move || work(seed)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs_f64(arguments.seconds));
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    Ok(done.into_inner() as f64 / began.elapsed().as_secs_f64())
}

/// The value of row `key`, as it is loaded.
fn value_of(key: u64, len: usize) -> Vec<u8> {
    let mut value = vec![0; len];
    fastrand::Rng::with_seed(key).fill(&mut value);
    value
}
