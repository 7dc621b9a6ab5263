//! A home whose file system is full: a transaction that needs room gets an error, all others go on.
//!
//! The home is a modelled device that is full from some byte on: reservations and writes past it
//! fail. Memory is a small part of the data, so pages are written home all the time: a page that
//! had been changed without a promise of room would stop the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrace::{Checkpoint, Database, Devices, Durability, Error, TableDef, World};
use terrace_device::model::{Faults, Preset, SimDevice};
use terrace_device::{Keep, Store};
use terrace_policy::designs;
use terrace_rt::{LeafMutex, Nanos, Prng, Task, Virtual, VirtualConfig, spawn};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const HOME_BYTES: u64 = 256 << 20;
const FIRST_ROWS: u64 = 400;
const CLIENTS: u64 = 4;

type Ledger = BTreeMap<u64, Vec<u8>>;

struct Rig {
    home: Arc<SimDevice>,
    flash: Arc<SimDevice>,
    log: Arc<SimDevice>,
}

impl Rig {
    fn blank(world: &World, room: u64) -> Rig {
        let device = |bytes, faults| {
            let store = Store::new(bytes, Keep::Plain);
            SimDevice::with_faults(Preset::Nvme.spec(), world.clone(), store, faults)
        };
        Rig {
            home: device(HOME_BYTES, Faults { full_from: Some(room), ..Faults::default() }),
            flash: device(2 << 20, Faults::default()),
            log: device(64 << 20, Faults::default()),
        }
    }

    fn in_world(&self, world: &World) -> Rig {
        let again = |device: &Arc<SimDevice>| device.reopen(world.clone());
        Rig { home: again(&self.home), flash: again(&self.flash), log: again(&self.log) }
    }

    fn open(&self, seed: u64) -> Result<Database, Error> {
        let name = ["no-ssd", "lc", "dw", "tac"][seed as usize % 4];
        let design = designs::find(name).expect("a row of the table");
        let flash = design.uses_flash().then(|| self.flash.clone() as _);
        let devices = Devices { home: self.home.clone(), flash, log: self.log.clone() };
        let builder = Database::builder().memory(512 << 10).design(design).devices(devices);
        builder.open_or_create_on_devices()
    }
}

fn world(seed: u64) -> Virtual {
    Virtual::new(VirtualConfig { seed, switch_one_in: 20, cores: 1, stack_bytes: 256 << 10 })
}

/// What a client met.
#[derive(Default)]
struct Met {
    rows: Ledger,
    full: u64,
    done_when_full: u64,
}

/// Inserts and replaces rows of its own; once it got the error that home is full it only replaces,
/// until `steps` are done.
fn client(db: &Database, me: u64, seed: u64, steps: u64) -> Met {
    let mut prng = Prng::from_seed(seed ^ (me << 32));
    let mut met = Met::default();
    for row in 0..FIRST_ROWS {
        met.rows.insert(row * CLIENTS + me, vec![0; 600]);
    }
    for step in 0..steps {
        let old = prng.below(FIRST_ROWS) * CLIENTS + me;
        let new = (FIRST_ROWS + step) * CLIENTS + me;
        let (replaced, fresh) = (vec![step as u8; 600], vec![step as u8; 20_000]);
        let inserts = met.full == 0 || prng.chance(10);
        let result = db.write_with(Durability::Buffered, |txn| {
            let mut rows = txn.open_table(ROWS)?;
            rows.insert(old, &replaced[..])?;
            if inserts {
                rows.insert(new, &fresh[..])?
            }
            Ok::<_, Error>(rows.get(new)?.is_some())
        });
        match result {
            Ok(inserted) => {
                met.rows.insert(old, replaced);
                if inserted {
                    met.rows.insert(new, fresh);
                }
                met.done_when_full += u64::from(met.full > 0);
            }
            Err(Error::HomeFull { .. }) => met.full += 1,
            Err(error) => panic!("seed {seed} client {me} step {step}: {error:?}"),
        }
    }
    met
}

fn first_rows(db: &Database) {
    db.write(|txn| {
        let mut rows = txn.open_table(ROWS)?;
        (0..FIRST_ROWS * CLIENTS).try_for_each(|row| rows.insert(row, &[0; 600]))
    })
    .expect("room for the first rows");
}

