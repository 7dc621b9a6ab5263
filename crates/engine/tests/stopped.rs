//! A stopped engine: every caller gets the first cause, and no reader sees what was never
//! committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use terrace::{
    Action, Checkpoint, Database, Devices, Durability, Error, Operation, Part, TableDef,
    Transaction, World,
};
use terrace_device::model::{Preset, SimDevice, build};
use terrace_device::{Keep, Store};
use terrace_rt::{Virtual, VirtualConfig};

const ROWS: TableDef<u64, u64> = TableDef::new("rows");
const KEYS: u64 = 300;
/// Values from here on are never committed.
const NEVER: u64 = 1 << 40;

struct Rig {
    home: Arc<SimDevice>,
    log: Arc<SimDevice>,
}

impl Rig {
    fn new() -> Rig {
        let device = |bytes| build(Preset::Ram, World::current(), Store::new(bytes, Keep::Plain));
        Rig { home: device(32 << 20), log: device(16 << 20) }
    }

    fn builder(&self) -> terrace::Builder {
        let devices = Devices { home: self.home.clone(), flash: None, log: self.log.clone() };
        Database::builder().memory(2 << 20).devices(devices)
    }

    fn create(&self) -> Database {
        let db = self.builder().create_on_devices().expect("memory");
        db.write(|txn| {
            let mut rows = txn.open_table(ROWS)?;
            (0..KEYS).try_for_each(|key| rows.insert(key, 1))
        })
        .expect("room");
        db
    }
}

fn in_world(seed: u64, run: impl FnOnce()) {
    let config = VirtualConfig { seed, switch_one_in: 5, cores: 1, stack_bytes: 256 << 10 };
    Virtual::new(config).run(run).expect("nobody waits for ever");
}

fn sum<T: Transaction>(rows: &terrace::Table<'_, u64, u64, T>) -> Result<u64, Error> {
    rows.range(..)?.try_fold(0, |sum, entry| Ok(sum + entry?.value()))
}

