//! Transactions through the public API: isolation, rollback, savepoints, tables, full devices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace::{Database, Devices, Durability, Error, Nanos, TableDef, World, WriteTransaction};
use terrace_device::model::{Preset, build};
use terrace_device::{Device, Keep, Store};
use terrace_rt::{Prng, Virtual, VirtualConfig};

const ROWS: TableDef<u64, u64> = TableDef::new("rows");
const TEXTS: TableDef<&str, &str> = TableDef::new("texts");

fn memory(bytes: u64) -> Arc<dyn Device> {
    build(Preset::Ram, World::current(), Store::new(bytes, Keep::Plain))
}

fn database(home: u64, log: u64) -> Database {
    let devices = Devices { home: memory(home), flash: None, log: memory(log) };
    let builder = Database::builder().memory(2 << 20).devices(devices);
    builder.create_on_devices().expect("memory is there")
}

fn in_world<T>(seed: u64, run: impl FnOnce() -> T) -> T {
    let config = VirtualConfig { seed, switch_one_in: 5, cores: 1, stack_bytes: 256 << 10 };
    Virtual::new(config).run(run).expect("nobody waits for ever")
}

fn sum(txn: &WriteTransaction) -> Result<u64, Error> {
    txn.open_table(ROWS)?.range(..)?.try_fold(0, |sum, entry| Ok(sum + entry?.value()))
}

#[test]
fn a_rollback_leaves_nothing() {
    in_world(1, || {
        let db = database(32 << 20, 8 << 20);
        db.write(|txn| {
            let mut rows = txn.open_table(ROWS)?;
            (0..1000).try_for_each(|row| rows.insert(row, row))
        })
        .expect("room");
        let txn = db.begin_write().expect("open");
        let mut rows = txn.open_table(ROWS).expect("there");
        for row in 0..2000 {
            rows.insert(row, row + 1).expect("room");
            if row % 3 == 0 {
                rows.remove(row).expect("there");
            }
        }
        drop(txn);
        db.read(|txn| {
            let rows = txn.open_table(ROWS)?;
            let all: Result<Vec<_>, Error> =
                rows.range(..)?.map(|entry| entry.map(|e| (e.key(), e.value()))).collect();
            assert_eq!(all?, (0..1000).map(|row| (row, row)).collect::<Vec<_>>());
            Ok::<_, Error>(())
        })
        .expect("readable");
        db.check().expect("whole");
        db.close().expect("memory");
    });
}

#[test]
fn tables_come_and_go_with_their_transactions() {
    in_world(2, || {
        let db = database(32 << 20, 8 << 20);
        let txn = db.begin_write().expect("open");
        txn.open_table(TEXTS).expect("made").insert("a", "b").expect("room");
        assert_eq!(txn.table_names().expect("readable"), ["texts"]);
        txn.rollback().expect("undone");
        let missing = db.read(|txn| txn.open_table(TEXTS).map(|_| ()));
        assert!(matches!(missing, Err(Error::NoSuchTable { .. })));

        db.write(|txn| txn.open_table(TEXTS)?.insert("a", "c")).expect("room");
        let wrong: TableDef<u64, &str> = TableDef::new("texts");
        let refused = db.write(|txn| txn.open_table(wrong).map(|_| ()));
        assert!(matches!(refused, Err(Error::TableTypes { .. })));

        let txn = db.begin_write().expect("open");
        assert!(txn.delete_table("texts").expect("there"));
        assert!(!txn.delete_table("texts").expect("gone"));
        txn.rollback().expect("undone");
        let value = db.read(|txn| txn.open_table(TEXTS)?.get("a")).expect("readable");
        assert_eq!(value.expect("back").value(), "c");

        assert!(db.write(|txn| txn.delete_table("texts")).expect("there"));
        db.write(|txn| txn.open_table(wrong)?.insert(1, "x")).expect("a new table");
        assert_eq!(db.check().expect("whole").trees, 2);
    });
}

