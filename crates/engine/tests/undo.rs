//! Rollbacks while home fails reads: what was undone is undone, and what was not is reported.
//!
//! The home is a modelled device that fails a share of the reads, once each: enough that now and
//! then one fails as often as it is tried. Memory is a small part of the data, so that a rollback
//! reads pages.

use std::sync::Arc;

use terrace::{Database, Devices, Durability, Error, TableDef, World};
use terrace_device::model::{Faults, Preset, SimDevice};
use terrace_device::{Keep, Store};
use terrace_rt::{Prng, Virtual, VirtualConfig};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const KEYS: u64 = 400;
const SEEDS: u64 = 12;
const ROUNDS: u64 = 12;
/// More than enough attempts for what fails now and then to succeed.
const ATTEMPTS: u32 = 200;

struct Rig {
    home: Arc<SimDevice>,
    log: Arc<SimDevice>,
}

impl Rig {
    fn blank(world: &World, seed: u64) -> Rig {
        let device = |bytes, faults| {
            let store = Store::new(bytes, Keep::Plain);
            SimDevice::with_faults(Preset::Ram.spec(), world.clone(), store, faults)
        };
        let faults = Faults { seed, read_error_one_in: 8, ..Faults::default() };
        Rig { home: device(8 << 20, faults), log: device(16 << 20, Faults::default()) }
    }

    fn open(&self) -> Database {
        let devices = Devices { home: self.home.clone(), flash: None, log: self.log.clone() };
        let builder = Database::builder().memory(256 << 10).devices(devices);
        for _ in 0..ATTEMPTS {
            match builder.clone().open_or_create_on_devices() {
                Ok(db) => return db,
                Err(Error::Device { .. } | Error::Corrupt { .. }) => {}
                Err(error) => panic!("opening met {error:?}"),
            }
        }
        panic!("it never opened")
    }
}

fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Device { .. } | Error::Corrupt { .. } | Error::Doomed { .. })
}

/// Does `work` until no read fails in it.
fn until_done<T>(mut work: impl FnMut() -> Result<T, Error>) -> T {
    for _ in 0..ATTEMPTS {
        match work() {
            Ok(done) => return done,
            Err(error) => assert!(is_passing(&error), "{error:?}"),
        }
    }
    panic!("it never succeeded")
}

/// Rewrites rows before and after a savepoint, goes back to it, and ends the transaction.
/// Returns what the rows before the savepoint hold, if it committed.
fn round(db: &Database, prng: &mut Prng, value: u8) -> Result<Option<Vec<u64>>, Error> {
    let txn = db.begin_write()?;
    let some = |prng: &mut Prng| (0..40).map(|_| prng.below(KEYS)).collect::<Vec<_>>();
    let (kept, undone) = (some(prng), some(prng));
    let all = (|| {
        let mut rows = txn.open_table(ROWS)?;
        kept.iter().try_for_each(|key| rows.insert(*key, &[value; 700]))?;
        let savepoint = txn.savepoint()?;
        for key in &undone {
            match prng.chance(2) {
                true => rows.insert(*key, &[255; 900])?,
                false => drop(rows.remove(*key)?),
            }
        }
        txn.rollback_to(&savepoint)
    })();
    if all.is_ok() && prng.chance(2) {
        return txn.commit(Durability::None).map(|()| Some(kept));
    }
    txn.rollback().map(|()| None)
}

/// A read error within `rollback_to` dropped the undo entry: the rollback that followed said Ok,
/// and the change stayed.
#[test]
fn what_a_rollback_could_not_read_is_undone_all_the_same() {
    let (mut ended, mut failed) = (0, 0);
    for seed in 0..SEEDS {
        let config = VirtualConfig { seed, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 };
        let world = Virtual::new(config);
        let rig = Rig::blank(&world.world(), seed);
        let work = || {
            let mut prng = Prng::from_seed(seed);
            let mut model = [0_u8; KEYS as usize];
            let mut db = rig.open();
            until_done(|| {
                db.write(|txn| {
                    let mut rows = txn.open_table(ROWS)?;
                    (0..KEYS).try_for_each(|key| rows.insert(key, &[0; 700]))
                })
            });
            for value in 1..=ROUNDS as u8 {
                match round(&db, &mut prng, value) {
                    Ok(Some(kept)) => kept.iter().for_each(|&key| model[key as usize] = value),
                    Ok(None) => ended += 1,
                    // Its undo is left to recovery.
                    Err(_) => {
                        failed += 1;
                        drop(db);
                        db = rig.open();
                    }
                }
                let found = until_done(|| {
                    db.read(|txn| {
                        let rows = txn.open_table(ROWS)?;
                        (0..KEYS)
                            .map(|key| Ok(rows.get(key)?.map_or(254, |row| row.value()[0])))
                            .collect::<Result<Vec<u8>, Error>>()
                    })
                });
                assert_eq!(found, model, "seed {seed} round {value}");
            }
        };
        world.run(work).expect("nobody waits for ever");
    }
    assert!(ended > 20, "{ended} rollbacks, {failed} left to recovery");
}
