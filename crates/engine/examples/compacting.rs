//! A table loses nine tenths of its rows, at random. `compact` then gives the room back to the file
//! system while another thread writes. Prints the blocks that the file of home has, beside those
//! of a fresh database with the same rows.
//!
//! `cargo run --release --example compacting [MIB] [DIR]`: 256 MiB of rows in the folder for
//! temporary files, unless told otherwise.

use std::error::Error;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use terrace::{Database, Durability, TableDef};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const VALUE: [u8; 120] = [7; 120];
/// Bytes that a row takes, about.
const ROW_BYTES: u64 = 140;
/// Rows of one transaction.
const BATCH: u64 = 2_000;
/// One row in this number stays.
const KEEP_ONE_IN: u64 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let mib: u64 = args.next().map_or(Ok(256), |mib| mib.parse())?;
    let dir = match args.next() {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let rows = (mib << 20) / ROW_BYTES;
    let path = dir.path().join("shrinking.terrace");
    let db = create(&path)?;
    load(&db, (0..rows).collect())?;
    db.checkpoint(terrace::Checkpoint::Sharp)?;
    let full = allocated(&path)?;
    println!("{rows} rows loaded: {} MiB allocated", full >> 20);

    delete(&db, rows)?;
    db.checkpoint(terrace::Checkpoint::Sharp)?;
    println!("nine tenths deleted: {} MiB allocated", allocated(&path)? >> 20);

    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    let compacted = thread::scope(|scope| {
        scope.spawn(|| write_beside(&db, rows, &is_over, &written));
        let compacted = db.compact();
        is_over.store(true, Ordering::Relaxed);
        compacted
    })?;
    let span = began.elapsed();
    println!(
        "compacted in {:.1} s beside a writer of {} transactions: {} pages merged, {} moved, \
         {} MiB punched",
        span.as_secs_f64(),
        written.load(Ordering::Relaxed),
        compacted.pages_freed,
        compacted.pages_moved,
        compacted.bytes_punched >> 20,
    );
    db.checkpoint(terrace::Checkpoint::Sharp)?;
    let small = allocated(&path)?;
    db.check()?;
    let left = keys(&db)?;
    db.close()?;

    let fresh_path = dir.path().join("fresh.terrace");
    let fresh = create(&fresh_path)?;
    load(&fresh, left)?;
    fresh.checkpoint(terrace::Checkpoint::Sharp)?;
    let of_fresh = allocated(&fresh_path)?;
    println!(
        "{} MiB allocated afterwards, {:.2} of the {} MiB of a fresh load",
        small >> 20,
        small as f64 / of_fresh as f64,
        of_fresh >> 20,
    );
    Ok(())
}

fn create(path: &Path) -> Result<Database, terrace::Error> {
    Database::builder().memory(64 << 20).create(path)
}

/// Bytes that the file system has allocated to home.
fn allocated(path: &Path) -> Result<u64, Box<dyn Error>> {
    Ok(fs::metadata(path)?.blocks() * 512)
}

fn load(db: &Database, keys: Vec<u64>) -> Result<(), terrace::Error> {
    for batch in keys.chunks(BATCH as usize) {
        db.write_with(Durability::None, |txn| {
            let mut table = txn.open_table(ROWS)?;
            batch.iter().try_for_each(|key| table.insert(*key, &VALUE[..]))
        })?;
    }
    Ok(())
}

/// Whether a row stays: no pattern that pages could follow.
fn stays(key: u64) -> bool {
    let mixed = (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 31).is_multiple_of(KEEP_ONE_IN)
}

fn delete(db: &Database, rows: u64) -> Result<(), terrace::Error> {
    let gone: Vec<u64> = (0..rows).filter(|key| !stays(*key)).collect();
    for batch in gone.chunks(BATCH as usize) {
        db.write_with(Durability::None, |txn| {
            let mut table = txn.open_table(ROWS)?;
            batch.iter().try_for_each(|key| table.remove(*key).map(drop))
        })?;
    }
    Ok(())
}

fn keys(db: &Database) -> Result<Vec<u64>, terrace::Error> {
    db.read(|txn| {
        let table = txn.open_table(ROWS)?;
        table.range(..)?.map(|entry| entry.map(|entry| entry.key())).collect()
    })
}

/// Updates rows that are there, one in each transaction, until the compaction is over.
fn write_beside(db: &Database, rows: u64, is_over: &AtomicBool, written: &AtomicU64) {
    let mut keys = (0..rows).filter(|key| stays(*key)).cycle().step_by(97);
    while !is_over.load(Ordering::Relaxed) {
        let Some(key) = keys.next() else { return };
        let done =
            db.write_with(Durability::None, |txn| txn.open_table(ROWS)?.insert(key, &[9; 120][..]));
        match done {
            Ok(()) => written.fetch_add(1, Ordering::Relaxed),
            Err(error) => return eprintln!("a writer has stopped: {error}"),
        };
    }
}
