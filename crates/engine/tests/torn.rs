//! Home writes that fail after a part of the page is written: the page is torn without a power cut.

use std::sync::Arc;

use terrace::{Database, Devices, Durability, Error, Nanos, TableDef, World};
use terrace_device::model::{Preset, SimDevice, build};
use terrace_device::{Device, FaultPlan, FaultyDevice, Keep, Store};
use terrace_rt::{Prng, Virtual, VirtualConfig, spawn};

const ROWS: TableDef<u64, &'static [u8]> = TableDef::new("rows");
const VALUE: [u8; 900] = [7; 900];
const KEYS: u64 = 400;
const WRITERS: u64 = 6;
const CHANGES_MAX: u64 = 40;
const ROUNDS: u64 = 12;

struct Rig {
    home: Arc<SimDevice>,
    log: Arc<SimDevice>,
}

impl Rig {
    fn new() -> Rig {
        let device =
            |preset, bytes| build(preset, World::current(), Store::new(bytes, Keep::Plain));
        // A log so small that the halves of its doublewrite area take few pages.
        Rig { home: device(Preset::Nvme, 8 << 20), log: device(Preset::Ram, 2 << 20) }
    }

    fn open(&self, home: Arc<dyn Device>, seed: u64) -> Result<Database, Error> {
        let devices = Devices { home, flash: None, log: self.log.clone() };
        let every =
            terrace::Checkpoints::Every(Nanos::from_millis([1, 1_000][(seed % 2) as usize]));
        Database::builder()
            .memory(16 * 8192)
            .checkpoints(every)
            .devices(devices)
            .open_or_create_on_devices()
    }
}

fn fill(db: &Database, from: u64, to: u64) -> Result<(), Error> {
    db.write(|txn| {
        let mut rows = txn.open_table(ROWS)?;
        (from..to).try_for_each(|key| rows.insert(key, &[key as u8; 900]))
    })
}

/// Changes rows until the engine stops.
fn churn(db: &Database, seed: u64) {
    let mut prng = Prng::from_seed(seed);
    loop {
        let outcome = db.write_with(Durability::None, |txn| {
            let mut rows = txn.open_table(ROWS)?;
            (0..1 + prng.below(CHANGES_MAX)).try_for_each(|_| {
                rows.insert(prng.below(KEYS), &VALUE[..700 + prng.below(200) as usize])
            })
        });
        match outcome {
            Ok(()) => (),
            Err(error) if error.is_transient() => (),
            Err(_) => return,
        }
    }
}

#[test]
fn a_page_that_a_failed_write_has_torn_is_made_good() {
    // While one writer got the error that home had failed, others went on and began the half of the
    // doublewrite area anew in which the copy of the torn page was: it never opened again.
    for seed in 0..30 {
        let config = VirtualConfig { seed, switch_one_in: 3, cores: 2, stack_bytes: 256 << 10 };
        let rounds = move || {
            let rig = Rig::new();
            let db = rig.open(rig.home.clone(), seed).expect("blank devices");
            (0..KEYS / 50).try_for_each(|at| fill(&db, at * 50, at * 50 + 50)).expect("room");
            db.close().expect("closed");
            for round in 0..ROUNDS {
                let home = FaultyDevice::new(rig.home.clone(), FaultPlan::default());
                let db = rig.open(home.clone(), seed).expect("torn pages are made good");
                db.check().expect("whole");
                let plan = FaultPlan {
                    seed: seed * 100 + round,
                    partial_error_one_in: 6,
                    ..FaultPlan::default()
                };
                home.set_plan(plan);
                let writers: Vec<_> = (0..WRITERS)
                    .map(|at| {
                        let db = db.clone();
                        spawn("writer", move || churn(&db, seed * 1_000 + round * 10 + at))
                    })
                    .collect();
                writers.into_iter().for_each(|writer| writer.join());
                db.close().expect_err("home has failed");
            }
        };
        Virtual::new(config).run(rounds).expect("nobody waits for ever");
    }
}
