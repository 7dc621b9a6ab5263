//! States that restarts need: slots found filled at the opening, bases and pins (table.S5).

use terrace_page::{Lsn, PageId, SlotId};
use terrace_policy::Tick;

use super::{
    CLEAN, DAMAGED, DIRTY, FREE, INVALID, LAZYCLEANING, NEWER, NO_PAGE, PINNED, PageNumber,
    RETIRED, STATE, Seen, SlotTable, WRITING,
};
use crate::{Gauge, Image, Shares, SlotOrder};

/// Slots of a zone, beside the free ones, at least: fewer would soon all be in use.
const ZONE_SLOTS_MIN: u32 = 8;

impl<O: SlotOrder, S: Shares> SlotTable<O, S> {
    /// A new table is about to be filled with what opening found, with the clock at `now`.
    pub fn begin_restore(&mut self, now: Tick) {
        self.order.begin_restore(now);
    }

    /// Opening found `slot` filled.
    pub fn found(&mut self, slot: u32, image: &Image) {
        let at = slot as usize;
        self.pages[at] = PageNumber::of(image.page).0;
        self.versions.set(slot, image.lsn.unwrap_or(Lsn::ZERO));
        self.states[at] = CLEAN;
        if let Some(rec_lsn) = image.newer {
            self.states[at] = DIRTY | NEWER;
            self.set_rec(slot, rec_lsn);
        }
        self.order.found(SlotId(slot), image);
    }

    /// The page of `slot` was found in another one too, and that counts.
    pub fn unfound(&mut self, slot: u32) {
        self.states[slot as usize] = FREE;
        self.pages[slot as usize] = NO_PAGE;
    }

    /// From now on only slots of a zone are given away: those that are free, and of the others the
    /// parts-th part whose pages benefit least. Returns them.
    pub fn begin_zone(&mut self, parts: u32) -> Vec<u32> {
        let count = self.count().div_ceil(parts).max(ZONE_SLOTS_MIN);
        self.order.begin_zone(count).into_iter().map(|slot| slot.0).collect()
    }

    /// All was told.
    pub fn end_restore(&mut self) {
        let states = &self.states;
        self.order.settle(&Seen { states, pages: &self.pages }, &self.shares);
        let used = states.iter().filter(|&&state| state != FREE).count() as i32;
        let dirty = states.iter().filter(|&&state| state & STATE == DIRTY).count() as i32;
        self.gauged(Gauge::Used, used);
        self.gauged(Gauge::Dirty, dirty);
    }

    /// Whether what was read from `slot` may be the version that was written there.
    pub fn may_be(&self, slot: u32, lsn: Lsn) -> bool {
        self.versions.may_be(slot, lsn)
    }

    /// The version in `slot`, if all of it is kept.
    pub fn version(&self, slot: u32) -> Option<Lsn> {
        self.versions.full(slot)
    }

    /// Whether the copy may be needed as the base of a change: home may not have it.
    pub(super) fn is_base(&self, slot: u32) -> bool {
        self.newer(slot).is_some() || self.states[slot as usize] == CLEAN | PINNED
    }

    /// Whether the cleaner found the copy in `slot` bad.
    pub fn is_damaged(&self, slot: u32) -> bool {
        self.has(slot, DAMAGED)
    }

    /// Whether `slot` keeps a base.
    pub fn keeps_base(&self, slot: u32) -> bool {
        self.states[slot as usize] == INVALID
    }

    /// The bytes of base `from` were written into `to`: WRITING -> INVALID, and `from` is RETIRED.
    pub fn move_base(&mut self, from: u32, to: u32) {
        assert!(self.keeps_base(from), "slot {from} keeps no base");
        assert_eq!(self.pages[from as usize], self.pages[to as usize]);
        self.rec[to as usize] = self.rec[from as usize];
        self.versions.copy(from, to);
        self.set_base(to, &[WRITING], INVALID);
        self.retire(from);
    }

    /// The page in valid `from`, which moved on, stays there until the table says where it went:
    /// CLEAN|DIRTY -> RETIRED.
    pub fn retire_moved(&mut self, from: u32) {
        self.order.taken(SlotId(from));
        self.set_damaged(from, false);
        self.set_newer(from, None);
        self.set_base(from, &[CLEAN, DIRTY], RETIRED);
        self.states[from as usize] = RETIRED;
        self.pages[from as usize] = NO_PAGE;
    }

    /// The cleaner is done with a base: LAZYCLEANING -> INVALID, or RETIRED if it was retired.
    pub(super) fn base_was_cleaned(&mut self, slot: u32) {
        self.forget_newer(slot);
        let to = if self.page(slot).is_some() { INVALID } else { RETIRED };
        self.set_base(slot, &[LAZYCLEANING], to);
        self.states[slot as usize] &= STATE;
    }

    /// A newer copy is on flash, though the table there may not say so yet: INVALID -> RETIRED.
    pub fn retire(&mut self, slot: u32) {
        self.pages[slot as usize] = NO_PAGE;
        if self.base(slot) != LAZYCLEANING {
            self.set_base(slot, &[INVALID], RETIRED);
        }
    }

    /// The table on flash names the newer copy: RETIRED -> FREE.
    pub fn release_retired(&mut self, slot: u32) {
        if self.base(slot) == LAZYCLEANING {
            // Free once that has ended.
            self.states[slot as usize] &= !PINNED;
        } else {
            self.release(slot, &[RETIRED]);
        }
    }

    /// Home has a newer version for good: INVALID -> FREE.
    pub fn release_base(&mut self, slot: u32) {
        self.release(slot, &[INVALID]);
    }

    /// The home write that made `slot` clean may still be lost.
    pub fn pin(&mut self, slot: u32) {
        if self.base(slot) == CLEAN {
            self.states[slot as usize] |= PINNED;
        }
    }

    /// Whether the home write that made `slot` clean may still be lost, or the table not know.
    pub fn is_pinned(&self, slot: u32) -> bool {
        self.base(slot) == CLEAN && self.has(slot, PINNED)
    }

    /// Home was synced. Whether the slot was pinned.
    pub fn unpin(&mut self, slot: u32) -> bool {
        let was = self.states[slot as usize] & PINNED != 0;
        self.states[slot as usize] &= !PINNED;
        was
    }

    /// Whether `slot` keeps a base of `page`.
    pub fn is_kept_for(&self, slot: u32, page: PageId) -> bool {
        self.states[slot as usize] == INVALID && self.holds(slot, page)
    }
}
