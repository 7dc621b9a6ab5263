//! The way down through an inner node that no latch holds still.
//!
//! An inner node is read by every descent and changed by few: a latch on it would be two writes to
//! a cache line that all threads want. So a descent reads it word by word, as atomics, and asks the
//! latch afterwards whether a writer has changed it (optimistic lock coupling, Leis et al., DaMoN
//! 2016).
//!
//! - Y1: the words may be those of half a change, or of another page: every offset is checked, and
//!   what comes out is used only after the latch has said that nothing was changed.
//! - Y2: fences are not looked at. The node at the end of the descent is latched and checked by its
//!   own, so the way to it is a hint.
//! - Y3: finds the same child as `Node::child_of` and `Node::child_below`.

use std::cmp::Ordering;

use terrace_page::{PAGE_SIZE, PageId, PageKind};

use super::descend::Seek;
use super::node::{
    COUNT_AT, FIRST_CHILD_AT, INNER_CELL, LEVEL_MAX, LOWER_LEN_AT, NODE_HEADER, SLOT, SLOTS_AT_AT,
    TREE_AT, rank, slot_key_len, slot_offset, slot_rank, slots_from,
};
use super::short::first_eight;

const _: () = assert!(TREE_AT.is_multiple_of(8) && COUNT_AT == TREE_AT + 4);
const _: () = assert!(LOWER_LEN_AT.is_multiple_of(8) && SLOTS_AT_AT == LOWER_LEN_AT + 6);
const _: () = assert!(FIRST_CHILD_AT.is_multiple_of(8) && SLOT == 8);

/// One step down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// Level of the inner node.
    pub(super) level: u8,
    /// The child to go to.
    pub(super) child: PageId,
}

impl Way {
    /// Where `seek` goes from the inner node of `tree` whose `index`th eight bytes `word` gives.
    /// `None`: the page is no inner node of `tree`.
    #[inline]
    pub(super) fn through(word: impl Fn(usize) -> u64, tree: u32, seek: Seek<'_>) -> Option<Way> {
        let (head, counts, lens) = (word(0), word(TREE_AT / 8), word(LOWER_LEN_AT / 8));
        let (kind, level) = ((head >> 32) as u16, (head >> 48) as u8);
        if kind != PageKind::Inner as u16 || level == 0 || level > LEVEL_MAX {
            return None;
        }
        let part = |word: u64, at: u32| usize::from((word >> (16 * at)) as u16);
        let (count, slots_at) = (part(counts, 2), part(lens, 3));
        let prefix_at = NODE_HEADER + part(lens, 0) + part(lens, 1);
        let prefix_len = part(lens, 2);
        let fits = prefix_at + prefix_len <= slots_at && slots_at + SLOT * count <= PAGE_SIZE;
        if counts as u32 != tree || !fits || !slots_at.is_multiple_of(8) {
            return None;
        }
        let node = Slots { word: &word, first: slots_at / 8, count };
        let child = match seek {
            Seek::Last => count,
            Seek::Key(key) => {
                let (index, found) = node.search(prefix_at, prefix_len, key);
                index + usize::from(found)
            }
            Seek::Below(key) => node.search(prefix_at, prefix_len, key).0,
        };
        let child = match child.checked_sub(1) {
            None => word(FIRST_CHILD_AT / 8),
            Some(slot) => unaligned(&word, slot_offset(node.slot(slot))),
        };
        (child != 0).then_some(Way { level, child: PageId(child) })
    }
}

/// The slots of a node.
struct Slots<'w, W> {
    word: &'w W,
    /// Index of the first slot's word.
    first: usize,
    count: usize,
}

