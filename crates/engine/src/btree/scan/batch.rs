//! Entries that a scan has read, in its order.
//!
//! ```text
//! cells   key, value | key, value | ...          where they are
//! bytes   key key value key ...                  keys, and values that are not in `leaf`
//! leaf    the page that most of the values are in, as it was
//! ```
//!
//! If a scan wants much of a leaf, the whole page is copied at once, and the values are shown where
//! they lie in the copy: that is cheaper than to copy each value.

use std::ops::Range;

use terrace_page::{PAGE_SIZE, PageBuf, PageId};

use crate::btree::node::{GHOST, KEY_MAX, Node, OVERFLOW};
use crate::btree::short::Prefix;
use crate::btree::{Tree, VALUE_MAX};
use crate::{Error, KeyHash};

/// A leaf is copied if the scan wants at least its number of entries divided by this,
const COPIED_ONE_IN: usize = 2;
/// and at least this many entries.
const COPIED_MIN: usize = 8;
/// The limit of a batch that has all that its leaf has.
pub(crate) const LEAF: usize = usize::MAX;
/// Of a value's place: it is in the copy of the leaf.
const IN_LEAF: u32 = 1 << (u32::BITS - 1);
/// Bytes of keys and values outside of the copy, after which a batch ends,
const BYTES_MAX: usize = 128 << 10;
/// and bytes for each entry that it may have: a caller that wants few reads few large values.
const BYTES_EACH: usize = 1 << 10;

const _: () = assert!(BYTES_MAX + KEY_MAX + VALUE_MAX < IN_LEAF as usize);

/// What a scan reads of each row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Key and value.
    #[default]
    Rows,
    /// The key: every entry has an empty value, and none is fetched from other pages.
    Keys,
}

/// Entries in the order of their scan; its memory is reused from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    wanted: Wanted,
    bytes: Vec<u8>,
    cells: Vec<Cell>,
    /// Bytes of complete entries.
    end: usize,
    leaf: Option<Box<PageBuf>>,
    /// Whether `leaf` is of this batch.
    has_leaf: bool,
}

/// A place in a batch.
pub(super) struct BatchMark {
    cells: usize,
    end: usize,
    has_leaf: bool,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    key_at: u32,
    key_end: u32,
    value_at: u32,
    value_len: u32,
}

impl Batch {
    /// A batch of one entry.
    pub(crate) fn of(key: &[u8], value: &[u8]) -> Batch {
        let (key_end, value_len) = (key.len() as u32, value.len() as u32);
        let cell = Cell { key_at: 0, key_end, value_at: key_end, value_len };
        let bytes = [key, value].concat();
        Batch { end: bytes.len(), bytes, cells: vec![cell], ..Batch::default() }
    }

