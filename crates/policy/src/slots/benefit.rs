//! CC and CAC for flash slots: the slot whose page benefits least from being there is reused, and
//! only for a page that would benefit more (Liu and Salem, PVLDB 6(8), 2013) [S1e 5].
//!
//! - Idea: exact order by benefit, in a clean and a dirty heap at the two ends of one array. The
//!   keys are the counts; `benefit` says what they mean, with or without anticipation.
//! - State: five bytes of counts for each slot, and those of pages that are not on flash
//!   (`ghosts`).
//! - B1: a slot's counts change only here, and its heap is put in order at once; all heaps are when
//!   the expansion factors change, or counts are halved.
//! - B2: counts are halved after a number of physical requests equal to that of slots [sources.R7].
//! - B3: a page's counts go along when it gets a slot, and back when it loses it.
//! - B4: a dirty slot cannot be reused at once, but it counts: when the least benefit of all is
//!   that of a dirty slot, some of the least are wanted at home, ahead of the next victims.
//! - B5: where a zone has begun, only its slots are given away; one that becomes free outside of it
//!   is kept until the next begins.
//! - Cost: 13 bytes per slot, and 7 for each page that is remembered beside: one for each frame,
//!   and half as many as there are slots. A request is O(log n), and a few words more for B2.
//! - Not for: tiers where 17 bytes per page are too much.
//!
//! ```text
//!          take_free                 fill_clean                 replace
//!   Free -----------------> Busy ------------------> Clean -----------------> Busy
//!    ^                      |  ^      take             |  ^
//!    |         fill_dirty   |  +-----------------------+  |  fill_clean, after take
//!    |                      v         take             |  |
//!    |                    Dirty -----------------------+--+
//!    +-- free: from Busy, Clean, Dirty
//! ```

use crate::History;
use crate::placement::Costs;
use crate::slots::clean_key::CleanKey;
use crate::slots::counts::{BenefitSide, Counts, Expansion};
use crate::slots::ghosts::Ghosts;
use crate::slots::lru_2::HeapState;
use crate::structures::bits::SlotBits;
use crate::structures::free_stack::{END, FreeStack};
use crate::structures::heaps::{Heaps, Side};
use std::cmp::Ordering;
use terrace_page::{PageId, SlotId};

/// One page in neither tier is remembered for this number of slots.
const SLOTS_PER_GHOST: u32 = 2;
/// One in this number of slots is cleaned ahead when a dirty one is next (B4).
const SLOTS_PER_CLEANING: u32 = 128;
/// Slots that are wanted clean at a time, at most.
const CLEANINGS_MAX: u32 = 64;

/// Why no slot gives way to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBenefit {
    /// No page on flash benefits less.
    Least,
    /// One does, but it must be written home first, or is in use.
    NotYet,
}

/// The slots of one partition by benefit, and the counts of its pages.
pub struct SlotBenefit {
    heaps: Heaps,
    keys: Keys,
    ghosts: Ghosts,
    free: FreeStack,
    /// Physical requests since counts were halved.
    requests: u32,
    estimates: u32,
    cleanings_wanted: u32,
    /// Slots that may be given away; none where all may.
    zone: Option<SlotBits>,
    /// Free slots outside of it.
    later: Vec<u32>,
}

/// What the orders compare.
struct Keys {
    /// For a free slot, the next on the free stack.
    counts: Vec<Counts>,
    costs: Costs,
    factors: Box<[f64]>,
    /// Whether no group expects more than it saw: all factors are 1.
    is_plain: bool,
}

impl SlotBenefit {
    /// A partition of `slots_count` free slots, numbered from zero, taken in that order, which
    /// remembers half as many pages beside, and `frames_count` for those in memory.
    ///
    /// # Panics
    ///
    /// If there are no slots, or 2^32 - 1 or more.
    #[must_use]
    pub fn new(
        slots_count: u32,
        frames_count: u32,
        costs: &Costs,
        expansion: &Expansion,
    ) -> SlotBenefit {
        let links = FreeStack::links(slots_count).map(Counts::free).collect();
        SlotBenefit {
            heaps: Heaps::new(slots_count),
            keys: Keys::new(links, costs, expansion),
            ghosts: Ghosts::new((slots_count / SLOTS_PER_GHOST).saturating_add(frames_count)),
            free: FreeStack::full(slots_count),
            requests: 0,
            estimates: expansion.estimates(),
            cleanings_wanted: 0,
            zone: None,
            later: Vec::new(),
        }
    }

