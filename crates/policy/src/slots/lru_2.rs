//! LRU-2 for flash slots: the clean slot whose use before the last is oldest is reused first [S0
//! 3.1; O'Neil 1993], and the dirty slot that the lazy cleaner should take next [S0 3.3.5; S3
//! II-B].
//!
//! - Idea: exact order, as the papers have it: a clean and a dirty heap at the two ends of one
//!   array, and a list of free slots.
//! - S1: a slot used once goes before every slot used twice, ties by the last use, then by number.
//! - S2: a busy slot (I/O in flight) is in no heap; it keeps its history.
//! - S3: the dirty heap is in LRU-2 order or in order of recLSN, as the cleaner was told [S3 II-B].
//! - Cost: 16 bytes per slot, 20 if the cleaner goes by recLSN; a hit is O(log n).
//! - Not for: tiers where 16 bytes per page are too much.
//!
//! ```text
//!            take_free                  fill_clean
//!   Free ----------------------> Busy --------------> Clean
//!    ^                           |  ^    take          |  ^
//!    |            fill_dirty     |  +------------------+  |
//!    |                           v                        |  cleaned
//!    |                         Dirty ---------------------+
//!    +-- free: from Busy, Clean, Dirty     (take: Dirty -> Busy too)
//! ```

use crate::slots::clean_key::CleanKey;
use crate::structures::free_stack::FreeStack;
use crate::structures::heaps::{Heaps, Side};
use crate::{History, Tick};
use terrace_page::{Lsn, SlotId};

/// In which order the lazy cleaner takes dirty slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanerOrder {
    /// The oldest use before the last first [S0 3.3.5].
    Lru2Age,
    /// The smallest recLSN first: what advances the oldest change not at home [S3 II-B].
    RecLsn,
}

/// Where a slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapState {
    /// On the free list.
    Free,
    /// Taken, with I/O in flight: never a victim.
    Busy,
    /// Filled; home has the same page.
    Clean,
    /// Filled; newer than home.
    Dirty,
}

/// Stamp of a free slot in `last`, and of a use that never was in `previous`.
const NONE: u32 = 0;
/// A rebase forgets this many ticks of the past: what is older becomes equally old.
const REBASE_TICKS: u64 = 1 << 31;
/// recLSNs are compared by log blocks of 4 KiB, to fit 32 bits for 16 TiB of log.
const REC_BLOCK_SHIFT: u32 = 12;

/// The LRU-2 state of all slots of one partition.
pub struct SlotLru2 {
    heaps: Heaps,
    keys: Keys,
    free: FreeStack,
}

/// What the orders compare.
struct Keys {
    /// The last two uses: what is compared of a slot is one load.
    uses: Vec<Uses>,
    /// Log blocks; empty unless the cleaner goes by recLSN.
    rec_block: Vec<u32>,
    base: u64,
}

/// The last two uses of a slot, as stamps: ticks since `base`. The use before the last is in the
/// upper half, so that words compare as S1 has it; for a free slot, it is the next on the free
/// stack, and `NONE` the last.
#[derive(Clone, Copy)]
struct Uses(u64);

impl Uses {
    #[inline]
    fn new(previous: u32, last: u32) -> Uses {
        Uses(u64::from(previous) << 32 | u64::from(last))
    }

    /// Those of a free slot, before `next` on the free stack.
    #[inline]
    fn free(next: u32) -> Uses {
        Uses::new(next, NONE)
    }

