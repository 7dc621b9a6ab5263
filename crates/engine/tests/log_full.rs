//! A full log: who is refused, who waits, and that it opens after a crash at any level.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace::{Database, Devices, Durability, Error, TableDef, World};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Keep, Store};
use terrace_rt::{Task, Virtual, VirtualConfig, spawn};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const OTHERS: TableDef<u64, &[u8]> = TableDef::new("others");

struct Rig {
    home: Arc<SimDevice>,
    log: Arc<SimDevice>,
}

impl Rig {
    fn blank(world: &World, log_bytes: u64) -> Rig {
        let device = |bytes| {
            let spec = Preset::Ram.spec().with_write_cache();
            SimDevice::new(spec, world.clone(), Store::new(bytes, Keep::Plain))
        };
        Rig { home: device(64 << 20), log: device(log_bytes) }
    }

    fn open(&self) -> Result<Database, Error> {
        let devices = Devices { home: self.home.clone(), flash: None, log: self.log.clone() };
        Database::builder().memory(2 << 20).devices(devices).open_or_create_on_devices()
    }
}

fn world(seed: u64) -> Virtual {
    Virtual::new(VirtualConfig { seed, switch_one_in: 20, cores: 1, stack_bytes: 256 << 10 })
}

/// A value of which no part repeats.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut prng = terrace_rt::Prng::from_seed(seed);
    (0..len).map(|_| prng.below(256) as u8).collect()
}

fn write_others(db: &Database, number: u64, len: usize) -> Result<(), Error> {
    let value = noise(number, len);
    db.write_with(Durability::Buffered, |txn| txn.open_table(OTHERS)?.insert(number % 50, &value))
}

/// `LogFull` counted everybody's log since a transaction's first record.
#[test]
fn a_small_transaction_is_not_refused_for_what_others_wrote() {
    let world = world(1);
    let rig = Rig::blank(&world.world(), 8 << 20);
    let work = || {
        let db = rig.open().expect("blank");
        db.write(|txn| txn.open_table(ROWS)?.insert(0, &[0; 10])).expect("room");
        let txn = db.begin_write().expect("open");
        txn.open_table(ROWS).expect("there").insert(1, &[1; 100]).expect("room");
        let before = db.stats().log.bytes;
        for number in 0.. {
            write_others(&db, number, 1500).expect("room");
            if db.stats().log.bytes - before > 5 << 20 {
                break;
            }
        }
        txn.open_table(ROWS).expect("there").insert(2, &[2; 100]).expect("its own bytes are few");
        txn.commit(Durability::Durable).expect("room");
        db.check().expect("whole");
    };
    world.run(work).expect("nobody waits for ever");
}

/// Writers of a few KiB found the smallest log full, and failed instead of waiting for each other.
#[test]
fn writers_that_find_the_log_full_wait_for_each_other() {
    const CLIENTS: u64 = 8;
    let world = world(2);
    let rig = Rig::blank(&world.world(), 1 << 20);
    let work = || {
        let db = rig.open().expect("blank");
        db.write(|txn| txn.open_table(ROWS).map(drop)).expect("room");
        let client = |me| {
            let db = db.clone();
            spawn("client", move || {
                for number in 0..150 {
                    let value = noise(number, 600);
                    let write = |txn: &terrace::WriteTransaction| {
                        let mut rows = txn.open_table(ROWS)?;
                        (0..5).try_for_each(|row| rows.insert(me * 1000 + row * 7, &value))
                    };
                    db.write_with(Durability::Durable, write).expect("it waits for room");
                }
            })
        };
        (0..CLIENTS).map(client).collect::<Vec<_>>().into_iter().for_each(Task::join);
        db.check().expect("whole");
    };
    world.run(work).expect("nobody waits for ever");
}

#[test]
fn who_keeps_a_full_log_is_named_and_told() {
    let world = world(3);
    let rig = Rig::blank(&world.world(), 2 << 20);
    let work = || {
        let db = rig.open().expect("blank");
        db.write(|txn| txn.open_table(ROWS)?.insert(0, &[0; 10])).expect("room");
        write_others(&db, 0, 10).expect("room");
        let idle = db.begin_write().expect("open");
        idle.open_table(ROWS).expect("there").insert(1, &[1; 100]).expect("room");
        let refused = (0..5000).find_map(|number| write_others(&db, number, 1500).err());
        let Some(Error::LogHeld { held_bytes, capacity, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert!(held_bytes > capacity / 4 * 3, "{held_bytes} of {capacity}");
        let told = idle.open_table(ROWS).expect("there").insert(2, &[2; 100]);
        assert!(matches!(told, Err(Error::LogFull { own_bytes: 1..1000, .. })), "{told:?}");
        idle.rollback().expect("room was kept");
        (0..2000).for_each(|number| write_others(&db, number, 1500).expect("room again"));
        db.check().expect("whole");
    };
    world.run(work).expect("nobody waits for ever");
}

#[test]
fn who_waits_goes_on_as_soon_as_the_log_is_let_go() {
    let world = world(4);
    let rig = Rig::blank(&world.world(), 2 << 20);
    let work = || {
        let db = rig.open().expect("blank");
        db.write(|txn| txn.open_table(ROWS)?.insert(0, &[0; 10])).expect("room");
        write_others(&db, 0, 10).expect("room");
        let idle = db.begin_write().expect("open");
        idle.open_table(ROWS).expect("there").insert(1, &[1; 100]).expect("room");
        let done = Arc::new(AtomicU64::new(0));
        let (others, count) = (db.clone(), Arc::clone(&done));
        let writer = spawn("writer", move || {
            for number in 0..2000 {
                write_others(&others, number, 1500).expect("it waits");
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut seen = u64::MAX;
        while seen != done.load(Ordering::Relaxed) {
            seen = done.load(Ordering::Relaxed);
            terrace_rt::sleep(terrace_rt::Nanos::from_secs(1));
        }
        assert!((1..2000).contains(&seen), "the writer waits for room, after {seen}");
        idle.commit(Durability::Durable).expect("room");
        writer.join();
        assert_eq!(done.load(Ordering::Relaxed), 2000);
    };
    world.run(work).expect("nobody waits for ever");
}
