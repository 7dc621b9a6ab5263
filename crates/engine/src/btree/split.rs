//! Splits: how a node gets room.
//!
//! A split latches parent, node, the new right node and a map, and is one nested action. If the
//! parent has no room for the separator, the parent is split first, by the same way, and the split
//! starts over: sizes are exact, nothing is kept free in advance. When the root is full, its
//! contents move to a new page and the root becomes that page's parent.
//!
//! A leaf is not split if a purge of ghosts makes room, or a longer prefix.
//!
//! Where a node is split:
//!
//! - Keys that came in ascending order (the newest one right after the one before, and so on) go
//!   on that way, so all that is below them stays left, as full as `Tree::append_fill` says.
//! - A key that does not share the prefix of the node sorts before or after all others, and would
//!   make each of them longer: it gets a node of its own.
//! - Else in the middle by bytes, with the new cell counted in.
//!
//! - S1: a leaf of two cells or more has a place where both parts fit beside the new fence: the
//!   sizes of the left part with which both fit are a range of `WINDOW` bytes, and no cell is
//!   larger. A leaf of one cell is split before or after that cell, and an empty leaf has room for
//!   any cell. So the part that covers the key has fewer cells after each split, and the need is
//!   met in the end, whatever the sizes, the fences and the place of the key.

use std::ops::Range;

use terrace_page::{PAGE_SIZE, PageId};
use terrace_pool::PageMut;

use super::Tree;
use super::cells::Cells;
use super::descend::Seek;
use super::edit::{self, Shape};
use super::node::{self, CELL_MAX, KEY_MAX, NODE_HEADER, Node, SLOT};
use super::write::ATTEMPTS_MAX;
use crate::Error;
use crate::change::Change;
use crate::space::Purpose;
use crate::writer::{Undo, Writer};

/// The least keys in a row, each inserted right after the one before, that count as an ascending
/// run.
const RUN_MIN: usize = 2;

/// Let a leaf have fences of `l` and `u` bytes, a prefix of `p`, and `t` bytes of cells; the new
/// fence has `f` bytes, and a node has room for `n`, after its header and the padding before its
/// slots. The left part fits with at most `n - p - l - f` bytes of cells, the right one if the left
/// one has at least `t - (n - p - f - u)`. The leaf fits as it is, so these bounds are at least
/// `WINDOW - p` bytes apart, and each cell is smaller by `p` than it would be without prefix.
const WINDOW: usize = PAGE_SIZE - NODE_HEADER - 2 * KEY_MAX - 2 * (SLOT - 1);
// S1. A row may be kept at the length of another one's record, see leaf_room.rs.
const _: () = assert!(CELL_MAX + KEY_MAX <= WINDOW);

/// What a node shall have room for, at the place of a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Need {
    /// A new cell: its bytes beside the key, flags included, or 8 for a child.
    Insert { body_len: usize },
    /// Another record for the key: its bytes, flags included.
    Replace { record_len: usize },
}

impl Tree {
    fn is_met<W: Writer>(&self, w: &W, need: Need, node: &Node<'_>, key: &[u8]) -> bool {
        match need {
            // One that another has put there meanwhile needs no new cell, and no fence fits before
            // the first key of a leaf.
            Need::Insert { .. } if node.is_leaf() && node.search(key).is_ok() => true,
            Need::Insert { body_len } if node.is_leaf() => self.fits(w, node, key, body_len),
            Need::Insert { body_len } => edit::fits(node, key, body_len),
            Need::Replace { record_len } => match node.search(key) {
                Ok(slot) => self.fits_in_place_of(w, node, slot, record_len),
                Err(_) => true,
            },
        }
    }
}

/// Where to split.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    /// Cells that stay left. Of an inner node, the next cell's key becomes the fence, and its child
    /// the first one of the right node.
    keep: usize,
    fence: Vec<u8>,
}

impl Plan {
    /// Where to split a node whose cells need `kept` more bytes each, or none.
    fn new(
        node: &Node<'_>,
        key: &[u8],
        need: Need,
        append_fill: usize,
        kept: &[usize],
    ) -> Option<Plan> {
        let (slot, pending) = match (need, node.search(key)) {
            (Need::Insert { body_len }, Ok(slot) | Err(slot)) => {
                (slot, Some(SLOT + edit::cell_len(node, key, body_len)))
            }
            (Need::Replace { .. }, Ok(slot) | Err(slot)) => (slot, None),
        };
        let mut sizes: Vec<usize> =
            (0..node.len()).map(|index| size_with(node, index, kept)).collect();
        match (pending, need) {
            (Some(size), _) => sizes.insert(slot, size),
            (None, Need::Replace { record_len }) => {
                let suffix = node.suffix(slot).len();
                let new = SLOT + node::LEAF_CELL - 1 + suffix + record_len;
                sizes[slot] = sizes[slot].max(new);
            }
            (None, Need::Insert { .. }) => unreachable!("an insertion has a size"),
        }
        if sizes.len() < 2 {
            // S1: one cell that has no room alone is larger than any that is ever written.
            return None;
        }
        let left = items_left(node, key, slot, pending.is_some(), &sizes, append_fill);
        let plan = |left: usize| {
            if node.is_leaf() {
                return Plan::leaf(node, key, pending.map(|_| slot), left);
            }
            // The middle cell goes up, so it is the one after those that stay.
            let keep = left.min(node.len()).saturating_sub(usize::from(left > slot));
            let keep = keep.min(node.len() - 1);
            Plan { keep, fence: node.key(keep).to_vec() }
        };
        // Either part gets a fence that the node did not have, and a full node has no room for it.
        let fewer = (1..=left).rev().map(plan).find(|plan| plan.left_fits(node, kept));
        if let Some(plan) = fewer.filter(|plan| plan.right_fits(node, kept)) {
            return Some(plan);
        }
        let mut by_distance: Vec<usize> = (1..sizes.len()).collect();
        by_distance.sort_by_key(|other| other.abs_diff(left));
        let fits = |plan: &Plan| plan.left_fits(node, kept) && plan.right_fits(node, kept);
        by_distance.into_iter().map(plan).find(fits)
    }

