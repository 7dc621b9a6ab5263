//! A system that refuses the engine threads, or the use of io_uring: at once, or later.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use terrace::{Checkpoint, Database, Durability, Error, TableDef};
use terrace_rt::{Calls, in_fork, refuse_calls};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const WRITERS: u64 = 4;
/// Of each writer.
const KEYS: u64 = 500;
const VALUE: [u8; 2000] = [7; 2000];
const EPERM: i32 = 1;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;

/// What a child ends with.
const WELL: u8 = 0;
const FAILED: u8 = 1;
const PANICKED: u8 = 2;
const WRONG: u8 = 3;
const NO_FILTERS: u8 = 4;

fn create(path: &Path) -> Result<Database, Error> {
    let flash = path.with_extension("flash");
    Database::builder().memory(1 << 20).log_size(4 << 20).flash(flash, 2 << 20).create(path)
}

/// Runs `child` in a fork whose panics, of any thread, show in its exit status.
fn fork(child: impl FnOnce() -> u8) -> u8 {
    static PANICS: AtomicU64 = AtomicU64::new(0);
    in_fork(|| {
        std::panic::set_hook(Box::new(|_| {
            PANICS.fetch_add(1, Ordering::SeqCst);
        }));
        let end = child();
        if PANICS.load(Ordering::SeqCst) > 0 { PANICKED } else { end }
    })
}

/// Commits of each writer.
type Commits = [AtomicU64; WRITERS as usize];

fn sum(commits: &Commits, at_most: u64) -> u64 {
    commits.iter().map(|commits| commits.load(Ordering::Relaxed).min(at_most)).sum()
}

/// Writes with several threads, more than memory holds; `refuse` comes in the middle. The first
/// error ends it.
fn work(db: &Database, commits: &Commits, refuse: impl FnOnce()) -> Result<(), Error> {
    const SPAN: Duration = Duration::from_millis(300);
    let ends = AtomicBool::new(false);
    db.write(|txn| txn.open_table(ROWS).map(drop))?;
    std::thread::scope(|threads| {
        let write = |writer: u64| {
            let (ends, commits) = (&ends, &commits[writer as usize]);
            move || {
                for number in 0.. {
                    if ends.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = number % KEYS * WRITERS + writer;
                    db.write_with(Durability::Durable, |txn| {
                        txn.open_table(ROWS)?.insert(key, &VALUE[..])
                    })?;
                    commits.fetch_add(1, Ordering::Relaxed);
                }
                db.read(|txn| txn.open_table(ROWS)?.get(writer).map(drop))
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|it| threads.spawn(write(it))).collect();
        let wait = |more| {
            let (since, before) = (Instant::now(), sum(commits, u64::MAX));
            let is_working = || writers.iter().any(|writer| !writer.is_finished());
            while is_working() && (since.elapsed() < SPAN || sum(commits, u64::MAX) < before + more)
            {
                std::thread::yield_now();
            }
        };
        wait(200);
        refuse();
        wait(200);
        ends.store(true, Ordering::Relaxed);
        writers.into_iter().try_for_each(|it| it.join().expect("no panic"))
    })?;
    db.checkpoint(Checkpoint::Sharp)
}

/// The bug: where the system gave no thread, creating a database panicked, and its files were left.
#[test]
fn without_a_thread_nothing_is_opened_and_nothing_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let end = fork(|| {
        if refuse_calls(Calls::Threads, EAGAIN).is_err() {
            return NO_FILTERS;
        }
        let told = |result: Result<Database, Error>| match result {
            Err(error @ Error::NoThread { .. }) => error.to_string().contains("threads"),
            _ => false,
        };
        let is_refused = told(create(&path)) && told(Database::open(&path));
        let is_clean = fs::read_dir(folder.path()).is_ok_and(|mut files| files.next().is_none());
        if is_refused && is_clean { WELL } else { WRONG }
    });
    assert!([WELL, NO_FILTERS].contains(&end), "{end}");
}

/// A database that is open needs no more threads.
#[test]
fn threads_that_are_refused_later_are_done_without() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let end = fork(|| {
        let db = create(&path).expect("a new path");
        let mut filters = true;
        let worked = work(&db, &Commits::default(), || {
            filters = refuse_calls(Calls::Threads, EAGAIN).is_ok()
        });
        match worked.and_then(|()| db.close()) {
            _ if !filters => NO_FILTERS,
            Ok(()) => WELL,
            Err(_) => FAILED,
        }
    });
    assert!([WELL, NO_FILTERS].contains(&end), "{end}");
}

/// The bug: a filter that lets rings be made and not used, as of a container, ended in a panic and
/// an abort.
#[test]
fn rings_that_may_be_made_and_not_used_are_done_without() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let end = fork(|| {
        if refuse_calls(Calls::UseOfRings, EPERM).is_err() {
            return NO_FILTERS;
        }
        let db = create(&path).expect("a new path");
        let worked = work(&db, &Commits::default(), || ());
        worked.and_then(|()| db.close()).map_or(FAILED, |()| WELL)
    });
    assert!([WELL, NO_FILTERS].contains(&end), "{end}");
}

/// The bug: a process that refused itself the use of rings while a database was open, as one does
/// that gives up its rights, was aborted. What was on its way may be lost, and then the engine
/// stops; all else goes on.
#[test]
fn rings_that_are_refused_later_end_in_no_panic_and_lose_no_commit() {
    for code in [EPERM, ENOMEM] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("db");
        let end = fork(|| {
            let db = create(&path).expect("a new path");
            let commits = Commits::default();
            let mut filters = true;
            let refuse = || filters = refuse_calls(Calls::UseOfRings, code).is_ok();
            let worked = work(&db, &commits, refuse);
            let said = fs::write(path.with_extension("done"), sum(&commits, KEYS).to_string());
            let closed = worked.and_then(|()| db.close());
            match closed {
                _ if said.is_err() => WRONG,
                _ if !filters => NO_FILTERS,
                Ok(()) => WELL,
                Err(Error::Failed { cause: Some(_) }) => FAILED,
                Err(_) => WRONG,
            }
        });
        assert!([WELL, FAILED, NO_FILTERS].contains(&end), "{code}: {end}");
        let said = fs::read_to_string(path.with_extension("done")).expect("it was written");
        let committed: u64 = said.parse().expect("a number");
        let db = Database::builder().memory(1 << 20).flash(path.with_extension("flash"), 2 << 20);
        let db = db.open(&path).expect("it opens");
        let rows = db.read(|txn| Ok::<_, Error>(txn.open_table(ROWS)?.range(..)?.count() as u64));
        let rows = rows.expect("sound");
        assert!((committed..=committed + WRITERS).contains(&rows), "{rows} of {committed}");
        db.close().expect("closed");
    }
}
