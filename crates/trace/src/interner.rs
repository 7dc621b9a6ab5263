//! Dense numbers for pages, in the order of their first appearance: what a simulator indexes its
//! tables with.
//!
//! - Idea: a list of the keys, and an open table of their numbers with linear probing. The bits of
//!   a cell that the number does not need hold bits of the key's hash, so that nearly every key
//!   that is compared is the one that is sought.
//! - N1: `keys[n]` is the page with the number `n`, and no page is there twice.
//! - N2: every number is in exactly one cell, and no cell between that and the home of its key is
//!   vacant. At most three quarters of the cells are taken.
//! - N3: at most 27 bytes a page plus one piece of the list, at any moment: 16 for the key, and
//!   right after the table has doubled 10.7 for its cells. The old table is freed before the new is
//!   made, which is filled from the list; the list grows by pieces and is never moved.
//! - Cost: a lookup is one cache line of the table and one of the list.
//! - Not for: forgetting pages.

use crate::pages::PageKey;

/// Keys in a piece of the list.
const PIECE_KEYS: usize = 1 << 14;
const PIECE_SHIFT: u32 = PIECE_KEYS.trailing_zeros();
/// Cells of the smallest table.
const CELLS_MIN: usize = 1 << 10;
const VACANT: u32 = u32::MAX;
/// More pages cannot be numbered.
pub const PAGES_MAX: usize = 3 << 30;

const _: () = assert!(size_of::<PageKey>() == 16);

/// The numbers of pages.
pub struct Interner {
    /// Pieces of equal capacity; all but the last are full.
    keys: Vec<Vec<PageKey>>,
    len: usize,
    cells: Vec<u32>,
    /// Of a cell, the bits of the number.
    number_mask: u32,
}

impl Default for Interner {
    fn default() -> Interner {
        Interner::new()
    }
}

impl Interner {
    /// No pages yet.
    pub fn new() -> Interner {
        let cells = vec![VACANT; CELLS_MIN];
        Interner { keys: Vec::new(), len: 0, cells, number_mask: CELLS_MIN as u32 - 1 }
    }

    /// Pages that have a number.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no page has one.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that are allocated.
    pub fn allocated_bytes(&self) -> usize {
        let pieces: usize = self.keys.iter().map(|piece| piece.capacity() * 16).sum();
        pieces + self.keys.capacity() * size_of::<Vec<PageKey>>() + self.cells.capacity() * 4
    }

    /// The page with the number `number`.
    ///
    /// # Panics
    ///
    /// No page has it.
    pub fn page(&self, number: u32) -> PageKey {
        assert!((number as usize) < self.len, "page numbers come from this interner");
        self.key(number)
    }

    /// The number of `page`, which it is given unless it has one.
    ///
    /// # Panics
    ///
    /// More than [`PAGES_MAX`] pages.
    #[inline]
    pub fn intern(&mut self, page: PageKey) -> u32 {
        let hash = hash(page);
        match self.find(page, hash) {
            Ok(number) => number,
            Err(cell) => self.insert(page, hash, cell),
        }
    }

    /// The number of `page`, if it has one.
    pub fn get(&self, page: PageKey) -> Option<u32> {
        self.find(page, hash(page)).ok()
    }

