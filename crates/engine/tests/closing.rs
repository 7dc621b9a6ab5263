//! Closing with transactions open, and forks of the process.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use terrace::{Builder, Database, Devices, Durability, Error, Nanos, TableDef};
use terrace_device::model::{Preset, build};
use terrace_device::{Device, Keep, Store};
use terrace_rt::{Virtual, VirtualConfig};

const ROWS: TableDef<u64, u64> = TableDef::new("rows");
const PATIENCE: Duration = Duration::from_secs(60);
/// Forks of a process copy what its other threads hold: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn small() -> Builder {
    Database::builder().memory(1 << 20).home_size(16 << 20).log_size(4 << 20)
}

struct Case {
    _folder: tempfile::TempDir,
    path: PathBuf,
    db: Database,
    _alone: std::sync::MutexGuard<'static, ()>,
}

fn case(builder: Builder) -> Case {
    let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let db = builder.create(&path).expect("a new path");
    db.write(|txn| txn.open_table(ROWS)?.insert(1, 1)).expect("room");
    Case { _folder: folder, path, db, _alone: alone }
}

fn watched<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || done.send(run()).is_ok());
    ended.recv_timeout(PATIENCE).expect("it must neither hang nor fail")
}

fn is_closed<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Closed))
}

/// The bug: `close` returned Ok, an open transaction went on writing, and the file stayed locked.
#[test]
fn after_closing_nothing_is_written_and_the_files_are_free() {
    let case = case(small());
    let (db, path) = (case.db.clone(), case.path.clone());
    watched(move || {
        let open = db.begin_write().expect("open");
        open.open_table(ROWS).expect("there").insert(1, 2).expect("room");
        let reader = db.begin_read().expect("open");
        let begun = Instant::now();
        db.clone().close().expect("a good disk");
        // Its own transactions are not waited for: they could not end meanwhile.
        assert!(begun.elapsed() < Duration::from_secs(9));
        // What was open before is told.
        assert!(is_closed(open.open_table(ROWS).map(drop)));
        assert!(is_closed(open.savepoint()));
        assert!(is_closed(open.commit(Durability::Durable)));
        assert!(is_closed(reader.table_names()));
        assert!(is_closed(db.begin_write()) && is_closed(db.begin_read()));
        assert!(is_closed(db.check()) && is_closed(db.flush()));
        assert!(is_closed(db.checkpoint(terrace::Checkpoint::Sharp)));
        assert!(db.clone().close().is_ok());
        // The transaction and the handles are still there, and the files are free.
        let again = small().open(&path).expect("unlocked");
        let row = again.read(|txn| txn.open_table(ROWS)?.get(1)).expect("readable");
        assert_eq!(row.expect("there").value(), 1);
        again.check().expect("sound");
        again.write(|txn| txn.open_table(ROWS)?.insert(1, 3)).expect("room");
        drop((open_is_gone(), reader, db));
        again.close().expect("what was left has touched nothing");
    });
    let again = small().open(&case.path).expect("unlocked");
    let row = again.read(|txn| txn.open_table(ROWS)?.get(1)).expect("readable");
    assert_eq!(row.expect("there").value(), 3);
}

/// `commit` took it.
fn open_is_gone() {}

