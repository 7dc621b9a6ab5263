//! Rollback: of a transaction as a whole or to a mark, by the list in memory or from the log, and
//! of one that is dropped or cut off by a panic.

use std::sync::Arc;

use terrace_page::{Lsn, PageId, TxnId};
use terrace_rt::{Nanos, now};

use super::changes::rows_added;
use super::room::undo_room;
use super::{Context, Mark, Mode};
use crate::Error;
use crate::change::Change;
use crate::log::record::{Body, StoredUndo, decode_undo};
use crate::log::{Last, Level, Log, LogReader};
use crate::reclaim::Work;
use crate::writer::Undo;

/// How often a rollback tries to go on that a device stops.
const UNDO_ATTEMPTS: u32 = 3;
/// How long a rollback waits for frames of memory.
const UNDO_PATIENCE: Nanos = Nanos::from_secs(60);

/// What the log says of the undo of a record.
pub(crate) struct Undoable {
    /// Where the record is.
    pub(crate) lsn: Lsn,
    /// How it is undone, encoded: see `undo`.
    pub(crate) encoded: Vec<u8>,
    pub(crate) page: PageId,
    /// Where the undo goes on.
    pub(crate) prev: Lsn,
    /// Log bytes that were reserved for it.
    pub(crate) room: u64,
}

impl Undoable {
    /// How it is undone: by key, or byte by byte.
    pub(crate) fn undo(&self) -> StoredUndo<'_> {
        decode_undo(&self.encoded).expect("decoded once already")
    }
}

/// What of a transaction is not undone yet, newest first, as the log has it.
pub(crate) struct Past<'l> {
    reader: LogReader<'l>,
    at: Lsn,
}

impl Context {
    /// Where the transaction stands now.
    pub(crate) fn mark(&mut self) -> Mark {
        self.buffers.marks.make(self.last)
    }

    /// Undoes what was done since `mark`, and goes forward again.
    ///
    /// # Errors
    ///
    /// `Savepoint` if it is none of this transaction's; those of `undo_to`.
    pub(crate) fn undo_to_mark(&mut self, mark: Mark) -> Result<(), Error> {
        self.buffers.marks.check(mark)?;
        self.undo_to(mark.last)?;
        self.buffers.marks.rolled_back_to(mark);
        Ok(())
    }

    /// Undoes everything, appends END, gives up the locks.
    ///
    /// # Errors
    ///
    /// `Failed`, `Closed`, those of devices: recovery undoes the rest.
    pub(crate) fn rollback(&mut self) -> Result<(), Error> {
        assert!(!self.ended, "a transaction ends once");
        if self.engine.is_closed() && self.engine.log.is_failed() {
            // Recovery undoes it. While the log takes records of others it may not (context.X4).
            self.end();
            return Err(Error::Closed);
        }
        self.engine.tally.rollbacks.count();
        let mut undone = self.undo_and_end();
        let engine = Arc::clone(&self.engine);
        let (mut attempts, mut turn) = (1, None);
        while self.chain.is_some() && !terrace_rt::dead() {
            match undone {
                // What a device refuses once it may do the next time.
                Err(Error::Device { .. } | Error::Corrupt { .. }) if attempts < UNDO_ATTEMPTS => {
                    attempts += 1;
                }
                // Other tasks have the frames, and are refused in their turn.
                Err(Error::AllPinned) => {
                    let turn = turn.get_or_insert_with(|| {
                        let turn = engine.frame_room.turn();
                        (turn, now().saturating_add(UNDO_PATIENCE))
                    });
                    if now() >= turn.1 {
                        break;
                    }
                }
                _ => break,
            }
            undone = self.undo_and_end();
        }
        if !terrace_rt::dead() && self.chain.is_some() {
            // Its changes stay, half undone, and its locks go: only recovery can put that right.
            undone = undone.map_err(|error| self.engine.log.fail(error));
        }
        self.end();
        undone
    }

    fn undo_and_end(&mut self) -> Result<(), Error> {
        if self.last == Lsn::ZERO {
            if self.chain.take().is_some() {
                self.engine.unregister(self.txn);
            }
            self.offer_unnamed();
            return Ok(());
        }
        self.undo_to(Lsn::ZERO)?;
        let chain = self.chain.take().expect("checked above");
        self.buffers.draft.end(self.txn, self.last);
        let (draft, last) = (&mut self.buffers.draft, (&**chain, Last::End));
        self.engine.log.append_last(draft, &mut self.reserved, last)?;
        self.written(chain);
        self.offer_unnamed();
        Ok(())
    }

    /// Hands trees that were made, and have no name, to the reclaim task.
    fn offer_unnamed(&self) {
        for tree in self.engine.trees.nameless(&self.buffers.unnamed) {
            self.engine.reclaim.offer(Work::Tree(tree));
        }
    }

    /// Undoes the records after `stop`, and goes forward again.
    ///
    /// # Errors
    ///
    /// As `rollback`.
    fn undo_to(&mut self, stop: Lsn) -> Result<(), Error> {
        self.engine.log.check()?;
        if self.nested != 0 {
            return Err(self.engine.log.fail(Error::STOPPED));
        }
        if self.spilled {
            self.undo_from_log(stop)?;
        } else {
            self.undo_from_memory(stop)?;
        }
        self.uncount_loaded(stop);
        self.mode = Mode::Forward;
        self.engine.trees.reload(&self.buffers.touched)
    }

