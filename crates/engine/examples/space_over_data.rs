//! The space that keys and values of several sizes take, and what they write to the log, both over
//! their bytes: inserted in ascending order, loaded, and inserted in random order.
//!
//! ```text
//! cargo run --release -p terrace --example space_over_data -- [FOLDER [MIB]]
//! ```

use std::path::{Path, PathBuf};

use terrace::{Database, Durability, Error, TableDef};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const KEY_BYTES: u64 = 8;
const VALUE_BYTES: [usize; 5] = [100, 2_000, 4_000, 8_192, 65_536 + 4_500];
/// Bytes of values inserted by one transaction.
const TOGETHER_BYTES: usize = 4 << 20;

/// How the rows come.
type Fill = fn(&Database, keys: &[u64], value: &[u8]) -> Result<(), Error>;

fn insert(db: &Database, keys: &[u64], value: &[u8]) -> Result<(), Error> {
    for keys in keys.chunks(TOGETHER_BYTES.div_ceil(value.len())) {
        let txn = db.begin_write()?;
        let mut table = txn.open_table(ROWS)?;
        keys.iter().try_for_each(|key| table.insert(*key, value))?;
        drop(table);
        txn.commit(Durability::Buffered)?;
    }
    Ok(())
}

fn load(db: &Database, keys: &[u64], value: &[u8]) -> Result<(), Error> {
    let txn = db.begin_write()?;
    let mut loader = txn.bulk_load(ROWS)?;
    keys.iter().try_for_each(|key| loader.push(*key, value))?;
    loader.finish()?;
    txn.commit(Durability::Buffered)
}

/// A number that has nothing to do with how `key` sorts: SplitMix64's finalizer (Steele, 2014).
fn mixed(key: u64) -> u64 {
    let key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

fn insert_at_random(db: &Database, keys: &[u64], value: &[u8]) -> Result<(), Error> {
    let mut keys = keys.to_vec();
    keys.sort_unstable_by_key(|key| mixed(*key));
    insert(db, &keys, value)
}

/// Bytes of the home that a table takes, and of the log, over those of its keys and values.
fn over_data(path: &Path, fill: Fill, bytes: u64, value_len: usize) -> Result<[f64; 2], Error> {
    let db = Database::builder().memory(64 << 20).create(path)?;
    let figures = || (db.stats().home_used_bytes, db.stats().log.bytes);
    let before = figures();
    let row_bytes = KEY_BYTES + value_len as u64;
    let keys: Vec<u64> = (0..bytes / row_bytes).collect();
    fill(&db, &keys, &vec![7; value_len])?;
    let after = figures();
    db.close()?;
    let data = (keys.len() as u64 * row_bytes) as f64;
    Ok([after.0 - before.0, after.1 - before.1].map(|taken| taken as f64 / data))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let temporary = tempfile::tempdir()?;
    let folder = arguments.next().map_or(temporary.path().to_path_buf(), PathBuf::from);
    let bytes = arguments.next().map_or(Ok(16), |it| it.parse::<u64>())? << 20;
    std::fs::create_dir_all(&folder)?;
    let fills = [insert as Fill, load, insert_at_random];
    println!("             home over data               log over data");
    println!("value bytes  ascending  loaded  random  ascending  loaded  random");
    for value_len in VALUE_BYTES {
        let mut rows = Vec::new();
        for fill in fills {
            let path = folder.join("space");
            rows.push(over_data(&path, fill, bytes, value_len)?);
            std::fs::remove_file(folder.join("space.log"))?;
            std::fs::remove_file(path)?;
        }
        let of = |part: usize| [rows[0][part], rows[1][part], rows[2][part]];
        let ([a, b, c], [d, e, f]) = (of(0), of(1));
        println!("{value_len:>11}  {a:>9.3}  {b:>6.3}  {c:>6.3}  {d:>9.3}  {e:>6.3}  {f:>6.3}");
    }
    Ok(())
}
