//! A cache on flash that fails at any moment while clients read and write, and the cleaner and the
//! fronts of append logs bring pages home: no client may notice, and nothing is lost.

use std::sync::Arc;

use terrace::{Checkpoint, Checkpoints, Database, Devices, Durability, Error, Part, TableDef};

use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Device, FaultPlan, FaultyDevice, Keep, Store};
use terrace_policy::{DESIGNS, Design, RESTARTS, Restart};
use terrace_rt::{LeafMutex, Nanos, Prng, Task, Virtual, VirtualConfig, sleep, spawn};

const TABLE: TableDef<u64, &[u8]> = TableDef::new("rows");
const CLIENTS: u64 = 4;
/// Three times what flash has room for, which has eight times what memory has.
const ROWS: u64 = 3600;
const STEPS: u64 = 90;

struct Run {
    stores: [Store; 3],
    /// Batches and syncs that the flash was given.
    requests: u64,
    /// What each client left in its rows.
    versions: Vec<u64>,
}

fn config(seed: u64) -> VirtualConfig {
    VirtualConfig { seed, switch_one_in: 8, cores: 2, stack_bytes: 256 << 10 }
}

fn open(rules: (&Design, &Restart), devices: [Arc<dyn Device>; 3]) -> Result<Database, Error> {
    open_with(128 << 10, rules, devices)
}

fn open_with(
    memory: u64,
    (design, restart): (&Design, &Restart),
    [home, flash, log]: [Arc<dyn Device>; 3],
) -> Result<Database, Error> {
    Database::builder()
        .memory(memory)
        .design(*design)
        .restart(*restart)
        .io_timeout_flash(Nanos::from_millis(20))
        .checkpoints(Checkpoints::Every(Nanos::from_millis(300)))
        .devices(Devices { home, flash: Some(flash), log })
        .open_or_create_on_devices()
}

/// Home, a flash of the given mebibytes, and log.
fn blank(world: &Virtual, flash: u64) -> [Arc<SimDevice>; 3] {
    [8, flash, 16].map(|mebibytes| {
        let store = Store::new(mebibytes << 20, Keep::Plain);
        SimDevice::new(Preset::Ram.spec().with_write_cache(), world.world(), store)
    })
}

fn row(key: u64, version: u64) -> [u8; 700] {
    let mut row = [version as u8; 700];
    row[..8].copy_from_slice(&key.to_le_bytes());
    row[8..16].copy_from_slice(&version.to_le_bytes());
    row
}

/// Reads and writes rows of its own, of which it knows what they hold.
fn client(db: &Database, me: u64, seed: u64) -> Result<Vec<(u64, u64)>, Error> {
    let mut prng = Prng::from_seed(seed * CLIENTS + me);
    let mut versions = vec![0; (ROWS / CLIENTS) as usize];
    for step in 1..=STEPS {
        let at = prng.below(ROWS / CLIENTS);
        let key = at * CLIENTS + me;
        let known = versions[at as usize];
        db.write_with(Durability::Buffered, |txn| {
            let mut table = txn.open_table(TABLE)?;
            let before = table.get(key)?.expect("a row").value().to_vec();
            assert_eq!(before, row(key, known), "row {key}");
            if step % 3 == 0 { Ok(()) } else { table.insert(key, &row(key, step)) }
        })?;
        if step % 3 != 0 {
            versions[at as usize] = step;
        }
    }
    Ok((0..).zip(versions).map(|(at, version)| (at * CLIENTS + me, version)).collect())
}

