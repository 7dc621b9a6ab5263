//! The B+-tree: an ordered map from byte strings to byte strings, in pages.
//!
//! ```text
//! header (fixed page)          root (the page after it; it never moves, the tree grows below it)
//!                             /          |           \
//!                         inner  ->   inner   ->    inner        level 1
//!                        /  |  \       ...
//!                    leaf->leaf->leaf-> ...                      level 0
//! ```
//!
//! **Latches.** A descent holds one latch at a time: it reads a child's number, lets the parent
//! go, latches the child, and checks by tree, level and fences that this is still the node for its
//! key; if not, it starts over. At any time exactly one live node of each level covers a key, so
//! what passes the check is right, and no task waits for a device while it holds an inner node.
//! Inner nodes in memory are not even latched: see [`way`]. The leaf that a transaction was in last
//! passes the same check without a descent: see [`leaves`]. A task that holds a latch and wants
//! another takes them in this order: parent before child, left before right within a level, then
//! the tree's header, overflow pages, an allocation map, pages that no other task can reach.
//!
//! **Structure changes** (splits, merges, chains of overflow pages) are nested top actions that
//! latch all they change, exclusively, until they have ended. An operation that finds no room drops
//! its latch, has the node split, and starts over; splits go up level by level, each with its own
//! nested action, so that there is never a half of one to be seen.
//!
//! **Locks** are requested under the latch of the leaf that the key belongs to: a task that
//! concludes that a key is absent, or makes it present, holds that latch, so the next key may be
//! looked up in the neighbour and released.
//!
//! **Ranges** go forward along the right neighbours, hand over hand, and backward by descending
//! anew to what lies below the lower fence: a left neighbour would be a third page in every split,
//! and latching leftwards could deadlock.
//!
//! - T1: a page is in the tree's extents, and used, if and only if it is the header, a node that
//!   can be reached from the root, a part of a large value, or of one that waits to be freed; pages
//!   of blocks may also be left over, see `blocks`.
//! - T2: the fences of a node are those that its parent says; the right neighbour begins where the
//!   node ends.
//! - T3: an undo needs no lock, no page and no room in its leaf but what is kept there: see
//!   `leaf_room`.
//! - T4: a removed key stays as a ghost while any lock is on it, or any undo may want it back.
//!
//! [`check`](Tree::check) asserts all of it.

pub(crate) mod cells;
pub(crate) mod edit;
pub(crate) mod node;
pub(crate) mod splice;

mod balance;
mod blocks;
mod check;
mod compact;
mod descend;
mod fetch;
mod header;
mod leaves;

mod load;
mod located;
mod lookup;
mod merge;
pub(crate) mod old;
mod overflow;
mod purge;
mod reference;
mod rewrite;
mod room;
mod runs;
mod salvage;
mod scan;
mod short;
mod split;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

mod undo;
mod way;
mod write;

use std::sync::Arc;

use terrace_page::PageId;
use terrace_pool::BufferPool;

pub(crate) use balance::BALANCE_LOGS;
pub(crate) use blocks::Keep;
#[allow(unused_imports)]
pub(crate) use check::TreeStats;
pub(crate) use check::fuzz;

pub(crate) use compact::{Moved, Tightened};
pub(crate) use fetch::FETCHED_MAX;

pub(crate) use leaves::Leaves;
#[allow(unused_imports)]
pub(crate) use load::{Loaded, Loader};
pub(crate) use located::Stored;
#[allow(unused_imports)]
pub(crate) use node::{GHOST, Node, OVERFLOW};
pub(crate) use old::restored;
pub(crate) use purge::Reclaimable;
pub(crate) use rewrite::ToVacate;
pub(crate) use runs::{HOME_FIRST_MIN, RAW_DATA, Unfinished};
pub use salvage::Flaw;
pub(crate) use salvage::Sink;
#[allow(unused_imports)]
pub(crate) use scan::{Batch, Direction, LEAF, Scan, Wanted};
pub(crate) use write::{Modified, Put};

use crate::space::Space;
use crate::writer::Reader;
use crate::{Error, KeyHash, LockMode, LockOutcome, LockRequest, Part, TreeId};

/// The longest value, in bytes.
pub(crate) const VALUE_MAX: usize = 1 << 30;

/// A tree: where it is. Cheap to clone; all that it holds is in its pages.
#[derive(Clone)]
pub(crate) struct Tree {
    id: TreeId,
    header: PageId,
    pool: Arc<BufferPool>,
    space: Arc<Space>,
    /// How full a split leaves the left node when keys come in ascending order, in percent.
    append_fill: usize,
}

/// Ascending keys do not come back to fill what is left free.
const APPEND_FILL: usize = 100;

impl Tree {
    /// The tree `id` whose header is page `header`, as [`Tree::create`] made it.
    pub(crate) fn open(
        id: TreeId,
        header: PageId,
        pool: Arc<BufferPool>,
        space: Arc<Space>,
    ) -> Tree {
        Tree { id, header, pool, space, append_fill: APPEND_FILL }
    }

    /// Its number.
    pub(crate) fn id(&self) -> TreeId {
        self.id
    }

    /// Where its header is: what a catalog remembers.
    pub(crate) fn header(&self) -> PageId {
        self.header
    }

    fn root(&self) -> PageId {
        self.header.plus(1)
    }

    fn corrupt(page: PageId, what: &'static str) -> Error {
        Error::corrupt(Part::Home, page, what)
    }

    /// Tries to lock a key, or the gap before it: what to wait for, if another has it.
    #[inline]
    fn lock<R: Reader + ?Sized>(
        &self,
        r: &mut R,
        key: &(impl Lockable + ?Sized),
        mode: LockMode,
    ) -> Result<Option<LockRequest>, Error> {
        self.lock_hash(r, key.hash(), mode, || key.bytes())
    }

    /// As `lock`, of a key whose hash is known.
    #[inline]
    fn lock_hash<R: Reader + ?Sized>(
        &self,
        r: &mut R,
        hash: KeyHash,
        mode: LockMode,
        bytes: impl FnOnce() -> Vec<u8>,
    ) -> Result<Option<LockRequest>, Error> {
        let request = LockRequest { tree: self.id, key: hash, mode };
        Ok(match r.try_lock(request)? {
            LockOutcome::Granted => None,
            LockOutcome::Busy => {
                r.busy(&bytes());
                Some(request)
            }
        })
    }
}

/// What may be locked.
trait Lockable {
    fn hash(&self) -> KeyHash;
    /// The key; empty at the end of the tree. Asked for only where a lock is busy.
    fn bytes(&self) -> Vec<u8>;
}

impl Lockable for [u8] {
    #[inline]
    fn hash(&self) -> KeyHash {
        KeyHash::of(self)
    }

    fn bytes(&self) -> Vec<u8> {
        self.to_vec()
    }
}

/// Returns `Step::Wait` from the operation if a lock is busy.
macro_rules! lock_or_wait {
    ($tree:expr, $reader:expr, $key:expr, $mode:expr) => {
        if let Some(request) = $tree.lock($reader, $key, $mode)? {
            return Ok(crate::writer::Step::Wait(request));
        }
    };
}
use lock_or_wait;
