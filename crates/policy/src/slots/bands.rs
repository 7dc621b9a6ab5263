//! TAC's slots in bands of temperature in place of a heap [S4 3.3].
//!
//! - Idea: pages that are about as warm are alike, so that the pages of a scan do not push one
//!   another out for a difference that means nothing. Slots lie in 50 to 100 bands; the victim is
//!   at the end of the coldest that is not empty.
//! - State: for each slot its band, its neighbours in the band's list, and when it was used last.
//! - B1: bands are of equal depth when they are drawn: all have the same number of slots, but for
//!   pages of one temperature, which share a band.
//! - B2: bands are drawn anew after every quarter of a fill, from the temperatures of then; in each
//!   the slots then lie in the order of their last use. In between a slot changes its band when it
//!   is used, or when it is about to be a victim, at most 5 times for one victim.
//! - B3: a page is admitted if its band is not below the victim's. So within a band pages replace
//!   each other, which the paper implies where it weighs LRU against MRU.
//! - Cost: 14 bytes per slot; a victim is O(bands), and a drawing O(n log n) each n / 4 uses.
//! - Not given in the paper: how often bands are drawn, and B3.
//! - Not for: fewer than 10 bands, which do not tell warm from cold.

use crate::slots::tac::{AGINGS_PER_RESCALE, REFRESHES_MAX, Temperatures};
use crate::structures::free_stack::FreeStack;
use terrace_page::{PageId, SlotId};

/// Bands are drawn this many times while a number of pages equal to that of slots is used.
const DRAWINGS_PER_FILL: u32 = 4;
/// The most bands that may be configured.
pub const BANDS_MAX: u16 = 4096;

/// Which page leaves first within a band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandOrder {
    /// The least recently used.
    Lru,
    /// The most recently used: then the beginning of a scan stays.
    Mru,
}

/// The slots of one partition by bands, and its free slots.
///
/// Slots of invalid copies are in no band and not free, as in [`crate::SlotHeat`].
pub struct SlotBands {
    order: BandOrder,
    count: u16,
    /// Least temperatures of all bands but the coldest, ascending; none before the first drawing.
    bounds: Vec<f32>,
    /// First and last slot of each band.
    ends: Vec<(u32, u32)>,
    /// The band of a slot, or `FREE`, or `TAKEN`.
    bands: Vec<u16>,
    /// The slots before and after in its band; after a free slot, the next free one.
    before: Vec<u32>,
    after: Vec<u32>,
    /// When a slot was used last.
    used: Vec<u32>,
    clock: u32,
    uses_to_drawing: u32,
    free: FreeStack,
    ranked: u32,
    rescales: u32,
}

/// On the free list.
const FREE: u16 = u16::MAX;
/// In no band and not free.
const TAKEN: u16 = u16::MAX - 1;
/// No slot.
const END: u32 = u32::MAX;

impl SlotBands {
    /// A partition of `slots_count` free slots, taken in the order of their numbers, for `bands`
    /// bands.
    ///
    /// # Panics
    ///
    /// If there are no slots, or 2^31 or more; unless there are 1 to [`BANDS_MAX`] bands.
    #[must_use]
    pub fn new(slots_count: u32, bands: u16, order: BandOrder) -> SlotBands {
        assert!(slots_count > 0);
        assert!(slots_count < 1 << 31);
        assert!((1..=BANDS_MAX).contains(&bands));
        let slots = slots_count as usize;
        SlotBands {
            order,
            count: bands,
            bounds: Vec::new(),
            ends: vec![(END, END); usize::from(bands)],
            bands: vec![FREE; slots],
            before: vec![END; slots],
            after: FreeStack::links(slots_count).collect(),
            used: vec![0; slots],
            clock: 0,
            uses_to_drawing: slots_count,
            free: FreeStack::full(slots_count),
            ranked: 0,
            rescales: 0,
        }
    }

