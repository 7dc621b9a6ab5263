//! The three devices of a torture: they outlive every world, and lose what a power cut may take.

use std::sync::Arc;

use terrace::Devices;
use terrace_device::model::{CutReport, Faults, Preset, SimDevice};
use terrace_device::{Device, FaultPlan, FaultyDevice, Keep, Store};
use terrace_page::PAGE_SIZE;
use terrace_rt::{LeafMutex, Nanos, Prng, World};

use super::matrix::spec;
use super::mishaps::Trouble;
use super::scenario::{FlashFate, Scenario};

/// Bytes of the home device.
const HOME_BYTES: u64 = 2048 * PAGE_SIZE as u64;

/// The shortest device of a log that grows. Disks have a fixed length: theirs is full at that.
const GROWING_LOG_BYTES: u64 = 1 << 20;

/// The longest stall of a request.
const STALL_NS_MAX: u64 = 30_000_000;

/// Devices, switched off between two worlds.
pub struct Rig {
    home: Arc<SimDevice>,
    flash: Option<Arc<SimDevice>>,
    log: Arc<SimDevice>,
    /// The flash as it was at an earlier restart.
    old_flash: Option<Store>,
    /// What stands in front of them in this world, and fails.
    faulty: LeafMutex<Vec<Arc<FaultyDevice>>>,
}

impl Rig {
    /// Blank devices in `world`.
    pub fn new(scenario: &Scenario, world: &World, prng: &mut Prng) -> Rig {
        let flash_bytes = u64::from(scenario.flash_slots) * PAGE_SIZE as u64;
        let mut device = |bytes| {
            let store = Store::new(bytes, Keep::Plain);
            let faults = Faults {
                seed: prng.next_u64(),
                stall_one_in: scenario.stall_one_in,
                stall: Nanos(prng.below(STALL_NS_MAX)),
                ..Faults::default()
            };
            SimDevice::with_faults(spec(prng), world.clone(), store, faults)
        };
        let home = device(HOME_BYTES);
        home.offer_atomic_pages();
        Rig {
            home,
            flash: scenario.may_use_flash().then(|| device(flash_bytes)),
            log: device(match scenario.mishaps.log_grows {
                true => (scenario.mishaps.log_bytes / 4).max(GROWING_LOG_BYTES),
                false => scenario.mishaps.log_bytes,
            }),
            old_flash: None,
            faulty: LeafMutex::default(),
        }
    }

    /// As the engine takes them, with their trouble.
    pub fn devices(&self, trouble: &Trouble, uses_flash: bool) -> Devices {
        let with = |device: Arc<SimDevice>, plan: &FaultPlan| {
            if *plan == FaultPlan::default() {
                return device as Arc<dyn Device>;
            }
            let faulty = FaultyDevice::new(device, plan.clone());
            self.faulty.lock().push(Arc::clone(&faulty));
            faulty
        };
        Devices {
            home: with(self.home.clone(), &trouble.home),
            flash: self
                .flash
                .clone()
                .filter(|_| uses_flash)
                .map(|flash| with(flash, &trouble.flash)),
            log: with(self.log.clone(), &trouble.log),
        }
    }

    /// Requests that the devices of this world did not do as they were asked.
    pub fn device_faults(&self) -> u64 {
        self.faulty.lock().iter().map(|device| device.counts().faults()).sum()
    }

    /// Requests in flight on all of them.
    pub fn queued(&self) -> usize {
        let flash = self.flash.as_ref().map_or(0, |flash| flash.queued());
        self.home.queued() + self.log.queued() + flash
    }

    /// Takes what a power cut may take. To be called when the world is dead.
    pub fn cut(&self, prng: &mut Prng) -> CutReport {
        let mut all = self.home.power_cut(prng);
        for device in self.flash.iter().chain([&self.log]) {
            let one = device.power_cut(prng);
            all.exposed += one.exposed;
            all.kept += one.kept;
            all.dropped += one.dropped;
            all.torn += one.torn;
        }
        all
    }

    /// Whether the flash was written to since it was switched on.
    pub fn flash_was_written(&self) -> bool {
        self.flash.as_ref().is_some_and(|flash| flash.counters().writes > 0)
    }

    /// These devices with the flash of `other`, all of them off.
    #[must_use]
    pub fn with_flash_of(self, other: &Rig) -> Rig {
        Rig { flash: other.flash.clone(), ..self }
    }

    /// The same devices in the next world; `fate` is what happened to the flash in between.
    #[must_use]
    pub fn reopen(&self, world: &World, fate: FlashFate) -> Rig {
        let flash = self.flash.as_ref().map(|flash| {
            let before = flash.store();
            let blank = || Store::new(before.len(), Keep::Plain);
            match fate {
                FlashFate::Kept => flash.reopen(world.clone()),
                FlashFate::Wiped => SimDevice::new(Preset::Nvme.spec(), world.clone(), blank()),
                FlashFate::Old => {
                    let store = self.old_flash.clone().unwrap_or_else(blank);
                    SimDevice::new(Preset::Nvme.spec(), world.clone(), store)
                }
            }
        });
        let now = self.flash.as_ref().map(|flash| flash.store());
        Rig {
            home: self.home.reopen(world.clone()),
            flash,
            log: self.log.reopen(world.clone()),
            old_flash: self.old_flash.clone().or(now),
            faulty: LeafMutex::default(),
        }
    }
}