    /// Takes the top of the free stack for `page`; it becomes busy.
    pub fn take_free(&mut self, page: PageId) -> Option<SlotId> {
        let slot = self.free.pop(|slot| self.keys.next_free(slot))?;
        self.keys.counts[slot as usize] = self.ghosts.take(page);
        Some(SlotId(slot))
    }

    /// Names the clean slot to reuse for `page`, which may have slot `own` already, of those that
    /// are `evictable`: the one with the least benefit, if that is less than the page's. It stays
    /// clean until `replace`. Dirty slots that are `cleanable` count too (B4).
    ///
    /// # Errors
    ///
    /// Why none is.
    pub fn victim(
        &mut self,
        page: PageId,
        own: Option<SlotId>,
        evictable: impl Fn(SlotId) -> bool,
        cleanable: impl Fn(SlotId) -> bool,
    ) -> Result<SlotId, NoBenefit> {
        let keys = &self.keys;
        let key = |slot: u32| keys.key(slot);
        let evictable = |slot| self.is_in_zone(slot) && evictable(SlotId(slot));
        let cleanable = |slot| self.is_in_zone(slot) && cleanable(SlotId(slot));
        let clean = self.heaps.least(Side::Left, evictable, key);
        let dirty = self.heaps.least(Side::Right, cleanable, key);
        let is_dirty_least = match (clean, dirty) {
            (Some(clean), Some(dirty)) => keys.benefit(dirty) < keys.benefit(clean),
            (None, dirty) => dirty.is_some(),
            (Some(_), None) => false,
        };
        let benefit = keys.of(self.counts(page, own));
        let gives_way = |slot: &u32| keys.benefit(*slot) < benefit;
        if is_dirty_least {
            let slots_count = keys.counts.len() as u32;
            self.cleanings_wanted = (slots_count / SLOTS_PER_CLEANING).clamp(1, CLEANINGS_MAX);
        }
        match clean.filter(gives_way) {
            Some(slot) => Ok(SlotId(slot)),
            None if is_dirty_least && dirty.is_some_and(|slot| gives_way(&slot)) => {
                Err(NoBenefit::NotYet)
            }
            None if clean.is_none() && dirty.is_none() => Err(NoBenefit::NotYet),
            None => Err(NoBenefit::Least),
        }
    }

    /// The content of clean `slot`, which is `former`, gives way to `page`; the slot is busy.
    pub fn replace(&mut self, slot: SlotId, former: PageId, page: PageId) {
        self.take(slot);
        let at = slot.0 as usize;
        self.ghosts.put(former, self.keys.counts[at]);
        self.keys.counts[at] = self.ghosts.take(page);
    }

    /// The page of slot `from` has slot `to` in its stead: what was counted goes along.
    pub fn carry(&mut self, from: SlotId, to: SlotId) {
        assert_ne!(from, to);
        let counts = &self.keys.counts;
        let sum = counts[from.0 as usize].plus(counts[to.0 as usize]);
        self.set(from, Counts::default());
        self.set(to, sum);
    }

    /// A busy slot now holds what home holds.
    pub fn fill_clean(&mut self, slot: SlotId) {
        assert_eq!(self.state(slot), HeapState::Busy, "{slot}");
        let keys = &self.keys;
        self.heaps.insert(Side::Left, slot.0, |slot| keys.key(slot));
    }

    /// A busy slot now holds a page newer than home.
    pub fn fill_dirty(&mut self, slot: SlotId) {
        assert_eq!(self.state(slot), HeapState::Busy, "{slot}");
        let keys = &self.keys;
        self.heaps.insert(Side::Right, slot.0, |slot| keys.key(slot));
    }

    /// A filled slot becomes busy.
    pub fn take(&mut self, slot: SlotId) {
        let keys = &self.keys;
        self.heaps.remove(slot.0, |slot| keys.key(slot));
    }

