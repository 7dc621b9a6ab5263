//! A cache on flash that falls silent at any moment under load, with a home and a log on slow disks
//! and a log that runs full: each transaction ends within the time limits, and nothing is lost.

use std::sync::Arc;

use terrace::{Checkpoint, Checkpoints, Database, Devices, Durability, Error, TableDef};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Device, FaultPlan, FaultyDevice, Keep, Store};
use terrace_policy::{DESIGNS, Design, RESTARTS, Restart, designs, restarts};
use terrace_rt::{LeafMutex, Nanos, Prng, Task, Virtual, VirtualConfig, World, now, spawn};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const CLIENTS: u64 = 4;
/// Twice what flash has room for, which has eight times what memory has.
const KEYS: u64 = 2_400;
const STEPS: u64 = 14;
/// Rows of one transaction, of which each changes a page.
const CHANGED_MAX: u64 = 60;
/// Requests of the flash within which it falls silent.
const REQUESTS: u64 = 3_000;
/// The time limit of a wait for a lock, which is the default.
const LIMIT: Nanos = Nanos::from_secs(10);

fn config(seed: u64) -> VirtualConfig {
    VirtualConfig { seed, switch_one_in: 8, cores: 2, stack_bytes: 256 << 10 }
}

fn device(preset: Preset, world: &World, bytes: u64) -> Arc<SimDevice> {
    let store = Store::new(bytes, Keep::Plain);
    SimDevice::new(preset.spec().with_write_cache(), world.clone(), store)
}

fn row(key: u64, version: u64) -> [u8; 700] {
    let mut row = [version as u8; 700];
    row[..8].copy_from_slice(&key.to_le_bytes());
    row[8..16].copy_from_slice(&version.to_le_bytes());
    row
}

/// What each row was last written as, by commits that have returned.
type Versions = Arc<LeafMutex<Vec<u64>>>;

/// Changes rows that others change as well. The longest that a transaction took.
fn client(db: &Database, versions: &Versions, mut prng: Prng) -> Result<Nanos, Error> {
    let mut longest = Nanos::ZERO;
    for _ in 0..STEPS {
        let mut keys: Vec<u64> =
            (0..1 + prng.below(CHANGED_MAX)).map(|_| prng.below(KEYS)).collect();
        keys.sort_unstable();
        keys.dedup();
        let began = now();
        let written = db.write_with(Durability::Buffered, |txn| {
            let mut rows = txn.open_table(ROWS)?;
            let mut written = Vec::new();
            for &key in &keys {
                let before = rows.get_for_update(key)?.expect("a row").value().to_vec();
                let version = u64::from_le_bytes(before[8..16].try_into().expect("eight")) + 1;
                assert_eq!(before, row(key, version - 1), "row {key}");
                rows.insert(key, &row(key, version))?;
                written.push((key, version));
            }
            Ok::<_, Error>(written)
        })?;
        longest = longest.max(now() - began);
        let mut versions = versions.lock();
        for (key, version) in written {
            let known = &mut versions[key as usize];
            *known = version.max(*known);
        }
    }
    Ok(longest)
}

fn check(db: &Database, versions: &Versions) -> Result<(), Error> {
    let versions = versions.lock().clone();
    db.read(|txn| {
        let rows = txn.open_table(ROWS)?;
        for (key, version) in (0..).zip(&versions) {
            assert_eq!(rows.get(key)?.expect("a row").value(), row(key, *version), "row {key}");
        }
        Ok(())
    })
}

/// Clients on a database whose flash falls silent. The longest that one of their transactions took.
fn run((design, restart): (&Design, &Restart), seed: u64) -> Result<Nanos, Error> {
    let world = Virtual::new(config(seed));
    let mut prng = Prng::from_seed(seed);
    let ran = world.run(|| {
        let here = world.world();
        let plan = FaultPlan { silent_after: Some(prng.below(REQUESTS)), ..FaultPlan::default() };
        let flash = FaultyDevice::new(device(Preset::Nvme, &here, 1 << 20), FaultPlan::default());
        let devices = Devices {
            home: device(Preset::Hdd7200, &here, 8 << 20),
            flash: Some(flash.clone() as Arc<dyn Device>),
            log: device(Preset::Hdd7200, &here, 2 << 20),
        };
        let db = Database::builder()
            .memory(256 << 10)
            .design(*design)
            .restart(*restart)
            .tune(|tier| tier.lambda = 0.9)
            .io_timeout_flash(Nanos::from_millis(500))
            .checkpoints(Checkpoints::Every(Nanos::from_secs(20)))
            .devices(devices)
            .open_or_create_on_devices()?;
        for keys in (0..KEYS).collect::<Vec<_>>().chunks(200) {
            db.write(|txn| {
                let mut rows = txn.open_table(ROWS)?;
                keys.iter().try_for_each(|key| rows.insert(*key, &row(*key, 0)))
            })?;
        }
        flash.set_plan(plan);
        let versions: Versions = Arc::new(LeafMutex::new(vec![0; KEYS as usize]));
        let longest = Arc::new(LeafMutex::new(Ok(Nanos::ZERO)));
        let clients = (0..CLIENTS).map(|_| {
            let (db, versions, prng) = (db.clone(), Arc::clone(&versions), prng.fork());
            let longest = Arc::clone(&longest);
            spawn("client", move || {
                let ran = client(&db, &versions, prng);
                let mut longest = longest.lock();
                match (ran, &mut *longest) {
                    (Ok(ran), Ok(most)) => *most = ran.max(*most),
                    (Err(error), _) => *longest = Err(error),
                    (Ok(_), Err(_)) => {}
                }
            })
        });
        clients.collect::<Vec<_>>().into_iter().for_each(Task::join);
        let longest = std::mem::replace(&mut *longest.lock(), Ok(Nanos::ZERO))?;
        check(&db, &versions)?;
        db.check()?;
        db.close()?;
        Ok(longest)
    });
    ran.expect("nobody waits for ever")
}

