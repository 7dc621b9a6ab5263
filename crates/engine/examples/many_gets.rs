//! Rows of a database that is larger than memory, read by one thread: one by one, and 64 at once by
//! `get_many`. Prints how many the device was asked for in a second; `docs/BENCHMARKS.md` has the
//! command that asks the same file with fio.
//!
//! `cargo run --release --example many_gets [MIB] [SECONDS] [DIR]`: 64 MiB of rows, .5 s of each,
//! in the folder for temporary files, unless told otherwise.

use std::error::Error;
use std::time::{Duration, Instant};

use terrace::{Database, DirectIo, Durability, TableDef};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
/// Two rows have a page.
const VALUE: [u8; 3_900] = [7; 3_900];
const BYTES_A_ROW: u64 = 4_096;
const AT_ONCE: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let mib: u64 = args.next().map_or(Ok(64), |mib| mib.parse())?;
    let seconds: f64 = args.next().map_or(Ok(0.5), |seconds| seconds.parse())?;
    let (folder, direct) = match args.next() {
        Some(dir) => (tempfile::tempdir_in(dir)?, DirectIo::Required),
        None => (tempfile::tempdir()?, DirectIo::Preferred),
    };
    let rows = (mib << 20) / BYTES_A_ROW;
    // Twice the inner nodes and some leaves: most reads go to the device.
    let memory = ((mib << 20) / 32).max(2 << 20);
    let builder = Database::builder().memory(memory).direct_io(direct);
    let db = builder.create(folder.path().join("home"))?;
    let keys: Vec<u64> = (0..rows).collect();
    for batch in keys.chunks(1_000) {
        db.write_with(Durability::None, |txn| {
            txn.open_table(ROWS)?.insert_many(batch.iter().map(|key| (*key, &VALUE[..])))
        })?;
    }
    db.checkpoint(terrace::Checkpoint::Sharp)?;

    let txn = db.begin_read()?;
    let table = txn.open_table(ROWS)?;
    let mut state = 1_u64;
    let mut draw = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % rows
    };
    for round in 0..3 {
        for at_once in [1, AT_ONCE] {
            let (began, before) = (Instant::now(), db.stats().pool.home_read_pages);
            let mut done = 0;
            while began.elapsed() < Duration::from_secs_f64(seconds) {
                let wanted = (0..at_once).map(|_| draw());
                let found = match at_once {
                    1 => wanted.map(|key| table.get(key)).collect::<Result<Vec<_>, _>>()?,
                    _ => table.get_many(wanted)?,
                };
                assert!(found.iter().all(Option::is_some));
                done += found.len();
            }
            let elapsed = began.elapsed().as_secs_f64();
            let pages = db.stats().pool.home_read_pages - before;
            println!(
                "round {round}, {at_once} at once: {:.0} rows/s, {:.0} pages/s from home",
                done as f64 / elapsed,
                pages as f64 / elapsed,
            );
        }
    }
    Ok(())
}