    /// The content of `slot` is gone, which is that of `page`, if a page still had it.
    pub fn free(&mut self, slot: SlotId, page: Option<PageId>) {
        if self.heaps.side(slot.0).is_some() {
            self.take(slot);
        }
        assert_eq!(self.state(slot), HeapState::Busy, "{slot}");
        let at = slot.0 as usize;
        if let Some(page) = page {
            self.ghosts.put(page, self.keys.counts[at]);
        }
        if self.is_in_zone(slot.0) {
            self.link(slot.0);
        } else {
            self.keys.counts[at] = Counts::free(END);
            self.later.push(slot.0);
        }
    }

    /// `page` was read from the device that has it: from `slot`, if it has one.
    pub fn read(&mut self, page: PageId, slot: Option<SlotId>) {
        self.request(page, slot, |counts, side| counts.read(side));
    }

    /// `page` was written to the device that has it.
    pub fn wrote(&mut self, page: PageId, slot: Option<SlotId>) {
        self.request(page, slot, |counts, side| counts.wrote(side));
    }

    /// Memory was asked for `page` `logical` times since this was told last, and it was read from a
    /// device `physical` times for that.
    pub fn was_in_memory(
        &mut self,
        page: PageId,
        slot: Option<SlotId>,
        (physical, logical): (u32, u32),
        expansion: &mut Expansion,
    ) {
        let counts = self.change(page, slot, |counts, _| counts.read_logically(logical));
        expansion.was_read(counts, side_of(slot), physical, logical);
        self.follow(expansion);
    }

    /// Whether the requests counted have reached the number of slots: then the caller tells what is
    /// in memory, and calls `halve`.
    #[must_use]
    pub fn is_period_over(&self) -> bool {
        self.requests as usize >= self.keys.counts.len()
    }

    /// Forgets half of all counts (B2).
    pub fn halve(&mut self) {
        self.requests = 0;
        for counts in self.keys.counts.iter_mut().filter(|counts| counts.next_free().is_none()) {
            *counts = counts.halved();
        }
        self.ghosts.halve();
        self.rebuild();
    }

    /// Names the dirty slot that benefits least among those that are `cleanable`.
    pub fn next_dirty(&self, cleanable: impl Fn(SlotId) -> bool) -> Option<SlotId> {
        let keys = &self.keys;
        self.heaps
            .least(Side::Right, |slot| cleanable(SlotId(slot)), |slot| keys.key(slot))
            .map(SlotId)
    }

    /// Where dirty `slot` stands among those of all partitions.
    #[must_use]
    pub fn clean_key(&self, slot: SlotId) -> CleanKey {
        let (benefit, slot) = self.keys.key(slot.0);
        // As an unsigned number, in the same order.
        CleanKey([benefit as u64 ^ 1 << 63, u64::from(slot), 0, 0])
    }

    /// How many dirty slots are wanted clean (B4).
    #[must_use]
    pub fn cleanings_wanted(&self) -> u32 {
        self.cleanings_wanted
    }

    /// A wanted cleaning has begun, or there is nothing to clean.
    pub fn cleaning_begun(&mut self) {
        self.cleanings_wanted = self.cleanings_wanted.saturating_sub(1);
    }

    /// A slot of a new table was found filled by a page of this history. End with `settle`.
    pub fn found(&mut self, slot: SlotId, history: History) {
        let mut counts = Counts::default();
        // What was counted is not kept over an opening; what is known is worth a read or two.
        for _ in 0..=u8::from(history.previous.is_some()) {
            counts.read(BenefitSide::OnFlash);
        }
        self.keys.counts[slot.0 as usize] = counts;
    }

    /// All was told. `is_dirty` tells of each slot that is filled whether it is newer than home;
    /// slots that are not are free.
    pub fn settle(&mut self, is_dirty: impl Fn(SlotId) -> Option<bool>) {
        self.free = FreeStack::EMPTY;
        for slot in (0..self.keys.counts.len() as u32).rev() {
            match is_dirty(SlotId(slot)) {
                Some(true) => self.heaps.append(Side::Right, slot),
                Some(false) => self.heaps.append(Side::Left, slot),
                None => self.link(slot),
            }
        }
        self.rebuild();
    }

