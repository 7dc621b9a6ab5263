//! A log that grows: into a full device, under a limit, and beside a damaged superblock.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrace::{Checkpoint, Database, Devices, Durability, Error, Nanos, Part, TableDef, World};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Device, FaultPlan, FaultyDevice, Keep, Store, read, write};
use terrace_rt::{LeafMutex, Prng, Stopped, Virtual, VirtualConfig, sleep};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const PAGE: usize = 8192;
const MIB: u64 = 1 << 20;

type Ledger = BTreeMap<u64, Vec<u8>>;

struct Rig {
    home: Arc<SimDevice>,
    log: Arc<SimDevice>,
}

impl Rig {
    fn blank(world: &World) -> Rig {
        let device = |bytes| {
            let spec = Preset::Ram.spec().with_write_cache();
            SimDevice::new(spec, world.clone(), Store::new(bytes, Keep::Plain))
        };
        Rig { home: device(16 * MIB), log: device(4096) }
    }

    fn in_world(&self, world: &World) -> Rig {
        Rig { home: self.home.reopen(world.clone()), log: self.log.reopen(world.clone()) }
    }

    fn cut(&self, prng: &mut Prng) {
        self.home.power_cut(prng);
        self.log.power_cut(prng);
    }

    fn open(&self, log_max: u64) -> Result<Database, Error> {
        open_on(self.home.clone(), self.log.clone(), log_max)
    }
}

fn open_on(home: Arc<dyn Device>, log: Arc<dyn Device>, log_max: u64) -> Result<Database, Error> {
    let devices = Devices { home, flash: None, log };
    let builder = Database::builder().memory(256 << 10).log_max(log_max).devices(devices);
    builder.open_or_create_on_devices()
}

fn world(seed: u64) -> Virtual {
    Virtual::new(VirtualConfig { seed, switch_one_in: 5, cores: 1, stack_bytes: 256 << 10 })
}

fn contents(db: &Database) -> Ledger {
    let rows = db.read(|txn| {
        let rows = txn.open_table(ROWS)?;
        rows.range(..)?.map(|entry| entry.map(|e| (e.key(), e.value().to_vec()))).collect()
    });
    match rows {
        Err(Error::NoSuchTable { .. }) => Ledger::new(),
        rows => rows.expect("readable"),
    }
}

/// Rows that were reported as committed, those of the transaction under way, and how many were too
/// large.
#[derive(Default)]
struct Written {
    rows: Ledger,
    under_way: Ledger,
    full: u64,
}

/// Replaces `count` rows.
fn replace(
    db: &Database,
    prng: &mut Prng,
    count: u64,
    written: &LeafMutex<Written>,
) -> Result<(), Error> {
    let row = |_| (prng.below(1_000), vec![prng.next_u64() as u8; 900]);
    let fresh: Ledger = (0..count).map(row).collect();
    written.lock().under_way = fresh.clone();
    let inserted = db.write_with(Durability::Durable, |txn| {
        let mut table = txn.open_table(ROWS)?;
        fresh.iter().try_for_each(|(key, value)| table.insert(*key, value))
    });
    let mut written = written.lock();
    if inserted.is_ok() {
        written.rows.extend(fresh);
    }
    written.under_way.clear();
    inserted
}

/// Runs transactions of many sizes on a log that cannot get as long as some of them need.
fn fill(rig: &Rig, seed: u64, written: &LeafMutex<Written>) {
    let mut prng = Prng::from_seed(seed);
    let db = rig.open(64 * MIB).expect("room for an empty log");
    for round in 0..40 {
        let count = [1, 20, 150, 900][prng.below(4) as usize];
        match replace(&db, &mut prng, count, written) {
            Ok(()) => (),
            Err(error @ (Error::LogFull { .. } | Error::HoldsLog { .. })) => {
                let (Error::LogFull { is_device_full, .. }
                | Error::HoldsLog { is_device_full, .. }) = error
                else {
                    unreachable!("{error}")
                };
                // A larger limit would not help.
                assert!(is_device_full, "{error}");
                written.lock().full += 1;
                replace(&db, &mut prng, 1, written).expect("a small one goes on");
            }
            Err(error) => panic!("seed {seed} round {round}: {error:?}"),
        }
    }
    db.close().expect("a checkpoint finds room");
}