/// Clients on a database whose flash fails as `plan` says; then the power is cut.
fn run(rules: (&Design, &Restart), seed: u64, plan: FaultPlan) -> Result<Run, Error> {
    let world = Virtual::new(config(seed));
    let devices = blank(&world, 1);
    let [home, flash, log] = &devices;
    let flash = FaultyDevice::new(flash.clone(), plan);
    let mut outcome = Ok(());
    let mut versions = vec![0; ROWS as usize];
    let ran = world.run(|| {
        outcome = open(rules, [home.clone(), flash.clone(), log.clone()]).and_then(|db| {
            db.write(|txn| {
                let mut table = txn.open_table(TABLE)?;
                (0..ROWS).try_for_each(|key| table.insert(key, &row(key, 0)))
            })?;
            let known = Arc::new(LeafMutex::new(Ok(Vec::new())));
            let clients = (0..CLIENTS).map(|me| {
                let (db, known) = (db.clone(), Arc::clone(&known));
                spawn("client", move || {
                    let done = client(&db, me, seed);
                    let mut known = known.lock();
                    match (done, &mut *known) {
                        (Ok(rows), Ok(known)) => known.extend(rows),
                        (Err(error), Ok(_)) => *known = Err(error),
                        (_, Err(_)) => {}
                    }
                })
            });
            clients.collect::<Vec<_>>().into_iter().for_each(Task::join);
            let known = std::mem::replace(&mut *known.lock(), Ok(Vec::new()));
            for (key, version) in known? {
                versions[key as usize] = version;
            }
            // Which makes all before it durable.
            db.write(|txn| txn.open_table(TABLE)?.insert(ROWS, &row(ROWS, 0)))?;
            world.cut_at_event(0);
            sleep(Nanos(1));
            Ok(())
        });
    });
    assert!(ran.is_err() || outcome.is_err(), "the power was cut");
    outcome?;
    let mut prng = Prng::from_seed(seed);
    devices.iter().for_each(|device| {
        device.power_cut(&mut prng);
    });
    let stores = devices.map(|device| device.store());
    Ok(Run { stores, requests: flash.counts().accepted, versions })
}

/// Opens what a run left, with all devices well but home, which fails as `plan` says.
fn holds(rules: (&Design, &Restart), run: &Run, plan: FaultPlan) -> Result<(), Error> {
    holds_beside(rules, run, [plan, FaultPlan::default()]).1
}

/// Opens what a run left, with home and flash that fail as the plans say. How many batches and
/// syncs the flash was given, too.
fn holds_beside(
    rules: (&Design, &Restart),
    run: &Run,
    [of_home, of_flash]: [FaultPlan; 2],
) -> (u64, Result<(), Error>) {
    let world = Virtual::new(config(1));
    let on = |store: &Store| {
        let spec = Preset::Ram.spec().with_write_cache();
        SimDevice::new(spec, world.world(), store.clone())
    };
    let [home, flash, log] = [&run.stores[0], &run.stores[1], &run.stores[2]].map(on);
    let flash = FaultyDevice::new(flash, of_flash);
    let devices: [Arc<dyn Device>; 3] = [FaultyDevice::new(home, of_home), flash.clone(), log];
    let opened = world.run(|| {
        let db = open(rules, devices)?;
        db.read(|txn| {
            let table = txn.open_table(TABLE)?;
            for (key, &version) in (0..).zip(&run.versions) {
                let found = table.get(key)?.expect("a row");
                assert_eq!(found.value(), row(key, version), "row {key}");
            }
            Ok::<_, Error>(())
        })?;
        db.check()?;
        db.close()
    });
    (flash.counts().accepted, opened.expect("nobody waits for ever"))
}

/// The bug: a client that read a page from flash while the cleaner, or a front of an append log,
/// had its slot got the error that the cache cannot be read.
#[test]
fn a_cache_that_fails_while_it_is_used_is_done_without() {
    let mut runs = 0;
    let designs = DESIGNS.iter().filter(|design| design.uses_flash());
    for (number, design) in (0..).zip(designs) {
        for (other, restart) in (0..).zip(&RESTARTS) {
            let rules = (design, restart);
            let seed = number * 100 + other;
            let name = format!("{} {}", design.name, restart.name);
            let Ok(well) = run(rules, seed, FaultPlan::default()) else { continue };
            holds(rules, &well, FaultPlan::default())
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut prng = Prng::from_seed(seed);
            for round in 0..rounds() {
                let at = Some(prng.below(well.requests));
                let plan = match round % 4 {
                    0 => FaultPlan { dies_after: at, ..FaultPlan::default() },
                    1 => FaultPlan { silent_after: at, ..FaultPlan::default() },
                    2 => FaultPlan { seed: round, read_error_one_in: 8, ..FaultPlan::default() },
                    _ => FaultPlan {
                        seed: round,
                        partial_error_one_in: 8,
                        write_error_one_in: 16,
                        ..FaultPlan::default()
                    },
                };
                let what = format!("{name}, seed {seed}, {plan:?}");
                let run = run(rules, seed, plan).unwrap_or_else(|e| panic!("{what}: {e}"));
                holds(rules, &run, FaultPlan::default())
                    .unwrap_or_else(|e| panic!("{what}, opened again: {e}"));
                runs += 1;
            }
        }
    }
    assert!(runs > 100, "{runs} runs");
}

