//! Rollbacks at a full home: what an update has freed stays free for its undo.
//!
//! A rollback that had to split a leaf found no page in a full home, stopped the engine, and so did
//! the undo of every opening afterwards: the database was lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrace::{Database, Devices, Durability, Error, TableDef, World, WriteTransaction};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Keep, Store};
use terrace_rt::{LeafMutex, Nanos, Prng, Virtual, VirtualConfig, spawn};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const FILL: TableDef<u64, &[u8]> = TableDef::new("fill");

struct Rig {
    home: Arc<SimDevice>,
    log: Arc<SimDevice>,
}

impl Rig {
    fn blank(world: &World, home_bytes: u64, log_bytes: u64) -> Rig {
        let device = |bytes| {
            let spec = Preset::Ram.spec().with_write_cache();
            SimDevice::new(spec, world.clone(), Store::new(bytes, Keep::Plain))
        };
        Rig { home: device(home_bytes), log: device(log_bytes) }
    }

    fn in_world(&self, world: &World) -> Rig {
        let again = |device: &Arc<SimDevice>| device.reopen(world.clone());
        Rig { home: again(&self.home), log: again(&self.log) }
    }

    fn open(&self) -> Result<Database, Error> {
        let devices = Devices { home: self.home.clone(), flash: None, log: self.log.clone() };
        let builder = Database::builder().memory(512 << 10).devices(devices);
        builder.lock_timeout(Nanos::from_millis(50)).open_or_create_on_devices()
    }
}

fn world(seed: u64) -> Virtual {
    Virtual::new(VirtualConfig { seed, switch_one_in: 20, cores: 1, stack_bytes: 256 << 10 })
}

/// A value of which no part repeats.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut prng = Prng::from_seed(seed);
    (0..len).map(|_| prng.below(256) as u8).collect()
}

/// Fills home with rows of their own until there is no room.
fn fill(db: &Database) {
    let put = |number: u64, len| {
        db.write(|txn| txn.open_table(FILL)?.insert(number, &noise(number, len)[..]))
    };
    for (base, len) in [(0, 1500), (1 << 20, 200), (1 << 30, 20)] {
        let refused = (base..base + 9000).find_map(|number| put(number, len).err());
        assert!(matches!(refused, Some(Error::HomeFull { .. })), "{refused:?}");
    }
}

/// One transaction shrinks rows; others put rows between them, where the bytes were that it freed,
/// and fill home. Returns the one that goes on.
fn shrink_and_fill(db: &Database) -> WriteTransaction {
    let of_rows = |txn: &WriteTransaction| {
        let mut rows = txn.open_table(ROWS)?;
        (0..800u64).try_for_each(|key| rows.insert(key * 1000, &noise(key, 1000)[..]))?;
        txn.open_table(FILL).map(drop)
    };
    db.write(of_rows).expect("room");
    let shrinking = db.begin_write().expect("open");
    {
        let mut rows = shrinking.open_table(ROWS).expect("there");
        let small = (0..800u64).filter(|key| key % 8 != 0);
        small.for_each(|key| rows.insert(key * 1000, b"small").expect("room"));
    }
    let others = db.clone();
    let beside = spawn("others", move || {
        for key in (8..800u64).step_by(8) {
            for number in 1..9 {
                let row = noise(number, 600);
                let put =
                    others.write(|txn| txn.open_table(ROWS)?.insert(key * 1000 - number, &row[..]));
                assert!(matches!(put, Ok(_) | Err(Error::HomeFull { .. })), "{put:?}");
            }
        }
        fill(&others);
    });
    beside.join();
    shrinking
}

fn check_rows(db: &Database) {
    let rows = |txn: &terrace::ReadTransaction| {
        let rows = txn.open_table(ROWS)?;
        for key in 0..800u64 {
            let value = rows.get(key * 1000)?.expect("committed");
            assert_eq!(*value.value(), noise(key, 1000), "row {key}");
        }
        Ok::<_, Error>(())
    };
    db.read(rows).expect("readable");
    db.check().expect("whole");
}

#[test]
fn a_rollback_needs_no_page_of_a_full_home() {
    let world = world(1);
    let rig = Rig::blank(&world.world(), 2 << 20, 64 << 20);
    let work = || {
        let db = rig.open().expect("blank");
        shrink_and_fill(&db).rollback().expect("its rows have kept their places");
        check_rows(&db);
        db.close().expect("open");
        check_rows(&rig.open().expect("whole"));
    };
    world.run(work).expect("nobody waits for ever");
}

/// Ends the world as a power cut does.
fn power_cut(world: &Virtual, rig: &Rig, seed: u64) {
    world.cut_at_event(world.world().events());
    let _dead = world.run(|| terrace_rt::sleep(Nanos::from_secs(1)));
    let mut prng = Prng::from_seed(seed);
    for device in [&rig.home, &rig.log] {
        device.power_cut(&mut prng);
    }
}

#[test]
fn recovery_needs_no_page_of_a_full_home() {
    let before = world(2);
    let rig = Rig::blank(&before.world(), 2 << 20, 64 << 20);
    let work = || {
        let db = rig.open().expect("blank");
        let shrinking = shrink_and_fill(&db);
        let durable = |txn: &WriteTransaction| txn.open_table(FILL)?.insert(0, &[1; 10]);
        db.write_with(Durability::Durable, durable).expect("it gets shorter");
        (db, shrinking)
    };
    let open = before.run(work).expect("nobody waits for ever");
    power_cut(&before, &rig, 2);
    drop(open);
    let after = world(3);
    let rig = rig.in_world(&after.world());
    after.run(|| check_rows(&rig.open().expect("undo needs no page"))).expect("no hang");
}

