//! Ghosts: keys that were removed, and how they go.
//!
//! ```text
//!          remove, undo of an insertion              purge
//!   key ---------------------------------> ghost ------------> nothing
//!    ^                                       |
//!    +---------------------------------------+
//!      insertion, undo of a removal
//! ```
//!
//! A removed key is marked, and stays. So locks on it, and on the gap before it, keep their place:
//! no lock moves to another resource, the undo of a removal needs no room, and a transaction that
//! meets the ghost locks it like a key that is there, and then knows that it is absent (Graefe, "A
//! Survey of B-Tree Locking Techniques", 2010).
//!
//! - G1: a ghost goes only under the exclusive latch of its leaf, and only if no transaction has a
//!   lock on its key or on the gap before it, waits for one, or may have marked it under a lock of
//!   the table. Locks are asked for under that latch, and marked under it.
//! - G2: a purge is a nested action: no rollback brings a ghost back.
//! - G3: a transaction that made ghosts, or met them, in a leaf where they are worth purging tells
//!   the reclaim task once it has given up its locks. So the last transaction that prevented the
//!   purge tells it.
//! - G4: before a ghost goes, the versions for snapshots get a grave for it (`Writer::bury`).
//! - G5: the large value of a ghost is on the list of its tree from when the key was removed: a
//!   ghost's reference is only for the undo that takes it off that list.

use terrace_page::{PageBuf, PageId};
use terrace_pool::PageMut;

use super::Tree;
use super::balance::{Look, is_light, look_after};
use super::descend::Seek;
use super::merge::{Merged, Rule};
use super::node::{LEVEL_MAX, Node, SLOT};
use crate::change::Change;
use crate::reclaim::Progress;
use crate::writer::{Reader, Undo, Writer};
use crate::{Error, KeyHash, TreeId};

/// A leaf with at least this many ghosts is worth a purge.
const WORTH_COUNT: usize = 8;
/// So is one with fewer, if at least one in this number of its keys is a ghost.
const WORTH_ONE_IN: usize = 4;

fn is_worth_purging(node: &Node<'_>) -> bool {
    let ghosts = node.ghosts();
    ghosts >= WORTH_COUNT || ghosts * WORTH_ONE_IN >= node.len().max(1)
}

/// A leaf that the reclaim task should look at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reclaimable {
    pub(crate) tree: TreeId,
    /// A key that it covers.
    pub(crate) key: Box<[u8]>,
    /// What purging and merging change.
    ghosts: usize,
    used: usize,
    right: PageId,
}

impl Reclaimable {
    /// What is to be looked at in a page, if it is such a leaf.
    pub(crate) fn of(page: &PageBuf) -> Option<Reclaimable> {
        let node = Node::open(page).filter(Node::is_leaf)?;
        let is_worth = is_worth_purging(&node) || is_light(&node);
        is_worth.then(|| Reclaimable {
            tree: TreeId(node.tree()),
            key: node.lower().into(),
            ghosts: node.ghosts(),
            used: node.used(),
            right: node.right(),
        })
    }
}

impl Tree {
    /// Tells a transaction that there are ghosts in `leaf`, for when it ends (G3).
    pub(super) fn note_ghosts<R: Reader + ?Sized>(
        &self,
        r: &mut R,
        leaf: PageId,
        node: &Node<'_>,
        key: &[u8],
    ) {
        if is_worth_purging(node) {
            r.met_ghosts(self.id, leaf, key);
        }
    }

    /// Tells a transaction that a shorter value has left room in `leaf`, as `note_ghosts` does.
    pub(super) fn note_light<R: Reader + ?Sized>(&self, r: &mut R, leaf: &PageMut<'_>, key: &[u8]) {
        if leaf.id() != self.root() && is_light(&Node::again(leaf)) {
            r.met_ghosts(self.id, leaf.id(), key);
        }
    }