    /// The dirty slots, in no useful order.
    pub fn dirty_slots(&self) -> impl Iterator<Item = SlotId> + '_ {
        self.heaps.slots(Side::Right).map(SlotId)
    }

    /// From now on only the slots of a zone are given away: those that are free, and `count` of the
    /// others, whose benefit is least. Slots that become free outside of it are kept for the
    /// next. Returns the zone, ascending (B5).
    pub fn begin_zone(&mut self, count: u32) -> Vec<SlotId> {
        while let Some(slot) = self.later.pop() {
            self.link(slot);
        }
        let filled = self.heaps.slots(Side::Left).chain(self.heaps.slots(Side::Right));
        let mut slots: Vec<u32> = filled.collect();
        let count = count as usize;
        if count < slots.len() {
            let keys = &self.keys;
            let order =
                |a: &u32, b: &u32| keys.benefit(*a).total_cmp(&keys.benefit(*b)).then(a.cmp(b));
            slots.select_nth_unstable_by(count, order);
            slots.truncate(count);
        }
        slots.extend(self.free.iter(|slot| self.keys.next_free(slot)));
        slots.sort_unstable();
        let mut zone = SlotBits::new(self.keys.counts.len() as u32);
        slots.iter().for_each(|&slot| zone.set(slot, true));
        self.zone = Some(zone);
        slots.into_iter().map(SlotId).collect()
    }

    /// Whether `slot` may be given away now.
    fn is_in_zone(&self, slot: u32) -> bool {
        self.zone.as_ref().is_none_or(|zone| zone.has(slot))
    }

    /// A slot whose content is gone goes to the top of the free stack.
    fn link(&mut self, slot: u32) {
        self.keys.counts[slot as usize] = Counts::free(self.free.push(slot));
    }

    /// Where `slot` stands.
    #[must_use]
    pub fn state(&self, slot: SlotId) -> HeapState {
        match self.heaps.side(slot.0) {
            Some(Side::Left) => HeapState::Clean,
            Some(Side::Right) => HeapState::Dirty,
            None if self.keys.counts[slot.0 as usize].next_free().is_some() => HeapState::Free,
            None => HeapState::Busy,
        }
    }

    /// What is counted of `page`, which has `slot`, if it has one.
    #[must_use]
    pub fn counts(&self, page: PageId, slot: Option<SlotId>) -> Counts {
        slot.map_or_else(|| self.ghosts.of(page), |slot| self.keys.counts[slot.0 as usize])
    }

    /// Bytes allocated for all slots together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let counts = self.keys.counts.capacity() * size_of::<Counts>();
        let factors = size_of_val::<[f64]>(&self.keys.factors);
        let zone = self.zone.as_ref().map_or(0, SlotBits::bytes) + self.later.capacity() * 4;
        self.heaps.bytes() + counts + factors + zone + self.ghosts.bytes()
    }

    /// Asserts the orders of both heaps and the length of the free stack.
    pub fn check(&self) {
        self.heaps.check(Side::Left, |slot| self.keys.key(slot));
        self.heaps.check(Side::Right, |slot| self.keys.key(slot));
        self.ghosts.check();
        let is_free = |slot| self.state(SlotId(slot)) == HeapState::Free;
        self.free.check(|slot| self.keys.next_free(slot), is_free);
    }

    fn request(
        &mut self,
        page: PageId,
        slot: Option<SlotId>,
        change: impl FnOnce(&mut Counts, BenefitSide),
    ) {
        self.requests = self.requests.saturating_add(1);
        self.change(page, slot, change);
    }

    /// Changes what is counted of a page; returns it.
    fn change(
        &mut self,
        page: PageId,
        slot: Option<SlotId>,
        change: impl FnOnce(&mut Counts, BenefitSide),
    ) -> Counts {
        let mut counts = self.counts(page, slot);
        change(&mut counts, side_of(slot));
        match slot {
            Some(slot) => self.set(slot, counts),
            None => self.ghosts.change(page, |old| *old = counts),
        }
        counts
    }

    fn set(&mut self, slot: SlotId, counts: Counts) {
        assert!(counts.next_free().is_none());
        let is_ordered = self.heaps.side(slot.0).is_some();
        let before = is_ordered.then(|| self.keys.key(slot.0));
        self.keys.counts[slot.0 as usize] = counts;
        let Some(before) = before else { return };
        let keys = &self.keys;
        match keys.key(slot.0).cmp(&before) {
            Ordering::Less => self.heaps.shrunk(slot.0, |slot| keys.key(slot)),
            Ordering::Equal => {}
            Ordering::Greater => self.heaps.grown(slot.0, |slot| keys.key(slot)),
        }
    }

    /// Takes over the factors if they were estimated anew.
    fn follow(&mut self, expansion: &Expansion) {
        if self.estimates != expansion.estimates() {
            self.estimates = expansion.estimates();
            self.keys.follow(expansion);
            self.rebuild();
        }
    }

    fn rebuild(&mut self) {
        let keys = &self.keys;
        self.heaps.rebuild(Side::Left, |slot| keys.key(slot));
        self.heaps.rebuild(Side::Right, |slot| keys.key(slot));
    }
}