    /// Whether the cells that stay have room beside the new upper fence.
    fn left_fits(&self, node: &Node<'_>, kept: &[usize]) -> bool {
        part_fits(node, 0..self.keep, kept, node.lower().len() + self.fence.len())
    }

    /// Whether the cells that go have room beside the new lower fence.
    fn right_fits(&self, node: &Node<'_>, kept: &[usize]) -> bool {
        let upper_len = node.upper().map_or(0, <[u8]>::len);
        part_fits(node, self.keep..node.len(), kept, self.fence.len() + upper_len)
    }

    /// The first `left` of the cells stay, counting the new one if it comes at `new`.
    fn leaf(node: &Node<'_>, key: &[u8], new: Option<usize>, left: usize) -> Plan {
        let key_of = |item: usize| match new {
            Some(slot) if item == slot => key.to_vec(),
            Some(slot) if item > slot => node.key(item - 1).to_vec(),
            _ => node.key(item).to_vec(),
        };
        let (last, first) = (key_of(left - 1), key_of(left));
        let keep = left - usize::from(new.is_some_and(|slot| slot < left));
        Plan { keep, fence: node::separator(&last, &first).to_vec() }
    }
}

/// Bytes of a cell and its slot, and what is kept for it.
fn size_with(node: &Node<'_>, index: usize, kept: &[usize]) -> usize {
    SLOT + node.cell_len(index) + kept.get(index).copied().unwrap_or(0)
}

/// Whether these cells fit in a node with `fences_len` bytes of fences. The prefix of a part is at
/// least that of the whole, and saves on each cell what it takes once; slots are aligned.
fn part_fits(node: &Node<'_>, part: Range<usize>, kept: &[usize], fences_len: usize) -> bool {
    let cells: usize = part.map(|index| size_with(node, index, kept)).sum();
    fences_len + node.prefix().len() + SLOT - 1 + cells <= PAGE_SIZE - NODE_HEADER
}

/// How many of the items, with the sizes given, go left; at least one goes either way.
fn items_left(
    node: &Node<'_>,
    key: &[u8],
    slot: usize,
    inserts: bool,
    sizes: &[usize],
    append_fill: usize,
) -> usize {
    let most = sizes.len() - 1;
    if inserts && !key.starts_with(node.prefix()) {
        return if slot == 0 { 1 } else { most };
    }
    if inserts && slot > 0 && is_ascending(node, slot) {
        let target = (PAGE_SIZE - NODE_HEADER) * append_fill / 100;
        let mut used = 0;
        let full = sizes.iter().take_while(|size| {
            used += **size;
            used <= target
        });
        return full.count().clamp(1, slot);
    }
    let total: usize = sizes.iter().sum();
    let mut below = 0;
    for (index, size) in sizes.iter().enumerate() {
        if 2 * below + size >= total {
            return index.clamp(1, most);
        }
        below += size;
    }
    most
}

fn is_ascending(node: &Node<'_>, slot: usize) -> bool {
    let at_the_end = slot == node.len() && node.upper().is_none();
    let (last, run) = node.last_insert();
    at_the_end || (node.is_leaf() && slot == last + 1 && run >= RUN_MIN)
}

impl Tree {
    /// Makes room in the leaf of `key`, by a purge if there is something to purge, else by a split:
    /// some of it, so look again afterwards.
    ///
    /// # Errors
    ///
    /// `HomeFull`, `Corrupt`, those of the pool and of `Writer::change`.
    pub(super) fn make_room<W: Writer>(
        &self,
        w: &mut W,
        key: &[u8],
        need: Need,
        purpose: Purpose,
    ) -> Result<(), Error> {
        {
            let mut leaf = self.leaf_exclusive(Seek::Key(key))?;
            if self.purge(w, &mut leaf)? > 0 || self.lengthen_prefix(w, &mut leaf, key, need)? {
                return Ok(());
            }
        }
        self.split(w, 0, key, need, purpose)
    }

