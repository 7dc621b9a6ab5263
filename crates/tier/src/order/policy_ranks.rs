//! Slots in the order of a replacement policy, and, where a page on flash may be newer than at
//! home, in the cleaner's order beside it.
//!
//! - P1: the policy has the clean slots, and those whose I/O is in flight; the cleaner's order has
//!   all, as it has without another policy.
//! - P2: both have the same free slots, in the same order.

use terrace_page::{Lsn, PageId, SlotId};
use terrace_policy::replacement::ReplacementKind;
use terrace_policy::{CleanerOrder, History, Kept, KeyedSlots, SlotLru2, Tick};

use crate::{Image, NoVictim};

/// The order of a partition's slots.
pub struct PolicyRanks {
    slots: KeyedSlots,
    /// Of a design that keeps dirty pages on flash.
    pub cleaner: Option<SlotLru2>,
}

impl PolicyRanks {
    pub fn new(kind: ReplacementKind, count: u32, cleaner: Option<CleanerOrder>) -> PolicyRanks {
        PolicyRanks {
            slots: KeyedSlots::new(kind, count),
            cleaner: cleaner.map(|order| SlotLru2::new(count, order)),
        }
    }

    pub fn bytes(&self) -> usize {
        self.slots.bytes() + self.cleaner.as_ref().map_or(0, SlotLru2::bytes)
    }

    pub fn take_free(&mut self, now: Tick) -> Option<SlotId> {
        let slot = self.slots.take_free();
        if let Some(cleaner) = &mut self.cleaner {
            assert_eq!(cleaner.take_free(now), slot, "one order of free slots");
        }
        slot
    }

    pub fn victim(
        &mut self,
        page: PageId,
        page_of: impl Fn(SlotId) -> PageId,
        evictable: impl Fn(SlotId) -> bool,
    ) -> Result<u32, NoVictim> {
        match self.slots.victim(page, page_of, evictable) {
            Ok(slot) => Ok(slot.0),
            Err(Kept::Busy) => Err(NoVictim::Busy),
            Err(Kept::Preferred) => Err(NoVictim::Colder),
        }
    }

    /// The slot that would give way next, to a page that is worth more.
    pub fn contender(
        &mut self,
        page_of: impl Fn(SlotId) -> PageId,
        evictable: impl Fn(SlotId) -> bool,
    ) -> Result<u32, NoVictim> {
        self.slots.contender(page_of, evictable).map(|slot| slot.0).ok_or(NoVictim::Busy)
    }

    pub fn fill_clean(&mut self, slot: SlotId, page: PageId, history: History) {
        self.slots.fill_clean(slot, page);
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.fill_clean(slot, history);
        }
    }

    pub fn fill_dirty(&mut self, slot: SlotId, history: History, rec_lsn: Lsn) {
        self.slots.take_out(slot);
        self.cleaner_mut().fill_dirty(slot, history, rec_lsn);
    }

    pub fn was_cleaned(&mut self, slot: SlotId, page: PageId) {
        let history = self.cleaner_mut().history(slot);
        self.fill_clean(slot, page, history);
    }

    pub fn was_not_cleaned(&mut self, slot: SlotId, rec_lsn: Lsn) {
        let cleaner = self.cleaner_mut();
        let history = cleaner.history(slot);
        cleaner.fill_dirty(slot, history, rec_lsn);
    }

    fn cleaner_mut(&mut self) -> &mut SlotLru2 {
        self.cleaner.as_mut().expect("a design that keeps dirty pages")
    }

    pub fn hit(&mut self, slot: SlotId, now: Tick) {
        self.slots.hit(slot);
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.hit(slot, now);
        }
    }

    /// The slot's content is in use, or is about to change; the policy asks its state.
    pub fn take(&mut self, slot: SlotId) {
        self.slots.is_no_contender(slot);
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.take(slot);
        }
    }

    pub fn free(&mut self, slot: SlotId) {
        self.slots.free(slot);
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.free(slot);
        }
    }

    pub fn begin_restore(&mut self, now: Tick) {
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.begin_restore(now);
        }
    }

    pub fn found(&mut self, slot: SlotId, image: &Image) {
        self.slots.found(slot, image.page, image.history.last);
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.found(slot, image.history, image.newer);
        }
    }

    pub fn settle(&mut self, is_dirty: impl Fn(SlotId) -> Option<bool>) {
        self.slots.settle(&is_dirty);
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.settle(is_dirty);
        }
    }

    /// Asserts the invariants of both.
    pub fn check(&self) {
        self.slots.check();
        if let Some(cleaner) = &self.cleaner {
            cleaner.check();
        }
    }
}