impl Keys {
    /// The link of a slot that is free.
    fn next_free(&self, slot: u32) -> u32 {
        self.counts[slot as usize].next_free().expect("the free stack is of free slots")
    }

    fn new(counts: Vec<Counts>, costs: &Costs, expansion: &Expansion) -> Keys {
        let factors = expansion.factors();
        Keys { counts, costs: *costs, factors: factors.into(), is_plain: is_plain(factors) }
    }

    fn follow(&mut self, expansion: &Expansion) {
        self.factors.copy_from_slice(expansion.factors());
        self.is_plain = is_plain(&self.factors);
    }

    #[inline]
    fn of(&self, counts: Counts) -> f64 {
        let alpha = if self.is_plain { 1.0 } else { self.factors[counts.group()] };
        counts.benefit(&self.costs, alpha)
    }

    fn benefit(&self, slot: u32) -> f64 {
        self.of(self.counts[slot as usize])
    }

    /// The benefit as `total_cmp` has it in order, and the slot: the lower number is less among
    /// equals, so that the order is total.
    #[inline]
    fn key(&self, slot: u32) -> (i64, u32) {
        let bits = self.benefit(slot).to_bits() as i64;
        (bits ^ ((bits >> 63) as u64 >> 1) as i64, slot)
    }
}

fn is_plain(factors: &[f64]) -> bool {
    factors.iter().all(|&factor| factor == 1.0)
}

