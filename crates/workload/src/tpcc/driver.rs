//! Loads a database once and runs designs on it, in a world of its own for each run.
//!
//! ```text
//!  load --> home and log as stores --clone--> run lc --> result       virtual: every run starts
//!                                  \--clone--> run dw --> result       from the same bytes
//!
//!  load --> files --> run lc --> run dw ...      real: each run goes on where the one before
//!                                                ended, with cold memory
//! ```
//!
//! - D1: a virtual run depends on nothing but `Loaded`, its configuration and its design.
//! - D2: runs share no state; two of them may run on two threads at once.
//! - D3: files that already hold a loaded database of the same scale are used, never loaded over.

use std::sync::Arc;

use terrace::{
    Builder, Checkpoints, Database, Devices, DirectIo, FlashLayout, FullImages, PoolConfig,
};
use terrace_device::model::{Preset, build};
use terrace_device::{Keep, Slab, Store};
use terrace_page::PAGE_SIZE;
use terrace_policy::{Design, MemoryPolicy, RestartKind, designs};
use terrace_rt::{Nanos, Real, Virtual, VirtualConfig, World};

use super::config::{Checks, Config, Place};
use super::population::LOAD_DATE;
use super::results::{Consistency, Progress, RunResult};
use super::schema::{HISTORY, ITEM, WAREHOUSE};
use super::{consistency, loading, measure};
use crate::Error;

/// A loaded database: cheap to clone, and sent to other threads, so that each run starts from its
/// own copy.
#[derive(Clone)]
pub struct Loaded {
    /// What it was loaded with.
    pub config: Config,
    /// Pages in use at home.
    pub home_pages: u64,
    /// Of `home_pages`, about so many hold ITEM, whose size does not follow the number of
    /// warehouses.
    pub item_pages: u64,
    /// The twelve conditions after the load.
    pub consistency: Consistency,
    /// What the modelled devices hold; none in the real world.
    stores: Option<Stores>,
}

/// The bytes of modelled devices.
#[derive(Clone)]
struct Stores {
    slab: Arc<Slab>,
    home: Store,
    log: Store,
}

/// Pages of the log that a modelled log device keeps readable.
const LOG_PAGES_KEPT: usize = 1 << 14;

/// A home whose size nobody names may grow to this.
const SPARSE_HOME_BYTES: u64 = 64 << 30;

/// The smallest flash tier that the engine takes.
pub const FLASH_BYTES_MIN: u64 = 64 * PAGE_SIZE as u64;

/// Memory while loading.
const LOAD_MEMORY_BYTES: u64 = 64 << 20;

/// Loads the database of `config`. `progress` is called with the rows loaded and their number.
///
/// # Errors
///
/// Devices that cannot be opened or are too small; whatever else the engine says.
pub fn load(config: &Config, progress: &mut dyn FnMut(u64, u64)) -> Result<Loaded, Error> {
    match &config.place {
        Place::Virtual { home, flash, log } => {
            // An unknown name is better said before the load than after it.
            for name in [home, flash, log] {
                name.parse::<Preset>()?;
            }
            load_stores(config, progress)
        }
        Place::Real { threads, .. } => {
            let real = Real::new(*threads);
            let db = real_builder(config, designs::find("no-ssd")?, real.world());
            load_files(config, db, progress)
        }
    }
}

