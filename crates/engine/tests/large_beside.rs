//! Large values in the real world, beside what else a database does.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use terrace_rt::Prng;

use terrace::{
    Builder, Checkpoints, Database, Durability, Error, FlashRole, Nanos, TableDef, designs,
};

const LARGE: TableDef<u64, &[u8]> = TableDef::new("large");
const SMALL: TableDef<u64, &[u8]> = TableDef::new("small");
const MIB: u64 = 1 << 20;
/// Far longer than any of it takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `work` in a thread of its own; fails if it does not end.
fn watched(work: impl FnOnce() + Send + 'static) {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        send.send(()).expect("somebody waits");
    });
    match receive.recv_timeout(PATIENCE) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it stands still"),
        _ => thread.join().expect("no error"),
    }
}

fn with_flash(folder: &Path, design: &str) -> Builder {
    let design = designs::find(design).expect("a row of the table");
    let builder = Database::builder().memory(MIB).log_max(16 * MIB).design(design);
    builder.flash(folder.join("flash"), 4 * MIB)
}

/// The bug: the page of a large value was still being brought home by the cleaner, as what it was
/// before. The writer waited for that with the lock that the cleaner needs.
#[test]
fn a_large_value_waits_for_the_cleaner() {
    for design in ["lazy", "inclusive", "lc"] {
        watched(move || {
            let folder = tempfile::tempdir().expect("a folder");
            let often = Checkpoints::Every(Nanos::from_millis(100));
            let builder = with_flash(folder.path(), design).checkpoints(often);
            let db = builder.create(folder.path().join("db")).expect("a new path");
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let change = |txn: &terrace::WriteTransaction| {
                            txn.delete_table("small")?;
                            let mut rows = txn.open_table(SMALL)?;
                            let keys = (0..1_000u64).map(|row| row.wrapping_mul(7_919) % 1_000);
                            keys.into_iter()
                                .try_for_each(|key| rows.insert(key, &[2; 1_000]).map(drop))
                        };
                        db.write_with(Durability::None, change).expect("room");
                    }
                });
                for round in 0..100 {
                    let value = vec![round as u8; 3 << 20];
                    let put = |txn: &terrace::WriteTransaction| {
                        txn.open_table(LARGE)?.insert(1, &value).map(drop)
                    };
                    db.write_with(Durability::None, put).expect("room");
                }
                is_over.store(true, Ordering::Relaxed);
            });
            db.check().expect("sound");
            db.close().expect("closed");
        });
    }
}

/// The bug: a large value was written before its table was locked: a check, which locks tables so
/// that they stand still, met pages that were in use, and nothing led there.
#[test]
fn a_check_beside_writers_of_large_values_finds_no_damage() {
    watched(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let db = Database::create(folder.path().join("db")).expect("a new path");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..60 {
                    let put = |txn: &terrace::WriteTransaction| {
                        let mut rows = txn.open_table(LARGE)?;
                        if round % 2 == 0 {
                            return rows.insert(round % 3, &vec![round as u8; 5 << 20]).map(drop);
                        }
                        let mut writer = rows.writer(round % 3)?;
                        (0..5).try_for_each(|_| writer.push(&vec![round as u8; 1 << 20]))?;
                        writer.finish()
                    };
                    db.write_with(Durability::None, put).expect("room");
                }
                is_over.store(true, Ordering::Relaxed);
            });
            while !is_over.load(Ordering::Relaxed) {
                db.check().expect("sound");
            }
        });
        db.close().expect("closed");
    });
}