fn side_of(slot: Option<SlotId>) -> BenefitSide {
    match slot {
        Some(_) => BenefitSide::OnFlash,
        None => BenefitSide::Elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::counts::ExpansionRule;
    use std::collections::BTreeMap;

    const SLOTS: u32 = 10;
    const PAGES: u64 = 30;
    /// Enough that no bucket of ghosts overflows.
    const FRAMES: u32 = 4_000;
    /// Exact in binary, so that an equation may be written in any way.
    const COSTS: Costs =
        Costs { home_read: 12.0, home_write: 12.5, flash_read: 0.5, flash_write: 1.0 };

    /// Which equations a model goes by.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Equation {
        /// (3): CC.
        Three,
        /// (4) to (8): CAC.
        Four,
    }

    /// Requests of a page while it is on flash, and while it is not, in eighths, and its logical
    /// reads.
    #[derive(Clone, Copy, Default)]
    struct Requests {
        reads: (u32, u32),
        writes: (u32, u32),
        logical: u32,
    }

    /// Logical reads of a group on flash and elsewhere, and physical ones.
    type GroupReads = [(f64, f64); 2];

    /// All pages with their counts, no heaps, no ghosts; alphas by group.
    struct Model {
        equation: Equation,
        requests: BTreeMap<u64, Requests>,
        /// Page, and whether it is dirty, by slot.
        filled: BTreeMap<u32, (u64, bool)>,
        free: Vec<u32>,
        zone: Option<Vec<u32>>,
        /// Free slots outside of it.
        later: Vec<u32>,
        groups: BTreeMap<(u32, u32), GroupReads>,
        alphas: BTreeMap<(u32, u32), f64>,
        unseen: u32,
    }

    fn add(count: &mut u32) {
        *count = (*count + 8).min(255);
    }

    fn log2(count: u32) -> u32 {
        if count == 0 { 0 } else { count.ilog2() + 1 }
    }

    impl Model {
        fn slot_of(&self, page: u64) -> Option<SlotId> {
            self.filled.iter().find(|row| row.1.0 == page).map(|row| SlotId(*row.0))
        }

        fn group(&self, page: u64) -> (u32, u32) {
            let Requests { writes, logical, .. } =
                self.requests.get(&page).copied().unwrap_or_default();
            (log2(logical.min(254)), log2((writes.0 + writes.1).min(255) / 8))
        }

        fn benefit(&self, page: u64) -> f64 {
            let Requests { reads, writes, .. } =
                self.requests.get(&page).copied().unwrap_or_default();
            let sum = |(a, b): (u32, u32)| f64::from(a + b) / 8.0;
            if self.equation == Equation::Three {
                return sum(reads) * (COSTS.home_read - COSTS.flash_read)
                    + sum(writes) * (COSTS.home_write - COSTS.flash_write);
            }
            let alpha = self.alphas.get(&self.group(page)).copied().unwrap_or(1.0);
            let hat = |(on_flash, elsewhere): (u32, u32)| {
                let (s, d) = (f64::from(on_flash) / 8.0, f64::from(elsewhere) / 8.0);
                (s + alpha * d, d + s / alpha)
            };
            let (reads, writes) = (hat(reads), hat(writes));
            (reads.1 * COSTS.home_read - reads.0 * COSTS.flash_read)
                + (writes.1 * COSTS.home_write - writes.0 * COSTS.flash_write)
        }

        /// Free slots and the `count` others of least benefit, ascending.
        fn zone(&self, count: usize) -> Vec<u32> {
            let mut filled: Vec<(f64, u32)> =
                self.filled.iter().map(|(&slot, row)| (self.benefit(row.0), slot)).collect();
            filled.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let least = filled.into_iter().map(|row| row.1).take(count);
            let mut zone: Vec<u32> = least.chain(self.free.iter().copied()).collect();
            zone.sort_unstable();
            zone
        }

        fn has_in_zone(&self, slot: u32) -> bool {
            self.zone.as_ref().is_none_or(|zone| zone.contains(&slot))
        }

        fn freed(&mut self, slot: u32) {
            match self.has_in_zone(slot) {
                true => self.free.push(slot),
                false => self.later.push(slot),
            }
        }

        fn least(&self, is_dirty: bool, may: impl Fn(u32) -> bool) -> Option<u32> {
            let slots = self.filled.iter().filter(|row| row.1.1 == is_dirty && may(*row.0));
            slots
                .min_by(|a, b| {
                    self.benefit(a.1.0).total_cmp(&self.benefit(b.1.0)).then(a.0.cmp(b.0))
                })
                .map(|row| *row.0)
        }

        fn victim(&self, page: u64, banned: u32) -> Result<SlotId, NoBenefit> {
            let benefit_of = |slot: u32| self.benefit(self.filled[&slot].0);
            let may = |slot| slot != banned && self.has_in_zone(slot);
            let (clean, dirty) = (self.least(false, may), self.least(true, may));
            let clean_benefit = clean.map_or(f64::INFINITY, benefit_of);
            let dirty_benefit = dirty.map_or(f64::INFINITY, benefit_of);
            match (clean, self.benefit(page)) {
                (Some(slot), benefit) if clean_benefit < benefit => Ok(SlotId(slot)),
                (_, benefit) if dirty_benefit < clean_benefit && dirty_benefit < benefit => {
                    Err(NoBenefit::NotYet)
                }
                (None, _) if dirty.is_none() => Err(NoBenefit::NotYet),
                _ => Err(NoBenefit::Least),
            }
        }

        fn was_in_memory(&mut self, page: u64, physical: u32, logical: u32) {
            self.requests.entry(page).or_default().logical += logical;
            let is_on_flash = self.slot_of(page).is_some();
            let group = self.groups.entry(self.group(page)).or_default();
            for (sums, reads) in group.iter_mut().zip([logical, physical]) {
                let sum = if is_on_flash { &mut sums.0 } else { &mut sums.1 };
                *sum += f64::from(reads);
            }
            self.unseen += logical;
            if self.unseen < 100_000 {
                return;
            }
            self.unseen = 0;
            for (&of, [logical, physical]) in &mut self.groups {
                let is_known = logical.0 >= 100.0 && logical.1 >= 100.0;
                let (on_flash, elsewhere) = (physical.0 / logical.0, physical.1 / logical.1);
                let none = on_flash == 0.0 && elsewhere == 0.0;
                let alpha = if is_known && !none { on_flash / elsewhere } else { 1.0 };
                self.alphas.insert(of, alpha.clamp(1.0, 12.5));
                for sums in [logical, physical] {
                    *sums = (sums.0 / 2.0, sums.1 / 2.0);
                }
            }
        }

        fn halve(&mut self) {
            for requests in self.requests.values_mut() {
                let half = |(a, b): (u32, u32)| (a / 2, b / 2);
                requests.reads = half(requests.reads);
                requests.writes = half(requests.writes);
                requests.logical = requests.logical.min(254) / 2;
            }
        }
    }

    /// Both sides do one thing at random.
    struct Pair {
        slots: SlotBenefit,
        expansion: Expansion,
        model: Model,
        /// Zones begin now and then.
        zones: bool,
    }

    impl Pair {
        fn new(rule: ExpansionRule, equation: Equation) -> Pair {
            let expansion = Expansion::new(rule, &COSTS);
            let model = Model {
                equation,
                requests: BTreeMap::new(),
                filled: BTreeMap::new(),
                free: (0..SLOTS).rev().collect(),
                zone: None,
                later: Vec::new(),
                groups: BTreeMap::new(),
                alphas: BTreeMap::new(),
                unseen: 0,
            };
            let slots = SlotBenefit::new(SLOTS, FRAMES, &COSTS, &expansion);
            Pair { slots, expansion, model, zones: false }
        }

        fn step(&mut self, prng: &mut fastrand::Rng, context: &str) {
            let page = prng.u64(..PAGES);
            let slot = self.model.slot_of(page);
            match (prng.u8(..12), slot) {
                (0..=2, None) => self.admit(prng, page, context),
                (3 | 4, _) => {
                    self.slots.read(PageId(page), slot);
                    let reads = &mut self.model.requests.entry(page).or_default().reads;
                    add(if slot.is_some() { &mut reads.0 } else { &mut reads.1 });
                }
                (5, _) => {
                    self.slots.wrote(PageId(page), slot);
                    let writes = &mut self.model.requests.entry(page).or_default().writes;
                    add(if slot.is_some() { &mut writes.0 } else { &mut writes.1 });
                }
                (6 | 7, _) => {
                    let logical = 1 + (1 << prng.u32(..16));
                    let reads = (prng.u32(..8), logical);
                    self.slots.was_in_memory(PageId(page), slot, reads, &mut self.expansion);
                    self.model.was_in_memory(page, reads.0, logical);
                }
                (8, Some(slot)) if prng.bool() => {
                    self.slots.free(slot, Some(PageId(page)));
                    self.model.filled.remove(&slot.0);
                    self.model.freed(slot.0);
                }
                (9, Some(slot)) => {
                    self.slots.take(slot);
                    self.slots.fill_clean(slot);
                    self.model.filled.insert(slot.0, (page, false));
                }
                (11, Some(from)) => {
                    let Some(to) = self.model.free.pop() else { return };
                    assert_eq!(self.slots.take_free(PageId(page)), Some(SlotId(to)), "{context}");
                    self.slots.fill_dirty(SlotId(to));
                    self.slots.carry(from, SlotId(to));
                    self.slots.free(from, None);
                    self.model.filled.remove(&from.0);
                    self.model.filled.insert(to, (page, true));
                    self.model.freed(from.0);
                }
                (8, None) if self.zones && prng.u8(..8) == 0 => {
                    let count = prng.u32(..SLOTS);
                    let zone = self.slots.begin_zone(count);
                    while let Some(slot) = self.model.later.pop() {
                        self.model.free.push(slot);
                    }
                    let expected = self.model.zone(count as usize);
                    assert_eq!(zone.iter().map(|slot| slot.0).collect::<Vec<_>>(), expected);
                    self.model.zone = Some(expected);
                }
                (10, _) if self.slots.is_period_over() => {
                    self.slots.halve();
                    self.model.halve();
                }
                _ => {}
            }
            self.slots.check();
            let least = self.model.least(true, |_| true).map(SlotId);
            assert_eq!(self.slots.next_dirty(|_| true), least, "{context}");
        }

        fn admit(&mut self, prng: &mut fastrand::Rng, page: u64, context: &str) {
            let free = self.model.free.pop();
            let slot = self.slots.take_free(PageId(page));
            assert_eq!(slot, free.map(SlotId), "{context}");
            let slot = slot.or_else(|| {
                let banned = prng.u32(..2 * SLOTS);
                let may = |slot: SlotId| slot.0 != banned;
                let victim = self.slots.victim(PageId(page), None, may, may);
                assert_eq!(victim, self.model.victim(page, banned), "{context}");
                let slot = victim.ok()?;
                let former = self.model.filled[&slot.0].0;
                self.slots.replace(slot, PageId(former), PageId(page));
                Some(slot)
            });
            let Some(slot) = slot else { return };
            let is_dirty = prng.bool();
            match is_dirty {
                true => self.slots.fill_dirty(slot),
                false => self.slots.fill_clean(slot),
            }
            self.model.filled.insert(slot.0, (page, is_dirty));
        }
    }

    #[test]
    fn cac_agrees_with_its_model() {
        let (mut estimates, mut expanded) = (0, 0);
        for seed in 0..150 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let mut pair = Pair::new(ExpansionRule::Estimated, Equation::Four);
            pair.zones = seed % 3 == 0;
            for step in 0..1_000 {
                pair.step(&mut prng, &format!("seed {seed} step {step}"));
            }
            estimates += pair.expansion.estimates();
            expanded += pair.model.alphas.values().filter(|&&alpha| alpha > 1.0).count();
        }
        assert!(estimates > 300, "{estimates}");
        assert!(expanded > 100, "{expanded}");
    }

    #[test]
    fn cac_with_alpha_fixed_at_one_is_cc_page_for_page() {
        for seed in 0..150 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let mut pair = Pair::new(ExpansionRule::One, Equation::Three);
            for step in 0..1_000 {
                pair.step(&mut prng, &format!("seed {seed} step {step}"));
            }
        }
    }

    #[test]
    fn dirty_slots_that_benefit_least_are_wanted_clean() {
        let expansion = Expansion::new(ExpansionRule::One, &COSTS);
        let mut slots = SlotBenefit::new(2, 0, &COSTS, &expansion);
        for page in 0..2 {
            let slot = slots.take_free(PageId(page)).unwrap();
            slots.fill_dirty(slot);
        }
        slots.read(PageId(7), None);
        let victim = slots.victim(PageId(7), None, |_| true, |_| true);
        assert_eq!((victim, slots.cleanings_wanted()), (Err(NoBenefit::NotYet), 1));
        let dirty = slots.next_dirty(|_| true).unwrap();
        slots.take(dirty);
        slots.cleaning_begun();
        slots.fill_clean(dirty);
        assert_eq!(slots.victim(PageId(7), None, |_| true, |_| true), Ok(dirty));
        assert_eq!(slots.cleanings_wanted(), 0);
        // Page 8 was never asked for, and has no less to lose.
        assert_eq!(slots.victim(PageId(8), None, |_| true, |_| true), Err(NoBenefit::Least));
    }

    #[test]
    fn seventeen_bytes_hold_a_slot() {
        let expansion = Expansion::new(ExpansionRule::One, &COSTS);
        let fixed = 81 * size_of::<f64>();
        assert_eq!(SlotBenefit::new(1_000, 0, &COSTS, &expansion).bytes() - fixed, 16_528);
    }
}
