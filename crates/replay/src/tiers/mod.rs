//! Two tiers: memory over a flash tier over home, with dirty pages.
//!
//! ```text
//!   reference --> memory --- miss: flash.fetch (flash or home is read)
//!                   | first write since it was clean: flash.change (its copy is stale)
//!                   | leaves: flash.leave (nothing, flash, home, or both are written)
//! ```
//!
//! - W1: a write changes a page in memory; a page that is not there is fetched first, as an engine
//!   does. Without memory it comes whole, leaves at once, and nothing is fetched for it.
//! - W2: a copy on flash that is found is the newest, or the page in memory is.
//! - W3: what comes before `Memory::counted_from` fills the tiers, and is not counted.
//! - W4: pages that are dirty at the end stay so: their writes are not counted.
//! - Cost: beside the policies' state, 9 bytes per page, and 32 for each frame of memory.
//! - Not for: latencies, which depend on what else the devices do.
//!
//! Modules in reading order: `start`, which tier a setup stands for; `run`, a reference after the
//! other; `ahead`, what a scan announces; `following`, the same in chunks; `alone`, a tier without
//! memory; `page_memory` and `residents`, memory; `traffic`, what devices are asked for, and
//! `queues`, when they have served it; `held`, what a tier has of a page; `copies`, which page has
//! which slot; then the tiers: `core_tier`, which drives the slot table of the pool, and what it
//! `shared` with it; around it `cleaning`, `appending` with its `sweeps`, what is `choosing` for
//! `auto`, and the `ranking` of slots by temperature; and `no_flash`, `policy_tier`, `opt_tier`.

mod ahead;
mod alone;
mod page_memory;
mod residents;
mod run;
mod start;

mod following;
mod held;

mod appending;
mod choosing;
mod cleaning;
mod copies;
mod core_tier;
mod no_flash;
mod opt_tier;
mod policy_tier;
mod queues;
mod ranking;
mod shared;
mod sweeps;
mod traffic;

pub use alone::temperature_misses;
pub use cleaning::Cleaning;
pub use following::FollowingTiers;
pub use policy_tier::WriteMode;
pub use queues::HomeArray;
pub use ranking::Bands;
pub use start::{replay, replay_kept, replay_marked};
pub use traffic::{DeviceRates, DeviceTraffic, Traffic};

use crate::References;
use crate::opt::{Bypass, next_uses, opt};
use held::Held;
use no_flash::NoFlash;
use page_memory::PageMemory;
use residents::{Frame, Residents};
use std::cell::Cell;
use terrace_policy::replacement::{self, ReplacementKind, ReplacementRow};
use terrace_policy::{
    AccessClass, Costs, Design, History, HomeDevice, MEMORY_POLICIES, MemoryPolicy,
    MemoryRule as Preference, SavedCosts, TacRule, Tick, Touch, UnknownName,
};
use terrace_tier::{BusyCosts, LogRules, Wanted};

/// What is between memory and home.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Flash {
    /// A design of the table that the pool can have, too.
    Design(Design),
    /// A replacement policy over all pages that leave memory.
    Policy(ReplacementRow, WriteMode),
    /// OPT over all pages that are asked for, with no memory above.
    Opt(Bypass),
}

impl Flash {
    /// The name of the design or of the policy.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Flash::Design(design) => design.name,
            Flash::Policy(row, _) => row.name,
            Flash::Opt(Bypass::Never) => "opt",
            Flash::Opt(Bypass::Allowed) => "opt-bypass",
        }
    }

    /// The memory policy that goes with it: the design's own, if it has one; else LRU.
    #[must_use]
    pub fn memory_rule(&self) -> MemoryRule {
        match self {
            Flash::Design(Design { memory: Preference::Prefers(own), .. }) => {
                MemoryRule::Pool(*own)
            }
            _ => MemoryRule::lru(),
        }
    }
}

/// How memory chooses what leaves it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryRule {
    /// As the pool does, from the last two uses of each page, and what the flash has of it.
    Pool(MemoryPolicy),
    /// By a replacement policy with what it remembers.
    Policy(ReplacementRow),
}

impl MemoryRule {
    /// LRU.
    #[must_use]
    pub fn lru() -> MemoryRule {
        MemoryRule::Policy(ReplacementKind::Lru.row())
    }

    /// The rule called `name`: a replacement policy, or one of the pool's that weigh costs.
    ///
    /// # Errors
    ///
    /// An unknown name; the message lists the known.
    pub fn find(name: &str) -> Result<MemoryRule, UnknownName> {
        let weighing = MEMORY_POLICIES.iter().filter(|(_, policy)| policy.weighs_costs());
        let found = weighing.clone().find(|row| row.0 == name);
        if let Some((_, policy)) = found {
            return Ok(MemoryRule::Pool(*policy));
        }
        replacement::find(name).map(MemoryRule::Policy).map_err(|mut unknown| {
            unknown.what = "memory policy";
            unknown.known.extend(weighing.map(|row| row.0));
            unknown
        })
    }

