//! Changes of pages, as the log records them: encoded, decoded, applied.
//!
//! They are physiological: each names a place within one page by slot, so that the same code
//! applies it going forward and in redo, to the same bytes with the same result. What is rare and
//! small (an entry of a map, a field of a header) is plain bytes at an offset.
//!
//! ```text
//! tag variant      then, little-endian
//!   1 Bytes        2 at, bytes
//!   2 Page         2 kind, bytes
//!   3 Node         shape (1 level, 4 tree, 8 right, 8 first_child, fence, fence), cells
//!   4 LeafInsert   2 slot, 2 key_len, key, record
//!   5 LeafMark     2 slot, 1 flags
//!   6 LeafReplace  2 slot, record
//!   7 LeafPatch    2 slot, 2 at, 2 cut, bytes
//!   8 InnerInsert  2 slot, 8 child, key
//!   9 InnerRemove  2 slot
//!  10 Truncate     2 keep, 8 right, upper
//!  11 Absorb       8 right, fence, cells
//!  12 LeafPurge    for each ghost: 2 slot, ascending
//!  13 Renew        2 at, 8 first, 4 count, 4 written
//!  14 Splice       2 at, 2 cut, 8 right, fence, fence, fence: the prefix, cells without it
//!
//! fence: 2 length, or 65535 for none, and its bytes
//! ```

use terrace_page::{HEADER_SIZE, PAGE_SIZE, PageBuf, PageId, PageKind, set_kind};

use crate::btree::cells::Cells;
use crate::btree::edit::{self, Shape};
use crate::btree::splice::{Splice, splice};

/// Where a page's own bytes begin: the header's last field belongs to the page's kind.
pub(crate) const BODY_AT: usize = HEADER_SIZE - 8;
const KIND_OWN_AT: usize = 6;
const NO_FENCE: u16 = u16::MAX;
/// Pages that one change renews, at most.
pub(crate) const RENEWED_MAX: u32 = 1 << 10;

/// A change of one page, redone by `apply` alone. Borrowed from the caller, or from a log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum Change<'a> {
    /// Bytes put at an offset.
    Bytes {
        /// Offset in the page.
        at: u16,
        /// What stands there afterwards.
        bytes: &'a [u8],
    },
    /// Makes any page one of a kind that is no node, with `bytes` from [`BODY_AT`] on, then zeroes.
    Page {
        /// What it becomes.
        kind: PageKind,
        /// Its first bytes.
        bytes: &'a [u8],
    },
    /// Makes any page a node.
    Node {
        /// All but its cells.
        shape: Shape<'a>,
        /// Its cells.
        cells: Cells<'a>,
    },
    /// A new key in a leaf.
    LeafInsert {
        /// Its slot; those from there on move up.
        slot: u16,
        /// The whole key.
        key: &'a [u8],
        /// Flags and value.
        record: &'a [u8],
    },
    /// A record gets other flags: its key becomes a ghost, or returns.
    LeafMark {
        /// Its slot.
        slot: u16,
        /// All of its flags.
        flags: u8,
    },
    /// Ghosts leave their leaf.
    LeafPurge {
        /// Their slots, as encoded.
        slots: &'a [u8],
    },
    /// A key gets another record.
    LeafReplace {
        /// Its slot.
        slot: u16,
        /// Flags and value.
        record: &'a [u8],
    },
    /// A part of a value is replaced.
    LeafPatch {
        /// Its slot.
        slot: u16,
        /// Where in the value.
        at: u16,
        /// How many bytes go.
        cut: u16,
        /// What comes in their place.
        bytes: &'a [u8],
    },
    /// Pages are about to be written home as parts of a large value: nothing older of them is ever
    /// redone. The page that it changes is the one that lists them.
    Renew {
        /// Where that counts the pages written.
        at: u16,
        /// The first of them.
        first: PageId,
        /// How many they are.
        count: u32,
        /// What stands at `at` afterwards.
        written: u32,
    },
    /// A separator in an inner node, with the child to its right.
    InnerInsert {
        /// Its slot.
        slot: u16,
        /// The separator.
        key: &'a [u8],
        /// The child.
        child: PageId,
    },
    /// A separator leaves its inner node, with the child to its right.
    InnerRemove {
        /// Its slot.
        slot: u16,
    },
    /// The node was split: this is its left part.
    Truncate {
        /// How many cells stay.
        keep: u16,
        /// The new upper fence.
        upper: &'a [u8],
        /// The node with the right part.
        right: PageId,
    },
    /// The next node was merged into this one.
    Absorb {
        /// Its cells; of an inner node with the separator between the two first.
        cells: Cells<'a>,
        /// Its upper fence.
        upper: Option<&'a [u8]>,
        /// Its right neighbour.
        right: PageId,
    },
    /// Cells of a node are replaced, and its fences.
    Splice(Splice<'a>),
}