fn contents(db: &Database) -> Ledger {
    db.read(|txn| {
        let rows = txn.open_table(ROWS)?;
        rows.range(..)?.map(|entry| entry.map(|e| (e.key(), e.value().to_vec()))).collect()
    })
    .expect("readable")
}

/// Runs clients into a full home, and returns what must be stored.
fn fill(db: &Database, seed: u64) -> Ledger {
    let ledger = Arc::new(LeafMutex::new(Ledger::new()));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|me| {
            let (db, ledger) = (db.clone(), Arc::clone(&ledger));
            spawn("client", move || {
                let met = client(&db, me, seed, 180);
                assert!(met.full > 1, "seed {seed}: the home was never full");
                assert!(met.done_when_full > 50, "seed {seed}: {} went on", met.done_when_full);
                ledger.lock().extend(met.rows);
            })
        })
        .collect();
    clients.into_iter().for_each(Task::join);
    std::mem::take(&mut *ledger.lock())
}

#[test]
fn a_full_file_system_fails_who_needs_room_and_nobody_else() {
    for seed in 0..24 {
        let before = world(seed);
        let rig = Rig::blank(&before.world(), 8 << 20);
        let (ledger, db) = before
            .run(|| {
                let db = rig.open(seed).expect("room for a small database");
                first_rows(&db);
                let ledger = fill(&db, seed);
                for kind in [Checkpoint::Indirect, Checkpoint::Sharp] {
                    db.checkpoint(kind).expect("a checkpoint needs no room");
                }
                assert_eq!(contents(&db), ledger, "seed {seed}");
                // A replacement that only the log has, for the redo below.
                db.write(|txn| txn.open_table(ROWS)?.insert(0, &[9; 600])).expect("no new room");
                (ledger, db)
            })
            .expect("nobody waits for ever");
        // The power goes, and it opens although the file system is still full.
        before.cut_at_event(before.world().events());
        let _dead = before.run(|| terrace_rt::sleep(Nanos::from_secs(1)));
        drop(db);
        let mut prng = Prng::from_seed(seed);
        for device in [&rig.home, &rig.flash, &rig.log] {
            device.power_cut(&mut prng);
        }
        let after = world(seed + 1000);
        let rig = rig.in_world(&after.world());
        after
            .run(|| {
                let db = rig.open(seed).expect("recovery needs no room that it had not before");
                let mut expected = ledger;
                expected.insert(0, vec![9; 600]);
                assert_eq!(contents(&db), expected, "seed {seed}");
                let large = |key| db.write(|txn| txn.open_table(ROWS)?.insert(key, &[1; 200_000]));
                assert!(matches!(large(u64::MAX), Err(Error::HomeFull { .. })), "seed {seed}");
                // Another program makes room.
                rig.home.set_full_from(Some(40 << 20));
                (0..50).for_each(|key| large(u64::MAX - key).expect("room again"));
                db.check().expect("whole");
                db.close().expect("nothing failed");
            })
            .expect("nobody waits for ever");
    }
}

#[test]
fn a_load_into_a_full_file_system_can_be_made_again() {
    let world = world(1);
    let rig = Rig::blank(&world.world(), 16 << 20);
    let loaded = |db: &Database, rows: u64| {
        let txn = db.begin_write()?;
        let mut loader = txn.bulk_load(ROWS)?;
        (0..rows).try_for_each(|row| loader.push(row, &[3; 4000]))?;
        loader.finish()?;
        txn.commit(Durability::Durable)
    };
    world
        .run(|| {
            let db = rig.open(0).expect("room for a small database");
            assert!(matches!(loaded(&db, 10_000), Err(Error::HomeFull { .. })));
            db.checkpoint(Checkpoint::Sharp).expect("nothing failed");
            rig.home.set_full_from(None);
            loaded(&db, 10_000).expect("room");
            assert_eq!(contents(&db).len(), 10_000);
            db.check().expect("whole");
        })
        .expect("nobody waits for ever");
}

#[test]
fn a_database_that_does_not_fit_at_all_is_not_made() {
    let world = world(2);
    let rig = Rig::blank(&world.world(), 256 << 10);
    world
        .run(|| {
            assert!(matches!(rig.open(0).map(drop), Err(Error::HomeFull { .. })));
            rig.home.set_full_from(None);
            first_rows(&rig.open(0).expect("room"));
        })
        .expect("nobody waits for ever");
}