/// The bug: pages that redo had written to flash, for want of memory, were read from home once
/// flash failed, as they were before. The log has what home lacks, but redo had gone by.
#[test]
fn a_cache_that_fails_while_the_log_is_redone_is_done_without() {
    let mut openings = 0;
    let designs = DESIGNS.iter().filter(|design| design.uses_flash());
    for (number, design) in (0..).zip(designs) {
        for (other, restart) in (0..).zip(&RESTARTS) {
            let (rules, seed) = ((design, restart), number * 100 + other);
            let Ok(left) = run(rules, seed, FaultPlan::default()) else { continue };
            let well = || FaultPlan::default();
            let (requests, held) = holds_beside(rules, &left, [well(), well()]);
            held.unwrap_or_else(|error| panic!("{} {}: {error}", design.name, restart.name));
            let mut prng = Prng::from_seed(seed);
            for round in 0..2 * rounds() {
                let at = Some(prng.below(requests + 1));
                let plan = match round % 3 {
                    0 => FaultPlan { dies_after: at, ..FaultPlan::default() },
                    1 => FaultPlan { silent_after: at, ..FaultPlan::default() },
                    _ => FaultPlan { seed: round, read_error_one_in: 8, ..FaultPlan::default() },
                };
                let what = format!("{} {}, seed {seed}, {plan:?}", design.name, restart.name);
                let (_, held) = holds_beside(rules, &left, [well(), plan]);
                held.unwrap_or_else(|error| panic!("{what}: {error}"));
                openings += 1;
            }
        }
    }
    assert!(openings > 150, "{openings} openings");
}

/// Loads a table where the pages of another one were, while the flash fails as `plan` says from the
/// middle on; after the commit the power is cut.
fn load(rules: (&Design, &Restart), plan: FaultPlan) -> Result<[Store; 3], Error> {
    let world = Virtual::new(config(1));
    let devices = blank(&world, 1);
    let [home, flash, log] = &devices;
    let flash = FaultyDevice::new(flash.clone(), FaultPlan::default());
    let mut outcome = Ok(());
    let ran = world.run(|| {
        outcome = open(rules, [home.clone(), flash.clone(), log.clone()]).and_then(|db| {
            let txn = db.begin_write()?;
            let mut loader = txn.bulk_load(TableDef::<u64, &[u8]>::new("former"))?;
            (0..ROWS).try_for_each(|key| loader.push(key, &row(key, 9)))?;
            loader.finish()?;
            txn.commit(Durability::Durable)?;
            db.checkpoint(Checkpoint::Sharp)?;
            assert!(db.write(|txn| txn.delete_table("former"))?);
            sleep(Nanos::from_secs(2));
            let txn = db.begin_write()?;
            let mut loader = txn.bulk_load(TABLE)?;
            for key in 0..ROWS {
                if key == ROWS / 2 {
                    flash.set_plan(plan.clone());
                }
                loader.push(key, &row(key, 0))?;
            }
            loader.finish()?;
            txn.commit(Durability::Durable)?;
            world.cut_at_event(0);
            sleep(Nanos(1));
            Ok(())
        });
    });
    assert!(ran.is_err() || outcome.is_err(), "the power was cut");
    outcome?;
    let mut prng = Prng::from_seed(1);
    devices.iter().for_each(|device| {
        device.power_cut(&mut prng);
    });
    Ok(devices.map(|device| device.store()))
}

/// The bug: pages of a load that were on flash alone were taken from home when flash could not be
/// read, where they were those of a table that had been there before: the commit was lost.
#[test]
fn a_cache_that_fails_while_a_table_is_loaded_is_done_without() {
    let reads = FaultPlan { read_error_one_in: 1, ..FaultPlan::default() };
    let gone = FaultPlan { dies_after: Some(0), ..FaultPlan::default() };
    let warm = RESTARTS.iter().find(|row| row.name == "warm").expect("a row");
    let lc = DESIGNS.iter().find(|row| row.name == "lc").expect("a row");
    let caching = DESIGNS.iter().filter(|design| design.uses_flash());
    let rules = caching.map(|design| (design, warm));
    let rules = rules.chain(RESTARTS.iter().map(|restart| (lc, restart)));
    let mut loads = 0;
    for rules in rules {
        for plan in [&reads, &gone] {
            let name = format!("{} {}", rules.0.name, rules.1.name);
            let stores = match load(rules, plan.clone()) {
                // A restart that is of other designs.
                Err(Error::InvalidOption { .. }) => continue,
                loaded => loaded.unwrap_or_else(|error| panic!("{name}: {error}")),
            };
            loads += 1;
            let run = Run { stores, requests: 0, versions: vec![0; ROWS as usize] };
            holds(rules, &run, FaultPlan::default()).unwrap_or_else(|error| {
                panic!("{name}: {error}");
            });
        }
    }
    assert!(loads > 40, "{loads} loads");
}

