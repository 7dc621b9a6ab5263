//! The slots of TAC, which asks for the temperature of a page's extent: extents of a trace are
//! numbered without gaps; and bands of temperature in the place of its heap, which only replays
//! have.

use super::shared::Shared;
use terrace_page::{PageId, SlotId};
use terrace_policy::{BandOrder, SlotBands, Temperatures, Tick};
use terrace_tier::{Asks, Fill, Lend, NoVictim, Shares, SlotOrder, Slots};

/// Bands in place of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bands {
    /// How many.
    pub count: u16,
    /// Which page leaves first within a band.
    pub order: BandOrder,
}

/// An order of slots that is told pages as they are numbered by extents.
pub struct ByExtents<O> {
    pub order: O,
    pub shared: Shared,
}

/// The slots of a table with pages numbered by extents.
struct Numbered<'a, S> {
    slots: &'a S,
    shared: &'a Shared,
}

impl<S: Slots> Slots for Numbered<'_, S> {
    fn count(&self) -> u32 {
        self.slots.count()
    }

    fn page(&self, slot: SlotId) -> PageId {
        self.shared.by_extents(self.slots.page(slot))
    }

    fn is_evictable(&self, slot: SlotId) -> bool {
        self.slots.is_evictable(slot)
    }

    fn is_cleanable(&self, slot: SlotId) -> bool {
        self.slots.is_cleanable(slot)
    }

    fn is_dirty(&self, slot: SlotId) -> Option<bool> {
        self.slots.is_dirty(slot)
    }
}

impl<O: SlotOrder> SlotOrder for ByExtents<O> {
    fn bytes(&self) -> usize {
        self.order.bytes()
    }

    fn take_free(&mut self, page: PageId, now: Tick) -> Option<SlotId> {
        self.order.take_free(self.shared.by_extents(page), now)
    }

    fn victim(
        &mut self,
        asks: Asks,
        slots: &impl Slots,
        shares: &impl Shares,
    ) -> Result<SlotId, NoVictim> {
        let asks = Asks { page: self.shared.by_extents(asks.page), ..asks };
        self.order.victim(asks, &Numbered { slots, shared: &self.shared }, shares)
    }

    fn filled(&mut self, slot: SlotId, page: PageId, fill: Fill, shares: &impl Shares) {
        self.order.filled(slot, self.shared.by_extents(page), fill, shares);
    }

    fn taken(&mut self, slot: SlotId) {
        self.order.taken(slot);
    }

    fn freed(&mut self, slot: SlotId, page: Option<PageId>) {
        self.order.freed(slot, page.map(|page| self.shared.by_extents(page)));
    }

    fn hit(&mut self, slot: SlotId, now: Tick) {
        self.order.hit(slot, now);
    }

    fn settle(&mut self, slots: &impl Slots, shares: &impl Shares) {
        self.order.settle(&Numbered { slots, shared: &self.shared }, shares);
    }

    fn check(&self) {
        self.order.check();
    }
}

/// Slots in bands, and their pages.
pub struct BandedSlots {
    bands: SlotBands,
    pages: Vec<PageId>,
    shared: Shared,
}

impl BandedSlots {
    /// `slots` free slots.
    pub fn new(slots: u32, Bands { count, order }: Bands, shared: &Shared) -> BandedSlots {
        let pages = vec![PageId(0); slots as usize];
        BandedSlots { bands: SlotBands::new(slots, count, order), pages, shared: shared.clone() }
    }
}

impl SlotOrder for BandedSlots {
    fn bytes(&self) -> usize {
        self.bands.bytes() + self.pages.capacity() * size_of::<PageId>()
    }

    fn take_free(&mut self, _: PageId, _: Tick) -> Option<SlotId> {
        self.bands.take_free()
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
            let victim = self.bands.victim(temperatures, page_of, is_evictable);
            let victim = victim.ok_or(NoVictim::Busy)?;
            let is_admitted = self.bands.admits(asks.page, victim, temperatures);
            if is_admitted { Ok(victim) } else { Err(NoVictim::Colder) }
        })
    }

    fn filled(&mut self, slot: SlotId, page: PageId, _: Fill, shares: &impl Shares) {
        self.pages[slot.0 as usize] = page;
        shares.lend(|temperatures: &mut Temperatures| self.bands.insert(slot, page, temperatures));
    }

    fn taken(&mut self, slot: SlotId) {
        self.bands.remove(slot);
    }

    fn freed(&mut self, slot: SlotId, _: Option<PageId>) {
        self.bands.free(slot);
    }

    fn hit(&mut self, slot: SlotId, _: Tick) {
        let (bands, page) = (&mut self.bands, self.pages[slot.0 as usize]);
        self.shared.lend(|temperatures: &mut Temperatures| bands.hit(slot, page, temperatures));
    }

    fn settle(&mut self, _: &impl Slots, _: &impl Shares) {
        unreachable!("a replay begins with free slots");
    }

    fn check(&self) {
        self.bands.check();
    }
}
