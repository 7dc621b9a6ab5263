//! A scripted history, its power cut at every event, and cut again while it recovers: on a log of
//! fixed size, and on one that grows and shrinks meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace::{Checkpoint, Database, Devices, Durability, Error, TableDef, TornPages};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Device, Keep, Store};
use terrace_rt::{Prng, Stopped, Virtual, VirtualConfig, World};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const OTHERS: TableDef<u64, &[u8]> = TableDef::new("others");

/// What the log of a history is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Fixed,
    /// It begins small, and rows are larger: it grows before each checkpoint and shrinks after it.
    Growing,
    /// As `Fixed`, on a home that writes pages atomically, without a doublewrite area.
    Whole,
    /// As `Whole`, on a home that tears pages.
    Torn,
}

/// The devices of one history, from world to world.
struct Rig {
    shape: Shape,
    home: Arc<SimDevice>,
    log: Arc<SimDevice>,
}

impl Rig {
    fn blank(world: &World, shape: Shape) -> Rig {
        let device = |bytes| {
            let spec = Preset::Ram.spec().with_write_cache();
            SimDevice::new(spec, world.clone(), Store::new(bytes, Keep::Plain))
        };
        let log_bytes = match shape {
            Shape::Growing => 4096,
            Shape::Fixed | Shape::Whole | Shape::Torn => 2 << 20,
        };
        let home = device(4 << 20);
        if shape == Shape::Whole {
            home.offer_atomic_pages();
        }
        Rig { shape, home, log: device(log_bytes) }
    }

    fn cut(&self, prng: &mut Prng) {
        self.home.power_cut(prng);
        self.log.power_cut(prng);
    }

    fn in_world(&self, world: &World) -> Rig {
        let (home, log) = (self.home.reopen(world.clone()), self.log.reopen(world.clone()));
        Rig { home, log, ..*self }
    }

    fn open(&self) -> Result<Database, Error> {
        let (home, log) = (Arc::clone(&self.home), Arc::clone(&self.log));
        let devices = Devices { home, flash: None, log };
        let builder = Database::builder().memory(256 << 10).devices(devices);
        match self.shape {
            Shape::Fixed => builder.open_or_create_on_devices(),
            Shape::Growing => builder.log_max(4 << 20).open_or_create_on_devices(),
            Shape::Whole => builder.torn_pages(TornPages::Atomic).open_or_create_on_devices(),
            Shape::Torn => builder.torn_pages(TornPages::Off).open_or_create_on_devices(),
        }
    }
}

fn world(seed: u64) -> Virtual {
    Virtual::new(VirtualConfig { seed, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 })
}

type Contents = BTreeMap<u64, Vec<u8>>;

/// What transaction `number` makes of the rows: some new, some changed, some gone.
fn step(number: u64, rows: &mut Contents, shape: Shape) {
    let scale = match shape {
        Shape::Growing => 7,
        Shape::Fixed | Shape::Whole | Shape::Torn => 1,
    };
    for row in 0..25 {
        let key = (number * 7919 + row * 31) % 200;
        match (number + row) % 4 {
            0 => drop(rows.remove(&key)),
            _ => {
                drop(rows.insert(key, vec![number as u8; (40 + (row as usize * 37) % 400) * scale]))
            }
        }
    }
}

const TRANSACTIONS: u64 = 24;

/// Runs the history; `committed` counts the transactions that were reported as durable.
fn run(rig: &Rig, committed: &AtomicU64) -> Result<(), Error> {
    let shape = rig.shape;
    let db = rig.open()?;
    let mut rows = Contents::new();
    for number in 0..TRANSACTIONS {
        let before = rows.clone();
        step(number, &mut rows, shape);
        let txn = db.begin_write()?;
        let mut table = txn.open_table(ROWS)?;
        for key in before.keys().filter(|key| !rows.contains_key(key)) {
            table.remove(*key)?;
        }
        for (key, value) in rows.iter().filter(|(key, value)| before.get(key) != Some(value)) {
            table.insert(*key, value)?;
        }
        if number % 6 == 5 {
            rows = before;
            txn.rollback()?;
        } else {
            txn.commit(Durability::Durable)?;
        }
        committed.store(number + 1, Ordering::Relaxed);
        match number {
            4 => db.checkpoint(Checkpoint::Indirect)?,
            9 => db.checkpoint(Checkpoint::Sharp)?,
            12 => drop(db.write(|txn| txn.open_table(OTHERS)?.insert(1, &[1; 3000]))?),
            16 => drop(db.write(|txn| txn.delete_table("others"))?),
            _ => (),
        }
    }
    let pages_copied = db.stats().pool.doublewrite_pages;
    assert_eq!(pages_copied > 0, matches!(shape, Shape::Fixed | Shape::Growing), "{shape:?}");
    db.close()
}

/// The rows after `count` transactions.
fn expected(count: u64, shape: Shape) -> Contents {
    let mut rows = Contents::new();
    for number in (0..count).filter(|number| number % 6 != 5) {
        step(number, &mut rows, shape);
    }
    rows
}

