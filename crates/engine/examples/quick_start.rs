//! Creates a database, writes, closes it, opens it again, and reads a range.
//!
//! Run with `cargo run --release --package terrace --example quick_start`.

use terrace::{Database, TableDef};

/// Finishing times in seconds by year and runner: ordered by year, then by name.
const MARATHON: TableDef<(u16, &str), u32> = TableDef::new("marathon");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("sports.terrace");

    let db = Database::create(&path)?;
    db.write(|txn| {
        let mut marathon = txn.open_table(MARATHON)?;
        marathon.insert((1984, "Lopes"), 7_761)?;
        marathon.insert((1960, "Bikila"), 8_116)?;
        marathon.insert((1984, "Treacy"), 7_796)
    })?;
    db.close()?;

    let db = Database::open(&path)?;
    let names: Vec<String> = db.read(|txn| {
        let marathon = txn.open_table(MARATHON)?;
        let of_1984 = marathon.range((1984, "")..(1985, ""))?;
        of_1984.map(|entry| Ok(entry?.key().1.to_string())).collect::<Result<_, terrace::Error>>()
    })?;
    println!("1984: {}", names.join(", "));
    assert_eq!(names, ["Lopes", "Treacy"]);
    db.close()?;
    Ok(())
}
