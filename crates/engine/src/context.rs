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
//! - X2: every undo is one record that is no nested action's: CLR, whose `undo_next` is the record
//!   before the one undone. So a crash at any point finds where to go on.
//! - X3: within a nested action a record carries the bytes that it changes, as they were. Only
//!   recovery uses them, if the action never ended: the pages are latched until then, so nobody
//!   else has changed them since.
//! - X4: locks are kept until the transaction has ended, and its COMMIT is as durable as asked for.

use std::sync::Arc;

use terrace_page::{Lsn, PAGE_SIZE, PageBuf, TxnId, lsn};
use terrace_pool::{BufferPool, Dirtied, PageMut};

use crate::api::{Durability, FullImages};
use crate::btree::Tree;
use crate::change::Change;
use crate::engine::Engine;
use crate::lock::{Held, Modes, Owner, Resource};
use crate::log::record::{Draft, StoredUndo, decode_undo, undo_difference, undo_writer};
use crate::log::{Chain, Level, Room};
use crate::writer::{Nested, Reader, Undo, Writer};
use crate::{Error, KeyHash, LockMode, LockOutcome, LockRequest, TreeId};

/// Bytes of the undo list in memory.
const UNDO_BYTES_MAX: usize = 4 << 20;
/// What one operation on a tree may append, besides its value: images and splits of a few levels.
const OPERATION_BYTES: u64 = 96 << 10;
/// What undoing a record may append, besides what the record has.
const UNDO_BYTES: u64 = 512;

/// Memory of a transaction, used again by a later one.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    held: Held,
    tables: Vec<TableLock>,
    undo_bytes: Vec<u8>,
    undo_list: Vec<UndoEntry>,
    draft: Draft,
    image: Draft,
    page: Option<Box<PageBuf>>,
    /// An encoded key.
    pub(crate) key: Vec<u8>,
    /// An encoded value.
    pub(crate) value: Vec<u8>,
}

impl Buffers {
    /// Forgets what the last transaction left.
    pub(crate) fn clear(&mut self) {
        self.held.clear();
        self.tables.clear();
        self.undo_list.clear();
        self.undo_bytes.clear();
        for bytes in [&mut self.undo_bytes, &mut self.key, &mut self.value] {
            bytes.clear();
            bytes.shrink_to(1 << 16);
        }
    }
}

/// What a transaction has of a table.
#[derive(Clone, Copy, Debug)]
struct TableLock {
    tree: TreeId,
    modes: Modes,
    /// Locks of keys.
    keys: usize,
    /// When to try to lock the whole table next.
    escalate_at: usize,
}

/// How to undo one record.
#[derive(Clone, Copy, Debug)]
struct UndoEntry {
    lsn: Lsn,
    /// The transaction's record before.
    prev: Lsn,
    /// Where its encoded undo begins in the list's bytes.
    at: usize,
}

/// A place in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    last: Lsn,
}

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
    engine: Arc<Engine>,
    txn: TxnId,
    owner: Option<Owner>,
    locking: Locking,
    buffers: Box<Buffers>,
    /// Names whose catalog entries it has changed.
    touched: Vec<String>,
    /// Trees that it has dropped.
    dropped: Vec<Tree>,
    chain: Option<Arc<Chain>>,
    last: Lsn,
    mode: Mode,
    nested: u32,
    /// The undo list lacks entries: the log has them.
    spilled: bool,
    /// Log bytes reserved, for the operation under way and for the rollback.
    reserved_operation: u64,
    reserved_rollback: u64,
    ended: bool,
}

impl Context {
    /// A new transaction.
    ///
    /// # Errors
    ///
    /// `TooManyLocks` if too many transactions are open.
    pub(crate) fn begin(engine: &Arc<Engine>, locking: Locking) -> Result<Context, Error> {
        let owner = match locking {
            Locking::On => Some(engine.locks.enter()?),
            Locking::Off => None,
        };
        Ok(Context::new(engine, TxnId(0), owner))
    }

    /// A transaction that recovery found unfinished, to be rolled back.
    pub(crate) fn resume(engine: &Arc<Engine>, txn: TxnId, first: Lsn, last: Lsn) -> Context {
        let mut context = Context::new(engine, txn, None);
        context.chain = Some(engine.register_recovered(txn, first, last));
        context.last = last;
        context.spilled = true;
        context
    }

