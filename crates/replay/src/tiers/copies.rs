//! Which page has which slot, and what is in it: the books that all tiers of slots keep alike.
//!
//! - C1: a page has one slot at most, and a slot one page; both say so.
//! - C2: a page with a slot holds something there, one without holds nothing.
//! - Cost: 5 bytes for each page of the trace, 4 for each slot. What a page holds is one load, for
//!   memory policies that ask it of every frame.

use super::{Allocated, Held};
use terrace_page::SlotId;

/// No slot, and no page.
const NONE: u32 = u32::MAX;

/// The copies on flash.
pub struct Copies {
    /// The slot of each page, or `NONE`.
    slots: Vec<u32>,
    held: Vec<Held>,
    /// The page of each slot, or `NONE`.
    pages: Vec<u32>,
}

impl Copies {
    /// None, of pages below `pages_count`, in so many slots.
    pub fn new(pages_count: u32, slots_count: u32) -> Copies {
        Copies {
            slots: vec![NONE; pages_count as usize],
            held: vec![Held::Nothing; pages_count as usize],
            pages: vec![NONE; slots_count as usize],
        }
    }

    /// The slot of `page`.
    #[inline]
    pub fn slot(&self, page: u32) -> Option<SlotId> {
        let slot = self.slots[page as usize];
        (slot != NONE).then_some(SlotId(slot))
    }

    /// The page of `slot`.
    #[inline]
    pub fn page(&self, slot: SlotId) -> Option<u32> {
        let page = self.pages[slot.0 as usize];
        (page != NONE).then_some(page)
    }

    /// What there is of `page`.
    #[inline]
    pub fn held(&self, page: u32) -> Held {
        self.held[page as usize]
    }

    /// `slot` has a copy of `page`, and no other page or slot has either any more.
    pub fn put(&mut self, page: u32, slot: SlotId, held: Held) {
        assert_ne!(held, Held::Nothing);
        if self.slots[page as usize] != slot.0 {
            self.forget(page);
            self.empty(slot);
            self.slots[page as usize] = slot.0;
            self.pages[slot.0 as usize] = page;
        }
        self.held[page as usize] = held;
    }

    /// The copy of `page` is another one.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn set(&mut self, page: u32, held: Held) {
        assert_ne!(held, Held::Nothing);
        assert_ne!(self.slots[page as usize], NONE, "page {page} has no slot");
        self.held[page as usize] = held;
    }

    /// `page` has no slot any more. Which it had.
    pub fn forget(&mut self, page: u32) -> Option<SlotId> {
        let slot = std::mem::replace(&mut self.slots[page as usize], NONE);
        self.held[page as usize] = Held::Nothing;
        let place = self.pages.get_mut(slot as usize)?;
        *place = NONE;
        Some(SlotId(slot))
    }

    /// `slot` has no page any more. Which it had.
    pub fn empty(&mut self, slot: SlotId) -> Option<u32> {
        let page = self.page(slot)?;
        self.forget(page);
        Some(page)
    }
}

impl Allocated for Copies {
    fn bytes(&self) -> usize {
        4 * (self.slots.capacity() + self.pages.capacity()) + self.held.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn copies_agree_with_a_map() {
        const KINDS: [Held; 3] = [Held::Stale, Held::Clean, Held::Dirty];
        for seed in 0..100 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let (pages, slots) = (prng.u32(1..20), prng.u32(1..12));
            let mut copies = Copies::new(pages, slots);
            let mut model: BTreeMap<u32, (u32, Held)> = BTreeMap::new();
            for step in 0..400 {
                let (page, slot) = (prng.u32(..pages), prng.u32(..slots));
                let held = KINDS[prng.usize(..KINDS.len())];
                match prng.u8(..4) {
                    0 => {
                        copies.put(page, SlotId(slot), held);
                        model.retain(|_, copy| copy.0 != slot);
                        model.insert(page, (slot, held));
                    }
                    1 => {
                        if let Some(copy) = model.get_mut(&page) {
                            copy.1 = held;
                            copies.set(page, held);
                        }
                    }
                    2 => {
                        let had = model.remove(&page).map(|copy| SlotId(copy.0));
                        assert_eq!(copies.forget(page), had, "seed {seed} step {step}");
                    }
                    _ => {
                        let had = model.iter().find(|row| row.1.0 == slot).map(|row| *row.0);
                        model.retain(|_, copy| copy.0 != slot);
                        assert_eq!(copies.empty(SlotId(slot)), had, "seed {seed} step {step}");
                    }
                }
                for page in 0..pages {
                    let expected = model.get(&page);
                    assert_eq!(copies.slot(page), expected.map(|copy| SlotId(copy.0)));
                    let held = expected.map_or(Held::Nothing, |copy| copy.1);
                    assert_eq!(copies.held(page), held, "seed {seed} step {step}");
                }
                for slot in 0..slots {
                    let page = model.iter().find(|row| row.1.0 == slot).map(|row| *row.0);
                    assert_eq!(copies.page(SlotId(slot)), page, "seed {seed} step {step}");
                }
            }
        }
    }
}
