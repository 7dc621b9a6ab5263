//! Events for the log of the program: each comes when its matter does, and the subscriber may do no
//! harm. They are the process's, so each test looks at those of its own thread.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::sync::Arc;

use terrace::{Checkpoint, Database, Devices, Error, Nanos, TableDef, World};
use terrace_device::model::{Preset, SimDevice, build};
use terrace_device::{Keep, Store};
use terrace_rt::{Virtual, VirtualConfig, sleep, spawn};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");

thread_local! {
    static TOLD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    /// What the subscriber calls when it is told.
    static CALLED: RefCell<Option<Database>> = const { RefCell::new(None) };
    static ANSWERS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Lines;

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.0.insert_str(0, &format!("{value:?}:")),
            name => write!(self.0, " {name}={value:?}").expect("memory"),
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "terrace"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        TOLD.with_borrow_mut(|told| told.push(format!("{} {}", event.metadata().level(), text.0)));
        let database = CALLED.with_borrow(Clone::clone);
        if let Some(database) = database {
            let answer = format!("{:?}", database.begin_write().map(drop));
            ANSWERS.with_borrow_mut(|answers| answers.push(answer));
        }
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The lines that were told since the last call.
fn told() -> Vec<String> {
    TOLD.take()
}

fn has(lines: &[String], parts: &[&str]) -> bool {
    lines.iter().any(|line| parts.iter().all(|part| line.contains(part)))
}

fn in_world(run: impl FnOnce()) {
    let config = VirtualConfig { seed: 1, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 };
    let world = Virtual::new(config);
    tracing::subscriber::with_default(Lines, || world.run(run)).expect("nobody waits for ever");
}

struct Rig {
    home: Arc<SimDevice>,
    flash: Arc<SimDevice>,
    log: Arc<SimDevice>,
}

impl Rig {
    fn new() -> Rig {
        let device = |bytes| build(Preset::Ram, World::current(), Store::new(bytes, Keep::Plain));
        Rig { home: device(8 << 20), flash: device(2 << 20), log: device(1 << 20) }
    }

    fn builder(&self) -> terrace::Builder {
        let (home, flash) = (self.home.clone(), Some(self.flash.clone() as _));
        let devices = Devices { home, flash, log: self.log.clone() };
        let builder = Database::builder().memory(512 << 10).devices(devices);
        builder.lock_timeout(Nanos::from_secs(3)).version_memory(64 << 10)
    }
}

fn fill(db: &Database, keys: std::ops::Range<u64>, byte: u8) -> Result<(), Error> {
    db.write(|txn| {
        let mut rows = txn.open_table(ROWS)?;
        keys.clone().try_for_each(|key| rows.insert(key, &[byte; 500]))
    })
}

#[test]
fn what_an_operator_wants_to_know_is_told() {
    in_world(|| {
        let rig = Rig::new();
        let db = rig.builder().create_on_devices().expect("memory");
        assert!(has(&told(), &["INFO opened:", "database=", "was_closed=false"]));
        fill(&db, 0..100, 1).expect("room");
        db.checkpoint(Checkpoint::Sharp).expect("good devices");
        assert!(has(&told(), &["DEBUG checkpoint:", "log_capacity="]));
        // A wait for a lock.
        let held = db.begin_write().expect("open");
        held.open_table(ROWS).expect("there").insert(7, &[2]).expect("room");
        let other = db.clone();
        spawn("waits", move || {
            let waited = other.write(|txn| txn.open_table(ROWS)?.insert(7, &[3]));
            assert!(matches!(waited, Err(Error::LockTimeout { .. })));
        })
        .join();
        held.rollback().expect("good devices");
        assert!(has(&told(), &["WARN long lock wait:", "table=\"rows\"", "was_granted=false"]));
        // A full log: one transaction keeps it from being cut.
        let holds = db.begin_write().expect("open");
        holds.open_table(ROWS).expect("there").insert(5000, &[2]).expect("room");
        for round in 0..40 {
            let (other, from) = (db.clone(), round % 4 * 100);
            spawn("fills", move || drop(fill(&other, from..from + 50, round as u8))).join();
            if has(&TOLD.with_borrow(Clone::clone), &["WARN log full"]) {
                break;
            }
        }
        drop(holds);
        assert!(has(&told(), &["WARN log full: waiting:", "wanted="]));
        // A snapshot that needs more than there is room for.
        let reader = db.begin_read().expect("open");
        for round in 0..10 {
            let other = db.clone();
            spawn("changes", move || fill(&other, 0..100, round).expect("room")).join();
        }
        let read = reader.open_table(ROWS).and_then(|rows| rows.get(1).map(|it| it.is_some()));
        assert!(matches!(read, Err(Error::SnapshotTooOld)), "{read:?}");
        assert!(has(&told(), &["WARN snapshot ended:"]));
        drop(reader);
        db.compact().expect("good devices");
        assert!(has(&told(), &["INFO compacted:", "bytes_punched="]));
        db.close().expect("good devices");
        assert!(has(&told(), &["INFO closed:", "is_clean=true"]));
    });
}

#[test]
fn what_fails_is_told() {
    in_world(|| {
        let rig = Rig::new();
        let db = rig.builder().create_on_devices().expect("memory");
        fill(&db, 0..100, 1).expect("room");
        db.close().expect("good devices");
        drop(told());
        let db = rig.builder().open_on_devices().expect("closed");
        let lines = told();
        assert!(has(&lines, &["INFO opened:", "was_closed=true"]) && !has(&lines, &["cold"]));
        // The flash fails, and is missed by the next round.
        rig.flash.set_dead(true);
        (0..30).try_for_each(|part| fill(&db, part * 200..part * 200 + 200, 9)).expect("a cache");
        sleep(Nanos::from_secs(120));
        let lines = told();
        assert!(has(&lines, &["ERROR flash lost"]), "{lines:?} {:?}", db.stats().pool);
        // Then the log: the engine stops, and says so once.
        rig.log.set_dead(true);
        for byte in 10..13 {
            fill(&db, 0..1, byte).expect_err("no log");
        }
        let stops = |lines: &[String]| lines.iter().filter(|it| it.contains("stopped:")).count();
        let lines = told();
        assert_eq!(stops(&lines), 1, "{lines:?}");
        assert!(has(&lines, &["ERROR stopped:", "cause="]));
        db.close().expect_err("no log");
        rig.log.set_dead(false);
        let db = rig.builder().open_on_devices().expect("it recovers");
        let lines = told();
        assert!(has(&lines, &["INFO recovering:", "log_bytes="]), "{lines:?}");
        assert!(has(&lines, &["WARN flash starts cold:", "why="]), "{lines:?}");
        // A page that cannot be read.
        rig.home.set_dead(true);
        let read = db.read(|txn| {
            let rows = txn.open_table(ROWS)?;
            rows.range(..)?.try_for_each(|entry| entry.map(drop))
        });
        read.expect_err("most is at home");
        let lines = told();
        assert!(has(&lines, &["ERROR device error:", "error="]), "{lines:?}");
    });
}

#[test]
fn a_subscriber_that_uses_the_database_is_refused() {
    in_world(|| {
        let db = Rig::new().builder().create_on_devices().expect("memory");
        fill(&db, 0..10, 1).expect("room");
        CALLED.set(Some(db.clone()));
        db.checkpoint(Checkpoint::Sharp).expect("good devices");
        CALLED.set(None);
        let answers = ANSWERS.take();
        assert!(
            !answers.is_empty() && answers.iter().all(|it| it == "Err(Reentrant)"),
            "{answers:?}"
        );
        db.close().expect("good devices");
    });
}
