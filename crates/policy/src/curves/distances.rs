//! LRU stack distances, exactly: for each request, how many other pages were used since its page
//! was used last (Mattson et al. 1970; one pass, as Olken 1981).
//!
//! - Idea: each page holds one place, that of its last use; places are taken in order. The distance
//!   is the number of places taken after the page's own. When places run out, or few of many are
//!   taken, all move together.
//!
//! ```text
//! bits    one per place: taken or not
//! blocks  taken places per 512 bits          a distance: bits of a block, up to 63 blocks,
//! chunks  taken places per 64 blocks         and a Fenwick tree over chunks
//! ```
//!
//! - D1: the number of taken places is the number of pages seen.
//! - Cost: about 12 bytes per page; a request costs O(log of pages / 32768) and a few vector sums.
//! - Not for: policies other than LRU, which are no stack or have no such number.

/// A page that was not used before.
pub const FIRST_USE: u32 = u32::MAX;

const WORD_BITS: usize = 64;
const BLOCK_WORDS: usize = 8;
const BLOCK_BITS: usize = WORD_BITS * BLOCK_WORDS;
const CHUNK_BLOCKS: usize = 64;
const CHUNK_BITS: usize = BLOCK_BITS * CHUNK_BLOCKS;
/// Places for each page: a half is free after each move.
const PLACES_PER_PAGE: usize = 2;
/// At least one in this number of places is taken, where there are more than `PLACES_MIN`: counting
/// goes over all places between two uses of a page.
const SPREAD_MAX: usize = 8;
const PLACES_MIN: usize = 4096;

/// The places of all pages.
pub struct Distances {
    /// The place of each page, or `FIRST_USE`.
    places: Vec<u32>,
    words: Vec<u64>,
    blocks: Vec<u16>,
    /// A Fenwick tree, from 1 on.
    chunks: Vec<u32>,
    next: usize,
    /// When `next` is here, all move together.
    end: usize,
    taken: u32,
}

impl Distances {
    /// For pages below `pages_count`.
    ///
    /// # Panics
    ///
    /// If places do not fit 32 bits.
    #[must_use]
    pub fn new(pages_count: u32) -> Distances {
        let chunks = (PLACES_PER_PAGE * pages_count as usize).div_ceil(CHUNK_BITS) + 1;
        assert!(chunks * CHUNK_BITS < FIRST_USE as usize, "places are 32 bits wide");
        Distances {
            places: vec![FIRST_USE; pages_count as usize],
            words: vec![0; chunks * CHUNK_BITS / WORD_BITS],
            blocks: vec![0; chunks * CHUNK_BLOCKS],
            chunks: vec![0; chunks + 1],
            next: 0,
            end: PLACES_MIN,
            taken: 0,
        }
    }

    /// `page` is used: how many other pages were since its last use, or [`FIRST_USE`].
    #[inline]
    pub fn use_page(&mut self, page: u32) -> u32 {
        if self.next == self.end {
            self.move_together();
        }
        let (place, chunk) = (self.places[page as usize], self.next / CHUNK_BITS);
        let mut distance = FIRST_USE;
        if place == FIRST_USE {
            self.taken += 1;
            self.change_chunk(chunk, 1);
        } else {
            let place = place as usize;
            distance = self.taken - self.taken_up_to(place);
            self.words[place / WORD_BITS] &= !(1 << (place % WORD_BITS));
            self.blocks[place / BLOCK_BITS] -= 1;
            // Mostly the new place is in the same chunk.
            if place / CHUNK_BITS != chunk {
                self.change_chunk(place / CHUNK_BITS, u32::MAX);
                self.change_chunk(chunk, 1);
            }
        }
        self.take(page);
        distance
    }

    /// Bytes allocated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        4 * (self.places.capacity() + self.chunks.capacity())
            + 8 * self.words.capacity()
            + 2 * self.blocks.capacity()
    }

    /// Forgets `page`, which was used: as if it had never been.
    pub fn forget(&mut self, page: u32) {
        let place = std::mem::replace(&mut self.places[page as usize], FIRST_USE) as usize;
        self.words[place / WORD_BITS] &= !(1 << (place % WORD_BITS));
        self.blocks[place / BLOCK_BITS] -= 1;
        self.change_chunk(place / CHUNK_BITS, u32::MAX);
        self.taken -= 1;
    }

    /// Gives `page` the next place, which its chunk counts already.
    #[inline]
    fn take(&mut self, page: u32) {
        let place = self.next;
        self.next += 1;
        self.places[page as usize] = place as u32;
        self.words[place / WORD_BITS] |= 1 << (place % WORD_BITS);
        self.blocks[place / BLOCK_BITS] += 1;
    }

    /// Adds `change` modulo 2^32.
    #[inline]
    fn change_chunk(&mut self, chunk: usize, change: u32) {
        let mut at = chunk + 1;
        while at < self.chunks.len() {
            self.chunks[at] = self.chunks[at].wrapping_add(change);
            at += at & at.wrapping_neg();
        }
    }

    /// Taken places up to `place` and it.
    #[inline]
    fn taken_up_to(&self, place: usize) -> u32 {
        let (chunk, block, word) = (place / CHUNK_BITS, place / BLOCK_BITS, place / WORD_BITS);
        let mut sum = (self.words[word] << (WORD_BITS - 1 - place % WORD_BITS)).count_ones();
        let words = &self.words[block * BLOCK_WORDS..word];
        sum += words.iter().map(|word| word.count_ones()).sum::<u32>();
        let blocks = &self.blocks[chunk * CHUNK_BLOCKS..block];
        sum += blocks.iter().map(|&count| u32::from(count)).sum::<u32>();
        let mut at = chunk;
        while at > 0 {
            sum = sum.wrapping_add(self.chunks[at]);
            at &= at - 1;
        }
        sum
    }

    /// Moves all taken places to the front, in order.
    #[cold]
    fn move_together(&mut self) {
        let ranks = self.places.iter().map(|&place| match place {
            FIRST_USE => FIRST_USE,
            place => self.taken_up_to(place as usize) - 1,
        });
        self.places = ranks.collect();
        self.words[..self.next.div_ceil(WORD_BITS)].fill(0);
        self.blocks[..self.next.div_ceil(BLOCK_BITS)].fill(0);
        self.chunks.fill(0);
        self.next = self.taken as usize;
        let all = self.words.len() * WORD_BITS;
        self.end = all.min(PLACES_MIN.max(SPREAD_MAX * self.next));
        for place in 0..self.next {
            self.words[place / WORD_BITS] |= 1 << (place % WORD_BITS);
            self.blocks[place / BLOCK_BITS] += 1;
            self.change_chunk(place / CHUNK_BITS, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_agree_with_a_stack() {
        for seed in 0..20 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let pages = prng.u32(1..400);
            let mut distances = Distances::new(pages);
            // Enough requests that places run out.
            let mut stack: Vec<u32> = Vec::new();
            for step in 0..70_000 {
                let page = prng.u32(..pages).min(prng.u32(..pages));
                let at = stack.iter().rev().position(|&other| other == page);
                if prng.u16(..) == 0 && at.is_some() {
                    distances.forget(page);
                    stack.retain(|&other| other != page);
                    continue;
                }
                let got = distances.use_page(page);
                assert_eq!(got, at.map_or(FIRST_USE, |at| at as u32), "{seed} step {step}");
                if let Some(at) = at {
                    stack.remove(stack.len() - 1 - at);
                }
                stack.push(page);
                assert_eq!(distances.taken as usize, stack.len());
            }
        }
    }
}