#[test]
fn closing_waits_for_the_transactions_of_others_and_refuses_new_ones() {
    let case = case(small());
    let (db, path) = (case.db.clone(), case.path.clone());
    watched(move || {
        let (begun, begin) = mpsc::channel();
        let (writes, writer_db) = (Arc::new(AtomicBool::new(false)), db.clone());
        let wrote = Arc::clone(&writes);
        let writer = thread::spawn(move || {
            let txn = writer_db.begin_write().expect("open");
            txn.open_table(ROWS).expect("there").insert(1, 2).expect("room");
            begun.send(()).expect("somebody waits");
            while writer_db.begin_read().is_ok() {
                thread::sleep(Duration::from_millis(1));
            }
            // Closing has begun: this one may still end.
            txn.open_table(ROWS).expect("there").insert(2, 2).expect("room");
            wrote.store(true, Ordering::Release);
            txn.commit(Durability::Durable)
        });
        begin.recv().expect("it begins");
        db.close().expect("a good disk");
        assert!(writes.load(Ordering::Acquire), "it was waited for");
        writer.join().expect("no panic").expect("committed before the end");
        let again = small().open(&path).expect("unlocked");
        let sum = again.read(|txn| {
            let rows = txn.open_table(ROWS)?;
            rows.range(..)?.try_fold(0, |sum, row| Ok::<_, Error>(sum + row?.value()))
        });
        assert_eq!(sum.expect("readable"), 4);
    });
}

/// The bug: a transaction that was dropped while the database was being closed gave up its locks
/// with its changes in place. Others, in the middle of an operation, got them, and logged changes
/// of the same rows. Recovery undid them in any order: "an undo does not fit its record", at every
/// opening.
#[test]
fn a_transaction_dropped_while_closing_lets_nobody_change_its_rows_first() {
    const TEXTS: TableDef<u64, &[u8]> = TableDef::new("texts");
    const BULK: TableDef<u64, &[u8]> = TableDef::new("bulk");
    const WAITERS: u64 = 8;
    let builder = small().memory(32 << 20).home_size(64 << 20).log_size(64 << 20);
    let case = case(builder.close_timeout(Nanos::from_millis(100)));
    let (db, path) = (case.db.clone(), case.path.clone());
    watched(move || {
        // The last checkpoint has much to write: meanwhile the log takes records.
        for first in (0..8_000).step_by(500) {
            db.write_with(Durability::None, |txn| {
                let mut bulk = txn.open_table(BULK)?;
                (first..first + 500).try_for_each(|row| bulk.insert(row, &[7; 1_500]))
            })
            .expect("room");
        }
        db.write(|txn| {
            let mut texts = txn.open_table(TEXTS)?;
            (0..WAITERS).try_for_each(|row| texts.insert(row, b"committed"))
        })
        .expect("room");
        let (begun, begin) = mpsc::channel();
        let waiter = |row| {
            let (db, begun) = (db.clone(), begun.clone());
            let (go, gone) = mpsc::channel();
            let run = move || {
                let txn = db.begin_write().expect("open");
                // Their numbers are below that of the one that they wait for.
                txn.open_table(TEXTS).expect("there").insert(100 + row, b"x").expect("room");
                begun.send(()).expect("somebody waits");
                gone.recv().expect("it is told");
                let put =
                    txn.open_table(TEXTS).and_then(|mut texts| texts.insert(row, b"too late!"));
                (put, txn.commit(Durability::Durable))
            };
            (go, thread::spawn(run))
        };
        let waiters: Vec<_> = (0..WAITERS).map(waiter).collect();
        waiters.iter().for_each(|_| begin.recv().expect("it begins"));
        let holder_db = db.clone();
        let holder = thread::spawn(move || {
            let txn = holder_db.begin_write().expect("open");
            let mut texts = txn.open_table(TEXTS).expect("there");
            (0..WAITERS).for_each(|row| texts.insert(row, b"unwritten").expect("room"));
            begun.send(()).expect("somebody waits");
            while txn.open_table(TEXTS).is_ok() {
                thread::yield_now();
            }
        });
        begin.recv().expect("it begins");
        waiters.iter().for_each(|(go, _)| go.send(()).expect("it waits"));
        db.close().expect("a good disk");
        holder.join().expect("no panic");
        for (_, waiter) in waiters {
            let (put, committed) = waiter.join().expect("no panic");
            assert!(put.is_err() && committed.is_err(), "{put:?}, {committed:?}");
        }
        let again = small().open(&path).expect("undone");
        let texts = again.read(|txn| {
            let texts = txn.open_table(TEXTS)?;
            texts.range(..)?.map(|entry| Ok(entry?.value().to_vec())).collect::<Result<Vec<_>, _>>()
        });
        let expected = vec![b"committed".to_vec(); WAITERS as usize];
        assert_eq!(texts.map_err(|error: Error| error.to_string()), Ok(expected));
        again.check().expect("sound");
        again.close().expect("a good disk");
    });
}

