//! Locks through the public API: what a scan has seen stays, with OS threads too; waits end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use terrace::{Database, Devices, Durability, Error, LockWait, Nanos, TableDef, World};
use terrace_device::model::{Preset, build};
use terrace_device::{Device, Keep, Store};
use terrace_rt::{Prng, Virtual, VirtualConfig};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");

fn database() -> Database {
    let memory = |bytes: u64| -> Arc<dyn Device> {
        build(Preset::Ram, World::current(), Store::new(bytes, Keep::Plain))
    };
    let devices = Devices { home: memory(64 << 20), flash: None, log: memory(16 << 20) };
    let builder = Database::builder().memory(4 << 20).devices(devices);
    builder.create_on_devices().expect("memory is there")
}

fn file_database(dir: &tempfile::TempDir) -> Database {
    let builder = Database::builder().memory(4 << 20).home_size(64 << 20).log_size(32 << 20);
    builder.create(dir.path().join("locks.terrace")).expect("room")
}

fn in_world<T>(seed: u64, run: impl FnOnce() -> T) -> T {
    let config = VirtualConfig { seed, switch_one_in: 3, cores: 1, stack_bytes: 256 << 10 };
    Virtual::new(config).run(run).expect("nobody waits for ever")
}

/// Keys that are there from the start, ten per leaf, so that most gaps between leaves are seen.
fn fill(db: &Database, rows: u64) {
    db.write_with(Durability::None, |txn| {
        let mut table = txn.open_table(ROWS)?;
        (0..rows).try_for_each(|row| table.insert(row * 1_000, &[7; 700]))
    })
    .expect("room");
}

/// Counts a range twice in one transaction: in between, no other transaction may have put a row
/// there.
fn count_twice(db: &Database, from: u64, to: u64) {
    let counts = db.read(|txn| {
        let table = txn.open_table(ROWS)?;
        let count = || table.range(from..to)?.try_fold(0u64, |count, row| row.map(|_| count + 1));
        Ok::<_, Error>((count()?, count()?))
    });
    let (first, second) = counts.expect("readable");
    assert_eq!(first, second, "a row came into {from}..{to} after it was counted");
}

/// The bug: a scan let a leaf go before it had locked the gap in front of the next leaf's first
/// key, and rows came into that gap behind it.
#[test]
fn no_row_comes_in_between_two_leaves() {
    for seed in 0..20 {
        in_world(seed, || {
            let db = database();
            fill(&db, 100);
            let tasks: Vec<_> = (0..6)
                .map(|task| {
                    let db = db.clone();
                    World::current().spawn("client", move || {
                        let mut prng = Prng::from_seed(seed * 10 + task);
                        for _ in 0..60 {
                            step(&db, &mut prng, task % 2 == 0);
                        }
                    })
                })
                .collect();
            tasks.into_iter().for_each(terrace_rt::Task::join);
            db.check().expect("whole");
            db.close().expect("memory");
        });
    }
}

fn step(db: &Database, prng: &mut Prng, reads: bool) {
    if reads {
        let from = prng.below(80_000);
        return count_twice(db, from, from + 30_000);
    }
    let row = prng.below(100) * 1_000 + 1 + prng.below(999);
    let removes = prng.below(2) == 0;
    let written = db.write_with(Durability::None, |txn| {
        let mut table = txn.open_table(ROWS)?;
        if removes { table.remove(row).map(|_| ()) } else { table.insert(row, &[1; 300]) }
    });
    written.expect("room");
}