/// A blank rig whose log has little room, and the world it is in.
fn on_a_full_device(seed: u64) -> (Virtual, Rig) {
    let world = world(seed);
    let rig = Rig::blank(&world.world());
    rig.log.set_full_from(Some(MIB * (2 + seed % 8) / 5));
    (world, rig)
}

/// The log of a database on a full device, closed, and opened again there and with more room.
#[test]
fn a_device_without_room_for_the_log_refuses_large_transactions_and_no_others() {
    let mut full = 0;
    for seed in 0..24 {
        let (first, mut rig) = on_a_full_device(seed);
        let written = LeafMutex::new(Written::default());
        first.run(|| fill(&rig, seed, &written)).expect("nobody waits for ever");
        full += written.lock().full;
        for has_room in [false, true] {
            let next = world(seed);
            rig = rig.in_world(&next.world());
            let run = || {
                if has_room {
                    rig.log.set_full_from(None);
                }
                let db = rig.open(64 * MIB).expect("what is there is enough");
                let rows = contents(&db);
                assert!(rows == written.lock().rows, "seed {seed}: {} rows", rows.len());
                let large = replace(&db, &mut Prng::from_seed(seed), 2_000, &written);
                assert!(has_room == large.is_ok(), "seed {seed}: {large:?}");
                db.check().expect("whole");
            };
            next.run(run).expect("nobody waits for ever");
        }
    }
    assert!(full > 50, "{full} transactions found the log full");
}

/// The power goes while the log is full, or is being extended.
#[test]
fn a_power_cut_beside_a_full_device_is_recovered_from_there() {
    let mut cuts = 0;
    for seed in 0..150 {
        let (first, rig) = on_a_full_device(seed);
        let mut prng = Prng::from_seed(seed);
        first.cut_at_event(400 + prng.below(6_000));
        let written = LeafMutex::new(Written::default());
        match first.run(|| fill(&rig, seed, &written)) {
            Ok(()) => continue,
            Err(Stopped::PowerCut { .. }) => rig.cut(&mut prng),
            Err(stopped) => panic!("seed {seed}: {stopped:?}"),
        }
        cuts += 1;
        let next = world(seed);
        let rig = rig.in_world(&next.world());
        let found = next.run(|| {
            let db = rig.open(64 * MIB).expect("recovery needs no more room");
            db.check().expect("whole");
            let rows = contents(&db);
            db.close().expect("nor does closing");
            rows
        });
        let (found, written) = (found.expect("nobody waits for ever"), written.lock());
        let mut with_last = written.rows.clone();
        with_last.extend(written.under_way.clone());
        let is_either = found == written.rows || found == with_last;
        assert!(is_either, "seed {seed}: {} rows", found.len());
    }
    assert!(cuts > 50, "{cuts} cuts");
}

/// Devices whose power was cut when the log had 2 MiB in use, of a limit of 16 MiB, and the rows.
fn with_a_long_log() -> (Rig, Ledger) {
    let first = world(1);
    let rig = Rig::blank(&first.world());
    let written = LeafMutex::new(Written::default());
    first.cut_at(Nanos::from_secs(500));
    let cut = first.run(|| {
        let db = rig.open(16 * MIB).expect("blank devices");
        let mut prng = Prng::from_seed(1);
        replace(&db, &mut prng, 10, &written).expect("room");
        let open = db.begin_write().expect("room");
        open.open_table(ROWS).and_then(|mut table| table.insert(5_000, &[1; 100])).expect("free");
        for _ in 0..14 {
            replace(&db, &mut prng, 150, &written).expect("room");
        }
        let used_bytes = db.stats().log.used_bytes;
        assert!(used_bytes > 2 * MIB, "{used_bytes} bytes in use");
        sleep(Nanos::from_secs(1_000));
    });
    assert!(matches!(cut, Err(Stopped::PowerCut { .. })), "{cut:?}");
    rig.cut(&mut Prng::from_seed(1));
    let rows = written.lock().rows.clone();
    (rig, rows)
}

