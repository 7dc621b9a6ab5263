//! Flash slots in a byte each: how long ago a page was used, in eighths of the tier's turnover, and
//! how often since it came. For tiers where the 16 bytes of exact LRU-2 are too much.
//!
//! ```text
//!            take_free             fill_clean, fill_dirty
//!   free ------------------> taken -----------------------> filled ----> free
//!                              ^             take              |
//!                              +-------------------------------+
//! ```
//!
//! - Idea: time passes in epochs; the ticks of one are an eighth of the tier's number of slots.
//!   When one ends every slot is an epoch older, and every eighth halves the counts of uses. The
//!   victim is the first by an [`AgeOrder`] of the next few slots from a hand on: with 32 of them
//!   it is among the oldest 3% on average, and no slot is looked at twice in a lap.
//! - G1: a free or dirty slot is never named to be reused, nor one that may not leave, as the owner
//!   says.
//! - G2: orders share the marks: another order may be asked for at any time, and nothing is lost.
//! - G3: a slot is dirty from `fill_dirty` until `take`, `fill_clean` or `free`; only such a slot
//!   is the cleaner's.
//! - Cost: 1.25 bytes per slot; a hit is a store; the end of an epoch touches every slot, an eighth
//!   of a byte-sized store for each tick.
//! - Not for: exact comparisons with the published designs, which have [`crate::SlotLru2`].

use crate::slots::clean_key::CleanKey;
use crate::structures::bits::SlotBits;
use crate::{History, Tick};
use terrace_page::SlotId;

/// Which page leaves first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeOrder {
    /// The page whose last use is oldest.
    Recency,
    /// The same, but pages without a use since they came leave before all others, as in LRU-2.
    Reuse,
}

/// Slots that are compared for one victim.
const LOOKED_AT: u32 = 32;
/// Epochs in a number of ticks equal to the tier's number of slots.
const EPOCHS_PER_TURNOVER: u64 = 8;
const AGE_SHIFT: u32 = 3;
const AGE_MAX: u8 = 31;
const USES_MAX: u8 = 7;

/// The slots of one partition.
pub struct SlotAges {
    /// The age in the high five bits, the uses in the low three.
    marks: Box<[u8]>,
    free: SlotBits,
    dirty: SlotBits,
    free_count: u32,
    free_at: u32,
    hand: u32,
    cleaner_hand: u32,
    epoch_ticks: u64,
    epoch: u64,
    now: Tick,
    /// The slot hit last, and what was known of its page before that.
    last_hit: (u32, History),
}

fn mark_of(age: u64, uses: u8) -> u8 {
    (age.min(u64::from(AGE_MAX)) as u8) << AGE_SHIFT | uses.min(USES_MAX)
}

fn age(mark: u8) -> u8 {
    mark >> AGE_SHIFT
}

fn uses(mark: u8) -> u8 {
    mark & USES_MAX
}

/// The larger leaves first.
fn rank(order: AgeOrder, mark: u8) -> u16 {
    let by_age = u16::from(age(mark)) << AGE_SHIFT | u16::from(USES_MAX - uses(mark));
    match order {
        AgeOrder::Recency => by_age,
        AgeOrder::Reuse => u16::from(uses(mark) == 0) << 8 | by_age,
    }
}

impl SlotAges {
    /// `count` free slots, numbered from zero, of a tier with `tier_slots` in all.
    ///
    /// # Panics
    ///
    /// If there are none.
    #[must_use]
    pub fn new(count: u32, tier_slots: u64) -> SlotAges {
        assert!(count > 0, "a tier has slots");
        let mut free = SlotBits::new(count);
        (0..count).for_each(|slot| free.set(slot, true));
        SlotAges {
            marks: vec![0; count as usize].into(),
            free,
            dirty: SlotBits::new(count),
            free_count: count,
            free_at: 0,
            hand: 0,
            cleaner_hand: 0,
            epoch_ticks: (tier_slots / EPOCHS_PER_TURNOVER).max(1),
            epoch: 0,
            now: Tick(0),
            last_hit: (u32::MAX, History::once(Tick(0))),
        }
    }

    fn count(&self) -> u32 {
        self.marks.len() as u32
    }

