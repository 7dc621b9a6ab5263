//! How a pool is set up, with the papers' values as defaults.

use terrace_policy::{
    Classifier, CleanerOrder, Costs, Design, FlashRole, MemoryPolicy, QueueRules, Replacement,
    Restart, SavedCosts, TacRule, designs,
};

use std::sync::Arc;

use crate::{FlashLayout, Metadata, PageObserver, PoolError, RestartTuning};
use terrace_restart::{PARTITION_FRAMES_MIN, Settings};
use terrace_tier::{LogRules, LogSizes, Mutation, Mutations};

/// The largest number of frames and slots in one partition: an index and a tag share 32 bits.
pub(crate) const PARTITION_PLACES_MAX: u32 = (1 << 24) - 1;
/// A group of an append log takes at most one in this number of a partition's frames; otherwise
/// there are fewer partitions.
const FRAMES_PER_GROUP: u32 = 64;
/// The partitions of a warm flash tier are kept, unless more than this many times their number are
/// wanted.
const PARTITIONS_KEPT: u32 = 4;

/// All settings of a pool. `PoolConfig::default()` is a small pool without flash.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Frames of memory, in pages.
    pub frames: u32,
    /// Eviction policy of memory; `None`: the one that goes with the design.
    pub memory_policy: Option<MemoryPolicy>,
    /// Whether the metadata of the flash tier is charged to memory: the builder of the pool then
    /// calls [`PoolConfig::charge`].
    pub metadata: Metadata,
    /// Costs of requests in ms, for policies that weigh flash against home; `None`: measured by
    /// reads when the pool is opened.
    pub costs: Option<Costs>,
    /// The flash design, a row of `terrace_policy::DESIGNS`.
    pub design: Design,
    /// How the contents of flash are found again at the next opening, a row of
    /// `terrace_policy::RESTARTS`.
    pub restart: Restart,
    /// What the flash tier is to its database: a cache, or a part of it.
    pub flash_role: FlashRole,
    /// How the restart method keeps its table.
    pub restart_tuning: RestartTuning,
    /// Slots on the flash device, in pages; zero if the design uses no flash.
    pub flash_slots: u32,
    /// Aggressive filling: share of the slots up to which every page is admitted.
    // Source: [S0 3.3.1].
    pub tau: f64,
    /// Throttle: with more requests than this queued, the flash is bypassed.
    // Source: [S0 3.3.2].
    pub mu: usize,
    /// Whether reads that flash could serve are served by home while flash is the busier device.
    pub spill: Spill,
    /// Partitions of directory, frames and slots; fewer if frames are few.
    // Source: [S0 3.3.4].
    pub partitions: u32,
    /// Partitions that an existing flash tier is divided into; kept if there are enough frames,
    /// since pages are found by partition.
    pub partitions_found: Option<u32>,
    /// The most pages that the lazy cleaner writes with one request.
    // Source: [S0 3.3.5].
    pub alpha: u32,
    /// Share of the slots that may be dirty before the lazy cleaner starts.
    // Source: [S0 2.3.3].
    pub lambda: f64,
    /// Which dirty slots the lazy cleaner takes first.
    pub cleaner_order: CleanerOrder,
    /// The most writes that the lazy cleaner keeps outstanding.
    pub cleaner_ios: u32,
    /// Bytes of log after which a change is written home, whatever lambda says; bounds redo. The
    /// cleaner then takes pages in order of recLSN. `None`: no bound.
    pub clean_age: Option<u64>,
    /// The most bytes written to flash in a day; beyond, nothing is admitted. `None`: no limit.
    pub flash_writes_per_day: Option<u64>,
    /// Which reads also fetch adjacent pages.
    pub fills: Fills,
    /// Which pages count as sequential.
    // Source: [S0 2.2].
    pub classifier: Classifier,
    /// Options of TAC (temperature-aware caching).
    pub tac: TacConfig,
    /// The most pages that designs with an append log write, or evict, as one group.
    pub append_group: u32,
    /// The design that picks itself takes its next choice after this number of misses, whatever it
    /// costs; for tests.
    #[doc(hidden)]
    pub forced_choice_misses: Option<u64>,
    /// Options of FASC.
    pub fasc: FascConfig,
    /// Pages in a BUF_WRITE record.
    // Source: [S3 II-A].
    pub buf_write_pages: u32,
    /// The most dirty victims that the background evictor writes at once.
    pub evict_batch: u32,
    /// Receives every page reference, to record a trace; `None` by default.
    pub observer: Option<Arc<dyn PageObserver>>,
    /// Faults that tests put in force.
    #[doc(hidden)]
    pub mutations: Mutations,
}