    fn new(engine: &Arc<Engine>, txn: TxnId, owner: Option<Owner>) -> Context {
        Context {
            engine: Arc::clone(engine),
            txn,
            locking: if owner.is_some() { Locking::On } else { Locking::Off },
            owner,
            touched: Vec::new(),
            dropped: Vec::new(),
            buffers: engine.take_buffers(),
            chain: None,
            last: Lsn::ZERO,
            mode: Mode::Forward,
            nested: 0,
            spilled: false,
            reserved_operation: 0,
            reserved_rollback: 0,
            ended: false,
        }
    }

    /// The engine.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Memory for encoded keys and values.
    pub(crate) fn buffers(&mut self) -> &mut Buffers {
        &mut self.buffers
    }

    /// Whether it has written anything.
    pub(crate) fn has_written(&self) -> bool {
        self.last != Lsn::ZERO
    }

    /// Makes sure of log room for an operation whose key and value have `bytes`. Called without
    /// latches: it may wait for a checkpoint.
    ///
    /// # Errors
    ///
    /// `LogFull` for a transaction that is too large for the log; those of a checkpoint.
    pub(crate) fn begin_operation(&mut self, bytes: usize) -> Result<(), Error> {
        if self.chain.is_none() {
            let (txn, chain) = self.engine.register();
            self.txn = txn;
            self.chain = Some(chain);
        }
        let log = &self.engine.log;
        if log.is_failed() {
            return Err(Error::Failed);
        }
        if log.is_buffer_full() {
            log.force(log.end(), Level::Written)?;
        }
        let wanted = OPERATION_BYTES.min(log.capacity() / 32) + 3 * bytes as u64;
        if let Some(chain) = &self.chain {
            let span = log.end().0.saturating_sub(chain.first().0);
            if chain.first() != Lsn::ZERO && span + self.reserved_rollback > log.capacity() / 2 {
                return Err(Error::LogFull);
            }
        }
        if !log.has_room(wanted) {
            self.engine.make_log_room(wanted)?;
        }
        if log.used() > log.capacity() / 2 {
            self.engine.checkpoint_wanted.notify_all();
        }
        log.reserve(wanted);
        self.reserved_operation = wanted;
        Ok(())
    }

    /// The operation is over.
    pub(crate) fn end_operation(&mut self) {
        self.engine.log.unreserve(std::mem::take(&mut self.reserved_operation));
    }

    /// Waits for a lock that a tree could not get.
    ///
    /// # Errors
    ///
    /// `Conflict`, `TooManyLocks`, `Closed`.
    pub(crate) fn wait_for(&mut self, request: LockRequest) -> Result<(), Error> {
        let (resource, modes) = self.refused(request);
        let owner = self.owner.as_ref().expect("who waits locks");
        self.engine.locks.acquire(owner, resource, modes)?;
        self.note(request.tree, resource, modes);
        Ok(())
    }

    /// Locks a key, waiting for others.
    ///
    /// # Errors
    ///
    /// As `wait_for`.
    pub(crate) fn lock_key(
        &mut self,
        tree: TreeId,
        key: KeyHash,
        mode: LockMode,
    ) -> Result<(), Error> {
        let request = LockRequest { tree, key, mode };
        while self.try_lock(request)? == LockOutcome::Busy {
            self.wait_for(request)?;
        }
        Ok(())
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
        self.touched.push(name.to_string());
    }

    /// Notes a tree to be freed after the commit.
    pub(crate) fn dropped(&mut self, tree: Tree) {
        self.dropped.push(tree);
    }

    /// Locks a whole table, waiting for others.
    ///
    /// # Errors
    ///
    /// As `wait_for`.
    pub(crate) fn lock_table(&mut self, tree: TreeId, mode: LockMode) -> Result<(), Error> {
        let Some(owner) = &self.owner else { return Ok(()) };
        let modes = match mode {
            LockMode::Shared | LockMode::GapScan => Modes::TABLE_READ,
            _ => Modes::TABLE_WRITE,
        };
        let resource = Resource::table(tree);
        self.engine.locks.acquire(owner, resource, modes)?;
        self.note(tree, resource, modes);
        Ok(())
    }

