//! Compaction: nodes come together in fewer pages, and pages in fewer extents.
//!
//! Each step is one nested action that latches all it changes, exclusively, until it has ended, in
//! the order of `btree`; it asks for no transaction lock, and changes no row.
//!
//! - X1: a node that moves is made in its new place by one record with all its content (`Node`),
//!   its old page is freed by another one: redo needs neither of them as it was.
//! - X2: all links to it change with it: that of the parent, which has it as a child, and the
//!   `right` of the left neighbour, even under another parent.
//! - X3: the tree's header and root never move: the catalog, or the header, says where they are.
//! - X4: values outside leaves move otherwise: see `rewrite`.

use terrace_page::{PAGE_SIZE, PageId, PageKind, kind};
use terrace_pool::Mutation;

use super::Tree;
use super::cells::Cells;
use super::descend::Seek;
use super::edit::{self, Shape};
use super::merge::{CELLS_MAX, Merged, Rule, dense_max};
use super::node::{self, NODE_HEADER, Node, SLOT};
use crate::Error;
use crate::change::{Change, FREE};
use crate::writer::{Undo, Writer};

/// What a step along a level has done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Tightened {
    /// The node has taken in the next one: it may take another.
    Merged,
    /// The node stays as it is, and the next one begins at this key.
    Next(Vec<u8>),
    /// It is the last one of its level.
    Last,
    /// The tree has no such level below its root.
    TooHigh,
}

/// What became of a page that was to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// It has moved.
    Yes,
    /// The extent that it was to go to has no room.
    NoRoom,
    /// It stays: it is no node that may move, or another task has changed what is around it.
    No,
}

/// Children that are read ahead.
const AHEAD: usize = 16;
/// A leaf with fewer bytes takes rows of the next one.
const LOOSE_MAX: usize = PAGE_SIZE / 100 * 86;
/// Bytes of a child in an inner node.
const CHILD: usize = 8;

/// Whether a leaf whose first `count` rows have gone has room for its new lower fence, which may be
/// longer than they were, and for what is `kept` for its rows.
fn keeps_room(leaf: &Node<'_>, count: usize, kept: &[usize]) -> bool {
    let fence = node::separator(&leaf.key(count - 1), &leaf.key(count)).len();
    let upper = leaf.upper().map_or(0, <[u8]>::len);
    // A longer prefix takes no more than it takes from the keys.
    let fences = fence + upper + leaf.prefix().len() + SLOT;
    let gone: usize = (0..count).map(|index| SLOT + leaf.cell_len(index)).sum();
    let kept: usize = kept.iter().skip(count).sum();
    NODE_HEADER + fences + leaf.used() - gone + kept <= PAGE_SIZE
}

/// Where a node is in its tree.
struct Around {
    level: u8,
    lower: Vec<u8>,
    /// Its left neighbour, if it has one.
    left: Option<PageId>,
}

impl Tree {
    /// Whether it is worth a transaction to call `tighten`: what comes next otherwise. Takes shared
    /// latches only.
    ///
    /// # Errors
    ///
    /// `Corrupt`, those of the pool.
    pub(crate) fn after_dense<W: Writer>(
        &self,
        w: &W,
        level: u8,
        key: &[u8],
    ) -> Result<Option<Tightened>, Error> {
        let root = self.pool.read(self.root())?;
        if self.node(self.root(), &root)?.level() <= level {
            return Ok(Some(Tightened::TooHigh));
        }
        drop(root);
        if self.may_take(w, level, key)? {
            return Ok(None);
        }
        let Some(page) = self.node_shared(Seek::Key(key), level)? else {
            return Ok(Some(Tightened::TooHigh));
        };
        let node = self.node(page.id(), &page)?;
        Ok(Some(match node.upper() {
            // Purging may make it worth a merge.
            _ if node.is_leaf() && node.ghosts() > 0 => return Ok(None),
            Some(upper) => Tightened::Next(upper.to_vec()),
            None => Tightened::Last,
        }))
    }

    /// Whether the node of `level` that covers `key` would take in the next one, or a part of it:
    /// asked under shared latches. Reads the pages that follow ahead.
    fn may_take<W: Writer>(&self, w: &W, level: u8, key: &[u8]) -> Result<bool, Error> {
        self.fetch_ahead(level, key)?;
        let Some(parent) = self.node_shared(Seek::Key(key), level + 1)? else { return Ok(false) };
        let node = self.node(parent.id(), &parent)?;
        let at = node.child_of(key);
        if at == node.len() {
            return Ok(node.len() == 0 && parent.id() == self.root());
        }
        let left = self.pool.read(node.child(at))?;
        let right = self.pool.read(node.child(at + 1))?;
        let pair = ((left.id(), &*left), (right.id(), &*right));
        if self.is_worth_merging(w, pair.0, pair.1, level, Rule::Dense)? {
            return Ok(true);
        }
        let (left, right) = (self.node(left.id(), &left)?, self.node(right.id(), &right)?);
        Ok(level == 0 && self.takes(w, &left, &right).is_some())
    }

