//! A transaction within: its locks, its records, its undo. Trees see it as `Reader` and `Writer`.
//!
//! ```text
//!             change (Undo)                   commit: COMMIT, forced as asked for
//!   Forward ----------------> Forward ------> ended
//!      | rollback                               ^
//!      v                                        | END
//!   Undoing ---- change: CLR, undo_next --------+
//! ```
//!
//! - X1: undo entries are in the order of their records; rolling back takes them from the end.
//!   Past `UNDO_BYTES_MAX` the list is dropped, and the log is read instead.
//! - X2: each undo logs one CLR, outside any nested top action, whose `undo_next` is the record
//!   before the one undone. So a crash at any point finds where to go on.
//! - X3: within a nested action a record carries the bytes that it changes, as they were. Only
//!   recovery uses them, if the action never ended: the pages are latched until then, so no other
//!   task has changed them since.
//! - X4: locks are kept until COMMIT or END is in the log, or the log takes no more records; only
//!   then is COMMIT made durable.
//! - X5: an undo entry goes with the append of its CLR, after which nothing can fail: a rollback
//!   that a device stopped goes on where it was, and one that gives up stops the engine, with
//!   everything left to recovery.

mod buffers;
mod changes;
mod locks;
mod rollback;
mod room;
mod tables;

pub(crate) use buffers::{Buffers, Mark};
pub(crate) use rollback::Past;

use std::sync::Arc;

use terrace_page::{Lsn, TxnId};
use terrace_rt::Nanos;

use self::buffers::Borrowed;
use crate::api::Durability;
use crate::btree::Tree;
use crate::engine::Engine;
use crate::lock::Owner;
use crate::log::{Last, Level};
use crate::opened::{Described, Types};
use crate::reclaim::Work;
use crate::schema::Asked;
use crate::share::Share;
use crate::trees::{CATALOG, told};
use crate::versions::{Snapshot, Writing};
use crate::{Error, LockMode, TransactionId, TreeId};

/// The transaction may move from task to task.
pub(crate) const NO_TASK: u64 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Forward,
    Undoing { undo_next: Lsn },
}

/// Whether a transaction asks for locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locking {
    /// It does.
    On,
    /// It does not: recovery, which is alone, and checks of structure.
    Off,
}

/// A transaction, seen from within.
pub(crate) struct Context {
    engine: Arc<Share<Engine>>,
    txn: TxnId,
    owner: Option<Owner>,
    locking: Locking,
    lock_timeout: Nanos,
    buffers: Borrowed,
    chain: Option<Arc<Writing>>,
    /// What it reads, if it does no more than that.
    snapshot: Option<Arc<Snapshot>>,
    last: Lsn,
    mode: Mode,
    nested: u32,
    /// Whether the outermost of them has changed what a crash before its end has to put back.
    has_bytes_to_restore: bool,
    /// The undo list lacks entries: the log has them.
    spilled: bool,
    /// Log bytes reserved, and how many of them the rollback may need: see `room`.
    reserved: u64,
    rollback_room: u64,
    /// Log bytes of what was made beside the transaction for it alone.
    beside: u64,
    /// The transaction that waits while this one makes something for it; zero if none does.
    works_for: TxnId,
    ended: bool,
}

impl Context {
    /// A new transaction.
    ///
    /// # Errors
    ///
    /// `TooManyTransactions`.
    pub(crate) fn begin(engine: &Arc<Engine>, locking: Locking) -> Result<Context, Error> {
        let owner = match locking {
            Locking::On => Some(engine.locks.enter(NO_TASK)?),
            Locking::Off => None,
        };
        Ok(Context::new(&Share::new(Arc::clone(engine)), TxnId(0), owner))
    }

    /// A new transaction that takes locks, and begins and ends in the task or thread of number
    /// `task`: two of one task never wait for each other.
    ///
    /// # Errors
    ///
    /// As `begin`.
    #[inline]
    pub(crate) fn begin_in_task(engine: &Arc<Share<Engine>>, task: u64) -> Result<Context, Error> {
        let owner = engine.locks.enter(task)?;
        Ok(Context::new(engine, TxnId(0), Some(owner)))
    }

    /// Reads what is committed now, and takes no locks. While versions are not available, it takes
    /// locks instead, in the task of number `task`.
    ///
    /// # Errors
    ///
    /// As `begin`.
    pub(crate) fn begin_snapshot(engine: &Arc<Share<Engine>>, task: u64) -> Result<Context, Error> {
        // Before the snapshot: tables that the buffers remember had their names before it, too.
        let mut context = Context::new(engine, TxnId(0), None);
        context.snapshot = engine.versions.open(|| engine.writers(), || engine.tell_moment(), task);
        if context.snapshot.is_none() {
            context.owner = Some(engine.locks.enter(task)?);
            context.locking = Locking::On;
        }
        Ok(context)
    }

