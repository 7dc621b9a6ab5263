//! Code of callers that runs while the engine holds a page: what it asks of a database is refused
//! at once, in tasks and in threads, and the call around it goes on.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use terrace::{
    Checkpoint, Database, Durability, Error, PageEvent, PageId, PageObserver, TableDef, Value,
    World,
};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const OTHERS: TableDef<u64, &[u8]> = TableDef::new("others");
/// Nothing here takes as long, unless it waits for ever.
const PATIENCE: Duration = Duration::from_secs(60);

fn watched<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || done.send(run()).is_ok());
    ended.recv_timeout(PATIENCE).expect("it must neither hang nor fail")
}

/// Ten rows on one leaf, in each of two tables.
fn database() -> (tempfile::TempDir, Database) {
    let folder = tempfile::tempdir().expect("a folder");
    let builder = Database::builder().memory(1 << 20).home_size(16 << 20).log_size(4 << 20);
    let db = builder.create(folder.path().join("db")).expect("a new path");
    db.write(|txn| {
        let (mut rows, mut others) = (txn.open_table(ROWS)?, txn.open_table(OTHERS)?);
        (0..10).try_for_each(|row| rows.insert(row, b"old").and_then(|()| others.insert(row, b"")))
    })
    .expect("room");
    (folder, db)
}

fn value(db: &Database, row: u64) -> Vec<u8> {
    let found = db.read(|txn| txn.open_table(ROWS)?.get(row)).expect("readable");
    found.expect("there").bytes().to_vec()
}

/// Runs `inside` in the closure of a `modify` of row 5, which must succeed all the same.
fn inside(db: &Database, inside: impl FnOnce()) {
    let (inside, mut row) = (RefCell::new(Some(inside)), Vec::new());
    db.write(|txn| {
        txn.open_table(ROWS)?.modify(5, &mut row, |row| {
            inside.borrow_mut().take().expect("run once")();
            row.splice(.., *b"new");
            Ok::<_, Error>(())
        })
    })
    .expect("the outer transaction goes on");
    assert_eq!(value(db, 5), b"new");
    db.write(|txn| txn.open_table(ROWS)?.insert(5, b"old")).expect("no lock is left");
}

#[track_caller]
fn refused<T>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Reentrant)), "{:?}", result.map(|_| ()));
}

/// The bug: in the closure of `modify`, whatever needed its page or a checkpoint waited for ever.
#[test]
fn a_database_that_is_used_within_modify_refuses_at_once() {
    let (folder, db) = database();
    let all = move || {
        inside(&db, || refused(db.read(|txn| txn.open_table(ROWS)?.get(7))));
        inside(&db, || refused(db.write(|txn| txn.open_table(ROWS)?.insert(7, b"q"))));
        inside(&db, || refused(db.begin_read()));
        inside(&db, || refused(db.begin_write()));
        inside(&db, || refused(db.checkpoint(Checkpoint::Sharp)));
        inside(&db, || refused(db.checkpoint(Checkpoint::Indirect)));
        inside(&db, || refused(db.check()));
        inside(&db, || refused(db.flush()));
        inside(&db, || refused(db.clone().close()));
        inside(&db, || refused(Database::create(folder.path().join("other"))));
        inside(&db, || refused(Database::open(folder.path().join("db"))));
        db.check().expect("sound");
        (folder, db)
    };
    let (folder, db) = watched(all);
    // The same in a task of an executor.
    let task = move || {
        inside(&db, || refused(db.read(|txn| txn.open_table(ROWS)?.get(7))));
        inside(&db, || refused(db.checkpoint(Checkpoint::Sharp)));
        db.close().expect("a good disk");
        drop(folder);
    };
    watched(move || World::current().spawn("inside", task).join());
}

/// The bug: it panicked, since the transaction was borrowed.
#[test]
fn the_transaction_of_a_modify_refuses_what_its_closure_asks() {
    let (_folder, db) = database();
    watched(move || {
        let txn = db.begin_write().expect("open");
        let (mut rows, other) = (txn.open_table(ROWS).unwrap(), txn.open_table(ROWS).unwrap());
        let mut range = other.range(..).expect("sound");
        range.next().expect("ten rows").expect("readable");
        let found = rows.modify(5, &mut Vec::new(), |row| {
            refused(other.get(7));
            refused(other.contains(7));
            refused(other.first());
            refused(other.range(..).expect("nothing is read yet").next().expect("an error"));
            refused(txn.open_table(ROWS).and_then(|mut rows| rows.insert(8, b"q")));
            refused(txn.open_table(TableDef::<u64, u64>::new("none")));
            refused(txn.delete_table("others"));
            refused(txn.table_names());
            refused(txn.savepoint());
            refused(txn.bulk_load(TableDef::<u64, u64>::new("none")));
            row.splice(.., *b"new");
            Ok::<_, Error>(())
        });
        assert!(found.expect("nothing of it dooms the transaction"));
        assert_eq!(range.count(), 9);
        txn.commit(Durability::Buffered).expect("it was not doomed");
        assert_eq!((value(&db, 5), value(&db, 8)), (b"new".to_vec(), b"old".to_vec()));
    });
}

