//! Rows scanned through a snapshot, one by one and by leaf, for scans of several lengths. The rows
//! are in memory.
//!
//! ```text
//! cargo run --release -p terrace --example scan_speed -- [FOLDER [ROWS [MILLISECONDS]]]
//! ```

use std::path::PathBuf;
use std::time::{Duration, Instant};

use terrace::{Database, Durability, Error, ReadTransaction, TableDef};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const VALUE: [u8; 100] = [7; 100];

/// Reads up to `count` rows; how many there were.
type Scan = fn(&ReadTransaction, first: u64, count: usize) -> Result<usize, Error>;

fn by_row(txn: &ReadTransaction, first: u64, count: usize) -> Result<usize, Error> {
    let mut bytes = 0;
    for row in txn.open_table(ROWS)?.range(first..)?.take(count) {
        bytes += row?.value_bytes().len();
    }
    Ok(bytes / VALUE.len())
}

fn by_leaf(txn: &ReadTransaction, first: u64, count: usize) -> Result<usize, Error> {
    let (mut bytes, mut left) = (0, count);
    let table = txn.open_table(ROWS)?;
    let mut range = table.range(first..)?;
    while left > 0
        && let Some(rows) = range.next_rows()?
    {
        let rows = rows.take(left);
        left -= rows.len();
        for row in rows {
            bytes += row?.1.len();
        }
    }
    Ok(bytes / VALUE.len())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let temporary = tempfile::tempdir()?;
    let folder = arguments.next().map_or(temporary.path().to_path_buf(), PathBuf::from);
    let rows: u64 = arguments.next().map_or(Ok(100_000), |it| it.parse())?;
    let limit = Duration::from_millis(arguments.next().map_or(Ok(20), |it| it.parse())?);
    let memory = (rows * 300).max(32 << 20);
    let db = Database::builder().memory(memory).create(folder.join("rows"))?;
    let txn = db.begin_write()?;
    let mut loader = txn.bulk_load(ROWS)?;
    (0..rows).try_for_each(|key| loader.push(key, &VALUE))?;
    loader.finish()?;
    txn.commit(Durability::Buffered)?;
    for _round in 0..3 {
        for (name, scan) in [("by row", by_row as Scan), ("by leaf", by_leaf)] {
            for count in [100, 1000, rows as usize] {
                let (begun, mut first, mut done) = (Instant::now(), 0_u64, 0);
                while begun.elapsed() < limit {
                    let whole = count as u64 == rows;
                    // The upper bits: the lower ones of such a generator come back soon.
                    let from = if whole { 0 } else { (first >> 33) % (rows - count as u64) };
                    done += scan(&db.begin_read()?, from, count)?;
                    first = first.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                }
                let rate = done as f64 / begun.elapsed().as_secs_f64() / 1e6;
                println!("{name}, {count} a transaction: {rate:.1} million rows/s");
            }
        }
    }
    Ok(())
}
