//! Merges: how nodes that deletions have emptied give their pages back.
//!
//! Leaves share their rows with one page fewer, see [`balance`](super::balance). An inner node that
//! falls below a half is merged with a neighbour of the same parent if the two together fill three
//! quarters at most: so neither a split nor a merge follows at once. Merges go up level by level; a
//! root with a single child takes that child's contents.
//!
//! A compaction ([`Rule::Dense`]) merges any two neighbours of a parent that have room in one page,
//! but for a little; if their cells are so large that none would fit into that, in all of it.

use terrace_page::{PAGE_SIZE, PageBuf, PageId};
use terrace_pool::PageMut;

use super::Tree;
use super::cells::Cells;
use super::descend::Seek;
use super::edit::Shape;
use super::node::{self, INNER_CELL, NODE_HEADER, Node, SLOT};
use crate::Error;
use crate::change::{Change, FREE};
use crate::writer::{Undo, Writer};

/// Below this many bytes of cells an inner node looks for a neighbour to merge with.
const UNDERFULL: usize = PAGE_SIZE / 2;
/// A merged inner node is no fuller than this.
const MERGED_MAX: usize = PAGE_SIZE / 4 * 3;
/// Nor is one that a compaction has filled fuller than this, if that leaves room for a cell.
const DENSE_MAX: usize = PAGE_SIZE / 100 * 93;

/// A compaction logs no more bytes of cells in one step.
pub(super) const CELLS_MAX: usize = 3 * PAGE_SIZE;

/// What a merge has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merged {
    No,
    Yes,
    /// It has, or there was nothing to merge, and the parent is worth a merge now.
    AndThin,
}

/// Which nodes are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Inner nodes below a half, with either neighbour.
    Thin,
    /// All that find room in the one before.
    Dense,
}

/// The bytes that a compaction fills of a page with cells of two nodes.
pub(super) fn dense_max(left: &Node<'_>, right: &Node<'_>) -> usize {
    if mean_cell(left, right) > PAGE_SIZE - DENSE_MAX { PAGE_SIZE } else { DENSE_MAX }
}

/// The bytes that a merge of a thin node fills.
fn merged_max(left: &Node<'_>, right: &Node<'_>) -> usize {
    if mean_cell(left, right) > PAGE_SIZE - MERGED_MAX { PAGE_SIZE } else { MERGED_MAX }
}

fn mean_cell(left: &Node<'_>, right: &Node<'_>) -> usize {
    (left.used() + right.used()) / (left.len() + right.len()).max(1)
}

/// Whether an inner node is worth a merge.
pub(super) fn is_underfull(node: &Node<'_>) -> bool {
    node.used() < UNDERFULL
}

/// At least the bytes of a page that holds both.
fn merged_len(left: &Node<'_>, right: &Node<'_>) -> usize {
    let ends = |node: &Node<'_>| match node.len() {
        0 => None,
        len => Some((node.key(0).to_vec(), node.key(len - 1).to_vec())),
    };
    let prefix = match (ends(left), ends(right)) {
        (Some((first, _)), Some((_, last))) => node::common_prefix(&first, &last),
        _ => 0,
    };
    let cells =
        |node: &Node<'_>| node.used() + node.len() * node.prefix().len().saturating_sub(prefix);
    let separator = SLOT + INNER_CELL + right.lower().len();
    let fences = left.lower().len() + right.upper().map_or(0, <[u8]>::len) + prefix;
    NODE_HEADER + fences + SLOT + cells(left) + separator + cells(right)
}

impl Tree {
    /// Reads the node of `level` and its neighbours while no parent is latched: a merge shall not
    /// hold up every descent while it waits for a device.
    fn fetch_near(&self, level: u8, key: &[u8]) -> Result<(), Error> {
        let Some(parent) = self.node_shared(Seek::Key(key), level + 1)? else { return Ok(()) };
        let node = self.node(parent.id(), &parent)?;
        let at = node.child_of(key);
        let near: Vec<_> =
            (at.saturating_sub(1)..=(at + 1).min(node.len())).map(|at| node.child(at)).collect();
        drop(parent);
        self.pool.prefetch(&near);
        Ok(())
    }

    /// Whether two children of `level`, which should be neighbours, become one.
    pub(super) fn is_worth_merging<W: Writer>(
        &self,
        w: &W,
        (left_id, left): (PageId, &PageBuf),
        (right_id, right): (PageId, &PageBuf),
        level: u8,
        rule: Rule,
    ) -> Result<bool, Error> {
        let (left_node, right_node) = (self.node(left_id, left)?, self.node(right_id, right)?);
        if left_node.level() != level
            || right_node.level() != level
            || left_node.upper() != Some(right_node.lower())
            || left_node.right() != right_id
        {
            return Err(Tree::corrupt(left_id, "two children do not meet"));
        }
        let is_dense = rule == Rule::Dense;
        let worth_it = is_dense || is_underfull(&left_node) || is_underfull(&right_node);
        // With one that is empty, nothing comes together that a split would part again.
        let is_empty = left_node.len() == 0 || right_node.len() == 0;
        let limit = match rule {
            _ if is_empty => PAGE_SIZE,
            Rule::Thin => merged_max(&left_node, &right_node),
            Rule::Dense => dense_max(&left_node, &right_node),
        };
        if !worth_it || merged_len(&left_node, &right_node) > limit {
            return Ok(false);
        }
        if is_dense && Cells::len_of(&right_node) > CELLS_MAX {
            return Ok(false);
        }
        let kept =
            [&left_node, &right_node].map(|node| self.all_kept(w, node).iter().sum::<usize>());
        Ok(merged_len(&left_node, &right_node) + kept[0] + kept[1] <= limit)
    }