#[test]
fn a_limit_below_what_is_in_use_is_refused_until_it_is_not() {
    let (rig, rows) = with_a_long_log();
    let next = world(2);
    let rig = rig.in_world(&next.world());
    let run = || {
        let before = (rig.home.counters().writes, rig.log.counters().writes);
        match rig.open(MIB) {
            Err(Error::InvalidOption { option: "log_max", what }) => {
                assert!(what.contains("in use"), "{what}");
            }
            opened => panic!("{:?}", opened.err()),
        }
        let after = (rig.home.counters().writes, rig.log.counters().writes);
        assert_eq!(before, after, "nothing was written");
        let db = rig.open(16 * MIB).expect("the limit that it had");
        assert!(contents(&db) == rows);
        for _ in 0..4 {
            db.checkpoint(Checkpoint::Sharp).expect("good devices");
        }
        db.close().expect("good devices");
        let db = rig.open(MIB).expect("little is in use");
        assert!(contents(&db) == rows);
        assert_eq!(db.stats().log.capacity_bytes, MIB);
        let written = LeafMutex::new(Written::default());
        let mut prng = Prng::from_seed(3);
        let large = replace(&db, &mut prng, 900, &written);
        assert!(matches!(large, Err(Error::LogFull { is_device_full: false, .. })), "{large:?}");
        for _ in 0..200 {
            replace(&db, &mut prng, 20, &written).expect("checkpoints make room");
        }
        let allocated_bytes = db.stats().log.allocated_bytes;
        assert!(allocated_bytes <= MIB, "{allocated_bytes} bytes of log");
    };
    next.run(run).expect("nobody waits for ever");
}

/// The log gives back what the newer superblock does not need. Were that all, the older one would
/// stand in for nothing.
#[test]
fn either_superblock_opens_a_database_whose_log_has_shrunk() {
    for case in 0..32 {
        let (copy, is_closed) = (case % 2, case % 8 < 2);
        let first = world(1);
        let rig = Rig::blank(&first.world());
        let written = LeafMutex::new(Written::default());
        first.cut_at(Nanos::from_secs(30));
        let ran = first.run(|| {
            let db = rig.open(16 * MIB).expect("blank devices");
            let mut prng = Prng::from_seed(1);
            for round in 0..18 {
                replace(&db, &mut prng, 150, &written).expect("room");
                if round % 6 == 5 {
                    db.checkpoint(Checkpoint::Sharp).expect("good devices");
                }
            }
            if is_closed {
                db.close().expect("good devices");
            } else {
                sleep(Nanos::from_secs(60));
            }
        });
        assert_eq!(ran.is_ok(), is_closed, "{ran:?}");
        rig.cut(&mut Prng::from_seed(case));
        let next = world(2);
        let rig = rig.in_world(&next.world());
        let run = || {
            let mut page = vec![0; PAGE];
            read(&*rig.home, copy * PAGE as u64, &mut page).expect("good devices");
            page[100] ^= 1;
            write(&*rig.home, copy * PAGE as u64, &page).expect("good devices");
            let db = rig.open(16 * MIB).expect("the other copy is whole");
            assert_eq!(db.bad_copies().len(), 1, "copy {copy}");
            assert!(contents(&db) == written.lock().rows, "copy {copy}");
            db.check().expect("whole");
        };
        next.run(run).expect("nobody waits for ever");
    }
}

/// The bug: a failed write of the second copy of the superblock was not reported, and the log gave
/// back what that copy names. When the first copy was damaged later, the opening was refused.
#[test]
fn a_log_is_not_cut_unless_both_superblocks_were_written() {
    let page = PAGE as u64;
    for unwritable in 0..2 {
        let first = world(1);
        let rig = Rig::blank(&first.world());
        let written = LeafMutex::new(Written::default());
        first.cut_at(Nanos::from_secs(30));
        let ran = first.run(|| {
            let home = FaultyDevice::new(rig.home.clone(), FaultPlan::default());
            let db = open_on(home.clone(), rig.log.clone(), 16 * MIB).expect("blank devices");
            let mut prng = Prng::from_seed(1);
            for _ in 0..6 {
                replace(&db, &mut prng, 150, &written).expect("room");
            }
            db.flush().expect("good devices");
            home.set_unwritable(Some(unwritable * page..(unwritable + 1) * page));
            let told = db.checkpoint(Checkpoint::Sharp);
            assert!(matches!(told, Err(Error::Failed { .. })), "page {unwritable}: {told:?}");
            assert!(replace(&db, &mut prng, 1, &LeafMutex::default()).is_err(), "it has stopped");
            sleep(Nanos::from_secs(60));
        });
        assert!(matches!(ran, Err(Stopped::PowerCut { .. })), "page {unwritable}: {ran:?}");
        rig.cut(&mut Prng::from_seed(1));
        let next = world(2);
        let rig = rig.in_world(&next.world());
        let run = || {
            let other = (1 - unwritable) * page;
            write(&*rig.home, other + 512, &[0xa5; 512]).expect("good devices");
            let db = rig.open(16 * MIB).expect("the other copy, and the log that it names");
            assert!(contents(&db) == written.lock().rows, "page {unwritable}");
            db.check().expect("whole");
        };
        next.run(run).expect("nobody waits for ever");
    }
}