/// Runs `work` in OS threads for a while; a watchdog prints the waiting transactions if none
/// proceeds.
fn with_threads(db: &Database, threads: u64, work: impl Fn(&mut Prng, u64) + Send + Sync) {
    const SPAN: Duration = Duration::from_secs(2);
    let (stop, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..threads {
            let (work, stop, steps) = (&work, &stop, &steps);
            scope.spawn(move || {
                let mut prng = Prng::from_seed(thread);
                while !stop.load(Ordering::Relaxed) {
                    work(&mut prng, thread);
                    steps.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let began = Instant::now();
        let (mut seen, mut since) = (0, began);
        while began.elapsed() < SPAN {
            thread::sleep(Duration::from_millis(20));
            let now = steps.load(Ordering::Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() > Duration::from_secs(60) {
                eprintln!("threads stand still:\n{}", db.debug_waits());
                std::process::abort();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(steps.load(Ordering::Relaxed) > 0);
}

/// As `no_row_comes_in_between_two_leaves`, with OS threads.
#[test]
fn no_row_comes_in_between_two_leaves_with_threads() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = file_database(&dir);
    fill(&db, 100);
    with_threads(&db, 4, |prng, thread| step(&db, prng, thread % 2 == 0));
    db.check().expect("whole");
    db.close().expect("room");
}

/// The bug: waits for locks had no end.
#[test]
fn a_lock_that_stays_is_told_with_table_key_and_holder() {
    in_world(1, || {
        let db = database();
        fill(&db, 3);
        let holder = db.begin_write().expect("open");
        holder.open_table(ROWS).expect("there").insert(1_000, b"mine").expect("room");
        let shared = db.clone();
        let waiter = terrace_rt::spawn("waiter", move || {
            let waiter = shared.begin_write().expect("open");
            waiter.set_lock_timeout(Nanos::from_millis(20));
            let refused = waiter.open_table(ROWS).expect("there").insert(1_000, b"mine, too");
            let Err(Error::LockTimeout(wait)) = refused else { panic!("{refused:?}") };
            waiter.rollback().expect("undone");
            check_wait(wait);
        });
        waiter.join();
        holder.commit(Durability::None).expect("room");
        db.close().expect("memory");
    });
}

fn check_wait(wait: Box<LockWait>) {
    assert_eq!((&*wait.table, wait.waited), ("rows", Nanos::from_millis(20)));
    assert_eq!(wait.key.as_deref(), Some(&1_000u64.to_be_bytes()[..]));
    assert!(wait.holder.is_some());
    let told = Error::LockTimeout(wait).to_string();
    assert!(told.contains("key 1000 of table \"rows\""), "{told}");
}

/// The bug: messages had "tree 0" for the catalog, hashes for keys, and of a reader that holds the
/// lock neither its number nor that it reads.
#[test]
fn waits_are_told_in_the_users_terms() {
    const PAIRS: TableDef<(u64, &str), u64> = TableDef::new("pairs");
    in_world(1, || {
        let db = database();
        db.write(|txn| txn.open_table(PAIRS)?.insert((7, "x"), 1)).expect("room");
        let reader = db.begin_write().expect("open");
        reader.open_table(PAIRS).expect("there").get((7, "x")).expect("readable");
        let maker = db.begin_write().expect("open");
        maker.open_table(TableDef::<u64, u64>::new("new")).expect("room");
        let wait = |work: fn(&terrace::WriteTransaction) -> Result<(), Error>| {
            let shared = db.clone();
            let waiter = terrace_rt::spawn("waiter", move || {
                let waiter = shared.begin_write().expect("open");
                waiter.set_lock_timeout(Nanos::from_millis(20));
                let id = waiter.id();
                assert_eq!(id, waiter.id());
                let error = work(&waiter).expect_err("others are in the way");
                drop(waiter);
                SEEN.lock().expect("no panic").push((id, error));
            });
            terrace_rt::sleep(Nanos::from_millis(10));
            let waits = db.debug_waits();
            waiter.join();
            let (id, error) = SEEN.lock().expect("no panic").pop().expect("one");
            (waits, id, error)
        };
        let (waits, id, error) = wait(|txn| txn.open_table(PAIRS)?.insert((7, "x"), 2));
        let told = error.to_string();
        let expected =
            format!("the lock of key (7, \"x\") of table \"pairs\" is held by {}, ", reader.id());
        assert!(told.starts_with(&expected), "{told}");
        let lines = format!(
            "{id} waits for the lock of key (7, \"x\") of table \"pairs\", behind {0}\n    \
             {0} holds S\n    {id} waits for X\n",
            reader.id()
        );
        assert_eq!(waits, lines);
        let (waits, _, error) = wait(|txn| txn.table_names().map(drop));
        let expected = format!("the lock of the catalog of tables is held by {}, ", maker.id());
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert!(waits.contains(" holds IX on the table\n"), "{waits}");
        assert!(waits.contains(" waits for S on the table\n"), "{waits}");
        let (_, _, error) = wait(|txn| txn.open_table(TableDef::<u64, u64>::new("new")).map(drop));
        let expected =
            "the lock of the name \"new\" in the catalog of tables is held by transaction ";
        assert!(error.to_string().starts_with(expected), "{error}");
    });
}

static SEEN: std::sync::Mutex<Vec<(terrace::TransactionId, Error)>> =
    std::sync::Mutex::new(Vec::new());

/// Rows pushed at one end and popped at the other, so that a bounded number is there.
const QUEUE: TableDef<u64, &[u8]> = TableDef::new("queue");
const LIVE: u64 = 60;

/// Pushes row `next`, and pops the first one if there are more than `LIVE`.
fn push_and_pop(db: &Database, next: u64) {
    let moved = db.write_with(Durability::None, |txn| {
        let mut queue = txn.open_table(QUEUE)?;
        queue.insert(next, &[3; 100])?;
        if next >= LIVE {
            let popped = queue.pop_first(..)?.expect("some are there");
            assert_eq!(popped.key(), next - LIVE, "the first one, and each once");
        }
        Ok::<_, Error>(())
    });
    moved.expect("room");
}

/// The bug: the leaves that a queue has emptied stayed for ever, 2,000 pages after 50,000 rounds,
/// and `first` went through all of them.
#[test]
fn a_queue_stays_as_small_as_what_is_in_it() {
    in_world(1, || {
        let db = database();
        for next in 0..30_000 {
            push_and_pop(&db, next);
            if next % 500 == 0 {
                // The reclaim task runs when others wait, here only.
                terrace_rt::sleep(Nanos::from_millis(1));
                let pages = db.stats().home_used_bytes / 8192;
                assert!(pages < 40, "{pages} pages after {next} rounds");
            }
        }
        let small = (0..1_000).find_map(|_| {
            terrace_rt::sleep(Nanos::from_millis(1));
            db.check().ok().filter(|report| report.pages < 15 && report.entries <= LIVE + 3)
        });
        assert!(small.is_some(), "{:?}", db.check());
        db.close().expect("memory");
    });
}

/// As `a_queue_stays_as_small_as_what_is_in_it`, with the reclaim task beside OS threads that push
/// and pop at queues of their own, and one that looks at their first rows.
#[test]
fn queues_stay_small_with_threads() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = file_database(&dir);
    let rounds: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
    with_threads(&db, 4, |_, thread| {
        if thread == 3 {
            let first = db.read(|txn| match txn.open_table(ROWS) {
                Ok(rows) => rows.first().map(|_| ()),
                Err(_) => Ok(()),
            });
            return first.expect("readable");
        }
        let next = rounds[thread as usize].fetch_add(1, Ordering::Relaxed);
        let at = (thread << 40) + next;
        let moved = db.write_with(Durability::None, |txn| {
            let mut queue = txn.open_table(ROWS)?;
            queue.insert(at, &[3; 100])?;
            if next >= LIVE {
                let popped = queue.pop_first(thread << 40..)?.expect("some are there");
                assert_eq!(popped.key(), at - LIVE);
            }
            Ok::<_, Error>(())
        });
        moved.expect("room");
    });
    let rounds: u64 = rounds.iter().map(|rounds| rounds.load(Ordering::Relaxed)).sum();
    let began = Instant::now();
    // What takes 1.5 times the live data and 1 MiB, once the task has had its turn.
    while db.stats().home_used_bytes > (1 << 20) {
        assert!(began.elapsed() < Duration::from_secs(60), "{} bytes", db.stats().home_used_bytes);
        thread::sleep(Duration::from_millis(5));
    }
    println!("{rounds} rounds");
    db.check().expect("whole");
    db.close().expect("room");
}
