//! Panics of the code above the engine: the transaction is rolled back, its locks go, and all
//! others go on, in tasks of both worlds and in foreign threads.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use terrace::{Database, Devices, Error, TableDef, World, WriteTransaction};
use terrace_device::model::{Preset, build};
use terrace_device::{Device, Keep, Store};
use terrace_rt::{Virtual, VirtualConfig};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const ACCOUNTS: u64 = 40;
/// Nothing here takes as long, unless it waits for ever.
const PATIENCE: Duration = Duration::from_secs(60);

fn database() -> Database {
    let memory = |bytes: u64| -> Arc<dyn Device> {
        build(Preset::Ram, World::current(), Store::new(bytes, Keep::Plain))
    };
    let devices = Devices { home: memory(32 << 20), flash: None, log: memory(16 << 20) };
    let builder = Database::builder().memory(1 << 20).devices(devices);
    let db = builder.create_on_devices().expect("memory is there");
    db.write(|txn| {
        let mut rows = txn.open_table(ROWS)?;
        (0..ACCOUNTS).try_for_each(|row| rows.insert(row, &100u64.to_le_bytes()))
    })
    .expect("room");
    db
}

/// A database in files: its commits wait for real devices, on executors.
fn file_database(folder: &tempfile::TempDir) -> Database {
    let builder = Database::builder().memory(1 << 20).home_size(32 << 20).log_size(16 << 20);
    let db = builder.create(folder.path().join("db")).expect("a new path");
    db.write(|txn| {
        let mut rows = txn.open_table(ROWS)?;
        (0..ACCOUNTS).try_for_each(|row| rows.insert(row, &100u64.to_le_bytes()))
    })
    .expect("room");
    db
}

/// Runs `run` in a thread of its own; fails if it has not returned in time.
fn watched<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || done.send(run()).is_ok());
    ended.recv_timeout(PATIENCE).expect("it must neither hang nor fail")
}

