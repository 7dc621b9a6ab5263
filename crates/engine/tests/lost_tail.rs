//! A log that has lost its tail, beside a home that has pages which are newer than its end: what is
//! read is reported as damaged, and is neither believed nor changed.

use std::fs;
use std::path::Path;

use terrace::{Builder, Checkpoint, Checkpoints, Database, Error, Nanos, Part, TableDef};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const KEYS: u64 = 800;

/// Fewer frames than pages, so that home has changes before a checkpoint.
fn small() -> Builder {
    let seldom = Checkpoints::Every(Nanos::from_secs(1_000));
    Database::builder().memory(256 << 10).home_size(4 << 20).log_size(8 << 20).checkpoints(seldom)
}

fn replace_all(db: &Database, byte: u8) {
    db.write(|txn| {
        let mut rows = txn.open_table(ROWS)?;
        (0..KEYS).try_for_each(|key| rows.insert(key, &[byte; 1000]))
    })
    .expect("room");
}

/// The bytes of a crash whose log is of the day of its last checkpoint.
fn crash_with_an_older_log(folder: &Path, into: &Path) {
    let (path, log) = (folder.join("db"), folder.join("db.log"));
    let db = small().create(&path).expect("a good place");
    replace_all(&db, 1);
    db.checkpoint(Checkpoint::Sharp).expect("good files");
    fs::copy(&log, into.with_extension("log")).expect("copied");
    replace_all(&db, 2);
    fs::copy(&path, into).expect("copied");
    db.close().expect("good files");
}

/// They were read as if they were committed; a change to one of them panicked, and if that was the
/// reclaim task's, closing the database hung.
#[test]
fn pages_newer_than_the_end_of_the_log_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("copy");
    crash_with_an_older_log(folder.path(), &copy);
    let db = small().log(copy.with_extension("log")).open(&copy).expect("redo needs none of them");
    let (mut told, mut old) = (0, 0);
    for key in 0..KEYS {
        let read = db.read(|txn| {
            let value = txn.open_table(ROWS)?.get(key)?;
            Ok::<_, Error>(value.expect("it is in both").value()[0])
        });
        let written = db.write(|txn| txn.open_table(ROWS)?.insert(key, &[3; 1000]));
        match (read, written) {
            (Ok(1), Ok(())) => old += 1,
            (Err(Error::Corrupt { part: Part::Home, .. }), Err(Error::Corrupt { .. })) => told += 1,
            other => panic!("row {key}: {other:?}"),
        }
    }
    assert!(told > KEYS / 2, "{told} told, {old} old: or the test shows nothing");
    db.close().expect("the rest is sound");
}
