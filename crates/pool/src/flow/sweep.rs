//! Sweeps over home: flash collects changed pages, and all of them go home together, in the order
//! in which they lie there (HeteroDrive: Kim et al., IWSSPS 2009) [S0 5; S4 4.4, 6].
//!
//! ```text
//!          dirty > lambda * S: list, sorted             the list ends
//! (idle) ------------------------------> (sweeping) ------------------> (idle)
//!                                          claim the next page of the list, and its neighbours
//! ```
//!
//! - Idea: the more pages are collected, the nearer each is to the next: seeks get short, and runs
//!   of neighbours long.
//! - W1: the list is of the pages that were dirty when it was made. One that was changed since, or
//!   went home otherwise, is passed over.
//! - W2: the list has a bound, set at the opening: what it costs is known, and charged. What does
//!   not fit goes with the next sweep.
//! - Not for: a home without seeks; a cleaner by age brings each page home later, and less often.

use terrace_page::PageId;
use terrace_policy::Cleaning;

/// At least one of so many slots has a place in the list.
const SLOTS_PER_PLACE: u32 = 8;

/// The pages of a sweep that are still to go home.
pub(crate) struct Sweep {
    /// The next is the last.
    pages: Vec<u32>,
    places: usize,
}

impl Sweep {
    /// No sweep yet, of a tier with `slots`, if that is how it is cleaned, when more than the share
    /// `lambda` of them is dirty.
    pub fn of(cleaning: Cleaning, slots: u32, lambda: f64) -> Sweep {
        match cleaning {
            Cleaning::Sweeps => Sweep::new(slots, (f64::from(slots) * lambda) as u32),
            _ => Sweep { pages: Vec::new(), places: 0 },
        }
    }

    /// No sweep, of a tier with `slots`, of which up to `dirty` are dirty when one begins.
    fn new(slots: u32, dirty: u32) -> Sweep {
        let places = dirty.max(slots / SLOTS_PER_PLACE).min(slots) as usize + 1;
        Sweep { pages: Vec::with_capacity(places), places }
    }

    pub fn is_over(&self) -> bool {
        self.pages.is_empty()
    }

    /// Pages that a list has room for yet.
    pub fn room(&self) -> usize {
        self.places - self.pages.len()
    }

    /// `pages` are to go home.
    pub fn add(&mut self, pages: impl Iterator<Item = PageId>) {
        let numbers = pages.map(|page| u32::try_from(page.0).expect("slots keep 32 bits"));
        self.pages.extend(numbers.take(self.room()));
    }

    /// All were told: the sweep begins.
    pub fn begin(&mut self) {
        self.pages.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// The next page.
    pub fn next(&mut self) -> Option<PageId> {
        self.pages.pop().map(|page| PageId(u64::from(page)))
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.pages.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use terrace_rt::Prng;

    #[test]
    fn a_sweep_agrees_with_a_sorted_set() {
        for seed in 0..200 {
            let mut prng = Prng::from_seed(seed);
            let slots = 1 + prng.below(200) as u32;
            let dirty = prng.below(u64::from(slots) + 1) as u32;
            let mut sweep = Sweep::new(slots, dirty);
            let bytes = sweep.bytes();
            assert!(sweep.room() > dirty as usize, "seed {seed}: room for what is dirty");
            for _ in 0..5 {
                assert!(sweep.is_over());
                let mut model = BTreeSet::new();
                for _ in 0..prng.below(300) {
                    let page = prng.below(1 << 30);
                    if sweep.room() > 0 && model.insert(page) {
                        sweep.add([PageId(page)].into_iter());
                    }
                }
                sweep.begin();
                for page in model {
                    assert!(!sweep.is_over());
                    assert_eq!(sweep.next(), Some(PageId(page)), "seed {seed}");
                }
                assert_eq!(sweep.next(), None);
            }
            assert_eq!(sweep.bytes(), bytes, "W2: the list does not grow");
        }
    }
}
