//! Undo by key: how a rollback, or recovery, takes a change back wherever its key is by then.
//!
//! No locks are requested: what is undone is still locked, or, in recovery, no other transaction
//! runs. The undo of an insertion leaves a ghost, that of a removal finds one: both change a byte,
//! and need no room in the page. Structure changes on the way are nested actions like any; the
//! change that undoes is the last one, outside of them.

use super::descend::Seek;
use super::node::{GHOST, Node, OVERFLOW};
use super::old::restoring;
use super::reference::Reference;
use super::split::Need;
use super::write::ATTEMPTS_MAX;
use super::{Tree, edit};
use crate::Error;
use crate::change::Change;
use crate::space::Purpose;
use crate::writer::{Undo, Writer};

impl Tree {
    /// Takes back what `undo` describes. It must be the newest change of its transaction that is
    /// not undone yet.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the tree is not as the change left it; those of the pool and of
    /// `Writer::change`.
    pub(crate) fn undo<W: Writer>(&self, w: &mut W, undo: &Undo<'_>) -> Result<(), Error> {
        match *undo {
            Undo::None => Ok(()),
            Undo::Insert { key, .. } => self.undo_insert(w, key),
            Undo::Delete { key, .. } => self.undo_delete(w, key),
            Undo::Update { key, old, .. } => self.undo_update(w, key, old),
        }
    }

    fn undo_insert<W: Writer>(&self, w: &mut W, key: &[u8]) -> Result<(), Error> {
        let mut leaf = self.leaf_exclusive(Seek::Key(key))?;
        let node = self.node(leaf.id(), &leaf)?;
        let slot = match node.search(key) {
            Ok(slot) if !node.is_ghost(slot) => slot,
            _ => return Err(Tree::corrupt(leaf.id(), "a key to be undone is missing")),
        };
        let (flags, value) = node.record(slot);
        if flags & OVERFLOW != 0 {
            self.push_pending(w, Reference::of(leaf.id(), value)?)?;
        }
        let change = Change::LeafMark { slot: slot as u16, flags: flags | GHOST };
        w.change(&mut leaf, &change, Undo::None)?;
        self.note_ghosts(w, leaf.id(), &Node::again(&leaf), key);
        Ok(())
    }

    fn undo_delete<W: Writer>(&self, w: &mut W, key: &[u8]) -> Result<(), Error> {
        let mut leaf = self.leaf_exclusive(Seek::Key(key))?;
        let node = self.node(leaf.id(), &leaf)?;
        let slot = match node.search(key) {
            Ok(slot) if node.is_ghost(slot) => slot,
            _ => return Err(Tree::corrupt(leaf.id(), "a removed key to be undone is no ghost")),
        };
        let (flags, value) = node.record(slot);
        if flags & OVERFLOW != 0 {
            self.pull_pending(w, Reference::of(self.header, value)?)?;
        }
        let change = Change::LeafMark { slot: slot as u16, flags: flags & !GHOST };
        w.change(&mut leaf, &change, Undo::None)
    }

    fn undo_update<W: Writer>(&self, w: &mut W, key: &[u8], old: &[u8]) -> Result<(), Error> {
        for _ in 0..ATTEMPTS_MAX {
            let mut leaf = self.leaf_exclusive(Seek::Key(key))?;
            let node = self.node(leaf.id(), &leaf)?;
            let Ok(slot) = node.search(key) else {
                return Err(Tree::corrupt(leaf.id(), "an updated key to be undone is missing"));
            };
            let current = node.record(slot);
            let Some((change, len)) = restoring(slot, current, old) else {
                return Err(Tree::corrupt(leaf.id(), "an undo does not fit its record"));
            };
            if !edit::fits_in_place_of(&node, slot, len) {
                drop(leaf);
                self.make_room(w, key, Need::Replace { record_len: len }, Purpose::Undo)?;
                continue;
            }
            if current.0 & (OVERFLOW | GHOST) == OVERFLOW {
                self.push_pending(w, Reference::of(leaf.id(), current.1)?)?;
            }
            if let Change::LeafReplace { record: [flags, value @ ..], .. } = change
                && flags & (OVERFLOW | GHOST) == OVERFLOW
            {
                self.pull_pending(w, Reference::of(self.header, value)?)?;
            }
            w.change(&mut leaf, &change, Undo::None)?;
            self.note_light(w, &leaf, key);
            return Ok(());
        }
        Err(Tree::corrupt(self.header, "splits make no room in this tree"))
    }
}