/// A table that was opened before is found again without its name. A transaction that finds it must
/// find the one that has the name now: each is made with a row, and rows come only with that one.
#[test]
fn a_table_opened_again_is_the_one_that_has_its_name() {
    const TASKS: u64 = 6;
    for seed in 0..30 {
        in_world(seed, || {
            let db = database(64 << 20, 8 << 20);
            let make = |db: &Database| {
                db.write_with(Durability::None, |txn| {
                    txn.delete_table("rows")?;
                    txn.open_table(ROWS)?.insert(0, 1)
                })
            };
            make(&db).expect("room");
            let tasks: Vec<_> = (0..TASKS)
                .map(|number| {
                    let db = db.clone();
                    World::current().spawn("opens", move || {
                        let mut prng = Prng::from_seed(seed * TASKS + number);
                        for _ in 0..40 {
                            let count = |txn: &WriteTransaction| {
                                let mut rows = txn.open_table(ROWS)?;
                                assert_eq!(rows.get(0)?.expect("made with it").value(), 1);
                                rows.insert(1 + prng.below(50), 0)?;
                                rows.range(..)?.count();
                                Ok::<_, Error>(())
                            };
                            db.write_with(Durability::None, count).expect("room");
                            if prng.below(10) == 0 {
                                make(&db).expect("room");
                            }
                        }
                    })
                })
                .collect();
            tasks.into_iter().for_each(terrace_rt::Task::join);
            assert_eq!(db.check().expect("whole").trees, 2);
        });
    }
}

#[test]
fn savepoints_undo_what_came_after() {
    in_world(3, || {
        let db = database(32 << 20, 8 << 20);
        db.write(|txn| {
            let mut rows = txn.open_table(ROWS)?;
            rows.insert(1, 1)?;
            let first = txn.savepoint()?;
            rows.insert(2, 2)?;
            let second = txn.savepoint()?;
            rows.insert(1, 10)?;
            txn.rollback_to(&second)?;
            assert_eq!(sum(txn)?, 3);
            rows.insert(3, 3)?;
            txn.rollback_to(&first)?;
            assert_eq!(sum(txn)?, 1);
            rows.insert(4, 4)
        })
        .expect("room");
        let total = db.write(sum).expect("readable");
        assert_eq!(total, 5);
    });
}

/// Two doctors are on call; each may leave if the other stays. Under snapshot isolation both leave.
#[test]
fn write_skew_does_not_happen() {
    for seed in 0..20 {
        in_world(seed, || {
            let db = database(32 << 20, 8 << 20);
            db.write(|txn| {
                let mut rows = txn.open_table(ROWS)?;
                rows.insert(1, 1)?;
                rows.insert(2, 1)
            })
            .expect("room");
            let leave = |doctor: u64| {
                let db = db.clone();
                terrace_rt::spawn("doctor", move || {
                    db.write(|txn| {
                        if sum(txn)? == 2 {
                            terrace_rt::yield_now();
                            txn.open_table(ROWS)?.insert(doctor, 0)?;
                        }
                        Ok::<_, Error>(())
                    })
                    .expect("run again until it works");
                })
            };
            let tasks = [leave(1), leave(2)];
            tasks.into_iter().for_each(terrace_rt::Task::join);
            assert_eq!(db.write(sum).expect("readable"), 1, "seed {seed}");
        });
    }
}