    /// What stands between the transaction and `request`: first the table, then the key.
    fn refused(&self, request: LockRequest) -> (Resource, Modes) {
        let (intent, whole) = table_modes(request.mode);
        let held = self.table(request.tree).map_or(Modes::NONE, |table| table.modes);
        if !held.covers(intent) && !covers_table(held, whole) {
            return (Resource::table(request.tree), intent);
        }
        let full = self.buffers.held.len() >= self.engine.lock_limits.per_transaction_max;
        if full && !covers_table(held, whole) {
            return (Resource::table(request.tree), whole);
        }
        (Resource::key(request.tree, request.key), request.mode.into())
    }

    fn table(&self, tree: TreeId) -> Option<&TableLock> {
        self.buffers.tables.iter().find(|table| table.tree == tree)
    }

    /// Notes a lock that was granted.
    fn note(&mut self, tree: TreeId, resource: Resource, modes: Modes) {
        let escalate_at = self.engine.lock_limits.escalate_at;
        self.buffers.held.add(resource, modes);
        let tables = &mut self.buffers.tables;
        let index = tables.iter().position(|table| table.tree == tree).unwrap_or_else(|| {
            tables.push(TableLock { tree, modes: Modes::NONE, keys: 0, escalate_at });
            tables.len() - 1
        });
        if resource == Resource::table(tree) {
            tables[index].modes = tables[index].modes.and(modes);
        } else {
            tables[index].keys += 1;
        }
    }

    fn try_lock_table(&mut self, request: LockRequest) -> Result<TableAnswer, Error> {
        let (intent, whole) = table_modes(request.mode);
        let limits = self.engine.lock_limits;
        let (held, keys, escalate_at) = match self.table(request.tree) {
            Some(table) => (table.modes, table.keys, table.escalate_at),
            None => (Modes::NONE, 0, limits.escalate_at),
        };
        if covers_table(held, whole) {
            return Ok(TableAnswer::Covered);
        }
        let owner = self.owner.as_ref().expect("who locks is an owner");
        let resource = Resource::table(request.tree);
        let locks = &self.engine.locks;
        if !held.covers(intent) {
            if !locks.try_acquire(owner, resource, intent)? {
                return Ok(TableAnswer::Busy);
            }
            self.note(request.tree, resource, intent);
            return Ok(TableAnswer::ByKey);
        }
        if keys < escalate_at {
            return Ok(TableAnswer::ByKey);
        }
        if locks.try_acquire(owner, resource, whole)? {
            self.note(request.tree, resource, whole);
            let escalations = &self.engine.tally.escalations;
            escalations.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            return Ok(TableAnswer::Covered);
        }
        let table = self.buffers.tables.iter_mut().find(|table| table.tree == request.tree);
        table.expect("its locks were counted").escalate_at *= 2;
        let full = self.buffers.held.len() >= limits.per_transaction_max;
        Ok(if full { TableAnswer::Busy } else { TableAnswer::ByKey })
    }

    /// Where the transaction stands now.
    pub(crate) fn mark(&self) -> Mark {
        Mark { last: self.last }
    }

    /// Commits: appends COMMIT, forces the log as asked for, gives up the locks.
    ///
    /// # Errors
    ///
    /// `Failed`, `Closed`: reopening shows whether it is committed.
    pub(crate) fn commit(&mut self, durability: Durability) -> Result<(), Error> {
        assert!(!self.ended, "a transaction ends once");
        let forced = self.write_commit(durability);
        self.end();
        if forced.is_ok() && !self.dropped.is_empty() {
            let dropped = std::mem::take(&mut self.dropped);
            return self.engine.trees.free(&self.engine, &dropped);
        }
        forced
    }

    fn write_commit(&mut self, durability: Durability) -> Result<(), Error> {
        let Some(chain) = self.chain.take() else { return Ok(()) };
        let log = &self.engine.log;
        if self.nested != 0 {
            log.fail();
            return Err(Error::Failed);
        }
        if self.last == Lsn::ZERO {
            self.engine.unregister(self.txn);
            return Ok(());
        }
        self.buffers.draft.commit(self.txn, self.last);
        let lsn = log.append_last(&mut self.buffers.draft, &chain)?;
        self.engine.unregister(self.txn);
        let position = Lsn(lsn.0 + 1);
        match durability {
            Durability::None => Ok(()),
            Durability::Buffered => log.force(position, Level::Written),
            Durability::Durable => {
                log.count_durable_commit();
                log.force(position, Level::Durable)
            }
        }
    }

