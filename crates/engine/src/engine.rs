//! The engine: what an open database is made of, and its checkpoints.
//!
//! ```text
//!   transactions ---- locks
//!        |  \
//!      trees  \
//!        |      \
//!      pool --- journal --- log --- superblock
//! ```
//!
//! - C1: only a task that holds `boot` takes a checkpoint, writes the superblock, or cuts the log.
//! - C2: the log is cut only after the superblock that says so is durable.
//! - C3: a transaction is in `writing` from before its first record until after its last one, so
//!   that a checkpoint which began before its last record finds it.

mod backup_watch;
mod closing;
mod counted;
mod forcing;
pub(crate) mod frame_room;
mod log_room;
mod writers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_device::Device;
use terrace_page::{Lsn, TxnId};
use terrace_policy::FlashRole;
use terrace_pool::BufferPool;
use terrace_rt::{LeafMutex, Mutex, Nanos, Signal, dead, lane, now};

pub(crate) use self::backup_watch::{BackupWatch, Runs};
use crate::api::Checkpoint;
use crate::context::Buffers;
use crate::copies::BadCopy;
use crate::counts::Counts;
use crate::engine::forcing::Forcing;
use crate::engine::frame_room::FrameRoom;
use crate::error::{Places, is_of_closing};
use crate::events;
use crate::journal::LogJournal;
use crate::leaf_room::LeafRoom;
use crate::lock::LockTable;
use crate::log::record::{Draft, TXN_TABLE_MAX};
use crate::log::{Level, Log, Settle};
use crate::reclaim::{Reclaim, Work};
use crate::recovery::NotUndone;
use crate::share::{self, Apart};
use crate::superblock::{Creation, FlashMark, LogFrom, Superblock};
use crate::trees::Trees;
use crate::versions::{VersionRoom, Versions};
use crate::{Action, Error, Part, TreeId};

/// Closing looks for open transactions after a pause, at first this and then twice as long.
const CLOSE_PAUSE: Nanos = Nanos::from_micros(100);
const CLOSE_PAUSE_MAX: Nanos = Nanos::from_millis(10);
/// How long a closing waits for devices to answer what is under way.
const ANSWERS_MAX: Nanos = Nanos::from_millis(500);
/// Sets of buffers that a list keeps for transactions to come, and lists of them.
const BUFFERS_KEPT: usize = 64;
const BUFFERS_LISTS: usize = 16;

/// Counts of what transactions did.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) commits: share::Tally,
    pub(crate) rollbacks: share::Tally,
    pub(crate) conflicts: AtomicU64,
    pub(crate) escalations: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) is_stop_told: AtomicBool,
    /// Nanoseconds that completed checkpoints took, and of them until the table of the flash had
    /// caught up.
    pub(crate) checkpoint_ns: AtomicU64,
    pub(crate) table_ns: AtomicU64,
}

/// Buffers that no transaction has, on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
#[expect(clippy::vec_box, reason = "they go from hand to hand as one pointer")]
struct SpareBuffers(LeafMutex<Vec<Box<Buffers>>>);