    /// Takes what all keys of the last leaf have in common out of its cells, if the need is met
    /// then. The leaf began with one key, and has no upper fence that could tell what others begin
    /// with; a split would find the room, when ascending keys do not come back to use it.
    fn lengthen_prefix<W: Writer>(
        &self,
        w: &mut W,
        leaf: &mut PageMut<'_>,
        key: &[u8],
        need: Need,
    ) -> Result<bool, Error> {
        let node = self.node(leaf.id(), leaf)?;
        let Need::Insert { body_len } = need else { return Ok(false) };
        if node.upper().is_some() || node.len() < 2 {
            return Ok(false);
        }
        let (first, last) = (node.key(0), node.key(node.len() - 1));
        let shared = node::common_prefix(&first, &last).min(node::common_prefix(&first, key));
        let more = shared.saturating_sub(node.prefix().len());
        // The prefix takes as much once, and slots are aligned.
        let gain = (more * node.len()).saturating_sub(more + SLOT - 1);
        let needed = edit::needed(&node, key, body_len).saturating_sub(more + gain);
        if gain == 0 || !self.has_room(w, &node, needed, None) {
            return Ok(false);
        }
        let nested = w.begin_nested();
        let change = Change::Absorb { cells: Cells(&[]), upper: None, right: node.right() };
        w.change(leaf, &change, Undo::None)?;
        w.end_nested(nested)?;
        Ok(true)
    }

    /// Splits the node of `level` that covers `key`, unless the need is met.
    fn split<W: Writer>(
        &self,
        w: &mut W,
        level: u8,
        key: &[u8],
        need: Need,
        purpose: Purpose,
    ) -> Result<(), Error> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(mut parent) = self.node_exclusive(Seek::Key(key), level + 1)? else {
                self.grow(w, level, purpose)?;
                continue;
            };
            let parent_node = self.node(parent.id(), &parent)?;
            let index = parent_node.child_of(key);
            let mut left = self.pool.write(parent_node.child(index))?;
            let node = self.child(&left, left.id(), level, key)?;
            if self.is_met(w, need, &node, key) {
                return Ok(());
            }
            let kept = self.all_kept(w, &node);
            let plan = Plan::new(&node, key, need, self.append_fill, &kept)
                .ok_or_else(|| Tree::corrupt(left.id(), "a cell is larger than a page"))?;
            if !edit::fits(&parent_node, &plan.fence, 8) {
                drop((left, parent));
                self.split(w, level + 1, &plan.fence, Need::Insert { body_len: 8 }, purpose)?;
                continue;
            }
            let mut reserved = self.space.reserve(w, self.id, left.id(), 1, purpose)?;
            let mut right = self.pool.create(reserved.pages()[0])?;
            let right_id = right.id();
            let (shape, cells) = right_part(&node, &plan);
            let shape = Shape { lower: &plan.fence, ..shape };
            let nested = w.begin_nested();
            reserved.take(w)?;
            w.change(&mut right, &Change::Node { shape, cells: Cells(&cells) }, Undo::None)?;
            let (keep, upper) = (plan.keep as u16, &plan.fence[..]);
            w.change(&mut left, &Change::Truncate { keep, upper, right: right_id }, Undo::None)?;
            let (slot, key) = (index as u16, &plan.fence[..]);
            let change = Change::InnerInsert { slot, key, child: right_id };
            w.change(&mut parent, &change, Undo::None)?;
            return w.end_nested(nested);
        }
        Err(Tree::corrupt(self.header, "splits make no room in this tree"))
    }

    /// Moves the root, if it is of `level`, into a page below it.
    fn grow<W: Writer>(&self, w: &mut W, level: u8, purpose: Purpose) -> Result<(), Error> {
        let mut root = self.pool.write(self.root())?;
        let node = self.node(root.id(), &root)?;
        if node.level() != level {
            return Ok(());
        }
        let mut reserved = self.space.reserve(w, self.id, root.id(), 1, purpose)?;
        let mut child = self.pool.create(reserved.pages()[0])?;
        let child_id = child.id();
        let shape = Shape::of(&node);
        let mut cells = Vec::new();
        Cells::push_from(&mut cells, &node, 0);
        let above = Shape {
            level: level + 1,
            tree: self.id.0,
            lower: b"",
            upper: None,
            right: PageId(0),
            first_child: child_id,
        };
        let nested = w.begin_nested();
        reserved.take(w)?;
        w.change(&mut child, &Change::Node { shape, cells: Cells(&cells) }, Undo::None)?;
        w.change(&mut root, &Change::Node { shape: above, cells: Cells(&[]) }, Undo::None)?;
        w.end_nested(nested)
    }
}

/// The new node, all but its lower fence, and its cells.
fn right_part<'a>(node: &Node<'a>, plan: &Plan) -> (Shape<'a>, Vec<u8>) {
    let mut cells = Vec::with_capacity(PAGE_SIZE);
    let mut shape = Shape::of(node);
    if node.is_leaf() {
        Cells::push_from(&mut cells, node, plan.keep);
    } else {
        shape.first_child = node.child(plan.keep + 1);
        Cells::push_from(&mut cells, node, plan.keep + 1);
    }
    (shape, cells)
}
