//! A cache on flash that fails while its database opens after a crash, at any of its requests: the
//! opening goes on without it, and nothing is lost.

use std::sync::Arc;

use terrace::{Checkpoints, Database, Devices, Durability, Error, TableDef};

use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Device, FaultPlan, FaultyDevice, Keep, Store};
use terrace_policy::{DESIGNS, Design, RESTARTS, Restart};
use terrace_rt::{Nanos, Prng, Virtual, VirtualConfig, World, sleep};

const TABLE: TableDef<u64, &[u8]> = TableDef::new("rows");
const ROWS: u64 = 600;
const ROUNDS: u64 = 6;

#[derive(Clone)]
struct Rig {
    home: Store,
    flash: Store,
    log: Store,
}

struct Opened {
    rig: Rig,
    /// Batches and syncs that the flash was given.
    requests: u64,
    outcome: Result<(), Error>,
}

impl Rig {
    fn blank() -> Rig {
        let store = |mebibytes: u64| Store::new(mebibytes << 20, Keep::Plain);
        Rig { home: store(16), flash: store(2), log: store(8) }
    }

    /// Runs `body` on the database, whose flash fails as `plan` says, and cuts the power.
    fn session(
        &self,
        (design, restart): (&Design, &Restart),
        plan: FaultPlan,
        body: impl FnOnce(&Database) -> Result<(), Error>,
    ) -> Opened {
        let config = VirtualConfig { seed: 1, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 };
        let world = Virtual::new(config);
        let on = |store: &Store, world: World| {
            SimDevice::new(Preset::Ram.spec().with_write_cache(), world, store.clone())
        };
        let [home, flash, log] =
            [&self.home, &self.flash, &self.log].map(|store| on(store, world.world()));
        let faulty = FaultyDevice::new(flash.clone(), plan);
        let mut outcome = Ok(());
        let mut requests = 0;
        let ran = world.run(|| {
            let devices = Devices {
                home: home.clone(),
                flash: Some(faulty.clone() as Arc<dyn Device>),
                log: log.clone(),
            };
            let opened = Database::builder()
                .memory(256 << 10)
                .design(*design)
                .restart(*restart)
                .io_timeout_flash(Nanos::from_millis(50))
                .checkpoints(Checkpoints::Every(Nanos::from_millis(5)))
                .devices(devices)
                .open_or_create_on_devices();
            requests = faulty.counts().accepted;
            outcome = opened.and_then(|db| {
                let done = body(&db);
                world.cut_at_event(0);
                sleep(Nanos(1));
                done
            });
        });
        let mut prng = Prng::from_seed(2);
        if ran.is_err() {
            [&home, &flash, &log].into_iter().for_each(|device| {
                device.power_cut(&mut prng);
            });
        }
        let rig = Rig { home: home.store(), flash: flash.store(), log: log.store() };
        Opened { rig, requests, outcome }
    }
}

fn write(db: &Database) -> Result<(), Error> {
    let mut prng = Prng::from_seed(5);
    for round in 0..ROUNDS {
        for first in (0..ROWS).step_by(20) {
            db.write_with(Durability::Durable, |txn| {
                let mut table = txn.open_table(TABLE)?;
                (first..first + 20).try_for_each(|key| table.insert(key, &[round as u8; 700]))
            })?;
        }
        sleep(Nanos::from_millis(prng.below(8)));
    }
    Ok(())
}

fn holds(db: &Database) -> Result<(), Error> {
    db.read(|txn| {
        let table = txn.open_table(TABLE)?;
        for key in 0..ROWS {
            let row = table.get(key)?.expect("a row");
            assert_eq!(row.value(), [ROUNDS as u8 - 1; 700], "row {key}");
        }
        Ok::<_, Error>(())
    })?;
    db.check().map(drop)
}

/// The bug: recovery had begun to count on copies on flash when the device died, and the database
/// was refused: a record did not fit its page, or a page was corrupt.
#[test]
fn a_cache_that_fails_while_its_database_opens_is_done_without() {
    let (mut openings, mut failed) = (0, 0);
    let designs = DESIGNS.iter().filter(|design| design.uses_flash());
    for (number, design) in (0..).zip(designs) {
        for (other, restart) in (0..).zip(&RESTARTS) {
            let rules = (design, restart);
            let name = format!("{} {}", design.name, restart.name);
            let written = Rig::blank().session(rules, FaultPlan::default(), write);
            let Ok(()) = written.outcome else { continue };
            let well = written.rig.session(rules, FaultPlan::default(), holds);
            well.outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut prng = Prng::from_seed(number * 10 + other);
            for round in 0..4 {
                let at = Some(prng.below(well.requests + 4));
                let plan = match round {
                    0 | 1 => FaultPlan { dies_after: at, ..FaultPlan::default() },
                    2 => FaultPlan { silent_after: at, ..FaultPlan::default() },
                    _ => FaultPlan { seed: round, read_error_one_in: 8, ..FaultPlan::default() },
                };
                let what = format!("{name}, {plan:?}");
                let opened = written.rig.session(rules, plan, holds);
                opened.outcome.unwrap_or_else(|error| panic!("{what}: {error}"));
                openings += 1;
                let again = opened.rig.session(rules, FaultPlan::default(), holds);
                again.outcome.unwrap_or_else(|error| panic!("{what}, opened again: {error}"));
                failed += u32::from(again.requests > 0);
            }
        }
    }
    assert!(openings > 150 && failed > 0, "{openings} openings");
}