/// Two of the three things called filling; the third is `tau`.
// Source: [sources.R22].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fills {
    /// Single reads from home become reads of 8 pages until memory is full.
    // Source: [S0 4.3.2].
    pub ramp_up: bool,
    /// Single reads from home become reads of 8 pages until the flash is full.
    // Source: [S3 IV-A1].
    pub aggressive: bool,
}

/// Whether home helps the flash out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spill {
    /// As the row of the design has it.
    AsDesigned,
    /// What flash has is read there, but for the throttle.
    Never,
    /// While requests wait for the flash and home has little to do, home serves reads of pages that
    /// both have.
    WhenFlashIsBusy,
}

/// When TAC writes a page that it admits to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TacWrite {
    /// Before the read returns.
    // Source: [S4 3.2].
    Sync,
    /// By a task of its own, soon after; abandoned if the page is dirtied first.
    // Source: [S0 2.5].
    Async,
}

/// The choices of temperature-aware caching.
// Source: [S4 3; S0 2.5].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TacConfig {
    /// When an admitted page is written.
    pub write: TacWrite,
    /// How much warmer than the coldest a page must be.
    pub rule: TacRule,
    /// What a hit on flash saves.
    pub costs: SavedCosts,
    /// Page requests after which temperatures are halved; zero for the number of slots.
    pub aging_requests: u64,
    /// Tasks that write admitted pages.
    pub writers: u32,
}

impl Default for TacConfig {
    /// As in the port of the 2011 paper, on its devices.
    fn default() -> TacConfig {
        TacConfig {
            write: TacWrite::Async,
            rule: TacRule::HotterThanColdest,
            costs: SavedCosts { random_ms: 7.8, sequential_ms: 0.24 },
            aging_requests: 0,
            writers: 8,
        }
    }
}

/// The choices of FASC.
// Source: [S2 4, 5].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FascConfig {
    /// Pages of a block, which is written whole, once that many victims of memory have gathered.
    pub block_pages: u32,
    /// Page requests in a window: what is used in none of the last two is not hot.
    pub window_requests: u64,
    /// Share of the slots from which on a block leaves for each one that is written.
    pub full: f64,
    /// Pages that are written home at once, twice over: one such buffer fills while the other is
    /// written.
    pub migration_pages: u32,
    /// The two queues of memory.
    pub queues: QueueRules,
}

impl Default for FascConfig {
    fn default() -> FascConfig {
        let log = LogRules::default();
        FascConfig {
            block_pages: log.block,
            window_requests: log.window,
            full: log.full,
            migration_pages: log.migration,
            queues: QueueRules::default(),
        }
    }
}

impl FascConfig {
    /// What is wrong with the choices, if anything is.
    fn flaw(&self) -> Option<&'static str> {
        let sizes = 1..=PoolConfig::APPEND_GROUP_MAX;
        match () {
            () if !sizes.contains(&self.block_pages) => {
                Some("fasc.block_pages must be from 1 to 1024, which is 8 MiB")
            }
            () if !sizes.contains(&self.migration_pages) => {
                Some("fasc.migration_pages must be from 1 to 1024")
            }
            () if self.window_requests == 0 => Some("fasc.window_requests must not be zero"),
            () if !(0.0..=1.0).contains(&self.full) => Some("fasc.full must be a share"),
            () => self.queues.flaw(),
        }
    }
}

/// How long copies on flash count, and for what.
#[derive(Clone, Copy)]
pub(crate) struct CopyRules {
    /// Whether copies on flash are kept as the bases of changes: redo then starts from them.
    pub(crate) keeps_bases: bool,
    /// Whether an opening may find pages on flash that are newer than home, and believe them.
    pub(crate) finds_dirty: bool,
    /// Whether flash is a part of the database.
    pub(crate) is_persistent: bool,
    /// Whether a slot is used again only when the table says durably that it may be.
    pub(crate) waits_for_table: bool,
}