    /// Undoes everything, appends END, gives up the locks.
    ///
    /// # Errors
    ///
    /// `Failed`, `Closed`, those of devices: recovery undoes the rest.
    pub(crate) fn rollback(&mut self) -> Result<(), Error> {
        assert!(!self.ended, "a transaction ends once");
        let rollbacks = &self.engine.tally.rollbacks;
        rollbacks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let undone = self.undo_and_end();
        if undone.is_err() && !terrace_rt::dead() && self.chain.is_some() {
            // Its changes stay, half undone, and its locks go: only recovery can put that right.
            self.engine.log.fail();
        }
        self.end();
        undone
    }

    fn undo_and_end(&mut self) -> Result<(), Error> {
        if self.last == Lsn::ZERO {
            if self.chain.take().is_some() {
                self.engine.unregister(self.txn);
            }
            return Ok(());
        }
        self.undo_to(Mark { last: Lsn::ZERO })?;
        let chain = self.chain.take().expect("checked above");
        self.buffers.draft.end(self.txn, self.last);
        self.engine.log.append_last(&mut self.buffers.draft, &chain)?;
        self.engine.unregister(self.txn);
        Ok(())
    }

    /// Undoes what was done since `mark`, and goes forward again.
    ///
    /// # Errors
    ///
    /// As `rollback`.
    pub(crate) fn undo_to(&mut self, mark: Mark) -> Result<(), Error> {
        if self.nested != 0 || self.engine.log.is_failed() {
            return Err(Error::Failed);
        }
        if self.spilled {
            crate::recovery::undo_from_log(self, mark.last)?;
        } else {
            self.undo_from_memory(mark.last)?;
        }
        self.mode = Mode::Forward;
        self.engine.trees.reload(&self.touched)
    }

    fn undo_from_memory(&mut self, stop: Lsn) -> Result<(), Error> {
        while let Some(entry) = self.buffers.undo_list.last().copied() {
            if entry.lsn <= stop {
                break;
            }
            self.buffers.undo_list.pop();
            let bytes = self.buffers.undo_bytes.split_off(entry.at);
            let Some(StoredUndo::Logical(undo)) = decode_undo(&bytes) else {
                unreachable!("the list holds what was encoded")
            };
            self.undo_one(undo, entry.prev)?;
        }
        Ok(())
    }

    /// Undoes one record by key; the rollback goes on at `undo_next`.
    ///
    /// # Errors
    ///
    /// Those of the tree.
    pub(crate) fn undo_one(&mut self, undo: Undo<'_>, undo_next: Lsn) -> Result<(), Error> {
        let log = &self.engine.log;
        if log.is_buffer_full() {
            log.force(log.end(), Level::Written)?;
        }
        self.mode = Mode::Undoing { undo_next };
        let engine = Arc::clone(&self.engine);
        engine.trees.undo(self, undo)
    }

    /// Where the transaction's last record is.
    pub(crate) fn last(&self) -> Lsn {
        self.last
    }

