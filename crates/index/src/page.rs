//! A page of an index: entries in the order of their keys, then operations in that of time.
//!
//! ```text
//! offset size field
//!      0    4 checksum   CRC-32C of bytes 4..
//!      4    4 number     catches a misdirected read or write
//!      8    1 kind       see `PageKind`
//!      9    1 level      0 is a leaf
//!     10    2 entries    how many
//!     12    2 ops        how many
//!     14    2 reserved   zero
//!     16    8 link       the next leaf, or the number of the write
//!
//! 0        24                                                 page
//! +--------+------------------+--------------------+----------+
//! | header | entries, 8 bytes | operations, 9 each |   free   |
//! +--------+------------------+--------------------+----------+
//! ```
//!
//! - P1: the keys of entries ascend, without duplicates. A page that was read is checked for it.
//! - P2: a page with operations takes no entry but by `rebuild` of its node.

use crate::Error;
use crate::entry::{ENTRY_BYTES, Key, OP_BYTES, Op, Pointer, long, number};

/// Number of a page on its device.
pub type PageNo = u32;

const NUMBER_AT: usize = 4;
const KIND_AT: usize = NUMBER_AT + 4;
const LEVEL_AT: usize = KIND_AT + 1;
const ENTRIES_AT: usize = LEVEL_AT + 1;
const OPS_AT: usize = ENTRIES_AT + 2;
const LINK_AT: usize = OPS_AT + 4;
/// Bytes of a unit of BFTL.
pub(crate) const UNIT_BYTES: usize = 25;
/// Bytes of the header.
pub const HEADER_BYTES: usize = LINK_AT + 8;
const _: () = assert!(HEADER_BYTES == 24);

/// What a page is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// A node of a tree, or a segment of a leaf.
    Node = 1,
    /// A page of a sorted run.
    Run = 2,
    /// Index units of several nodes.
    Units = 3,
}

impl PageKind {
    const ALL: [PageKind; 3] = [PageKind::Node, PageKind::Run, PageKind::Units];
}

/// The bytes of a page in memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Page(Vec<u8>);

impl Page {
    /// A page without entries.
    pub(crate) fn new(bytes: usize, kind: PageKind, level: u8) -> Page {
        let mut page = Page(vec![0; bytes]);
        page.0[KIND_AT] = kind as u8;
        page.0[LEVEL_AT] = level;
        page
    }