/// The bug: the pages of a load that was given up could go to flash alone, and nothing could make
/// them good when it failed: no sharp checkpoint and no other load succeeded any more.
#[test]
fn a_load_that_is_given_up_before_its_cache_fails_leaves_nothing_behind() {
    for design in DESIGNS.iter().filter(|design| design.uses_flash()) {
        let warm = RESTARTS.iter().find(|row| row.name == "warm").expect("a row");
        let world = Virtual::new(config(1));
        let devices = blank(&world, 4);
        let [home, flash, log] = &devices;
        let flash = FaultyDevice::new(flash.clone(), FaultPlan::default());
        let run = || {
            let devices: [Arc<dyn Device>; 3] = [home.clone(), flash.clone(), log.clone()];
            let db = open_with(256 << 10, (design, warm), devices)?;
            db.write(|txn| {
                let mut table = txn.open_table(TABLE)?;
                (0..ROWS).try_for_each(|key| table.insert(key, &row(key, 0)))
            })?;
            let txn = db.begin_write()?;
            let mut loader = txn.bulk_load(TableDef::<u64, &[u8]>::new("given up"))?;
            (0..ROWS / 12).try_for_each(|key| loader.push(key, &row(key, 9)))?;
            drop(loader);
            // What the load has left in memory leaves it.
            db.read(|reads| {
                let table = reads.open_table(TABLE)?;
                (0..ROWS).try_for_each(|key| table.get(key).map(drop))
            })?;
            flash.set_plan(FaultPlan { read_error_one_in: 1, ..FaultPlan::default() });
            txn.rollback()?;
            db.checkpoint(Checkpoint::Sharp)?;
            sleep(Nanos::from_secs(2));
            let txn = db.begin_write()?;
            let mut loader = txn.bulk_load(TableDef::<u64, &[u8]>::new("loaded"))?;
            (0..ROWS / 4).try_for_each(|key| loader.push(key, &row(key, 9)))?;
            loader.finish()?;
            txn.commit(Durability::Durable)?;
            db.check()?;
            db.close()
        };
        let ran: Result<(), Error> = world.run(run).expect("nobody waits for ever");
        ran.unwrap_or_else(|error| panic!("{}: {error}", design.name));
    }
}

fn is_of_home(error: &Error) -> bool {
    match error {
        Error::Device { part, .. } => *part == Part::Home,
        Error::Failed { cause: Some(cause) } => is_of_home(cause),
        _ => false,
    }
}

/// Where a copy on flash is bad, and home cannot be read, the page may not be reported as damaged
/// at home.
#[test]
fn home_that_cannot_be_read_is_told_as_that_and_not_as_damaged() {
    let mut told = 0;
    let designs = DESIGNS.iter().filter(|design| design.uses_flash());
    for (seed, design) in (0..).zip(designs) {
        for restart in RESTARTS.iter().filter(|restart| restart.kind.is_journalled()) {
            let rules = (design, restart);
            let name = format!("{} {}", design.name, restart.name);
            let Ok(mut left) = run(rules, seed, FaultPlan::default()) else { continue };
            for at in (0..1 << 20).step_by(24 << 10).skip(1 + seed as usize % 3) {
                left.stores[1].write(at + 5000, &[0x5a; 3]);
            }
            for seed in 0..6 {
                let plan = match seed % 2 {
                    0 => FaultPlan { seed, read_error_one_in: 4 + seed, ..FaultPlan::default() },
                    _ => FaultPlan { seed, partial_error_one_in: 16, ..FaultPlan::default() },
                };
                match holds(rules, &left, plan.clone()) {
                    Ok(()) => {}
                    Err(error) if is_of_home(&error) => told += 1,
                    Err(error) => panic!("{name}, {plan:?}: {error}"),
                }
            }
            let opened = holds(rules, &left, FaultPlan::default());
            opened.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
    assert!(told > 60, "{told} openings met a fault");
}

/// Faults of each design and restart; more where the environment says so.
fn rounds() -> u64 {
    std::env::var("FLASH_FAULTS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(4)
}
