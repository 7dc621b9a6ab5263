//! What a workload runs on: devices, the sizes of memory and flash, the log, checkpoints.
//!
//! ```text
//!  load --> home and log as stores --clone--> devices --> a world     virtual: every run starts
//!                                  \--clone--> devices --> a world    from the same bytes
//!
//!  devices --power off--> devices in the next world, with the bytes that they kept
//! ```
//!
//! The defaults are the TPC-C point of SIGMOD 2011 scaled by 1/100:
//! memory and flash fixed in pages, device speeds unscaled.

use std::path::PathBuf;
use std::sync::Arc;

use terrace::{
    Builder, Checkpoints, Database, Devices, FlashLayout, PageObserver, PoolConfig, TornPages,
};
use terrace_device::model::{Preset, SimDevice, UnknownPreset, build};
use terrace_device::{Device, Keep, Slab, Store};
use terrace_page::{PAGE_SIZE, PageId};
use terrace_policy::{Design, FlashRole, HomeDevice, Restart, designs};
use terrace_rt::{Nanos, Prng, Virtual, VirtualConfig, World};

use crate::Error;

/// Where the three devices of a run are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Models in virtual time, by the names of their presets.
    Virtual {
        /// The permanent home of the database.
        home: String,
        /// The flash tier.
        flash: String,
        /// The log.
        log: String,
    },
    /// Files or block devices in real time.
    Real {
        /// The permanent home of the database.
        home: PathBuf,
        /// The flash tier.
        flash: PathBuf,
        /// The log.
        log: PathBuf,
        /// Threads that run the clients.
        threads: usize,
        /// Whether what the three hold may be destroyed, unless it is a database.
        overwrite: bool,
    },
}

/// How much of a modelled log can be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKept {
    /// What was written last, enough for rollbacks: for runs that end without a restart.
    Tail,
    /// All of the ring, in memory as far as it was written.
    All,
}

/// What a run runs on, but for the design.
#[derive(Clone, Debug)]
pub struct System {
    /// The three devices.
    pub place: Place,
    /// Pages in memory: 25,600.
    pub memory_pages: u32,
    /// Pages of the flash tier: 183,501.
    pub flash_pages: u32,
    /// All else that memory and flash can be told; its sizes and its design do not count.
    pub tier: PoolConfig,
    /// Bytes of the log: 64 GiB, as checkpoints are off. It is sparse.
    pub log_bytes: u64,
    /// How long the log may get, if it is one that grows: `log_bytes` does not count then.
    pub log_max: Option<u64>,
    /// How much of a modelled log can be read again.
    pub log_kept: LogKept,
    /// Cores that CPU time is charged to, in virtual time.
    pub cores: u32,
    /// Time between checkpoints; none as in SIGMOD 2011.
    pub checkpoint_every: Option<Nanos>,
    /// What records page references; none, unless they are asked for.
    pub recording: Option<Arc<dyn PageRecording>>,
    /// Pages of a modelled home from this one on are on a device like that of the flash tier, for
    /// good; none, unless it is asked for.
    pub home_on_flash_from: Option<PageId>,
}

/// Records the page references of clients: not those of loading, opening and checking, which go by
/// before [`PageRecording::begin`] or after [`PageRecording::end`].
pub trait PageRecording: PageObserver {
    /// The clients begin.
    fn begin(&self);

    /// The clients have stopped.
    fn end(&self);
}

impl Default for System {
    fn default() -> System {
        System {
            place: Place::Virtual {
                home: "sigmod2011-hdd".into(),
                flash: "iodrive".into(),
                log: "sigmod2011-log".into(),
            },
            memory_pages: 25_600,
            flash_pages: 183_501,
            tier: PoolConfig::default(),
            log_bytes: 64 << 30,
            log_max: None,
            log_kept: LogKept::Tail,
            cores: 8,
            checkpoint_every: None,
            recording: None,
            home_on_flash_from: None,
        }
    }
}

/// Pages of the log that `LogKept::Tail` keeps readable.
const LOG_PAGES_KEPT: usize = 1 << 14;

/// The device of a log that grows, to begin with.
const GROWING_LOG_BYTES: u64 = 1 << 20;

/// Memory while loading.
const LOAD_MEMORY_BYTES: u64 = 64 << 20;

/// The smallest flash tier that the engine takes.
pub const FLASH_BYTES_MIN: u64 = 64 * PAGE_SIZE as u64;

impl System {
    /// A virtual world for a run.
    pub fn world(&self, seed: u64) -> Virtual {
        let cores = self.cores;
        Virtual::new(VirtualConfig { seed, switch_one_in: 0, cores, ..VirtualConfig::default() })
    }

    /// A builder with what all runs and the load have in common. Images of whole pages are not
    /// logged, as in the papers' engine: pages are taken to be written whole or not at all.
    pub fn builder(&self, design: Design, world: World) -> Builder {
        let checkpoints = self.checkpoint_every.map_or(Checkpoints::Off, Checkpoints::Every);
        let (mut tier, memory_bytes) = (self.tier.clone(), bytes(self.memory_pages));
        tier.observer = self.recording.clone().map(|recording| recording as Arc<dyn PageObserver>);
        let restart = tier.restart;
        if !design.uses_flash() {
            tier.flash_role = FlashRole::Cache;
        }
        let builder = Database::builder()
            .tune(|tuned| *tuned = tier)
            .restart(restart)
            .memory(memory_bytes)
            .design(design)
            .checkpoints(checkpoints)
            .torn_pages(TornPages::Off)
            .world(world);
        match self.log_max {
            Some(bytes) => builder.log_max(bytes),
            None => builder,
        }
    }

