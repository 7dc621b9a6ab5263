//! The two copies of the superblock, of a database that has crashed after its log was cut.

use std::fs;
use std::path::Path;

use terrace::{Builder, Checkpoint, Checkpoints, Database, Error, TableDef};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const KEYS: u64 = 100;
const PAGE: usize = 8192;

fn small() -> Builder {
    let builder = Database::builder().memory(256 << 10).home_size(4 << 20).log_size(1 << 20);
    builder.checkpoints(Checkpoints::Off)
}

/// Replaces all rows until more than half of the log is needed, the last time by `byte`.
fn fill_log(db: &Database, byte: u8) {
    let mut is_last = false;
    for round in 100..200 {
        if is_last {
            return;
        }
        let log = db.stats().log;
        is_last = log.used_bytes > log.capacity_bytes / 2;
        let byte = if is_last { byte } else { round };
        db.write(|txn| {
            let mut rows = txn.open_table(ROWS)?;
            (0..KEYS).try_for_each(|key| rows.insert(key, &[byte; 500]))
        })
        .expect("room");
    }
    panic!("the log does not fill");
}

/// Home and log as a crash leaves them, after the log has gone around.
fn crash(folder: &Path, checkpoints: u8) -> (Vec<u8>, Vec<u8>) {
    let path = folder.join(format!("db{checkpoints}"));
    let db = small().create(&path).expect("a good place");
    for _ in 0..checkpoints {
        fill_log(&db, 1);
        db.checkpoint(Checkpoint::Sharp).expect("good files");
    }
    fill_log(&db, 7);
    let home = fs::read(&path).expect("there");
    let log = fs::read(path.with_extension("log")).expect("there");
    db.close().expect("good files");
    (home, log)
}

/// If the newer copy was damaged, the older one named a log that had been cut and overwritten: the
/// opening was refused, or lost the last commits.
#[test]
fn either_superblock_of_a_crashed_database_may_be_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("copy");
    // The newer copy is on either page.
    for checkpoints in [2, 3] {
        let (home, log) = crash(folder.path(), checkpoints);
        for lost in 0..2 {
            let mut home = home.clone();
            home[lost * PAGE..][..512].fill(0xa5);
            fs::write(&copy, home).expect("written");
            fs::write(copy.with_extension("log"), &log).expect("written");
            let db = small().log(copy.with_extension("log")).open(&copy);
            let db = db.unwrap_or_else(|error| panic!("without superblock {lost}: {error}"));
            assert_eq!(db.bad_copies().len(), 1, "it is told");
            let rows = |txn: &terrace::ReadTransaction| {
                let rows = txn.open_table(ROWS)?;
                rows.range(..)?.try_fold(0, |count, row| {
                    assert_eq!(row?.value(), [7; 500]);
                    Ok::<u64, Error>(count + 1)
                })
            };
            assert_eq!(db.read(|txn| rows(txn)).expect("whole"), KEYS);
            db.close().expect("good files");
        }
    }
}