/// An open database.
pub(crate) struct Engine {
    pub(crate) log: Arc<Log>,
    pub(crate) journal: Arc<LogJournal>,
    pub(crate) pool: Arc<BufferPool>,
    pub(crate) home: Arc<dyn Device>,
    pub(crate) flash: Option<Arc<dyn Device>>,
    pub(crate) log_device: Arc<dyn Device>,
    pub(crate) locks: LockTable,
    pub(crate) lock_limits: LockLimits,
    pub(crate) leaf_room: LeafRoom,
    pub(crate) frame_room: FrameRoom,
    /// Where its parts are, for errors.
    pub(crate) places: Arc<Places>,
    /// What was bad when it was opened, and stood in for.
    pub(crate) bad_copies: Vec<BadCopy>,
    /// The id in home, log and flash.
    database: u128,
    /// Whether the last opening was closed in good order.
    pub(crate) was_closed: bool,
    /// What the opening has set apart.
    pub(crate) not_undone: LeafMutex<Option<Arc<NotUndone>>>,
    pub(crate) trees: Trees,
    /// What the background gives back.
    pub(crate) reclaim: Reclaim,
    pub(crate) flash_role: FlashRole,
    pub(crate) tally: Tally,
    /// Given when the log is half full, or the database closes.
    pub(crate) checkpoint_wanted: Signal,
    /// Forces the log for commits that are not waited for.
    pub(crate) forcing: Forcing,
    /// Transactions that write.
    writing: Apart<writers::Writers>,
    /// What snapshots need.
    pub(crate) versions: Versions,
    /// The rows of the tables.
    pub(crate) counts: Counts,
    /// The transaction that others wait for since it keeps the log from being cut, or zero.
    pub(crate) log_holder: AtomicU64,
    /// The stamp given last, see `btree::overflow`.
    pub(crate) stamp: AtomicU64,
    boot: Mutex<Superblock>,
    /// Held by the one compaction that runs.
    pub(crate) compacting: Mutex<()>,
    /// What the one backup that runs asks for.
    pub(crate) backup: BackupWatch,
    buffers: Vec<SpareBuffers>,
    /// No transaction begins any more.
    closing: AtomicBool,
    /// No operation of a transaction begins any more, and the background ends.
    closed: AtomicBool,
    /// The process that opened it, and its count of forks.
    process: u32,
    forks: u64,
}

/// When row locks give way to a table lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockLimits {
    /// A transaction tries to lock the table once it has this many row locks in it.
    pub(crate) escalate_at: usize,
    /// It waits for the table lock, or fails, once it has this many locks in all.
    pub(crate) per_transaction_max: usize,
    /// How long it waits for a lock.
    pub(crate) timeout: Nanos,
    /// How long closing waits for open transactions.
    pub(crate) close_timeout: Nanos,
}

/// On which occasion a checkpoint is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// The database goes on.
    Running,
    /// It goes on, and a copy of it begins here: the rows of the tables are listed.
    Backup,
    /// It is closed in good order.
    Closed,
}

/// What `Engine::assemble` puts together.
pub(crate) struct Parts {
    pub(crate) log: Arc<Log>,
    pub(crate) journal: Arc<LogJournal>,
    pub(crate) pool: Arc<BufferPool>,
    pub(crate) home: Arc<dyn Device>,
    pub(crate) flash: Option<Arc<dyn Device>>,
    pub(crate) log_device: Arc<dyn Device>,
    pub(crate) boot: Superblock,
    pub(crate) next_txn: TxnId,
    pub(crate) flash_role: FlashRole,
    pub(crate) lock_bytes: u64,
    pub(crate) lock_limits: LockLimits,
    pub(crate) version_room: VersionRoom,
    pub(crate) places: Places,
    pub(crate) bad_copies: Vec<BadCopy>,
    pub(crate) was_closed: bool,
}

impl Engine {
    /// An engine of these parts, not yet recovered.
    pub(crate) fn assemble(parts: Parts) -> Engine {
        terrace_rt::watch_forks();
        let first_txn = parts.next_txn;
        let versions = Versions::new(
            Arc::clone(&parts.log),
            first_txn,
            parts.version_room,
            parts.pool.mutations(),
        );
        let counts = Counts::new(parts.pool.mutations());
        Engine {
            versions,
            counts,
            log: parts.log,
            journal: parts.journal,
            trees: Trees::new(&parts.pool, &parts.home, parts.boot.home_pages),
            reclaim: Reclaim::new(),
            pool: parts.pool,
            home: parts.home,
            flash: parts.flash,
            log_device: parts.log_device,
            locks: LockTable::new(parts.lock_bytes),
            lock_limits: parts.lock_limits,
            leaf_room: LeafRoom::new(),
            frame_room: FrameRoom::new(),
            places: Arc::new(parts.places),
            bad_copies: parts.bad_copies,
            database: parts.boot.database,
            was_closed: parts.was_closed,
            not_undone: LeafMutex::new(None),
            flash_role: parts.flash_role,
            tally: Tally::default(),
            checkpoint_wanted: Signal::new(),
            forcing: Forcing::default(),
            writing: Apart(writers::Writers::new(parts.next_txn)),
            log_holder: AtomicU64::new(0),
            stamp: AtomicU64::new(0),
            boot: Mutex::new(parts.boot),
            compacting: Mutex::new(()),
            backup: BackupWatch::new(),
            buffers: (0..BUFFERS_LISTS).map(|_| SpareBuffers::default()).collect(),
            closing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            process: std::process::id(),
            forks: terrace_rt::forks(),
        }
    }

