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
//! - Cost: beside the policies' state, 25 bytes per page.
//! - Not for: latencies, which depend on what else the devices do.

mod policy_tier;
mod pool_memory;
mod slot_tier;
mod temperature_tier;
mod traffic;

pub use policy_tier::WriteMode;
pub use slot_tier::Cleaning;
pub use traffic::{DeviceRates, DeviceTraffic, Traffic};

use crate::References;
use crate::opt::{Bypass, next_uses, opt};
use crate::places::Places;
use policy_tier::PolicyTier;
use pool_memory::PoolMemory;
use slot_tier::SlotTier;
use temperature_tier::TemperatureTier;
use terrace_page::PageId;
use terrace_policy::replacement::{
    Forgetting, Key, Replace, ReplacementPolicy, ReplacementRow, Setup,
};
use terrace_policy::{
    AccessClass, Classifier, Design, History, HomeDevice, Layout, MemoryPolicy, Replacement,
    SavedCosts, TacRule, Tick, Touch,
};

/// What is between memory and home.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Flash {
    /// A design of the table that the pool can have, too.
    Design(Design),
    /// A replacement policy over all pages that leave memory.
    Policy(ReplacementRow, WriteMode),
}

impl Flash {
    /// The name of the design or of the policy.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Flash::Design(design) => design.name,
            Flash::Policy(row, _) => row.name,
        }
    }
}

/// How memory chooses what leaves it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryRule {
    /// As the pool does, from the last two uses of each page. It knows of no flash, so that GD2L
    /// is LRU.
    Pool(MemoryPolicy),
    /// By a replacement policy with what it remembers.
    Policy(ReplacementRow),
}

impl MemoryRule {
    /// The name of the policy.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MemoryRule::Pool(policy) => policy.name(),
            MemoryRule::Policy(row) => row.name,
        }
    }
}

/// Memory, and how pages are told to be sequential.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Its policy and its frames; none for a trace that is filtered already.
    pub policy: Option<(MemoryRule, u32)>,
    /// Whether a page within 64 of the one read before is sequential.
    pub near_is_sequential: bool,
    /// Misses that come between one and its page: as many requests as the devices have at once. The
    /// first use of a page is so much older than the next, even if that comes at once.
    pub outstanding: u32,
    /// References before this one fill the tiers, and are not counted.
    pub counted_from: usize,
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
    /// References after which temperatures are halved; zero for as many as there are slots.
    pub tac_aging: u64,
    /// All chance follows from it.
    pub seed: u64,
}

impl FlashSetup {
    /// `flash` of so many slots, with the parameters that the pool has unless others are asked for.
    #[must_use]
    pub fn new(flash: Flash, slots: u32, seed: u64) -> FlashSetup {
        FlashSetup {
            flash,
            slots,
            tau: 0.95,
            cleaning: Cleaning { lambda: 0.5, alpha: 32 },
            saved: SavedCosts { random_ms: 7.8, sequential_ms: 0.24 },
            tac_rule: TacRule::HotterThanColdest,
            tac_aging: 0,
            seed,
        }
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
    /// Pages that left memory changed.
    pub dirty_leaves: u64,
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
}

/// A page that memory does not have.
struct Miss {
    page: u32,
    /// One tick for each.
    now: Tick,
    /// References since the last one, this included.
    requests: u64,
}

/// A page that leaves memory.
struct Leaving {
    page: u32,
    dirty: bool,
    class: AccessClass,
    history: History,
    now: Tick,
}

/// A flash tier.
trait FlashTier {
    /// Memory missed: reads the page from flash, and gives its history, or from home.
    fn fetch(&mut self, miss: &Miss, io: &mut Traffic) -> Option<History>;

    /// A page in memory is about to be changed for the first time.
    fn change(&mut self, page: u32);

    /// A page leaves memory.
    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic);

    /// Whether a current copy is here.
    fn holds(&self, page: u32) -> bool;
}

/// Whether `design` can be replayed: its replacement and layout are known here.
#[must_use]
pub fn runs(design: &Design) -> bool {
    let known = matches!(
        design.replacement,
        Replacement::Nothing | Replacement::Lru2 | Replacement::Temperature
    );
    let is_tiered = design.home == HomeDevice::Home;
    known && is_tiered && matches!(design.layout, Layout::Nothing | Layout::InPlace)
}