impl Default for PoolConfig {
    fn default() -> PoolConfig {
        PoolConfig {
            frames: 1024,
            memory_policy: None,
            metadata: Metadata::Free,
            costs: None,
            design: designs::find("no-ssd").expect("the row of no flash"),
            restart: Restart::forget(),
            flash_role: FlashRole::Cache,
            restart_tuning: RestartTuning::default(),
            flash_slots: 0,
            tau: 0.95,
            mu: 100,
            spill: Spill::AsDesigned,
            partitions: 16,
            partitions_found: None,
            alpha: 32,
            lambda: 0.5,
            cleaner_order: CleanerOrder::Lru2Age,
            cleaner_ios: 256,
            clean_age: None,
            flash_writes_per_day: None,
            fills: Fills { ramp_up: true, aggressive: false },
            classifier: Classifier::ReadAhead,
            tac: TacConfig::default(),
            append_group: LogRules::default().group,
            forced_choice_misses: None,
            fasc: FascConfig::default(),
            buf_write_pages: 2048,
            evict_batch: 16,
            observer: None,
            mutations: Mutations::NONE,
        }
    }
}

/// What is wrong, without the option that is named beside it.
fn after_name(name: &str, what: &'static str) -> &'static str {
    what.strip_prefix(name).unwrap_or(what)
}

impl PoolConfig {
    /// The least `clean_age`: recLSNs of slots are kept in blocks of 4 KiB of log.
    pub const CLEAN_AGE_MIN: u64 = 64 << 10;

    /// The most pages that one write to an append log may have.
    pub const APPEND_GROUP_MAX: u32 = 1024;

    /// Checks every value, and the devices' sizes against them.
    pub(crate) fn validate(&self, flash_bytes: Option<u64>) -> Result<(), PoolError> {
        let bad = |option, what| Err(PoolError::Config { option, what });
        let share = 0.0..=1.0;
        let uses_flash = self.design.uses_flash();
        let flash_bytes_min = FlashLayout::new(self.flash_slots, self.restart.kind).bytes();
        match () {
            () if self.restart.refusal(&self.design).is_some() => {
                bad("restart", self.restart.refusal(&self.design).expect("a reason"))
            }
            () if self.flash_role.refusal(&self.design, &self.restart).is_some() => bad(
                "flash_role",
                self.flash_role.refusal(&self.design, &self.restart).expect("a reason"),
            ),
            () if self.restart_tuning.flaw().is_some() => bad(
                "restart_tuning",
                after_name("restart_tuning.", self.restart_tuning.flaw().expect("a flaw")),
            ),
            () if self.frames == 0 => bad("frames", "must not be zero"),
            () if !share.contains(&self.tau) => bad("tau", "must be a share"),
            () if !share.contains(&self.lambda) => bad("lambda", "must be a share"),
            () if self.partitions == 0 => bad("partitions", "must not be zero"),
            () if self.alpha == 0 => bad("alpha", "must not be zero"),
            () if self.cleaner_ios == 0 => bad("cleaner_ios", "must not be zero"),
            () if self.clean_age.is_some_and(|age| age < PoolConfig::CLEAN_AGE_MIN) => {
                bad("clean_age", "must be at least 64 KiB of log")
            }
            () if self.costs.is_some_and(|costs| !costs.are_positive()) => {
                bad("costs", "must be numbers above zero")
            }
            () if !(1..=PoolConfig::APPEND_GROUP_MAX).contains(&self.append_group) => {
                bad("append_group", "must be between 1 and 1024")
            }
            () if self.fasc.flaw().is_some() => {
                bad("fasc", after_name("fasc.", self.fasc.flaw().expect("a flaw")))
            }
            () if self.flash_writes_per_day == Some(0) => {
                bad("flash_writes_per_day", "must not be zero: a design without flash is `no-ssd`")
            }
            () if self.buf_write_pages == 0 => bad("buf_write_pages", "must not be zero"),
            () if self.evict_batch == 0 => bad("evict_batch", "must not be zero"),
            () if self.tac.writers == 0 => bad("tac.writers", "must not be zero"),
            () if uses_flash && flash_bytes.is_none() => bad("design", "it needs a flash device"),
            () if uses_flash && self.flash_slots < self.partitions_count() => {
                bad("flash_slots", "must be at least the number of partitions")
            }
            () if uses_flash && flash_bytes.is_some_and(|bytes| bytes < flash_bytes_min) => {
                bad("flash_slots", "the flash device is smaller than its slots")
            }
            () if self.frames.div_ceil(self.partitions_count())
                + self.flash_slots.div_ceil(self.partitions_count())
                >= PARTITION_PLACES_MAX =>
            {
                bad("partitions", "must be more for this number of frames and slots")
            }
            () => Ok(()),
        }
    }

    /// Which page leaves memory: as asked for, or what goes with the design.
    #[must_use]
    pub fn memory_policy_in_use(&self) -> MemoryPolicy {
        self.design.memory.policy(self.memory_policy)
    }

    /// Whether a policy wants to know what requests cost.
    #[must_use]
    pub fn weighs_costs(&self) -> bool {
        self.memory_policy_in_use().weighs_costs()
            || self.design.replacement.is_by_benefit()
            || self.design.replacement == Replacement::Chosen
            || self.spills()
    }

    /// Whether home may serve reads that flash could serve: as asked for, or what the design does.
    #[must_use]
    pub fn spills(&self) -> bool {
        let wanted = match self.spill {
            Spill::AsDesigned => self.design.spills,
            Spill::Never => false,
            Spill::WhenFlashIsBusy => true,
        };
        wanted && self.design.uses_flash()
    }

    /// In which order the cleaner goes: a bound on age needs the oldest first.
    #[must_use]
    pub fn order_of_cleaner(&self) -> CleanerOrder {
        if self.clean_age.is_some() { CleanerOrder::RecLsn } else { self.cleaner_order }
    }

    /// Partitions in use: those of the flash tier that is there, or as asked for, but none with too
    /// few frames.
    pub(crate) fn partitions_count(&self) -> u32 {
        if let Some(found) = self.partitions_found.filter(|&found| self.suits(found)) {
            return found;
        }
        let group = self.design.batch().map_or(1, |batch| self.log_rules().asked(batch));
        let frames_min = PARTITION_FRAMES_MIN.max(group.saturating_mul(FRAMES_PER_GROUP));
        self.partitions.min(self.frames / frames_min).max(1)
    }

    /// Whether there are frames and slots for this number of partitions, and none gets too many.
    fn suits(&self, partitions: u32) -> bool {
        let frames_max = self.frames / PARTITION_FRAMES_MIN;
        (1..=frames_max.min(self.flash_slots)).contains(&partitions)
            && self.frames.div_ceil(partitions) + self.flash_slots.div_ceil(partitions)
                < PARTITION_PLACES_MAX
    }

    /// Takes the partitions that the flash tier is divided into, if that `matters` or they are not
    /// much fewer than there would be.
    pub(crate) fn keep_partitions(&mut self, found: u32, matters: bool) {
        let is_enough = found.saturating_mul(PARTITIONS_KEPT) >= self.partitions_count();
        self.partitions_found = (matters || is_enough).then_some(found);
    }

    /// What is asked of an append log.
    pub(crate) fn log_rules(&self) -> LogRules {
        LogRules {
            group: self.append_group,
            block: self.fasc.block_pages,
            window: self.fasc.window_requests,
            full: self.fasc.full,
            migration: self.fasc.migration_pages,
        }
    }

    /// The sizes of the append log of a partition.
    pub(crate) fn log_sizes(&self) -> LogSizes {
        let Some(batch) = self.design.batch() else { return LogSizes::NONE };
        let partitions = self.partitions_count();
        let (frames, slots) = (self.frames / partitions, self.flash_slots / partitions);
        self.log_rules().sizes(batch, frames, slots)
    }

    /// Whether redo may start from copies on flash that are older than the log's last checkpoint.
    #[must_use]
    pub fn keeps_bases(&self) -> bool {
        // The slots of an append log are overwritten in order: one is kept by moving it to the
        // rear, which is worth its write only where the log does not have it all.
        let may_keep = self.design.batch().is_none() || self.flash_role.is_persistent();
        self.finds_dirty() && may_keep
    }

    /// Whether an opening may find pages on flash that are newer than home, and believe them.
    fn finds_dirty(&self) -> bool {
        self.restart.kind.is_journalled() && self.design.keeps_dirty_on_flash()
    }

    /// The rules for copies on flash.
    pub(crate) fn copy_rules(&self) -> CopyRules {
        let is_persistent = self.flash_role.is_persistent();
        CopyRules {
            keeps_bases: self.keeps_bases(),
            finds_dirty: self.finds_dirty(),
            is_persistent,
            waits_for_table: is_persistent && !self.mutations.has(Mutation::ReuseBeforeTable),
        }
    }

    /// What a restart method is told of the pool.
    #[must_use]
    pub fn of_restart(&self) -> Settings {
        Settings {
            kind: self.restart.kind,
            slots: self.flash_slots,
            partitions: self.partitions_count(),
            role: self.flash_role,
            group: self.log_sizes().group,
            appends: self.design.batch().is_some(),
            tuning: self.restart_tuning,
            mutations: self.mutations,
        }
    }
}