    /// Time is `now`.
    fn pass(&mut self, now: Tick) {
        self.now = self.now.max(now);
        let epoch = self.now.0 / self.epoch_ticks;
        let ended = epoch - self.epoch;
        if ended == 0 {
            return;
        }
        let halvings = epoch / EPOCHS_PER_TURNOVER - self.epoch / EPOCHS_PER_TURNOVER;
        self.epoch = epoch;
        for mark in &mut self.marks {
            let halved = uses(*mark) >> halvings.min(u64::from(u8::BITS - 1));
            *mark = mark_of(u64::from(age(*mark)).saturating_add(ended), halved);
        }
    }

    /// Takes a free slot at `now`.
    pub fn take_free(&mut self, now: Tick) -> Option<SlotId> {
        self.pass(now);
        if self.free_count == 0 {
            return None;
        }
        let slot = self.free.from(self.free_at).next().expect("as many as are counted");
        self.free.set(slot, false);
        (self.free_at, self.free_count) = (slot, self.free_count - 1);
        Some(SlotId(slot))
    }

    /// Names the slot to reuse among those that are `evictable`; it stays as it is.
    pub fn victim(
        &mut self,
        order: AgeOrder,
        evictable: impl Fn(SlotId) -> bool,
    ) -> Option<SlotId> {
        let count = self.count();
        let round = (self.hand..count).chain(0..self.hand);
        let is_clean = |slot: &u32| !self.free.has(*slot) && !self.dirty.has(*slot);
        let filled = round.filter(|slot| is_clean(slot) && evictable(SlotId(*slot)));
        let (victim, last) = self.first_of(order, filled)?;
        self.move_hand_behind(last);
        Some(SlotId(victim))
    }

    /// The same among those that are not `kept`, found by words of bits: for owners most of whose
    /// slots may not leave.
    pub fn victim_not_kept(&mut self, order: AgeOrder, kept: &SlotBits) -> Option<SlotId> {
        let (victim, last) = self.first_of(order, self.not_kept(kept))?;
        self.move_hand_behind(last);
        Some(SlotId(victim))
    }

    /// Whether the slots that may be reused, but for those that are `kept`, are at most the number
    /// that one victim is compared with.
    #[must_use]
    pub fn are_few_but(&self, kept: &SlotBits) -> bool {
        self.not_kept(kept).nth(LOOKED_AT as usize).is_none()
    }

    fn not_kept<'a>(&'a self, kept: &'a SlotBits) -> impl Iterator<Item = u32> + 'a {
        SlotBits::in_none([&self.free, &self.dirty, kept], self.hand)
    }

    fn move_hand_behind(&mut self, slot: u32) {
        self.hand = if slot + 1 == self.count() { 0 } else { slot + 1 };
    }

    /// Names the dirty slot that the cleaner should take next among those that are `cleanable`.
    pub fn next_dirty(&self, cleanable: impl Fn(SlotId) -> bool) -> Option<SlotId> {
        let dirty = self.dirty.from(self.cleaner_hand).filter(|&slot| cleanable(SlotId(slot)));
        self.first_of(AgeOrder::Recency, dirty).map(|(slot, _)| SlotId(slot))
    }

    /// The first by `order` of the first few `slots`, and the last that was looked at.
    fn first_of(&self, order: AgeOrder, slots: impl Iterator<Item = u32>) -> Option<(u32, u32)> {
        let mut first: Option<(u16, u32)> = None;
        let mut last = 0;
        for slot in slots.take(LOOKED_AT as usize) {
            let rank = rank(order, self.marks[slot as usize]);
            if first.is_none_or(|(best, _)| rank > best) {
                first = Some((rank, slot));
            }
            last = slot;
        }
        first.map(|(_, slot)| (slot, last))
    }