    /// The id in home, log and flash.
    pub(crate) fn database_id(&self) -> u128 {
        self.database
    }

    /// Each thread has a list of its own: memory that another one has used is in its caches.
    fn spare_buffers(&self) -> &SpareBuffers {
        &self.buffers[lane() % BUFFERS_LISTS]
    }

    /// Buffers for a new transaction.
    pub(crate) fn take_buffers(&self) -> Box<Buffers> {
        self.spare_buffers().0.lock().pop().unwrap_or_default()
    }

    /// Takes the buffers of a transaction that has ended, which are clear.
    pub(crate) fn keep_buffers(&self, buffers: Box<Buffers>) {
        let mut kept = self.spare_buffers().0.lock();
        if kept.len() < BUFFERS_KEPT {
            kept.push(buffers);
        }
    }

    /// The error with the names of tables and the paths of parts, which the place that met it did
    /// not know.
    #[cold]
    pub(crate) fn explain(&self, error: Error) -> Error {
        if self.is_closed() && is_of_closing(&error) {
            return Error::Closed;
        }
        let error = error.explained(&self.places, &|tree: TreeId| self.trees.name_of(tree));
        events::met(&error, &self.tally.is_stop_told);
        error
    }

    /// As `explain`; where the engine has stopped, the error is the first cause of that.
    #[cold]
    pub(crate) fn explain_first(&self, error: Error) -> Error {
        match self.log.check() {
            Err(failed) if !self.is_closed() => self.explain(failed),
            _ => self.explain(error),
        }
    }

    /// # Errors
    ///
    /// `Failed` if the engine has stopped, with the first cause: what memory shows then may never
    /// have been committed.
    #[inline]
    pub(crate) fn check_running(&self) -> Result<(), Error> {
        if self.is_running() { Ok(()) } else { self.why_not_running() }
    }

