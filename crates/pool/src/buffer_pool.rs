//! The buffer pool: reading, changing and creating pages that live in memory over flash over home.
//!
//! ```text
//!           read, write                fetch                    fetch
//! caller <--------------- memory <--------------- flash      <--------- home
//!                           |    evict (design)     |   cleaner (LC)     ^
//!                           +---------------------->+------------------->|
//!                           +--------------- evict, flush -------------->+
//! ```
//!
//! - A page request is a lookup without locks, its latch, a check that the frame still holds the
//!   page, and a store or two. Only a miss takes the lock of the page's partition.
//! - Frames, slots and the directory belong to partitions by the hash of the page [S0 3.3.4].
//! - After a failed write or sync of home the pool takes no more changes; reads go on.
//! - What of the flash is used again after an opening is the restart method's to decide
//!   (`restart`).
//!
//! Its tasks sleep until there is work:
//!
//! | task | woken by | does |
//! |---|---|---|
//! | evictor | a partition low on free frames | `run_evictor` |
//! | cleaner | too many dirty pages on flash, a run that ended | `run_cleaner` |
//! | age writer | a log that has grown, with a bound on age | `run_age_writer` |
//! | TAC writers (and of inclusive tiers) | a page read from home | `run_tac_writer` |
//! | restart | what the restart waits for | `Keeper::run` |
//! | redo | an opening that owes pages | `drain_owed_gently` |
//!
//! Orders that the rest relies on are described where they are made: `dirty` (modify), `write_out`
//! (eviction and checkpoint), `cleaner`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use terrace_device::Device;
use terrace_page::{Damage, PageId};
use terrace_policy::{AccessClass, Cleaning, Costs, Filling, Temperatures, Tick};
use terrace_rt::World;
use terrace_tier::{Freed, Gauge, Mutations};

use crate::background::Background;
use crate::build::Plan;
use crate::config::TacWrite;
use crate::devices::Devices;
use crate::devices::costs::measured;
use crate::durability::Durability;
use crate::durability::flush::{drain_owed_gently, run_age_writer};
use crate::flow::append::Appends;
use crate::flow::arriving::{FlashTraffic, exclude_loaded, run_tac_writer};
use crate::flow::choosing::Choosing;
use crate::flow::cleaner::run_cleaner;
use crate::flow::cleaning::CleanerState;
use crate::flow::slots::RestartState;
use crate::memory::Memory;
use crate::memory::evict::run_evictor;
use crate::memory::loading::Owed;
use crate::shares::TierShares;
use crate::{Journal, PageMut, PoolConfig, PoolError, PoolStats, Tier};
use terrace_restart::{ColdStart, FlashLayout, FlashRecovery, keeper_of};

/// How often a page is looked up anew because it left before it was latched.
pub(crate) const LOOKUPS_MAX: u32 = 1_000_000;

/// Pages in memory over flash over home.
pub struct BufferPool {
    pub(crate) config: PoolConfig,
    pub(crate) devices: Devices,
    pub(crate) memory: Memory,
    pub(crate) shares: TierShares,
    pub(crate) traffic: FlashTraffic,
    pub(crate) durability: Durability,
    pub(crate) cleaning: CleanerState,
    pub(crate) background: Background,
    pub(crate) restart: RestartState,
    pub(crate) owed: Owed,
}

