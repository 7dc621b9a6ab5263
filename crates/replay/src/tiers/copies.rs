//! Which page has which slot, and what is in it.
//!
//! - C1: a page has one slot at most. That a slot has one page the table of slots says.
//! - C2: a page with a slot holds something there, one without holds nothing.
//! - Cost: 4 bytes for each page of the trace. What a page holds is one load, for memory policies
//!   that ask it of every frame.

use super::{Allocated, Held};
use terrace_page::SlotId;

/// Bits of a page's word that say what it holds; the slot is above them.
const HELD_BITS: u32 = 2;
/// The most slots that can be distinguished.
const SLOTS_MAX: u32 = 1 << (u32::BITS - HELD_BITS);

/// The copies on flash.
pub struct Copies(Vec<u32>);

impl Copies {
    /// No copies, of pages below `pages_count`, in the given number of slots.
    ///
    /// # Panics
    ///
    /// If there are more slots than can be distinguished.
    pub fn new(pages_count: u32, slots_count: u32) -> Copies {
        assert!(slots_count <= SLOTS_MAX, "a tier has 2^30 slots at most");
        Copies(vec![0; pages_count as usize])
    }

    /// The slot of `page`.
    #[inline]
    pub fn slot(&self, page: u32) -> Option<SlotId> {
        let word = self.0[page as usize];
        (word != 0).then_some(SlotId(word >> HELD_BITS))
    }

    /// What there is of `page`.
    #[inline]
    pub fn held(&self, page: u32) -> Held {
        match self.0[page as usize] % (1 << HELD_BITS) {
            0 => Held::Nothing,
            1 => Held::Stale,
            2 => Held::Clean,
            _ => Held::Dirty,
        }
    }

    /// `slot` has a copy of `page`, which has no other slot any more.
    #[inline]
    pub fn put(&mut self, page: u32, slot: SlotId, held: Held) {
        assert_ne!(held, Held::Nothing);
        self.0[page as usize] = slot.0 << HELD_BITS | held as u32;
    }

    /// The copy of `page` is another one.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[inline]
    pub fn set(&mut self, page: u32, held: Held) {
        let slot = self.slot(page).expect("a page that has a slot");
        self.put(page, slot, held);
    }

    /// `page` has no slot any more.
    #[inline]
    pub fn forget(&mut self, page: u32) {
        self.0[page as usize] = 0;
    }
}

impl Allocated for Copies {
    fn bytes(&self) -> usize {
        4 * self.0.capacity()
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
            let (pages, slots) = (prng.u32(1..20), [12, SLOTS_MAX][prng.usize(..2)]);
            let mut copies = Copies::new(pages, slots);
            let mut model: BTreeMap<u32, (u32, Held)> = BTreeMap::new();
            for step in 0..400 {
                let (page, slot) = (prng.u32(..pages), prng.u32(..slots));
                let held = KINDS[prng.usize(..KINDS.len())];
                match prng.u8(..3) {
                    0 => {
                        copies.put(page, SlotId(slot), held);
                        model.insert(page, (slot, held));
                    }
                    1 => {
                        if let Some(copy) = model.get_mut(&page) {
                            copy.1 = held;
                            copies.set(page, held);
                        }
                    }
                    _ => {
                        copies.forget(page);
                        model.remove(&page);
                    }
                }
                for page in 0..pages {
                    let expected = model.get(&page);
                    let slot = expected.map(|copy| SlotId(copy.0));
                    assert_eq!(copies.slot(page), slot, "seed {seed} step {step}");
                    let held = expected.map_or(Held::Nothing, |copy| copy.1);
                    assert_eq!(copies.held(page), held, "seed {seed} step {step}");
                }
            }
        }
    }
}
