//! Snapshots: what readers see while others write, held against models.

#[path = "snapshots/model.rs"]
mod model;
#[path = "snapshots/races.rs"]
mod races;
#[path = "snapshots/spilled.rs"]
mod spilled;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace::{Database, Devices, Durability, Error, Nanos, TableDef, World};
use terrace_device::model::{Preset, SimDevice, build};
use terrace_device::{Device, Keep, Store};
use terrace_pool::Mutations;
use terrace_rt::{Prng, Virtual, VirtualConfig, sleep, spawn, yield_now};

const ROWS: TableDef<u64, u64> = TableDef::new("rows");
const TEXTS: TableDef<u64, &[u8]> = TableDef::new("texts");

fn in_world<T>(seed: u64, switch_one_in: u32, run: impl FnOnce() -> T) -> T {
    let config = VirtualConfig { seed, switch_one_in, cores: 2, stack_bytes: 256 << 10 };
    Virtual::new(config).run(run).expect("nobody waits for ever")
}

/// A database in memory.
struct Shape {
    frames: u64,
    version_bytes: u64,
    log_bytes: u64,
    mutations: Mutations,
    /// Bytes for versions on disk.
    spill_bytes: u64,
}

const SHAPE: Shape = Shape {
    frames: 256,
    version_bytes: 4 << 20,
    log_bytes: 32 << 20,
    mutations: Mutations::NONE,
    spill_bytes: 0,
};

impl Shape {
    fn create(&self) -> Database {
        let device = |bytes| build(Preset::Ram, World::current(), Store::new(bytes, Keep::Plain));
        self.create_with((self.spill_bytes > 0).then(|| device(2 * self.spill_bytes) as _))
    }

    fn create_with(&self, versions: Option<Arc<dyn Device>>) -> Database {
        let device = |bytes| build(Preset::Ram, World::current(), Store::new(bytes, Keep::Plain));
        let devices = Devices { home: device(64 << 20), flash: None, log: device(self.log_bytes) };
        let builder = Database::builder()
            .memory(self.frames * 8192)
            .version_memory(self.version_bytes)
            .tune(|tier| tier.mutations = self.mutations)
            .devices(devices);
        let builder = match versions {
            Some(device) => builder.version_device(device).version_limit(self.spill_bytes),
            None => builder,
        };
        builder.create_on_devices().expect("memory")
    }
}

fn put(db: &Database, row: u64, value: u64) {
    db.write(|txn| txn.open_table(ROWS)?.insert(row, value)).expect("room");
}

fn seen(txn: &terrace::ReadTransaction, row: u64) -> Option<u64> {
    txn.open_table(ROWS).expect("there").get(row).expect("readable").map(|value| value.value())
}

#[test]
fn a_snapshot_neither_waits_nor_is_waited_for() {
    in_world(1, 0, || {
        let db = SHAPE.create();
        put(&db, 1, 10);
        let (early, writer) = (db.begin_read().expect("open"), db.begin_write().expect("open"));
        assert_eq!(seen(&early, 1), Some(10));
        let mut rows = writer.open_table(ROWS).expect("there");
        rows.insert(1, 11).expect("no reader is in the way");
        rows.insert(2, 20).expect("no reader is in the way");
        // Of the same task, which would get an error if it had to wait.
        let late = db.begin_read().expect("open");
        assert_eq!((seen(&late, 1), seen(&late, 2)), (Some(10), None));
        writer.commit(Durability::None).expect("room");
        assert_eq!((seen(&late, 1), seen(&late, 2)), (Some(10), None));
        let after = db.begin_read().expect("open");
        assert_eq!((seen(&after, 1), seen(&after, 2)), (Some(11), Some(20)));
        let stats = db.stats().transactions;
        assert_eq!((stats.snapshots, stats.lock_waits), (3, 0));
        assert!(stats.version_bytes > 0);
        drop((early, late, after));
        assert_eq!(db.stats().transactions.snapshots, 0);
    });
}