#[test]
fn closing_ends_the_transactions_that_stay_open_too_long() {
    let case = case(small().close_timeout(Nanos::from_millis(50)));
    let (db, path) = (case.db.clone(), case.path.clone());
    watched(move || {
        let (begun, begin) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let writer_db = db.clone();
        let writer = thread::spawn(move || {
            let txn = writer_db.begin_write().expect("open");
            txn.open_table(ROWS).expect("there").insert(1, 2).expect("room");
            begun.send(()).expect("somebody waits");
            ended.recv().expect("it is told");
            txn.commit(Durability::Durable)
        });
        begin.recv().expect("it begins");
        db.close().expect("a good disk");
        end.send(()).expect("it waits");
        assert!(is_closed(writer.join().expect("no panic")));
        let again = small().open(&path).expect("unlocked");
        let row = again.read(|txn| txn.open_table(ROWS)?.get(1)).expect("readable");
        assert_eq!(row.expect("there").value(), 1);
    });
}

/// What a future gives at once.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// The bug: a child wrote through the engine of its parent, and its commit was lost.
#[test]
fn a_fork_of_the_process_is_refused_and_changes_nothing() {
    let case = case(small());
    let db = case.db.clone();
    let opener = std::process::id();
    let refused = |error: Option<Error>| match error {
        Some(Error::Forked { pid }) => pid == opener,
        _ => false,
    };
    let txn = db.begin_write().expect("open");
    txn.open_table(ROWS).expect("there").insert(1, 2).expect("room");
    let mut carried = Some((txn, db.clone()));
    // In memory only: the child is not to force it.
    let later = TableDef::<u64, u64>::new("later");
    db.write_with(Durability::None, |txn| txn.open_table(later)?.insert(3, 3)).expect("room");
    let failed = terrace_rt::in_fork(|| {
        let (txn, db) = carried.take().expect("copied");
        let told = [
            refused(db.begin_write().err()),
            refused(db.begin_read().err()),
            refused(db.write(|txn| txn.open_table(ROWS)?.insert(9, 9)).err()),
            refused(db.flush().err()),
            refused(db.durable().wait().err()),
            refused(poll_once(&mut db.durable()).and_then(Result::err)),
            refused(db.check().err()),
            refused(db.checkpoint(terrace::Checkpoint::Sharp).err()),
            refused(txn.open_table(ROWS).map(drop).err()),
            refused(txn.commit(Durability::Durable).err()),
            refused(db.close().err()),
        ];
        told.iter().position(|told| !told).map_or(0, |at| at as u8 + 1)
    });
    assert_eq!(failed, 0, "the call of this number was not refused");
    let (txn, db) = carried.take().expect("the parent has it");
    txn.commit(Durability::Durable).expect("the parent goes on");
    drop(db);
    assert!(matches!(small().open(&case.path), Err(Error::AlreadyOpen { .. })), "still locked");
    let row = case.db.read(|txn| txn.open_table(ROWS)?.get(1)).expect("readable");
    assert_eq!(row.expect("there").value(), 2);
    case.db.check().expect("sound");
}

/// Dropping the engine in a fork writes nothing, unlocks nothing, and waits for nothing.
#[test]
fn a_fork_that_drops_everything_changes_nothing() {
    let case = case(small());
    let mut carried = Some(case.db.clone());
    let mut held = Some(case.db.begin_write().expect("open"));
    let code = terrace_rt::in_fork(|| {
        drop((held.take(), carried.take()));
        0
    });
    assert_eq!(code, 0);
    drop((held, carried));
    assert!(matches!(small().open(&case.path), Err(Error::AlreadyOpen { .. })), "still locked");
    case.db.write(|txn| txn.open_table(ROWS)?.insert(1, 5)).expect("the parent goes on");
    case.db.clone().close().expect("a good disk");
    let again = small().open(&case.path).expect("unlocked");
    assert_eq!(again.check().expect("sound").entries, 2);
}

