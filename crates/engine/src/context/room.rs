//! Log room of a transaction: what it reserves, and what its rollback may need of that.
//!
//! ```text
//!   reserved:  | rollback_room: CLRs of all undo, and END or COMMIT | the operation under way |
//! ```
//!
//! - M1: a forward record is appended only when what is reserved covers it and its own undo beside
//!   the undo of all before. So a rollback never asks the ring for room that it might not have.
//! - M2: one record is undone by one CLR, whose length is known when the change is logged. No undo
//!   splits a page: what it makes longer again has kept its place (leaf_room.R1).
//! - M3: a transaction is refused for what it wrote itself, or because it is the one that keeps a
//!   full log from being cut while others wait (`HoldsLog`); never for what others wrote.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_page::{LSN_MAX, Lsn, TxnId};
use terrace_rt::LeafGuard;

use super::changes::rows_added;
use super::{Context, Mode};
use crate::btree::{OVERFLOW, old};
use crate::change::Change;
use crate::log::record::{Draft, ROWS_BYTES};
use crate::log::{Appended, Room};
use crate::reclaim::{HeldUp, SpaceWait};
use crate::versions::{UndoList, Writing};
use crate::writer::Undo;
use crate::{Error, TreeId};

/// Operations of at least this many bytes put large values: they wait for the reclaim task if it is
/// behind.
const LARGE_BYTES: usize = 4 << 10;
/// What one operation on a tree may append, besides its value: splits of a few levels.
const OPERATION_BYTES: u64 = 96 << 10;
/// The longest record that a change of one key appends: key, old record and new one.
pub(super) const RECORD_BYTES: u64 = 10 << 10;
/// What is reserved beyond an operation, so that not each one touches the counter that all share.
const RESERVED_AHEAD: u64 = 16 << 10;
/// Operations keep what they have reserved while all reservations are less than this fraction of
/// the ring.
const KEPT_ONE_IN: u64 = 16;
/// A CLR without what it puts back, and an END.
const CLR_BYTES: u64 = 96;
const END_BYTES: u64 = 64;
/// An undo that hands a large value to its tree's list, or takes one back, and does both at most.
const CHAIN_BYTES: u64 = 2 << 10;

/// Log bytes that undoing a change may take.
pub(crate) fn undo_room(change: &Change<'_>, undo: &Undo<'_>) -> u64 {
    let new = match change {
        Change::LeafInsert { record, .. } | Change::LeafReplace { record, .. } => *record,
        _ => &[],
    };
    let (put_back, before) = match undo {
        Undo::None => return 0,
        Undo::Insert { .. } => (0, None),
        Undo::Delete { record, .. } => (0, record.first()),
        Undo::Update { old: [old::PATCH, _, _, _, _, bytes @ ..], .. } => (bytes.len(), None),
        Undo::Update { old, .. } => (old.len().saturating_sub(1), old.get(1)),
    };
    let has_chain = [new.first(), before].into_iter().flatten().any(|flags| flags & OVERFLOW != 0);
    let chain = if has_chain { CHAIN_BYTES } else { 0 };
    CLR_BYTES + put_back as u64 + chain
}

impl Context {
    /// What one operation may append besides its value.
    fn operation_bytes(&self) -> u64 {
        OPERATION_BYTES.min(self.engine.log.capacity() / 32)
    }

    /// Makes sure of log room for an operation whose key and value have `bytes`. Called without
    /// latches: it may wait until others make room.
    ///
    /// # Errors
    ///
    /// `LogFull` for a transaction that is too large for the log, `HoldsLog` for one that keeps it
    /// from being cut; `LogHeld` if another one does; `LogEnds`; those of a checkpoint.
    pub(crate) fn begin_operation(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes >= LARGE_BYTES {
            self.engine.reclaim.keep_pace();
        }
        self.begin_logging(self.operation_bytes() + 3 * bytes as u64)
    }

    /// As `begin_operation`, for one that may append `bytes` itself, what undoes it after a crash
    /// included.
    ///
    /// # Errors
    ///
    /// As `begin_operation`.
    pub(crate) fn begin_own_operation(&mut self, bytes: usize) -> Result<(), Error> {
        self.begin_logging(self.operation_bytes().max(bytes as u64))
    }

