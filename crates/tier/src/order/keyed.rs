//! Slots in the order of a replacement policy, and, where a page on flash may be newer than at
//! home, in the cleaner's order beside it.
//!
//! - P1: the policy has the clean slots, and those whose I/O is in flight; the cleaner's order has
//!   all, as it has without another policy.
//! - P2: both have the same free slots, in the same order.

use terrace_page::{PageId, SlotId};
use terrace_policy::replacement::ReplacementKind;
use terrace_policy::{CleanKey, CleanerOrder, History, Kept, KeyedSlots, SlotLru2, Tick};

use super::{Asks, Fill, SlotOrder, Slots, in_heaps};
use crate::{Image, NoVictim, Shares, SlotState};

/// The order of a partition's slots.
pub struct KeyedOrder {
    slots: KeyedSlots,
    /// Of a design that keeps dirty pages on flash.
    cleaner: Option<SlotLru2>,
}

impl KeyedOrder {
    /// `count` free slots by this policy, with the order of a cleaner if there is one.
    #[must_use]
    pub fn new(kind: ReplacementKind, count: u32, cleaner: Option<CleanerOrder>) -> KeyedOrder {
        KeyedOrder {
            slots: KeyedSlots::new(kind, count),
            cleaner: cleaner.map(|order| SlotLru2::new(count, order)),
        }
    }
}

impl SlotOrder for KeyedOrder {
    fn bytes(&self) -> usize {
        self.slots.bytes() + self.cleaner.as_ref().map_or(0, SlotLru2::bytes)
    }

    fn take_free(&mut self, _page: PageId, now: Tick) -> Option<SlotId> {
        let slot = self.slots.take_free();
        if let Some(cleaner) = &mut self.cleaner {
            assert_eq!(cleaner.take_free(now), slot, "one order of free slots");
        }
        slot
    }

    fn victim(
        &mut self,
        asks: Asks,
        slots: &impl Slots,
        _shares: &impl Shares,
    ) -> Result<SlotId, NoVictim> {
        let page_of = |slot| slots.page(slot);
        let is_evictable = |slot| slots.is_evictable(slot);
        if asks.compares {
            return self.slots.contender(page_of, is_evictable).ok_or(NoVictim::Busy);
        }
        self.slots.victim(asks.page, page_of, is_evictable).map_err(|kept| match kept {
            Kept::Busy => NoVictim::Busy,
            Kept::Preferred => NoVictim::Colder,
        })
    }

    fn filled(&mut self, slot: SlotId, page: PageId, fill: Fill, shares: &impl Shares) {
        match fill {
            Fill::Clean(_) | Fill::Cleaned => self.slots.fill_clean(slot, page),
            Fill::Dirty(..) => self.slots.take_out(slot),
            Fill::StillDirty(_) => {}
        }
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.filled(slot, page, fill, shares);
        }
    }

    /// The policy asks the state of a slot, and hears here only that it is no victim.
    fn taken(&mut self, slot: SlotId) {
        self.slots.is_no_contender(slot);
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.take(slot);
        }
    }

    fn freed(&mut self, slot: SlotId, _page: Option<PageId>) {
        self.slots.free(slot);
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.free(slot);
        }
    }

    fn hit(&mut self, slot: SlotId, now: Tick) {
        self.slots.hit(slot);
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.hit(slot, now);
        }
    }

    fn history(&self, slot: SlotId) -> Option<History> {
        self.cleaner.as_ref().map(|cleaner| cleaner.history(slot))
    }

    fn next_dirty(&self, may: impl Fn(SlotId) -> bool) -> Option<SlotId> {
        self.cleaner.as_ref()?.next_dirty(may)
    }

    fn clean_key(&self, slot: SlotId) -> Option<CleanKey> {
        self.cleaner.as_ref().map(|cleaner| cleaner.clean_key(slot))
    }

    fn begin_restore(&mut self, now: Tick) {
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.begin_restore(now);
        }
    }

    fn found(&mut self, slot: SlotId, image: &Image) {
        self.slots.found(slot, image.page, image.history.last);
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.found(slot, image.history, image.newer);
        }
    }

    fn settle(&mut self, slots: &impl Slots, _shares: &impl Shares) {
        self.slots.settle(|slot| slots.is_dirty(slot));
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.settle(|slot| slots.is_dirty(slot));
        }
    }

    fn check_slot(&self, slot: SlotId, state: SlotState) {
        if let Some(cleaner) = &self.cleaner {
            assert_eq!(cleaner.state(slot), in_heaps(state), "{slot}");
        }
    }

    fn check(&self) {
        self.slots.check();
        if let Some(cleaner) = &self.cleaner {
            cleaner.check();
        }
    }
}
