//! What the cleaner goes by: how much of the flash may be dirty, the news by which it learns of
//! more, and its sweeps over home.
//!
//! A sweep writes all changed pages that flash has collected home together, in the order in which
//! they lie there (HeteroDrive: Kim et al., IWSSPS 2009) [S0 5; S4 4.4, 6].
//!
//! ```text
//!          dirty > lambda * S: list, sorted             the list ends
//! (idle) ------------------------------> (sweeping) ------------------> (idle)
//!                                          claim the next page of the list, and its neighbours
//! ```
//!
//! - Idea: the more pages are collected, the nearer each is to the next: seeks get short, and runs
//!   of neighbours long.
//! - W1: the list is of the pages that were dirty when it was made. One that was changed since, or
//!   was written home otherwise, is passed over.
//! - W2: the list has a bound, set at the opening: what it costs is known, and charged. What does
//!   not fit goes with the next sweep.
//! - Not for: a home without seeks; a cleaner by age brings each page home later, and less often.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use terrace_page::PageId;
use terrace_policy::Cleaning;
use terrace_rt::{LeafMutex, Signal};
use terrace_tier::Gauge;

use crate::PoolConfig;
use crate::shares::TierShares;

/// The list has at least one place per this number of slots.
const SLOTS_PER_PLACE: u32 = 8;
/// Runs under way while the tier is emptied of what is newer than home (choosing.N2).
const DRAIN_RUNS: u32 = 8;

/// What the cleaner shares with the tasks that wake it, and those that wait for it.
pub(crate) struct CleanerState {
    /// When, and in which order, it cleans.
    pub(crate) rule: Cleaning,
    /// The share of the slots that may be dirty: all, if it does not go by that.
    lambda: f64,
    slots: u32,
    shares: TierShares,
    /// Pages that are newer than home are wanted no more (choosing.N2).
    drains: AtomicBool,
    /// Given when the cleaner may have work.
    pub(crate) news: Signal,
    /// Given when a run of pages was cleaned.
    pub(crate) run_ended: Signal,
    /// Runs of pages being cleaned, and the most of them that the cleaner begins.
    runs: AtomicU32,
    runs_max: u32,
    /// Pages that are written home in the order in which they lie there.
    pub(crate) sweep: LeafMutex<Sweep>,
}

impl CleanerState {
    /// Of a pool with this `config`, whose tier has the given number of slots, is cleaned by this
    /// `rule`, and `drains` from the start.
    pub(crate) fn new(
        rule: Cleaning,
        config: &PoolConfig,
        slots: u32,
        shares: &TierShares,
        drains: bool,
    ) -> CleanerState {
        CleanerState {
            rule,
            lambda: if rule.is_by_share() { config.lambda } else { 1.0 },
            slots: config.flash_slots,
            shares: shares.clone(),
            drains: AtomicBool::new(drains),
            news: Signal::new(),
            run_ended: Signal::new(),
            runs: AtomicU32::new(0),
            runs_max: config.cleaner_ios,
            sweep: LeafMutex::new(Sweep::of(rule, slots, config.lambda)),
        }
    }

    /// Slots whose page is newer than home.
    pub(crate) fn dirty(&self) -> u32 {
        self.shares.gauge(Gauge::Dirty)
    }

    /// Whether more than `low` pages are dirty and not yet being cleaned.
    pub(super) fn has_more_than(&self, low: u32) -> bool {
        self.dirty().saturating_sub(self.shares.gauge(Gauge::Unavailable)) > low
    }

    /// The tier is to be emptied of what is newer than home, or is so no more.
    pub(super) fn drain(&self, drains: bool) {
        self.drains.store(drains, Ordering::Relaxed);
        if drains {
            self.news.notify_all();
        }
    }

    /// How many slots may be dirty, `below` the share that is set.
    pub(super) fn dirty_max(&self, below: f64) -> u32 {
        let is_by_share = self.rule.is_by_share();
        let drains = is_by_share && self.drains.load(Ordering::Relaxed);
        let share = if drains { 0.0 } else { self.lambda };
        (f64::from(self.slots) * (share - below).max(0.0)) as u32
    }

