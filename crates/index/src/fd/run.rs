//! A sorted run: pages one behind the other, their entries in the order of keys.
//!
//! ```text
//! page:   header | entries of 9 bytes: key 4, pointer 4, tag 1
//! tags:   1 inserted   2 updated   3 removed (a filter entry)
//!         4 a fence: the pointer is a page of the next level, whose keys begin with this one
//! ```
//!
//! - R1: a fence stands before other entries of its key; other keys are there once.
//! - R2: each page of a level that is not the last begins with a fence, so that one page of a level
//!   tells which page of the next to read.

use crate::entry::{Key, OP_BYTES, Op, Pointer, number};
use crate::page::{Page, PageKind, PageNo};

const FENCE: u8 = 4;

/// An entry of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// What was done to a key.
    Op(Op),
    /// The keys from here on, up to the next fence, are in this page of the next level.
    Fence(Key, PageNo),
}

impl Item {
    pub(super) fn key(self) -> Key {
        match self {
            Item::Op(op) => op.key,
            Item::Fence(key, _) => key,
        }
    }
}

/// Entries that a page of `bytes` holds.
pub(super) fn capacity(bytes: usize) -> usize {
    (bytes - crate::page::HEADER_BYTES) / OP_BYTES
}

/// A page with `items`.
pub(super) fn build(page_bytes: usize, level: u8, items: &[Item]) -> Page {
    let mut page = Page::new(page_bytes, PageKind::Run, level);
    page.set_entries(items.len());
    for (place, item) in page.body_mut().chunks_exact_mut(OP_BYTES).zip(items) {
        match item {
            Item::Op(op) => place.copy_from_slice(&op.encode()),
            Item::Fence(key, no) => {
                place[..4].copy_from_slice(&key.to_le_bytes());
                place[4..8].copy_from_slice(&no.to_le_bytes());
                place[8] = FENCE;
            }
        }
    }
    page
}

/// Entry number `at` of a page that was verified.
pub(super) fn item(page: &Page, at: usize) -> Item {
    let (places, _) = page.body().as_chunks::<OP_BYTES>();
    let place = &places[at];
    match Op::decode(place) {
        Some(op) => Item::Op(op),
        None => Item::Fence(number(place, 0), number(place, 4)),
    }
}

/// All entries of a page.
pub(super) fn items(page: &Page) -> impl Iterator<Item = Item> + '_ {
    (0..page.entries()).map(|at| item(page, at))
}

fn key(page: &Page, at: usize) -> Key {
    number(page.body(), at * OP_BYTES)
}

/// The first entry whose key is above `wanted`.
pub(super) fn place_above(page: &Page, wanted: Key) -> usize {
    let (mut low, mut high) = (0, page.entries());
    while low < high {
        let middle = low.midpoint(high);
        if key(page, middle) <= wanted { low = middle + 1 } else { high = middle }
    }
    low
}

/// What a page says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// This, and no older level counts.
    Answer(Option<Pointer>),
    /// Nothing; the next level has it here, if there is a next level.
    Below(Option<PageNo>),
}

/// Looks for `wanted` in a page.
pub(super) fn look(page: &Page, wanted: Key) -> Said {
    for at in (0..place_above(page, wanted)).rev() {
        match item(page, at) {
            Item::Op(op) if op.key == wanted => return Said::Answer(op.answer()),
            Item::Op(_) => {}
            Item::Fence(_, no) => return Said::Below(Some(no)),
        }
    }
    Said::Below(None)
}

/// The key of the first fence above `wanted`.
pub(super) fn next_fence(page: &Page, wanted: Key) -> Option<Key> {
    let above = place_above(page, wanted)..page.entries();
    above.map(|at| item(page, at)).find_map(|item| match item {
        Item::Fence(key, _) => Some(key),
        Item::Op(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_tells_its_keys_and_the_page_below() {
        let items = [
            Item::Fence(3, 70),
            Item::Op(Op::insert(3, 1)),
            Item::Op(Op::remove(5)),
            Item::Fence(8, 71),
            Item::Op(Op::update(9, 2)),
        ];
        let page = build(512, 1, &items);
        assert!(super::items(&page).eq(items));
        assert_eq!(look(&page, 3), Said::Answer(Some(1)));
        assert_eq!(look(&page, 4), Said::Below(Some(70)));
        assert_eq!(look(&page, 5), Said::Answer(None));
        assert_eq!(look(&page, 8), Said::Below(Some(71)));
        assert_eq!(look(&page, 9), Said::Answer(Some(2)));
        assert_eq!(look(&page, 1), Said::Below(None));
        assert_eq!(next_fence(&page, 3), Some(8));
        assert_eq!(next_fence(&page, 8), None);
    }
}
