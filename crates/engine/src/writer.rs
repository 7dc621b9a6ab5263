//! How trees read, lock and change pages: the seam between the structures and the log.
//!
//! Trees are written once against [`Reader`] and [`Writer`]; behind them is a transaction going
//! forward, one rolling back, or recovery's undo. Rules for callers:
//!
//! - W1: locks are asked for under page latches and never waited for there. On
//!   [`LockOutcome::Busy`] the tree drops every latch and returns [`Step::Wait`]; the transaction
//!   waits and calls the operation again from its start.
//! - W2: a change that a rollback must undo passes its logical `Undo`; a rollback calls
//!   `btree::undo`, whose changes come back through the same trait, and are then logged as
//!   compensation records, whatever `Undo` they pass.
//! - W3: structure changes stand between `begin_nested` and `end_nested`, pass `Undo::None`, and
//!   keep every page that they change latched until `end_nested` has returned: a crash within is
//!   undone byte by byte, which is right only if no other task has changed those pages since. An
//!   action of nothing but purges is never undone (`Change::is_whole`).
//! - W4: what can fail (locks, allocation, reading pages) comes before the first change of an
//!   operation or nested action: an error with a nested action open stops the engine, and only
//!   recovery can put the pages right.
//! - W5: nested actions nest. An inner one that has ended survives the outer one's undo.

use std::sync::Arc;

use terrace_page::{Lsn, PageId, TxnId};
use terrace_pool::PageMut;

use crate::btree::Leaves;
use crate::change::Change;
use crate::leaf_room::{LeafRoom, RowHash};
use crate::log::Log;
use crate::reclaim::SpaceWait;
use crate::versions::{Record, View};
use crate::{Error, LockMode, LockOutcome, LockRequest, TreeId};

/// How far an operation on a tree got.
#[derive(Debug)]
#[must_use]
pub(crate) enum Step<T> {
    /// To its end.
    Done(T),
    /// To a lock that another transaction holds. All latches are dropped, nothing was changed but
    /// by ended nested actions: wait for this lock, then call the operation again.
    Wait(LockRequest),
}

/// What reading a tree needs.
pub(crate) trait Reader {
    /// Tries to lock without waiting, see W1.
    ///
    /// # Errors
    ///
    /// `TooManyLocks`.
    fn try_lock(&mut self, request: LockRequest) -> Result<LockOutcome, Error>;

    /// The lock of `key` was busy just now: for the error, if the wait for it fails. The end of a
    /// tree is the empty key.
    fn busy(&mut self, _key: &[u8]) {}

    /// Whether this transaction has the gap before `next` locked: a new key there splits the gap,
    /// and the part before that key has to be locked, too.
    fn holds_gap(&self, _tree: TreeId, _next: crate::KeyHash) -> bool {
        false
    }

    /// Whether this transaction may have `key` locked exclusively: then a ghost of that key may be
    /// one that its own undo wants back. True is never wrong.
    fn may_hold(&self, _tree: TreeId, _key: crate::KeyHash) -> bool {
        true
    }

    /// It made ghosts in `leaf`, or met so many that they are worth purging once it has ended.
    fn met_ghosts(&mut self, _tree: TreeId, _leaf: PageId, _key: &[u8]) {}

    /// Whether no key of `tree` needs a lock in `mode`, until the transaction ends: it would be
    /// granted. False is never wrong.
    fn covers(&self, _tree: TreeId, _mode: LockMode) -> bool {
        false
    }

    /// The snapshot through which it reads, without locks, if there is one.
    fn snapshot(&self) -> Option<View<'_>> {
        None
    }

    /// Where the most recent keys were found, if that is remembered.
    fn leaves(&mut self) -> Option<&mut Leaves> {
        None
    }
}

/// What changing a tree needs.
pub(crate) trait Writer: Reader {
    /// Logs `change` (on the page's LSN), applies it and sets the page's LSN. A page that
    /// `BufferPool::create` returned takes a
    /// change that [`Change::formats`] first.
    ///
    /// # Errors
    ///
    /// `Failed`, `Closed`. The page is then unchanged.
    fn change(
        &mut self,
        page: &mut PageMut<'_>,
        change: &Change<'_>,
        undo: Undo<'_>,
    ) -> Result<(), Error>;

    /// Applies `change`, which formats its page, without logging it, and gives the page the LSN of
    /// the last record appended: for a page in an extent that a logged change has taken, that
    /// nothing leads to before the pool was flushed. See `btree::load`.
    ///
    /// # Errors
    ///
    /// `Failed`, `Closed`. The page is then unchanged.
    fn unlogged(&mut self, page: &mut PageMut<'_>, change: &Change<'_>) -> Result<(), Error>;

