//! How TAC finds its coldest slot: a heap of temperatures, or bands of them.

use terrace_page::{PageId, SlotId};
use terrace_policy::{BandOrder, SlotBands, SlotHeat, TacRule, Temperatures};

/// Bands in place of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bands {
    /// How many.
    pub count: u16,
    /// Who leaves first within one.
    pub order: BandOrder,
}

/// The slots of TAC, coldest first, and what a page must be to take one.
pub enum Ranking {
    Heap(SlotHeat, TacRule),
    Bands(SlotBands),
}

impl Ranking {
    pub fn new(slots: u32, rule: TacRule, bands: Option<Bands>) -> Ranking {
        match bands {
            Some(Bands { count, order }) => Ranking::Bands(SlotBands::new(slots, count, order)),
            None => Ranking::Heap(SlotHeat::new(slots), rule),
        }
    }

    pub fn take_free(&mut self) -> Option<SlotId> {
        match self {
            Ranking::Heap(heat, _) => heat.take_free(),
            Ranking::Bands(bands) => bands.take_free(),
        }
    }

    /// The coldest slot that is `evictable`, if `page` may take it.
    pub fn victim_for(
        &mut self,
        page: PageId,
        temperatures: &Temperatures,
        page_of: impl Fn(SlotId) -> PageId,
        evictable: impl Fn(SlotId) -> bool,
    ) -> Option<SlotId> {
        match self {
            Ranking::Heap(heat, rule) => {
                let victim = heat.victim(temperatures, &page_of, evictable)?;
                temperatures.admits(*rule, page, page_of(victim)).then_some(victim)
            }
            Ranking::Bands(bands) => {
                let victim = bands.victim(temperatures, page_of, evictable)?;
                bands.admits(page, victim, temperatures).then_some(victim)
            }
        }
    }

    /// The copy of `page` in `slot` was read.
    pub fn hit(&mut self, slot: SlotId, page: PageId, temperatures: &Temperatures) {
        if let Ranking::Bands(bands) = self {
            bands.hit(slot, page, temperatures);
        }
    }

    pub fn insert(&mut self, slot: SlotId, page: PageId, temperatures: &Temperatures) {
        match self {
            Ranking::Heap(heat, _) => heat.insert(slot, page, temperatures),
            Ranking::Bands(bands) => bands.insert(slot, page, temperatures),
        }
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        match self {
            Ranking::Heap(heat, _) => heat.bytes(),
            Ranking::Bands(bands) => bands.bytes(),
        }
    }

    pub fn remove(&mut self, slot: SlotId) {
        match self {
            Ranking::Heap(heat, _) => heat.remove(slot),
            Ranking::Bands(bands) => bands.remove(slot),
        }
    }
}
