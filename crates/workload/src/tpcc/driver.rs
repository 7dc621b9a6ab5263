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

use terrace::{Builder, Database, DirectIo};
use terrace_page::PAGE_SIZE;
use terrace_policy::{Design, Restart, designs};
use terrace_rt::{Nanos, Real, World};

use super::config::{Checks, Config, Start};
use super::population::LOAD_DATE;
use super::results::{Progress, RunResult};
use super::schema::{HISTORY, ITEM, WAREHOUSE};
use super::{consistency, loading, measure};
use crate::Error;
use crate::clients::{Clients, Consistency, Part, Workload};
use crate::sampling::home_pages;
use crate::system::{FLASH_BYTES_MIN, Place, Stores};

/// A loaded database: cheap to clone, and sent to other threads, so that each run starts from its
/// own copy.
#[derive(Clone)]
pub struct Loaded {
    /// What it was loaded with.
    pub config: Config,
    /// Pages in use at home.
    pub home_pages: u64,
    /// About the number of `home_pages` that hold ITEM, whose size does not follow the number of
    /// warehouses.
    pub item_pages: u64,
    /// The twelve conditions after the load.
    pub consistency: Consistency,
    /// What the modelled devices hold; none in the real world.
    stores: Option<Stores>,
}

/// The limit of a home for which no size is given.
const SPARSE_HOME_BYTES: u64 = 64 << 30;

/// Loads the database of `config`. `progress` is called with the rows loaded and their number.
///
/// # Errors
///
/// Devices that cannot be opened or are too small; whatever else the engine says.
pub fn load(config: &Config, progress: &mut dyn FnMut(u64, u64)) -> Result<Loaded, Error> {
    match &config.system.place {
        Place::Virtual { .. } => {
            let fill = |db| load_and_check(config, db, progress);
            let (loaded, stores) =
                Stores::load(&config.system, config.seed, config.home_bytes(), fill)?;
            Ok(Loaded { stores: Some(stores), ..loaded })
        }
        Place::Real { threads, .. } => {
            let real = Real::new(*threads);
            let builder = real_builder(config, designs::find("no-ssd")?, real.world());
            load_files(config, builder.restart(Restart::forget()), progress)
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
    match (&config.system.place, &loaded.stores) {
        (Place::Virtual { .. }, Some(stores)) => run_virtual(stores, config, design, progress),
        (Place::Real { .. }, _) => run_real(config, design, progress),
        (Place::Virtual { .. }, None) => panic!("a database on files does not run on models"),
    }
}

impl Workload for Config {
    fn home_bytes(&self) -> u64 {
        const ROOM_BYTES: u64 = 64 << 20;
        let loaded = loading::estimated_bytes(self.scale, self.fill);
        (loaded * 3 / 2 + ROOM_BYTES).next_multiple_of(PAGE_SIZE as u64)
    }

    fn load(&self, db: &Database, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
        loading::populate(db, self, progress)
    }

    fn start(&self, db: &Database, part: Part, world: &World) -> Box<dyn Clients> {
        let epoch = FIRST_DATE + part.since.0;
        Box::new(measure::Terminals::start(db, self, (part.number, epoch), world))
    }

    fn check(&self, db: &Database) -> Result<Consistency, Error> {
        check(db, self)
    }
}

fn load_files(
    config: &Config,
    mut builder: Builder,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Loaded, Error> {
    let Place::Real { home, flash, overwrite, .. } = &config.system.place else {
        unreachable!("the caller looked")
    };
    builder = builder.overwrite(*overwrite);
    if config.home_bytes() > SPARSE_HOME_BYTES {
        builder = builder.home_size(config.home_bytes());
    }
    if !flash.as_os_str().is_empty() {
        // A flash that cannot be used is better reported before the load; it grows when it is used.
        builder = builder.flash(flash, FLASH_BYTES_MIN);
    }
    let db = match builder.clone().open_or_create(home) {
        // What is a database is never destroyed, whole or damaged.
        Err(terrace::Error::NotBlank { .. } | terrace::Error::NotADatabase { .. })
            if *overwrite =>
        {
            builder.create(home)?
        }
        opened => opened?,
    };
    if is_loaded(&db, config)? {
        let home_pages = home_pages(&db.stats());
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
        Err(terrace::Error::NoSuchTable { .. }) => return Ok(false),
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
    let home_pages = home_pages(&db.stats());
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
    stores: &Stores,
    config: &Config,
    design: Design,
    progress: &mut dyn FnMut(Progress),
) -> Result<RunResult, Error> {
    let world = config.system.world(config.seed);
    let devices = stores.devices(&config.system, design, &world.world())?.devices();
    let ran = world.run(|| {
        let builder = config.system.builder(design, world.world());
        let db = builder.devices(devices).open_on_devices()?;
        let result = measure_and_check(&db, config, design, &world.world(), FIRST_DATE, progress)?;
        Ok::<_, Error>((result, db))
    })??;
    let (mut result, db) = ran;
    result.events = Some(world.world().events());
    // Closing would write all dirty pages, which are not read again: the power is cut instead.
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
    if config.start == Start::Warm {
        // It reads every page there is.
        db.check()?;
    }
    let mut result = measure::measure(db, config, (design.name, date), world, progress)?;
    result.consistency = check(db, config)?;
    Ok(result)
}

fn real_builder(config: &Config, design: Design, world: World) -> Builder {
    let system = &config.system;
    let Place::Real { flash, log, .. } = &system.place else { unreachable!("the caller looked") };
    let builder = system.builder(design, world);
    let builder = builder.direct_io(DirectIo::Required).log(log);
    let builder = match system.log_max {
        Some(_) => builder,
        None => builder.log_size(system.log_bytes.min(REAL_LOG_BYTES_MAX)),
    };
    match design.uses_flash() {
        true => builder.flash(flash, system.flash_bytes()),
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
    let Place::Real { home, threads, .. } = &config.system.place else {
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
