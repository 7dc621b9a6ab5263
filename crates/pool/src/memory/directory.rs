//! Where a page is: a table from page to place, for one partition.
//!
//! A place is a number: frames of the partition first, then its slots. A page in memory is found
//! at its frame, whether or not it has a flash copy (the frame knows the slot); another one at its
//! slot.
//!
//! ```text
//! entry: | tag, 8 bits of the page's hash | place, 24 bits |      all ones: empty
//! ```
//!
//! - D1: open addressing with linear probing; a page stands between its first entry and the next
//!   empty one. Removal shifts entries back, so there are no tombstones.
//! - D2: changes happen under the partition's lock. Lookups for hits take no lock: they may miss an
//!   entry that is being shifted, or find one that is gone; the caller verifies what it finds
//!   under the frame's latch, and looks again under the lock before it believes in a miss.
//! - Cost: 5 bytes per place.

use std::sync::atomic::{AtomicU32, Ordering};

use terrace_page::PageId;

const PLACE_BITS: u32 = 24;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;
const EMPTY: u32 = u32::MAX;

/// A page's hash: its bits choose partition, first entry and tag.
#[derive(Clone, Copy)]
pub(crate) struct PageHash(u64);

impl PageHash {
    /// Two rounds of multiply and fold: enough to spread runs of page numbers.
    #[inline]
    pub fn of(page: PageId) -> PageHash {
        let mixed = (page.0 ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd6e8_feb8_6659_fd93);
        PageHash((mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    /// A number below `partitions`.
    #[inline]
    pub fn partition(self, partitions: usize) -> usize {
        (((self.0 >> 40) * partitions as u64) >> 24) as usize
    }

    #[inline]
    fn first(self, entries: usize) -> usize {
        (((self.0 & u64::from(u32::MAX)) * entries as u64) >> 32) as usize
    }

    /// Bits that neither choose the partition nor the first entry.
    #[inline]
    fn tag(self) -> u32 {
        ((self.0 >> 32) as u32 & 0xff) << PLACE_BITS
    }
}

/// The table. See the module.
pub(crate) struct Directory {
    entries: Box<[AtomicU32]>,
}

impl Directory {
    /// Entries for `places` places: a load of four fifths.
    pub fn entries_for(places: u32) -> usize {
        (places as usize * 5).div_ceil(4) + 1
    }

    pub fn new(places: u32) -> Directory {
        assert!(places < PLACE_MASK, "a tag and a place share 32 bits");
        let entries = (0..Directory::entries_for(places)).map(|_| AtomicU32::new(EMPTY));
        Directory { entries: entries.collect() }
    }

    /// The place with the page's tag that `is` the page's.
    #[inline]
    pub fn find(&self, hash: PageHash, is: impl Fn(u32) -> bool) -> Option<u32> {
        let (tag, mut at) = (hash.tag(), hash.first(self.entries.len()));
        for _ in 0..self.entries.len() {
            let entry = self.entries[at].load(Ordering::Relaxed);
            if entry == EMPTY {
                return None;
            }
            if entry & !PLACE_MASK == tag && is(entry & PLACE_MASK) {
                return Some(entry & PLACE_MASK);
            }
            at = self.next(at);
        }
        None
    }

    /// Adds a page that is not in the table.
    pub fn insert(&self, hash: PageHash, place: u32) {
        let mut at = hash.first(self.entries.len());
        for _ in 0..self.entries.len() {
            if self.entries[at].load(Ordering::Relaxed) == EMPTY {
                self.entries[at].store(hash.tag() | place, Ordering::Relaxed);
                return;
            }
            at = self.next(at);
        }
        unreachable!("there are more entries than places");
    }

    /// Adds a page unless some place with its tag `is` the page's already: then that place.
    pub fn insert_new(&self, hash: PageHash, place: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let (tag, mut at) = (hash.tag(), hash.first(self.entries.len()));
        for _ in 0..self.entries.len() {
            let entry = self.entries[at].load(Ordering::Relaxed);
            if entry == EMPTY {
                self.entries[at].store(tag | place, Ordering::Relaxed);
                return None;
            }
            if entry & !PLACE_MASK == tag && is(entry & PLACE_MASK) {
                return Some(entry & PLACE_MASK);
            }
            at = self.next(at);
        }
        unreachable!("there are more entries than places");
    }

    /// Looks at the entry where a search for the page begins, so that it is in the cache when that
    /// search comes. Many such looks wait for memory together. Returns what is there, for the
    /// compiler to keep the look.
    #[inline]
    pub fn peek(&self, hash: PageHash) -> u32 {
        self.entries[hash.first(self.entries.len())].load(Ordering::Relaxed)
    }

    /// The page at place `from` is now at `to`.
    pub fn replace(&self, hash: PageHash, from: u32, to: u32) {
        let at = self.position(hash, from);
        self.entries[at].store(hash.tag() | to, Ordering::Relaxed);
    }

    /// Removes the page at `place`. `hash_at` tells the hash of the page at a place in the table.
    pub fn remove(&self, hash: PageHash, place: u32, hash_at: impl Fn(u32) -> PageHash) {
        let count = self.entries.len();
        let mut hole = self.position(hash, place);
        let mut at = self.next(hole);
        for _ in 0..count {
            let entry = self.entries[at].load(Ordering::Relaxed);
            if entry == EMPTY {
                break;
            }
            // An entry may move back to the hole if its first entry is not after the hole.
            let first = hash_at(entry & PLACE_MASK).first(count);
            let from_first = (at + count - first) % count;
            let from_hole = (at + count - hole) % count;
            if from_first >= from_hole {
                self.entries[hole].store(entry, Ordering::Relaxed);
                hole = at;
            }
            at = self.next(at);
        }
        self.entries[hole].store(EMPTY, Ordering::Relaxed);
    }

    fn position(&self, hash: PageHash, place: u32) -> usize {
        let wanted = hash.tag() | place;
        let mut at = hash.first(self.entries.len());
        for _ in 0..self.entries.len() {
            if self.entries[at].load(Ordering::Relaxed) == wanted {
                return at;
            }
            at = self.next(at);
        }
        panic!("place {place} is not in the directory");
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() { 0 } else { at + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use terrace_rt::Prng;

    #[test]
    fn the_directory_agrees_with_a_map() {
        const PLACES: u32 = 60;
        for seed in 0..100 {
            let mut prng = Prng::from_seed(seed);
            let directory = Directory::new(PLACES);
            let mut page_at: BTreeMap<u32, u64> = BTreeMap::new();
            for step in 0..600 {
                let place = prng.below(u64::from(PLACES)) as u32;
                let page = prng.below(200);
                let known = page_at.iter().find(|row| *row.1 == page).map(|row| *row.0);
                let hash = PageHash::of(PageId(page));
                match (prng.below(3), known, page_at.contains_key(&place)) {
                    (0, None, false) => {
                        directory.insert(hash, place);
                        page_at.insert(place, page);
                    }
                    (1, Some(at), _) => {
                        directory.remove(hash, at, |other| PageHash::of(PageId(page_at[&other])));
                        page_at.remove(&at);
                    }
                    (2, Some(at), false) => {
                        directory.replace(hash, at, place);
                        page_at.remove(&at);
                        page_at.insert(place, page);
                    }
                    _ => {}
                }
                let known = page_at.iter().find(|row| *row.1 == page).map(|row| *row.0);
                let found = directory.find(hash, |at| page_at.get(&at) == Some(&page));
                assert_eq!(found, known, "seed {seed} step {step}");
            }
        }
    }
}