/// A transaction beside the one that modifies is refused, too; its end waits for nothing here.
#[test]
fn another_transaction_ends_within_modify_without_waiting() {
    let (_folder, db) = database();
    watched(move || {
        for commits in [false, true] {
            let beside = db.begin_write().expect("open");
            beside.open_table(ROWS).unwrap().insert(7, b"gone").expect("another row");
            inside(&db, || {
                refused(beside.open_table(ROWS).and_then(|rows| rows.get(7)));
                if commits {
                    refused(beside.commit(Durability::Durable));
                } else {
                    drop(beside);
                }
            });
            assert_eq!(value(&db, 7), b"old", "it was rolled back, and its locks went");
        }
    });
}

#[test]
fn the_last_handle_dropped_within_modify_closes_the_database() {
    let (folder, db) = database();
    let path = folder.path().join("db");
    let found = watched(move || {
        let txn = db.begin_write().expect("open");
        let last = RefCell::new(Some(db));
        let modified = txn.open_table(ROWS).unwrap().modify(5, &mut Vec::new(), |row| {
            drop(last.borrow_mut().take());
            row.splice(.., *b"new");
            Ok::<_, Error>(())
        });
        let committed = modified.and_then(|_| txn.commit(Durability::Durable));
        // Another task closes it, and is waited for here.
        let reopened = loop {
            match Database::open(&path) {
                Err(Error::AlreadyOpen { .. }) => thread::sleep(Duration::from_millis(5)),
                opened => break opened,
            }
        };
        (committed, reopened.map(|db| value(&db, 5)))
    });
    // Which one is first is not promised; that both end is.
    let (committed, reopened) = found;
    let row = reopened.expect("its files are free once it is closed");
    match committed {
        Ok(()) => assert_eq!(row, b"new"),
        Err(error) => {
            assert!(matches!(error, Error::Closed), "{error}");
            assert_eq!(row, b"old");
        }
    }
}

static ASKED: Mutex<Option<Database>> = Mutex::new(None);
static REFUSED: AtomicU64 = AtomicU64::new(0);

fn ask() {
    let Ok(Some(db)) = ASKED.try_lock().map(|asked| asked.clone()) else { return };
    if matches!(db.begin_read(), Err(Error::Reentrant)) {
        REFUSED.fetch_add(1, Ordering::Relaxed);
    }
}

struct Curious;

impl Value for Curious {
    type View<'a> = &'a [u8];
    fn type_name() -> String {
        "curious".into()
    }
    fn encode(view: &&[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(view);
    }
    fn decode(bytes: &[u8]) -> Option<&[u8]> {
        ask();
        Some(bytes)
    }
}

#[derive(Debug)]
struct Watcher;

impl PageObserver for Watcher {
    fn saw(&self, _page: PageId, _event: PageEvent) {
        ask();
    }
}

/// Other code of the caller that runs under a latch: the types of a table, and observers of pages.
#[test]
fn types_and_observers_that_use_the_database_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let builder = Database::builder().tune(|pool| pool.observer = Some(Arc::new(Watcher)));
    let builder = builder.memory(1 << 20).home_size(16 << 20);
    let db = builder.log_size(4 << 20).create(folder.path().join("db")).expect("a new path");
    watched(move || {
        let things = TableDef::<u64, Curious>::new("things");
        db.write(|txn| txn.open_table(things)?.insert(1, b"a")).expect("room");
        *ASKED.lock().expect("no panic") = Some(db.clone());
        db.checkpoint(Checkpoint::Sharp).expect("a good disk");
        let observed = REFUSED.swap(0, Ordering::Relaxed);
        assert!(observed > 0, "nothing was observed");
        let modify = |row: &mut Vec<u8>| {
            row.push(b'b');
            Ok::<_, Error>(())
        };
        db.write(|txn| txn.open_table(things)?.modify(1, &mut Vec::new(), modify)).expect("there");
        assert!(REFUSED.load(Ordering::Relaxed) > 0);
        *ASKED.lock().expect("no panic") = None;
        db.close().expect("a good disk");
    });
}

/// Takes only what has the length that it is told to.
struct Even;

impl Value for Even {
    type View<'v> = &'v [u8];

    fn type_name() -> String {
        <&[u8]>::type_name()
    }

    fn encode(value: &&[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(value);
    }

    fn decode(bytes: &[u8]) -> Option<&[u8]> {
        bytes.len().is_multiple_of(2).then_some(bytes)
    }
}

/// The bug: a value that its type refused was reported as a corrupt page, to be restored from a
/// backup.
#[test]
fn what_a_type_does_not_decode_is_told_with_its_table() {
    const EVEN: TableDef<u64, Even> = TableDef::new("rows");
    let (_folder, db) = database();
    let told = |error: Error| {
        let Error::Undecodable { table, type_name } = &error else { panic!("{error}") };
        assert_eq!((table.name(), type_name.ends_with("Even")), (Some("rows"), true), "{error}");
    };
    told(db.read(|txn| txn.open_table(EVEN)?.get(3).map(drop)).expect_err("three bytes"));
    told(db.read(|txn| txn.open_table(EVEN)?.first().map(drop)).expect_err("three bytes"));
    told(db.write(|txn| txn.open_table(EVEN)?.take(3).map(drop)).expect_err("three bytes"));
    db.write(|txn| txn.open_table(EVEN)?.insert(3, b"even")).expect("room");
    let read =
        db.read(|txn| Ok::<_, Error>(txn.open_table(EVEN)?.get(3)?.map(|v| v.bytes().len())));
    assert_eq!(read.expect("four bytes"), Some(4));
}