    /// Puts back bytes that a nested action changed which never ended: a RESTORE record.
    ///
    /// # Errors
    ///
    /// Those of the pool and the log.
    pub(crate) fn restore(
        &mut self,
        page: terrace_page::PageId,
        pieces: crate::log::record::Pieces<'_>,
        undo_next: Lsn,
    ) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        let mut page = engine.pool.write(page)?;
        self.announce(&mut page, false)?;
        let place = (page.id(), lsn(&page));
        self.buffers.draft.restore(self.txn, self.last, place, pieces, undo_next);
        let lsn = self.append(Room::Reserved)?;
        page.apply(lsn, |bytes| pieces.apply(bytes));
        Ok(())
    }

    fn end(&mut self) {
        self.ended = true;
        let log = &self.engine.log;
        log.unreserve(std::mem::take(&mut self.reserved_operation));
        log.unreserve(std::mem::take(&mut self.reserved_rollback));
        let Some(owner) = self.owner.take() else { return };
        let locks = &self.engine.locks;
        for resource in self.buffers.held.iter() {
            locks.release(&owner, resource);
        }
        locks.release_given(&owner);
        locks.leave(owner);
    }

    /// Announces a change of `page` to the pool, and logs its image if it was clean.
    fn announce(&mut self, page: &mut PageMut<'_>, formats: bool) -> Result<(), Error> {
        let fresh = page.dirty() == Dirtied::Fresh;
        if fresh && !formats && self.engine.full_images == FullImages::On {
            self.buffers.image.image(page.id(), page);
            // From the reserved part: a page that is dirty without an image could not be repaired.
            self.engine.log.append_image(&mut self.buffers.image, Room::Reserved)?;
        }
        Ok(())
    }

    /// Appends the draft as the transaction's next record.
    fn append(&mut self, room: Room) -> Result<Lsn, Error> {
        let chain = self.chain.as_ref().expect("registered by begin_operation");
        let lsn = self.engine.log.append_next(&mut self.buffers.draft, room, chain)?;
        self.last = lsn;
        Ok(lsn)
    }

    /// A change whose undo is logical, or that is never undone.
    fn change_forward(
        &mut self,
        page: &mut PageMut<'_>,
        change: &Change<'_>,
        undo: Undo<'_>,
    ) -> Result<(), Error> {
        let place = (page.id(), lsn(page));
        let prev = self.last;
        let buffers = &mut *self.buffers;
        let encode = |out: &mut Vec<u8>| change.encode(out);
        let undo_at = buffers.draft.update(self.txn, prev, place, encode, undo_writer(&undo));
        let lsn = self.append(Room::Forward)?;
        if undo != Undo::None {
            self.remember(lsn, prev, undo_at);
        }
        page.apply(lsn, |bytes| apply(change, bytes));
        Ok(())
    }

    fn remember(&mut self, lsn: Lsn, prev: Lsn, undo_at: usize) {
        let buffers = &mut *self.buffers;
        let bytes = buffers.draft.len() as u64 + UNDO_BYTES;
        self.engine.log.reserve(bytes);
        self.reserved_rollback += bytes;
        if self.spilled {
            return;
        }
        let encoded = buffers.draft.undo_bytes(undo_at);
        if buffers.undo_bytes.len() + encoded.len() > UNDO_BYTES_MAX {
            self.spilled = true;
            buffers.undo_bytes = Vec::new();
            buffers.undo_list = Vec::new();
            return;
        }
        buffers.undo_list.push(UndoEntry { lsn, prev, at: buffers.undo_bytes.len() });
        buffers.undo_bytes.extend_from_slice(encoded);
    }

    /// A change within a nested action.
    fn change_nested(&mut self, page: &mut PageMut<'_>, change: &Change<'_>) -> Result<(), Error> {
        let place = (page.id(), lsn(page));
        let mut after = self.buffers.page.take().unwrap_or_else(|| Box::new([0; PAGE_SIZE]));
        after.copy_from_slice(&page[..]);
        apply(change, &mut after);
        let encode = |out: &mut Vec<u8>| change.encode(out);
        let (txn, prev, draft) = (self.txn, self.last, &mut self.buffers.draft);
        if change.formats() {
            // Nobody needs the bytes of a page that nothing leads to.
            draft.update(txn, prev, place, encode, undo_writer(&Undo::None));
        } else {
            draft.update(txn, prev, place, encode, undo_difference(page, &after));
        }
        let appended = self.append(Room::Reserved);
        if let Ok(lsn) = appended {
            page.apply(lsn, |bytes| bytes.copy_from_slice(&after[..]));
        }
        self.buffers.page = Some(after);
        appended.map(|_| ())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if terrace_rt::dead() {
            return;
        }
        if !self.ended {
            // Nobody is left to be told; a failure has stopped the log, and recovery goes on.
            let _undone = self.rollback();
        }
        self.engine.keep_buffers(std::mem::take(&mut self.buffers));
    }
}

/// How the table stands to a lock of one of its keys.
enum TableAnswer {
    /// The lock of the table covers it.
    Covered,
    /// The key has to be locked.
    ByKey,
    /// The table is locked by others.
    Busy,
}

/// The modes of the table that a lock of a key needs, and that stand for it.
fn table_modes(mode: LockMode) -> (Modes, Modes) {
    match mode {
        LockMode::Shared | LockMode::GapScan => (Modes::TABLE_INTENT_READ, Modes::TABLE_READ),
        _ => (Modes::TABLE_INTENT_WRITE, Modes::TABLE_WRITE),
    }
}

