//! Closures and commits with futures: what a token says, what a dropped future leaves, and how both
//! end with the database.

mod rig;

#[path = "futures/threads.rs"]
mod threads;

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use terrace::{Database, Devices, Durability, Durable, Error, Part, TableDef, World};
use terrace_device::model::{Preset, SimDevice, build};
use terrace_device::{Keep, Store};
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{
    LeafMutex, Nanos, Prng, Signal, Stopped, Virtual, VirtualConfig, block_on, sleep, spawn,
};

use rig::Rig;

const ROWS: TableDef<u64, u64> = TableDef::new("rows");

fn world(seed: u64) -> Virtual {
    Virtual::new(VirtualConfig { seed, switch_one_in: 4, cores: 1, stack_bytes: 256 << 10 })
}

fn in_world(seed: u64, run: impl FnOnce()) {
    world(seed).run(run).expect("nobody waits for ever");
}

fn put(db: &Database, key: u64) -> Result<Durable, Error> {
    db.write_async(|txn| txn.open_table(ROWS)?.insert(key, key)).map(|((), token)| token)
}

fn keys(db: &Database) -> BTreeSet<u64> {
    let keys = db.read(|txn| {
        let rows = txn.open_table(ROWS)?;
        rows.range(..)?.map(|entry| entry.map(|entry| entry.key())).collect()
    });
    match keys {
        Err(Error::NoSuchTable { .. }) => BTreeSet::new(),
        keys => keys.expect("readable"),
    }
}

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// What the writers of a history know: the last commit of each of which a token was ready.
type Known = [AtomicU64; WRITERS as usize];

const WRITERS: u64 = 3;
const COMMITS: u64 = 12;