    /// Where its snapshot is, if it has one.
    pub(crate) fn snapshot_at(&self) -> Option<Lsn> {
        self.snapshot.as_ref().map(|snapshot| snapshot.at())
    }

    /// # Errors
    ///
    /// `SnapshotTooOld` if its snapshot was ended. Asked after each look at pages and versions.
    #[inline]
    pub(crate) fn check_snapshot(&self) -> Result<(), Error> {
        match &self.snapshot {
            Some(snapshot) if snapshot.is_ended() => Err(snapshot.why_ended()),
            _ => Ok(()),
        }
    }

    /// Sets how long the transaction waits for a lock.
    pub(crate) fn set_lock_timeout(&mut self, limit: Nanos) {
        self.lock_timeout = limit;
    }

    /// The transaction makes something for `other`, which waits for it.
    pub(crate) fn work_for(&mut self, other: &Context) {
        self.works_for = other.txn;
        self.lock_timeout = other.lock_timeout;
    }

    /// A transaction that recovery found unfinished, to be rolled back.
    pub(crate) fn resume(engine: &Arc<Engine>, txn: TxnId, first: Lsn, last: Lsn) -> Context {
        let mut context = Context::new(&Share::new(Arc::clone(engine)), txn, None);
        context.chain = Some(engine.register_recovered(txn, first, last));
        context.last = last;
        context.spilled = true;
        if let Some(chain) = &context.chain {
            engine.versions.lose(chain);
        }
        context
    }

    /// Its number, once it has written.
    pub(crate) fn number(&self) -> TxnId {
        self.txn
    }

    /// Ends without a rollback: what it changed stays as it is in memory, and its end is not
    /// logged.
    pub(crate) fn leave(mut self) {
        self.ended = true;
    }

    #[inline]
    fn new(engine: &Arc<Share<Engine>>, txn: TxnId, owner: Option<Owner>) -> Context {
        Context {
            engine: Arc::clone(engine),
            txn,
            locking: if owner.is_some() { Locking::On } else { Locking::Off },
            owner,
            lock_timeout: engine.lock_limits.timeout,
            buffers: Borrowed(Some(engine.take_buffers())),
            chain: None,
            snapshot: None,
            last: Lsn::ZERO,
            mode: Mode::Forward,
            nested: 0,
            has_bytes_to_restore: false,
            spilled: false,
            reserved: 0,
            rollback_room: 0,
            beside: 0,
            works_for: TxnId(0),
            ended: false,
        }
    }

    /// The table `name`, if it was opened before with these types, is still what it was, and is
    /// what is asked for beside them.
    ///
    /// # Errors
    ///
    /// As `wait_for`.
    pub(crate) fn opened(
        &mut self,
        name: &str,
        types: Types,
        asked: Asked<'_>,
    ) -> Result<Option<Arc<Share<Tree>>>, Error> {
        let opened = &self.buffers.opened;
        if opened.version() != self.engine.trees.version() {
            return Ok(None);
        }
        let Some(tree) = opened.find(name, types.id, asked).cloned() else { return Ok(None) };
        self.lock_intent(tree.id())?;
        let is_same = self.buffers.opened.version() == self.engine.trees.version();
        Ok(is_same.then_some(tree))
    }

    /// Remembers a table that it has opened while the names had this version.
    pub(crate) fn remember(
        &mut self,
        version: u64,
        (name, types): (&str, Types),
        described: Described,
        tree: &Arc<Share<Tree>>,
    ) {
        self.buffers.opened.add(version, (name, types.id), described, tree);
    }

    /// What users call it.
    pub(crate) fn id(&self) -> TransactionId {
        self.engine.locks.id(self.owner.as_ref().expect("a transaction of a user takes locks"))
    }

    /// The engine.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Memory for encoded keys and values.
    pub(crate) fn buffers(&mut self) -> &mut Buffers {
        &mut self.buffers
    }

    /// Runs `work` without asking for locks: what it touches is locked otherwise.
    pub(crate) fn without_locks<T>(&mut self, work: impl FnOnce(&mut Context) -> T) -> T {
        let before = std::mem::replace(&mut self.locking, Locking::Off);
        let done = work(self);
        self.locking = before;
        done
    }

    /// Notes that the catalog's entry of `name` changes.
    pub(crate) fn touch(&mut self, name: &str) {
        self.buffers.touched.push(name.to_string());
    }