fn balance(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// Moves one from an account to another, and panics half way if `breaks`.
fn transfer(txn: &WriteTransaction, from: u64, to: u64, breaks: bool) -> Result<(), Error> {
    let mut rows = txn.open_table(ROWS)?;
    let (mut out, mut into) = (Vec::new(), Vec::new());
    assert!(rows.get_into_for_update(from, &mut out)?);
    rows.insert(from, &(balance(&out) - 1).to_le_bytes())?;
    if breaks {
        panic!("by order of the test");
    }
    assert!(rows.get_into_for_update(to, &mut into)?);
    rows.insert(to, &(balance(&into) + 1).to_le_bytes())
}

fn total(db: &Database) -> u64 {
    let sum = db.read(|txn| {
        let rows = txn.open_table(ROWS)?;
        rows.range(..)?.try_fold(0, |sum, row| Ok::<_, Error>(sum + balance(row?.value())))
    });
    sum.expect("readable")
}

/// What a client does: transfers, some of which panic, until there were `rounds`.
fn client(db: &Database, number: u64, rounds: u64, panics: &AtomicU64) {
    let mut x = number * 7919 + 17;
    for _ in 0..rounds {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let (from, breaks) = (x % ACCOUNTS, x.is_multiple_of(7));
        let to = (from + 1 + (x >> 20) % (ACCOUNTS - 1)) % ACCOUNTS;
        let run = || db.write(|txn| transfer(txn, from, to, breaks));
        match panic::catch_unwind(AssertUnwindSafe(run)) {
            Ok(done) => done.expect("it may run again"),
            Err(payload) => {
                assert_eq!(payload.downcast_ref(), Some(&"by order of the test"));
                panics.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The bug: the destructor of the transaction waited without switching tasks, for what other tasks
/// of its executor had to do: all of them stood still.
#[test]
fn a_panic_in_a_task_stops_no_other_task_of_its_executor() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = file_database(&folder);
    let panics = Arc::new(AtomicU64::new(0));
    let (watched_db, counted) = (db.clone(), Arc::clone(&panics));
    watched(move || {
        let start = |number| {
            let (db, panics) = (watched_db.clone(), Arc::clone(&counted));
            World::current().spawn("client", move || client(&db, number, 60, &panics))
        };
        let tasks: Vec<_> = (0..8).map(start).collect();
        tasks.into_iter().for_each(terrace_rt_join);
    });
    assert!(panics.load(Ordering::Relaxed) > 20, "{panics:?}");
    assert_eq!(total(&db), ACCOUNTS * 100);
    db.check().expect("sound");
    watched(move || db.close().expect("a good disk"));
}

fn terrace_rt_join(task: terrace_rt::Task) {
    task.join();
}

#[test]
fn a_panic_in_a_foreign_thread_rolls_its_transaction_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = file_database(&folder);
    let panics = Arc::new(AtomicU64::new(0));
    let (watched_db, counted) = (db.clone(), Arc::clone(&panics));
    watched(move || {
        let start = |number| {
            let (db, panics) = (watched_db.clone(), Arc::clone(&counted));
            thread::spawn(move || client(&db, number, 60, &panics))
        };
        let threads: Vec<_> = (0..4).map(start).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it catches"));
    });
    assert!(panics.load(Ordering::Relaxed) > 10, "{panics:?}");
    assert_eq!(total(&db), ACCOUNTS * 100);
    db.check().expect("sound");
    watched(move || db.close().expect("a good disk"));
}

#[test]
fn a_panic_in_a_task_of_a_virtual_world_rolls_its_transaction_back() {
    for seed in 0..20 {
        let config = VirtualConfig { seed, switch_one_in: 3, cores: 1, stack_bytes: 256 << 10 };
        let ran = Virtual::new(config).run(|| {
            let (db, panics) = (database(), Arc::new(AtomicU64::new(0)));
            let start = |number| {
                let (db, panics) = (db.clone(), Arc::clone(&panics));
                terrace_rt::spawn("client", move || client(&db, seed * 8 + number, 20, &panics))
            };
            let tasks: Vec<_> = (0..4).map(start).collect();
            tasks.into_iter().for_each(terrace_rt_join);
            assert!(panics.load(Ordering::Relaxed) > 0);
            assert_eq!(total(&db), ACCOUNTS * 100);
            db.check().expect("sound");
            db.close().expect("memory");
        });
        ran.expect("nobody waits for ever");
    }
}

/// An uncaught panic ends its task: joining the task returns it, and all other tasks go on.
#[test]
fn a_joiner_gets_the_panic_and_the_locks_are_free() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = file_database(&folder);
    let inner = db.clone();
    let joined = watched(move || {
        let task = World::current().spawn("client", move || {
            let txn = inner.begin_write().expect("open");
            transfer(&txn, 1, 2, true).expect("it panics before");
        });
        panic::catch_unwind(AssertUnwindSafe(|| task.join()))
            .map_err(|payload| payload.downcast_ref::<&str>().map(|said| said.to_string()))
    });
    assert_eq!(joined, Err(Some("by order of the test".to_string())));
    assert_eq!(total(&db), ACCOUNTS * 100);
    let again = db.clone();
    watched(move || again.write(|txn| transfer(txn, 1, 2, false)).expect("the locks are free"));
}

/// The last handle of a database goes in a task that panics: it is closed all the same.
#[test]
fn a_database_dropped_by_a_panic_can_be_opened_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = file_database(&folder);
    let task = World::current().spawn("owner", move || {
        let txn = db.begin_write().expect("open");
        transfer(&txn, 1, 2, true).expect("it panics before");
    });
    assert!(panic::catch_unwind(AssertUnwindSafe(|| task.join())).is_err());
    let path = folder.path().join("db");
    let db = watched(move || {
        loop {
            match Database::builder().memory(1 << 20).open(&path) {
                // The task that closes it may not have finished.
                Err(Error::AlreadyOpen { .. }) => thread::sleep(Duration::from_millis(5)),
                opened => return opened.expect("whole"),
            }
        }
    });
    assert_eq!(total(&db), ACCOUNTS * 100);
}

#[test]
fn a_panic_in_the_closure_of_modify_changes_nothing() {
    let db = database();
    let shared = db.clone();
    watched(move || {
        let run = || {
            shared.write(|txn| {
                let (mut rows, mut row) = (txn.open_table(ROWS)?, Vec::new());
                rows.modify(3, &mut row, |row| -> Result<(), Error> {
                    row.fill(7);
                    panic!("half way");
                })
            })
        };
        assert!(panic::catch_unwind(AssertUnwindSafe(run)).is_err());
        shared.write(|txn| transfer(txn, 3, 4, false)).expect("page and row are free");
    });
    assert_eq!(total(&db), ACCOUNTS * 100);
    db.check().expect("sound");
}

/// A panic between two operations leaves the transaction usable if it is caught within.
#[test]
fn a_panic_caught_within_the_transaction_leaves_it_as_it_was() {
    let db = database();
    db.write(|txn| {
        let mut rows = txn.open_table(ROWS)?;
        rows.insert(1_000, b"kept")?;
        let caught = panic::catch_unwind(AssertUnwindSafe(|| {
            let mut row = Vec::new();
            rows.modify(1_000, &mut row, |_| -> Result<(), Error> { panic!("within") })
        }));
        assert!(caught.is_err());
        assert_eq!(rows.get(1_000)?.expect("it is there").value(), b"kept");
        rows.insert(1_001, b"too")
    })
    .expect("it goes on");
    let found = db.read(|txn| txn.open_table(ROWS)?.contains(1_001));
    assert!(found.expect("readable"));
}

/// A destructor that uses the database while its task panics gets an error, and does not wait.
#[test]
fn a_destructor_in_a_panicking_task_is_refused_not_held() {
    struct Last(Database, Arc<AtomicBool>);
    impl Drop for Last {
        fn drop(&mut self) {
            let refused = self.0.write(|txn| txn.open_table(ROWS)?.insert(5_000, b"late"));
            self.1.store(matches!(refused, Err(Error::Closed)), Ordering::Relaxed);
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let db = file_database(&folder);
    let refused = Arc::new(AtomicBool::new(false));
    let last = Last(db.clone(), Arc::clone(&refused));
    watched(move || {
        let task = World::current().spawn("client", move || {
            let _last = last;
            panic!("by order of the test");
        });
        assert!(panic::catch_unwind(AssertUnwindSafe(|| task.join())).is_err());
    });
    assert!(refused.load(Ordering::Relaxed));
    assert_eq!(total(&db), ACCOUNTS * 100);
}