/// Marks a page that leaves its structure: only the kind, so that the record stays small.
pub(crate) const FREE: Change<'static> = Change::Bytes { at: KIND_AT, bytes: &[0, 0] };
const KIND_AT: u16 = 4;

const _: () = assert!(PageKind::Free as u16 == 0);

/// Bytes that are no change, or a change that does not fit its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadChange;

/// Reads fields off the front of bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BadChange> {
        let (field, rest) = self.0.split_first_chunk().ok_or(BadChange)?;
        self.0 = rest;
        Ok(*field)
    }

    fn u16(&mut self) -> Result<u16, BadChange> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, BadChange> {
        self.take().map(u32::from_le_bytes)
    }

    fn page(&mut self) -> Result<PageId, BadChange> {
        self.take().map(|bytes| PageId(u64::from_le_bytes(bytes)))
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8], BadChange> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(BadChange)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn fence(&mut self) -> Result<Option<&'a [u8]>, BadChange> {
        match self.u16()? {
            NO_FENCE => Ok(None),
            len => self.bytes(usize::from(len)).map(Some),
        }
    }

    fn rest(self) -> &'a [u8] {
        self.0
    }

    fn end(self) -> Result<(), BadChange> {
        if self.0.is_empty() { Ok(()) } else { Err(BadChange) }
    }
}

fn push_fence(out: &mut Vec<u8>, fence: Option<&[u8]>) {
    let len = fence.map_or(NO_FENCE, |fence| fence.len() as u16);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(fence.unwrap_or_default());
}