    /// The name of the policy.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MemoryRule::Pool(policy) => policy.name(),
            MemoryRule::Policy(row) => row.name,
        }
    }
}

/// Memory, and how sequential pages are recognized.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Its policy and its frames; none for a trace that is filtered already.
    pub policy: Option<(MemoryRule, u32)>,
    /// Whether a page within 64 of the one read before is sequential.
    pub near_is_sequential: bool,
    /// Clients, each of which waits for a page and then asks for the next; none if requests follow
    /// one another and nothing takes time.
    pub outstanding: u32,
    /// References before this one fill the tiers, and are not counted.
    pub counted_from: usize,
}

/// When a page that was read from home is written to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TacWrite {
    /// Before the client that requested the page goes on [S4 3.2].
    AtOnce,
    /// When that client has to wait again: when memory misses, or the trace says that time passes.
    /// Not if it has changed the page by then [S0 2.5, 4.2].
    Behind,
}

/// The flash tier.
#[derive(Clone, Copy, Debug)]
pub struct FlashSetup {
    /// Its design.
    pub flash: Flash,
    /// Its slots.
    pub slots: u32,
    /// Share of slots that is filled with whatever leaves memory.
    pub tau: f64,
    /// When the lazy cleaner works.
    pub cleaning: Cleaning,
    /// What a flash copy saves, for temperatures.
    pub saved: SavedCosts,
    /// How much warmer than the coldest a page must be.
    pub tac_rule: TacRule,
    /// References after which temperatures are halved; zero for the number of slots.
    pub tac_aging: u64,
    /// When TAC, and a tier that has a slot for each page in memory, write what was read.
    pub tac_write: TacWrite,
    /// TAC's bands; none for its heap, with the rule above.
    pub bands: Option<Bands>,
    /// What is appended together.
    pub log: LogRules,
    /// What a request alone at its device costs, for policies that weigh flash against home,
    /// memory's among them.
    pub costs: Costs,
    /// What a request keeps a loaded device busy, in seconds: for the design that picks itself, and
    /// for the queues of clients, if there are any.
    pub busy: BusyCosts,
    /// The disks of home.
    pub home_array: HomeArray,
    /// All chance follows from it.
    pub seed: u64,
}

impl FlashSetup {
    /// `flash` of `slots` slots, with the parameters that the pool has unless others are asked for.
    #[must_use]
    pub fn new(flash: Flash, slots: u32, seed: u64) -> FlashSetup {
        FlashSetup {
            flash,
            slots,
            tau: 0.95,
            cleaning: Cleaning { lambda: 0.5, alpha: 32, writes: 256 },
            saved: SavedCosts { random_ms: 7.8, sequential_ms: 0.24 },
            tac_rule: TacRule::HotterThanColdest,
            tac_aging: 0,
            tac_write: TacWrite::Behind,
            bands: None,
            log: LogRules::default(),
            costs: Costs::PUBLISHED,
            busy: BusyCosts {
                home_read: Costs::PUBLISHED.home_read,
                home_write: Costs::PUBLISHED.home_write,
                home_clean: Costs::PUBLISHED.home_write,
                flash_read: Costs::PUBLISHED.flash_read,
                flash_write: Costs::PUBLISHED.flash_write,
            },
            home_array: HomeArray::ONE,
            seed,
        }
    }

    /// For a sample of a share `rate` of the pages: what is counted in pages or misses shrinks.
    #[must_use]
    pub fn scaled(&self, rate: f64) -> FlashSetup {
        let fewer = |count: u32| ((f64::from(count) * rate).round() as u32).max(1);
        let log = LogRules {
            group: fewer(self.log.group),
            block: fewer(self.log.block),
            window: ((self.log.window as f64 * rate).round() as u64).max(1),
            ..self.log
        };
        let home_array = self.home_array.scaled(rate);
        let cleaning = Cleaning { writes: fewer(self.cleaning.writes), ..self.cleaning };
        FlashSetup { slots: fewer(self.slots), cleaning, log, home_array, ..*self }
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierCounts {
    /// References.
    pub requests: u64,
    /// Of them, found in memory.
    pub memory_hits: u64,
    /// Of the others, found on flash.
    pub flash_hits: u64,
    /// Of the others, read ahead of need: memory lacked them.
    pub ahead: u64,
    /// References that memory missed, to pages that had been changed in memory when they left it
    /// last.
    pub after_change: u64,
    /// Pages that left memory changed.
    pub dirty_leaves: u64,
    /// Pages that are newer on flash than at home: their writes are still to come (W4).
    pub dirty_slots: u64,
    /// What home was asked for.
    pub home: DeviceTraffic,
    /// What the flash was asked for.
    pub flash: DeviceTraffic,
}

impl TierCounts {
    /// References that neither memory nor flash had.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.requests - self.memory_hits - self.flash_hits
    }

    /// What happened since `before`, which was counted in the same replay; of dirty slots, how many
    /// more there are.
    #[must_use]
    pub fn since(&self, before: &TierCounts) -> TierCounts {
        TierCounts {
            requests: self.requests - before.requests,
            memory_hits: self.memory_hits.saturating_sub(before.memory_hits),
            flash_hits: self.flash_hits - before.flash_hits,
            ahead: self.ahead - before.ahead,
            after_change: self.after_change - before.after_change,
            dirty_leaves: self.dirty_leaves - before.dirty_leaves,
            dirty_slots: self.dirty_slots.saturating_sub(before.dirty_slots),
            home: self.home.since(&before.home),
            flash: self.flash.since(&before.flash),
        }
    }

    /// What was counted, as it is with this flash: home may be the flash device, which serves what
    /// memory misses.
    fn as_of(self, setup: &FlashSetup) -> TierCounts {
        if !matches!(setup.flash, Flash::Design(design) if design.home == HomeDevice::Flash) {
            return self;
        }
        let flash_hits = self.requests - self.memory_hits;
        TierCounts { flash: self.home, home: DeviceTraffic::default(), flash_hits, ..self }
    }
}

/// What a page that memory lacks is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// A client waits for it.
    Now,
    /// A scan will soon want it; from where it may come.
    Ahead(Wanted),
}

