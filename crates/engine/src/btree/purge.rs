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
use super::descend::Seek;
use super::merge::{became_underfull, is_underfull};
use super::node::{Node, SLOT};
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
        let is_worth = is_worth_purging(&node) || is_underfull(&node);
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

    /// What the reclaim task does for the leaf of `key`: purges its ghosts, and merges it if that
    /// has left little.
    ///
    /// # Errors
    ///
    /// As `merge_up`.
    pub(crate) fn purge_leaf<W: Writer>(&self, w: &mut W, key: &[u8]) -> Result<Progress, Error> {
        self.purge_and_merge(w, key, became_underfull)
    }

    /// As `purge_leaf`, where a crash may have come between a purge and its merge.
    ///
    /// # Errors
    ///
    /// As `merge_up`.
    pub(crate) fn purge_recovered<W: Writer>(
        &self,
        w: &mut W,
        key: &[u8],
    ) -> Result<Progress, Error> {
        self.purge_and_merge(w, key, |node, _| is_underfull(node))
    }

    fn purge_and_merge<W: Writer>(
        &self,
        w: &mut W,
        key: &[u8],
        is_thin: impl FnOnce(&Node<'_>, usize) -> bool,
    ) -> Result<Progress, Error> {
        let is_thin = {
            let mut leaf = self.leaf_exclusive(Seek::Key(key))?;
            let freed = self.purge(w, &mut leaf)?;
            let node = self.node(leaf.id(), &leaf)?;
            leaf.id() != self.root() && is_thin(&node, freed)
        };
        if is_thin {
            self.merge_up(w, key)?;
        }
        Ok(Progress::Done)
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
}