    /// Notes a tree that was made for this transaction.
    pub(crate) fn made(&mut self, tree: TreeId) {
        self.buffers.unnamed.push(tree);
        self.buffers.made.push(tree);
        if let Some(chain) = &self.chain {
            chain.undo.lock().note_made(tree);
        }
    }

    /// Notes a tree that it drops.
    pub(crate) fn dropped(&mut self, tree: TreeId) {
        self.buffers.unnamed.push(tree);
    }

    /// Commits: appends COMMIT, gives up the locks, forces the log as asked for.
    ///
    /// The locks go before the log is durable, so that no transaction waits for both another one
    /// and the log disk. That is safe since the log survives as a prefix: a transaction that saw
    /// these changes has its own records behind this COMMIT, and one that only read waits for the
    /// commits that it saw (early lock release: DeWitt et al., "Implementation Techniques for Main
    /// Memory Database Systems", SIGMOD 1984).
    ///
    /// # Errors
    ///
    /// `Failed`, `Closed`: reopening shows whether it is committed.
    pub(crate) fn commit(&mut self, durability: Durability) -> Result<(), Error> {
        self.commit_at(durability).map(|_| ())
    }

    /// As `commit`; returns the position that the log has to be durable up to for this commit, and
    /// all that the transaction has read, to be so.
    ///
    /// # Errors
    ///
    /// As `commit`.
    pub(crate) fn commit_at(&mut self, durability: Durability) -> Result<Lsn, Error> {
        assert!(!self.ended, "a transaction ends once");
        let committed = self.write_commit();
        let garbage = self.engine.trees.nameless(&self.buffers.unnamed);
        self.engine.trees.dropped_by(&garbage, self.txn);
        self.end();
        let forced = committed.and_then(|end| self.force(end, durability).map(|()| end));
        if forced.is_ok() {
            garbage.into_iter().for_each(|tree| self.engine.reclaim.offer(Work::Tree(tree)));
        }
        forced
    }

    /// Appends COMMIT. The log must be forced up to the end that is returned.
    fn write_commit(&mut self) -> Result<Lsn, Error> {
        let engine = &self.engine;
        if self.nested != 0 {
            return Err(engine.log.fail(Error::STOPPED));
        }
        if self.chain.is_none() || self.last == Lsn::ZERO {
            self.chain = None;
            if self.txn != TxnId(0) {
                engine.unregister(self.txn);
            }
            return Ok(engine.log.committed_end());
        }
        let Buffers { draft, counts, .. } = &mut *self.buffers;
        draft.commit(self.txn, self.last, counts);
        let bytes = draft.len() as u64;
        // context/room.M1. Checked while the transaction can still be rolled back.
        assert!(self.reserved >= bytes, "{bytes} for COMMIT, of {}", self.reserved);
        let chain = self.chain.take().expect("seen above");
        let last = (&**chain, Last::Commit);
        let mut append = || engine.log.append_last(draft, &mut self.reserved, last);
        let lsn = match counts.iter().any(|(_, rows)| *rows != 0) {
            true => engine.counts.commit(counts, append, || engine.versions.horizon()),
            false => append(),
        }?;
        self.written(chain);
        Ok(Lsn(lsn.0 + 1))
    }

    /// The transaction's last record is appended.
    fn written(&mut self, chain: Arc<Writing>) {
        self.engine.unregister(self.txn);
        self.engine.versions.no_longer_writes(&chain);
        self.buffers.chain = Some(chain);
    }

    fn force(&self, end: Lsn, durability: Durability) -> Result<(), Error> {
        let log = &self.engine.log;
        match durability {
            Durability::None => Ok(()),
            Durability::Buffered => log.force(end, Level::Written),
            Durability::Durable => {
                log.count_durable_commit();
                log.force(end, Level::Durable)
            }
        }
    }

    /// The error that the caller of an operation that failed with `error` gets. An error with a
    /// nested action open stops the engine; and where the engine has stopped, it is the cause of
    /// that, not what followed from it in this operation.
    #[cold]
    pub(crate) fn first_cause(&self, error: Error) -> Error {
        if let Err(ended) = self.check_snapshot() {
            // What it read may be gone.
            return ended;
        }
        let log = &self.engine.log;
        if self.nested != 0 {
            return log.fail(error);
        }
        match log.check() {
            Err(failed) if !self.engine.is_closed() => failed,
            _ => error,
        }
    }