/// The bug: the child waited for threads that its parent alone has, and so for ever.
#[test]
fn a_fork_of_a_process_that_has_used_a_database_opens_its_own() {
    let case = case(small());
    case.db.clone().close().expect("a good disk");
    let folder = case.path.parent().expect("a folder");
    let use_own = |name: &str| {
        let path = folder.join(name);
        let db = small().create(&path).expect("a new path");
        for key in 0..200 {
            db.write(|txn| txn.open_table(ROWS)?.insert(key, key)).expect("room");
        }
        db.close().expect("a good disk");
        let db = small().open(&path).expect("unlocked");
        db.check().expect("sound").entries > 200
    };
    let code = terrace_rt::in_fork(|| {
        let own = use_own("the child's");
        let parents = small().open(&case.path).expect("the parent has closed it");
        parents.write(|txn| txn.open_table(ROWS)?.insert(1, 6)).expect("room");
        parents.close().expect("a good disk");
        let below = terrace_rt::in_fork(|| u8::from(use_own("its child's")));
        u8::from(own) + below
    });
    assert_eq!(code, 2);
    assert!(use_own("the parent's"));
    let again = small().open(&case.path).expect("unlocked");
    let row = again.read(|txn| txn.open_table(ROWS)?.get(1)).expect("readable");
    assert_eq!(row.expect("there").value(), 6);
}

/// The bug: what was removed just before was still being reclaimed, and left its transaction open:
/// `close` returned Ok, and the next opening had to recover.
#[test]
fn a_database_that_reclaims_as_it_is_closed_is_closed_in_good_order() {
    const VALUES: TableDef<u64, &[u8]> = TableDef::new("values");
    for pause in 0..40 {
        let config = VirtualConfig { seed: pause, switch_one_in: 5, ..VirtualConfig::default() };
        let world = Virtual::new(config);
        let device = |bytes: u64| -> Arc<dyn Device> {
            build(Preset::Nvme, world.world(), Store::new(bytes, Keep::Plain))
        };
        let devices = Devices { home: device(64 << 20), flash: None, log: device(16 << 20) };
        let open = || {
            let builder = Database::builder().memory(1 << 20).devices(devices.clone());
            builder.open_or_create_on_devices().expect("good devices")
        };
        let work = || {
            let db = open();
            let large = vec![7; 200_000];
            let fill = |txn: &terrace::WriteTransaction| {
                let (mut values, mut rows) = (txn.open_table(VALUES)?, txn.open_table(ROWS)?);
                (0..8).try_for_each(|key| values.insert(key, &large))?;
                (0..1_500).try_for_each(|key| rows.insert(key, key))
            };
            db.write(fill).expect("room");
            let empty = |txn: &terrace::WriteTransaction| {
                let (mut values, mut rows) = (txn.open_table(VALUES)?, txn.open_table(ROWS)?);
                (0..8).try_for_each(|key| values.remove(key).map(drop))?;
                (0..1_500).try_for_each(|key| rows.remove(key).map(drop))
            };
            db.write_with(Durability::Buffered, empty).expect("room");
            if pause % 3 == 0 {
                db.write_with(Durability::Buffered, |txn| txn.delete_table("values"))
                    .expect("room");
            }
            terrace_rt::sleep(Nanos(pause * 150_000));
            db.close().expect("good devices");
            let db = open();
            assert!(db.was_closed(), "after a pause of {} us", pause * 150);
            db.check().expect("whole");
        };
        world.run(work).expect("nobody waits for ever");
    }
}
