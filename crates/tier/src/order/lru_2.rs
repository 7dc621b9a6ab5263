//! Slots by LRU-2: the clean slot whose page was used last but one longest ago is reused first.

use terrace_page::{PageId, SlotId};
use terrace_policy::{CleanKey, History, SlotLru2, Tick};

use super::{Asks, Fill, SlotOrder, Slots, in_heaps};
use crate::{Image, NoVictim, Shares, SlotState};

impl SlotOrder for SlotLru2 {
    fn bytes(&self) -> usize {
        self.bytes()
    }

    fn take_free(&mut self, _page: PageId, now: Tick) -> Option<SlotId> {
        self.take_free(now)
    }

    fn victim(
        &mut self,
        _asks: Asks,
        slots: &impl Slots,
        _shares: &impl Shares,
    ) -> Result<SlotId, NoVictim> {
        SlotLru2::victim(self, |slot| slots.is_evictable(slot)).ok_or(NoVictim::Busy)
    }

    fn filled(&mut self, slot: SlotId, _page: PageId, fill: Fill, _shares: &impl Shares) {
        match fill {
            Fill::Clean(history) => self.fill_clean(slot, history),
            Fill::Dirty(history, rec) => self.fill_dirty(slot, history, rec),
            Fill::Cleaned => self.fill_clean(slot, SlotLru2::history(self, slot)),
            Fill::StillDirty(rec) => self.fill_dirty(slot, SlotLru2::history(self, slot), rec),
        }
    }

    fn taken(&mut self, slot: SlotId) {
        self.take(slot);
    }

    fn freed(&mut self, slot: SlotId, _page: Option<PageId>) {
        self.free(slot);
    }

    fn hit(&mut self, slot: SlotId, now: Tick) {
        self.hit(slot, now);
    }

    fn history(&self, slot: SlotId) -> Option<History> {
        Some(self.history(slot))
    }

    fn next_dirty(&self, may: impl Fn(SlotId) -> bool) -> Option<SlotId> {
        self.next_dirty(may)
    }

    fn clean_key(&self, slot: SlotId) -> Option<CleanKey> {
        Some(self.clean_key(slot))
    }

    fn begin_restore(&mut self, now: Tick) {
        self.begin_restore(now);
    }

    fn found(&mut self, slot: SlotId, image: &Image) {
        self.found(slot, image.history, image.newer);
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