/// Whether what is held of a table stands for `whole`.
fn covers_table(held: Modes, whole: Modes) -> bool {
    held.covers(Modes::TABLE_WRITE) || held.covers(whole)
}

fn apply(change: &Change<'_>, page: &mut PageBuf) {
    assert!(change.apply(page).is_ok(), "a change that does not fit its page: {change:?}");
}

impl Reader for Context {
    fn pool(&self) -> &BufferPool {
        &self.engine.pool
    }

    fn try_lock(&mut self, request: LockRequest) -> Result<LockOutcome, Error> {
        if self.locking == Locking::Off || self.mode != Mode::Forward {
            return Ok(LockOutcome::Granted);
        }
        let modes = Modes::from(request.mode);
        let resource = Resource::key(request.tree, request.key);
        if self.buffers.held.modes(resource).covers(modes) {
            return Ok(LockOutcome::Granted);
        }
        match self.try_lock_table(request)? {
            TableAnswer::Covered => return Ok(LockOutcome::Granted),
            TableAnswer::Busy => return Ok(LockOutcome::Busy),
            TableAnswer::ByKey => (),
        }
        let owner = self.owner.as_ref().expect("checked above");
        let locks = &self.engine.locks;
        if request.mode == LockMode::GapInsert {
            return Ok(match locks.is_free(owner, resource, modes) {
                true => LockOutcome::Granted,
                false => LockOutcome::Busy,
            });
        }
        if !locks.try_acquire(owner, resource, modes)? {
            return Ok(LockOutcome::Busy);
        }
        self.note(request.tree, resource, modes);
        Ok(LockOutcome::Granted)
    }

    fn inherit_gap(&mut self, tree: TreeId, key: KeyHash, next: KeyHash) -> Result<(), Error> {
        let Some(owner) = &self.owner else { return Ok(()) };
        let held = self.buffers.held.modes(Resource::key(tree, next)).within(Modes::GAP_KEPT);
        if !held.is_none() && self.mode == Mode::Forward && self.locking == Locking::On {
            let resource = Resource::key(tree, key);
            self.engine.locks.hold(owner, resource, held)?;
            self.note(tree, resource, held);
        }
        Ok(())
    }
}

impl Writer for Context {
    fn change(
        &mut self,
        page: &mut PageMut<'_>,
        change: &Change<'_>,
        undo: Undo<'_>,
    ) -> Result<(), Error> {
        self.announce(page, change.formats())?;
        if self.nested > 0 {
            assert!(undo == Undo::None, "a nested action has no undo by key: {undo:?}");
            return self.change_nested(page, change);
        }
        let Mode::Undoing { undo_next } = self.mode else {
            return self.change_forward(page, change, undo);
        };
        let place = (page.id(), lsn(page));
        let encode = |out: &mut Vec<u8>| change.encode(out);
        self.buffers.draft.clr(self.txn, self.last, place, encode, undo_next);
        let lsn = self.append(Room::Reserved)?;
        page.apply(lsn, |bytes| apply(change, bytes));
        Ok(())
    }

    fn unlogged(&mut self, page: &mut PageMut<'_>, change: &Change<'_>) -> Result<(), Error> {
        assert!(change.formats() && self.nested == 0, "only a page that nothing leads to");
        let _fresh_or_not = page.dirty();
        page.apply(self.engine.log.last_lsn(), |bytes| apply(change, bytes));
        Ok(())
    }

    fn txn(&self) -> TxnId {
        assert!(self.chain.is_some(), "a transaction has a number once it writes");
        self.txn
    }

    fn oldest_active(&self) -> TxnId {
        self.engine.oldest_active()
    }

    fn begin_nested(&mut self) -> Nested {
        self.nested += 1;
        Nested { undo_next: self.last, depth: self.nested }
    }

    fn end_nested(&mut self, nested: Nested) -> Result<(), Error> {
        assert_eq!(nested.depth, self.nested, "nested actions end in order");
        self.buffers.draft.nested_end(self.txn, self.last, nested.undo_next);
        self.append(Room::Reserved)?;
        self.nested -= 1;
        Ok(())
    }

    fn merge_gap(&mut self, tree: TreeId, key: KeyHash, next: KeyHash) {
        let (from, to) = (Resource::key(tree, key), Resource::key(tree, next));
        self.engine.locks.merge_gap(from, to);
    }
}