/// A transaction that has counted a range finds the same count again, whatever others insert and
/// delete.
#[test]
fn phantoms_do_not_appear() {
    for seed in 0..20 {
        in_world(seed, || {
            let db = database(32 << 20, 8 << 20);
            db.write(|txn| {
                let mut rows = txn.open_table(ROWS)?;
                (0..40).try_for_each(|row| rows.insert(row * 10, 1))
            })
            .expect("room");
            let writers = (0..3).map(|task| {
                let db = db.clone();
                terrace_rt::spawn("writer", move || {
                    let mut prng = Prng::from_seed(seed * 10 + task);
                    for _ in 0..15 {
                        db.write_with(Durability::None, |txn| {
                            let mut rows = txn.open_table(ROWS)?;
                            rows.remove(prng.below(400))?;
                            terrace_rt::yield_now();
                            rows.insert(prng.below(400), 1)
                        })
                        .expect("run again until it works");
                    }
                })
            });
            let counters = (0..2).map(|task| {
                let db = db.clone();
                terrace_rt::spawn("counter", move || {
                    let mut prng = Prng::from_seed(seed * 10 + 5 + task);
                    for _ in 0..15 {
                        let from = prng.below(300);
                        db.read(|txn| {
                            let rows = txn.open_table(ROWS)?;
                            let count = || rows.range(from..from + 100).map(Iterator::count);
                            let first = count()?;
                            terrace_rt::sleep(Nanos(100));
                            let second: Result<Vec<_>, Error> =
                                rows.range(from..from + 100)?.rev().collect();
                            // A conflict ends a range early, with an error.
                            assert_eq!(first, second?.len(), "seed {seed}");
                            Ok::<_, Error>(())
                        })
                        .expect("run again until it works");
                    }
                })
            });
            let tasks: Vec<_> = writers.chain(counters).collect();
            tasks.into_iter().for_each(terrace_rt::Task::join);
            db.check().expect("whole");
        });
    }
}

#[test]
fn ranges_meet_in_the_middle() {
    in_world(4, || {
        let db = database(32 << 20, 8 << 20);
        db.write(|txn| {
            let mut rows = txn.open_table(ROWS)?;
            (0..500).try_for_each(|row| rows.insert(row, row))
        })
        .expect("room");
        let txn = db.begin_read().expect("open");
        let rows = txn.open_table(ROWS).expect("there");
        for seed in 0..50 {
            let mut prng = Prng::from_seed(seed);
            let from = prng.below(500);
            let to = from + prng.below(500 - from);
            let mut range = rows.range(from..to).expect("good bounds");
            let (mut low, mut high) = (from, to);
            loop {
                let forward = prng.below(2) == 0;
                let entry = if forward { range.next() } else { range.next_back() };
                let Some(entry) = entry else { break };
                let key = entry.expect("readable").key();
                if forward {
                    assert_eq!(key, low);
                    low += 1;
                } else {
                    high -= 1;
                    assert_eq!(key, high);
                }
            }
            assert_eq!(low, high, "seed {seed}");
        }
    });
}

#[test]
fn a_full_log_fails_one_transaction() {
    in_world(5, || {
        let db = database(64 << 20, 2 << 20);
        db.write(|txn| txn.open_table(ROWS)?.insert(0, 0)).expect("room");
        let large = db.begin_write().expect("open");
        let mut rows = large.open_table(ROWS).expect("there");
        let full = (1..200_000).find_map(|row| rows.insert(row * 2, row).err());
        assert!(matches!(full, Some(Error::LogFull { .. })), "{full:?}");
        assert!(matches!(rows.insert(1, 1), Err(Error::Doomed { .. })));
        large.rollback().expect("room was kept");
        for row in 0..12_000 {
            db.write_with(Durability::None, |txn| txn.open_table(ROWS)?.insert(row, row))
                .expect("small ones go on, by checkpoints");
        }
        db.check().expect("whole");
        assert!(db.stats().log.checkpoints > 1);
        db.close().expect("memory");
    });
}