    /// The number of `page`, or the vacant cell that it belongs in.
    #[inline]
    fn find(&self, page: PageKey, hash: u64) -> Result<u32, usize> {
        let mask = self.cells.len() - 1;
        let tag = hash as u32 & !self.number_mask;
        let mut at = (hash >> 32) as usize & mask;
        // Ends at a vacant cell: N2.
        loop {
            let cell = self.cells[at];
            if cell == VACANT {
                return Err(at);
            }
            if cell & !self.number_mask == tag {
                let number = cell & self.number_mask;
                if self.key(number) == page {
                    return Ok(number);
                }
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    fn key(&self, number: u32) -> PageKey {
        self.keys[(number >> PIECE_SHIFT) as usize][number as usize % PIECE_KEYS]
    }

    #[cold]
    #[inline(never)]
    fn insert(&mut self, page: PageKey, hash: u64, mut cell: usize) -> u32 {
        assert!(self.len < PAGES_MAX, "more than {PAGES_MAX} distinct pages");
        if (self.len + 1) * 4 > self.cells.len() * 3 {
            self.grow();
            cell = self.find(page, hash).expect_err("a page that has no number yet");
        }
        let number = self.len as u32;
        if self.len.is_multiple_of(PIECE_KEYS) {
            self.keys.push(Vec::with_capacity(PIECE_KEYS));
        }
        self.keys.last_mut().expect("a piece with room").push(page);
        self.cells[cell] = number | (hash as u32 & !self.number_mask);
        self.len += 1;
        number
    }

    /// Doubles the table: N3.
    fn grow(&mut self) {
        let cells = self.cells.len() * 2;
        self.cells = Vec::new();
        self.cells = vec![VACANT; cells];
        self.number_mask = (cells - 1) as u32;
        let mask = cells - 1;
        for (number, page) in self.keys.iter().flatten().enumerate() {
            let hash = hash(*page);
            let tag = hash as u32 & !self.number_mask;
            let mut at = (hash >> 32) as usize & mask;
            while self.cells[at] != VACANT {
                at = (at + 1) & mask;
            }
            self.cells[at] = number as u32 | tag;
        }
    }

    /// Verifies N1 and N2.
    ///
    /// # Panics
    ///
    /// They do not hold.
    pub fn check(&self) {
        assert_eq!(self.keys.iter().map(Vec::len).sum::<usize>(), self.len, "N1");
        assert!(self.len * 4 <= self.cells.len() * 3, "N2: too full");
        let taken = self.cells.iter().filter(|cell| **cell != VACANT).count();
        assert_eq!(taken, self.len, "N2: a number is in one cell");
        for number in 0..self.len as u32 {
            assert_eq!(self.get(self.page(number)), Some(number), "N1, N2");
        }
    }
}

/// Mixes all bits of a key into all of a hash: a multiplication folded onto itself, twice.
#[inline]
fn hash(page: PageKey) -> u64 {
    const A: u64 = 0x9E37_79B9_7F4A_7C15;
    const B: u64 = 0xD6E8_FEB8_6659_FD93;
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    };
    fold(fold(page.number ^ A, B ^ u64::from(page.file)) ^ u64::from(page.file), A)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_interner_agrees_with_a_map() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut interner = Interner::new();
            let mut model = BTreeMap::new();
            let (files, range) = (1 << random.u32(0..8), 1_u64 << random.u32(1..64));
            for _ in 0..20_000 {
                let page = PageKey { file: random.u32(..files), number: random.u64(..range) };
                let expected = model.len() as u32;
                assert_eq!(interner.get(page), model.get(&page).copied(), "seed {seed}");
                let expected = *model.entry(page).or_insert(expected);
                assert_eq!(interner.intern(page), expected, "seed {seed}");
                assert_eq!(interner.page(expected), page);
            }
            assert_eq!(interner.len(), model.len());
            interner.check();
        }
    }

    #[test]
    fn neighbours_and_multiples_spread() {
        for step in [1_u64, 8, 512, 8192, 1 << 20, 1 << 33] {
            let mut interner = Interner::new();
            for number in 0..100_000 {
                interner.intern(PageKey { file: 1, number: number * step });
            }
            let mask = interner.cells.len() - 1;
            let mut probes = 0;
            for (number, page) in interner.keys.iter().flatten().enumerate() {
                let mut at = (hash(*page) >> 32) as usize & mask;
                while interner.cells[at] & interner.number_mask != number as u32 {
                    at = (at + 1) & mask;
                    probes += 1;
                }
            }
            assert!(probes < 150_000, "step {step}: {probes} probes beyond the first");
        }
    }

    #[test]
    fn a_page_takes_less_than_32_bytes_at_any_moment() {
        let mut interner = Interner::new();
        for number in 0..3_000_000 {
            interner.intern(PageKey { file: 0, number });
            let bytes = interner.allocated_bytes();
            if number > 100_000 {
                assert!(bytes < 32 * (number as usize + 1), "{bytes} bytes for {number} pages");
            }
        }
    }
}