    /// Takes the ghosts out of a leaf that may go (G1); returns the bytes that this has freed.
    ///
    /// # Errors
    ///
    /// Those of `Writer::change`.
    pub(super) fn purge<W: Writer>(
        &self,
        w: &mut W,
        leaf: &mut PageMut<'_>,
    ) -> Result<usize, Error> {
        let node = self.node(leaf.id(), leaf)?;
        if node.ghosts() == 0 || !w.may_purge(self.id) {
            return Ok(0);
        }
        let (mut slots, mut freed) = (Vec::new(), 0);
        for slot in 0..node.len() {
            let key = if node.is_ghost(slot) { node.key(slot) } else { continue };
            if w.is_unlocked(self.id, KeyHash::of(&key)) {
                w.bury(self.id, &key, node.record(slot));
                slots.extend_from_slice(&(slot as u16).to_le_bytes());
                freed += SLOT + node.cell_len(slot);
            }
        }
        if slots.is_empty() {
            return Ok(0);
        }
        let nested = w.begin_nested();
        w.change(leaf, &Change::LeafPurge { slots: &slots }, Undo::None)?;
        w.end_nested(nested)?;
        Ok(freed)
    }

    /// What the reclaim task does for the leaf of `key`: purges its ghosts, and has it share rows
    /// with its neighbours if that has left room, or a shorter value has. `More`: it did, and may
    /// do so again.
    ///
    /// # Errors
    ///
    /// As `merge_up`.
    pub(crate) fn purge_leaf<W: Writer>(&self, w: &mut W, key: &[u8]) -> Result<Progress, Error> {
        self.purge_and_merge(w, key, |node, freed| match freed {
            // Ghosts that are locked are noted again.
            0 => (node.ghosts() == 0 && is_light(node)).then_some(Look::Everywhere),
            _ => Some(look_after(node, freed)),
        })
    }

    /// As `purge_leaf`, where a crash may have come between a purge and what follows it.
    ///
    /// # Errors
    ///
    /// As `merge_up`.
    pub(crate) fn purge_recovered<W: Writer>(
        &self,
        w: &mut W,
        key: &[u8],
    ) -> Result<Progress, Error> {
        self.purge_and_merge(w, key, |node, freed| {
            (freed > 0 || is_light(node)).then_some(Look::Everywhere)
        })
    }

    fn purge_and_merge<W: Writer>(
        &self,
        w: &mut W,
        key: &[u8],
        look: impl FnOnce(&Node<'_>, usize) -> Option<Look>,
    ) -> Result<Progress, Error> {
        let look = {
            let mut leaf = self.leaf_exclusive(Seek::Key(key))?;
            let freed = self.purge(w, &mut leaf)?;
            let node = self.node(leaf.id(), &leaf)?;
            if leaf.id() == self.root() { None } else { look(&node, freed) }
        };
        match look {
            Some(look) if self.merge_up(w, key, look)? => Ok(Progress::More),
            _ => Ok(Progress::Done),
        }
    }

    /// Has the leaf of `key` share its rows if that is worth it, and merges those above it. Returns
    /// whether the leaf did.
    ///
    /// # Errors
    ///
    /// `Corrupt`, those of the pool and of `Writer::change`.
    fn merge_up<W: Writer>(&self, w: &mut W, key: &[u8], look: Look) -> Result<bool, Error> {
        let leaf = self.balance(w, key, look)?;
        let mut merged = leaf;
        for level in 1..LEVEL_MAX {
            if merged != Merged::AndThin {
                break;
            }
            merged = self.merge(w, level, key, Rule::Thin)?;
        }
        Ok(leaf != Merged::No)
    }

    /// The fence above the leaf of `key`, where the next leaf begins.
    ///
    /// # Errors
    ///
    /// Those of the pool, `Corrupt`.
    pub(crate) fn fence_above(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let leaf = self.leaf_shared(Seek::Key(key))?;
        Ok(self.node(leaf.id(), &leaf)?.upper().map(<[u8]>::to_vec))
    }

    /// Whether no key was ever put here, or all are purged.
    ///
    /// # Errors
    ///
    /// Those of the pool, `Corrupt`.
    pub(crate) fn is_bare(&self) -> Result<bool, Error> {
        let root = self.pool.read(self.root())?;
        let node = self.node(self.root(), &root)?;
        Ok(node.is_leaf() && node.len() == 0)
    }

    /// Pages from the root to a row, both included.
    ///
    /// # Errors
    ///
    /// As `is_bare`.
    pub(crate) fn depth(&self) -> Result<u32, Error> {
        let root = self.pool.read(self.root())?;
        Ok(u32::from(self.node(self.root(), &root)?.level()) + 1)
    }
}