type Ledger = BTreeMap<u64, Vec<u8>>;

const CLIENTS: u64 = 4;
const KEYS: u64 = 300;

/// Lengths of which many make a row shorter, and some make it longer.
fn some_value(prng: &mut Prng) -> Vec<u8> {
    let len = match prng.below(20) {
        0 => 2_000 + prng.below(20_000),
        1..6 => 800 + prng.below(900),
        6..12 => prng.below(300),
        _ => prng.below(12),
    };
    noise(prng.below(1 << 40), len as usize)
}

/// Changes rows of its own, next to those of others; rolls some of it back.
fn change(
    txn: &WriteTransaction,
    (me, prng): (u64, &mut Prng),
    ledger: &mut Ledger,
) -> Result<(), Error> {
    let mut marked = None;
    for _ in 0..1 + prng.below(40) {
        let key = prng.below(KEYS) * CLIENTS + me;
        match prng.below(12) {
            0 => marked = Some((txn.savepoint()?, ledger.clone())),
            1 => {
                if let Some((savepoint, then)) = marked.take() {
                    txn.rollback_to(&savepoint)?;
                    *ledger = then;
                }
            }
            2 => {
                txn.open_table(ROWS)?.remove(key)?;
                ledger.remove(&key);
            }
            _ => {
                let value = some_value(prng);
                txn.open_table(ROWS)?.insert(key, &value[..])?;
                ledger.insert(key, value);
            }
        }
    }
    Ok(())
}

/// What clients have committed, and how often home was full.
#[derive(Default)]
struct Done {
    ledger: Ledger,
    full: u64,
    clients: u64,
}

/// Leaves its last transaction open.
fn client(db: &Database, done: &LeafMutex<Done>, me: u64, seed: u64) {
    let mut prng = Prng::from_seed(seed ^ (me + 1) << 32);
    let (mut ledger, mut full) = (Ledger::new(), 0);
    for step in 0..120 {
        let txn = db.begin_write().expect("open");
        let mut then = ledger.clone();
        match change(&txn, (me, &mut prng), &mut then) {
            Ok(()) if !prng.chance(4) => {
                txn.commit(Durability::Durable).expect("a commit needs no room");
                ledger = then;
            }
            Ok(()) => txn.rollback().expect("a rollback needs no room"),
            Err(error) if error.is_transient() || matches!(error, Error::HomeFull { .. }) => {
                full += u64::from(matches!(error, Error::HomeFull { .. }));
                txn.rollback().expect("a rollback needs no room");
            }
            Err(error) => panic!("seed {seed} client {me} step {step}: {error:?}"),
        }
    }
    let open = db.begin_write().expect("open");
    let _refused = change(&open, (me, &mut prng), &mut ledger.clone());
    {
        let mut done = done.lock();
        done.ledger.extend(ledger);
        done.full += full;
        done.clients += 1;
    }
    terrace_rt::sleep(Nanos::from_secs(1 << 20));
    drop(open);
}

fn contents(db: &Database) -> Ledger {
    let all = |txn: &terrace::ReadTransaction| {
        let rows = txn.open_table(ROWS)?;
        rows.range(..)?.map(|entry| entry.map(|e| (e.key(), e.value().to_vec()))).collect()
    };
    db.read(all).expect("readable")
}

#[test]
fn no_rollback_at_a_full_home_stops_the_engine() {
    let mut full = 0;
    for seed in 0..40 {
        let before = world(seed);
        let home_bytes = [1u64 << 20, 3 << 19, 2 << 20, 5 << 19, 5 << 20][seed as usize % 5];
        let rig = Rig::blank(&before.world(), home_bytes, 16 << 20);
        let done: Arc<LeafMutex<Done>> = Arc::default();
        let work = || {
            let db = rig.open().expect("blank");
            db.write(|txn| txn.open_table(ROWS).map(drop)).expect("room");
            for me in 0..CLIENTS {
                let (db, done) = (db.clone(), Arc::clone(&done));
                drop(spawn("client", move || client(&db, &done, me, seed)));
            }
            while done.lock().clients < CLIENTS {
                terrace_rt::sleep(Nanos::from_millis(10));
            }
            // Something durable behind what is left open.
            let key = CLIENTS * KEYS;
            let _full = db.write(|txn| txn.open_table(ROWS)?.insert(key, &[]));
            db.write_with(Durability::Durable, |txn| txn.open_table(ROWS)?.remove(key).map(drop))
                .expect("a removal needs no room");
            before.cut_at_event(before.world().events());
            terrace_rt::sleep(Nanos::from_secs(1));
        };
        before.run(work).expect_err("the power is cut");
        let mut prng = Prng::from_seed(seed);
        for device in [&rig.home, &rig.log] {
            device.power_cut(&mut prng);
        }
        let Done { ledger: expected, full: refused, .. } = std::mem::take(&mut *done.lock());
        full += refused;
        let after = world(seed + 1000);
        let rig = rig.in_world(&after.world());
        let work = || {
            let db = rig.open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert!(contents(&db) == expected, "seed {seed}");
            db.check().expect("whole");
        };
        after.run(work).expect("nobody waits for ever");
    }
    assert!(full > 100, "home was full {full} times only");
}