/// The text of the cause; nothing else is an answer of a stopped engine.
fn told<T>(answer: Result<T, Error>) -> String {
    match answer {
        Err(Error::Failed { cause }) => cause.expect("told").to_string(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("a stopped engine went on"),
    }
}

/// Asks `db`, and transactions that were open before it stopped, for all that can be asked.
fn all_answers(db: Database, open: [terrace::WriteTransaction; 2]) -> Vec<String> {
    let [first, second] = open;
    let mut told_of = vec![
        told(db.begin_write()),
        told(db.begin_read()),
        told(db.read(|_| Ok::<_, Error>(()))),
        told(db.write(|_| Ok::<_, Error>(()))),
        told(db.check()),
        told(db.checkpoint(Checkpoint::Sharp)),
        told(first.open_table(ROWS)),
        told(first.table_names()),
        told(first.savepoint()),
        told(first.rollback()),
        told(second.commit(Durability::Durable)),
    ];
    told_of.push(told(db.close()));
    told_of
}

#[test]
fn every_caller_is_told_the_first_cause_of_a_failed_log() {
    // The cause was dropped: the only error left was "an earlier write failed".
    in_world(1, || {
        let rig = Rig::new();
        let db = rig.create();
        let open = [db.begin_write().expect("open"), db.begin_write().expect("open")];
        open[0].open_table(ROWS).expect("there").insert(1, NEVER).expect("room");
        rig.log.set_dead(true);
        let error = db.write(|txn| txn.open_table(ROWS)?.insert(2, 2)).expect_err("no log");
        let Error::Failed { cause: Some(cause) } = error else { panic!("{error}") };
        let Error::Device { part, action, source, .. } = &*cause else { panic!("{cause}") };
        assert_eq!((*part, *action), (Part::Log, Action::Write));
        assert_eq!(source.kind(), std::io::ErrorKind::NotConnected);
        let device = cause.device_error().expect("it was a device");
        assert_eq!((&*device.device, device.operation), ("a modelled device", Operation::Write));
        assert!(device.range.is_some_and(|(offset, _)| offset % 4096 == 0), "{cause}");
        // What comes later is no cause any more.
        rig.log.set_dead(false);
        rig.home.set_dead(true);
        for answer in all_answers(db, open) {
            assert_eq!(answer, cause.to_string());
        }
    });
}

#[test]
fn a_failed_write_of_home_stops_all_and_names_the_page() {
    in_world(2, || {
        let rig = Rig::new();
        let db = rig.create();
        let open = [db.begin_write().expect("open"), db.begin_write().expect("open")];
        open[0].open_table(ROWS).expect("there").insert(1, NEVER).expect("room");
        rig.home.set_dead(true);
        let Err(Error::Failed { cause: Some(cause) }) = db.checkpoint(Checkpoint::Sharp) else {
            panic!("home is dead")
        };
        let Error::Device { part, action, page, .. } = &*cause else { panic!("{cause}") };
        assert_eq!((*part, *action), (Part::Home, Action::Write));
        assert!(page.is_some(), "{cause}");
        rig.home.set_dead(false);
        for answer in all_answers(db, open) {
            assert_eq!(answer, cause.to_string());
        }
        let db = rig.builder().open_on_devices().expect("recovers");
        assert_eq!(db.read(|txn| sum(&txn.open_table(ROWS)?)).expect("whole"), KEYS);
    });
}

#[test]
fn after_a_failed_log_write_nobody_reads_what_was_never_committed() {
    // A rollback that could not log gave up its locks, and its changes were read.
    in_world(3, || {
        let rig = Rig::new();
        let db = rig.create();
        let reader = db.begin_read().expect("open");
        let rows = reader.open_table(ROWS).expect("there");
        let writer = db.begin_write().expect("open");
        writer.open_table(ROWS).expect("there").insert(7, NEVER).expect("room");
        rig.log.set_dead(true);
        told(db.write(|txn| txn.open_table(ROWS)?.insert(8, 2)));
        rig.log.set_dead(false);
        told(writer.rollback());
        told(rows.get(7));
        told(sum(&rows));
        told(db.read(|txn| sum(&txn.open_table(ROWS)?)));
        drop(rows);
        drop(reader);
        drop(db);
        let db = rig.builder().open_on_devices().expect("recovers");
        let found = db.read(|txn| Ok::<_, Error>(txn.open_table(ROWS)?.get(7)?.map(|v| v.value())));
        assert_eq!(found.expect("readable"), Some(1));
    });
}

/// Threads that read and write until `db` stops; those that write take all back again. Returns the
/// greatest value that any transaction read.
fn race(rig: &Rig, db: &Database) -> u64 {
    const PATIENCE: Duration = Duration::from_secs(60);
    let (greatest, rounds) = (AtomicU64::new(0), AtomicU64::new(0));
    let (began, is_late) = (Instant::now(), AtomicBool::new(false));
    let runs = || {
        rounds.fetch_add(1, Ordering::Relaxed);
        is_late.fetch_or(began.elapsed() > PATIENCE, Ordering::Relaxed);
        !is_late.load(Ordering::Relaxed)
    };
    let read = |thread: u64| {
        let look = |key: u64| {
            db.read(|txn| Ok(txn.open_table(ROWS)?.get(key)?.map_or(0, |value| value.value())))
        };
        let mut key = thread;
        while runs() {
            key = (key + 7) % KEYS;
            match look(key) {
                Ok(value) => drop(greatest.fetch_max(value, Ordering::Relaxed)),
                Err(Error::Failed { .. }) => return,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    };
    let write = |thread: u64| {
        while runs() {
            let Ok(txn) = db.begin_write() else { return };
            let change = || {
                let mut rows = txn.open_table(ROWS)?;
                (0..20).try_for_each(|key| rows.insert((thread * 100 + key) % KEYS, NEVER))
            };
            let changed: Result<(), Error> = change();
            if let (Err(Error::Failed { .. }), _) | (_, Err(Error::Failed { .. })) =
                (changed, txn.rollback())
            {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || read(thread));
            scope.spawn(move || write(thread));
        }
        while rounds.load(Ordering::Relaxed) < 300 && runs() {
            thread::yield_now();
        }
        rig.log.set_dead(true);
        told(db.write(|txn| txn.open_table(ROWS)?.insert(KEYS, 2)));
    });
    assert!(!is_late.load(Ordering::Relaxed), "threads were stuck");
    greatest.load(Ordering::Relaxed)
}

#[test]
fn threads_that_race_with_the_failure_read_nothing_uncommitted() {
    for _ in 0..10 {
        let rig = Rig::new();
        let db = rig.create();
        assert!(race(&rig, &db) < NEVER);
    }
}