    fn begin_logging(&mut self, bytes: u64) -> Result<(), Error> {
        if self.chain.is_none() {
            self.enter_log();
        }
        self.engine.tend_versions();
        let log = &self.engine.log;
        log.check()?;
        log.relieve()?;
        if log.end() >= LSN_MAX {
            return Err(Error::LogEnds { position: log.end() });
        }
        let own_bytes = self.own_log_bytes();
        let operation = bytes + RECORD_BYTES + CLR_BYTES;
        self.check_log_share(operation)?;
        if self.answers_for(TxnId(self.engine.log_holder.load(Ordering::Relaxed))) {
            return Err(self.holds_log());
        }
        let wanted = self.rollback_room + operation;
        if self.reserved < wanted {
            let ahead = RESERVED_AHEAD.min(log.capacity() / 256);
            let more = wanted - self.reserved + ahead;
            if !log.reserve_or_extend(more, Room::Forward)? {
                // What this transaction has in the log, and has reserved, stays until it ends.
                if own_bytes + self.reserved + more > log.forward_capacity() {
                    return Err(self.log_full(operation));
                }
                let limit = self.lock_timeout;
                let full = self.log_full(operation);
                let is_own = |txn| self.answers_for(txn);
                self.engine.wait_for_log_room(is_own, full, more, limit)?;
            }
            self.reserved += more;
        }
        if self.engine.wants_checkpoint() {
            self.engine.checkpoint_wanted.notify_all();
        }
        Ok(())
    }

    /// Runs `work`, an operation on a key and value of `bytes`, and again if home was full while
    /// the reclaim task had something to free. What has changed a row is not run again.
    ///
    /// # Errors
    ///
    /// Those of `begin_operation` and `work`.
    pub(crate) fn with_space<T>(
        &mut self,
        bytes: usize,
        mut work: impl FnMut(&mut Context) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut wait = SpaceWait::default();
        loop {
            self.begin_operation(bytes)?;
            let before = self.rollback_room;
            let worked = work(self);
            self.end_operation();
            if !matches!(worked, Err(Error::HomeFull { .. })) {
                return worked;
            }
            let is_as_before = self.nested == 0 && self.rollback_room == before;
            if !is_as_before || !self.wait_for_space(&mut wait) {
                return self.engine.check_running().and(worked);
            }
        }
    }

    /// Home was full. Waits while the reclaim task has something to free, and returns whether to
    /// try again. A rollback has its space (`Purpose::Undo`), and what works for a transaction lets
    /// that one wait.
    pub(crate) fn wait_for_space(&mut self, wait: &mut SpaceWait) -> bool {
        if self.mode != Mode::Forward || self.works_for != TxnId(0) {
            return false;
        }
        if wait.is_new() {
            self.engine.offer_spare();
        }
        self.engine.reclaim.frees_more(self.txn, wait, self.lock_timeout)
    }

    /// After home was full: whether space is about to be free once the transaction has ended.
    pub(crate) fn space_held_up(&self) -> Option<HeldUp> {
        self.engine.reclaim.held_up(self.txn)
    }

    /// Whether `txn` is this transaction, or the one on whose behalf it works.
    fn answers_for(&self, txn: TxnId) -> bool {
        txn != TxnId(0) && (txn == self.txn || txn == self.works_for)
    }

    /// The error of the transaction that others want to give way, for room in the log.
    pub(super) fn holds_log(&self) -> Error {
        let log = &self.engine.log;
        let first = self.chain.as_ref().and_then(|chain| chain.open());
        let held_bytes = first.map_or(0, |(first, _)| log.end().0 - first.0);
        let own_bytes = self.own_log_bytes();
        let (capacity, is_device_full) = (log.capacity(), log.is_device_full());
        Error::HoldsLog { own_bytes, held_bytes, capacity, is_device_full }
    }

    /// Log bytes that the transaction answers for: its own, and those of what was made for it.
    pub(crate) fn own_log_bytes(&self) -> u64 {
        self.beside + self.chain.as_ref().map_or(0, |chain| chain.bytes())
    }

    /// `bytes` were logged for this transaction, by one that has ended.
    pub(crate) fn logged_beside(&mut self, bytes: u64) {
        self.beside += bytes;
    }

    /// # Errors
    ///
    /// `LogFull` if the transaction has its share of the log: what it logs, and what is logged for
    /// it, cannot be cut off before it ends.
    fn check_log_share(&self, wanted_bytes: u64) -> Result<(), Error> {
        let log = &self.engine.log;
        let own_bytes = self.own_log_bytes() + self.rollback_room;
        let has_share = || own_bytes > log.capacity() / 2;
        // A device that had no more room may have some again.
        if has_share() && (!log.look_for_room(wanted_bytes)? || has_share()) {
            return Err(self.log_full(wanted_bytes));
        }
        Ok(())
    }

    /// Before something is made beside the transaction, for it alone.
    ///
    /// # Errors
    ///
    /// As `check_log_share`.
    pub(crate) fn before_beside(&self) -> Result<(), Error> {
        self.check_log_share(self.operation_bytes() + RECORD_BYTES + CLR_BYTES)
    }

    /// The log is too small for an operation of this transaction that wants `wanted_bytes`.
    pub(super) fn log_full(&self, wanted_bytes: u64) -> Error {
        Error::LogFull {
            own_bytes: self.own_log_bytes(),
            rollback_bytes: self.rollback_room,
            wanted_bytes,
            capacity: self.engine.log.capacity(),
            is_device_full: self.engine.log.is_device_full(),
        }
    }