/// A page as recovery found it.
pub enum Recovered<'p> {
    /// A whole page.
    Whole(PageMut<'p>),
    /// No such page, whole, where it should be: the guard shows zeroes with the page's id and LSN
    /// zero. If it is dropped without a change, nothing of it stays in the pool. Where its newest
    /// copy should be, and what is wrong there.
    Damaged(PageMut<'p>, Tier, Damage),
}

impl BufferPool {
    /// A pool over `home`, with `flash` if the design uses one, which starts cold, and its
    /// background tasks in `world`. Close it with [`BufferPool::shutdown`].
    ///
    /// # Errors
    ///
    /// `Config` for a value that cannot work, or a flash device that is missing or too small.
    pub fn open(
        config: PoolConfig,
        world: World,
        home: Arc<dyn Device>,
        flash: Option<Arc<dyn Device>>,
        journal: Arc<dyn Journal>,
    ) -> Result<Arc<BufferPool>, PoolError> {
        let pool = BufferPool::open_recovering(config, world, home, flash, journal, None)?;
        pool.begin();
        Ok(pool)
    }

    /// As [`BufferPool::open`], with what `recovery` found on the flash device. Background tasks
    /// that must not see half a recovery wait for [`BufferPool::begin`].
    ///
    /// # Errors
    ///
    /// As [`BufferPool::open`].
    pub fn open_recovering(
        config: PoolConfig,
        world: World,
        home: Arc<dyn Device>,
        flash: Option<Arc<dyn Device>>,
        journal: Arc<dyn Journal>,
        recovery: Option<Arc<FlashRecovery>>,
    ) -> Result<Arc<BufferPool>, PoolError> {
        config.validate(flash.as_ref().map(|device| device.len()))?;
        let design = config.design;
        let slots = if design.uses_flash() { config.flash_slots } else { 0 };
        let layout = FlashLayout::new(slots, config.restart.kind);
        let flash = flash.filter(|_| slots > 0);
        let costs = costs_of(&config, &*home, flash.as_deref());
        let aging_requests = match config.tac.aging_requests {
            0 => u64::from(slots.max(1)),
            requests => requests,
        };
        let temperatures = Temperatures::new(config.tac.costs, aging_requests);
        let filling = Filling::new(slots, config.tau);
        let shares = TierShares::new(design.replacement, temperatures, filling, &costs);
        let plan = Plan::new(&config, &layout, &shares, recovery.as_ref(), &costs);
        let (partitions, doubled) = Arc::new(plan).build(&world);
        let recovery = recovery.as_deref();
        let now = Tick(recovery.map_or(1, |found| found.clock() + 1));
        let (sizes, migration) = (config.log_sizes(), config.fasc.migration_pages);
        let appends = design.batch().map(|batch| Appends::of(batch, &sizes, migration));
        let keeper = keeper_of(&config.of_restart(), &layout, recovery);
        let choosing = Choosing::new(&config, &costs);
        let drains = choosing.as_ref().is_some_and(Choosing::drains);
        let counts_hits = design.replacement.counts_hits();
        let memory =
            Memory::new(config.frames, partitions, now, counts_hits, config.observer.clone())
                .ok_or(PoolError::NoMemory)?;
        let pool = Arc::new_cyclic(|itself| BufferPool {
            traffic: FlashTraffic::new(&config, &design, (appends, choosing)),
            cleaning: CleanerState::new(design.cleaning, &config, slots, &shares, drains),
            restart: RestartState::new(config.copy_rules(), keeper, recovery),
            devices: Devices::new(&config, Arc::clone(&home), flash, costs),
            memory,
            background: Background::new(world, Weak::clone(itself)),
            durability: Durability::new(journal, home, &config),
            config,
            shares,
            owed: Owed::default(),
        });
        pool.started_without(&doubled)
    }

    /// With what runs from the beginning. Copies that gave way to newer ones, or cannot be kept,
    /// must not be found again.
    fn started_without(
        self: Arc<BufferPool>,
        doubled: &[(u32, PageId)],
    ) -> Result<Arc<BufferPool>, PoolError> {
        doubled
            .iter()
            .for_each(|&(slot, page)| self.restart.freed(&*self, slot, page, Freed::Modified));
        self.restart.harden(&*self, &doubled.iter().map(|&(slot, _)| slot).collect::<Vec<_>>());
        if self.restart.rules.is_persistent {
            // What the table says of slots that are free now must not outlast their next use.
            self.harden_table()?;
        }
        self.start("evictor", run_evictor);
        Ok(self)
    }

    /// Recovery is over: starts the cleaner, and what the restart method does in the background [S3
    /// III-D6, Pitfall 2].
    pub fn begin(self: &Arc<BufferPool>) {
        self.restart.recovered();
        exclude_loaded(self);
        self.start_late_tasks();
    }

    /// The faults that are in force: none, but in tests.
    #[inline]
    pub fn mutations(&self) -> Mutations {
        self.config.mutations
    }

    /// Whether flash is a part of the database.
    pub fn needs_flash(&self) -> bool {
        self.config.flash_role.is_persistent()
    }

    /// Pages that memory has room for.
    #[inline]
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.config.frames
    }

    /// Why the flash tier started cold, if it did.
    #[must_use]
    pub fn cold_start(&self) -> Option<ColdStart> {
        self.restart.cold_start
    }

    /// Whether there is a flash tier that takes no pages any more: its device was given up, or has
    /// failed too often.
    #[must_use]
    pub fn is_flash_lost(&self) -> bool {
        self.devices.flash.is_some() && !self.devices.is_usable()
    }

    /// What requests cost, as far as a policy wants to know: as configured, or measured.
    #[must_use]
    pub fn costs(&self) -> Costs {
        self.devices.costs
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let mut stats = *self.devices.counts.lock();
        stats.doublewrite_pages = self.durability.pages_copied();
        let (slots_count, mut slot_bytes) = self.memory.add_stats(&mut stats);
        slot_bytes += self.shares.bytes() as u64;
        stats.slots = slots_count;
        stats.tac_abandoned = self.traffic.abandoned.load(Ordering::Relaxed);
        stats.slots_used = u64::from(self.shares.gauge(Gauge::Used));
        stats.slots_dirty = u64::from(self.shares.gauge(Gauge::Dirty));
        stats.slots_invalid += u64::from(self.shares.gauge(Gauge::Invalid));
        stats.frames = u64::from(self.config.frames);
        if let Some(choosing) = &self.traffic.choosing {
            slot_bytes += choosing.bytes() as u64;
            (stats.choice, stats.choice_changes) = (Some(choosing.choice()), choosing.changes());
        }
        slot_bytes += self.cleaning.sweep.lock().bytes() as u64;
        slot_bytes += self.restart.keeper().map_or(0, |keeper| keeper.bytes()) as u64;
        if slots_count > 0 {
            stats.metadata_bytes_per_slot = slot_bytes.div_ceil(slots_count);
        }
        stats
    }
}