    /// Memory to read into.
    pub(crate) fn blank(bytes: usize) -> Page {
        Page(vec![0; bytes])
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Where the body begins, and all after it.
    pub(crate) fn body_mut(&mut self) -> &mut [u8] {
        &mut self.0[HEADER_BYTES..]
    }

    /// The body.
    pub(crate) fn body(&self) -> &[u8] {
        &self.0[HEADER_BYTES..]
    }

    /// Gives the page its number and checksum, to be written.
    pub(crate) fn seal(&mut self, number: PageNo) {
        self.0[NUMBER_AT..KIND_AT].copy_from_slice(&number.to_le_bytes());
        let checksum = crc32c::crc32c(&self.0[NUMBER_AT..]);
        self.0[..NUMBER_AT].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Whether these are the bytes that were written as page `wanted`.
    pub(crate) fn is_whole(&self, wanted: PageNo) -> bool {
        let checksum = crc32c::crc32c(&self.0[NUMBER_AT..]);
        checksum == number(&self.0, 0) && number(&self.0, NUMBER_AT) == wanted && self.is_sound()
    }

    /// Whether all that the header counts is there, and can be decoded: a checksum says that the
    /// bytes are those that were written, not that a page was.
    fn is_sound(&self) -> bool {
        let kind = PageKind::ALL.into_iter().find(|kind| self.is_of(*kind));
        let known = |items: &[u8], bytes: usize, most: u8| {
            items.chunks_exact(bytes).all(|item| (1..=most).contains(&item[bytes - 1]))
        };
        match kind {
            Some(PageKind::Node) => {
                let ops_at = HEADER_BYTES + self.entries() * ENTRY_BYTES;
                let ops = self.0.get(ops_at..ops_at + self.ops() * OP_BYTES);
                let ascend = || (1..self.entries()).all(|at| self.key(at - 1) < self.key(at));
                ops.is_some_and(|ops| known(ops, OP_BYTES, 3)) && ascend()
            }
            // A fence has the tag 4.
            Some(PageKind::Run) => self.items(OP_BYTES).is_some_and(|items| {
                let keys = || items.chunks_exact(OP_BYTES).map(|item| number(item, 0));
                known(items, OP_BYTES, 4) && keys().is_sorted()
            }),
            Some(PageKind::Units) => {
                self.items(UNIT_BYTES).is_some_and(|items| known(items, UNIT_BYTES, 3))
            }
            None => false,
        }
    }

    /// The items of a page that has nothing else.
    fn items(&self, bytes: usize) -> Option<&[u8]> {
        let items = self.body().get(..self.entries() * bytes)?;
        (self.ops() == 0).then_some(items)
    }

    /// As an error.
    pub(crate) fn verify(&self, wanted: PageNo) -> Result<(), Error> {
        if self.is_whole(wanted) { Ok(()) } else { Err(Error::Corrupt { page: wanted }) }
    }

    pub(crate) fn is_of(&self, kind: PageKind) -> bool {
        self.0[KIND_AT] == kind as u8
    }

    /// Whether it can be an inner node of `level`.
    pub(crate) fn is_inner(&self, level: usize) -> bool {
        let is_node = self.is_of(PageKind::Node) && usize::from(self.level()) == level;
        is_node && self.entries() > 0 && self.ops() == 0
    }

    pub(crate) fn level(&self) -> u8 {
        self.0[LEVEL_AT]
    }

    fn short(&self, at: usize) -> usize {
        usize::from(u16::from_le_bytes([self.0[at], self.0[at + 1]]))
    }

    fn set_short(&mut self, at: usize, value: usize) {
        self.0[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
    }

    pub(crate) fn entries(&self) -> usize {
        self.short(ENTRIES_AT)
    }

    pub(crate) fn set_entries(&mut self, count: usize) {
        self.set_short(ENTRIES_AT, count);
    }

    pub(crate) fn ops(&self) -> usize {
        self.short(OPS_AT)
    }

    pub(crate) fn link(&self) -> u64 {
        long(&self.0, LINK_AT)
    }

    pub(crate) fn set_link(&mut self, link: u64) {
        self.0[LINK_AT..HEADER_BYTES].copy_from_slice(&link.to_le_bytes());
    }

    fn entry_at(at: usize) -> usize {
        HEADER_BYTES + at * ENTRY_BYTES
    }

    pub(crate) fn key(&self, at: usize) -> Key {
        number(&self.0, Page::entry_at(at))
    }

    pub(crate) fn pointer(&self, at: usize) -> Pointer {
        number(&self.0, Page::entry_at(at) + 4)
    }

    pub(crate) fn entry(&self, at: usize) -> (Key, Pointer) {
        (self.key(at), self.pointer(at))
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, Pointer)> + '_ {
        (0..self.entries()).map(|at| self.entry(at))
    }

    fn set_entry(&mut self, at: usize, (key, pointer): (Key, Pointer)) {
        let at = Page::entry_at(at);
        self.0[at..at + 4].copy_from_slice(&key.to_le_bytes());
        self.0[at + 4..at + ENTRY_BYTES].copy_from_slice(&pointer.to_le_bytes());
    }

    /// Where `key` is, or would be.
    pub(crate) fn find(&self, key: Key) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.entries());
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle).cmp(&key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// The child that `key` belongs to.
    pub(crate) fn child_of(&self, key: Key) -> usize {
        match self.find(key) {
            Ok(at) => at,
            Err(at) => at.saturating_sub(1),
        }
    }

    /// Entries that a page of `bytes` holds.
    pub(crate) fn capacity(bytes: usize) -> usize {
        (bytes - HEADER_BYTES) / ENTRY_BYTES
    }

    /// Bytes behind the last operation.
    pub(crate) fn free_bytes(&self) -> usize {
        self.0.len() - Page::entry_at(self.entries()) - self.ops() * OP_BYTES
    }

    /// Puts an entry where `find` says it belongs.
    pub(crate) fn insert_entry(&mut self, at: usize, entry: (Key, Pointer)) {
        assert!(self.ops() == 0, "a page with operations takes no entry");
        let count = self.entries();
        assert!(count < Page::capacity(self.0.len()), "a full page");
        self.0.copy_within(Page::entry_at(at)..Page::entry_at(count), Page::entry_at(at + 1));
        self.set_entry(at, entry);
        self.set_entries(count + 1);
    }

    pub(crate) fn set_pointer(&mut self, at: usize, pointer: Pointer) {
        self.set_entry(at, (self.key(at), pointer));
    }

    pub(crate) fn remove_entry(&mut self, at: usize) {
        let count = self.entries();
        self.0.copy_within(Page::entry_at(at + 1)..Page::entry_at(count), Page::entry_at(at));
        self.set_entries(count - 1);
    }

    /// Puts an entry behind the last.
    pub(crate) fn push_entry(&mut self, entry: (Key, Pointer)) {
        self.insert_entry(self.entries(), entry);
    }

    /// Keeps the first `count` entries, and gives the others.
    pub(crate) fn split_off(&mut self, count: usize) -> Vec<(Key, Pointer)> {
        let rest = (count..self.entries()).map(|at| self.entry(at)).collect();
        self.set_entries(count);
        rest
    }

    fn op_at(&self, at: usize) -> usize {
        Page::entry_at(self.entries()) + at * OP_BYTES
    }

    /// Operation number `at`; what cannot be decoded would have failed the checksum.
    pub(crate) fn op(&self, at: usize) -> Op {
        let at = self.op_at(at);
        let bytes = self.0[at..at + OP_BYTES].try_into().expect("nine bytes");
        Op::decode(bytes).expect("a page that was verified")
    }

    /// The operation on `key` that came last.
    pub(crate) fn last_op(&self, key: Key) -> Option<Op> {
        let start = self.op_at(0);
        let (ops, _) = self.0[start..start + self.ops() * OP_BYTES].as_chunks::<OP_BYTES>();
        let found = ops.iter().rev().find(|bytes| number(*bytes, 0) == key)?;
        Some(Op::decode(found).expect("a page that was verified"))
    }

    /// Puts an operation behind the last; `false` if there is no room.
    pub(crate) fn push_op(&mut self, op: Op) -> bool {
        if self.free_bytes() < OP_BYTES {
            return false;
        }
        let at = self.op_at(self.ops());
        self.0[at..at + OP_BYTES].copy_from_slice(&op.encode());
        self.set_short(OPS_AT, self.ops() + 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use terrace_rt::Prng;

    const BYTES: usize = 512;

    #[test]
    fn a_page_agrees_with_a_map() {
        for seed in 0..200 {
            let mut prng = Prng::from_seed(seed);
            let mut page = Page::new(BYTES, PageKind::Node, 0);
            let mut model = BTreeMap::new();
            for step in 0..200 {
                let key = prng.below(80) as Key;
                match (page.find(key), prng.chance(3)) {
                    (Ok(at), true) => {
                        page.remove_entry(at);
                        model.remove(&key);
                    }
                    (Ok(at), false) => {
                        page.set_pointer(at, step);
                        model.insert(key, step);
                    }
                    (Err(at), _) if page.entries() < Page::capacity(BYTES) => {
                        page.insert_entry(at, (key, step));
                        model.insert(key, step);
                    }
                    _ => {}
                }
                assert!(page.iter().eq(model.iter().map(|(k, p)| (*k, *p))), "seed {seed}");
            }
        }
    }

    #[test]
    fn every_flipped_bit_and_every_other_number_is_seen() {
        let mut page = Page::new(BYTES, PageKind::Node, 0);
        page.push_entry((1, 2));
        assert!(page.push_op(Op::remove(7)));
        page.seal(9);
        assert!(page.is_whole(9));
        assert!(!page.is_whole(8));
        for bit in 0..BYTES * 8 {
            let mut other = page.clone();
            other.bytes_mut()[bit / 8] ^= 1 << (bit % 8);
            assert!(!other.is_whole(9), "bit {bit}");
        }
    }

    #[test]
    fn the_last_operation_on_a_key_wins() {
        let mut page = Page::new(BYTES, PageKind::Node, 0);
        page.push_entry((1, 2));
        let mut ops = 0;
        while page.push_op(Op::insert(ops % 5, ops)) {
            ops += 1;
        }
        assert_eq!(ops as usize, (BYTES - HEADER_BYTES - ENTRY_BYTES) / OP_BYTES);
        let last = (0..ops).rev().find(|op| op % 5 == 3);
        assert_eq!(page.last_op(3).map(|op| op.pointer), last);
        assert_eq!(page.last_op(6), None);
        assert_eq!(page.op(0), Op::insert(0, 0));
    }
}