#[test]
fn transactions_end_in_time_whenever_the_flash_falls_silent() {
    let mut runs = 0;
    let designs = DESIGNS.iter().filter(|design| design.uses_flash());
    for (number, design) in (0..).zip(designs) {
        for (other, restart) in (0..).zip(&RESTARTS) {
            for round in 0..rounds() {
                let seed = round * 10_000 + number * 100 + other;
                let name = format!("{} {}, seed {seed}", design.name, restart.name);
                match run((design, restart), seed) {
                    // A restart that is of other designs.
                    Err(Error::InvalidOption { .. }) => break,
                    Err(error) => panic!("{name}: {error}"),
                    Ok(longest) => assert!(longest < LIMIT, "{name}: it took {longest}"),
                }
                runs += 1;
            }
        }
    }
    assert!(runs > 40, "{runs} runs");
}

/// Rounds for each design and restart; more where the environment says so.
fn rounds() -> u64 {
    std::env::var("FLASH_FAULTS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

/// The bug: for each page that flash had lost, the whole log was read, by a transaction that needed
/// room in the log: others waited for its locks for longer than their time limit.
#[test]
fn pages_that_a_silent_flash_has_lost_are_repaired_from_few_readings_of_the_log() {
    const PAGES: u64 = 600;
    const ROWS_PER_PAGE: u64 = 10;
    let world = Virtual::new(config(1));
    let ran = world.run(|| {
        let here = world.world();
        let flash = device(Preset::Ram, &here, 8 << 20);
        let log = device(Preset::Ram, &here, 32 << 20);
        let devices = Devices {
            home: device(Preset::Ram, &here, 32 << 20),
            flash: Some(flash.clone()),
            log: log.clone(),
        };
        let db = Database::builder()
            .memory(1 << 20)
            .design(designs::find("lc").expect("a row"))
            .restart(restarts::find("lvr").expect("a row"))
            .tune(|tier| tier.lambda = 0.9)
            .io_timeout_flash(Nanos::from_millis(500))
            .checkpoints(Checkpoints::Off)
            .devices(devices)
            .create_on_devices()?;
        let keys: Vec<u64> = (0..PAGES * ROWS_PER_PAGE).collect();
        let write = |keys: &[u64], version| {
            db.write(|txn| {
                let mut rows = txn.open_table(ROWS)?;
                keys.iter().try_for_each(|key| rows.insert(*key, &row(*key, version)))
            })
        };
        keys.chunks(500).try_for_each(|keys| write(keys, 0))?;
        db.checkpoint(Checkpoint::Sharp)?;
        let changed: Vec<u64> = (0..PAGES).map(|page| page * ROWS_PER_PAGE).collect();
        changed.chunks(100).try_for_each(|keys| write(keys, 1))?;
        let lost = db.stats().pool.slots_dirty;
        assert!(lost > PAGES / 2, "{lost} pages are newer on flash");
        flash.set_silent(true);
        let (before, used) = (log.counters().read_bytes, db.stats().log.used_bytes);
        db.checkpoint(Checkpoint::Sharp)?;
        let read = log.counters().read_bytes - before;
        assert!(read < 32 * used, "{read} bytes of a log of {used} were read for {lost} pages");
        for key in keys {
            let version = u64::from(key % ROWS_PER_PAGE == 0);
            let found = db.read(|txn| {
                let rows = txn.open_table(ROWS)?;
                Ok::<_, Error>(rows.get(key)?.map(|found| found.value().to_vec()))
            })?;
            assert_eq!(found, Some(row(key, version).to_vec()), "row {key}");
        }
        db.check()?;
        db.close()
    });
    let ran: Result<(), Error> = ran.expect("nobody waits for ever");
    ran.expect("flash is a cache");
}
