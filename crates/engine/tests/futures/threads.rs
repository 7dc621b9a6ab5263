//! The same with threads of the system, and with tokio.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use terrace::{Database, Error};
use terrace_rt::{Nanos, Real, block_on};
use tokio::runtime::Builder;

use super::{ROWS, keys, put};

/// Runs `test` on a thread, and fails if it does not come to an end.
fn watched(test: impl FnOnce() + Send + 'static) {
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        send.send(()).expect("somebody waits");
    });
    match receive.recv_timeout(Duration::from_secs(120)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().expect("it has not failed"),
    }
}

fn create(folder: &tempfile::TempDir) -> Database {
    let builder = Database::builder().memory(4 << 20).home_size(16 << 20).log_size(4 << 20);
    builder.create(folder.path().join("db")).expect("a place for files")
}

#[test]
fn tasks_of_one_thread_commit_beside_threads() {
    const TASKS: u64 = 64;
    const EACH: u64 = 10;
    watched(|| {
        let folder = tempfile::tempdir().expect("a place for files");
        let db = create(&folder);
        let conflicting = Arc::new(AtomicU64::new(0));
        thread::scope(|threads| {
            for writer in 0..4 {
                let db = &db;
                threads.spawn(move || {
                    for number in 0..EACH {
                        let key = 100_000 + writer * EACH + number;
                        db.write(|txn| txn.open_table(ROWS)?.insert(key, 1)).expect("room");
                        put(db, key + 50_000).expect("room").wait().expect("a good device");
                    }
                });
            }
            let runtime = Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                let tasks: Vec<_> = (0..TASKS)
                    .map(|task| {
                        let (db, conflicting) = (db.clone(), Arc::clone(&conflicting));
                        tokio::spawn(async move {
                            for number in 0..EACH {
                                let key = task * EACH + number;
                                // All of them wait for the lock of one row.
                                let count = move |db: &Database| {
                                    db.write(|txn| {
                                        let mut rows = txn.open_table(ROWS)?;
                                        rows.insert(key, 1)?;
                                        let sum = rows.get(u64::MAX)?.map_or(0, |it| it.value());
                                        rows.insert(u64::MAX, sum + 1)
                                    })
                                };
                                db.run(count).await?;
                                conflicting.fetch_add(1, Ordering::Relaxed);
                                db.run(move |db| put(db, key + 50_000)).await?.await?;
                            }
                            Ok::<_, Error>(())
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.expect("no panic").expect("room");
                }
            });
        });
        let sum =
            db.read(|txn| Ok::<_, Error>(txn.open_table(ROWS)?.get(u64::MAX)?.unwrap().value()));
        assert_eq!(sum.expect("readable"), conflicting.load(Ordering::Relaxed));
        assert_eq!(keys(&db).len() as u64, 2 * (TASKS + 4) * EACH + 1);
        db.check().expect("whole");
        db.close().expect("good devices");
    });
}

/// A closure that led a force of the log could not go on while another one on its executor blocked:
/// no thread committed any more, and what the other waited for was such a commit.
#[test]
fn closures_that_block_hold_up_no_commit() {
    const BLOCKED: u64 = 16;
    watched(|| {
        let folder = tempfile::tempdir().expect("a place for files");
        let db = create(&folder);
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        for round in 0..20 {
            let (release, released) = mpsc::channel::<()>();
            let released = Arc::new(std::sync::Mutex::new(released));
            let (begun, has_begun) = mpsc::channel();
            let writer = db.clone();
            // Commits while all the closures run, and only then lets those that block go on.
            let thread = thread::spawn(move || {
                has_begun.iter().take(BLOCKED as usize).for_each(drop);
                for number in 0..10 {
                    let key = (round * 10 + number) << 32;
                    writer.write(|txn| txn.open_table(ROWS)?.insert(key, 1)).expect("room");
                }
                drop(release);
            });
            runtime.block_on(async {
                let mut tasks = Vec::new();
                for number in 0..BLOCKED {
                    let key = round * BLOCKED + number;
                    tasks.push(tokio::spawn(db.run(move |db| put(db, key)?.wait())));
                    let (begun, released) = (begun.clone(), Arc::clone(&released));
                    tasks.push(tokio::spawn(db.run(move |_| {
                        begun.send(()).expect("somebody listens");
                        drop(released.lock().map(|released| released.recv()));
                        Ok::<_, Error>(())
                    })));
                }
                for task in tasks {
                    task.await.expect("no panic").expect("room");
                }
            });
            thread.join().expect("it commits");
        }
        db.close().expect("good devices");
    });
}

#[test]
fn futures_that_a_runtime_drops_lose_no_commit() {
    watched(|| {
        let folder = tempfile::tempdir().expect("a place for files");
        let db = create(&folder);
        let committed = Arc::new(AtomicU64::new(0));
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            for key in 0..200 {
                let committed = Arc::clone(&committed);
                let run = db.run(move |db| {
                    db.write(|txn| {
                        let mut rows = txn.open_table(ROWS)?;
                        (0..10).try_for_each(|part| rows.insert(key * 10 + part, key))
                    })?;
                    committed.fetch_add(1, Ordering::Relaxed);
                    Ok::<_, Error>(())
                });
                let limit = Duration::from_micros(key * 10);
                if let Ok(ran) = tokio::time::timeout(limit, run).await {
                    ran.expect("room");
                }
            }
        });
        drop(runtime);
        db.clone().close().expect("it waits for what has begun");
        drop(db);
        let db = Database::open(folder.path().join("db")).expect("closed");
        let keys = keys(&db);
        assert!(keys.len() as u64 >= committed.load(Ordering::Relaxed) * 10);
        for first in keys.iter().filter(|key| *key % 10 == 0) {
            assert!((0..10).all(|part| keys.contains(&(first + part))), "a part of {first}");
        }
        assert_eq!(keys.len() % 10, 0);
    });
}

#[test]
fn a_world_that_ends_answers_the_futures_of_its_closures() {
    watched(|| {
        let real = Real::new(1);
        let db = Database::builder().world(real.world()).create_in_memory().expect("memory");
        let (send, begun) = mpsc::channel();
        let run = db.run(move |_| {
            send.send(()).expect("somebody waits");
            terrace_rt::sleep(Nanos::from_secs(3600));
            Ok::<_, Error>(())
        });
        let waits = thread::spawn(move || block_on(run));
        begun.recv().expect("it begins");
        drop(real);
        assert!(matches!(waits.join().expect("no panic"), Err(Error::Closed)));
        // Its background has ended with the world, and cannot close it.
        std::mem::forget(db);
    });
}
