//! The order of CC and CAC: the slot whose page saves least device time is reused first, and if it
//! is dirty, is wanted clean.

use terrace_page::{Lsn, PageId, SlotId};
use terrace_policy::{CleanKey, NoBenefit, SlotBenefit, Tick};

use super::{Asks, Count, Fill, SlotOrder, Slots, in_heaps, oldest};
use crate::{Image, NoVictim, Shares, SlotState};

impl SlotOrder for SlotBenefit {
    fn bytes(&self) -> usize {
        self.bytes()
    }

    fn take_free(&mut self, page: PageId, _now: Tick) -> Option<SlotId> {
        self.take_free(page)
    }

    fn victim(
        &mut self,
        asks: Asks,
        slots: &impl Slots,
        _shares: &impl Shares,
    ) -> Result<SlotId, NoVictim> {
        let is_evictable = |slot| slots.is_evictable(slot);
        let is_cleanable = |slot| slots.is_cleanable(slot);
        let victim = SlotBenefit::victim(self, asks.page, asks.own, is_evictable, is_cleanable);
        victim.map_err(|why| match why {
            NoBenefit::Least => NoVictim::Colder,
            NoBenefit::NotYet => NoVictim::Busy,
        })
    }

    fn filled(&mut self, slot: SlotId, _page: PageId, fill: Fill, _shares: &impl Shares) {
        match fill {
            Fill::Clean(_) | Fill::Cleaned => self.fill_clean(slot),
            Fill::Dirty(..) | Fill::StillDirty(_) => self.fill_dirty(slot),
        }
    }

    fn taken(&mut self, slot: SlotId) {
        self.take(slot);
    }

    fn replaced(&mut self, slot: SlotId, former: PageId, page: PageId) {
        self.replace(slot, former, page);
    }

    fn carried(&mut self, from: SlotId, to: SlotId) {
        self.carry(from, to);
    }

    fn freed(&mut self, slot: SlotId, page: Option<PageId>) {
        self.free(slot, page);
    }

    fn next_dirty(&self, may: impl Fn(SlotId) -> bool) -> Option<SlotId> {
        self.next_dirty(may)
    }

    fn oldest_dirty(
        &self,
        may: impl Fn(SlotId) -> bool,
        rec: impl Fn(u32) -> Lsn,
    ) -> Option<SlotId> {
        oldest(self.dirty_slots(), may, rec)
    }

    fn clean_key(&self, slot: SlotId) -> Option<CleanKey> {
        Some(self.clean_key(slot))
    }

    fn counted(&mut self, page: PageId, slot: Option<SlotId>, what: Count, shares: &impl Shares) {
        match what {
            Count::Read => self.read(page, slot),
            Count::Write => self.wrote(page, slot),
            Count::InMemory { logical, physical } => shares.lend(|expansion| {
                self.was_in_memory(page, slot, (physical, logical), expansion);
            }),
        }
    }

    fn is_period_over(&self) -> bool {
        self.is_period_over()
    }

    fn halve_counts(&mut self) {
        self.halve();
    }

    fn wants_cleaning(&self) -> bool {
        self.cleanings_wanted() > 0
    }

    fn cleaning_begun(&mut self) {
        self.cleaning_begun();
    }

    fn begin_zone(&mut self, count: u32) -> Vec<SlotId> {
        self.begin_zone(count)
    }

    fn found(&mut self, slot: SlotId, image: &Image) {
        self.found(slot, image.history);
    }

    fn settle(&mut self, slots: &impl Slots, _shares: &impl Shares) {
        self.settle(|slot| slots.is_dirty(slot));
    }

    fn check_slot(&self, slot: SlotId, state: SlotState) {
        assert_eq!(self.state(slot), in_heaps(state), "{slot}");
    }

    fn check(&self) {
        self.check();
    }
}