    /// Gives the transaction a number and a chain.
    fn enter_log(&mut self) {
        // One that a transaction before has used: it is in no table any more.
        let mut chain = self.buffers.chain.take().unwrap_or_default();
        if let Some(chain) = Arc::get_mut(&mut chain) {
            chain.reset();
        } else {
            chain = Arc::default();
        }
        self.txn = self.engine.register(&chain);
        for tree in &self.buffers.made {
            chain.undo.lock().note_made(*tree);
        }
        if let Some(owner) = &self.owner {
            self.engine.locks.set_txn(owner, self.txn);
        }
        self.chain = Some(chain);
        self.rollback_room = END_BYTES;
    }

    /// The operation is over. What it reserved serves the next one, unless the log is short of it:
    /// all that transactions keep this way is a small part of the ring.
    pub(crate) fn end_operation(&mut self) {
        let log = &self.engine.log;
        if log.reserved() > log.capacity() / KEPT_ONE_IN {
            self.give_back();
        }
    }

    /// Gives back what no rollback needs.
    pub(super) fn give_back(&mut self) {
        let spare = self.reserved.saturating_sub(self.rollback_room);
        if spare > 0 {
            self.reserved -= spare;
            self.engine.log.unreserve(spare);
        }
    }

    /// M1: what is reserved covers the draft, a change going forward, and its undo.
    ///
    /// # Errors
    ///
    /// `LogFull`.
    pub(super) fn reserve_undo(
        &mut self,
        change: &Change<'_>,
        undo: &Undo<'_>,
    ) -> Result<u64, Error> {
        let room = undo_room(change, undo);
        let counted = match undo {
            Undo::Insert { tree, .. } | Undo::Delete { tree, .. } | Undo::Update { tree, .. }
                if rows_added(undo) != 0 =>
            {
                self.count_room(*tree)
            }
            _ => 0,
        };
        self.reserve_beside(room + counted, self.buffers.draft.len() as u64)?;
        Ok(room)
    }

    /// M1: what is reserved covers COMMIT with the rows of one more table.
    ///
    /// # Errors
    ///
    /// `LogFull`.
    pub(super) fn reserve_count(&mut self, tree: TreeId) -> Result<(), Error> {
        self.reserve_beside(self.count_room(tree), 0)
    }

    /// What COMMIT needs more once it has the rows of a table. A rollback does not give it back.
    fn count_room(&self, tree: TreeId) -> u64 {
        if self.is_uncounted(tree) { ROWS_BYTES as u64 } else { 0 }
    }

    /// Reserves `room` for the transaction's end, and `draft` bytes beside it.
    fn reserve_beside(&mut self, room: u64, draft: u64) -> Result<(), Error> {
        let wanted = self.rollback_room + room + draft;
        if self.reserved < wanted {
            let more = wanted - self.reserved;
            // Latches are held. Growth waits for the device alone.
            if !self.engine.log.reserve_or_extend(more, Room::Forward)? {
                return Err(self.log_full(more));
            }
            self.reserved += more;
        }
        self.rollback_room += room;
        Ok(())
    }

    /// Appends the draft as the transaction's next record: going forward from what the rollback
    /// does not need, else from all that is reserved.
    pub(super) fn append(&mut self, room: Room) -> Result<Lsn, Error> {
        let kept = self.kept_room();
        let chain = self.chain.as_ref().expect("registered by begin_operation");
        let (mut free, log) = (self.reserved - kept, &self.engine.log);
        let draft: &mut Draft = &mut self.buffers.draft;
        let appended = loop {
            match log.append_next(draft, room, &mut free, chain) {
                Err(Error::LogFull { wanted_bytes, .. }) if log.extend(wanted_bytes, room)? => {}
                appended => break appended,
            }
        };
        self.reserved = kept + free;
        self.last = appended?.lsn;
        Ok(self.last)
    }

    /// As `append`, to the chain of this transaction, and with the list of its undo held from
    /// before on.
    pub(super) fn append_listed<'w>(
        &mut self,
        chain: &'w Writing,
        room: Room,
    ) -> Result<(Appended, LeafGuard<'w, UndoList>), Error> {
        let kept = self.kept_room();
        let (mut free, log) = (self.reserved - kept, &self.engine.log);
        let draft: &mut Draft = &mut self.buffers.draft;
        let (appended, undo) = loop {
            let undo = chain.undo.lock();
            let appended = log.append_next(draft, room, &mut free, chain);
            let Err(Error::LogFull { wanted_bytes, .. }) = appended else {
                break (appended, undo);
            };
            // No task waits for a device while it holds the list.
            drop(undo);
            if !log.extend(wanted_bytes, room)? {
                break (appended, chain.undo.lock());
            }
        };
        self.reserved = kept + free;
        let appended = appended?;
        self.last = appended.lsn;
        Ok((appended, undo))
    }

    /// What the rollback needs of the reserved room: nothing else may use it.
    fn kept_room(&self) -> u64 {
        match self.mode {
            super::Mode::Forward => self.rollback_room.min(self.reserved),
            super::Mode::Undoing { .. } => 0,
        }
    }
}