    /// How many entries it has.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    /// Entry `index`: key and value.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> (&[u8], &[u8]) {
        let Cell { key_at, key_end, value_at, value_len } = self.cells[index];
        let within: &[u8] = match &self.leaf {
            Some(leaf) if value_at & IN_LEAF != 0 => &leaf[..],
            _ => &self.bytes,
        };
        let at = (value_at & !IN_LEAF) as usize;
        (&self.bytes[key_at as usize..key_end as usize], &within[at..at + value_len as usize])
    }

    /// Whether it has all that it may have, which is `limit` entries at most.
    #[inline]
    pub(super) fn is_full(&self, limit: usize) -> bool {
        self.len() >= limit || self.end >= BYTES_MAX.min(limit.saturating_mul(BYTES_EACH))
    }

    /// Bytes of memory that it has for its entries.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.capacity() + self.leaf.as_ref().map_or(0, |_| PAGE_SIZE)
    }

    /// All entries.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..self.len()).map(|index| self.entry(index))
    }

    /// Empties it, for entries of which a scan reads what is `wanted`.
    pub(super) fn clear(&mut self, wanted: Wanted) {
        self.bytes.clear();
        self.cells.clear();
        self.end = 0;
        self.has_leaf = false;
        self.wanted = wanted;
    }

    /// Copies the leaf of `node` if that is worth it for `wanted` of its entries, but no more than
    /// `limit`. Then the batch ends with it.
    pub(super) fn copy_leaf(&mut self, node: &Node<'_>, wanted: usize, limit: usize) {
        let wanted = wanted.min(limit);
        if self.len() > 0 || wanted < COPIED_MIN || wanted < node.len() / COPIED_ONE_IN {
            return;
        }
        if self.wanted == Wanted::Keys {
            return;
        }
        match &mut self.leaf {
            Some(leaf) => leaf.copy_from_slice(node.page()),
            None => self.leaf = Some(Box::new(*node.page())),
        }
        self.has_leaf = true;
    }

    /// Whether it has a copy of its leaf: then no other leaf comes into it.
    pub(super) fn has_leaf(&self) -> bool {
        self.has_leaf
    }

    /// Whether it ends with its leaf, which it does if that was copied, or if it is to have `LEAF`
    /// entries: another one may come if this one had nothing but ghosts.
    pub(super) fn ends_with_leaf(&mut self, limit: usize) -> bool {
        self.has_leaf &= self.len() > 0;
        self.has_leaf || limit == LEAF && self.len() > 0
    }

    /// Appends the key in `slot`; its hash, unless it is `free` to read without a lock.
    #[inline]
    pub(super) fn begin(&mut self, node: &Node<'_>, slot: usize, free: bool) -> Option<KeyHash> {
        node.push_key(slot, &mut self.bytes);
        (!free).then(|| KeyHash::of(self.last_key()))
    }

    /// Appends a key.
    pub(super) fn push_key(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
    }

    /// The key that has no value yet.
    #[inline]
    pub(super) fn last_key(&self) -> &[u8] {
        &self.bytes[self.end..]
    }

    /// Where it is now, to `rewind` to.
    pub(super) fn mark(&self) -> BatchMark {
        BatchMark { cells: self.cells.len(), end: self.end, has_leaf: self.has_leaf }
    }

    /// Forgets what was appended since.
    pub(super) fn rewind(&mut self, mark: &BatchMark) {
        self.cells.truncate(mark.cells);
        (self.end, self.has_leaf) = (mark.end, mark.has_leaf);
        self.bytes.truncate(self.end);
    }

    /// Forgets a key without its value.
    #[inline]
    pub(super) fn drop_key(&mut self) {
        self.bytes.truncate(self.end);
    }

    /// Puts `value` to the key that it ends with.
    #[inline]
    pub(super) fn push_value(&mut self, value: &[u8]) {
        let key_end = self.bytes.len();
        let value = if self.wanted == Wanted::Rows { value } else { &[] };
        self.bytes.extend_from_slice(value);
        self.push_cell(key_end, key_end as u32, value.len());
    }

    /// Puts to the key that it ends with the value that a reference in `leaf` leads to.
    ///
    /// # Errors
    ///
    /// `Corrupt`, those of the pool.
    #[cold]
    pub(super) fn push_large(
        &mut self,
        tree: &Tree,
        leaf: PageId,
        reference: &[u8],
    ) -> Result<(), Error> {
        let key_end = self.bytes.len();
        if self.wanted == Wanted::Rows {
            tree.read_large(leaf, reference, &mut self.bytes)?;
        }
        self.push_cell(key_end, key_end as u32, self.bytes.len() - key_end);
        Ok(())
    }

    /// Puts to the key that it ends with what is there in the copied leaf.
    #[inline]
    pub(super) fn push_in_leaf(&mut self, place: Range<usize>) {
        self.push_cell(self.bytes.len(), place.start as u32 | IN_LEAF, place.len());
    }

    /// Whether `push_slots` can append entries: their values lie in a copy, or are not wanted.
    pub(super) fn takes_slots(&self, limit: usize) -> bool {
        self.has_leaf || self.wanted == Wanted::Keys && limit == LEAF
    }

    /// Appends the entries in `slots` of the leaf that was copied, and passes ghosts by: up to the
    /// first entry whose value is elsewhere, or until the batch has bytes enough. How many slots
    /// that were. Calls `each` for each entry.
    #[inline]
    pub(super) fn push_slots(
        &mut self,
        node: &Node<'_>,
        slots: impl Iterator<Item = usize>,
        mut each: impl FnMut(),
    ) -> usize {
        let (prefix, mut passed) = (Prefix::new(node.prefix()), 0);
        for slot in slots {
            let Some(cell) = node.leaf_cell(slot) else { break };
            let is_elsewhere = cell.flags & OVERFLOW != 0 && self.wanted == Wanted::Rows;
            if is_elsewhere && cell.flags & GHOST == 0 || self.end >= BYTES_MAX {
                break;
            }
            passed += 1;
            if cell.flags & GHOST == 0 {
                prefix.append(cell.suffix, &mut self.bytes);
                match self.wanted {
                    Wanted::Rows => {
                        self.push_in_leaf(cell.value_at..cell.value_at + cell.value_len)
                    }
                    Wanted::Keys => self.push_value(&[]),
                }
                each();
            }
        }
        passed
    }

    #[inline]
    fn push_cell(&mut self, key_end: usize, value_at: u32, value_len: usize) {
        let (key_at, key_end) = (self.end as u32, key_end as u32);
        self.cells.push(Cell { key_at, key_end, value_at, value_len: value_len as u32 });
        self.end = self.bytes.len();
    }
}
