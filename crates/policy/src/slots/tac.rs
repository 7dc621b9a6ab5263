//! TAC: temperature-aware caching (VLDB 2010) [S4; S0 2.5].
//!
//! - Idea: an extent of 32 pages is as warm as the milliseconds that the flash would have saved on
//!   its misses. A page is admitted if its extent is warmer than that of the coldest cached page.
//! - State: a temperature per extent; for each slot, the temperature of its page when last looked
//!   at, in a heap with the coldest on top; a window of the last 20 misses, to tell sequential
//!   from random.
//! - T1: labels exist only when the window closes; its temperatures are added then.
//! - T2: aging halves all temperatures. It is done the other way round: what is added later is
//!   doubled for each aging, which gives the same order and touches nothing.
//! - T3: the key of a slot lags behind its extent: before the top is a victim it is refreshed and
//!   put back, at most 5 times.
//! - Cost: 12 bytes per slot, 4 per extent; a victim is O(log n).
//! - Not for: pages of one extent that differ much in use: they share one temperature.

use crate::structures::free_stack::FreeStack;
use crate::structures::heaps::{Heaps, Side};
use terrace_page::{PageId, SlotId};

/// Contiguous pages that share a temperature [S4 3.1].
pub const EXTENT_PAGES: u64 = 32;
/// Misses in a window of the classifier [S4 3.1].
pub const WINDOW_REQUESTS: usize = 20;
/// An extent with at least this many misses in a window was read sequentially: more than 2.
pub const SEQUENTIAL_REQUESTS_MIN: usize = 3;
/// How often a victim's key is refreshed before the top is taken as it is [S4 3.2].
pub const REFRESHES_MAX: usize = 5;

/// The flash copy must be this much warmer: the 1% rule [S4 3.2].
const ONE_PERCENT: f32 = 1.01;
/// After this number of agings all numbers are scaled down, far from the end of the range of `f32`.
pub(crate) const AGINGS_PER_RESCALE: u32 = 32;

/// What a flash copy saves for each miss: the time at home less the time on flash, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SavedCosts {
    /// For a random read.
    pub random_ms: f32,
    /// For a sequential read; may be negative, and then cools.
    pub sequential_ms: f32,
}

/// How much warmer than the victim a page must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TacRule {
    /// At least 1% warmer [S4 3.2].
    OnePercent,
    /// Warmer at all [S0 2.5].
    HotterThanColdest,
}

/// The temperatures of all extents, and the window that tells sequential from random.
pub struct Temperatures {
    costs: SavedCosts,
    /// In units of `1 / scale` milliseconds, never negative.
    extents: Vec<f32>,
    /// Two to the number of agings since the last rescale.
    scale: f32,
    agings: u32,
    rescales: u32,
    window: Vec<u64>,
    aging_requests: u64,
    requests: u64,
}

impl Temperatures {
    /// Cold extents. All temperatures are halved after every `aging_requests` page requests; the
    /// papers do not say how many: the number of slots is a fair choice [sources.R4].
    ///
    /// # Panics
    ///
    /// If `aging_requests` is zero.
    #[must_use]
    pub fn new(costs: SavedCosts, aging_requests: u64) -> Temperatures {
        assert!(aging_requests > 0);
        Temperatures {
            costs,
            extents: Vec::new(),
            scale: 1.0,
            agings: 0,
            rescales: 0,
            window: Vec::with_capacity(WINDOW_REQUESTS),
            aging_requests,
            requests: 0,
        }
    }

    /// A miss in memory on `page`, whichever device served it. `requests` counts the page requests
    /// since the last miss, hits and this miss included: they age the temperatures.
    pub fn on_miss(&mut self, page: PageId, requests: u64) {
        self.age(requests);
        self.window.push(page.0 / EXTENT_PAGES);
        if self.window.len() == WINDOW_REQUESTS {
            self.close_window();
        }
    }

    /// How warm the extent of `page` is, in a unit that changes; compare it with nothing older.
    #[must_use]
    pub fn of(&self, page: PageId) -> f32 {
        self.extents.get((page.0 / EXTENT_PAGES) as usize).copied().unwrap_or(0.0)
    }

    /// How warm the extent of `page` is, in milliseconds saved.
    #[cfg(test)]
    fn of_ms(&self, page: PageId) -> f32 {
        self.of(page) / self.scale
    }