#[test]
fn a_snapshot_reads_on_in_a_table_that_was_dropped() {
    in_world(2, 0, || {
        let db = SHAPE.create();
        db.write(|txn| {
            let mut texts = txn.open_table(TEXTS)?;
            (0..200).try_for_each(|row| texts.insert(row, &[7; 9_000]).map(drop))
        })
        .expect("room");
        let snapshot = db.begin_read().expect("open");
        let sum = |txn: &terrace::ReadTransaction| {
            let texts = txn.open_table(TEXTS)?;
            texts.range(..)?.try_fold(0, |sum, row| Ok::<_, Error>(sum + row?.value().len()))
        };
        db.write(|txn| txn.delete_table("texts").map(drop)).expect("there");
        sleep(Nanos::from_millis(500));
        let full = db.stats().home_used_bytes;
        assert_eq!(sum(&snapshot).expect("it stays"), 200 * 9_000);
        assert_eq!(snapshot.table_names().expect("readable"), ["texts"]);
        let after = db.begin_read().expect("open");
        assert!(matches!(after.open_table(TEXTS), Err(Error::NoSuchTable { .. })));
        drop((snapshot, after));
        sleep(Nanos::from_secs(2));
        let left = db.stats().home_used_bytes;
        assert!(left + 200 * 9_000 <= full, "{left} of {full} bytes are left");
    });
}

/// The bug: a transaction of more undo than memory keeps made readers wait for it.
#[test]
fn a_large_transaction_is_not_waited_for_while_its_versions_have_room() {
    const COUNT: u64 = 30_000;
    for (version_bytes, has_room) in [(64 << 20, true), (1 << 20, false)] {
        in_world(3, 0, || {
            let db = Shape { frames: 4096, version_bytes, log_bytes: 128 << 20, ..SHAPE }.create();
            let fill = |txn: &terrace::WriteTransaction, byte: u8| {
                let mut texts = txn.open_table(TEXTS)?;
                (0..COUNT).try_for_each(|row| texts.insert(row, &[byte; 300]).map(drop))
            };
            db.write(|txn| fill(txn, 1)).expect("room");
            let large = db.begin_write().expect("open");
            fill(&large, 2).expect("room");
            let sum = |txn: &terrace::ReadTransaction| {
                let texts = txn.open_table(TEXTS)?;
                texts
                    .range(..)?
                    .try_fold(0, |sum, row| Ok::<_, Error>(sum + u64::from(row?.value()[150])))
            };
            let early = db.begin_read().expect("open");
            match has_room {
                true => assert_eq!(sum(&early).expect("no locks"), COUNT),
                false => assert!(matches!(sum(&early), Err(Error::Nested(_))), "it takes locks"),
            }
            large.commit(Durability::None).expect("room");
            if has_room {
                assert_eq!(sum(&early).expect("its versions stay"), COUNT);
            }
            drop(early);
            assert_eq!(sum(&db.begin_read().expect("open")).expect("no locks"), 2 * COUNT);
        });
    }
}

#[test]
fn a_snapshot_beyond_its_memory_is_ended_and_told_and_no_writer_waits() {
    in_world(4, 0, || {
        let db = Shape { version_bytes: 64 << 10, ..SHAPE }.create();
        put(&db, 1, 10);
        let (first, second) = (db.begin_read().expect("open"), db.begin_read().expect("open"));
        for round in 0..2_000 {
            put(&db, round, 11);
        }
        assert!(db.stats().transactions.version_bytes <= 128 << 10);
        for snapshot in [&first, &second] {
            let rows = snapshot.open_table(ROWS).and_then(|rows| rows.get(1).map(drop));
            assert!(matches!(rows, Err(Error::SnapshotTooOld)), "{rows:?}");
            assert!(matches!(snapshot.table_names(), Err(Error::SnapshotTooOld)));
        }
        let again = db.begin_read().expect("open");
        assert_eq!(seen(&again, 1), Some(11));
    });
}

/// The bug: what was kept of a large transaction did not fit what its rows became once no snapshot
/// was left that could see them, and a reader with an ended snapshot panicked.
#[test]
fn a_snapshot_that_was_ended_looks_at_rows_of_which_too_little_is_kept() {
    in_world(7, 0, || {
        let db = Shape { version_bytes: 1 << 20, log_bytes: 128 << 20, ..SHAPE }.create();
        let put = |txn: &terrace::WriteTransaction, row: u64, byte: u8, len: usize| {
            txn.open_table(TEXTS)?.insert(row, &vec![byte; len]).map(drop)
        };
        db.write(|txn| (0..50).try_for_each(|row| put(txn, row, 1, 300))).expect("room");
        let large = db.begin_write().expect("open");
        (0..50).for_each(|row| put(&large, row, 2, 300).expect("room"));
        let snapshot = db.begin_read().expect("open");
        (0..20_000).for_each(|round| put(&large, 49, round as u8, 300).expect("room"));
        let other = |row| db.write(|txn| put(txn, row, 3, 300));
        (100..30_000).for_each(|row| other(row).expect("room"));
        large.commit(Durability::None).expect("room");
        db.write(|txn| (0..50).try_for_each(|row| put(txn, row, 4, 10))).expect("room");
        for row in [0, 20, 49] {
            let read = snapshot.open_table(TEXTS).and_then(|texts| texts.get(row).map(drop));
            assert!(matches!(read, Err(Error::SnapshotTooOld)), "{read:?}");
        }
        let later = db.begin_read().expect("open");
        let texts = later.open_table(TEXTS).expect("there");
        assert_eq!(texts.get(0).expect("readable").expect("there").value(), [4; 10]);
    });
}