    /// A load has put `rows` into a table. They go with the table: with the undo of records before
    /// this moment (trees.N6).
    ///
    /// # Errors
    ///
    /// `LogFull`.
    pub(crate) fn count_loaded(&mut self, tree: TreeId, rows: i64) -> Result<(), Error> {
        self.reserve_count(tree)?;
        self.count_rows(tree, rows);
        self.buffers.loaded.push((tree, rows, self.last));
        Ok(())
    }

    /// What was done after `stop` is undone: the tables that were loaded since are gone.
    fn uncount_loaded(&mut self, stop: Lsn) {
        while let Some((tree, rows, _)) = self.buffers.loaded.pop_if(|(_, _, at)| *at > stop) {
            self.count_rows(tree, -rows);
        }
    }

    /// Whether COMMIT has no room yet for the rows of a table.
    fn is_uncounted(&self, tree: TreeId) -> bool {
        tree != CATALOG && !self.buffers.counts.iter().rev().any(|(counted, _)| *counted == tree)
    }

    /// The transaction has put `rows` into a table, or removed some: COMMIT has room for that.
    pub(crate) fn count_rows(&mut self, tree: TreeId, rows: i64) {
        if rows == 0 || tree == CATALOG {
            return;
        }
        let counts = &mut self.buffers.counts;
        match counts.iter_mut().rev().find(|(counted, _)| *counted == tree) {
            Some((_, sum)) => *sum += rows,
            None => counts.push((tree, rows)),
        }
    }

    /// How many rows of a table it has added itself.
    fn own_rows(&self, tree: TreeId) -> i64 {
        let own = self.buffers.counts.iter().find(|(counted, _)| *counted == tree);
        own.map_or(0, |(_, rows)| *rows)
    }

    /// Up to where it sees the commits of others: those of a snapshot's moment; or all, once it has
    /// locked the table.
    fn sees_rows_of(&mut self, tree: TreeId) -> Result<Lsn, Error> {
        match self.snapshot_at() {
            Some(at) => Ok(at),
            None => self.lock_table(tree, LockMode::Shared).map(|()| Lsn::MAX),
        }
    }

    /// The rows of a table, if its count is known. With locks, the table is locked as a whole.
    ///
    /// # Errors
    ///
    /// As `wait_for`.
    pub(crate) fn rows_of(&mut self, tree: TreeId) -> Result<Option<u64>, Error> {
        let at = self.sees_rows_of(tree)?;
        let committed = self.engine.counts.rows(tree, at);
        committed.map(|rows| told(rows + self.own_rows(tree))).transpose()
    }

    /// The rows of a table, if its count is known: those committed at this moment, and its own.
    /// Nothing is locked.
    pub(crate) fn rows_of_now(&self, tree: TreeId) -> Result<Option<u64>, Error> {
        let committed = self.engine.counts.rows_of_now(tree);
        committed.map(|rows| told(rows + self.own_rows(tree))).transpose()
    }

    /// Notes the rows of a table that it has counted after `rows_of` did not know them.
    ///
    /// # Errors
    ///
    /// `SnapshotTooOld`: what it has counted may be of any moment.
    pub(crate) fn learn_rows(&mut self, tree: TreeId, rows: u64) -> Result<(), Error> {
        let at = self.sees_rows_of(tree)?;
        let opened = self.engine.counts.at_opening(tree, at, rows as i64 - self.own_rows(tree));
        self.check_snapshot()?;
        self.engine.counts.learn(tree, opened);
        Ok(())
    }

    /// Where the transaction's last record is.
    pub(crate) fn last(&self) -> Lsn {
        self.last
    }

    fn end(&mut self) {
        self.ended = true;
        if let Some(snapshot) = self.snapshot.take() {
            self.engine.close_snapshot(&snapshot);
        }
        self.rollback_room = 0;
        self.give_back();
        for (row, freed) in self.buffers.kept_rows.drain(..) {
            self.engine.leaf_room.release(row, freed as usize);
        }
        // A transaction that has only met ghosts does not wait, nor the reclaim task itself, which
        // locks nothing.
        let may_wait = self.owner.is_some() && self.txn != TxnId(0);
        self.release_locks();
        if !self.buffers.met.is_empty() {
            let reclaim = &self.engine.reclaim;
            reclaim.offer_leaves(self.buffers.met.drain(..));
            if may_wait {
                reclaim.keep_pace_with_leaves();
            }
        }
        for (tree, bytes) in self.buffers.gave_up.drain(..) {
            self.engine.reclaim.offer_chains(tree, bytes);
        }
        for tree in self.buffers.gave_up_blocks.drain(..) {
            self.engine.reclaim.offer(Work::Blocks(tree));
        }
        self.engine.tend_versions();
    }
}