/// The bug: pages that were taken for a value, and not written yet, were said to be damaged.
#[test]
fn what_is_not_finished_is_no_damage_at_home() {
    for role in [FlashRole::Cache, FlashRole::Persistent] {
        watched(move || {
            let folder = tempfile::tempdir().expect("a folder");
            let builder = Database::builder().memory(MIB).flash_role(role);
            let builder = builder.design(designs::find("lc").expect("a row of the table"));
            let builder = builder.flash(folder.path().join("flash"), 16 * MIB);
            let db = builder.create(folder.path().join("db")).expect("a new path");
            let value = vec![1; 12 << 20];
            db.write(|txn| txn.open_table(LARGE)?.insert(1, &value).map(drop)).expect("room");
            for _ in 0..3 {
                // On flash.
                db.read(|txn| txn.open_table(LARGE)?.get(1).map(drop)).expect("no error");
            }
            db.write(|txn| txn.open_table(LARGE)?.remove(1).map(drop)).expect("no error");
            let is_free = || db.stats().home_used_bytes < 4 * MIB;
            while !is_free() {
                std::thread::sleep(Duration::from_millis(10));
            }
            db.compact().expect("room");
            let txn = db.begin_write().expect("open");
            let mut rows = txn.open_table(LARGE).expect("made");
            let mut writer = rows.writer(2).expect("a short key");
            writer.push(&value[..(5 << 20) + 100]).expect("room");
            db.flush().expect("no error");
            assert_eq!(db.damaged_at_home().expect("no error"), []);
            writer.finish().expect("room");
            drop(rows);
            txn.commit(Durability::Durable).expect("no error");
            assert_eq!(db.damaged_at_home().expect("no error"), []);
            db.close().expect("closed");
        });
    }
}

/// A value whose key is too long was written before that was noticed, and kept its space until its
/// transaction ended.
#[test]
fn a_large_value_of_a_long_key_takes_no_space() -> Result<(), Error> {
    const NAMES: TableDef<&str, &[u8]> = TableDef::new("names");
    let folder = tempfile::tempdir().expect("a folder");
    let builder = Database::builder().home_size(64 * MIB);
    let db = builder.create(folder.path().join("db"))?;
    let txn = db.begin_write()?;
    let mut names = txn.open_table(NAMES)?;
    let (key, value) = ("k".repeat(2_000), vec![1; 20 << 20]);
    for _ in 0..10 {
        let put = names.insert(&key, &value);
        assert!(matches!(put, Err(Error::KeyTooLong { .. })), "{put:?}");
    }
    names.insert("short", &value)?;
    drop(names);
    txn.commit(Durability::Durable)?;
    db.close()
}

/// Threads put, replace and read large values of the same keys, and roll back.
#[test]
fn threads_see_whole_values() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let builder = Database::builder()
        .memory(4 * MIB)
        .design(designs::find("lc").expect("a row of the table"))
        .flash(folder.path().join("flash"), 8 * MIB);
    let db = builder.clone().create(&path).expect("a new path");
    db.write(|txn| txn.open_table(LARGE).map(drop)).expect("made");
    let is_whole = |bytes: &[u8]| bytes.iter().all(|byte| *byte == bytes[0]);
    std::thread::scope(|scope| {
        for me in 0..3 {
            let db = &db;
            scope.spawn(move || {
                let mut prng = Prng::from_seed(me);
                for round in 0..25 {
                    let key = prng.below(3);
                    let value = vec![(round * 3 + me) as u8; (MIB + prng.below(2 * MIB)) as usize];
                    let rolls_back = prng.below(4) == 0;
                    if rolls_back {
                        let txn = db.begin_write().expect("no error");
                        let mut files = txn.open_table(LARGE).expect("no error");
                        // Another one may have the key, or this one the other's.
                        let _put = files.insert(key, &value);
                        drop(txn);
                    } else {
                        db.write(|txn| txn.open_table(LARGE)?.insert(key, &value)).expect("room");
                    }
                    let txn = db.begin_read().expect("no error");
                    let files = txn.open_table(LARGE).expect("no error");
                    for key in 0..3 {
                        if let Some(value) = files.get(key).expect("no error") {
                            assert!(is_whole(value.value()), "key {key}");
                        }
                    }
                }
            });
        }
    });
    db.check().expect("whole");
    db.close().expect("closed");
    let db = builder.open(&path).expect("its own");
    db.check().expect("whole");
    let txn = db.begin_read().expect("no error");
    for entry in txn.open_table(LARGE).expect("no error").range(..).expect("no error") {
        assert!(is_whole(entry.expect("no error").value()));
    }
}