    /// Reads the node of `level` and those that follow it, while no latch is held.
    fn fetch_ahead(&self, level: u8, key: &[u8]) -> Result<(), Error> {
        let Some(parent) = self.node_shared(Seek::Key(key), level + 1)? else { return Ok(()) };
        let node = self.node(parent.id(), &parent)?;
        let at = node.child_of(key);
        let near: Vec<_> = (at..=(at + AHEAD).min(node.len())).map(|at| node.child(at)).collect();
        drop(parent);
        self.pool.prefetch(&near);
        Ok(())
    }

    /// How many of the first rows of a leaf the one on its left should take: it is loose, and some
    /// stay.
    fn takes<W: Writer>(&self, w: &W, left: &Node<'_>, right: &Node<'_>) -> Option<usize> {
        let kept = |node: &Node<'_>| self.all_kept(w, node);
        if left.len() == 0 || right.len() < 2 || Cells::len_of(right) > CELLS_MAX {
            return None;
        }
        let prefix = node::common_prefix(&left.key(0), &right.key(right.len() - 1));
        let longer = |node: &Node<'_>| node.prefix().len().saturating_sub(prefix);
        let fences = left.lower().len() + prefix + SLOT;
        let mut len = NODE_HEADER + fences + left.used() + left.len() * longer(left);
        len += kept(left).iter().sum::<usize>();
        if len > LOOSE_MAX {
            return None;
        }
        let (kept, len_max) = (kept(right), dense_max(left, right));
        let mut count = 0;
        for index in 0..right.len() - 1 {
            len += SLOT + right.cell_len(index) + longer(right);
            len += kept.get(index).copied().unwrap_or(0);
            if len + right.key(index + 1).len() > len_max {
                break;
            }
            count = index + 1;
        }
        (1..=count).rev().find(|&count| keeps_room(right, count, &kept))
    }

    /// Moves the first rows of the next leaf into that of `key`, if it is loose. Returns where the
    /// next leaf begins then.
    fn shift<W: Writer>(&self, w: &mut W, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let Some(mut parent) = self.node_exclusive(Seek::Key(key), 1)? else { return Ok(None) };
        let above = self.node(parent.id(), &parent)?;
        let slot = above.child_of(key);
        if slot == above.len() {
            return Ok(None);
        }
        let mut left = self.pool.write(above.child(slot))?;
        let mut right = self.pool.write(above.child(slot + 1))?;
        let left_node = self.child(&left, left.id(), 0, key)?;
        let right_node = self.node(right.id(), &right)?;
        if left_node.upper() != Some(right_node.lower()) || left_node.right() != right.id() {
            return Err(Tree::corrupt(left.id(), "two children do not meet"));
        }
        let Some(count) = self.takes(w, &left_node, &right_node) else { return Ok(None) };
        let (last, first) = (right_node.key(count - 1), right_node.key(count));
        let fence = node::separator(&last, &first).to_vec();
        if !edit::fits(&above, &fence, CHILD) {
            return Ok(None);
        }
        let (mut taken, mut rest) = (Vec::new(), Vec::new());
        Cells::push_some(&mut taken, &right_node, 0..count);
        Cells::push_from(&mut rest, &right_node, count);
        let upper = right_node.upper().map(<[u8]>::to_vec);
        let (child, next) = (right.id(), right_node.right());
        let shape = Shape { lower: &fence, upper: upper.as_deref(), ..Shape::of(&right_node) };
        let shape = Shape { right: next, ..shape };
        let nested = w.begin_nested();
        let cells = Cells(&taken);
        let change = Change::Absorb { cells, upper: Some(&fence), right: child };
        w.change(&mut left, &change, Undo::None)?;
        let change = Change::Node { shape, cells: Cells(&rest) };
        w.change(&mut right, &change, Undo::None)?;
        let slot = slot as u16;
        w.change(&mut parent, &Change::InnerRemove { slot }, Undo::None)?;
        let change = Change::InnerInsert { slot, key: &fence, child };
        w.change(&mut parent, &change, Undo::None)?;
        w.end_nested(nested)?;
        Ok(Some(fence))
    }