#[test]
fn a_snapshot_of_a_closed_database_is_told() {
    in_world(5, 0, || {
        let db = SHAPE.create();
        put(&db, 1, 10);
        let snapshot = db.begin_read().expect("open");
        let rows = snapshot.open_table(ROWS).expect("there");
        db.clone().close().expect("memory");
        assert!(matches!(rows.get(1).map(drop), Err(Error::Closed)));
        assert!(matches!(
            rows.range(..).and_then(|mut rows| rows.next().transpose()).map(drop),
            Err(Error::Closed)
        ));
        assert!(matches!(snapshot.table_names(), Err(Error::Closed)));
        assert!(matches!(db.begin_read().map(drop), Err(Error::Closed)));
    });
}

#[test]
fn versions_have_64_kib_at_least_and_64_gib_at_most() {
    for bytes in [0, (64 << 10) - 1, (64 << 30) + 1] {
        in_world(6, 0, || {
            let device =
                |bytes| build(Preset::Ram, World::current(), Store::new(bytes, Keep::Plain));
            let devices = Devices { home: device(16 << 20), flash: None, log: device(8 << 20) };
            let refused = Database::builder()
                .version_memory(bytes)
                .devices(devices)
                .create_on_devices()
                .expect_err("no such limit");
            let option = "version_memory";
            assert!(matches!(refused, Error::InvalidOption { option: o, .. } if o == option));
        });
    }
}

/// What was seen by the last snapshot before the power was cut, and is there afterwards.
fn seen_and_left(
    seed: u64,
    begin: fn(&Database) -> Result<terrace::ReadTransaction, Error>,
) -> (u64, u64) {
    let mut prng = Prng::from_seed(seed);
    let config = |seed| VirtualConfig { seed, switch_one_in: 4, cores: 2, stack_bytes: 256 << 10 };
    let world = Virtual::new(config(seed));
    let device = |bytes| {
        let spec = Preset::Ram.spec().with_write_cache();
        SimDevice::new(spec, world.world(), Store::new(bytes, Keep::Plain))
    };
    let (home, log) = (device(16 << 20), device(4 << 20));
    let last = Arc::new(AtomicU64::new(0));
    let ran = world.run(|| {
        let devices = Devices { home: home.clone(), flash: None, log: log.clone() };
        let db = Database::builder().devices(devices).create_on_devices()?;
        put(&db, 1, 0);
        let writer = db.clone();
        let writes = move || {
            for value in 1..1_000 {
                let done = writer
                    .write_with(Durability::None, |txn| txn.open_table(ROWS)?.insert(1, value));
                done.expect("room");
                yield_now();
            }
        };
        spawn("writes", writes);
        for _ in 0..50 {
            let snapshot = begin(&db)?;
            last.store(seen(&snapshot, 1).expect("there"), Ordering::Relaxed);
            if prng.chance(20) {
                world.cut_at_event(0);
            }
            sleep(Nanos(10));
        }
        Ok::<_, Error>(())
    });
    let Err(_) = ran else { return (0, 0) };
    home.power_cut(&mut prng);
    log.power_cut(&mut prng);
    let world = Virtual::new(config(seed));
    let (home, log) = (home.reopen(world.world()), log.reopen(world.world()));
    let left = world.run(|| {
        let devices = Devices { home, flash: None, log };
        let db = Database::builder().devices(devices).open_on_devices().expect("recovered");
        seen(&db.begin_read().expect("open"), 1).expect("there")
    });
    (last.load(Ordering::Relaxed), left.expect("the power stays on"))
}

#[test]
fn a_durable_snapshot_never_shows_what_a_power_cut_takes_back() {
    let (mut cuts, mut lost) = (0, 0);
    for seed in 0..60 {
        let (seen, left) = seen_and_left(seed, Database::begin_read_durable);
        assert!(seen <= left, "seed {seed}: {seen} was seen, {left} is left");
        cuts += u64::from(seen > 0);
        let (seen, left) = seen_and_left(seed, Database::begin_read);
        lost += u64::from(seen > left);
    }
    assert!(cuts > 20 && lost > 10, "{cuts} cuts, {lost} of others lost what was seen");
}