fn contents(db: &Database) -> Result<Contents, Error> {
    let read = db.read(|txn| {
        let table = txn.open_table(ROWS)?;
        table.range(..)?.map(|entry| entry.map(|e| (e.key(), e.value().to_vec()))).collect()
    });
    match read {
        Err(Error::NoSuchTable { .. }) => Ok(Contents::new()),
        read => read,
    }
}

/// Runs the history to event `at` and cuts; returns false if it ended before.
fn cut_at(at: u64, recuts: u64, shape: Shape) -> bool {
    let first = world(at);
    let rig = Rig::blank(&first.world(), shape);
    let committed = AtomicU64::new(0);
    first.cut_at_event(at);
    let mut prng = Prng::from_seed(at);
    match first.run(|| run(&rig, &committed)) {
        Ok(ran) => {
            ran.expect("good devices");
            return false;
        }
        Err(Stopped::PowerCut { .. }) => rig.cut(&mut prng),
        Err(stopped) => panic!("{stopped:?} at event {at}"),
    }
    let mut rig = rig;
    for recut in 0..recuts {
        let again = world(at + recut);
        rig = rig.in_world(&again.world());
        again.cut_at_event(1 + prng.below(60));
        match again.run(|| rig.open().map(drop)) {
            Ok(opened) => opened.expect("recovers"),
            Err(_) => rig.cut(&mut prng),
        }
    }
    let last = world(at);
    let rig = rig.in_world(&last.world());
    let count = committed.load(Ordering::Relaxed);
    let found = last.run(|| {
        let db = rig.open().expect("recovers");
        db.check().expect("whole");
        contents(&db).expect("readable")
    });
    let found = found.expect("nobody waits for ever");
    // The transaction in flight is there whole, or not at all.
    let either = found == expected(count, shape) || found == expected(count + 1, shape);
    assert!(either, "{shape:?}, event {at}: {} rows, {count} transactions", found.len());
    true
}

fn cut_everywhere(shape: Shape) {
    let mut at = 1;
    while cut_at(at, 0, shape) {
        at += 1 + at / 400;
    }
    assert!(at > 100, "the history has only {at} events");
}

fn cut_recovery(shape: Shape) {
    let mut at = 3;
    while cut_at(at, 3, shape) {
        at += 5 + at / 200;
    }
}

#[test]
fn every_cut_recovers() {
    cut_everywhere(Shape::Fixed);
}

#[test]
fn every_cut_recovers_where_home_writes_pages_atomically() {
    cut_everywhere(Shape::Whole);
    cut_recovery(Shape::Whole);
}

#[test]
fn a_home_that_tears_pages_needs_the_doublewrite_area() {
    let torn = std::panic::catch_unwind(|| cut_everywhere(Shape::Torn));
    let message = torn.expect_err("a page was torn");
    let message = message.downcast_ref::<String>().expect("a message");
    assert!(message.contains("Corrupt"), "{message}");
    let first = world(1);
    let rig = Rig { shape: Shape::Whole, ..Rig::blank(&first.world(), Shape::Torn) };
    let refused = first.run(|| rig.open().map(drop)).expect("nobody waits for ever");
    assert!(matches!(refused, Err(Error::InvalidOption { option: "torn_pages", .. })));
    let other = world(2);
    let rig = Rig { shape: Shape::Fixed, ..rig.in_world(&other.world()) };
    other.run(|| rig.open().map(drop)).expect("ends").expect("blank as it was");
}

#[test]
fn recovery_can_be_cut_again_and_again() {
    cut_recovery(Shape::Fixed);
}

#[test]
fn every_cut_of_a_log_that_grows_and_shrinks_recovers() {
    cut_everywhere(Shape::Growing);
}

#[test]
fn recovery_that_makes_its_log_grow_can_be_cut_again_and_again() {
    cut_recovery(Shape::Growing);
}

/// The history of the tests above does what they are for.
#[test]
fn the_log_of_the_history_grows_and_shrinks() {
    let world = world(1);
    let rig = Rig::blank(&world.world(), Shape::Growing);
    let sizes = world.run(|| {
        run(&rig, &AtomicU64::new(0)).expect("good devices");
        let small = rig.open().expect("whole");
        let at_first = small.stats().log.allocated_bytes;
        let fill = |round: u8| {
            small.write(|txn| {
                let mut rows = txn.open_table(ROWS)?;
                (0..100).try_for_each(|key| rows.insert(key, &[round; 3000]))
            })
        };
        (0..5).try_for_each(fill).expect("room");
        let grown = small.stats().log.allocated_bytes;
        (0..8).try_for_each(|_| small.checkpoint(Checkpoint::Sharp)).expect("good devices");
        (at_first, grown, small.stats().log.allocated_bytes)
    });
    let (at_first, grown, at_last) = sizes.expect("nobody waits for ever");
    assert!(rig.log.len() > 1 << 20, "the log had {} bytes", rig.log.len());
    assert!(at_first <= 512 << 10, "{at_first} bytes after it was closed");
    assert!(grown > 1 << 20, "{grown} bytes for 1.5 MB of rows");
    assert!(at_last <= 512 << 10, "{at_last} bytes when all is at home");
}