    /// Whether `page` may take the slot of `victim`.
    #[must_use]
    pub fn admits(&self, rule: TacRule, page: PageId, victim: PageId) -> bool {
        match rule {
            TacRule::OnePercent => self.of(page) >= ONE_PERCENT * self.of(victim),
            TacRule::HotterThanColdest => self.of(page) > self.of(victim),
        }
    }

    /// How often all numbers were scaled down, each time by two to [`AGINGS_PER_RESCALE`].
    pub(crate) fn rescales(&self) -> u32 {
        self.rescales
    }

    /// Bytes for the extents of this number of pages.
    #[must_use]
    pub fn bytes_for(pages: u64) -> usize {
        let extents = pages.div_ceil(EXTENT_PAGES) as usize;
        extents * size_of::<f32>() + WINDOW_REQUESTS * size_of::<u64>()
    }

    /// Bytes allocated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.extents.capacity() * size_of::<f32>() + self.window.capacity() * size_of::<u64>()
    }

    fn close_window(&mut self) {
        for at in 0..self.window.len() {
            let extent = self.window[at];
            let in_window = self.window.iter().filter(|&&other| other == extent).count();
            let saved_ms = if in_window >= SEQUENTIAL_REQUESTS_MIN {
                self.costs.sequential_ms
            } else {
                self.costs.random_ms
            };
            let index = extent as usize;
            if index >= self.extents.len() {
                self.extents.resize(index + 1, 0.0);
            }
            self.extents[index] = (self.extents[index] + saved_ms * self.scale).max(0.0);
        }
        self.window.clear();
    }

    fn age(&mut self, requests: u64) {
        self.requests += requests;
        while self.requests >= self.aging_requests {
            self.requests -= self.aging_requests;
            self.agings += 1;
            self.scale *= 2.0;
            if self.agings == AGINGS_PER_RESCALE {
                self.rescale();
            }
        }
    }

    fn rescale(&mut self) {
        for extent in &mut self.extents {
            *extent /= self.scale;
        }
        self.scale = 1.0;
        self.agings = 0;
        self.rescales += 1;
    }
}

/// The slots of one partition, coldest first, and its free slots.
///
/// Slots of invalid copies are in no heap and not free: the caller removes them, and inserts them
/// again when they are rewritten [sources.R5].
pub struct SlotHeat {
    heaps: Heaps,
    /// Bits of a temperature, which as an integer sorts like it; or, with `FREE`, the next free
    /// slot.
    keys: Vec<u32>,
    free: FreeStack,
    rescales: u32,
}

/// The sign bit, which no temperature has.
const FREE: u32 = 1 << 31;

impl SlotHeat {
    /// A partition of `slots_count` free slots, numbered from zero, taken in that order.
    ///
    /// # Panics
    ///
    /// If there are no slots, or 2^31 - 1 or more.
    #[must_use]
    pub fn new(slots_count: u32) -> SlotHeat {
        SlotHeat {
            heaps: Heaps::new(slots_count),
            keys: FreeStack::links(slots_count).map(|next| FREE | next).collect(),
            free: FreeStack::full(slots_count),
            rescales: 0,
        }
    }

    /// Takes the top of the free stack; the slot is then in no heap.
    pub fn take_free(&mut self) -> Option<SlotId> {
        let slot = self.free.pop(|slot| self.keys[slot as usize] & !FREE)?;
        self.keys[slot as usize] = 0;
        Some(SlotId(slot))
    }

    /// Takes the slots that are `filled` off the free stack of a new table, to be inserted one by
    /// one.
    ///
    /// # Panics
    ///
    /// If a slot was taken before.
    pub fn occupy(&mut self, filled: impl Fn(SlotId) -> bool) {
        let count = self.keys.len() as u32;
        assert_eq!(self.free.count(), count, "a new table");
        self.free = FreeStack::EMPTY;
        for slot in (0..count).rev() {
            if filled(SlotId(slot)) {
                self.keys[slot as usize] = 0;
            } else {
                self.keys[slot as usize] = FREE | self.free.push(slot);
            }
        }
    }

    /// A slot that was taken or removed now holds a valid copy of `page`.
    pub fn insert(&mut self, slot: SlotId, page: PageId, temperatures: &Temperatures) {
        assert!(!self.is_free(slot), "{slot}");
        self.follow(temperatures);
        self.keys[slot.0 as usize] = temperatures.of(page).to_bits();
        let keys = &self.keys;
        self.heaps.insert(Side::Left, slot.0, |slot| key(keys, slot));
    }