#[test]
fn a_full_home_fails_one_transaction() {
    in_world(6, || {
        let db = database(2 << 20, 16 << 20);
        db.write(|txn| txn.open_table(ROWS)?.insert(0, 0)).expect("room");
        const BLOBS: TableDef<u64, &[u8]> = TableDef::new("blobs");
        let large = db.begin_write().expect("open");
        let mut blobs = large.open_table(BLOBS).expect("made");
        let full = (0..5000).find_map(|row| blobs.insert(row, &[7; 2000]).err());
        assert!(matches!(full, Some(Error::HomeFull { .. })), "{full:?}");
        large.rollback().expect("undone");
        db.write(|txn| txn.open_table(ROWS)?.insert(1, 1)).expect("room again");
        assert_eq!(db.write(sum).expect("readable"), 1);
        db.check().expect("whole");
    });
}

#[test]
fn a_closed_database_opens_again() {
    in_world(7, || {
        let devices = Devices { home: memory(32 << 20), flash: None, log: memory(4 << 20) };
        let builder = || Database::builder().memory(1 << 20).devices(devices.clone());
        for opening in 0..5 {
            let db = builder().open_or_create_on_devices().expect("good devices");
            db.write(|txn| {
                let mut rows = txn.open_table(ROWS)?;
                (0..2000).try_for_each(|row| rows.insert(opening * 2000 + row, 1))
            })
            .expect("room");
            assert_eq!(db.write(sum).expect("readable"), (opening + 1) * 2000);
            db.close().expect("memory");
        }
        let again = builder().create_on_devices();
        assert!(matches!(again, Err(Error::Exists { .. })));
    });
}

#[test]
fn a_load_is_there_whole_or_not_at_all() {
    in_world(8, || {
        let devices = Devices { home: memory(32 << 20), flash: None, log: memory(8 << 20) };
        let builder = || Database::builder().memory(1 << 20).devices(devices.clone());
        let db = builder().create_on_devices().expect("good devices");
        let load = |rows: u64| {
            let txn = db.begin_write().expect("open");
            let mut loader = txn.bulk_load(ROWS).expect("a new table");
            (0..rows).for_each(|row| loader.push(row, 1).expect("ascending"));
            assert!(matches!(loader.push(0, 1), Err(Error::NotAscending { .. })));
            loader.finish().expect("memory");
            txn
        };
        load(20_000).rollback().expect("undone");
        let used = db.stats().home_used_bytes;
        assert!(used < 1 << 20, "{used} bytes are left of a load rolled back");
        let txn = db.begin_write().expect("open");
        drop(txn.bulk_load(ROWS).expect("a new table"));
        assert!(matches!(txn.commit(Durability::None), Err(Error::UnfinishedLoad)));

        let txn = load(5_000);
        txn.open_table(ROWS).expect("there").insert(5_000, 1).expect("room");
        assert_eq!(sum(&txn).expect("readable"), 5_001);
        txn.commit(Durability::Durable).expect("good devices");
        db.check().expect("whole");
        db.close().expect("memory");
        let db = builder().open_on_devices().expect("good devices");
        assert_eq!(db.write(sum).expect("readable"), 5_001);
    });
}

/// Rows that were put into a table while it was being loaded vanished when the load ended. A
/// rollback to a savepoint left what was loaded so far in the load, and took its pages away if it
/// was made before.
#[test]
fn a_load_goes_with_no_other_change_of_its_table() {
    in_world(9, || {
        let devices = Devices { home: memory(32 << 20), flash: None, log: memory(8 << 20) };
        let db = Database::builder().memory(1 << 20).devices(devices);
        let db = db.create_on_devices().expect("good devices");
        let txn = db.begin_write().expect("open");
        let before = txn.savepoint().expect("nothing is loaded");
        let mut loader = txn.bulk_load(ROWS).expect("a new table");
        (0..3_000).for_each(|row| loader.push(row, 1).expect("ascending"));
        assert!(matches!(txn.savepoint(), Err(Error::UnfinishedLoad)));
        assert!(matches!(txn.rollback_to(&before), Err(Error::UnfinishedLoad)));
        assert!(matches!(txn.delete_table("rows"), Err(Error::UnfinishedLoad)));
        txn.open_table(ROWS).expect("there").insert(9_999, 1).expect("room");
        assert!(matches!(loader.finish(), Err(Error::NotEmpty { .. })));
        assert!(matches!(txn.commit(Durability::None), Err(Error::UnfinishedLoad)));

        let txn = db.begin_write().expect("open");
        let before = txn.savepoint().expect("nothing is loaded");
        let mut loader = txn.bulk_load(ROWS).expect("a new table");
        (0..3_000).for_each(|row| loader.push(row, 1).expect("ascending"));
        loader.finish().expect("memory");
        txn.rollback_to(&before).expect("it is loaded");
        assert_eq!(sum(&txn).expect("readable"), 0);
        txn.commit(Durability::Durable).expect("nothing is open");
        db.check().expect("whole");
        db.close().expect("memory");
    });
}