/// The bug: that a damaged copy of the log's header could not be written anew was not reported, and
/// the next change of the header went over the only copy that was whole.
#[test]
fn a_header_that_cannot_be_written_anew_stops_the_opening_and_spares_the_other_one() {
    const BLOCK: usize = 4096;
    for bad in 0..2 {
        let first = world(1);
        let rig = Rig::blank(&first.world());
        let written = LeafMutex::new(Written::default());
        let run = || {
            let (at, other) = ((bad * BLOCK) as u64, ((1 - bad) * BLOCK) as u64);
            let db = rig.open(16 * MIB).expect("blank devices");
            replace(&db, &mut Prng::from_seed(1), 100, &written).expect("room");
            db.close().expect("good devices");
            write(&*rig.log, at + 512, &[0xa5; 512]).expect("good devices");
            let mut before = vec![0; BLOCK];
            read(&*rig.log, other, &mut before).expect("good devices");

            let log = FaultyDevice::new(rig.log.clone(), FaultPlan::default());
            log.set_unwritable(Some(at..at + BLOCK as u64));
            match open_on(rig.home.clone(), log, 16 * MIB).map(|db| {
                let mut prng = Prng::from_seed(2);
                (0..20).try_for_each(|_| replace(&db, &mut prng, 150, &LeafMutex::default()))
            }) {
                Err(Error::Device { part: Part::Log, .. }) => (),
                opened => panic!("copy {bad}: {opened:?}"),
            }
            let mut after = vec![0; BLOCK];
            read(&*rig.log, other, &mut after).expect("good devices");
            assert!(before == after, "copy {bad}: the whole copy was written over");
            let db = rig.open(16 * MIB).expect("one copy is whole");
            assert!(contents(&db) == written.lock().rows, "copy {bad}");
        };
        first.run(run).expect("nobody waits for ever");
    }
}

/// The bug: the first growth with a header that could not be written returned the error. The next
/// one took what the first had noted for what is there, and tried to reserve it for ever.
#[test]
fn a_header_that_cannot_be_written_while_the_log_grows_stops_the_engine() {
    const BLOCK: u64 = 4096;
    for bad in 0..2 {
        let first = world(1);
        let rig = Rig::blank(&first.world());
        let written = LeafMutex::new(Written::default());
        let run = || {
            let log = FaultyDevice::new(rig.log.clone(), FaultPlan::default());
            let db = open_on(rig.home.clone(), log.clone(), 16 * MIB).expect("blank devices");
            let mut prng = Prng::from_seed(2);
            replace(&db, &mut prng, 100, &written).expect("room");
            log.set_unwritable(Some(bad * BLOCK..(bad + 1) * BLOCK));
            let mut replaced = Ok(());
            for _ in 0..20 {
                replaced = replaced.and_then(|()| replace(&db, &mut prng, 150, &written));
            }
            assert!(matches!(replaced, Err(Error::Failed { .. })), "copy {bad}: {replaced:?}");
            assert!(db.close().is_err(), "copy {bad}");
            log.set_unwritable(None);
            let db = rig.open(16 * MIB).expect("one copy is whole");
            let rows = contents(&db);
            assert!(rows == written.lock().rows, "copy {bad}: {} rows", rows.len());
            db.check().expect("whole");
        };
        first.run(run).expect("nobody waits for ever");
    }
}