    /// Takes the top of the free stack; the slot is then in no band.
    pub fn take_free(&mut self) -> Option<SlotId> {
        let slot = self.free.pop(|slot| self.after[slot as usize])?;
        self.bands[slot as usize] = TAKEN;
        Some(SlotId(slot))
    }

    /// A slot that was taken or removed now holds a valid copy of `page`.
    ///
    /// # Panics
    ///
    /// If the slot is free, or in a band.
    pub fn insert(&mut self, slot: SlotId, page: PageId, temperatures: &Temperatures) {
        assert_eq!(self.bands[slot.0 as usize], TAKEN, "{slot}");
        self.follow(temperatures);
        let band = self.band_of(temperatures.of(page));
        self.use_of(slot.0);
        self.link(slot.0, band);
    }

    /// The copy of `page` in `slot` was used; a slot in no band stays so.
    pub fn hit(&mut self, slot: SlotId, page: PageId, temperatures: &Temperatures) {
        if !self.is_ranked(slot) {
            return;
        }
        self.follow(temperatures);
        let band = self.band_of(temperatures.of(page));
        self.unlink(slot.0);
        self.use_of(slot.0);
        self.link(slot.0, band);
    }

    /// A slot leaves its band: its copy is invalid, or it has I/O in flight.
    ///
    /// # Panics
    ///
    /// If it is in none.
    pub fn remove(&mut self, slot: SlotId) {
        assert!(self.is_ranked(slot), "{slot}");
        self.unlink(slot.0);
    }

    /// The content of `slot` is gone: it goes to the top of the free stack.
    ///
    /// # Panics
    ///
    /// If it is free already.
    pub fn free(&mut self, slot: SlotId) {
        assert!(!self.is_free(slot), "{slot} is free already");
        if self.is_ranked(slot) {
            self.unlink(slot.0);
        }
        self.bands[slot.0 as usize] = FREE;
        self.after[slot.0 as usize] = self.free.push(slot.0);
    }

    /// Names the slot that leaves first among those that are `evictable`.
    pub fn victim(
        &mut self,
        temperatures: &Temperatures,
        page_of: impl Fn(SlotId) -> PageId,
        evictable: impl Fn(SlotId) -> bool,
    ) -> Option<SlotId> {
        self.follow(temperatures);
        if self.uses_to_drawing == 0 {
            self.draw(temperatures, &page_of);
        }
        for refreshes in 0..=REFRESHES_MAX {
            let slot = self.coldest(&evictable)?;
            let fresh = self.band_of(temperatures.of(page_of(SlotId(slot))));
            if fresh == self.bands[slot as usize] || refreshes == REFRESHES_MAX {
                return Some(SlotId(slot));
            }
            self.unlink(slot);
            self.link(slot, fresh);
        }
        unreachable!("the last round returns")
    }

    /// Whether `page` may take `victim`, a slot in a band (B3).
    #[must_use]
    pub fn admits(&self, page: PageId, victim: SlotId, temperatures: &Temperatures) -> bool {
        debug_assert!(self.is_ranked(victim), "{victim}");
        self.band_of(temperatures.of(page)) >= self.bands[victim.0 as usize]
    }

    /// Whether `slot` is in a band.
    #[must_use]
    pub fn is_ranked(&self, slot: SlotId) -> bool {
        self.bands[slot.0 as usize] < TAKEN
    }

    /// Whether `slot` is on the free stack.
    #[must_use]
    pub fn is_free(&self, slot: SlotId) -> bool {
        self.bands[slot.0 as usize] == FREE
    }

    /// How many slots are free.
    #[must_use]
    pub fn free_count(&self) -> u32 {
        self.free.count()
    }