    /// Tells the recording, if there is one, that clients are about to begin.
    pub fn begin_recording(&self) {
        if let Some(recording) = &self.recording {
            recording.begin();
        }
    }

    /// Tells the recording, if there is one, that clients have stopped.
    pub fn end_recording(&self) {
        if let Some(recording) = &self.recording {
            recording.end();
        }
    }

    /// The modelled devices by name: home, flash, log.
    ///
    /// # Errors
    ///
    /// A name that is not known.
    ///
    /// # Panics
    ///
    /// If the devices are real.
    pub fn presets(&self) -> Result<[Preset; 3], UnknownPreset> {
        let Place::Virtual { home, flash, log } = &self.place else {
            panic!("files and block devices have no presets")
        };
        Ok([home.parse()?, flash.parse()?, log.parse()?])
    }

    /// Bytes of a flash device with all the slots asked for, and what a restart method keeps beside
    /// them.
    pub fn flash_bytes(&self) -> u64 {
        FlashLayout::new(self.flash_pages, self.tier.restart.kind).bytes()
    }
}

fn bytes(pages: u32) -> u64 {
    u64::from(pages) * PAGE_SIZE as u64
}

/// The bytes of modelled devices that hold a loaded database.
#[derive(Clone)]
pub struct Stores {
    slab: Arc<Slab>,
    home: Store,
    log: Store,
}

impl Stores {
    /// Creates a database on a home of `home_bytes`, on devices that take no time, and lets `fill`
    /// load and close it.
    ///
    /// # Errors
    ///
    /// A device that is not known; those of `fill` and of the engine.
    pub fn load<T>(
        system: &System,
        seed: u64,
        home_bytes: u64,
        fill: impl FnOnce(Database) -> Result<T, Error>,
    ) -> Result<(T, Stores), Error> {
        // An unknown name is better said before the load than after it.
        system.presets()?;
        let slab = Slab::new();
        let world = system.world(seed);
        let home = Store::new(home_bytes, Keep::Shared(Arc::clone(&slab)));
        let (log_bytes, kept) = match system.log_max {
            // It goes back to where it was long ago.
            Some(_) => (GROWING_LOG_BYTES, LogKept::All),
            None => (system.log_bytes, system.log_kept),
        };
        let log = Store::new(log_bytes, kept.keep());
        let home = build(Preset::Ram, world.world(), home);
        let log = build(Preset::Ram, world.world(), log);
        let devices = Devices { home: home.clone(), flash: None, log: log.clone() };
        let filled = world.run(|| {
            let db = system
                .builder(designs::find("no-ssd")?, world.world())
                .memory(LOAD_MEMORY_BYTES)
                .restart(Restart::forget())
                .devices(devices)
                .create_on_devices()?;
            fill(db)
        })??;
        Ok((filled, Stores { slab, home: home.store(), log: log.store() }))
    }

    /// Devices with copies of these bytes, and a blank flash if `design` uses one, in `world`. A
    /// design whose home is on flash has the bytes there.
    ///
    /// # Errors
    ///
    /// A device that is not known.
    pub fn devices(
        &self,
        system: &System,
        design: Design,
        world: &World,
    ) -> Result<ModelledDevices, UnknownPreset> {
        let [home, flash, log] = system.presets()?;
        let home = if design.home == HomeDevice::Flash { flash } else { home };
        let mut home = home.spec();
        if let Some(first) = system.home_on_flash_from {
            home = home.with_upper(first.0 * PAGE_SIZE as u64, flash.spec().member);
        }
        let blank = || Store::new(system.flash_bytes(), Keep::Shared(Arc::clone(&self.slab)));
        Ok(ModelledDevices {
            home: SimDevice::new(home, world.clone(), self.home.clone()),
            flash: design.uses_flash().then(|| build(flash, world.clone(), blank())),
            log: build(log, world.clone(), self.log.clone()),
        })
    }
}

impl LogKept {
    fn keep(self) -> Keep {
        match self {
            LogKept::Tail => Keep::Recent { pages: LOG_PAGES_KEPT },
            LogKept::All => Keep::Plain,
        }
    }
}

/// The devices of a virtual run; they outlive its worlds.
pub struct ModelledDevices {
    home: Arc<SimDevice>,
    flash: Option<Arc<SimDevice>>,
    log: Arc<SimDevice>,
}

impl ModelledDevices {
    /// As the engine takes them.
    pub fn devices(&self) -> Devices {
        Devices {
            home: self.home.clone(),
            flash: self.flash.clone().map(|flash| flash as Arc<dyn Device>),
            log: self.log.clone(),
        }
    }

    /// Takes what a power cut may take: each page of a write in flight is there or not, by chance.
    /// To be called when the world is dead.
    pub fn cut(&self, prng: &mut Prng) {
        for device in [&self.home, &self.log].into_iter().chain(&self.flash) {
            device.power_cut_between_pages(prng);
        }
    }

    /// The same devices, with the bytes that they hold, in the next world.
    #[must_use]
    pub fn reopen(self, world: &World) -> ModelledDevices {
        ModelledDevices {
            home: self.home.reopen(world.clone()),
            flash: self.flash.map(|flash| flash.reopen(world.clone())),
            log: self.log.reopen(world.clone()),
        }
    }
}