/// Replays `references` through memory and the flash tier.
///
/// # Panics
///
/// If a tier has no pages.
#[must_use]
pub fn replay(
    references: &References,
    places: &Places,
    memory: Memory,
    setup: &FlashSetup,
) -> TierCounts {
    assert!(setup.slots > 0, "a flash tier has slots");
    if let Flash::Design(design) = &setup.flash {
        assert!(runs(design), "{} cannot be replayed", design.name);
    }
    let design = match setup.flash {
        Flash::Policy(row, mode) => {
            let tier = PolicyTier::new(references.pages_count(), row, mode, setup);
            return run(references, places, memory, setup.seed, tier);
        }
        Flash::Design(design) => design,
    };
    match design.replacement {
        Replacement::Temperature => {
            let tier = TemperatureTier::new(places, setup);
            run(references, places, memory, setup.seed, tier)
        }
        Replacement::Nothing => run(references, places, memory, setup.seed, NoFlash),
        _ => {
            let tier = SlotTier::new(references.pages_count(), places, design, setup);
            run(references, places, memory, setup.seed, tier)
        }
    }
}

/// References that TAC alone would have missed, reads and writes alike, with no memory above.
#[must_use]
pub fn temperature_misses(references: &References, places: &Places, setup: &FlashSetup) -> u64 {
    let mut tier = TemperatureTier::new(places, setup);
    let mut io = Traffic::new(places);
    let mut now = Tick(0);
    let missed = references.pages().iter().filter(|&&page| {
        now.0 += 1;
        tier.fetch(&Miss { page, now, requests: 1 }, &mut io).is_none()
    });
    missed.count() as u64
}

/// Of the references that memory misses, how many the best choice of `slots` pages would have
/// found on flash, if pages may bypass it.
#[must_use]
pub fn ceiling(references: &References, memory: Memory, slots: u32, seed: u64) -> (u64, u64) {
    let mut missed = Vec::new();
    match memory.policy {
        None => missed.extend_from_slice(references.pages()),
        Some((rule, frames)) => {
            let mut memory = MemoryState::new(rule, frames, references.pages_count(), seed);
            let mut now = Tick(0);
            for &page in references.pages() {
                if !memory.hit(page, now) {
                    missed.push(page);
                    now.0 += 1;
                    memory.insert(page, Touch::first(now), now);
                }
            }
        }
    }
    let next = next_uses(&missed, references.pages_count());
    let misses = opt(&next, slots, Bypass::Allowed, |_| {});
    (missed.len() as u64, missed.len() as u64 - misses)
}

/// Memory at work.
enum MemoryState {
    Pool(PoolMemory),
    Policy(ReplacementPolicy, Vec<Touch>),
}

impl MemoryState {
    fn new(rule: MemoryRule, frames: u32, pages_count: u32, seed: u64) -> MemoryState {
        match rule {
            MemoryRule::Pool(policy) => {
                MemoryState::Pool(PoolMemory::new(policy, frames, pages_count))
            }
            MemoryRule::Policy(row) => {
                let forgetting = Forgetting::Silent;
                let setup = Setup { capacity: frames, keys_count: pages_count, forgetting, seed };
                let touches = vec![Touch::default(); pages_count as usize];
                MemoryState::Policy(ReplacementPolicy::new(row.kind, setup), touches)
            }
        }
    }

    #[inline]
    fn hit(&mut self, page: u32, now: Tick) -> bool {
        match self {
            MemoryState::Pool(memory) => memory.hit(page, now),
            MemoryState::Policy(policy, touches) => {
                let is_here = policy.hit(Key(page));
                if is_here {
                    let touch = &mut touches[page as usize];
                    *touch = touch.hit(now);
                }
                is_here
            }
        }
    }

    /// `page` comes; who leaves for it, and its uses.
    #[inline]
    fn insert(&mut self, page: u32, touch: Touch, now: Tick) -> Option<(u32, Touch)> {
        match self {
            MemoryState::Pool(memory) => memory.insert(page, touch, now),
            MemoryState::Policy(policy, touches) => {
                touches[page as usize] = touch;
                let left = policy.insert(Key(page), PageId(u64::from(page)), |_| true);
                let left = left.expect("any page may leave")?.0;
                Some((left, touches[left as usize]))
            }
        }
    }
}

/// No flash: `no-ssd`.
struct NoFlash;

impl FlashTier for NoFlash {
    fn fetch(&mut self, miss: &Miss, io: &mut Traffic) -> Option<History> {
        io.read_home(miss.page);
        None
    }

    fn change(&mut self, _page: u32) {}

    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic) {
        if leaving.dirty {
            io.write_home(leaving.page);
        }
    }

    fn holds(&self, _page: u32) -> bool {
        false
    }
}

/// What is known of a page in memory.
#[derive(Clone, Copy, Default)]
struct Frame {
    touch: Touch,
    dirty: bool,
    class: AccessClass,
}

