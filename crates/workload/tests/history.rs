//! Histories that the engine makes are serializable.

use std::sync::Arc;

use terrace::{Database, Devices};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Keep, Store};
use terrace_policy::designs;
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{Prng, Virtual, VirtualConfig, World};
use terrace_workload::history::checker::{Anomaly, History, Summary, check};
use terrace_workload::history::{Options, record};

/// How a history reads.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    /// Under locks alone.
    Locking,
    /// One in two transactions through a snapshot, with these faults.
    Snapshots(Mutations),
    /// As `Snapshots`, with little memory for versions, which are spilled.
    Spilled(Mutations),
}

fn history(seed: u64, reads: Reads) -> History {
    let mut prng = Prng::from_seed(seed);
    let switch_one_in = [2, 10, 100][prng.below(3) as usize];
    let world = Virtual::new(VirtualConfig { seed, switch_one_in, ..VirtualConfig::default() });
    let device = |bytes| -> Arc<SimDevice> {
        SimDevice::new(Preset::Nvme.spec(), world.world(), Store::new(bytes, Keep::Plain))
    };
    let devices =
        Devices { home: device(32 << 20), flash: Some(device(2 << 20)), log: device(16 << 20) };
    let (snapshot_one_in, mutations) = match reads {
        Reads::Locking => (0, Mutations::NONE),
        Reads::Snapshots(mutations) | Reads::Spilled(mutations) => (2, mutations),
    };
    let version_bytes = [64 << 10, 64 << 10, 16 << 20][prng.below(3) as usize];
    let is_spilled = matches!(reads, Reads::Spilled(_));
    let version_bytes = if is_spilled { 64 << 10 } else { version_bytes };
    let versions = is_spilled.then(|| device(8 << 20));
    let frames = if prng.chance(3) { 16 } else { 64 };
    let options = Options {
        seed,
        snapshot_one_in,
        keys: 4 + prng.below(40),
        value_bytes: [16, 400, 3000][prng.below(3) as usize],
        tables: 1 + prng.below(3) as usize,
        deletes_table_one_in: [0, 40][prng.below(2) as usize],
        savepoint_one_in: [0, 6][prng.below(2) as usize],
        ..Options::default()
    };
    world
        .run(|| {
            let builder = match versions {
                Some(device) => Database::builder().version_device(device).version_limit(4 << 20),
                None => Database::builder(),
            };
            let db = builder
                .tune(|tier| tier.mutations = mutations)
                .memory(frames * 8192)
                .version_memory(version_bytes)
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

/// What the histories of `seeds` held; the first anomaly if there is one.
fn checked(seeds: std::ops::Range<u64>, reads: Reads) -> Result<Summary, (u64, Anomaly)> {
    let mut all = Summary::default();
    for seed in seeds {
        let summary = check(&history(seed, reads)).map_err(|anomaly| (seed, anomaly))?;
        all.committed += summary.committed;
        all.snapshots += summary.snapshots;
        all.dependencies += summary.dependencies;
    }
    Ok(all)
}

#[test]
fn histories_are_serializable() {
    let all = checked(0..40, Reads::Locking).expect("serializable");
    let Summary { committed, dependencies, .. } = all;
    assert!(committed > 1000, "{committed} committed");
    assert!(dependencies > committed, "clients must meet: {dependencies} of {committed}");
}

#[test]
fn histories_with_snapshots_are_serializable() {
    let seeds = std::env::var("TERRACE_HISTORY_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let all =
        checked(0..seeds.unwrap_or(120), Reads::Snapshots(Mutations::NONE)).expect("serializable");
    let Summary { committed, snapshots, dependencies, .. } = all;
    assert!(snapshots > 2000 && committed > 2 * snapshots / 3, "{snapshots} of {committed}");
    assert!(dependencies > committed, "clients must meet: {dependencies} of {committed}");
}

#[test]
fn histories_with_snapshots_whose_versions_are_spilled_are_serializable() {
    let all = checked(0..60, Reads::Spilled(Mutations::NONE)).expect("serializable");
    let Summary { committed, snapshots, .. } = all;
    assert!(snapshots > 1000, "{snapshots} of {committed}");
}

/// The first seed whose history shows the fault, if one of the first does.
fn first_caught(mutation: Mutation) -> Option<u64> {
    (0..200).find(|&seed| checked(seed..seed + 1, Reads::Snapshots(mutation.into())).is_err())
}

#[test]
fn each_rule_of_snapshots_is_needed() {
    for mutation in [
        Mutation::SkipVersions,
        Mutation::SnapshotBeforeIndexing,
        Mutation::LowAfterMoment,
        Mutation::CollectSeenVersions,
        Mutation::PurgeWithoutGrave,
        Mutation::FreeSeenPages,
    ] {
        let caught = std::panic::catch_unwind(|| first_caught(mutation));
        assert!(!matches!(caught, Ok(None)), "{mutation:?} shows in no history");
    }
}