    /// The dirty slots.
    pub fn dirty_slots(&self) -> impl Iterator<Item = SlotId> + '_ {
        self.dirty.from(0).map(SlotId)
    }

    /// Where dirty `slot` stands among those of all partitions.
    #[must_use]
    pub fn clean_key(&self, slot: SlotId) -> CleanKey {
        let rank = rank(AgeOrder::Recency, self.marks[slot.0 as usize]);
        CleanKey([u64::from(u16::MAX - rank), 0, 0, 0])
    }

    /// A filled slot is about to be cleaned or refilled, or its page changes.
    pub fn take(&mut self, slot: SlotId) {
        assert!(!self.free.has(slot.0), "{slot} is free");
        if self.dirty.has(slot.0) {
            self.dirty.set(slot.0, false);
            self.cleaner_hand = slot.0;
        }
    }

    /// A taken slot now holds what home holds.
    pub fn fill_clean(&mut self, slot: SlotId, history: History) {
        self.fill(slot, history, false);
    }

    /// A taken slot now holds a page newer than home.
    pub fn fill_dirty(&mut self, slot: SlotId, history: History) {
        self.fill(slot, history, true);
    }

    fn fill(&mut self, slot: SlotId, history: History, is_dirty: bool) {
        assert!(!self.free.has(slot.0), "{slot} is free");
        self.marks[slot.0 as usize] = self.mark_by(history);
        self.dirty.set(slot.0, is_dirty);
    }

    /// A slot that was taken to be cleaned is as new as home, or is not.
    pub fn was_cleaned(&mut self, slot: SlotId, is_clean: bool) {
        self.dirty.set(slot.0, !is_clean);
    }

    fn mark_by(&self, history: History) -> u8 {
        let age = self.now.0.saturating_sub(history.last.0) / self.epoch_ticks;
        mark_of(age, u8::from(history.previous.is_some()))
    }

    /// The page in `slot` was used at `now`.
    pub fn hit(&mut self, slot: SlotId, now: Tick) {
        self.pass(now);
        let before = self.history(slot);
        self.last_hit = (slot.0, before.used(now));
        let mark = &mut self.marks[slot.0 as usize];
        *mark = mark_of(0, uses(*mark) + 1);
    }

    /// The content of `slot` is gone.
    pub fn free(&mut self, slot: SlotId) {
        assert!(!self.free.has(slot.0), "{slot} is free already");
        self.marks[slot.0 as usize] = 0;
        self.dirty.set(slot.0, false);
        self.free.set(slot.0, true);
        self.free_count += 1;
        if self.last_hit.0 == slot.0 {
            self.last_hit.0 = u32::MAX;
        }
    }

    /// The last two uses of the page in `slot`, about; with the use before the last if this slot
    /// was hit last.
    #[must_use]
    pub fn history(&self, slot: SlotId) -> History {
        let (hit, history) = self.last_hit;
        if hit == slot.0 && history.last == self.now {
            return history;
        }
        let mark = self.marks[slot.0 as usize];
        let last = self.now.0.saturating_sub(u64::from(age(mark)) * self.epoch_ticks).max(1);
        let previous = (uses(mark) > 0).then(|| Tick(last.saturating_sub(self.epoch_ticks)));
        History { last: Tick(last), previous: previous.filter(|tick| tick.0 > 0) }
    }

    /// A new table is about to be filled with what was found, with the clock at `now`.
    pub fn begin_restore(&mut self, now: Tick) {
        self.pass(now);
    }

    /// A slot was found filled, by a page of this history.
    pub fn found(&mut self, slot: SlotId, history: History) {
        self.marks[slot.0 as usize] = self.mark_by(history);
    }

    /// All was told. `is_dirty` tells of each slot that is filled whether it is newer than home.
    pub fn settle(&mut self, is_dirty: impl Fn(SlotId) -> Option<bool>) {
        self.free_count = 0;
        for slot in 0..self.count() {
            let state = is_dirty(SlotId(slot));
            self.free.set(slot, state.is_none());
            self.dirty.set(slot, state == Some(true));
            self.free_count += u32::from(state.is_none());
        }
    }

    /// Whether `slot` is free, and whether it is dirty.
    #[must_use]
    pub fn state(&self, slot: SlotId) -> (bool, bool) {
        (self.free.has(slot.0), self.dirty.has(slot.0))
    }

    /// How many slots are free.
    #[must_use]
    pub fn free_count(&self) -> u32 {
        self.free_count
    }

    /// Bytes allocated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.marks.len() + self.free.bytes() + self.dirty.bytes()
    }

    /// Asserts that what is counted is there, and that no free slot is dirty.
    ///
    /// # Panics
    ///
    /// If it is not so.
    pub fn check(&self) {
        assert_eq!(self.free.from(0).count(), self.free_count as usize, "free slots");
        assert!(self.dirty.from(0).all(|slot| !self.free.has(slot)), "a free slot is dirty");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: u32 = 70;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum State {
        Free,
        Taken,
        Clean,
        Dirty,
    }

    /// Slots as a list; time passes epoch by epoch.
    struct Model {
        slots: Vec<(State, u64, u64)>,
        epoch_ticks: u64,
        epoch: u64,
        hand: usize,
        cleaner_hand: usize,
    }

    impl Model {
        fn pass(&mut self, now: u64) {
            while self.epoch < now / self.epoch_ticks {
                self.epoch += 1;
                for (_, age, uses) in &mut self.slots {
                    *age = (*age + 1).min(31);
                    *uses /= if self.epoch.is_multiple_of(8) { 2 } else { 1 };
                }
            }
        }

        /// The first of the first 32 candidates from `from` on, and the last that was looked at.
        fn first(
            &self,
            from: usize,
            may: impl Fn(usize) -> bool,
            before: impl Fn(usize, usize) -> bool,
        ) -> Option<(usize, usize)> {
            let round = (from..self.slots.len()).chain(0..from);
            let looked_at: Vec<usize> = round.filter(|&slot| may(slot)).take(32).collect();
            let first =
                looked_at.iter().copied().reduce(|a, b| if before(b, a) { b } else { a })?;
            Some((first, *looked_at.last()?))
        }

        fn victim(&mut self, order: AgeOrder, pinned: &[bool]) -> Option<usize> {
            let is_before = |a: usize, b: usize| {
                let ((_, age_a, uses_a), (_, age_b, uses_b)) = (self.slots[a], self.slots[b]);
                let unused = |uses: u64| order == AgeOrder::Reuse && uses == 0;
                (unused(uses_a), age_a, 7 - uses_a) > (unused(uses_b), age_b, 7 - uses_b)
            };
            let may = |slot: usize| self.slots[slot].0 == State::Clean && !pinned[slot];
            let (victim, last) = self.first(self.hand, may, is_before)?;
            self.hand = (last + 1) % self.slots.len();
            Some(victim)
        }

        fn next_dirty(&self, pinned: &[bool]) -> Option<usize> {
            let is_before = |a: usize, b: usize| {
                let ((_, age_a, uses_a), (_, age_b, uses_b)) = (self.slots[a], self.slots[b]);
                (age_a, 7 - uses_a) > (age_b, 7 - uses_b)
            };
            let may = |slot: usize| self.slots[slot].0 == State::Dirty && !pinned[slot];
            self.first(self.cleaner_hand, may, is_before).map(|found| found.0)
        }

        fn take(&mut self, slot: usize) {
            if self.slots[slot].0 == State::Dirty {
                self.cleaner_hand = slot;
            }
            self.slots[slot].0 = State::Taken;
        }

        fn fill(&mut self, slot: usize, to: State, history: History, now: u64) {
            let age = (now.saturating_sub(history.last.0) / self.epoch_ticks).min(31);
            self.slots[slot] = (to, age, u64::from(history.previous.is_some()));
        }
    }

    #[test]
    fn slots_agree_with_a_list_of_ages() {
        for seed in 0..300 {
            against_the_model(seed);
        }
    }

    fn against_the_model(seed: u64) {
        let mut prng = fastrand::Rng::with_seed(seed);
        let mut ages = SlotAges::new(SLOTS, 400);
        let slots = vec![(State::Free, 0, 0); SLOTS as usize];
        let mut model = Model { slots, epoch_ticks: 50, epoch: 0, hand: 0, cleaner_hand: 0 };
        let mut pinned = vec![false; SLOTS as usize];
        let mut now = 1;
        for step in 0..1_500 {
            let at = format!("seed {seed} step {step}");
            now += prng.u64(..4) + if prng.u32(..300) == 0 { 900 } else { 0 };
            let slot = prng.u32(..SLOTS);
            let index = slot as usize;
            pinned[prng.usize(..SLOTS as usize)] = prng.u8(..5) == 0;
            let order = if prng.bool() { AgeOrder::Recency } else { AgeOrder::Reuse };
            match (model.slots[index].0, prng.u8(..6)) {
                (State::Free, _) => {
                    let taken = ages.take_free(Tick(now)).expect("there is one");
                    model.pass(now);
                    let state = &mut model.slots[taken.0 as usize].0;
                    assert_eq!(std::mem::replace(state, State::Taken), State::Free, "G1, {at}");
                }
                (State::Taken, choice) => {
                    let previous = prng.bool().then(|| Tick(1.max(now / 4)));
                    let history = History { last: Tick(1.max(now / 2)), previous };
                    let to = if choice < 3 { State::Clean } else { State::Dirty };
                    ages.fill(SlotId(slot), history, to == State::Dirty);
                    model.fill(index, to, history, ages.now.0);
                }
                (_, 0) => {
                    ages.free(SlotId(slot));
                    model.slots[index] = (State::Free, 0, 0);
                }
                (_, 1) => {
                    ages.hit(SlotId(slot), Tick(now));
                    model.pass(now);
                    let (state, _, uses) = model.slots[index];
                    model.slots[index] = (state, 0, (uses + 1).min(7));
                    assert_eq!(ages.history(SlotId(slot)).last, ages.now, "{at}");
                }
                (_, 2) => {
                    let got = ages.next_dirty(|slot| !pinned[slot.0 as usize]);
                    let expected = model.next_dirty(&pinned);
                    assert_eq!(got.map(|slot| slot.0 as usize), expected, "{at}");
                    if let Some(slot) = got {
                        ages.take(slot);
                        model.take(slot.0 as usize);
                        let is_clean = prng.bool();
                        ages.was_cleaned(slot, is_clean);
                        let state = if is_clean { State::Clean } else { State::Dirty };
                        model.slots[slot.0 as usize].0 = state;
                    }
                }
                (_, choice) => {
                    let may = |slot: usize| model.slots[slot].0 == State::Clean && !pinned[slot];
                    let got = victim(&mut ages, order, choice == 3, may);
                    let expected = model.victim(order, &pinned);
                    assert_eq!(got.map(|slot| slot.0 as usize), expected, "{at}");
                    if let Some(slot) = got {
                        ages.take(slot);
                        model.take(slot.0 as usize);
                    }
                }
            }
            let dirty = (0..SLOTS).filter(|&slot| model.slots[slot as usize].0 == State::Dirty);
            assert!(ages.dirty_slots().map(|slot| slot.0).eq(dirty), "G3, {at}");
            ages.check();
        }
    }

    fn victim(
        ages: &mut SlotAges,
        order: AgeOrder,
        by_bits: bool,
        may: impl Fn(usize) -> bool,
    ) -> Option<SlotId> {
        if !by_bits {
            return ages.victim(order, |slot| may(slot.0 as usize));
        }
        let mut kept = SlotBits::new(SLOTS);
        (0..SLOTS).for_each(|slot| kept.set(slot, !may(slot as usize)));
        let are_few = (0..SLOTS as usize).filter(|&slot| may(slot)).count() <= 32;
        assert_eq!(ages.are_few_but(&kept), are_few);
        ages.victim_not_kept(order, &kept)
    }

    #[test]
    fn a_page_comes_back_with_the_use_before_about() {
        let mut ages = SlotAges::new(8, 80);
        let slot = ages.take_free(Tick(1)).unwrap();
        ages.fill_clean(slot, History::once(Tick(1)));
        ages.hit(slot, Tick(45));
        let history = ages.history(slot);
        assert_eq!(history.last, Tick(45));
        let previous = history.previous.expect("it was used before");
        assert!(previous.0 <= 15, "{previous:?}: it was used at 1, within an epoch of 10");
    }

    #[test]
    fn two_orders_name_two_pages() {
        let name = |order| {
            let mut ages = SlotAges::new(2, 160);
            let [old, new] = [ages.take_free(Tick(1)), ages.take_free(Tick(1))].map(Option::unwrap);
            ages.fill_clean(old, History { last: Tick(1), previous: Some(Tick(1)) });
            ages.hit(old, Tick(9));
            assert_eq!(ages.take_free(Tick(40)), None);
            ages.fill_clean(new, History::once(Tick(40)));
            ages.victim(order, |_| true) == Some(old)
        };
        assert!(name(AgeOrder::Recency), "the older one");
        assert!(!name(AgeOrder::Reuse), "the one without a use since it came");
    }
}