/// Writes through a `Table` that was deleted, or whose making was undone, were accepted, and were
/// nowhere after the commit.
#[test]
fn a_table_that_is_gone_is_told_so() {
    in_world(11, || {
        let devices = Devices { home: memory(32 << 20), flash: None, log: memory(8 << 20) };
        let db = Database::builder().memory(1 << 20).devices(devices);
        let db = db.create_on_devices().expect("good devices");
        let is_gone = |result: Result<(), Error>| {
            let told = matches!(&result, Err(Error::NoSuchTable { name }) if &**name == "rows");
            assert!(told, "{result:?}");
        };
        db.write(|txn| (0..500).try_for_each(|row| txn.open_table(ROWS)?.insert(row, row)))
            .expect("room");
        let txn = db.begin_write().expect("open");
        let kept = txn.open_table(ROWS).expect("there");
        let mut range = kept.range(..).expect("there");
        assert!(range.next().is_some());
        let mut rows = txn.open_table(ROWS).expect("there");
        let before = txn.savepoint().expect("open");
        assert!(txn.delete_table("rows").expect("there"));
        is_gone(rows.insert(1, 2));
        is_gone(rows.get(1).map(drop));
        is_gone(rows.contains(1).map(drop));
        is_gone(rows.remove(1).map(drop));
        is_gone(rows.first().map(drop));
        is_gone(rows.pop_first(..).map(drop));
        is_gone(rows.range(..).map(drop));
        is_gone(rows.modify(1, &mut Vec::new(), |_| Ok::<_, Error>(())).map(drop));
        is_gone(rows.reserve(1 << 20));
        is_gone(range.by_ref().find_map(Result::err).map_or(Ok(()), Err));
        let mut again = txn.open_table(ROWS).expect("made");
        again.insert(9, 9).expect("room");
        is_gone(rows.insert(1, 2));
        txn.rollback_to(&before).expect("its own");
        is_gone(again.insert(10, 10));
        rows.insert(500, 500).expect("it is back");
        drop(range);
        txn.commit(Durability::Durable).expect("no error has doomed it");
        let sum = db.read(|txn| Ok::<_, Error>(txn.open_table(ROWS)?.range(..)?.count()));
        assert_eq!(sum.expect("readable"), 501);
        db.check().expect("whole");
        db.close().expect("memory");
    });
}

