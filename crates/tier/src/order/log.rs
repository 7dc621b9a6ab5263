//! The slots of an append log: their order, and which are dirty, for the cleaner.
//!
//! - L1: slots are taken next to each other, and leave in groups: in the order in which they were
//!   taken, or a block at a time.

use std::cell::Cell;
use std::ops::Range;

use terrace_page::{Lsn, PageId, SlotId};
use terrace_policy::{BlockRules, Fronted, Leave, SlotBlocks, SlotFifo, Tick};

use super::{Fill, SlotOrder, Slots, oldest};
use crate::Shares;

/// In which order slots are taken, and leave.
enum Order {
    Fifo(SlotFifo),
    Blocks(SlotBlocks),
}

/// The slots of a partition.
pub struct LogSlots {
    order: Order,
    dirty: Box<[u64]>,
    /// The word in which the last dirty slot was found.
    at: Cell<u32>,
}

/// What is to leave.
pub struct Leaving {
    /// Slots that leave together, at most, where they are not those of a block.
    pub group: u32,
    /// The most of these that are to be taken in again.
    pub room: u32,
    /// The clock of the policies.
    pub now: Tick,
}

impl LogSlots {
    /// Slots that leave in the order in which they were taken.
    pub fn fifo(count: u32, second_chance: bool) -> LogSlots {
        LogSlots::new(count, Order::Fifo(SlotFifo::new(count, second_chance)))
    }

    /// Slots that leave a block at a time.
    pub fn blocks(count: u32, rules: BlockRules) -> LogSlots {
        LogSlots::new(count, Order::Blocks(SlotBlocks::new(count, rules)))
    }

    fn new(count: u32, order: Order) -> LogSlots {
        let dirty = vec![0; count.div_ceil(u64::BITS) as usize].into();
        LogSlots { order, dirty, at: Cell::new(0) }
    }

    /// Slots that can be taken, and slots that are leaving.
    #[inline]
    pub fn free_and_leaving(&self) -> (u32, u32) {
        match &self.order {
            Order::Fifo(fifo) => (fifo.free(), fifo.leaving()),
            Order::Blocks(blocks) => (blocks.free(), blocks.leaving()),
        }
    }

    /// Of `group` slots, those that can be taken as one run.
    #[inline]
    pub fn run(&self, group: u32) -> u32 {
        match &self.order {
            Order::Fifo(_) => group,
            Order::Blocks(blocks) => blocks.room().min(group),
        }
    }

    /// Whether `slot` is in a group that is leaving.
    #[inline]
    pub fn is_leaving(&self, slot: SlotId) -> bool {
        match &self.order {
            Order::Fifo(fifo) => fifo.is_leaving(slot),
            Order::Blocks(blocks) => blocks.is_leaving(slot),
        }
    }

    /// Slots that were taken, are not leaving, and are `holes` now.
    pub fn count_held(&self, is_hole: impl Fn(&SlotId) -> bool) -> usize {
        match &self.order {
            Order::Fifo(fifo) => fifo.in_order().filter(is_hole).count(),
            Order::Blocks(blocks) => blocks.held().filter(is_hole).count(),
        }
    }

    /// Begins to let slots leave; `held` tells what they hold. Appends the slots, which lie next to
    /// each other, to `out`.
    #[inline]
    pub fn leave(
        &mut self,
        leaving: &Leaving,
        held: impl Fn(SlotId) -> Fronted,
        out: &mut Vec<(SlotId, Leave)>,
    ) {
        let room = leaving.room;
        match &mut self.order {
            Order::Fifo(fifo) => fifo.leave(leaving.group, room, held, out),
            Order::Blocks(blocks) => {
                let dirty = &self.dirty;
                let dirty_in = |slots: Range<u32>| count_set(dirty, slots);
                blocks.leave(room, leaving.now, dirty_in, held, out)
            }
        };
    }

    /// The group that began with `first` is done with.
    pub fn left(&mut self, first: SlotId) {
        match &mut self.order {
            Order::Fifo(fifo) => fifo.left(first),
            Order::Blocks(blocks) => blocks.left(first),
        }
    }

    #[inline]
    fn set_dirty(&mut self, slot: u32, is_dirty: bool) {
        let (word, bit) = (&mut self.dirty[(slot / u64::BITS) as usize], 1 << (slot % u64::BITS));
        if is_dirty {
            *word |= bit;
        } else {
            *word &= !bit;
        }
    }