impl BufferPool {
    fn start_late_tasks(self: &Arc<BufferPool>) {
        if self.restart.keeper().is_some() {
            self.start("restart", BufferPool::run_keeper);
        }
        if self.owed() > 0 {
            self.start("redo", drain_owed_gently);
        }
        if self.cleaning.rule != Cleaning::Nothing {
            self.start("cleaner", run_cleaner);
        }
        if self.config.clean_age.is_some() {
            self.start("age writer", run_age_writer);
        }
        if self.traffic.writes_what_is_read == Some(TacWrite::Async) {
            for _ in 0..self.config.tac.writers {
                self.start("tac writer", run_tac_writer);
            }
        }
    }

    fn run_keeper(&self) {
        if let Some(keeper) = self.restart.keeper() {
            keeper.run(self);
        }
    }

    fn start(self: &Arc<BufferPool>, name: &'static str, life: fn(&BufferPool)) {
        let pool = Arc::clone(self);
        self.background.start(name, move || life(&pool));
    }

    /// Stops the background tasks and waits for them. Dirty pages stay dirty: call `flush_all`
    /// first.
    pub fn shutdown(&self) {
        self.background.close();
        self.traffic.offered.close();
        self.memory.frames_wanted.notify_all();
        self.cleaning.news.notify_all();
        self.durability.notify();
        if let Some(keeper) = self.restart.keeper() {
            keeper.close();
        }
        self.background.join();
    }
}

/// What requests cost, if a policy wants to know.
fn costs_of(config: &PoolConfig, home: &dyn Device, flash: Option<&dyn Device>) -> Costs {
    match config.costs {
        Some(costs) => costs,
        None if config.weighs_costs() => measured(config.frames, config.flash_slots, home, flash),
        None => Costs::PUBLISHED,
    }
}

/// What a fetch is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intent {
    /// How the page is fetched.
    pub class: AccessClass,
    /// Whether it enters at the cold end, as a neighbour read along.
    pub cold: bool,
}
