//! TPC-C goes on while the database is compacted: a table beside its tables has lost nine tenths of
//! its rows, at random. Prints the transactions per second before, during and after, and the
//! blocks that the file of home has beside those of a database that never had the other rows.
//!
//! `cargo run --release -p terrace-workload --example compact_beside_tpcc [MIB] [SECONDS] [DIR]`:
//! 64 MiB of rows, 2 s alone, in the folder for temporary files, unless told otherwise.

use std::error::Error;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use terrace::{Checkpoint, Database, Durability, TableDef};
use terrace_rt::{Nanos, Real, sleep};
use terrace_workload::tpcc::{Config, Scale, populate};
use terrace_workload::{Part, Workload};

type AnyError = Box<dyn Error + Send + Sync>;

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const VALUE: [u8; 120] = [7; 120];
/// Bytes that a row takes, about.
const ROW_BYTES: u64 = 140;
/// Rows of one transaction.
const BATCH: usize = 2_000;
/// One row in this number stays.
const KEEP_ONE_IN: u64 = 10;

/// Whether a row stays: no pattern that pages could follow.
fn stays(key: u64) -> bool {
    let mixed = (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 31).is_multiple_of(KEEP_ONE_IN)
}

fn allocated(path: &Path) -> Result<u64, AnyError> {
    Ok(fs::metadata(path)?.blocks() * 512)
}

fn insert(db: &Database, keys: &[u64]) -> Result<(), terrace::Error> {
    keys.chunks(BATCH).try_for_each(|batch| {
        db.write_with(Durability::None, |txn| {
            let mut rows = txn.open_table(ROWS)?;
            batch.iter().try_for_each(|key| rows.insert(*key, &VALUE[..]))
        })
    })
}

fn remove(db: &Database, keys: &[u64]) -> Result<(), terrace::Error> {
    keys.chunks(BATCH).try_for_each(|batch| {
        db.write_with(Durability::None, |txn| {
            let mut rows = txn.open_table(ROWS)?;
            batch.iter().try_for_each(|key| rows.remove(*key).map(drop))
        })
    })
}

/// Runs TPC-C until `work`, in a thread of its own, has ended: transactions a second, and how long.
fn beside(
    db: &Database,
    config: &Config,
    part: u32,
    work: impl FnOnce() -> Result<(), AnyError> + Send,
) -> Result<(f64, f64), AnyError> {
    let since = Nanos::from_secs(u64::from(part) * 3_600);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut clients =
            config.start(db, Part { number: part, since }, &terrace_rt::World::current());
        // Until all run.
        sleep(Nanos::from_millis(500));
        let (before, began) = (clients.committed().transactions, Instant::now());
        let working = scope.spawn(|| {
            let worked = work();
            is_over.store(true, Ordering::Release);
            worked
        });
        while !is_over.load(Ordering::Acquire) && !clients.has_failed() {
            sleep(Nanos::from_millis(20));
        }
        let (after, span) = (clients.committed().transactions, began.elapsed().as_secs_f64());
        clients.stop()?;
        working.join().expect("no panic")?;
        Ok(((after - before) as f64 / span, span))
    })
}

fn run(mib: u64, seconds: u64, dir: &Path) -> Result<(), AnyError> {
    let config = Config {
        scale: Scale::full(2),
        clients: 32,
        durability: Durability::Buffered,
        ..Config::default()
    };
    let path = dir.join("home");
    let create = |path: &Path| Database::builder().memory(2 << 30).create(path);
    let db = create(&path)?;
    populate(&db, &config, &mut |_, _| {})?;
    let keys: Vec<u64> = (0..(mib << 20) / ROW_BYTES).collect();
    insert(&db, &keys)?;
    let (left, gone): (Vec<u64>, Vec<u64>) = keys.iter().partition(|key| stays(**key));
    remove(&db, &gone)?;
    db.checkpoint(Checkpoint::Sharp)?;
    println!(
        "{} rows loaded, {} deleted: {} MiB allocated",
        keys.len(),
        gone.len(),
        allocated(&path)? >> 20
    );
    let alone = || {
        thread::sleep(Duration::from_secs(seconds));
        Ok(())
    };
    let (before, _) = beside(&db, &config, 0, alone)?;
    let (during, span) = beside(&db, &config, 1, || {
        let compacted = db.compact()?;
        println!("{compacted:?}");
        Ok(())
    })?;
    let (after, _) = beside(&db, &config, 2, alone)?;
    let usual = (before + after) / 2.0;
    println!(
        "TPC-C: {before:.0} transactions/s before, {during:.0} during {span:.1} s of compaction, \
         {after:.0} after: {:.2}",
        during / usual,
    );
    db.checkpoint(Checkpoint::Sharp)?;
    let bytes = db.table_bytes()?;
    let of_rows = bytes["rows"];
    let of_others: u64 =
        bytes.iter().filter(|(name, _)| *name != "rows").map(|(_, bytes)| bytes).sum();
    let small = allocated(&path)?;
    db.check()?;
    db.close()?;

    let fresh_path = dir.join("fresh");
    let fresh = create(&fresh_path)?;
    insert(&fresh, &left)?;
    fresh.checkpoint(Checkpoint::Sharp)?;
    let of_fresh = allocated(&fresh_path)?;
    println!(
        "{} MiB allocated afterwards, of which TPC-C uses {} and the rows {}; a fresh database with \
         these rows has {}: {:.2} of what both need",
        small >> 20,
        of_others >> 20,
        of_rows >> 20,
        of_fresh >> 20,
        small as f64 / (of_others + of_fresh) as f64,
    );
    Ok(())
}

fn main() -> Result<(), AnyError> {
    let mut args = std::env::args().skip(1);
    let mib = args.next().map_or(Ok(64), |mib| mib.parse())?;
    let seconds = args.next().map_or(Ok(2), |seconds| seconds.parse())?;
    let dir = match args.next() {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    Real::new(1).run(|| run(mib, seconds, dir.path()))
}