struct Replay<'a, F> {
    flash: F,
    io: Traffic<'a>,
    places: &'a Places,
    near_is_sequential: bool,
    previous: Option<PageId>,
    now: Tick,
    /// When memory missed last, in requests.
    missed_at: u64,
    outstanding: u64,
    counted_from: usize,
    /// What the next reference may be cut off from.
    cuts: std::iter::Peekable<std::slice::Iter<'a, u32>>,
    counts: TierCounts,
}

fn run<F: FlashTier>(
    references: &References,
    places: &Places,
    memory: Memory,
    seed: u64,
    flash: F,
) -> TierCounts {
    let requests = references.pages().len().saturating_sub(memory.counted_from) as u64;
    let counts = TierCounts { requests, ..TierCounts::default() };
    let mut replay = Replay {
        flash,
        io: Traffic::new(places),
        places,
        near_is_sequential: memory.near_is_sequential,
        previous: None,
        now: Tick(0),
        missed_at: 0,
        outstanding: u64::from(memory.outstanding),
        counted_from: memory.counted_from,
        cuts: references.cuts().iter().peekable(),
        counts,
    };
    match memory.policy {
        None => replay.without_memory(references),
        Some((rule, frames)) => {
            let memory = MemoryState::new(rule, frames, references.pages_count(), seed);
            replay.with_memory(references, memory);
        }
    }
    TierCounts { home: replay.io.home, flash: replay.io.flash, ..replay.counts }
}

impl<F: FlashTier> Replay<'_, F> {
    fn with_memory(&mut self, references: &References, mut memory: MemoryState) {
        let mut frames = vec![Frame::default(); references.pages_count() as usize];
        for (at, &page) in references.pages().iter().enumerate() {
            self.begin(at);
            if memory.hit(page, self.now) {
                self.counts.memory_hits += 1;
            } else {
                let fetched = self.fetch(page, at as u64);
                frames[page as usize] = fetched;
                if let Some((victim, touch)) = memory.insert(page, fetched.touch, self.now) {
                    self.leave(victim, Frame { touch, ..frames[victim as usize] });
                }
            }
            let frame = &mut frames[page as usize];
            if references.is_write(at) && !frame.dirty {
                frame.dirty = true;
                self.flash.change(page);
            }
        }
    }

    fn without_memory(&mut self, references: &References) {
        for (at, &page) in references.pages().iter().enumerate() {
            self.begin(at);
            if !references.is_write(at) {
                let frame = self.fetch(page, at as u64);
                self.leave(page, frame);
                continue;
            }
            self.now.0 += 1;
            self.counts.flash_hits += u64::from(self.flash.holds(page));
            let class = self.class(page);
            self.flash.change(page);
            self.leave(page, Frame { touch: Touch::first(self.now), dirty: true, class });
        }
    }

    /// Before reference `at`.
    fn begin(&mut self, at: usize) {
        if at == self.counted_from {
            self.counts = TierCounts { requests: self.counts.requests, ..TierCounts::default() };
            self.io.forget_counts();
        }
        if self.cuts.next_if(|&&cut| cut as usize == at).is_some() {
            self.io.cut_reads();
        }
    }

    /// Brings a page into memory.
    fn fetch(&mut self, page: u32, at: u64) -> Frame {
        self.now.0 += 1;
        let class = self.class(page);
        let requests = at + 1 - self.missed_at;
        self.missed_at = at + 1;
        // The page was asked for when the clock showed this.
        let now = Tick(self.now.0.saturating_sub(self.outstanding).max(1));
        let miss = Miss { page, now, requests };
        match self.flash.fetch(&miss, &mut self.io) {
            Some(history) => {
                self.counts.flash_hits += 1;
                Frame { touch: Touch::with_history(history), dirty: false, class }
            }
            None => Frame { touch: Touch::first(now), dirty: false, class },
        }
    }

    fn class(&mut self, page: u32) -> AccessClass {
        if !self.near_is_sequential {
            return AccessClass::Random;
        }
        let place = self.places.of(page);
        let previous = self.previous.replace(place);
        Classifier::Near.class(AccessClass::Random, previous, place)
    }

    fn leave(&mut self, page: u32, frame: Frame) {
        self.counts.dirty_leaves += u64::from(frame.dirty);
        let Frame { touch, dirty, class } = frame;
        let leaving =
            Leaving { page, dirty, class, history: touch.history(self.now), now: self.now };
        self.flash.leave(&leaving, &mut self.io);
    }
}

#[cfg(test)]
mod tests;
