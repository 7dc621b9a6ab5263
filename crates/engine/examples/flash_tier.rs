//! A database larger than its memory, with a flash tier; then the flash device is lost.
//!
//! Home and flash are two files here; in earnest they are a slow volume and a fast local device.
//!
//! Run with `cargo run --release --package terrace --example flash_tier`.

use terrace::{Database, Durability, TableDef};
use terrace_policy::designs;

const READINGS: TableDef<u64, &[u8]> = TableDef::new("readings");
const ROWS: u64 = 20_000;
/// Rows of one transaction.
const BATCH: u64 = 500;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let (home, flash) = (folder.path().join("home.terrace"), folder.path().join("flash"));
    let builder = || {
        Database::builder()
            .memory(2 << 20)
            .flash(&flash, 16 << 20)
            .design(designs::find("lc").expect("a design of the table"))
    };

    let db = builder().create(&home)?;
    for first in (0..ROWS).step_by(BATCH as usize) {
        db.write_with(Durability::Buffered, |txn| {
            let mut readings = txn.open_table(READINGS)?;
            (first..first + BATCH).try_for_each(|key| readings.insert(key, &[key as u8; 300]))
        })?;
    }
    db.flush()?;
    let sum = sum_of_all(&db)?;
    let pool = db.stats().pool;
    println!("{} page reads from flash, {} from home", pool.flash_hits, pool.home_reads);
    println!("{} of {} slots used, {} dirty", pool.slots_used, pool.slots, pool.slots_dirty);
    // No close: as if the power had failed. What is newer on flash than at home is in the log too.
    drop(db);

    std::fs::remove_file(&flash)?;
    let db = builder().open(&home)?;
    assert_eq!(sum_of_all(&db)?, sum, "the flash device is gone, and nothing else");
    println!("opened without the old flash: {ROWS} rows, as before");
    db.close()?;
    Ok(())
}

fn sum_of_all(db: &Database) -> Result<u64, terrace::Error> {
    db.read(|txn| {
        let mut sum = 0;
        for row in txn.open_table(READINGS)?.range(..)? {
            sum += row?.value().iter().map(|&byte| u64::from(byte)).sum::<u64>();
        }
        Ok(sum)
    })
}