    /// The dirty slots, once round from where one was found before.
    fn dirty(&self) -> impl Iterator<Item = u32> + '_ {
        let words = self.dirty.len() as u32;
        (0..words).map(move |more| (self.at.get() + more) % words).flat_map(|word| {
            let bits = self.dirty[word as usize];
            let is_set = move |bit: &u32| bits >> bit & 1 == 1;
            (0..u64::BITS * u32::from(bits != 0)).filter(is_set).map(move |bit| word * 64 + bit)
        })
    }
}

impl SlotOrder for LogSlots {
    fn bytes(&self) -> usize {
        let order = match &self.order {
            Order::Fifo(fifo) => fifo.bytes(),
            Order::Blocks(blocks) => blocks.bytes(),
        };
        order + size_of_val(&*self.dirty)
    }

    #[inline]
    fn take_free(&mut self, _page: PageId, now: Tick) -> Option<SlotId> {
        match &mut self.order {
            Order::Fifo(fifo) => fifo.take(),
            Order::Blocks(blocks) => blocks.take(now),
        }
    }

    #[inline]
    fn filled(&mut self, slot: SlotId, _page: PageId, fill: Fill, _shares: &impl Shares) {
        if matches!(fill, Fill::Dirty(..) | Fill::StillDirty(_)) {
            self.set_dirty(slot.0, true);
        }
    }

    #[inline]
    fn taken(&mut self, slot: SlotId) {
        self.set_dirty(slot.0, false);
    }

    #[inline]
    fn freed(&mut self, slot: SlotId, _page: Option<PageId>) {
        self.set_dirty(slot.0, false);
        if let Order::Blocks(blocks) = &mut self.order {
            blocks.emptied(slot);
        }
    }

    #[inline]
    fn hit(&mut self, slot: SlotId, now: Tick) {
        match &mut self.order {
            Order::Fifo(fifo) => fifo.hit(slot),
            Order::Blocks(blocks) => blocks.hit(slot, now),
        }
    }

    fn next_dirty(&self, may: impl Fn(SlotId) -> bool) -> Option<SlotId> {
        let slot = self.dirty().map(SlotId).find(|&slot| may(slot))?;
        self.at.set(slot.0 / u64::BITS);
        Some(slot)
    }

    fn oldest_dirty(
        &self,
        may: impl Fn(SlotId) -> bool,
        rec: impl Fn(u32) -> Lsn,
    ) -> Option<SlotId> {
        oldest(self.dirty().map(SlotId), may, rec)
    }

    fn settle(&mut self, slots: &impl Slots, _shares: &impl Shares) {
        let is_filled = |slot| slots.is_dirty(slot).is_some();
        match &mut self.order {
            Order::Fifo(fifo) => fifo.restore(is_filled),
            Order::Blocks(blocks) => blocks.restore(is_filled),
        }
        for slot in (0..slots.count()).filter(|&slot| slots.is_dirty(SlotId(slot)) == Some(true)) {
            self.set_dirty(slot, true);
        }
    }

    fn log(&self) -> Option<&LogSlots> {
        Some(self)
    }

    fn log_mut(&mut self) -> Option<&mut LogSlots> {
        Some(self)
    }

    fn check(&self) {
        match &self.order {
            Order::Fifo(fifo) => fifo.check(),
            Order::Blocks(blocks) => blocks.check(),
        }
    }
}

/// How many bits of a range of `words` are set.
fn count_set(words: &[u64], range: Range<u32>) -> u32 {
    let (first, last) = (range.start / u64::BITS, range.end.div_ceil(u64::BITS));
    let of_word = |word: u32| {
        let base = word * u64::BITS;
        let from = range.start.saturating_sub(base);
        let upto = (range.end - base).min(u64::BITS);
        // At least one bit of each word is in the range.
        let mask = (u64::MAX << from) & (u64::MAX >> (u64::BITS - upto));
        (words[word as usize] & mask).count_ones()
    };
    (first..last).map(of_word).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_rt::Prng;

    #[test]
    fn bits_of_a_range_are_counted_as_one_by_one() {
        let mut prng = Prng::from_seed(1);
        let words: Vec<u64> = (0..5).map(|_| prng.next_u64()).collect();
        let is_set = |at: &u32| words[(at / 64) as usize] >> (at % 64) & 1 == 1;
        for _ in 0..2_000 {
            let start = prng.below(320) as u32;
            let range = start..start + prng.below(u64::from(320 - start)) as u32;
            let expected = range.clone().filter(is_set).count();
            assert_eq!(count_set(&words, range.clone()) as usize, expected, "{range:?}");
        }
    }
}