/// Runs `design` on a copy of `loaded`, for the time and with the clients of `config`, which may
/// differ from that of the load in all but the scale. Blocks; a virtual run uses this thread only.
///
/// # Errors
///
/// Whatever stops the engine; a run whose database breaks a condition is no error but a result.
pub fn run(
    loaded: &Loaded,
    config: &Config,
    design: Design,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<RunResult, Error> {
    assert_eq!(loaded.config.scale, config.scale, "a database of another scale");
    match (&config.place, &loaded.stores) {
        (Place::Virtual { home, flash, log }, Some(stores)) => {
            let presets = [home.parse()?, flash.parse()?, log.parse()?];
            run_virtual(stores.clone(), presets, config, design, progress)
        }
        (Place::Real { .. }, _) => run_real(config, design, progress),
        (Place::Virtual { .. }, None) => panic!("a database on files does not run on models"),
    }
}

/// Bytes of a home with room for what a run adds.
fn home_bytes(config: &Config) -> u64 {
    const ROOM_BYTES: u64 = 64 << 20;
    let loaded = loading::estimated_bytes(config.scale, config.fill);
    (loaded * 3 / 2 + ROOM_BYTES).next_multiple_of(PAGE_SIZE as u64)
}

fn virtual_world(config: &Config) -> Virtual {
    Virtual::new(VirtualConfig {
        seed: config.seed,
        switch_one_in: 0,
        cores: config.cores,
        ..VirtualConfig::default()
    })
}

/// A builder with what all runs and the load have in common.
fn builder(config: &Config, design: Design, world: World) -> Builder {
    let checkpoints = config.checkpoint_every.map_or(Checkpoints::Off, Checkpoints::Every);
    Database::builder()
        .memory(u64::from(config.memory_pages) * PAGE_SIZE as u64)
        .design(design)
        .tune(|tier| tune(tier, config))
        .checkpoints(checkpoints)
        .full_images(FullImages::Off)
        .world(world)
}

fn tune(tier: &mut PoolConfig, config: &Config) {
    // The name was looked up when it was read; an unknown one is a bug of the caller.
    tier.memory_policy = MemoryPolicy::find(&config.memory_policy).expect("a memory policy");
    tier.tau = config.tau;
    tier.mu = config.mu as usize;
    tier.partitions = config.partitions;
    tier.alpha = config.alpha;
    tier.lambda = config.lambda;
    tier.cleaner_order = config.cleaner_order;
    tier.cleaner_ios = config.cleaner_ios;
    tier.fills = config.fills;
    tier.classifier = config.classifier;
    tier.tac = config.tac;
}

fn load_stores(config: &Config, progress: &mut dyn FnMut(u64, u64)) -> Result<Loaded, Error> {
    let slab = Slab::new();
    let world = virtual_world(config);
    let home = Store::new(home_bytes(config), Keep::Shared(Arc::clone(&slab)));
    let log = Store::new(config.log_bytes, Keep::Recent { pages: LOG_PAGES_KEPT });
    let home = build(Preset::Ram, world.world(), home);
    let log = build(Preset::Ram, world.world(), log);
    let devices = Devices { home: home.clone(), flash: None, log: log.clone() };
    let loaded = world.run(|| {
        let no_ssd = designs::find("no-ssd")?;
        let db = builder(config, no_ssd, world.world())
            .memory(LOAD_MEMORY_BYTES)
            .devices(devices)
            .create_on_devices()?;
        load_and_check(config, db, progress)
    })??;
    Ok(Loaded { stores: Some(Stores { slab, home: home.store(), log: log.store() }), ..loaded })
}

fn load_files(
    config: &Config,
    mut builder: Builder,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Loaded, Error> {
    let Place::Real { home, flash, .. } = &config.place else { unreachable!("the caller looked") };
    if home_bytes(config) > SPARSE_HOME_BYTES {
        builder = builder.home_size(home_bytes(config));
    }
    if !flash.as_os_str().is_empty() {
        // A flash that cannot be used is better told before the load; it grows when it is used.
        builder = builder.flash(flash, FLASH_BYTES_MIN);
    }
    let db = builder.open_or_create(home)?;
    if is_loaded(&db, config)? {
        let home_pages = measure::home_pages(&db.stats());
        let consistency = check(&db, config)?;
        db.close()?;
        return Ok(Loaded { consistency, home_pages, ..described(config) });
    }
    load_and_check(config, db, progress)
}

/// Whether `db` holds all of a database of the scale wanted (D3).
fn is_loaded(db: &Database, config: &Config) -> Result<bool, Error> {
    let txn = db.begin_read()?;
    let last_warehouse = match txn.open_table(WAREHOUSE) {
        Err(terrace::Error::NoSuchTable) => return Ok(false),
        other => other?.last()?.map(|entry| entry.key()),
    };
    let last_item = txn.open_table(ITEM)?.last()?.map(|entry| entry.key());
    let wanted = (Some(config.scale.warehouses), Some(config.scale.items));
    match (last_warehouse, last_item) == wanted {
        true => Ok(true),
        false => Err(Error::OtherScale),
    }
}

fn load_and_check(
    config: &Config,
    db: Database,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Loaded, Error> {
    loading::populate(&db, config, progress)?;
    let consistency = check(&db, config)?;
    let home_pages = measure::home_pages(&db.stats());
    db.close()?;
    Ok(Loaded { consistency, home_pages, ..described(config) })
}

fn described(config: &Config) -> Loaded {
    Loaded {
        config: config.clone(),
        home_pages: 0,
        item_pages: loading::estimated_item_bytes(config.scale, config.fill) / PAGE_SIZE as u64,
        consistency: Consistency::Unchecked,
        stores: None,
    }
}

fn check(db: &Database, config: &Config) -> Result<Consistency, Error> {
    if config.checks == Checks::Off {
        return Ok(Consistency::Unchecked);
    }
    let found = consistency::check(db, config.scale)?;
    Ok(match found.is_empty() {
        true => Consistency::Ok,
        false => Consistency::Broken(found.iter().map(ToString::to_string).collect()),
    })
}

fn run_virtual(
    stores: Stores,
    [home, flash, log]: [Preset; 3],
    config: &Config,
    design: Design,
    progress: &mut dyn FnMut(Progress),
) -> Result<RunResult, Error> {
    let world = virtual_world(config);
    let flash_bytes = FlashLayout::new(config.flash_pages, RestartKind::Forget).bytes();
    let flash_device = || {
        let store = Store::new(flash_bytes, Keep::Shared(Arc::clone(&stores.slab)));
        build(flash, world.world(), store) as Arc<dyn terrace_device::Device>
    };
    let devices = Devices {
        home: build(home, world.world(), stores.home.clone()),
        flash: design.uses_flash().then(flash_device),
        log: build(log, world.world(), stores.log.clone()),
    };
    let ran = world.run(|| {
        let db = builder(config, design, world.world()).devices(devices).open_on_devices()?;
        let result = measure_and_check(&db, config, design, &world.world(), FIRST_DATE, progress)?;
        Ok::<_, Error>((result, db))
    })??;
    let (mut result, db) = ran;
    result.events = Some(world.world().events());
    // Closing would write all that is dirty, which nobody reads: the power goes instead.
    world.cut_at_event(world.world().events());
    let _ = world.run(|| terrace_rt::sleep(Nanos::from_secs(1)));
    drop(db);
    Ok(result)
}

/// The date at which runs on a new database begin.
const FIRST_DATE: u64 = LOAD_DATE + 86_400 * 1_000_000_000;

fn measure_and_check(
    db: &Database,
    config: &Config,
    design: Design,
    world: &World,
    date: u64,
    progress: &mut dyn FnMut(Progress),
) -> Result<RunResult, Error> {
    let mut result = measure::measure(db, config, (design.name, date), world, progress)?;
    result.consistency = check(db, config)?;
    Ok(result)
}

fn real_builder(config: &Config, design: Design, world: World) -> Builder {
    let Place::Real { flash, log, .. } = &config.place else { unreachable!("the caller looked") };
    let builder = builder(config, design, world)
        .direct_io(DirectIo::Required)
        .log(log)
        .log_size(config.log_bytes.min(REAL_LOG_BYTES_MAX));
    match design.uses_flash() {
        true => builder.flash(flash, u64::from(config.flash_pages) * PAGE_SIZE as u64),
        false => builder,
    }
}

/// The log of a real run goes round: a checkpoint is taken whenever it is half full.
const REAL_LOG_BYTES_MAX: u64 = 4 << 30;

fn run_real(
    config: &Config,
    design: Design,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<RunResult, Error> {
    let Place::Real { home, threads, .. } = &config.place else {
        unreachable!("the caller looked")
    };
    let real = Real::new(*threads);
    let world = real.world();
    real.run(|| {
        let db = real_builder(config, design, world.clone()).open(home)?;
        let date = last_date(&db, config)? + 1_000_000_000;
        let result = measure_and_check(&db, config, design, &world, date, progress)?;
        db.close()?;
        Ok(result)
    })
}

/// The date of the last payment in `db`.
fn last_date(db: &Database, config: &Config) -> Result<u64, Error> {
    let txn = db.begin_read()?;
    let histories = txn.open_table(HISTORY)?;
    let mut last = FIRST_DATE;
    for warehouse in 1..=config.scale.warehouses {
        for district in 1..=config.scale.districts {
            let all = (warehouse, district, 0, 0)..=(warehouse, district, u64::MAX, u16::MAX);
            if let Some(entry) = histories.range(all)?.next_back() {
                last = last.max(entry?.key().2);
            }
        }
    }
    Ok(last)
}