    #[inline]
    fn last(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    fn previous(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

fn rec_block(lsn: Lsn) -> u32 {
    (lsn.0 >> REC_BLOCK_SHIFT).min(u64::from(u32::MAX)) as u32
}

impl SlotLru2 {
    /// A partition of `slots_count` free slots, numbered from zero, taken in that order.
    ///
    /// # Panics
    ///
    /// If there are no slots, or 2^31 - 1 or more.
    #[must_use]
    pub fn new(slots_count: u32, order: CleanerOrder) -> SlotLru2 {
        let count = slots_count as usize;
        let rec_block = match order {
            CleanerOrder::Lru2Age => Vec::new(),
            CleanerOrder::RecLsn => vec![0; count],
        };
        let uses = FreeStack::links(slots_count).map(Uses::free).collect();
        SlotLru2 {
            heaps: Heaps::new(slots_count),
            keys: Keys { uses, rec_block, base: 0 },
            free: FreeStack::full(slots_count),
        }
    }

    /// Takes the top of the free stack, which becomes busy with a history of one use at `now`.
    pub fn take_free(&mut self, now: Tick) -> Option<SlotId> {
        let slot = self.free.pop(|slot| self.keys.uses[slot as usize].previous())?;
        self.remember(slot, History::once(now));
        Some(SlotId(slot))
    }

    /// A new table is about to be filled with what was found, with the clock at `now`. Tell of each
    /// filled slot by `found`, and end with `settle`.
    ///
    /// # Panics
    ///
    /// If a slot was taken before.
    pub fn begin_restore(&mut self, now: Tick) {
        assert_eq!(self.free.count() as usize, self.keys.uses.len(), "a new table");
        self.keys.base = now.0.saturating_sub(REBASE_TICKS);
    }

    /// A slot was found filled, by a page of this history; `rec_lsn`, if it is newer than home.
    pub fn found(&mut self, slot: SlotId, history: History, rec_lsn: Option<Lsn>) {
        let at = slot.0 as usize;
        self.keys.uses[at] = self.keys.uses_of(history);
        if let (Some(block), Some(lsn)) = (self.keys.rec_block.get_mut(at), rec_lsn) {
            *block = rec_block(lsn);
        }
    }

    /// All was told. `is_dirty` tells of each slot that is filled whether it is newer than home;
    /// slots that are not are free.
    pub fn settle(&mut self, is_dirty: impl Fn(SlotId) -> Option<bool>) {
        let count = self.keys.uses.len() as u32;
        self.free = FreeStack::EMPTY;
        for slot in (0..count).rev() {
            let side = match is_dirty(SlotId(slot)) {
                Some(true) => Side::Right,
                Some(false) => Side::Left,
                None => {
                    self.keys.uses[slot as usize] = Uses::free(self.free.push(slot));
                    continue;
                }
            };
            self.heaps.append(side, slot);
        }
        let keys = &self.keys;
        self.heaps.rebuild(Side::Left, |slot| keys.clean_key(slot));
        self.heaps.rebuild(Side::Right, |slot| keys.dirty_key(slot));
    }

    /// Names the clean slot to reuse among those that are `evictable`; it stays clean.
    pub fn victim(&self, evictable: impl Fn(SlotId) -> bool) -> Option<SlotId> {
        let keys = &self.keys;
        self.heaps
            .least(Side::Left, |slot| evictable(SlotId(slot)), |slot| keys.clean_key(slot))
            .map(SlotId)
    }

    /// Names the dirty slot that the cleaner should take next among those that are `cleanable`.
    pub fn next_dirty(&self, cleanable: impl Fn(SlotId) -> bool) -> Option<SlotId> {
        let keys = &self.keys;
        self.heaps
            .least(Side::Right, |slot| cleanable(SlotId(slot)), |slot| keys.dirty_key(slot))
            .map(SlotId)
    }

    /// Where dirty `slot` stands among those of all partitions: the cleaner takes the least of
    /// their roots [sources.R3].
    #[must_use]
    pub fn clean_key(&self, slot: SlotId) -> CleanKey {
        self.keys.clean_key_of_all(slot.0)
    }

    /// A filled slot becomes busy: it is about to be read, cleaned or refilled.
    pub fn take(&mut self, slot: SlotId) {
        self.lift(slot.0);
    }

    /// A busy slot now holds what home holds.
    pub fn fill_clean(&mut self, slot: SlotId, history: History) {
        assert_eq!(self.state(slot), HeapState::Busy, "{slot}");
        self.remember(slot.0, history);
        let keys = &self.keys;
        self.heaps.insert(Side::Left, slot.0, |slot| keys.clean_key(slot));
    }

    /// A busy slot now holds a page newer than home, first changed by the record at `rec_lsn`.
    pub fn fill_dirty(&mut self, slot: SlotId, history: History, rec_lsn: Lsn) {
        assert_eq!(self.state(slot), HeapState::Busy, "{slot}");
        self.remember(slot.0, history);
        if let Some(block) = self.keys.rec_block.get_mut(slot.0 as usize) {
            *block = rec_block(rec_lsn);
        }
        let keys = &self.keys;
        self.heaps.insert(Side::Right, slot.0, |slot| keys.dirty_key(slot));
    }

    /// A dirty slot holds what home holds: the cleaner has written it.
    pub fn cleaned(&mut self, slot: SlotId) {
        assert_eq!(self.state(slot), HeapState::Dirty, "{slot}");
        self.lift(slot.0);
        let keys = &self.keys;
        self.heaps.insert(Side::Left, slot.0, |slot| keys.clean_key(slot));
    }

    /// The page in `slot` was used at `now`.
    pub fn hit(&mut self, slot: SlotId, now: Tick) {
        let history = self.history(slot).used(now);
        self.remember(slot.0, history);
        let keys = &self.keys;
        match self.heaps.side(slot.0) {
            Some(Side::Right) if !keys.rec_block.is_empty() => {
                self.heaps.changed(slot.0, |slot| keys.dirty_key(slot))
            }
            Some(_) => self.heaps.changed(slot.0, |slot| keys.clean_key(slot)),
            None => {}
        }
    }

    /// The content of `slot` is gone: it goes to the top of the free stack.
    pub fn free(&mut self, slot: SlotId) {
        match self.state(slot) {
            HeapState::Free => panic!("{slot} is free already"),
            HeapState::Busy => {}
            HeapState::Clean | HeapState::Dirty => self.lift(slot.0),
        }
        self.keys.uses[slot.0 as usize] = Uses::free(self.free.push(slot.0));
    }

    /// Where `slot` stands.
    #[must_use]
    pub fn state(&self, slot: SlotId) -> HeapState {
        match self.heaps.side(slot.0) {
            Some(Side::Left) => HeapState::Clean,
            Some(Side::Right) => HeapState::Dirty,
            None if self.keys.uses[slot.0 as usize].last() == NONE => HeapState::Free,
            None => HeapState::Busy,
        }
    }

    /// How many slots stand there.
    #[must_use]
    pub fn count(&self, state: HeapState) -> u32 {
        let (clean, dirty) = (self.heaps.count(Side::Left), self.heaps.count(Side::Right));
        match state {
            HeapState::Free => self.free.count(),
            HeapState::Clean => clean,
            HeapState::Dirty => dirty,
            HeapState::Busy => self.keys.uses.len() as u32 - clean - dirty - self.free.count(),
        }
    }

    /// The last two uses of the page in `slot`, which is not free.
    #[must_use]
    pub fn history(&self, slot: SlotId) -> History {
        let keys = &self.keys;
        let uses = keys.uses[slot.0 as usize];
        let (last, previous) = (uses.last(), uses.previous());
        assert!(last != NONE, "{slot} is free");
        let tick = |stamp: u32| Tick(keys.base + u64::from(stamp));
        History { last: tick(last), previous: (previous != NONE).then(|| tick(previous)) }
    }

    /// The dirty slots, in no useful order: for a checkpoint that empties the tier.
    pub fn dirty_slots(&self) -> impl Iterator<Item = SlotId> + '_ {
        self.heaps.slots(Side::Right).map(SlotId)
    }

    /// Bytes allocated for all slots together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let uses = self.keys.uses.capacity() * size_of::<Uses>();
        self.heaps.bytes() + uses + self.keys.rec_block.capacity() * size_of::<u32>()
    }

    /// Asserts the orders of both heaps and the length of the free stack.
    pub fn check(&self) {
        self.heaps.check(Side::Left, |slot| self.keys.clean_key(slot));
        self.heaps.check(Side::Right, |slot| self.keys.dirty_key(slot));
        let is_free = |slot| self.state(SlotId(slot)) == HeapState::Free;
        self.free.check(|slot| self.keys.uses[slot as usize].previous(), is_free);
    }

    fn lift(&mut self, slot: u32) {
        let keys = &self.keys;
        // Without recLSNs both sides are in the same order.
        match keys.rec_block.is_empty() || self.heaps.side(slot) == Some(Side::Left) {
            true => self.heaps.remove(slot, |slot| keys.clean_key(slot)),
            false => self.heaps.remove(slot, |slot| keys.dirty_key(slot)),
        };
    }

    #[inline]
    fn remember(&mut self, slot: u32, history: History) {
        while history.last.0.saturating_sub(self.keys.base) > u64::from(u32::MAX) {
            self.rebase();
        }
        self.keys.uses[slot as usize] = self.keys.uses_of(history);
    }

    /// Moves the base forward. Stamps that fall together need a new order among themselves.
    #[cold]
    fn rebase(&mut self) {
        self.keys.rebase();
        let keys = &self.keys;
        self.heaps.rebuild(Side::Left, |slot| keys.clean_key(slot));
        self.heaps.rebuild(Side::Right, |slot| keys.dirty_key(slot));
    }
}

impl Keys {
    /// The use before the last, the last, and the slot, as one number: most of the time of a
    /// rebuild is comparisons. `NONE` sorts first: a page used once goes before all that were used
    /// twice (S1).
    #[inline]
    fn clean_key(&self, slot: u32) -> u128 {
        u128::from(self.uses[slot as usize].0) << 64 | u128::from(slot)
    }