    fn undo_from_memory(&mut self, stop: Lsn) -> Result<(), Error> {
        let mut bytes = std::mem::take(&mut self.buffers.undo);
        let mut undone = Ok(());
        while undone.is_ok() {
            let Some(chain) = &self.chain else { break };
            let entry = {
                let list = chain.undo.lock();
                let Some((entry, encoded)) = list.last() else { break };
                bytes.clear();
                bytes.extend_from_slice(encoded);
                entry
            };
            if entry.lsn <= stop {
                break;
            }
            let Some(StoredUndo::Logical(undo)) = decode_undo(&bytes) else {
                unreachable!("the list holds what was encoded")
            };
            // context.X5: its CLR takes it off the list.
            undone = self.undo_one(undo, entry.prev, u64::from(entry.room));
        }
        self.buffers.undo = bytes;
        undone
    }

    /// Undoes the records after `stop`, newest first, as the log has them.
    ///
    /// # Errors
    ///
    /// Those of the pool and the log.
    fn undo_from_log(&mut self, stop: Lsn) -> Result<(), Error> {
        if self.last <= stop {
            return Ok(());
        }
        let engine = Arc::clone(&self.engine);
        // What is undone was written before the undo began; its own records are never read.
        let end = engine.log.end();
        engine.log.force(end, Level::Written)?;
        let mut past = Past::new(&engine.log, self.last, end);
        while let Some(record) = past.next_after(stop)? {
            match record.undo() {
                StoredUndo::Logical(undo) => self.undo_one(undo, record.prev, record.room)?,
                StoredUndo::Physical(pieces) => self.restore(record.page, pieces, record.prev)?,
            }
        }
        Ok(())
    }

    /// Undoes one record by key, for which `room` was reserved; the rollback goes on at
    /// `undo_next`.
    ///
    /// # Errors
    ///
    /// Those of the tree.
    pub(crate) fn undo_one(
        &mut self,
        undo: Undo<'_>,
        undo_next: Lsn,
        room: u64,
    ) -> Result<(), Error> {
        let log = &self.engine.log;
        log.relieve()?;
        self.mode = Mode::Undoing { undo_next };
        if let Some(tree) = self.engine.trees.undone_in(&undo)? {
            tree.undo(self, &undo)?;
            self.count_rows(tree.id(), -rows_added(&undo));
        }
        self.rollback_room = self.rollback_room.saturating_sub(room);
        Ok(())
    }

    /// Leaves the rollback to a task of its own: the caller panics, and may not wait. Its locks are
    /// kept until then.
    #[cold]
    fn hand_over(&mut self) {
        if self.nested != 0 {
            self.engine.log.fail(Error::Panicked { page: None });
        }
        if let Some(owner) = &self.owner {
            // A task that catches the panic and goes on waits for that task, not for itself.
            self.engine.locks.leave_task(owner);
        }
        let successor = Context::new(&self.engine, TxnId(0), None);
        let orphan = std::mem::replace(self, successor);
        // What is left here has begun nothing.
        self.ended = true;
        drop(terrace_rt::spawn("rollback", move || drop(orphan)));
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.engine.is_forked() {
            // All of it is the parent's.
            return std::mem::forget(Arc::clone(&self.engine));
        }
        if (terrace_rt::unwinding() || terrace_rt::in_callback()) && !self.ended {
            return self.hand_over();
        }
        if terrace_rt::dead() {
            return;
        }
        if !self.ended {
            // No caller is left to get an error; a failure has stopped the log, and recovery goes
            // on.
            let _undone = self.rollback();
        }
        if let Some(mut buffers) = self.buffers.0.take() {
            buffers.clear();
            self.engine.keep_buffers(buffers);
        }
    }
}

impl<'l> Past<'l> {
    /// The past of a transaction whose last record is at `last`, in a log that ends at `end`.
    pub(crate) fn new(log: &'l Log, last: Lsn, end: Lsn) -> Past<'l> {
        let (map, device) = log.place();
        Past { reader: LogReader::for_single_records(&**device, map, end), at: last }
    }

    /// The newest that is left, if it is after `stop`.
    ///
    /// # Errors
    ///
    /// Those of the log.
    pub(crate) fn next_after(&mut self, stop: Lsn) -> Result<Option<Undoable>, Error> {
        while self.at > stop {
            let lsn = self.at;
            let stored = self.reader.at(lsn)?;
            let prev = stored.record.prev;
            let (next, undoable) = match stored.record.body {
                Body::Update { undo, .. } if undo.is_none() => (prev, None),
                Body::Update { page, change, undo, undo_bytes, .. } => {
                    let room = match (undo, Change::decode(change)) {
                        (StoredUndo::Logical(undo), Ok(change)) => undo_room(&change, &undo),
                        _ => 0,
                    };
                    let encoded = undo_bytes.to_vec();
                    (prev, Some(Undoable { lsn, encoded, page, prev, room }))
                }
                Body::Clr { undo_next, .. }
                | Body::Restore { undo_next, .. }
                | Body::NestedEnd { undo_next } => (undo_next, None),
                _ => {
                    let what = "a record that no transaction writes stands in its chain";
                    return Err(Error::corrupt_log(lsn, what));
                }
            };
            if next >= lsn {
                return Err(Error::corrupt_log(lsn, "a record names a later one as its past"));
            }
            self.at = next;
            if undoable.is_some() {
                return Ok(undoable);
            }
        }
        Ok(None)
    }
}