impl<'a> Change<'a> {
    /// Appends the encoded change.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let head = |out: &mut Vec<u8>, tag: u8, number: u16| {
            let [low, high] = number.to_le_bytes();
            out.extend_from_slice(&[tag, low, high]);
        };
        match *self {
            Change::Bytes { at, bytes } => {
                head(out, 1, at);
                out.extend_from_slice(bytes);
            }
            Change::Page { kind, bytes } => {
                head(out, 2, kind as u16);
                out.extend_from_slice(bytes);
            }
            Change::Node { shape, cells } => encode_node(out, &shape, cells),
            Change::LeafInsert { slot, key, record } => {
                head(out, 4, slot);
                out.extend_from_slice(&(key.len() as u16).to_le_bytes());
                out.extend_from_slice(key);
                out.extend_from_slice(record);
            }
            Change::LeafMark { slot, flags } => {
                head(out, 5, slot);
                out.push(flags);
            }
            Change::LeafPurge { slots } => {
                out.push(12);
                out.extend_from_slice(slots);
            }
            Change::LeafReplace { slot, record } => {
                head(out, 6, slot);
                out.extend_from_slice(record);
            }
            Change::LeafPatch { slot, at, cut, bytes } => {
                head(out, 7, slot);
                let ([at0, at1], [cut0, cut1]) = (at.to_le_bytes(), cut.to_le_bytes());
                out.extend_from_slice(&[at0, at1, cut0, cut1]);
                out.extend_from_slice(bytes);
            }
            Change::InnerInsert { slot, key, child } => {
                head(out, 8, slot);
                out.extend_from_slice(&child.0.to_le_bytes());
                out.extend_from_slice(key);
            }
            Change::InnerRemove { slot } => head(out, 9, slot),
            Change::Truncate { keep, upper, right } => {
                head(out, 10, keep);
                out.extend_from_slice(&right.0.to_le_bytes());
                out.extend_from_slice(upper);
            }
            Change::Renew { at, first, count, written } => {
                head(out, 13, at);
                out.extend_from_slice(&first.0.to_le_bytes());
                out.extend_from_slice(&count.to_le_bytes());
                out.extend_from_slice(&written.to_le_bytes());
            }
            Change::Absorb { cells, upper, right } => {
                out.push(11);
                out.extend_from_slice(&right.0.to_le_bytes());
                push_fence(out, upper);
                out.extend_from_slice(cells.0);
            }
            Change::Splice(splice) => encode_splice(out, &splice),
        }
    }

    /// The change that `bytes` (all of them) encode. Never panics.
    ///
    /// # Errors
    ///
    /// If they encode none.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Change<'a>, BadChange> {
        let (tag, rest) = bytes.split_first().ok_or(BadChange)?;
        let mut fields = Fields(rest);
        Ok(match tag {
            1 => Change::Bytes { at: fields.u16()?, bytes: fields.rest() },
            2 => Change::Page { kind: decode_kind(fields.u16()?)?, bytes: fields.rest() },
            3 => decode_node(fields)?,
            4 => {
                let (slot, key_len) = (fields.u16()?, fields.u16()?);
                let key = fields.bytes(usize::from(key_len))?;
                Change::LeafInsert { slot, key, record: fields.rest() }
            }
            5 => {
                let (slot, [flags]) = (fields.u16()?, fields.take()?);
                fields.end()?;
                Change::LeafMark { slot, flags }
            }
            6 => Change::LeafReplace { slot: fields.u16()?, record: fields.rest() },
            7 => Change::LeafPatch {
                slot: fields.u16()?,
                at: fields.u16()?,
                cut: fields.u16()?,
                bytes: fields.rest(),
            },
            8 => {
                let (slot, child) = (fields.u16()?, fields.page()?);
                Change::InnerInsert { slot, key: fields.rest(), child }
            }
            9 => {
                let slot = fields.u16()?;
                fields.end()?;
                Change::InnerRemove { slot }
            }
            10 => {
                let (keep, right) = (fields.u16()?, fields.page()?);
                Change::Truncate { keep, upper: fields.rest(), right }
            }
            11 => {
                let (right, upper) = (fields.page()?, fields.fence()?);
                Change::Absorb { cells: Cells(fields.rest()), upper, right }
            }
            12 => Change::LeafPurge { slots: fields.rest() },
            13 => {
                let (at, first) = (fields.u16()?, fields.page()?);
                let (count, written) = (fields.u32()?, fields.u32()?);
                fields.end()?;
                if count > RENEWED_MAX {
                    return Err(BadChange);
                }
                Change::Renew { at, first, count, written }
            }
            14 => Change::Splice(decode_splice(fields)?),
            _ => return Err(BadChange),
        })
    }

    /// The slot of the row of a leaf that it changes, if it changes one that is there.
    pub(crate) fn row(&self) -> Option<usize> {
        match *self {
            Change::LeafMark { slot, .. }
            | Change::LeafReplace { slot, .. }
            | Change::LeafPatch { slot, .. } => Some(usize::from(slot)),
            _ => None,
        }
    }

    /// Whether it gives every byte of the page (but header LSN and checksum) a value, whatever
    /// stood there before: such a change is redone without reading the page.
    pub(crate) fn formats(&self) -> bool {
        matches!(self, Change::Page { .. } | Change::Node { .. })
    }

    /// Whether it leaves a sound tree, in which the same rows are: if a nested action consists of
    /// nothing else, nothing is to be put back after a crash, whether the action has ended or not.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Change::LeafPurge { .. })
    }

    /// Whether an encoded change marks a key of a leaf, or takes ghosts out of it: after a crash
    /// there may be ghosts to purge, or little left.
    pub(crate) fn thins(change: &[u8]) -> bool {
        matches!(change.first(), Some(5 | 12))
    }

    /// The pages of which an encoded change says that nothing older is to be redone: the first, and
    /// how many.
    pub(crate) fn renewed(change: &[u8]) -> Option<(PageId, u32)> {
        if change.first() != Some(&13) {
            return None;
        }
        match Change::decode(change) {
            Ok(Change::Renew { first, count, .. }) => Some((first, count)),
            _ => None,
        }
    }

    /// Changes `page`. Never panics; on an error the page is unchanged.
    ///
    /// # Errors
    ///
    /// If it does not fit the page: not the one, or not the version, that it was made for.
    pub(crate) fn apply(&self, page: &mut PageBuf) -> Result<(), BadChange> {
        match *self {
            Change::Bytes { at, bytes } => {
                let at = usize::from(at);
                let target = page.get_mut(at..at + bytes.len()).ok_or(BadChange)?;
                target.copy_from_slice(bytes);
                Ok(())
            }
            Change::Renew { at, written, .. } => {
                Change::Bytes { at, bytes: &written.to_le_bytes() }.apply(page)
            }
            Change::Page { kind, bytes } => format_page(page, kind, bytes),
            Change::Node { shape, cells } => edit::format(page, &shape, cells),
            Change::LeafInsert { slot, key, record } => {
                edit::leaf_insert(page, usize::from(slot), key, record)
            }
            Change::LeafMark { slot, flags } => edit::leaf_mark(page, usize::from(slot), flags),
            Change::LeafPurge { slots } => edit::leaf_purge(page, slots),
            Change::LeafReplace { slot, record } => {
                edit::leaf_replace(page, usize::from(slot), record)
            }
            Change::LeafPatch { slot, at, cut, bytes } => {
                let (at, cut) = (usize::from(at), usize::from(cut));
                edit::leaf_patch(page, usize::from(slot), at, cut, bytes)
            }
            Change::InnerInsert { slot, key, child } => {
                edit::inner_insert(page, usize::from(slot), key, child)
            }
            Change::InnerRemove { slot } => edit::remove(page, usize::from(slot), false),
            Change::Truncate { keep, upper, right } => {
                edit::truncate(page, usize::from(keep), upper, right)
            }
            Change::Absorb { cells, upper, right } => edit::absorb(page, cells, upper, right),
            Change::Splice(change) => splice(page, &change),
        }
    }
}