    /// As `clean_key`, after the recLSN.
    #[inline]
    fn dirty_key(&self, slot: u32) -> u128 {
        let rec = self.rec_block.get(slot as usize).copied().unwrap_or(0);
        let uses = u128::from(self.uses[slot as usize].0);
        u128::from(rec) << 96 | uses << 32 | u128::from(slot)
    }

    /// As `dirty_key`, to compare slots of two partitions, whose stamps have other bases.
    fn clean_key_of_all(&self, slot: u32) -> CleanKey {
        let tick = |stamp: u32| if stamp == NONE { 0 } else { self.base + u64::from(stamp) };
        let uses = self.uses[slot as usize];
        let rec = self.rec_block.get(slot as usize).copied().unwrap_or(0);
        CleanKey([u64::from(rec), tick(uses.previous()), tick(uses.last()), u64::from(slot)])
    }

    #[inline]
    fn uses_of(&self, history: History) -> Uses {
        let previous = history.previous.map_or(NONE, |tick| self.stamp(tick));
        Uses::new(previous, self.stamp(history.last))
    }

    #[inline]
    fn stamp(&self, tick: Tick) -> u32 {
        let stamp = tick.0.saturating_sub(self.base).max(1);
        u32::try_from(stamp).expect("the base follows the clock")
    }