    /// Whether `check_running` succeeds: four loads.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        let is_closed = self.closed.load(Ordering::Acquire);
        !(self.is_forked() || is_closed || self.log.is_failed() || terrace_rt::in_callback())
    }

    #[cold]
    fn why_not_running(&self) -> Result<(), Error> {
        self.check_usable()?;
        self.log.check().map_err(|error| self.explain(error))
    }

    /// Whether this process is a fork of the one that opened the database: then nothing of it may
    /// be touched, neither files nor mutexes, which other threads may have held at the fork.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        terrace_rt::forks() != self.forks
    }

    /// The process that opened the database, and how many forks that is.
    pub(crate) fn opened_by(&self) -> (u32, u64) {
        (self.process, self.forks)
    }

    /// For the background, which goes on until the transactions have ended.
    ///
    /// # Errors
    ///
    /// `Closed` if the database is closed, or its world dead.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) || dead() { Err(Error::Closed) } else { Ok(()) }
    }

    /// For all that begins.
    ///
    /// # Errors
    ///
    /// `Reentrant`, `Forked`; `Closed` if the database is being closed, or its world is dead.
    pub(crate) fn check_beginning(&self) -> Result<(), Error> {
        self.check_usable()?;
        if self.closing.load(Ordering::Acquire) || dead() { Err(Error::Closed) } else { Ok(()) }
    }

    /// For each operation of an open transaction.
    ///
    /// # Errors
    ///
    /// `Reentrant`, `Forked`, `Closed`.
    #[inline]
    pub(crate) fn check_usable(&self) -> Result<(), Error> {
        if terrace_rt::in_callback() {
            return Err(Error::Reentrant);
        }
        if self.is_forked() {
            return Err(Error::Forked { pid: self.process });
        }
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Whether no operation begins any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Writes home what holds back the older half of the log.
    pub(crate) fn flush_old_half(&self) {
        let half = Lsn(self.log.start().0 + self.log.used() / 2);
        // A failure has stopped the pool: the next write returns it.
        let _failed = self.pool.flush_below(half);
    }

    /// How far the creation of the database got.
    pub(crate) fn creation(&self) -> Creation {
        self.boot.lock().creation
    }

    /// The map and the catalog are in the log: the next superblock, behind a force of the log, says
    /// that the database was created.
    pub(crate) fn finish_creation(&self) {
        self.boot.lock().creation = Creation::Finished;
    }

    /// Takes a checkpoint.
    ///
    /// # Errors
    ///
    /// `Failed`, `Device`, `Closed`.
    pub(crate) fn checkpoint(&self, kind: Checkpoint) -> Result<(), Error> {
        let mut boot = self.boot.lock();
        if kind == Checkpoint::Sharp {
            self.pool.flush_all()?;
        }
        self.pool.end_loads()?;
        self.take_checkpoint(&mut boot, Occasion::Running)
    }

    /// Begins a backup: takes a checkpoint, from which on `BackupWatch` keeps the log, and returns
    /// what the superblock says then; `None` if another backup runs.
    ///
    /// # Errors
    ///
    /// As `checkpoint`. The backup has then ended.
    pub(crate) fn begin_backup(&self) -> Result<Option<Superblock>, Error> {
        let mut boot = self.boot.lock();
        if !self.backup.begin(self.log.start()) {
            return Ok(None);
        }
        let taken = self.take_checkpoint(&mut boot, Occasion::Backup);
        if taken.is_err() {
            self.backup.end();
        }
        taken?;
        self.backup.advance(boot.begin_checkpoint.min(boot.oldest_txn));
        Ok(Some(*boot))
    }

    /// Takes checkpoints until neither superblock has redo begin before `since`, durably. Whether
    /// that came about.
    ///
    /// # Errors
    ///
    /// As `checkpoint`.
    pub(crate) fn checkpoint_past(&self, since: Lsn) -> Result<bool, Error> {
        self.pool.flush_all()?;
        let mut boot = self.boot.lock();
        self.pool.end_loads()?;
        // One for each copy.
        for _ in 0..2 {
            self.take_checkpoint(&mut boot, Occasion::Running)?;
            if boot.oldest_dirty.min(boot.oldest_base) < since {
                return Ok(false);
            }
        }
        let synced = self.home.sync().map_err(Error::device(Part::Home, Action::Sync));
        synced.map_err(|error| self.log.fail(error))?;
        Ok(true)
    }

    /// The steps of an indirect checkpoint, numbered [S3 Fig.3; sources.D6]: 1 BEGIN_CHKPT, 2
    /// force, 3 the transaction table, 4 the oldest dirty LSN, 5 the oldest transaction, 6
    /// END_CHKPT and a force, 7 the superblock, 8 the log is cut.
    fn take_checkpoint(&self, boot: &mut Superblock, occasion: Occasion) -> Result<(), Error> {
        let begun = now();
        self.clear_way(boot)?;
        let mut draft = Draft::default();
        draft.begin_checkpoint();
        let begin = self.log.append_growing(&mut draft)?; // 1
        self.log.force(Lsn(begin.0 + 1), Level::Durable)?; // 2
        let active = self.active();
        for entries in active.chunks(TXN_TABLE_MAX) {
            draft.txn_table(entries);
            self.log.append_growing(&mut draft)?; // 3
        }
        let oldest = self.pool.oldest_dirty();
        let record_at = |lsn| if lsn == Lsn::MAX { lsn } else { self.log.record_before(lsn) };
        let (mut oldest_dirty, oldest_base) = (record_at(oldest.rec), record_at(oldest.base)); // 4
        if self.flash_role.is_persistent() && oldest.rec < self.log.start() {
            // Flash has it, and the log has not: that it is so old tells that flash is needed. No
            // scan begins there.
            oldest_dirty = oldest.rec;
        }
        let table_begun = now();
        let flash = self.harden_flash(boot.flash)?;
        let table_span = now() - table_begun;
        let oldest_txn = active.iter().map(|(_, first, _)| *first).min().unwrap_or(Lsn::MAX); // 5
        // Recovery may read from before that.
        let read_from = match occasion {
            Occasion::Backup => begin,
            _ => oldest_base.max(oldest_dirty).min(oldest_txn).min(begin),
        };
        let has_listed = self.log_counts(&mut draft, read_from)?;
        draft.end_checkpoint(begin);
        let end = self.log.append_growing(&mut draft)?; // 6
        let end = Lsn(end.0 + draft.len() as u64);
        self.log.force(end, Level::Durable)?;
        let next = Superblock {
            sequence: boot.sequence + 1,
            clean: occasion == Occasion::Closed,
            oldest_dirty,
            oldest_base,
            oldest_txn,
            flash,
            begin_checkpoint: begin,
            end_checkpoint: end,
            log_from: self.log_from(oldest_dirty),
            next_txn: self.writing.next(),
            ..*boot
        };
        self.write_superblock(boot, next)?; // 7
        if has_listed {
            self.counts.listed(begin);
        }
        self.pool.checkpoint_taken(oldest_base.min(begin));
        self.log.truncate(self.backup.cut(boot.log_start())); // 8
        self.log.settle(if self.is_closed() { Settle::Closing } else { Settle::Running })?;
        self.tally.checkpoints.fetch_add(1, Ordering::Relaxed);
        events::checkpoint(now() - begun, (self.log.used(), self.log.capacity()));
        self.tally.checkpoint_ns.fetch_add((now() - begun).0, Ordering::Relaxed);
        self.tally.table_ns.fetch_add(table_span.0, Ordering::Relaxed);
        Ok(())
    }

    /// Puts a superblock in the place of `boot`. Where the log gives back what it has passed, both
    /// copies are durable before it does: each of them stands in for the other one at any time.
    fn write_superblock(&self, boot: &mut Superblock, next: Superblock) -> Result<(), Error> {
        let written = next.write(&*self.home).and_then(|()| match self.log.is_line() {
            true => self.home.sync().map_err(Error::device(Part::Home, Action::Sync)),
            false => Ok(()),
        });
        // Which of the two superblocks counts is unknown then, so the log may not go on.
        written.map_err(|error| self.log.fail(error))?;
        *boot = next;
        Ok(())
    }

    /// Lets the flash table catch up with the oldest dirty LSN. A table that cannot is not to be
    /// believed any more: home then names no flash device; but where flash is a part of the
    /// database, there is no checkpoint then, and the log is kept as it is.
    fn harden_flash(&self, mark: FlashMark) -> Result<FlashMark, Error> {
        match self.pool.harden_table() {
            Ok(journal) => Ok(FlashMark { journal, ..mark }),
            Err(error) if self.flash_role.is_persistent() => Err(error.into()),
            Err(_) => Ok(FlashMark::default()),
        }
    }

    /// From where on the log is kept: where flash is a part of the database, from what it lacks.
    fn log_from(&self, oldest_dirty: Lsn) -> LogFrom {
        match self.flash_role {
            FlashRole::Persistent if oldest_dirty != Lsn::MAX => LogFrom::Flash,
            _ => LogFrom::Home,
        }
    }

    /// Transactions that have written and not ended, with their first and last records. Called
    /// after BEGIN_CHKPT was appended, it lacks none that has a record before it.
    fn active(&self) -> Vec<(TxnId, Lsn, Lsn)> {
        let chains = self.writing.chains.lock();
        chains
            .iter()
            .filter_map(|(txn, chain)| chain.open().map(|(first, last)| (*txn, first, last)))
            .collect()
    }

    /// Home is full: has the reclaim task free what trees keep for their next blocks, if any does.
    pub(crate) fn offer_spare(&self) {
        for tree in self.trees.space.trees_with_spare(self.oldest_wanted()) {
            self.reclaim.offer(Work::Spare(tree));
        }
    }
}