    /// Says that `count` pages from `first` on, which are latched and have their dirty entries, are
    /// about to be written without records of what they are. `unlogged` says so itself.
    fn writes_unlogged(&mut self, _first: PageId, _count: u32) {}

    /// Says that the next change refers to pages that were written without records.
    fn refers_to_unlogged(&mut self) {}

    /// The transaction that changes pages here. While it rolls back, it is still the one.
    fn txn(&self) -> TxnId;

    /// No transaction below this number will still be rolled back: each has ended, for good, with a
    /// commit record appended or its undo done. And no snapshot sees what was there before its end.
    /// At most `txn()`. Large values that a transaction deleted keep their pages until its number
    /// is below this.
    fn oldest_active(&self) -> TxnId;

    /// Marks the pages of a large value that is about to be put: no two that share a page have the
    /// same, if that page was freed, by a logged change, in between.
    fn stamp(&self) -> u64;

    /// A large value of `tree`, of `bytes`, waits to be freed once this transaction has ended.
    fn gave_up(&mut self, _tree: TreeId, _bytes: u64) {}

    /// Pages of blocks of `tree` are to be freed once this transaction has ended.
    fn gave_up_blocks(&mut self, _tree: TreeId) {}

    /// Home was full. Waits while the reclaim task has something to free, without latches, and
    /// returns whether to try again.
    fn waits_for_space(&mut self, _wait: &mut SpaceWait) -> bool {
        false
    }

    /// What unfinished transactions keep free in leaves.
    fn leaf_room(&self) -> &LeafRoom;

    /// Keeps room for the record of `row` at the length `from` until this transaction has ended:
    /// an update makes it shorter by `freed` bytes.
    fn keep_room(&mut self, row: RowHash, from: usize, freed: usize);

    /// Begins a nested top action: what follows survives a rollback, once it has ended.
    fn begin_nested(&mut self) -> Nested;

    /// Ends it.
    ///
    /// # Errors
    ///
    /// `Failed`, `Closed`.
    fn end_nested(&mut self, nested: Nested) -> Result<(), Error>;

    /// Whether ghosts of `tree` may be purged now. Asked for under the latch of their leaf: if a
    /// transaction marked one of them and has not ended, it is seen here, or by its lock.
    fn may_purge(&self, tree: TreeId) -> bool;

    /// Whether no transaction, this one included, has `key` or the gap before it locked, or waits
    /// for that. Asked for under the latch of its leaf, where locks are asked for.
    fn is_unlocked(&self, tree: TreeId, key: crate::KeyHash) -> bool;

    /// The ghost of `key`, with this record, is about to be purged: a snapshot may still see what
    /// it was.
    fn bury(&mut self, _tree: TreeId, _key: &[u8], _ghost: Record<'_>) {}
}

/// An open nested top action. Dropping it without `end_nested` stops the engine, see W4.
#[must_use]
pub(crate) struct Nested {
    /// The transaction's last record before it: where its undo goes on once it has ended.
    pub(crate) undo_next: Lsn,
    /// How many nested actions were open before it.
    pub(crate) depth: u32,
    /// The log, which stops if a panic drops it open.
    pub(crate) log: Option<Arc<Log>>,
}

impl Drop for Nested {
    fn drop(&mut self) {
        if let Some(log) = &self.log
            && terrace_rt::unwinding()
        {
            // Before the latches of its pages are released: no task sees them half changed.
            log.fail(Error::Panicked { page: None });
        }
    }
}

/// How a change is undone: by key, through the tree, wherever the key is by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undo<'a> {
    /// Not at all: a structure change, redone only.
    None,
    /// The key was inserted: make it a ghost.
    Insert {
        /// Tree of the key.
        tree: TreeId,
        /// The key.
        key: &'a [u8],
    },
    /// The key was removed, and is a ghost: make it a key again.
    Delete {
        /// Tree of the key.
        tree: TreeId,
        /// The key.
        key: &'a [u8],
        /// The flags that its record had, one byte: the ghost has all else.
        record: &'a [u8],
    },
    /// The key's record was replaced: put the old one back.
    Update {
        /// Tree of the key.
        tree: TreeId,
        /// The key.
        key: &'a [u8],
        /// The record that it had: as the tree stores it, opaque to the log.
        old: &'a [u8],
    },
}