    /// Tells the cleaner if there are too many dirty pages on flash: during a sharp checkpoint any.
    pub(crate) fn wake(&self, is_sharp: bool) {
        if is_sharp || self.dirty() > self.dirty_max(0.0) {
            self.news.notify_all();
        }
    }

    /// Tells the cleaner if a partition wants slots cleaned ahead.
    pub(crate) fn tell_wanted(&self) {
        if self.shares.take_wanted() {
            self.news.notify_all();
        }
    }

    /// Whether the cleaner may begin another run: few are under way while the tier is emptied.
    pub(super) fn may_begin(&self) -> bool {
        let drains = self.drains.load(Ordering::Relaxed);
        let runs_max = self.runs_max.min(if drains { DRAIN_RUNS } else { u32::MAX });
        self.runs.load(Ordering::Relaxed) < runs_max
    }

    pub(super) fn run_begins(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn run_ends(&self) {
        self.runs.fetch_sub(1, Ordering::Relaxed);
        self.news.notify_all();
        self.run_ended.notify_all();
    }
}

/// The pages of a sweep that are still to be written home.
pub(crate) struct Sweep {
    /// The next is the last.
    pages: Vec<u32>,
    places: usize,
}

impl Sweep {
    /// No sweep yet, of a tier with `slots`, if that is how it is cleaned, when more than the share
    /// `lambda` of them is dirty.
    pub fn of(cleaning: Cleaning, slots: u32, lambda: f64) -> Sweep {
        match cleaning {
            Cleaning::Sweeps => Sweep::new(slots, (f64::from(slots) * lambda) as u32),
            _ => Sweep { pages: Vec::new(), places: 0 },
        }
    }

    /// No sweep, of a tier with `slots`, of which up to `dirty` are dirty when one begins.
    fn new(slots: u32, dirty: u32) -> Sweep {
        let places = dirty.max(slots / SLOTS_PER_PLACE).min(slots) as usize + 1;
        Sweep { pages: Vec::with_capacity(places), places }
    }

    pub fn is_over(&self) -> bool {
        self.pages.is_empty()
    }

    /// Pages that a list has room for yet.
    pub fn room(&self) -> usize {
        self.places - self.pages.len()
    }

    /// Adds `pages`, which are to be written home.
    pub fn add(&mut self, pages: impl Iterator<Item = PageId>) {
        let numbers = pages.map(|page| u32::try_from(page.0).expect("slots keep 32 bits"));
        self.pages.extend(numbers.take(self.room()));
    }

    /// All were told: the sweep begins.
    pub fn begin(&mut self) {
        self.pages.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// The next page.
    pub fn next(&mut self) -> Option<PageId> {
        self.pages.pop().map(|page| PageId(u64::from(page)))
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.pages.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use terrace_rt::Prng;

    #[test]
    fn a_sweep_agrees_with_a_sorted_set() {
        for seed in 0..200 {
            let mut prng = Prng::from_seed(seed);
            let slots = 1 + prng.below(200) as u32;
            let dirty = prng.below(u64::from(slots) + 1) as u32;
            let mut sweep = Sweep::new(slots, dirty);
            let bytes = sweep.bytes();
            assert!(sweep.room() > dirty as usize, "seed {seed}: room for what is dirty");
            for _ in 0..5 {
                assert!(sweep.is_over());
                let mut model = BTreeSet::new();
                for _ in 0..prng.below(300) {
                    let page = prng.below(1 << 30);
                    if sweep.room() > 0 && model.insert(page) {
                        sweep.add([PageId(page)].into_iter());
                    }
                }
                sweep.begin();
                for page in model {
                    assert!(!sweep.is_over());
                    assert_eq!(sweep.next(), Some(PageId(page)), "seed {seed}");
                }
                assert_eq!(sweep.next(), None);
            }
            assert_eq!(sweep.bytes(), bytes, "W2: the list does not grow");
        }
    }
}