impl<W: Fn(usize) -> u64> Slots<'_, W> {
    #[inline]
    fn slot(&self, index: usize) -> u64 {
        (self.word)(self.first + index)
    }

    /// How many separators are below `key`, and whether the next one is `key` itself.
    #[inline]
    fn search(&self, prefix_at: usize, prefix_len: usize, key: &[u8]) -> (usize, bool) {
        match self.compare_prefix(prefix_at, prefix_len, key) {
            Ordering::Equal => {}
            Ordering::Greater => return (0, false),
            Ordering::Less => return (self.count, false),
        }
        let suffix = &key[prefix_len..];
        let wanted = rank(suffix);
        let first = self.first_at_least(wanted);
        if first == self.count || slot_rank(self.slot(first)) != wanted {
            return (first, false);
        }
        if suffix.len() <= 4 {
            return (first, true);
        }
        self.search_cells(first, suffix, wanted)
    }

    /// As `Node::first_at_least`.
    #[inline]
    fn first_at_least(&self, wanted: u64) -> usize {
        let bound = slots_from(wanted);
        let below = |index: usize| self.slot(index) < bound;
        let (mut base, mut size) = (0, self.count);
        if size == 0 {
            return 0;
        }
        while size > 1 {
            let half = size / 2;
            base = if below(base + half) { base + half } else { base };
            size -= half;
        }
        base + usize::from(below(base))
    }

    /// Among the keys of rank `wanted` from slot `first` on, which differ after the head only.
    fn search_cells(&self, first: usize, suffix: &[u8], wanted: u64) -> (usize, bool) {
        let (mut low, mut high) = (first, first + 1);
        let mut step = 1;
        while high < self.count && slot_rank(self.slot(high)) == wanted {
            if self.compare_cell(high, suffix) != Ordering::Less {
                break;
            }
            low = high;
            high = (high + step).min(self.count);
            step *= 2;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            let by_rank = slot_rank(self.slot(middle)).cmp(&wanted);
            match by_rank.then_with(|| self.compare_cell(middle, suffix)) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        let is_next = low < self.count
            && slot_rank(self.slot(low)) == wanted
            && self.compare_cell(low, suffix) == Ordering::Equal;
        (low, is_next)
    }

    /// How the key in slot `index` stands to another that has a rank, too.
    #[inline]
    fn compare_cell(&self, index: usize, suffix: &[u8]) -> Ordering {
        let slot = self.slot(index);
        let (at, len) = (slot_offset(slot) + INNER_CELL, slot_key_len(slot));
        match len.min(suffix.len()) {
            common @ 1..=8 => {
                let unequal = self.compare_head(at, common, first_eight(suffix));
                unequal.then(len.cmp(&suffix.len()))
            }
            _ => self.compare(at, len, suffix),
        }
    }

    /// How `len` bytes at offset `at` compare to the first `len` bytes of `key`.
    #[inline]
    fn compare_prefix(&self, at: usize, len: usize, key: &[u8]) -> Ordering {
        match len {
            0 => Ordering::Equal,
            1..=8 if len <= key.len() => self.compare_head(at, len, first_eight(key)),
            _ => self.compare(at, len, &key[..len.min(key.len())]),
        }
    }

    /// How 1 to 8 bytes at offset `at` compare to the same number of first bytes in `head`.
    #[inline]
    fn compare_head(&self, at: usize, len: usize, head: u64) -> Ordering {
        let cut = 64 - 8 * len as u32;
        let here = unaligned(self.word, at).swap_bytes() >> cut;
        here.cmp(&(head >> cut))
    }

    /// How `len` bytes at offset `at` stand to `other`.
    fn compare(&self, at: usize, len: usize, other: &[u8]) -> Ordering {
        let common = len.min(other.len());
        let mut done = 0;
        while done < common {
            let here = unaligned(self.word, at + done).swap_bytes();
            let (there, rest) = (first_eight(&other[done..]), common - done);
            let cut = 64 - 8 * rest.min(8) as u32;
            match (here >> cut).cmp(&(there >> cut)) {
                Ordering::Equal => done += 8,
                unequal => return unequal,
            }
        }
        len.cmp(&other.len())
    }
}

/// The eight bytes at any offset, little-endian.
#[inline]
fn unaligned(word: &impl Fn(usize) -> u64, at: usize) -> u64 {
    let (index, bits) = (at / 8, 8 * (at % 8) as u32);
    match bits {
        0 => word(index),
        _ => word(index) >> bits | word(index + 1) << (64 - bits),
    }
}

#[cfg(test)]
mod tests {
    use terrace_page::PageBuf;
    use terrace_rt::Prng;

    use super::super::cells::Cells;
    use super::super::edit::{self, Shape};
    use super::super::node::Node;
    use super::*;

    fn way(page: &PageBuf, seek: Seek<'_>) -> Option<Way> {
        let words = page.as_chunks::<8>().0;
        Way::through(|at| u64::from_le_bytes(words[at % words.len()]), 7, seek)
    }

    fn key(prng: &mut Prng) -> Vec<u8> {
        let mut key = [&b""[..], b"a", b"common/prefix/", b"common/prefix/of/many"]
            [prng.below(4) as usize]
            .to_vec();
        for _ in 0..prng.below(9) {
            key.push([0, 1, b'o', b'p', 255][prng.below(5) as usize]);
        }
        key
    }

    #[test]
    fn the_way_is_that_of_a_latched_node() {
        for seed in 0..300 {
            let mut prng = Prng::from_seed(seed);
            let mut keys: Vec<Vec<u8>> = (0..prng.below(60)).map(|_| key(&mut prng)).collect();
            keys.sort();
            keys.dedup();
            keys.retain(|key| !key.is_empty());
            let mut cells = Vec::new();
            for (at, key) in keys.iter().enumerate() {
                Cells::push(&mut cells, key, &[&(100 + at as u64).to_le_bytes()]);
            }
            let right = PageId(0);
            let (lower, upper, first_child) = (&b""[..], None, PageId(99));
            let shape = Shape { level: 3, tree: 7, lower, upper, right, first_child };
            let mut page = [0; PAGE_SIZE];
            edit::format(&mut page, &shape, Cells(&cells)).expect("an inner node");
            let node = Node::open(&page).expect("an inner node");
            for _ in 0..200 {
                let wanted = key(&mut prng);
                for seek in [Seek::Key(&wanted), Seek::Below(&wanted), Seek::Last] {
                    let child = node.child(seek.child(&node));
                    let expected = Some(Way { level: 3, child });
                    assert_eq!(way(&page, seek), expected, "seed {seed} {seek:?}");
                }
            }
        }
    }

    #[test]
    fn no_bytes_can_make_it_panic() {
        for seed in 0..3000 {
            let mut prng = Prng::from_seed(seed);
            let mut page = [0; PAGE_SIZE];
            prng.fill(&mut page);
            page[4..8].copy_from_slice(&[PageKind::Inner as u8, 0, 3, 0]);
            page[TREE_AT..TREE_AT + 4].copy_from_slice(&7u32.to_le_bytes());
            for at in [COUNT_AT, LOWER_LEN_AT, LOWER_LEN_AT + 2, LOWER_LEN_AT + 4, SLOTS_AT_AT] {
                let bits = prng.below(14);
                let small = prng.below(1 << bits) as u16 & !7;
                page[at..at + 2].copy_from_slice(&small.to_le_bytes());
            }
            let wanted = key(&mut prng);
            for seek in [Seek::Key(&wanted), Seek::Below(&wanted), Seek::Last] {
                let _any = way(&page, seek);
            }
        }
    }
}