    /// Merges the node of `level` that covers `key`.
    pub(super) fn merge<W: Writer>(
        &self,
        w: &mut W,
        level: u8,
        key: &[u8],
        rule: Rule,
    ) -> Result<Merged, Error> {
        self.fetch_near(level, key)?;
        let Some(mut parent) = self.node_exclusive(Seek::Key(key), level + 1)? else {
            return Ok(Merged::No);
        };
        let node = self.node(parent.id(), &parent)?;
        if node.len() == 0 {
            // A compaction goes on with the level above when it has come to the end of this one.
            let waits = rule == Rule::Dense && parent.id() != self.root();
            return if waits { Ok(Merged::No) } else { self.collapse(w, parent) };
        }
        let mut found: Option<(usize, PageMut<'_>, PageMut<'_>)> = None;
        for index in right_ones(&node, key, rule) {
            let left = self.pool.write(node.child(index - 1))?;
            let right = self.pool.write(node.child(index))?;
            let pair = ((left.id(), &*left), (right.id(), &*right));
            if self.is_worth_merging(w, pair.0, pair.1, level, rule)? {
                found = Some((index, left, right));
                break;
            }
        }
        let Some((index, mut left, mut right)) = found else { return Ok(Merged::No) };
        let right_node = self.node(right.id(), &right)?;
        let mut cells = Vec::with_capacity(PAGE_SIZE);
        if level > 0 {
            let first = right_node.child(0).0.to_le_bytes();
            Cells::push(&mut cells, right_node.lower(), &[&first]);
        }
        Cells::push_from(&mut cells, &right_node, 0);
        let upper = right_node.upper().map(<[u8]>::to_vec);
        let (upper, neighbour) = (upper.as_deref(), right_node.right());
        let mut freeing = self.space.freeing(self.id, &[right.id()])?;
        let nested = w.begin_nested();
        let change = Change::Absorb { cells: Cells(&cells), upper, right: neighbour };
        w.change(&mut left, &change, Undo::None)?;
        w.change(&mut right, &FREE, Undo::None)?;
        let change = Change::InnerRemove { slot: (index - 1) as u16 };
        w.change(&mut parent, &change, Undo::None)?;
        freeing.free(w)?;
        w.end_nested(nested)?;
        drop((left, right));
        freeing.done();
        let node = self.node(parent.id(), &parent)?;
        if node.len() == 0 {
            return self.collapse(w, parent);
        }
        let is_thin = parent.id() != self.root() && is_underfull(&node);
        Ok(if is_thin { Merged::AndThin } else { Merged::Yes })
    }

    /// Puts the contents of a root's only child into the root, as long as it has but one. Returns
    /// whether a parent, not the root, with one child is worth a merge.
    pub(super) fn collapse<W: Writer>(
        &self,
        w: &mut W,
        mut root: PageMut<'_>,
    ) -> Result<Merged, Error> {
        if root.id() != self.root() {
            return Ok(Merged::AndThin);
        }
        for _ in 0..node::LEVEL_MAX {
            let node = self.node(root.id(), &root)?;
            if node.is_leaf() || node.len() > 0 {
                break;
            }
            let mut child = self.pool.write(node.child(0))?;
            let child_node = self.child(&child, child.id(), node.level() - 1, b"")?;
            let mut cells = Vec::with_capacity(PAGE_SIZE);
            Cells::push_from(&mut cells, &child_node, 0);
            let shape =
                Shape { lower: b"", upper: None, right: PageId(0), ..Shape::of(&child_node) };
            let mut freeing = self.space.freeing(self.id, &[child.id()])?;
            let nested = w.begin_nested();
            w.change(&mut root, &Change::Node { shape, cells: Cells(&cells) }, Undo::None)?;
            w.change(&mut child, &FREE, Undo::None)?;
            freeing.free(w)?;
            w.end_nested(nested)?;
            drop(child);
            freeing.done();
        }
        Ok(Merged::No)
    }
}

/// The child of `key` is merged with the next one or, if it is thin, the one before: the right ones
/// of the pairs.
fn right_ones(parent: &Node<'_>, key: &[u8], rule: Rule) -> impl Iterator<Item = usize> + use<> {
    let (at, last) = (parent.child_of(key), parent.len());
    let count = if rule == Rule::Thin { 2 } else { 1 };
    [at + 1, at].into_iter().take(count).filter(move |right| (1..=last).contains(right))
}
