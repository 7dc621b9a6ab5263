//! TAC's order: the slot whose extent is coldest is reused first. Such designs write through, so
//! no slot is dirty.

use terrace_page::{PageId, SlotId};
use terrace_policy::{SlotHeat, TacRule, Temperatures, Tick};

use super::{Asks, Fill, SlotOrder, Slots};
use crate::{NoVictim, Shares};

/// The slots of a partition by the temperatures of their pages, which all partitions share.
pub struct HeatOrder {
    /// The slots, in a heap.
    pub slots: SlotHeat,
    /// How much warmer than the victim a page must be.
    pub rule: TacRule,
}

impl SlotOrder for HeatOrder {
    fn bytes(&self) -> usize {
        self.slots.bytes()
    }

    fn take_free(&mut self, _page: PageId, _now: Tick) -> Option<SlotId> {
        self.slots.take_free()
    }

    fn victim(
        &mut self,
        asks: Asks,
        slots: &impl Slots,
        shares: &impl Shares,
    ) -> Result<SlotId, NoVictim> {
        shares.lend(|temperatures: &mut Temperatures| {
            let page_of = |slot| slots.page(slot);
            let is_evictable = |slot| slots.is_evictable(slot);
            let victim = self.slots.victim(temperatures, page_of, is_evictable);
            let victim = victim.ok_or(NoVictim::Busy)?;
            let is_admitted = temperatures.admits(self.rule, asks.page, slots.page(victim));
            if is_admitted { Ok(victim) } else { Err(NoVictim::Colder) }
        })
    }

    fn filled(&mut self, slot: SlotId, page: PageId, _fill: Fill, shares: &impl Shares) {
        shares.lend(|temperatures: &mut Temperatures| self.slots.insert(slot, page, temperatures));
    }

    fn taken(&mut self, slot: SlotId) {
        self.slots.remove(slot);
    }

    fn freed(&mut self, slot: SlotId, _page: Option<PageId>) {
        self.slots.free(slot);
    }

    fn settle(&mut self, slots: &impl Slots, shares: &impl Shares) {
        let is_filled = |slot: &SlotId| slots.is_dirty(*slot).is_some();
        shares.lend(|temperatures: &mut Temperatures| {
            self.slots.occupy(|slot| is_filled(&slot));
            for slot in (0..slots.count()).map(SlotId).filter(is_filled) {
                self.slots.insert(slot, slots.page(slot), temperatures);
            }
        });
    }

    fn check(&self) {
        self.slots.check();
    }
}