/// A page that memory does not have.
struct Miss {
    page: u32,
    need: Need,
    /// When it was asked for; one tick for each miss.
    now: Tick,
    /// When it came.
    tick: Tick,
    /// Page requests since the last one, this included, as the pool counts them: a hit when its
    /// page leaves memory.
    requests: u64,
}

/// A page that leaves memory.
struct Leaving {
    page: u32,
    dirty: bool,
    class: AccessClass,
    history: History,
    /// Hits in memory since they were counted last.
    hits: u32,
    now: Tick,
}

/// What a flash tier hears of.
#[derive(Clone, Copy)]
enum Note {
    /// A page in memory is about to be changed for the first time.
    Changes(u32),
    /// Time passes before the next reference.
    TimePasses,
}

/// What is allocated.
trait Allocated {
    /// Bytes, of what is there for each page, slot or frame.
    fn bytes(&self) -> usize;
}

/// A flash tier.
trait FlashTier: Allocated {
    /// Memory missed: reads the page from flash, and gives its history, or from home. A copy that
    /// is newer than home may go: memory has what it had.
    fn fetch(
        &mut self,
        miss: &Miss,
        residents: &mut Residents,
        io: &mut Traffic,
    ) -> Option<History>;

    /// Hears of something.
    fn note(&mut self, note: Note, io: &mut Traffic);

    /// A page leaves memory, alone.
    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic);

    /// What is here of a page.
    fn held(&self, page: u32) -> Held;

    /// Slots whose page is newer than at home.
    fn dirty_slots(&self) -> u32 {
        0
    }

    /// What appends, if the tier does.
    fn log(&mut self) -> Option<&mut dyn Log> {
        None
    }
}

/// A flash tier that takes pages in groups.
trait Log {
    /// Pages that are appended together, at most.
    fn group(&self) -> u32;

    /// Pages to wait for before they are appended: what the slots next to each other take.
    fn gathered_together(&self) -> u32;

    /// Whether `page` is appended when it leaves memory.
    fn wants(&self, page: u32, is_dirty: bool) -> bool;

    /// Appends pages of memory, as far as there is room. How many: they leave.
    fn append(
        &mut self,
        waiting: &[u32],
        now: Tick,
        residents: &mut Residents,
        io: &mut Traffic,
    ) -> usize;
}

/// Of the references that memory misses, how many the best choice of `slots` pages would have
/// found on flash, if pages may bypass it.
#[must_use]
pub fn ceiling(references: &References, memory: Memory, slots: u32, seed: u64) -> (u64, u64) {
    let mut missed = Vec::new();
    match memory.policy {
        None => missed.extend_from_slice(references.pages()),
        Some(_) => {
            let costs = (&Costs::PUBLISHED, seed);
            let count = references.pages_count();
            let mut state = PageMemory::new(memory.policy, (0, 0), count, costs);
            let mut now = Tick(0);
            for &page in references.pages() {
                if state.hit(page, now) {
                    continue;
                }
                missed.push(page);
                now.0 += 1;
                if state.is_full(0) {
                    let victim = state.victim(&NoFlash, now).expect("any page may leave");
                    state.residents.take_out(victim);
                }
                let frame = Frame { touch: Cell::new(Touch::first(now)), ..Frame::default() };
                if let Some(victim) = state.put(page, frame) {
                    state.residents.take_out(victim);
                }
            }
        }
    }
    let next = next_uses(&missed, references.pages_count());
    let misses = opt(&next, slots, Bypass::Allowed, |_| {});
    (missed.len() as u64, missed.len() as u64 - misses)
}

#[cfg(test)]
mod tests;
