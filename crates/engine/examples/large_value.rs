//! Puts and reads one large value, and says what it took:
//! `cargo run --release --example large_value [FOLDER [MIB]]`, 64 MiB in the folder for temporary
//! files unless told otherwise.

use std::io::{Read, Write};
use std::time::Instant;

use terrace::{Database, Durability, TableDef};

const FILES: TableDef<u64, &[u8]> = TableDef::new("files");
const MIB: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let temporary = match args.next() {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let folder = temporary.path();
    let mib: usize = args.next().map_or(Ok(64), |mib| mib.parse())?;
    let chunk: Vec<u8> = (0..MIB).map(|at| ((at * 31) >> 5) as u8).collect();
    let plain = folder.join("plain");
    let began = Instant::now();
    let mut file = std::fs::File::create(&plain)?;
    for _ in 0..mib {
        file.write_all(&chunk)?;
    }
    file.sync_all()?;
    let rate = |began: Instant| mib as f64 / began.elapsed().as_secs_f64();
    println!("a file, written and synced: {:.0} MiB/s", rate(began));
    let path = folder.join("db");
    let db = Database::builder().memory(256 << 20).open_or_create(&path)?;
    let before = db.stats().log.bytes;
    for round in 0..2 {
        let began = Instant::now();
        let txn = db.begin_write()?;
        {
            let mut files = txn.open_table(FILES)?;
            let mut writer = files.writer(round)?;
            for _ in 0..mib {
                writer.push(&chunk)?;
            }
            writer.finish()?;
        }
        txn.commit(Durability::Durable)?;
        println!("put: {:.0} MiB/s", rate(began));
        println!("log so far: {} bytes", db.stats().log.bytes - before);
    }
    let began = Instant::now();
    let txn = db.begin_read()?;
    let mut reader = txn.open_table(FILES)?.reader(0)?.ok_or("it was put")?;
    let mut bytes = vec![0; MIB];
    for _ in 0..mib {
        reader.read_exact(&mut bytes)?;
        assert!(bytes == chunk, "what was put is there");
    }
    println!("read: {:.0} MiB/s", rate(began));
    Ok(())
}
