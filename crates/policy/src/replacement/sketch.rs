//! How often pages were used recently, in a few bits for each: a count-min sketch behind a
//! doorkeeper (Einziger, Friedman and Manes, "TinyLFU", ACM Transactions on Storage 2017).
//!
//! - Idea: the first use of a page sets bits of a Bloom filter, the doorkeeper; only further uses
//!   are counted, in four counters of 4 bits, of which the least counts. After a number of uses of
//!   ten times the capacity all counts are halved and the doorkeeper is emptied.
//! - State: the counters of a page lie in one block of 64 bytes, its bits of the doorkeeper in one
//!   word: two cache lines for a use.
//! - K1: an estimate is never below the uses since the last halving, up to 15 and the doorkeeper's.
//! - Cost: 6 to 12 bytes per page of the cache: sizes are powers of two.
//! - Not for: pages whose numbers share 32 bits of their hash: they are one to it.

use terrace_page::PageId;

/// Uses between two halvings, for each page of the cache.
const SAMPLE_PER_PAGE: u64 = 10;
const ROWS: usize = 4;
/// Counters of 4 bits in a word.
const COUNTERS_PER_WORD: u32 = 16;
/// A row has two words of a block.
const COUNTERS_PER_BLOCK: u32 = 2 * COUNTERS_PER_WORD;
/// Counters of a row for each page of the cache.
const COUNTERS_PER_PAGE: u64 = 2;
const COUNT_MAX: u64 = 15;
/// Bits of the doorkeeper for each page of the cache.
const DOOR_BITS_PER_PAGE: u64 = 16;
/// All counters of a word, halved: the bit that falls from one into the next is masked.
const HALVED: u64 = 0x7777_7777_7777_7777;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Block([u64; 2 * ROWS]);

/// Hashes a page's number.
#[must_use]
pub fn page_hash(page: PageId) -> u32 {
    let mixed = (page.0 ^ (page.0 >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31) as u32
}

/// The uses of pages, given by [`page_hash`].
pub struct FrequencySketch {
    blocks: Vec<Block>,
    door: Vec<u64>,
    uses: u64,
    sample: u64,
}

/// Where a page's counters and bits are.
struct Places {
    block: usize,
    /// Five bits for each row.
    counters: u32,
    word: usize,
    bits: u64,
}

impl FrequencySketch {
    /// A sketch for a cache of `capacity` pages.
    #[must_use]
    pub fn new(capacity: u32) -> FrequencySketch {
        let pages = u64::from(capacity).next_power_of_two();
        let blocks = (pages * COUNTERS_PER_PAGE / u64::from(COUNTERS_PER_BLOCK)).max(1);
        let words = (pages * DOOR_BITS_PER_PAGE / u64::from(u64::BITS)).max(1);
        FrequencySketch {
            blocks: vec![Block([0; 2 * ROWS]); blocks as usize],
            door: vec![0; words as usize],
            uses: 0,
            sample: SAMPLE_PER_PAGE * u64::from(capacity),
        }
    }

    /// The page of `hash` is used.
    #[inline]
    pub fn count(&mut self, hash: u32) {
        let places = self.places(hash);
        let word = &mut self.door[places.word];
        if *word & places.bits != places.bits {
            *word |= places.bits;
        } else {
            let block = &mut self.blocks[places.block].0;
            for row in 0..ROWS {
                let (word, shift) = counter(&places, row);
                let room = (block[word] >> shift) & COUNT_MAX != COUNT_MAX;
                block[word] += u64::from(room) << shift;
            }
        }
        self.uses += 1;
        if self.uses >= self.sample {
            self.age();
        }
    }

    /// How often the page of `hash` was used, about.
    #[must_use]
    #[inline]
    pub fn estimate(&self, hash: u32) -> u32 {
        let places = self.places(hash);
        let block = &self.blocks[places.block].0;
        let mut least = COUNT_MAX;
        for row in 0..ROWS {
            let (word, shift) = counter(&places, row);
            least = least.min((block[word] >> shift) & COUNT_MAX);
        }
        let at_the_door = self.door[places.word] & places.bits == places.bits;
        least as u32 + u32::from(at_the_door)
    }

    /// Bytes allocated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>() + self.door.capacity() * size_of::<u64>()
    }

    #[inline]
    fn places(&self, hash: u32) -> Places {
        let mixed = u64::from(hash).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mixed = mixed ^ (mixed >> 32);
        let again = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bit = |shift: u32| 1 << ((again >> shift) & 63);
        Places {
            block: (mixed as usize) & (self.blocks.len() - 1),
            counters: (again >> 44) as u32,
            word: (again >> 12) as usize & (self.door.len() - 1),
            bits: bit(0) | bit(6),
        }
    }

    #[cold]
    fn age(&mut self) {
        self.uses /= 2;
        for block in &mut self.blocks {
            for word in &mut block.0 {
                *word = (*word >> 1) & HALVED;
            }
        }
        self.door.fill(0);
    }
}

/// The word of the block and the shift of a row's counter.
#[inline]
fn counter(places: &Places, row: usize) -> (usize, u32) {
    let counter = (places.counters >> (5 * row)) & (COUNTERS_PER_BLOCK - 1);
    (2 * row + (counter / COUNTERS_PER_WORD) as usize, 4 * (counter % COUNTERS_PER_WORD))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn an_estimate_is_never_too_low_and_seldom_too_high() {
        let capacity = 1_000;
        let mut sketch = FrequencySketch::new(capacity);
        let mut uses: BTreeMap<u64, u32> = BTreeMap::new();
        let mut prng = fastrand::Rng::with_seed(3);
        for _ in 0..9_999 {
            let page = prng.u64(..20_000).min(prng.u64(..20_000)).min(prng.u64(..20_000));
            sketch.count(page_hash(PageId(page)));
            *uses.entry(page).or_default() += 1;
        }
        let mut above = 0;
        for (&page, &uses) in &uses {
            let estimate = sketch.estimate(page_hash(PageId(page)));
            assert!(estimate >= uses.min(16), "K1: page {page}: {estimate} for {uses}");
            above += estimate.saturating_sub(uses);
        }
        // Near the end of the sample, with seven pages for each that fits the cache.
        assert!((above as usize) < uses.len(), "{above} too many for {} pages", uses.len());
    }

    #[test]
    fn counts_are_halved_after_ten_uses_per_page() {
        let mut sketch = FrequencySketch::new(100);
        let hot = page_hash(PageId(7));
        (0..9).for_each(|_| sketch.count(hot));
        assert_eq!(sketch.estimate(hot), 9);
        (0..991).for_each(|page| sketch.count(page_hash(PageId(1_000 + page % 7))));
        // Eight beyond the door, halved; and the door is empty.
        assert_eq!(sketch.estimate(hot), 4);
        assert_eq!(sketch.estimate(page_hash(PageId(5))), 0);
    }

    #[test]
    fn counters_saturate() {
        let mut sketch = FrequencySketch::new(1_000);
        (0..40).for_each(|_| sketch.count(5));
        assert_eq!(sketch.estimate(5), 16);
    }
}