    /// A slot leaves the heap: its copy is invalid, or it has I/O in flight.
    pub fn remove(&mut self, slot: SlotId) {
        let keys = &self.keys;
        self.heaps.remove(slot.0, |slot| key(keys, slot));
    }

    /// Names the coldest slot among those that are `evictable`, after refreshing what is on top.
    pub fn victim(
        &mut self,
        temperatures: &Temperatures,
        page_of: impl Fn(SlotId) -> PageId,
        evictable: impl Fn(SlotId) -> bool,
    ) -> Option<SlotId> {
        self.follow(temperatures);
        for refreshes in 0..=REFRESHES_MAX {
            let keys = &self.keys;
            let slot = self.heaps.least(
                Side::Left,
                |slot| evictable(SlotId(slot)),
                |slot| key(keys, slot),
            )?;
            let fresh = temperatures.of(page_of(SlotId(slot))).to_bits();
            if fresh == self.keys[slot as usize] || refreshes == REFRESHES_MAX {
                return Some(SlotId(slot));
            }
            self.keys[slot as usize] = fresh;
            let keys = &self.keys;
            self.heaps.changed(slot, |slot| key(keys, slot));
        }
        unreachable!("the last round returns")
    }

    /// The content of `slot` is gone: it goes to the top of the free stack.
    pub fn free(&mut self, slot: SlotId) {
        assert!(!self.is_free(slot), "{slot} is free already");
        if self.is_ranked(slot) {
            self.remove(slot);
        }
        self.keys[slot.0 as usize] = FREE | self.free.push(slot.0);
    }

    /// Whether `slot` is in the heap.
    #[must_use]
    pub fn is_ranked(&self, slot: SlotId) -> bool {
        self.heaps.side(slot.0).is_some()
    }

    /// Whether `slot` is on the free stack.
    #[must_use]
    pub fn is_free(&self, slot: SlotId) -> bool {
        self.keys[slot.0 as usize] & FREE != 0
    }

    /// How many slots are free.
    #[must_use]
    pub fn free_count(&self) -> u32 {
        self.free.count()
    }

    /// Bytes allocated for all slots together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.heaps.bytes() + self.keys.capacity() * size_of::<u32>()
    }

    /// Asserts the order of the heap and the length of the free stack.
    pub fn check(&self) {
        self.heaps.check(Side::Left, |slot| key(&self.keys, slot));
        let link_of = |slot: u32| self.keys[slot as usize] & !FREE;
        self.free.check(link_of, |slot| self.is_free(SlotId(slot)));
    }

    /// Scales the keys as the temperatures were scaled since. Keys that fall together need a new
    /// order among themselves.
    fn follow(&mut self, temperatures: &Temperatures) {
        if self.rescales == temperatures.rescales {
            return;
        }
        let rescale = (AGINGS_PER_RESCALE as f32).exp2();
        for _ in self.rescales..temperatures.rescales {
            for key in self.keys.iter_mut().filter(|key| **key & FREE == 0) {
                *key = (f32::from_bits(*key) / rescale).to_bits();
            }
        }
        self.rescales = temperatures.rescales;
        let keys = &self.keys;
        self.heaps.rebuild(Side::Left, |slot| key(keys, slot));
    }
}

