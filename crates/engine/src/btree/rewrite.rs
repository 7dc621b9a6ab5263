//! Values that compaction moves: each is put again, as it is, by a transaction of its own.
//!
//! The pages of a value cannot change their place as those of a node do: a reader of the value may
//! know them, and an undo, or a snapshot, has the record that refers to them. So the row is
//! locked, and updated to what it is: the new pages are in other extents (`space::vacate`), and
//! the old ones are given up as by any update.
//!
//! - R1: a row that another transaction has locked stays where it is.
//! - R2: values that are written home first (`runs`) stay: they take whole extents.

use terrace_page::PageId;

use super::descend::Seek;
use super::node::{GHOST, Node, OVERFLOW};
use super::overflow::DATA_MAX;
use super::reference::{Form, Reference};
use super::{Tree, lock_or_wait};
use crate::space::{EXTENT_PAGES, Extent, Vacated};
use crate::writer::{Step, Writer};
use crate::{Error, LockMode};

/// Extents of a tree that are to be vacated.
#[derive(Debug, Default)]
pub(crate) struct ToVacate {
    /// Of those with its blocks.
    pub(crate) blocks: Vacated,
    /// Of the others.
    pub(crate) own: Vacated,
}

/// Keys that may have pages where they should not, and where the next leaf begins.
pub(crate) struct Candidates {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) next: Option<Vec<u8>>,
}

/// A value that is to move, and how many pages it has.
pub(crate) struct ToMove {
    pub(crate) value: Vec<u8>,
    pub(crate) pages: u64,
}

impl ToVacate {
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.own.is_empty()
    }

    /// Whether the value may have a page that is to go, as far as its record tells.
    fn may_have(&self, reference: &Reference) -> bool {
        match reference.form {
            Form::Block => self.blocks.has(reference.first),
            Form::Chain if self.own.is_empty() => false,
            Form::Chain => self.own.has(reference.first) || reference.len > DATA_MAX as u64,
            Form::Lists => false,
        }
    }
}

impl Tree {
    /// Whether an extent holds the tree's header or root, which never move.
    pub(crate) fn stays_in(&self, extent: &Extent) -> bool {
        let is_in = |page: PageId| page.0 / EXTENT_PAGES == extent.first.0 / EXTENT_PAGES;
        is_in(self.header) || is_in(self.root())
    }

    /// The keys of the leaf of `from` whose values may have pages that are to go.
    ///
    /// # Errors
    ///
    /// `Corrupt`, those of the pool.
    pub(crate) fn values_in(&self, from: &[u8], extents: &ToVacate) -> Result<Candidates, Error> {
        let leaf = self.leaf_shared(Seek::Key(from))?;
        let node = self.node(leaf.id(), &leaf)?;
        let mut keys = Vec::new();
        for slot in 0..node.len() {
            let (flags, value) = node.record(slot);
            if flags & (OVERFLOW | GHOST) == OVERFLOW
                && extents.may_have(&Reference::of(leaf.id(), value)?)
            {
                keys.push(node.key(slot).to_vec());
            }
        }
        Ok(Candidates { keys, next: node.upper().map(<[u8]>::to_vec) })
    }

    /// Locks `key`, and reads its value if that has a page that is to go: it is to be put again.
    ///
    /// # Errors
    ///
    /// `Corrupt`, those of the pool.
    pub(crate) fn value_to_move<W: Writer>(
        &self,
        w: &mut W,
        key: &[u8],
        extents: &ToVacate,
    ) -> Result<Step<Option<ToMove>>, Error> {
        let leaf = self.leaf_write(w, key)?;
        let node = Node::again(&leaf);
        let Ok(slot) = node.search(key) else { return Ok(Step::Done(None)) };
        lock_or_wait!(self, w, key, LockMode::Exclusive);
        let (flags, value) = node.record(slot);
        if flags & (OVERFLOW | GHOST) != OVERFLOW {
            return Ok(Step::Done(None));
        }
        let reference = Reference::of(leaf.id(), value)?;
        let Some(pages) = self.pages_to_move(&reference, extents)? else {
            return Ok(Step::Done(None));
        };
        let mut value = Vec::new();
        self.copy_value(&leaf, slot, &mut value)?;
        Ok(Step::Done(Some(ToMove { value, pages })))
    }

    /// How many pages the value has, if one of them is to go.
    fn pages_to_move(
        &self,
        reference: &Reference,
        extents: &ToVacate,
    ) -> Result<Option<u64>, Error> {
        if !extents.may_have(reference) {
            return Ok(None);
        }
        if reference.is_block() {
            return Ok(Some(1));
        }
        let (mut pages, mut is_there, mut next) = (0, false, reference.first);
        while next != PageId(0) && pages <= reference.len / DATA_MAX as u64 {
            is_there |= extents.own.has(next);
            pages += 1;
            next = self.link_of(next, &*self.pool.read(next)?, reference.stamp)?.next;
        }
        Ok(is_there.then_some(pages))
    }
}