    /// Bytes allocated for all slots together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let words = self.before.capacity() + self.after.capacity() + self.used.capacity();
        words * size_of::<u32>()
            + self.bands.capacity() * size_of::<u16>()
            + self.ends.capacity() * size_of::<(u32, u32)>()
            + self.bounds.capacity() * size_of::<f32>()
    }

    /// Asserts that lists, bands and counts agree, and that bounds ascend.
    pub fn check(&self) {
        assert!(self.bounds.is_sorted());
        let mut ranked = 0;
        for (band, &(first, last)) in self.ends.iter().enumerate() {
            let (mut slot, mut before) = (first, END);
            while slot != END {
                assert_eq!(usize::from(self.bands[slot as usize]), band, "slot {slot}");
                assert_eq!(self.before[slot as usize], before, "slot {slot}");
                (before, slot) = (slot, self.after[slot as usize]);
                ranked += 1;
            }
            assert_eq!(before, last, "band {band}");
        }
        assert_eq!(ranked, self.ranked);
        self.free.check(|slot| self.after[slot as usize], |slot| self.is_free(SlotId(slot)));
    }

    fn band_of(&self, temperature: f32) -> u16 {
        self.bounds.partition_point(|&bound| bound <= temperature) as u16
    }

    fn use_of(&mut self, slot: u32) {
        self.clock += 1;
        self.used[slot as usize] = self.clock;
        self.uses_to_drawing = self.uses_to_drawing.saturating_sub(1);
    }

    fn coldest(&self, evictable: &impl Fn(SlotId) -> bool) -> Option<u32> {
        for &(first, last) in &self.ends {
            let (mut slot, next) = match self.order {
                BandOrder::Lru => (first, &self.after),
                BandOrder::Mru => (last, &self.before),
            };
            while slot != END {
                if evictable(SlotId(slot)) {
                    return Some(slot);
                }
                slot = next[slot as usize];
            }
        }
        None
    }

    /// Draws bands of equal depth, and puts every slot where it belongs.
    fn draw(&mut self, temperatures: &Temperatures, page_of: &impl Fn(SlotId) -> PageId) {
        let mut slots: Vec<u32> =
            (0..self.bands.len() as u32).filter(|&slot| self.is_ranked(SlotId(slot))).collect();
        let warmth = |slot: u32| temperatures.of(page_of(SlotId(slot)));
        let mut sorted: Vec<f32> = slots.iter().map(|&slot| warmth(slot)).collect();
        sorted.sort_unstable_by(f32::total_cmp);
        let count = usize::from(self.count);
        self.bounds = (1..count)
            .filter_map(|band| sorted.get(band * sorted.len() / count))
            .copied()
            .collect();
        slots.sort_unstable_by_key(|&slot| self.used[slot as usize]);
        self.ends.fill((END, END));
        self.ranked = 0;
        for (at, &slot) in slots.iter().enumerate() {
            self.used[slot as usize] = at as u32;
            let band = self.band_of(warmth(slot));
            self.link(slot, band);
        }
        self.clock = slots.len() as u32;
        self.uses_to_drawing = (self.bands.len() as u32 / DRAWINGS_PER_FILL).max(1);
    }

    /// Scales the bounds as the temperatures were scaled since.
    fn follow(&mut self, temperatures: &Temperatures) {
        let rescale = (AGINGS_PER_RESCALE as f32).exp2();
        while self.rescales < temperatures.rescales() {
            self.bounds.iter_mut().for_each(|bound| *bound /= rescale);
            self.rescales += 1;
        }
    }

    /// To the end of a band.
    fn link(&mut self, slot: u32, band: u16) {
        let at = slot as usize;
        let (first, last) = &mut self.ends[usize::from(band)];
        (self.before[at], self.after[at], self.bands[at]) = (*last, END, band);
        match *last {
            END => *first = slot,
            last => self.after[last as usize] = slot,
        }
        *last = slot;
        self.ranked += 1;
    }

    fn unlink(&mut self, slot: u32) {
        let at = slot as usize;
        let (before, after) = (self.before[at], self.after[at]);
        let (first, last) = &mut self.ends[usize::from(self.bands[at])];
        match before {
            END => *first = after,
            before => self.after[before as usize] = after,
        }
        match after {
            END => *last = before,
            after => self.before[after as usize] = before,
        }
        self.bands[at] = TAKEN;
        self.ranked -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::tac::SavedCosts;
    use std::collections::BTreeMap;

    const COSTS: SavedCosts = SavedCosts { random_ms: 7.5, sequential_ms: 0.25 };
    const SLOTS: u32 = 24;

    /// Bands as lists, looked through.
    struct Model {
        order: BandOrder,
        bounds: Vec<f32>,
        bands: Vec<Vec<u32>>,
        /// Page and last use of a slot in a band.
        slots: BTreeMap<u32, (u64, u64)>,
        clock: u64,
        uses: u32,
        due: u32,
        rescales: u32,
    }

    impl Model {
        /// All temperatures were scaled down, and so are the bounds.
        fn follow(&mut self, temperatures: &Temperatures) {
            let factor = 2.0_f32.powi(-32 * (temperatures.rescales() - self.rescales) as i32);
            self.bounds.iter_mut().for_each(|bound| *bound *= factor);
            self.rescales = temperatures.rescales();
        }

        fn band(&self, heat: f32) -> usize {
            self.bounds.iter().filter(|&&bound| bound <= heat).count()
        }

        fn put(&mut self, slot: u32, page: u64, temperatures: &Temperatures) {
            self.take(slot);
            self.clock += 1;
            self.uses += 1;
            self.slots.insert(slot, (page, self.clock));
            let band = self.band(temperatures.of(PageId(page)));
            self.bands[band].push(slot);
        }

        fn take(&mut self, slot: u32) {
            self.slots.remove(&slot);
            self.bands.iter_mut().for_each(|band| band.retain(|&other| other != slot));
        }

        fn victim(&mut self, temperatures: &Temperatures, locked: u32) -> Option<u32> {
            if self.uses >= self.due {
                self.draw(temperatures);
            }
            let mut refreshes = 0;
            loop {
                let open = |band: &Vec<u32>| {
                    let mut open = band.iter().copied().filter(|&slot| slot != locked);
                    if self.order == BandOrder::Lru { open.next() } else { open.next_back() }
                };
                let slot = self.bands.iter().find_map(open)?;
                let heat = temperatures.of(PageId(self.slots[&slot].0));
                let band = self.band(heat);
                if self.bands[band].contains(&slot) || refreshes == 5 {
                    return Some(slot);
                }
                self.bands.iter_mut().for_each(|band| band.retain(|&other| other != slot));
                self.bands[band].push(slot);
                refreshes += 1;
            }
        }

        fn draw(&mut self, temperatures: &Temperatures) {
            let heat = |page: u64| temperatures.of(PageId(page));
            let mut heats: Vec<f32> = self.slots.values().map(|row| heat(row.0)).collect();
            heats.sort_by(f32::total_cmp);
            let count = self.bands.len();
            self.bounds = (1..count)
                .filter(|_| !heats.is_empty())
                .map(|band| heats[band * heats.len() / count])
                .collect();
            let mut rows: Vec<(u64, u32, u64)> =
                self.slots.iter().map(|(&slot, &(page, used))| (used, slot, page)).collect();
            rows.sort_unstable();
            self.bands.iter_mut().for_each(Vec::clear);
            for (_, slot, page) in rows {
                let band = self.band(heat(page));
                self.bands[band].push(slot);
            }
            (self.uses, self.due) = (0, SLOTS / 4);
        }
    }

    #[test]
    fn bands_agree_with_their_model() {
        for seed in 0..200 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let count = prng.u16(1..12);
            let order = if prng.bool() { BandOrder::Lru } else { BandOrder::Mru };
            // Agings are frequent, so that temperatures are rescaled on the way.
            let mut temperatures = Temperatures::new(COSTS, 15);
            let mut bands = SlotBands::new(SLOTS, count, order);
            let mut model = Model {
                order,
                bounds: Vec::new(),
                bands: vec![Vec::new(); usize::from(count)],
                slots: BTreeMap::new(),
                clock: 0,
                uses: 0,
                due: SLOTS,
                rescales: 0,
            };
            let mut pages = [0; SLOTS as usize];
            for step in 0..1_500 {
                temperatures.on_miss(PageId(prng.u64(..900)), 1);
                model.follow(&temperatures);
                let (slot, page) = (prng.u32(..SLOTS), prng.u64(..900));
                let is_ranked = bands.is_ranked(SlotId(slot));
                match (prng.u8(..6), is_ranked) {
                    (0 | 1, _) => {
                        if let Some(slot) = bands.take_free() {
                            pages[slot.0 as usize] = page;
                            bands.insert(slot, PageId(page), &temperatures);
                            model.put(slot.0, page, &temperatures);
                        }
                    }
                    (2 | 3, true) => {
                        let page = pages[slot as usize];
                        bands.hit(SlotId(slot), PageId(page), &temperatures);
                        model.put(slot, page, &temperatures);
                    }
                    (4, true) => {
                        bands.free(SlotId(slot));
                        model.take(slot);
                    }
                    _ => {
                        let page_of = |slot: SlotId| PageId(pages[slot.0 as usize]);
                        let open = |other: SlotId| other.0 != slot;
                        let got = bands.victim(&temperatures, page_of, open);
                        let expected = model.victim(&temperatures, slot);
                        assert_eq!(got.map(|slot| slot.0), expected, "seed {seed} step {step}");
                        if let Some(victim) = got {
                            let band = |page| model.band(temperatures.of(PageId(page)));
                            let holds = model.bands.iter().position(|b| b.contains(&victim.0));
                            let admits = bands.admits(PageId(page), victim, &temperatures);
                            assert_eq!(Some(admits), holds.map(|held| band(page) >= held));
                            pages[victim.0 as usize] = page;
                            bands.remove(victim);
                            bands.insert(victim, PageId(page), &temperatures);
                            model.put(victim.0, page, &temperatures);
                        }
                    }
                }
                bands.check();
                assert_eq!(bands.ranked as usize, model.slots.len());
            }
        }
    }

    #[test]
    fn one_band_is_least_recently_used() {
        let mut temperatures = Temperatures::new(COSTS, 1_000);
        let mut bands = SlotBands::new(3, 1, BandOrder::Lru);
        for page in 0..3 {
            let slot = bands.take_free().expect("three are free");
            bands.insert(slot, PageId(page * 100), &temperatures);
        }
        (0..60).for_each(|_| temperatures.on_miss(PageId(0), 1));
        bands.hit(SlotId(1), PageId(100), &temperatures);
        let page_of = |slot: SlotId| PageId(u64::from(slot.0) * 100);
        let victim = bands.victim(&temperatures, page_of, |_| true);
        assert_eq!(victim, Some(SlotId(0)), "the warmest, and the longest unused");
        assert!(bands.admits(PageId(700), SlotId(0), &temperatures), "a cold page may come");
    }

    #[test]
    fn a_cold_page_does_not_replace_a_warm_one() {
        let mut temperatures = Temperatures::new(COSTS, 1_000);
        let mut bands = SlotBands::new(4, 2, BandOrder::Lru);
        let page_of = |slot: SlotId| PageId(u64::from(slot.0) * 100);
        (0..4).for_each(|_| {
            let slot = bands.take_free().expect("four are free");
            bands.insert(slot, page_of(slot), &temperatures);
        });
        // The first two pages become warm, one as the other.
        (0..40).for_each(|at| temperatures.on_miss(PageId(at % 2 * 100), 1));
        let victim = bands.victim(&temperatures, page_of, |_| true).expect("all are filled");
        assert_eq!(victim, SlotId(2), "the one of the cold that was used longest ago");
        bands.free(SlotId(2));
        bands.free(SlotId(3));
        let victim = bands.victim(&temperatures, page_of, |_| true).expect("two are left");
        assert!(!bands.admits(PageId(700), victim, &temperatures));
        assert!(bands.admits(PageId(110), victim, &temperatures), "of a warm extent");
    }
}