fn decode_kind(number: u16) -> Result<PageKind, BadChange> {
    use PageKind::{Free, Map, Overflow, Raw, Super, Tree};
    [Free, Super, Overflow, Map, Tree, Raw]
        .into_iter()
        .find(|kind| *kind as u16 == number)
        .ok_or(BadChange)
}

fn encode_node(out: &mut Vec<u8>, shape: &Shape<'_>, cells: Cells<'_>) {
    out.push(3);
    out.push(shape.level);
    out.extend_from_slice(&shape.tree.to_le_bytes());
    out.extend_from_slice(&shape.right.0.to_le_bytes());
    out.extend_from_slice(&shape.first_child.0.to_le_bytes());
    push_fence(out, Some(shape.lower));
    push_fence(out, shape.upper);
    out.extend_from_slice(cells.0);
}

fn decode_node(mut fields: Fields<'_>) -> Result<Change<'_>, BadChange> {
    let [level] = fields.take()?;
    let tree = u32::from_le_bytes(fields.take()?);
    let (right, first_child) = (fields.page()?, fields.page()?);
    let lower = fields.fence()?.ok_or(BadChange)?;
    let upper = fields.fence()?;
    let shape = Shape { level, tree, lower, upper, right, first_child };
    Ok(Change::Node { shape, cells: Cells(fields.rest()) })
}

fn encode_splice(out: &mut Vec<u8>, splice: &Splice<'_>) {
    out.push(14);
    out.extend_from_slice(&splice.at.to_le_bytes());
    out.extend_from_slice(&splice.cut.to_le_bytes());
    out.extend_from_slice(&splice.right.0.to_le_bytes());
    push_fence(out, Some(splice.lower));
    push_fence(out, splice.upper);
    push_fence(out, Some(splice.prefix));
    out.extend_from_slice(splice.cells.0);
}

fn decode_splice(mut fields: Fields<'_>) -> Result<Splice<'_>, BadChange> {
    let (at, cut, right) = (fields.u16()?, fields.u16()?, fields.page()?);
    let lower = fields.fence()?.ok_or(BadChange)?;
    let upper = fields.fence()?;
    let prefix = fields.fence()?.ok_or(BadChange)?;
    Ok(Splice { at, cut, right, lower, upper, prefix, cells: Cells(fields.rest()) })
}

fn format_page(page: &mut PageBuf, kind: PageKind, bytes: &[u8]) -> Result<(), BadChange> {
    if bytes.len() > PAGE_SIZE - BODY_AT || matches!(kind, PageKind::Leaf | PageKind::Inner) {
        return Err(BadChange);
    }
    set_kind(page, kind);
    page[KIND_OWN_AT..KIND_OWN_AT + 2].fill(0);
    page[BODY_AT..BODY_AT + bytes.len()].copy_from_slice(bytes);
    page[BODY_AT + bytes.len()..].fill(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use terrace_rt::Prng;

    use super::*;
    use crate::btree::node::{self, GHOST, KEY_MAX, Node};

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn encoded(change: &Change<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        change.encode(&mut bytes);
        assert_eq!(Change::decode(&bytes), Ok(*change), "decoding gives back what was encoded");
        bytes
    }

    /// Applies a change as a log record would bring it, and checks the page.
    fn apply(page: &mut PageBuf, change: &Change<'_>) -> Result<(), BadChange> {
        let bytes = encoded(change);
        let before = *page;
        let done = Change::decode(&bytes).expect("just encoded").apply(page);
        match done {
            Ok(()) => assert_eq!(node::check(page), Ok(()), "after {change:?}"),
            Err(BadChange) => assert!(before == *page, "an error changes nothing"),
        }
        done
    }

    fn leaf(lower: &[u8], upper: Option<&[u8]>, cells: Cells<'_>) -> Box<PageBuf> {
        let shape =
            Shape { level: 0, tree: 7, lower, upper, right: PageId(9), first_child: PageId(0) };
        let mut page = Box::new([0xa5; PAGE_SIZE]);
        apply(&mut page, &Change::Node { shape, cells }).expect("an empty leaf fits");
        page
    }

    fn agrees(page: &PageBuf, model: &Model) {
        let node = Node::open(page).expect("a node");
        assert_eq!(node.len(), model.len());
        for (index, (key, record)) in model.iter().enumerate() {
            assert_eq!(node.search(key), Ok(index), "{key:?}");
            let (flags, value) = node.record(index);
            assert_eq!((flags, value), (record[0], &record[1..]));
            assert_eq!(&*node.key(index), &key[..]);
        }
    }

    /// Keys of several shapes: long shared prefixes, zeroes at the end, near neighbours.
    fn random_key(prng: &mut Prng, shape: u64) -> Vec<u8> {
        match shape {
            0 => prng.below(5_000).to_be_bytes().to_vec(),
            1 => {
                let len = prng.below(7) as usize;
                (0..len).map(|_| prng.below(3) as u8).collect()
            }
            2 => {
                let mut key = vec![b'p'; 300 + prng.below(40) as usize];
                key.extend((0..prng.below(5)).map(|_| prng.below(250) as u8));
                key
            }
            _ => {
                let len = prng.below(KEY_MAX as u64 + 1) as usize;
                (0..len).map(|_| prng.below(256) as u8).collect()
            }
        }
    }

    fn random_record(prng: &mut Prng) -> Vec<u8> {
        let len = if prng.below(8) == 0 { prng.below(900) } else { prng.below(60) };
        let mut record = vec![prng.below(2) as u8];
        record.extend((0..len).map(|_| prng.below(256) as u8));
        record
    }

    fn step(prng: &mut Prng, page: &mut PageBuf, model: &mut Model, shape: u64) {
        let key = random_key(prng, shape);
        let record = random_record(prng);
        let node = Node::open(page).expect("a node");
        match node.search(&key) {
            Err(at) => {
                let fits = edit::fits(&node, &key, record.len());
                let change = Change::LeafInsert { slot: at as u16, key: &key, record: &record };
                assert_eq!(apply(page, &change).is_ok(), fits, "the estimate holds");
                if fits {
                    model.insert(key, record);
                }
            }
            Ok(at) if prng.below(3) == 0 => {
                let slots = (at as u16).to_le_bytes();
                let purge = Change::LeafPurge { slots: &slots };
                assert_eq!(apply(page, &purge), Err(BadChange), "only ghosts are purged");
                apply(page, &Change::LeafMark { slot: at as u16, flags: GHOST }).expect("there");
                assert_eq!(Node::open(page).expect("a node").ghosts(), 1);
                apply(page, &purge).expect("a ghost");
                model.remove(&key);
            }
            Ok(at) if prng.below(2) == 0 => {
                let fits = edit::fits_in_place_of(&node, at, record.len());
                let change = Change::LeafReplace { slot: at as u16, record: &record };
                assert_eq!(apply(page, &change).is_ok(), fits, "the estimate holds");
                if fits {
                    model.insert(key, record);
                }
            }
            Ok(at) => {
                let old = &model[&key];
                let from = prng.below(old.len() as u64) as usize;
                let cut = prng.below((old.len() - from) as u64) as usize;
                let bytes =
                    if prng.below(2) == 0 { &record[..cut.min(record.len())] } else { &record };
                let new = [&old[..1 + from], bytes, &old[1 + from + cut..]].concat();
                let (slot, cut) = (at as u16, cut as u16);
                let change = Change::LeafPatch { slot, at: from as u16, cut, bytes };
                if apply(page, &change).is_ok() {
                    model.insert(key, new);
                }
            }
        }
    }

    #[test]
    fn a_leaf_agrees_with_a_map() {
        for seed in 0..60 {
            let mut prng = Prng::from_seed(seed);
            let mut page = leaf(b"", None, Cells(&[]));
            let mut model = Model::new();
            for _ in 0..400 {
                step(&mut prng, &mut page, &mut model, seed % 4);
            }
            agrees(&page, &model);
            for _ in 0..50 {
                let key = random_key(&mut prng, seed % 4);
                let rank = model.range(..key.to_vec()).count();
                let found = if model.contains_key(&key) { Ok(rank) } else { Err(rank) };
                assert_eq!(Node::open(&page).expect("a node").search(&key), found);
            }
        }
    }

    #[test]
    fn a_split_leaf_merges_back() {
        for seed in 0..60 {
            let mut prng = Prng::from_seed(seed);
            let mut page = leaf(b"", None, Cells(&[]));
            let mut model = Model::new();
            for _ in 0..200 {
                step(&mut prng, &mut page, &mut model, seed % 4);
            }
            let node = Node::open(&page).expect("a node");
            if node.len() < 2 {
                continue;
            }
            let keep = 1 + prng.below(node.len() as u64 - 1) as usize;
            let (before, after) = (node.key(keep - 1), node.key(keep));
            let fence = node::separator(&before, &after).to_vec();
            assert!(*before < *fence && *fence <= *after);
            let mut cells = Vec::new();
            Cells::push_from(&mut cells, &node, keep);
            let right = leaf(&fence, None, Cells(&cells));
            let (upper, page_id) = (&fence[..], PageId(10));
            let change = Change::Truncate { keep: keep as u16, upper, right: page_id };
            apply(&mut page, &change).expect("less fits");
            let mut cells = Vec::new();
            Cells::push_from(&mut cells, &Node::open(&right).expect("a node"), 0);
            let cells = Cells(&cells);
            apply(&mut page, &Change::Absorb { cells, upper: None, right: PageId(9) })
                .expect("it fitted before");
            agrees(&page, &model);
        }
    }

    #[test]
    fn separators_come_and_go() {
        let mut prng = Prng::from_seed(3);
        let mut page = Box::new([0; PAGE_SIZE]);
        let shape = Shape {
            level: 2,
            tree: 7,
            lower: b"",
            upper: None,
            right: PageId(0),
            first_child: PageId(1),
        };
        let change = Change::Node { shape, cells: Cells(&[]) };
        assert!(change.formats());
        apply(&mut page, &change).expect("an empty node fits");
        let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for number in 2..3_000 {
            let key = (prng.below(2_000) + 1).to_be_bytes().to_vec();
            let node = Node::open(&page).expect("a node");
            match node.search(&key) {
                Ok(slot) => {
                    apply(&mut page, &Change::InnerRemove { slot: slot as u16 }).expect("there");
                    model.remove(&key);
                }
                Err(slot) => {
                    let (slot, child) = (slot as u16, PageId(number));
                    if apply(&mut page, &Change::InnerInsert { slot, key: &key, child }).is_ok() {
                        model.insert(key, number);
                    }
                }
            }
        }
        let node = Node::open(&page).expect("a node");
        for key in 0..2_100u64 {
            let key = key.to_be_bytes();
            let at = model.range(..=key.to_vec()).next_back();
            assert_eq!(node.child(node.child_of(&key)).0, at.map_or(1, |(_, child)| *child));
            let below = model.range(..key.to_vec()).next_back();
            assert_eq!(node.child(node.child_below(&key)).0, below.map_or(1, |(_, child)| *child));
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut prng = Prng::from_seed(11);
        let mut model = Model::new();
        let mut whole = leaf(b"", None, Cells(&[]));
        for _ in 0..100 {
            step(&mut prng, &mut whole, &mut model, 0);
        }
        for _ in 0..200_000 {
            let mut page = whole.clone();
            for _ in 0..prng.below(4) {
                let at = if prng.below(2) == 0 { prng.below(200) } else { prng.below(8192) };
                page[at as usize] = prng.below(256) as u8;
            }
            let mut bytes: Vec<u8> = (0..prng.below(60)).map(|_| prng.below(256) as u8).collect();
            if let Some(tag) = bytes.first_mut() {
                *tag %= 15;
            }
            for byte in bytes.iter_mut().skip(1) {
                if prng.below(2) == 0 {
                    *byte = 0;
                }
            }
            let _ = node::check(&page);
            if let Ok(change) = Change::decode(&bytes) {
                assert_eq!(encoded(&change), bytes);
                let _ = change.apply(&mut page);
            }
            if let Some(node) = Node::open(&page) {
                let _ = (node.search(&bytes), node.used(), node.cell_len(3), node.child(1));
            }
        }
    }
}