/// Money moves between accounts from many tasks; none is made, none is lost.
#[test]
fn transfers_keep_the_sum() {
    for seed in 0..6 {
        in_world(seed, || {
            let db = database(32 << 20, 8 << 20);
            db.write(|txn| {
                let mut rows = txn.open_table(ROWS)?;
                (0..20).try_for_each(|account| rows.insert(account, 100))
            })
            .expect("room");
            let tasks: Vec<_> = (0..8)
                .map(|task| {
                    let db = db.clone();
                    terrace_rt::spawn("client", move || {
                        let mut prng = Prng::from_seed(seed * 100 + task);
                        for _ in 0..30 {
                            let (from, to) = (prng.below(20), prng.below(20));
                            let fails = prng.below(5) == 0;
                            let _refused = db.write_with(Durability::None, |txn| {
                                let mut rows = txn.open_table(ROWS)?;
                                let rich = rows.get(from)?.expect("there").value();
                                rows.insert(from, rich - rich.min(7))?;
                                let poor = rows.get(to)?.expect("there").value();
                                rows.insert(to, poor + rich.min(7))?;
                                if fails { Err(Error::UnfinishedLoad) } else { Ok(()) }
                            });
                        }
                    })
                })
                .collect();
            tasks.into_iter().for_each(terrace_rt::Task::join);
            assert_eq!(db.write(sum).expect("readable"), 2000, "seed {seed}");
            assert_eq!(db.stats().transactions.active, 0);
            assert_eq!(db.stats().transactions.locks, 0);
        });
    }
}

/// The bug: the one transaction too many got the error that the lock table is full, though no
/// transaction had locked anything.
#[test]
fn a_transaction_too_many_is_told_how_many_there_may_be() {
    in_world(1, || {
        let db = database(32 << 20, 8 << 20);
        let mut open: Vec<_> = (0..65_536).map(|_| db.begin_write().expect("room")).collect();
        // Snapshots lock nothing, and are not counted.
        drop(db.begin_read().expect("room"));
        let refused = db.begin_write().expect_err("one too many");
        assert!(matches!(refused, Error::TooManyTransactions { max: 65_536 }), "{refused}");
        assert!(refused.is_transient());
        assert!(matches!(db.check(), Err(Error::TooManyTransactions { .. })));
        open.pop();
        drop(db.begin_write().expect("room for one"));
    });
}

/// The bug: a writer that was about to wait for the lock of a table split a leaf for its row first,
/// and a check of the table, which had that lock, said that the table was damaged.
#[test]
fn a_check_beside_writers_finds_no_damage() {
    const BLOBS: TableDef<u64, &[u8]> = TableDef::new("blobs");
    const TASKS: u64 = 3;
    let mut checks = 0;
    for seed in 0..12 {
        checks += in_world(seed, || {
            // So little that a check waits for home between two pages.
            let devices = Devices { home: memory(64 << 20), flash: None, log: memory(16 << 20) };
            let builder = Database::builder().memory(256 << 10).devices(devices);
            let db = builder.create_on_devices().expect("memory is there");
            db.write(|txn| txn.open_table(BLOBS).map(drop)).expect("room");
            let running = Arc::new(AtomicU64::new(TASKS));
            let writers = (0..TASKS).map(|number| {
                let (db, running) = (db.clone(), Arc::clone(&running));
                World::current().spawn("writes", move || {
                    let mut prng = Prng::from_seed(seed * TASKS + number);
                    for round in 0..200 {
                        let len = prng.below(if round % 4 == 0 { 20_000 } else { 3_000 });
                        let keys: Vec<u64> =
                            (0..1 + prng.below(8)).map(|_| prng.below(500)).collect();
                        let refuses = prng.below(6) == 0;
                        let done = db.write_with(Durability::None, |txn| {
                            let mut blobs = txn.open_table(BLOBS)?;
                            for key in &keys {
                                match round / 50 % 2 {
                                    0 => blobs.insert(*key, &vec![7; len as usize])?,
                                    _ => blobs.remove(*key).map(drop)?,
                                }
                            }
                            if refuses { Err(Error::Closed) } else { Ok(()) }
                        });
                        assert!(done.is_ok() || refuses, "{done:?}");
                    }
                    running.fetch_sub(1, Ordering::Relaxed);
                })
            });
            let writers: Vec<_> = writers.collect();
            let mut checks = 0;
            while running.load(Ordering::Relaxed) > 0 {
                db.check().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                checks += 1;
            }
            writers.into_iter().for_each(|writer| writer.join());
            checks
        });
    }
    assert!(checks > 100, "{checks}");
}
