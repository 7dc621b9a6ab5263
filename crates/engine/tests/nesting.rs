//! Transactions within transactions of one task or thread, and savepoints where they do not belong:
//! an error at once, never a hang.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use terrace::{Database, Durability, Error, SavepointFlaw, TableDef, World};

const ROWS: TableDef<u64, u64> = TableDef::new("rows");
const OTHERS: TableDef<u64, u64> = TableDef::new("others");
const PATIENCE: Duration = Duration::from_secs(60);

fn watched<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || done.send(run()).is_ok());
    ended.recv_timeout(PATIENCE).expect("it must neither hang nor fail")
}

/// A database with two tables of ten rows, and a lock timeout that no test waits for.
fn database() -> (tempfile::TempDir, Database) {
    let folder = tempfile::tempdir().expect("a folder");
    let builder = Database::builder().memory(1 << 20).home_size(16 << 20).log_size(4 << 20);
    let db = builder.create(folder.path().join("db")).expect("a new path");
    db.write(|txn| {
        let (mut rows, mut others) = (txn.open_table(ROWS)?, txn.open_table(OTHERS)?);
        (0..10).try_for_each(|row| rows.insert(row, row).and_then(|()| others.insert(row, row)))
    })
    .expect("room");
    (folder, db)
}

fn is_nested<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Nested(wait)) if !wait.table.is_empty())
}

/// The bug: `db.read` or `db.check` inside `db.write` on one thread waited for ever.
#[test]
fn a_read_within_a_write_of_the_same_thread_sees_what_was_committed() {
    let (_folder, db) = database();
    let inner = db.clone();
    watched(move || {
        let outer = inner.write(|txn| {
            txn.open_table(ROWS)?.insert(3, 33)?;
            let read = inner.read(|txn| txn.open_table(ROWS)?.get(3));
            assert_eq!(read?.expect("there").value(), 3);
            let written = inner.write(|txn| txn.open_table(ROWS)?.insert(3, 34));
            assert!(is_nested(written));
            assert!(is_nested(inner.check()));
            Ok::<_, Error>(())
        });
        outer.expect("the outer one goes on");
    });
    let found = db.read(|txn| txn.open_table(ROWS)?.get(3)).expect("readable");
    assert_eq!(found.expect("there").value(), 33);
}

/// The bug: `db.write` beside a transaction that the same thread holds waited for ever.
#[test]
fn a_write_beside_one_that_the_same_thread_holds_is_refused_at_once() {
    let (_folder, db) = database();
    watched(move || {
        let reader = db.begin_write().expect("open");
        let seen = reader.open_table(ROWS).and_then(|rows| rows.get(3)).expect("readable");
        assert_eq!(seen.expect("there").value(), 3);
        assert!(is_nested(db.write(|txn| txn.open_table(ROWS)?.insert(3, 33))));
        drop(reader);
        db.write(|txn| txn.open_table(ROWS)?.insert(3, 33)).expect("nobody is in the way");
    });
}

#[test]
fn transactions_of_one_thread_that_do_not_meet_go_on() {
    let (_folder, db) = database();
    watched(move || {
        let reader = db.begin_read().expect("open");
        assert_eq!(reader.open_table(ROWS).expect("there").range(..).expect("it").count(), 10);
        let outer = db.begin_write().expect("open");
        outer.open_table(OTHERS).expect("there").insert(1, 11).expect("nobody has it");
        let both_read = db.read(|txn| txn.open_table(ROWS)?.get(4).map(|row| row.is_some()));
        assert!(both_read.expect("both only read"));
        db.write(|txn| txn.open_table(OTHERS)?.insert(7, 77)).expect("another row");
        outer.commit(Durability::Buffered).expect("a good disk");
    });
}

/// Another thread's locks are waited for, and a task of an executor is treated as a thread is.
#[test]
fn others_are_waited_for_and_tasks_are_told() {
    let (_folder, db) = database();
    watched(move || {
        let (held, hold) = (db.begin_write().expect("open"), db.clone());
        held.open_table(ROWS).expect("there").insert(5, 55).expect("free");
        let other = thread::spawn(move || hold.write(|txn| txn.open_table(ROWS)?.insert(5, 56)));
        while db.debug_waits().is_empty() {
            thread::yield_now();
        }
        held.commit(Durability::Buffered).expect("a good disk");
        other.join().expect("no panic").expect("it waited");
        let task = World::current().spawn("nested", move || {
            let held = db.begin_write().expect("open");
            held.open_table(ROWS).expect("there").insert(5, 57).expect("free");
            assert!(is_nested(db.write(|txn| txn.open_table(ROWS)?.get(5).map(drop))));
        });
        task.join();
    });
}

/// The bug: a savepoint of another transaction was accepted, and undid what it liked.
#[test]
fn a_savepoint_of_another_transaction_is_refused() {
    let (_folder, db) = database();
    let (one, other) = (db.begin_write().expect("open"), db.begin_write().expect("open"));
    let mut rows = one.open_table(ROWS).expect("there");
    rows.insert(100, 1).expect("room");
    let foreign = {
        other.open_table(OTHERS).expect("there").insert(100, 1).expect("room");
        other.savepoint().expect("sound")
    };
    rows.insert(101, 1).expect("room");
    let refused = one.rollback_to(&foreign);
    let flaw = SavepointFlaw::OtherTransaction;
    assert!(matches!(refused, Err(Error::Savepoint { flaw: f }) if f == flaw), "{refused:?}");
    assert!(rows.contains(100).expect("it goes on") && rows.contains(101).expect("it goes on"));
    // Nor one of a transaction that has ended, whose memory this one may use again.
    other.commit(Durability::Buffered).expect("a good disk");
    let third = db.begin_write().expect("open");
    let refused = third.rollback_to(&foreign);
    assert!(matches!(refused, Err(Error::Savepoint { flaw: f }) if f == flaw), "{refused:?}");
    one.commit(Durability::Buffered).expect("it was not doomed");
}

/// Savepoints at random, against a stack of copies.
#[test]
fn a_savepoint_is_gone_once_an_earlier_one_was_rolled_back_to() {
    for seed in 0..30 {
        let mut prng = terrace_rt::Prng::from_seed(seed);
        let (_folder, db) = database();
        let txn = db.begin_write().expect("open");
        let mut rows = txn.open_table(ROWS).expect("there");
        // Every savepoint made, with the sum of the rows then, and whether it is still good.
        let (mut made, mut sum) = (Vec::new(), 45);
        for step in 0..80u64 {
            match prng.below(3) {
                0 => made.push((txn.savepoint().expect("sound"), sum, true)),
                1 => {
                    rows.insert(1_000 + step, step).expect("room");
                    sum += step;
                }
                _ if made.is_empty() => (),
                _ => {
                    let at = prng.below(made.len() as u64) as usize;
                    let (point, then, good) = &made[at];
                    let rolled = txn.rollback_to(point);
                    let gone = Err(SavepointFlaw::RolledBack);
                    let told = rolled.map_err(|error| match error {
                        Error::Savepoint { flaw } => flaw,
                        other => panic!("{other}"),
                    });
                    assert_eq!(told, if *good { Ok(()) } else { gone }, "seed {seed}");
                    if *good {
                        sum = *then;
                        made[at + 1..].iter_mut().for_each(|(.., good)| *good = false);
                    }
                }
            }
            let found = rows.range(..).expect("sound").map(|row| row.expect("it").value());
            assert_eq!(found.sum::<u64>(), sum, "seed {seed} step {step}");
        }
    }
}