/// Writers commit side by side, each row after row; some await each token, some only the last of a
/// few, and one the database's.
fn history(rig: &Rig, known: &Arc<Known>, mutations: Mutations) -> Result<(), Error> {
    let builder = Database::builder().memory(256 << 10);
    let db = rig.open(builder.tune(|pool| pool.mutations = mutations))?;
    db.write(|txn| txn.open_table(ROWS).map(drop))?;
    let writers = (0..WRITERS).map(|writer| {
        let (db, known) = (db.clone(), Arc::clone(known));
        spawn("writer", move || {
            let mut last = db.durable();
            for number in 0..COMMITS {
                let row = writer * COMMITS + number;
                // A database in a world that is cut answers no more.
                let Ok(token) = block_on(db.run(move |db| put(db, row))) else { return };
                last = last.later(token);
                let ready = match (writer, number % 4) {
                    (0, _) | (1, 3) => block_on(last.clone()),
                    (2, 2) => block_on(db.durable()),
                    _ if last.is_durable() => Ok(()),
                    _ => continue,
                };
                ready.expect("good devices");
                known[writer as usize].store(number + 1, Ordering::Relaxed);
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    writers.into_iter().for_each(terrace_rt::Task::join);
    db.close()
}

/// Cuts the history at event `at`, and looks whether what was known is there; false if the history
/// ended before. Whether something was lost.
fn cut_at(at: u64, mutations: Mutations) -> Option<bool> {
    let first = world(at);
    let rig = Rig::blank(&first.world());
    let known = Arc::<Known>::default();
    first.cut_at_event(at);
    match first.run(|| history(&rig, &known, mutations)) {
        Ok(ran) => {
            ran.expect("good devices");
            return None;
        }
        Err(Stopped::PowerCut { .. }) => rig.cut(&mut Prng::from_seed(at)),
        Err(stopped) => panic!("{stopped:?} at event {at}"),
    }
    let last = world(at);
    let rig = rig.in_world(&last.world());
    let found = last.run(|| {
        let db = rig.open(Database::builder().memory(256 << 10)).expect("recovers");
        db.check().expect("whole");
        keys(&db)
    });
    let found = found.expect("nobody waits for ever");
    let known = known.iter().map(|known| known.load(Ordering::Relaxed));
    Some(known.zip(0..).any(|(count, writer)| {
        (0..count).any(|number| !found.contains(&(writer * COMMITS + number)))
    }))
}

fn cut_everywhere(mutations: Mutations) -> (u64, u64) {
    let (mut at, mut lost) = (1, 0);
    while let Some(is_lost) = cut_at(at, mutations) {
        lost += u64::from(is_lost);
        at += 1 + at / 300;
    }
    (at, lost)
}

#[test]
fn what_a_ready_token_says_survives_every_cut() {
    let (events, lost) = cut_everywhere(Mutations::NONE);
    assert!(events > 300, "the history has only {events} events");
    assert_eq!(lost, 0);
}

#[test]
fn a_token_that_is_ready_before_its_force_is_found_out() {
    let (_, lost) = cut_everywhere(Mutation::ReadyBeforeForce.into());
    assert!(lost > 0, "the cuts show nothing");
}

/// Devices of which the log takes its time.
struct Slow {
    home: Arc<SimDevice>,
    log: Arc<SimDevice>,
}

impl Slow {
    fn new() -> Slow {
        let device =
            |preset, bytes| build(preset, World::current(), Store::new(bytes, Keep::Plain));
        Slow { home: device(Preset::Ram, 32 << 20), log: device(Preset::Sigmod2011Log, 16 << 20) }
    }

    fn builder(&self) -> terrace::Builder {
        let devices = Devices { home: self.home.clone(), flash: None, log: self.log.clone() };
        Database::builder().memory(2 << 20).devices(devices)
    }

    fn create(&self) -> Database {
        let db = self.builder().create_on_devices().expect("memory");
        db.write(|txn| txn.open_table(ROWS).map(drop)).expect("room");
        db
    }
}

#[test]
fn a_commit_is_seen_at_once_and_its_token_ready_when_the_log_was_forced() {
    in_world(1, || {
        let db = Slow::new().create();
        let forces = db.stats().log.forces;
        let token = put(&db, 1).expect("room");
        assert!(!token.is_durable() && poll_once(token.clone()).is_pending());
        assert_eq!((db.stats().log.forces, keys(&db)), (forces, BTreeSet::from([1])));
        block_on(token.clone()).expect("a good device");
        assert!(token.is_durable() && poll_once(token).is_ready());
        assert_eq!(db.stats().log.forces, forces + 1);
    });
}

#[test]
fn many_commits_share_forces_and_one_future() {
    in_world(2, || {
        let db = Slow::new().create();
        let forces = db.stats().log.forces;
        let tokens = (0..64).map(|key| put(&db, key).expect("room"));
        let last = tokens.reduce(Durable::later).expect("64 of them");
        assert!(!last.is_durable());
        block_on(last).expect("a good device");
        let shared = db.stats().log.forces - forces;
        assert!((1..=2).contains(&shared), "{shared} forces for commits that came at once");
        // A commit of a caller that waits serves the tokens before it, too.
        let token = put(&db, 64).expect("room");
        db.write(|txn| txn.open_table(ROWS)?.insert(65, 65)).expect("room");
        assert!(token.is_durable());
        token.wait().expect("durable");
        // Tasks side by side, each with a durable commit.
        let forces = db.stats().log.forces;
        let tasks = (100..164).map(|key| {
            let db = db.clone();
            let work = move |db: &Database| db.write(|txn| txn.open_table(ROWS)?.insert(key, key));
            spawn("task", move || block_on(db.run(work)).expect("room"))
        });
        tasks.collect::<Vec<_>>().into_iter().for_each(terrace_rt::Task::join);
        let shared = db.stats().log.forces - forces;
        assert!(shared < 32, "{shared} forces for 64 tasks");
        assert_eq!(keys(&db).len(), 130);
    });
}

#[test]
fn a_dropped_token_loses_nothing() {
    in_world(3, || {
        let slow = Slow::new();
        let db = slow.create();
        drop(put(&db, 1).expect("room"));
        let polled = put(&db, 2).expect("room");
        assert!(poll_once(polled.clone()).is_pending());
        drop(polled);
        let forces = db.stats().log.forces;
        // Nobody asks for a force, and one comes.
        while db.stats().log.forces == forces {
            sleep(Nanos::from_millis(1));
        }
        assert!(db.durable().is_durable());
    });
}

#[test]
fn a_failed_log_is_told_by_every_token_and_what_was_durable_stays() {
    in_world(4, || {
        let slow = Slow::new();
        let db = slow.create();
        let durable = put(&db, 1).expect("room");
        block_on(durable.clone()).expect("a good device");
        let open = db.begin_write().expect("open");
        open.open_table(ROWS).expect("there").insert(9, 9).expect("room");
        let waiting: Vec<Durable> = (2..5).map(|key| put(&db, key).expect("room")).collect();
        slow.log.set_dead(true);
        let told = |answer: Result<(), Error>| {
            let Err(Error::Failed { cause: Some(cause) }) = answer else { panic!("{answer:?}") };
            let Error::Device { part, source, .. } = &*cause else { panic!("{cause}") };
            assert_eq!((*part, source.kind()), (Part::Log, std::io::ErrorKind::NotConnected));
        };
        waiting.iter().for_each(|token| told(block_on(token.clone())));
        waiting.into_iter().for_each(|token| told(token.wait()));
        told(open.commit_async().map(drop));
        told(block_on(db.run(|db| put(db, 6).map(drop))));
        assert!(matches!(poll_once(durable), Poll::Ready(Ok(()))));
        assert!(db.close().is_err());
    });
}

#[test]
fn tokens_outlive_their_database() {
    in_world(5, || {
        let db = Slow::new().create();
        let tokens: Vec<Durable> = (0..3).map(|key| put(&db, key).expect("room")).collect();
        let waits = tokens[1].clone();
        let waiter = spawn("waiter", move || block_on(waits).expect("closing forces the log"));
        db.close().expect("good devices");
        waiter.join();
        tokens.into_iter().for_each(|token| block_on(token).expect("closing forces the log"));
        // A log that fails then leaves it open whether they are.
        let slow = Slow::new();
        let db = slow.create();
        let token = put(&db, 1).expect("room");
        let waits = token.clone();
        let waiter = spawn("waiter", move || assert!(block_on(waits).is_err(), "the log is gone"));
        slow.log.set_dead(true);
        db.close().expect_err("the log is gone");
        waiter.join();
        assert!(matches!(block_on(token), Err(Error::Failed { .. })));
    });
}

#[test]
fn a_future_that_is_dropped_leaves_whole_transactions() {
    in_world(6, || {
        let db = Slow::new().create();
        // Not begun: it never runs.
        drop(db.run(|_| -> Result<(), Error> { panic!("nobody has polled it") }));
        // Begun: it goes on to its end.
        let signal = Arc::new((Signal::new(), AtomicU64::new(0)));
        let goes_on = Arc::clone(&signal);
        let mut begun = Box::pin(db.run(move |db| {
            let txn = db.begin_write()?;
            txn.open_table(ROWS)?.insert(1, 1)?;
            while goes_on.1.load(Ordering::Acquire) == 0 {
                let seen = goes_on.0.seen();
                goes_on.0.wait(seen);
            }
            txn.open_table(ROWS)?.insert(2, 2)?;
            txn.commit(Durability::Durable)
        }));
        assert!(poll_once(&mut begun).is_pending());
        drop(begun);
        sleep(Nanos::from_secs(1));
        assert!(keys(&db).is_empty());
        signal.1.store(1, Ordering::Release);
        signal.0.notify_all();
        sleep(Nanos::from_secs(1));
        assert_eq!(keys(&db), BTreeSet::from([1, 2]));
    });
}

#[test]
fn closures_beyond_the_limit_wait_in_line_and_leave_it() {
    in_world(7, || {
        let db = Slow::new().builder().run_limit(2).create_on_devices().expect("memory");
        let log: Arc<LeafMutex<(u64, u64, Vec<u64>)>> = Arc::default();
        let mut futures: Vec<_> = (0..12)
            .map(|number| {
                let log = Arc::clone(&log);
                Box::pin(db.run(move |_| {
                    {
                        let mut log = log.lock();
                        log.0 += 1;
                        log.1 = log.1.max(log.0);
                        log.2.push(number);
                    }
                    sleep(Nanos::from_millis(5));
                    log.lock().0 -= 1;
                    Ok::<_, Error>(number)
                }))
            })
            .collect();
        futures.iter_mut().for_each(|future| assert!(poll_once(future).is_pending()));
        // Some leave the line, one of them once it is its turn.
        sleep(Nanos::from_millis(6));
        drop(futures.remove(7));
        drop(futures.remove(2));
        let expected = [0, 1, 3, 4, 5, 6, 8, 9, 10, 11];
        let all: Vec<u64> = futures.into_iter().map(|it| block_on(it).expect("it ran")).collect();
        assert_eq!(all, expected);
        let log = log.lock();
        assert_eq!((log.1, &log.2[..]), (2, &expected[..]));
    });
}

#[test]
fn a_panic_comes_out_of_the_future_and_rolls_back() {
    in_world(8, || {
        let db = Slow::new().create();
        let panics = db.run(|db| -> Result<(), Error> {
            let txn = db.begin_write()?;
            txn.open_table(ROWS)?.insert(1, 1)?;
            panic!("a bug of the caller");
        });
        let payload = catch_unwind(AssertUnwindSafe(|| block_on(panics))).expect_err("a panic");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"a bug of the caller"));
        // Its lock goes once another task has rolled it back.
        put(&db, 1).expect("room").wait().expect("a good device");
        assert_eq!(keys(&db).len(), 1);
    });
}

#[test]
fn a_database_that_is_closed_refuses_and_runs_to_the_end_what_has_begun() {
    in_world(9, || {
        let db = Slow::new().builder().run_limit(1).create_on_devices().expect("memory");
        let late = db.run(|_| -> Result<(), Error> { panic!("it is closed") });
        let mut begun = Box::pin(db.run(|db| {
            drop(put(db, 1)?);
            sleep(Nanos::from_secs(5));
            // New transactions are refused.
            put(db, 2).map(drop)
        }));
        assert!(poll_once(&mut begun).is_pending());
        let in_line = db.run(|_| -> Result<(), Error> { panic!("it is closed") });
        let waits = spawn("waits", move || {
            assert!(matches!(block_on(in_line), Err(Error::Closed)));
        });
        sleep(Nanos::from_secs(1));
        // From a closure, too.
        let closes = Slow::new().create();
        block_on(closes.run(|db| db.clone().close())).expect("good devices");
        assert!(matches!(put(&closes, 1), Err(Error::Closed)));
        db.clone().close().expect("good devices");
        waits.join();
        assert!(matches!(block_on(late), Err(Error::Closed)));
        assert!(matches!(block_on(begun), Err(Error::Closed)));
        assert!(matches!(block_on(poll_fn(|_| Poll::Ready(put(&db, 3)))), Err(Error::Closed)));
    });
}

#[test]
fn the_last_handle_may_be_that_of_a_closure() {
    in_world(10, || {
        let slow = Slow::new();
        let db = slow.create();
        let mut runs = Box::pin(db.run(|db| {
            sleep(Nanos::from_secs(1));
            put(db, 1).map(drop)
        }));
        assert!(poll_once(&mut runs).is_pending());
        drop(db);
        block_on(runs).expect("room");
        // What the closure had is gone once its answer is there: the devices are free.
        let db = slow.builder().open_on_devices().expect("closed");
        assert!(db.was_closed());
        assert_eq!(keys(&db).len(), 1);
    });
}

#[test]
fn a_limit_of_no_closures_is_refused() {
    in_world(11, || {
        let created = Slow::new().builder().run_limit(0).create_on_devices();
        assert!(matches!(created, Err(Error::InvalidOption { option: "run_limit", .. })));
    });
}
