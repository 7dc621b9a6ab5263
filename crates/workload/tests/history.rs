//! Histories that the engine makes are serializable.

use std::sync::Arc;

use terrace::{Database, Devices};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Keep, Store};
use terrace_policy::designs;
use terrace_rt::{Prng, Virtual, VirtualConfig, World};
use terrace_workload::history::checker::{History, check};
use terrace_workload::history::{Options, record};

fn history(seed: u64) -> History {
    let mut prng = Prng::from_seed(seed);
    let switch_one_in = [2, 10, 100][prng.below(3) as usize];
    let world = Virtual::new(VirtualConfig { seed, switch_one_in, ..VirtualConfig::default() });
    let device = |bytes| -> Arc<SimDevice> {
        SimDevice::new(Preset::Nvme.spec(), world.world(), Store::new(bytes, Keep::Plain))
    };
    let devices =
        Devices { home: device(32 << 20), flash: Some(device(2 << 20)), log: device(16 << 20) };
    let options = Options {
        seed,
        keys: 4 + prng.below(40),
        value_bytes: [16, 400, 3000][prng.below(3) as usize],
        tables: 1 + prng.below(3) as usize,
        deletes_table_one_in: [0, 40][prng.below(2) as usize],
        savepoint_one_in: [0, 6][prng.below(2) as usize],
        ..Options::default()
    };
    world
        .run(|| {
            let db = Database::builder()
                .memory(512 << 10)
                .design(designs::find("lc").expect("a row of the table"))
                .world(World::current())
                .devices(devices)
                .create_on_devices()
                .expect("blank devices");
            let history = record(&db, &World::current(), options).expect("conflicts alone");
            db.close().expect("closes");
            history
        })
        .expect("the power stays on")
}

#[test]
fn histories_are_serializable() {
    let (mut committed, mut dependencies) = (0, 0);
    for seed in 0..40 {
        let history = history(seed);
        match check(&history) {
            Ok(summary) => {
                committed += summary.committed;
                dependencies += summary.dependencies;
            }
            Err(anomaly) => panic!("seed {seed}: {anomaly:?}"),
        }
    }
    assert!(committed > 1000, "{committed} committed");
    assert!(dependencies > committed, "clients must meet: {dependencies} of {committed}");
}