    /// Purges the node of `level` that covers `key`, if it is a leaf, and has it take in the next
    /// one, or as much of it as there is room for.
    ///
    /// # Errors
    ///
    /// `Corrupt`, those of the pool and of `Writer::change`.
    pub(crate) fn tighten<W: Writer>(
        &self,
        w: &mut W,
        level: u8,
        key: &[u8],
    ) -> Result<Tightened, Error> {
        if level == 0 {
            let mut leaf = self.leaf_exclusive(Seek::Key(key))?;
            self.purge(w, &mut leaf)?;
        }
        if self.merge(w, level, key, Rule::Dense)? != Merged::No {
            return Ok(Tightened::Merged);
        }
        if level == 0
            && let Some(next) = self.shift(w, key)?
        {
            return Ok(Tightened::Next(next));
        }
        let Some(page) = self.node_shared(Seek::Key(key), level)? else {
            return Ok(Tightened::TooHigh);
        };
        let upper = self.node(page.id(), &page)?.upper().map(<[u8]>::to_vec);
        Ok(upper.map_or(Tightened::Last, Tightened::Next))
    }

    /// Moves the node in `page` to a free page of the extent of `place`, which is this tree's.
    ///
    /// # Errors
    ///
    /// `Corrupt`, those of the pool and of `Writer::change`.
    pub(crate) fn move_node<W: Writer>(
        &self,
        w: &mut W,
        page: PageId,
        place: PageId,
    ) -> Result<Moved, Error> {
        let Some(Around { level, lower, left }) = self.around(page)? else {
            return Ok(Moved::No);
        };
        let Some(mut parent) = self.node_exclusive(Seek::Key(&lower), level + 1)? else {
            return Ok(Moved::No);
        };
        let above = self.node(parent.id(), &parent)?;
        let index = above.child_of(&lower);
        if above.child(index) != page {
            return Ok(Moved::No);
        }
        let child_at = match index.checked_sub(1) {
            None => node::FIRST_CHILD_AT,
            Some(slot) => above.cell_at(slot),
        };
        let mut left = match left {
            None => None,
            Some(id) => {
                let left = self.pool.write(id)?;
                let is_left = Node::open(&left).is_some_and(|node| {
                    node.tree() == self.id.0 && node.level() == level && node.right() == page
                });
                if !is_left {
                    return Ok(Moved::No);
                }
                Some(left)
            }
        };
        let mut old = self.pool.write(page)?;
        let node = self.child(&old, page, level, &lower)?;
        if Cells::len_of(&node) > CELLS_MAX {
            return Ok(Moved::No);
        }
        let Some(mut moving) = self.space.moving(self.id, page, place)? else {
            return Ok(Moved::NoRoom);
        };
        let mut new = self.pool.create(moving.page())?;
        let shape = Shape::of(&node);
        let mut cells = Vec::with_capacity(PAGE_SIZE);
        Cells::push_from(&mut cells, &node, 0);
        let id = moving.page().0.to_le_bytes();
        let link = |at: usize| Change::Bytes { at: at as u16, bytes: &id };
        let nested = w.begin_nested();
        moving.put(w)?;
        w.change(&mut new, &Change::Node { shape, cells: Cells(&cells) }, Undo::None)?;
        w.change(&mut parent, &link(child_at), Undo::None)?;
        if let Some(left) = &mut left
            && !self.pool.mutations().has(Mutation::MoveWithoutNeighbour)
        {
            w.change(left, &link(node::RIGHT_AT), Undo::None)?;
        }
        w.change(&mut old, &FREE, Undo::None)?;
        w.end_nested(nested)?;
        drop((parent, left, old, new));
        moving.done();
        Ok(Moved::Yes)
    }

    /// What is around a node that may move. It may have changed when this returns.
    fn around(&self, page: PageId) -> Result<Option<Around>, Error> {
        if page == self.root() || page == self.header {
            return Ok(None);
        }
        let (level, lower) = {
            // It may be free by now, with nothing of it at home.
            let Ok(old) = self.pool.read(page) else { return Ok(None) };
            if !matches!(kind(&old), Some(PageKind::Leaf | PageKind::Inner)) {
                return Ok(None);
            }
            match Node::open(&old) {
                Some(node) if node.tree() == self.id.0 => (node.level(), node.lower().to_vec()),
                _ => return Ok(None),
            }
        };
        if lower.is_empty() {
            return Ok(Some(Around { level, lower, left: None }));
        }
        let Some(left) = self.node_shared(Seek::Below(&lower), level)? else { return Ok(None) };
        Ok(Some(Around { level, lower, left: Some(left.id()) }))
    }
}