    fn rebase(&mut self) {
        self.base += REBASE_TICKS;
        let older = |stamp: u32| match stamp {
            NONE => NONE,
            _ => u64::from(stamp).saturating_sub(REBASE_TICKS).max(1) as u32,
        };
        for uses in self.uses.iter_mut().filter(|uses| uses.last() != NONE) {
            *uses = Uses::new(older(uses.previous()), older(uses.last()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const SLOTS: u32 = 24;

    /// Every slot with its state, history and recLSN, and the free slots as a stack.
    struct Model {
        filled: BTreeMap<u32, (HeapState, History, u64)>,
        free: Vec<u32>,
        order: CleanerOrder,
    }

    impl Model {
        fn least(&self, state: HeapState, banned: u32) -> Option<SlotId> {
            let of_state = self.filled.iter().filter(|row| row.1.0 == state && *row.0 != banned);
            let least = of_state.min_by_key(|&(&slot, &(_, history, rec_lsn))| {
                let by_rec = state == HeapState::Dirty && self.order == CleanerOrder::RecLsn;
                (if by_rec { rec_lsn >> 12 } else { 0 }, history.previous, history.last, slot)
            });
            least.map(|row| SlotId(*row.0))
        }
    }

    #[test]
    fn slot_lru_2_agrees_with_its_model() {
        for seed in 0..300 {
            for order in [CleanerOrder::Lru2Age, CleanerOrder::RecLsn] {
                against_the_model(seed, order);
            }
        }
    }

    fn against_the_model(seed: u64, order: CleanerOrder) {
        let mut prng = fastrand::Rng::with_seed(seed);
        let mut lru = SlotLru2::new(SLOTS, order);
        let mut model = Model { filled: BTreeMap::new(), free: (0..SLOTS).rev().collect(), order };
        let mut now = Tick(prng.u64(1..100));
        for step in 0..400 {
            now.0 += prng.u64(..3);
            let slot = prng.u32(..SLOTS);
            let state = model.filled.get(&slot).map(|row| row.0);
            match (prng.u8(..8), state) {
                (0 | 1, _) => {
                    let expected = model.free.pop();
                    assert_eq!(lru.take_free(now), expected.map(SlotId), "seed {seed} step {step}");
                    if let Some(slot) = expected {
                        model.filled.insert(slot, (HeapState::Busy, History::once(now), 0));
                    }
                }
                (2 | 3, Some(HeapState::Busy)) => {
                    let row = model.filled.get_mut(&slot).unwrap();
                    row.2 = prng.u64(..1 << 20);
                    if prng.bool() {
                        lru.fill_clean(SlotId(slot), row.1);
                        row.0 = HeapState::Clean;
                    } else {
                        lru.fill_dirty(SlotId(slot), row.1, Lsn(row.2));
                        row.0 = HeapState::Dirty;
                    }
                }
                (4, Some(_)) => {
                    lru.hit(SlotId(slot), now);
                    let row = model.filled.get_mut(&slot).unwrap();
                    row.1 = row.1.used(now);
                }
                (5, Some(_)) if prng.bool() => {
                    lru.free(SlotId(slot));
                    model.filled.remove(&slot);
                    model.free.push(slot);
                }
                (6, Some(HeapState::Dirty)) => {
                    lru.cleaned(SlotId(slot));
                    model.filled.get_mut(&slot).unwrap().0 = HeapState::Clean;
                }
                (7, Some(HeapState::Clean | HeapState::Dirty)) => {
                    lru.take(SlotId(slot));
                    model.filled.get_mut(&slot).unwrap().0 = HeapState::Busy;
                }
                _ => {}
            }
            lru.check();
            let free_of = |banned: u32| move |slot: SlotId| slot.0 != banned;
            let banned = prng.u32(..SLOTS);
            let context = format!("seed {seed} step {step}");
            assert_eq!(
                lru.victim(free_of(banned)),
                model.least(HeapState::Clean, banned),
                "{context}"
            );
            let dirty = model.least(HeapState::Dirty, banned);
            assert_eq!(lru.next_dirty(free_of(banned)), dirty, "{context}");
            assert_eq!(lru.count(HeapState::Free), model.free.len() as u32, "{context}");
        }
    }

    #[test]
    fn a_clock_past_32_bits_keeps_the_order_of_recent_uses() {
        let mut lru = SlotLru2::new(4, CleanerOrder::Lru2Age);
        let mut fill = |tick: u64, previous: Option<u64>| {
            let slot = lru.take_free(Tick(tick)).unwrap();
            let history = History { last: Tick(tick), previous: previous.map(Tick) };
            lru.fill_clean(slot, history);
            slot
        };
        let ancient = fill(10, Some(5));
        let old = fill(3 << 32, Some((3 << 32) - 9));
        let once = fill((3 << 32) + 1, None);
        let new = fill((3 << 32) + 2, Some((3 << 32) - 1));
        lru.check();
        for expected in [once, ancient, old, new] {
            assert_eq!(lru.victim(|_| true), Some(expected));
            lru.free(expected);
        }
    }

    #[test]
    fn sixteen_bytes_hold_a_slot() {
        assert_eq!(SlotLru2::new(1_000, CleanerOrder::Lru2Age).bytes(), 16_000);
        assert_eq!(SlotLru2::new(1_000, CleanerOrder::RecLsn).bytes(), 20_000);
    }
}
