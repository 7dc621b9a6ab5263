//! Slots by age: by recency, or by reuse first if `auto` says so.

use terrace_page::{Lsn, PageId, SlotId};
use terrace_policy::{AgeOrder, CleanKey, History, SlotAges, SlotBits, Tick};

use super::{Asks, Fill, SlotOrder, Slots, oldest};
use crate::{Image, NoVictim, Shares, SlotState};

/// Slots that are kept and passed over for a victim; then they are not looked at any more.
const PASSED_OVER_MAX: u32 = 64;

/// The slots of a partition by age.
pub struct AgesOrder {
    /// The slots, by age.
    pub ages: SlotAges,
    /// How they leave.
    pub order: AgeOrder,
}

impl SlotOrder for AgesOrder {
    fn bytes(&self) -> usize {
        self.ages.bytes()
    }

    fn take_free(&mut self, _page: PageId, now: Tick) -> Option<SlotId> {
        self.ages.take_free(now)
    }

    fn victim(
        &mut self,
        _asks: Asks,
        slots: &impl Slots,
        _shares: &impl Shares,
    ) -> Result<SlotId, NoVictim> {
        self.ages.victim(self.order, |slot| slots.is_evictable(slot)).ok_or(NoVictim::Busy)
    }

    /// Where few slots may be reused, nearly all would be passed over for one: it is looked for
    /// among those few.
    fn victim_but(
        &mut self,
        (kept, now): (&SlotBits, Tick),
        asks: Asks,
        slots: &impl Slots,
        shares: &impl Shares,
    ) -> Result<SlotId, NoVictim> {
        let passed_over_max = if self.ages.are_few_but(kept) { 0 } else { PASSED_OVER_MAX };
        for _ in 0..passed_over_max {
            let victim = self.victim(asks, slots, shares)?;
            if !kept.has(victim.0) {
                return Ok(victim);
            }
            self.ages.hit(victim, now);
        }
        let victim = self.ages.victim_not_kept(self.order, kept);
        victim.filter(|&slot| slots.is_evictable(slot)).ok_or(NoVictim::Busy)
    }

    fn filled(&mut self, slot: SlotId, _page: PageId, fill: Fill, _shares: &impl Shares) {
        match fill {
            Fill::Clean(history) => self.ages.fill_clean(slot, history),
            Fill::Dirty(history, _) => self.ages.fill_dirty(slot, history),
            Fill::Cleaned => self.ages.was_cleaned(slot, true),
            Fill::StillDirty(_) => self.ages.was_cleaned(slot, false),
        }
    }

    fn taken(&mut self, slot: SlotId) {
        self.ages.take(slot);
    }

    fn freed(&mut self, slot: SlotId, _page: Option<PageId>) {
        self.ages.free(slot);
    }

    fn hit(&mut self, slot: SlotId, now: Tick) {
        self.ages.hit(slot, now);
    }

    fn history(&self, slot: SlotId) -> Option<History> {
        Some(self.ages.history(slot))
    }

    fn next_dirty(&self, may: impl Fn(SlotId) -> bool) -> Option<SlotId> {
        self.ages.next_dirty(may)
    }

    fn oldest_dirty(
        &self,
        may: impl Fn(SlotId) -> bool,
        rec: impl Fn(u32) -> Lsn,
    ) -> Option<SlotId> {
        oldest(self.ages.dirty_slots(), may, rec)
    }

    fn clean_key(&self, slot: SlotId) -> Option<CleanKey> {
        Some(self.ages.clean_key(slot))
    }

    fn choose(&mut self, order: AgeOrder) {
        self.order = order;
    }

    fn begin_restore(&mut self, now: Tick) {
        self.ages.begin_restore(now);
    }

    fn found(&mut self, slot: SlotId, image: &Image) {
        self.ages.found(slot, image.history);
    }

    fn settle(&mut self, slots: &impl Slots, _shares: &impl Shares) {
        self.ages.settle(|slot| slots.is_dirty(slot));
    }

    fn check_slot(&self, slot: SlotId, state: SlotState) {
        let expected = (state == SlotState::Free, state == SlotState::Dirty);
        assert_eq!(self.ages.state(slot), expected, "{slot}");
    }

    fn check(&self) {
        self.ages.check();
    }
}