fn key(keys: &[u32], slot: u32) -> (u32, u32) {
    (keys[slot as usize], slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const COSTS: SavedCosts = SavedCosts { random_ms: 7.5, sequential_ms: 0.25 };

    /// Temperatures halved one by one.
    #[derive(Default)]
    struct Model {
        extents: BTreeMap<u64, f64>,
        window: Vec<u64>,
        requests: u64,
    }

    impl Model {
        fn on_miss(&mut self, page: u64, requests: u64, aging: u64) {
            self.requests += requests;
            while self.requests >= aging {
                self.requests -= aging;
                self.extents.values_mut().for_each(|heat| *heat /= 2.0);
            }
            self.window.push(page / 32);
            if self.window.len() == 20 {
                for extent in &self.window {
                    let many = self.window.iter().filter(|other| *other == extent).count() > 2;
                    *self.extents.entry(*extent).or_default() += if many { 0.25 } else { 7.5 };
                }
                self.window.clear();
            }
        }
    }

    #[test]
    fn temperatures_agree_with_their_model() {
        for seed in 0..50 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let mut temperatures = Temperatures::new(COSTS, 50);
            let mut model = Model::default();
            for step in 0..2_000 {
                let page = if prng.u8(..3) == 0 { prng.u64(..64) } else { prng.u64(..2_000) };
                let requests = prng.u64(1..9);
                temperatures.on_miss(PageId(page), requests);
                model.on_miss(page, requests, 50);
                let got = f64::from(temperatures.of_ms(PageId(page)));
                let expected = model.extents.get(&(page / 32)).copied().unwrap_or(0.0);
                let near = (got - expected).abs() <= 1e-5 * (1.0 + expected);
                assert!(near, "seed {seed} step {step}: {got} for {expected}");
            }
        }
    }

    #[test]
    fn slots_agree_with_a_search_for_the_coldest() {
        for seed in 0..100 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let mut temperatures = Temperatures::new(COSTS, 70);
            let mut heat = SlotHeat::new(12);
            let mut pages: BTreeMap<u32, u64> = BTreeMap::new();
            for step in 0..600 {
                temperatures.on_miss(PageId(prng.u64(..600)), 1);
                let page = prng.u64(..600);
                let slot = prng.u32(..12);
                match (prng.u8(..4), pages.contains_key(&slot)) {
                    (0 | 1, _) => {
                        if let Some(slot) = heat.take_free() {
                            heat.insert(slot, PageId(page), &temperatures);
                            pages.insert(slot.0, page);
                        }
                    }
                    (2, true) => {
                        heat.remove(SlotId(slot));
                        heat.insert(SlotId(slot), PageId(pages[&slot]), &temperatures);
                    }
                    (3, true) if prng.bool() => {
                        heat.free(SlotId(slot));
                        pages.remove(&slot);
                    }
                    _ => {}
                }
                heat.check();
                // Extents only warm between agings of the same scale, so a refreshed top is coldest
                // unless more than five keys lag; refresh all by asking often.
                for _ in 0..4 {
                    heat.victim(&temperatures, |slot| PageId(pages[&slot.0]), |_| true);
                }
                let victim = heat.victim(&temperatures, |slot| PageId(pages[&slot.0]), |_| true);
                let of = |page: u64| temperatures.of(PageId(page));
                let coldest = pages.values().map(|&page| of(page)).min_by(f32::total_cmp);
                let got = victim.map(|slot| of(pages[&slot.0]));
                assert_eq!(got, coldest, "seed {seed} step {step}");
            }
        }
    }

    #[test]
    fn three_misses_in_a_window_are_sequential() {
        let mut temperatures = Temperatures::new(COSTS, 1 << 40);
        for at in 0..20 {
            let page = if at < 3 { at } else { 1_000 * at };
            assert_eq!(temperatures.of_ms(PageId(0)), 0.0, "T1: before the window closes");
            temperatures.on_miss(PageId(page), 1);
        }
        assert_eq!(temperatures.of_ms(PageId(0)), 0.75);
        assert_eq!(temperatures.of_ms(PageId(19_000)), 7.5);
    }

    #[test]
    fn the_rules_differ_for_equals_and_for_the_cold() {
        let mut temperatures = Temperatures::new(COSTS, 1 << 40);
        (0..20).for_each(|at| temperatures.on_miss(PageId(at * 32), 1));
        let (warm, equal, cold) = (PageId(0), PageId(32), PageId(1 << 20));
        for rule in [TacRule::OnePercent, TacRule::HotterThanColdest] {
            assert!(temperatures.admits(rule, warm, cold));
            assert!(!temperatures.admits(rule, cold, warm));
            assert!(!temperatures.admits(rule, warm, equal));
        }
        assert!(temperatures.admits(TacRule::OnePercent, cold, cold));
        assert!(!temperatures.admits(TacRule::HotterThanColdest, cold, cold));
    }

    #[test]
    fn long_runs_stay_in_range() {
        let mut temperatures = Temperatures::new(COSTS, 20);
        let mut heat = SlotHeat::new(1);
        let slot = heat.take_free().unwrap();
        heat.insert(slot, PageId(3), &temperatures);
        for _ in 0..200_000 {
            temperatures.on_miss(PageId(3), 1);
        }
        assert_eq!(heat.victim(&temperatures, |_| PageId(3), |_| true), Some(slot));
        let ms = temperatures.of_ms(PageId(3));
        assert!((5.0..=10.0).contains(&ms), "a window of 5 ms each, halved each time: {ms}");
    }

    #[test]
    fn twelve_bytes_hold_a_slot() {
        assert_eq!(SlotHeat::new(1_000).bytes(), 12_000);
    }
}
