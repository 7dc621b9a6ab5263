//! What is newer than home, and how it gets there for good.
//!
//! `dirty` is the order of a change, `ledger` the books of one partition; `flush` brings old
//! changes home, `doublewrite` keeps a page whole while it is written there. Here is the log as the
//! pool sees it (`Journal`), and what all of them ask: whether changes are taken, where the log
//! ends, and what is too old.
//!
//! - S1: after a failed write or sync of home, or of a log or table that cannot be done without,
//!   the pool takes no more changes. The first cause is kept, and all later callers get it.
//!
//! With `clean_age`, no change stays away from home for longer than that much log. The papers'
//! cleaner knows only how much of the flash is dirty: below lambda, a page that no request uses
//! holds the log, and the redo of the next opening, for ever [sources.D7].
//!
//! ```text
//!  log:  ... | too old: brought home |          the bound, `clean_age`          | end
//!                          floor ----^  recLSNs of dirty pages, memory and flash
//! ```
//!
//! - A1: the age of a page is what the log has grown since its recLSN, in bytes: that is what redo
//!   would read for it. Memory is flushed below the floor, oldest first; flash is cleaned, by the
//!   cleaner in its order by recLSN, which the bound implies.
//! - A2: the tasks that make the log grow look, now and then, whether the floor has moved far
//!   enough; no task waits, and there is no timer. Pages are brought home before the bound is
//!   reached, so that what is under way keeps it.
//! - Not kept by it: what an open transaction, a page that is still to be redone, or one that is
//!   damaged on flash holds of the log; and a home that cannot write as fast as pages change.

pub(crate) mod dirty;
pub(crate) mod doublewrite;
pub(crate) mod flush;
pub(crate) mod home_versions;
pub(crate) mod ledger;

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use terrace_device::{Device, Operation};
use terrace_page::{Lsn, PageBuf, PageId};
use terrace_rt::{LeafMutex, Mutex, Signal};
use terrace_tier::Mutations;

use crate::{BufferPool, Doublewrite, PoolConfig, PoolError, Stop, Tier};
use dirty::BufWrites;

/// How often the floor is looked at within the bound.
const LOOKS: u64 = 16;
/// This share of the bound is left for the pages under way.
const MARGIN: u64 = 8;

/// The log, as the pool sees it [S3 II-A].
///
/// The pool calls `last_lsn`, `log_buf_write`, `log_flash` and `log_flash_kept` under its own leaf
/// locks: none may block or switch tasks. `make_durable` is called without any.
pub trait Journal: Send + Sync {
    /// The LSN of the last record appended. Never decreases.
    fn last_lsn(&self) -> Lsn;

    /// Every record up to this LSN is durable. Never decreases.
    fn durable_lsn(&self) -> Lsn;

    /// Returns when every record up to `upto` is durable: the pool calls it before a page goes to
    /// home or to flash (write-ahead logging) [S0 2.4].
    ///
    /// # Errors
    ///
    /// [`PoolError::Journal`] if the log cannot be written; the page stays where it is.
    fn make_durable(&self, upto: Lsn) -> Result<(), PoolError>;

    /// Where pages are copied before they are written home, if they are.
    fn doublewrite(&self) -> Option<&Arc<Doublewrite>> {
        None
    }

    /// As `make_durable`, and what was written to the log's device before the call is durable, too.
    ///
    /// # Errors
    ///
    /// As `make_durable`.
    fn barrier(&self, upto: Lsn) -> Result<(), PoolError> {
        self.make_durable(upto)
    }

    /// Appends a BUF_WRITE record, not forced: the home copy of each of `pages` is durable and
    /// holds every update with an LSN up to `eol` [S3 II-A].
    fn log_buf_write(&self, pages: &[PageId], eol: Lsn);

    /// Appends a record of the flash tier's own, not forced; returns its LSN, or `None` if the log
    /// has no room. Recovery shows it to the tier again [S3 III-C].
    fn log_flash(&self, payload: &[u8]) -> Option<Lsn>;

    /// As `log_flash`, in the room that is kept for what must be said: at most one short record
    /// between two checkpoints.
    fn log_flash_kept(&self, payload: &[u8]) -> Option<Lsn> {
        self.log_flash(payload)
    }

    /// The log's device has failed to write copies of pages: the log takes no more records, and so
    /// the pool no more changes.
    fn failed(&self, source: io::Error) -> PoolError {
        PoolError::Journal { source: Arc::new(source) }
    }

    /// A device has failed, so that the pool takes no more changes. Returns the cause that all
    /// callers get from now on: the first one, which may be of the log's own. Called under leaf
    /// locks.
    fn stopped(&self, stop: Stop) -> Arc<dyn Error + Send + Sync> {
        Arc::new(stop)
    }

    /// Brings `bytes`, home's version of `page`, up to date from the log, which has every change
    /// since `rec`; if they are not `whole`, a record that formats the page must come first.
    ///
    /// # Errors
    ///
    /// [`PoolError::Redo`] if the log does not have what it takes.
    fn repair(
        &self,
        page: PageId,
        rec: Lsn,
        bytes: &mut PageBuf,
        is_whole: bool,
    ) -> Result<(), PoolError>;

    /// As `repair`, of a page that a flash has lost together with those that `lost` returns, each
    /// with what is `rec` of it. One that is changed or repaired is not asked for again, since that
    /// flash takes no page any more: so one reading of the log can serve them all.
    ///
    /// # Errors
    ///
    /// As `repair`.
    fn repair_among(
        &self,
        page: PageId,
        rec: Lsn,
        bytes: &mut PageBuf,
        is_whole: bool,
        _lost: &dyn Fn() -> Vec<(PageId, Lsn)>,
    ) -> Result<(), PoolError> {
        self.repair(page, rec, bytes, is_whole)
    }
}

/// What makes changes durable at home, page by page and all together.
pub(crate) struct Durability {
    pub(crate) journal: Arc<dyn Journal>,
    home: Arc<dyn Device>,
    pub(crate) mutations: Mutations,
    /// Sharp checkpoints under way: no new dirty page goes to flash meanwhile [S0 3.2].
    sharp: AtomicU32,
    /// Bulk loads under way: the log has none of their pages, so none goes to flash alone.
    loads: AtomicU32,
    /// What was changed before this LSN may be of a load that was given up: zero once all of that
    /// is at home.
    home_before: AtomicU64,
    buf_writes: LeafMutex<BufWrites>,
    /// Pages in a BUF_WRITE record.
    buf_write_pages: usize,
    /// Held by the task that syncs home.
    sync: Mutex<()>,
    stop: StopSwitch,
    age: AgeWatch,
}

/// When the age of dirty pages is looked at.
struct AgeWatch {
    /// Bytes of log after which a change is too old, if that is so.
    bound: Option<u64>,
    /// Given when the log has grown by a part of the bound on age.
    news: Signal,
    /// The end of the log at which it is given next.
    due: AtomicU64,
}

impl Durability {
    /// Of a pool with this `config`, over `home`.
    pub(crate) fn new(
        journal: Arc<dyn Journal>,
        home: Arc<dyn Device>,
        config: &PoolConfig,
    ) -> Durability {
        Durability {
            journal,
            home,
            mutations: config.mutations,
            sharp: AtomicU32::new(0),
            loads: AtomicU32::new(0),
            home_before: AtomicU64::new(0),
            buf_writes: LeafMutex::default(),
            buf_write_pages: config.buf_write_pages as usize,
            sync: Mutex::default(),
            stop: StopSwitch::default(),
            age: AgeWatch { bound: config.clean_age, news: Signal::new(), due: AtomicU64::new(0) },
        }
    }

    /// Whether a sharp checkpoint is under way.
    pub(crate) fn is_sharp(&self) -> bool {
        self.sharp.load(Ordering::Relaxed) > 0
    }

    /// Whether no page that home lacks may go to flash alone.
    pub(crate) fn wants_home(&self) -> bool {
        self.is_sharp() || self.loads.load(Ordering::Relaxed) > 0 || self.home_before().is_some()
    }

    /// What was changed before this may be of a load that was given up, and not at home.
    fn home_before(&self) -> Option<Lsn> {
        let before = self.home_before.load(Ordering::Relaxed);
        (before > 0).then_some(Lsn(before))
    }

    /// All that was changed before `lsn` has left memory for home.
    fn came_home(&self, lsn: Lsn) {
        let is_all = |before: u64| (before > 0 && before <= lsn.0).then_some(0);
        let _more = self.home_before.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_all);
    }

    /// Whether the pool takes no more changes (S1).
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }

    /// # Errors
    ///
    /// `Stopped` with the first cause (S1).
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<(), PoolError> {
        self.stop.check()
    }

    /// A device that the database cannot do without failed. Returns the error for the caller.
    fn stop_for(&self, stop: Stop) -> PoolError {
        self.stop.set(|| self.journal.stopped(stop))
    }

    /// A write or sync of home failed: no more changes. Returns the error for the caller.
    pub(crate) fn stop_for_home(&self, operation: Operation, source: io::Error) -> PoolError {
        self.stop_for(Stop::new(Tier::Home, &*self.home, operation, source))
    }

    /// The flash failed, and the database cannot do without. Returns the error for the caller.
    pub(crate) fn stop_for_flash(
        &self,
        flash: &dyn Device,
        operation: Operation,
        source: io::Error,
    ) -> PoolError {
        self.stop_for(Stop::new(Tier::Flash, flash, operation, source))
    }

    /// The least LSN that a change can get from now on.
    pub(crate) fn next_lsn(&self) -> Lsn {
        Lsn(self.journal.last_lsn().0 + 1)
    }

    /// Returns when the log is durable up to `upto`.
    pub(crate) fn write_ahead(&self, upto: Lsn) -> Result<(), PoolError> {
        if self.journal.durable_lsn() < upto { self.journal.make_durable(upto) } else { Ok(()) }
    }

    /// Wakes the age writer.
    pub(crate) fn notify(&self) {
        self.age.news.notify_all();
    }

    /// What is dirty since before this is too old (A1); zero if nothing ever is.
    pub(crate) fn age_floor(&self) -> Lsn {
        let floor = self.age.bound.map_or(0, |age| {
            let end = self.journal.last_lsn().0;
            end.saturating_sub(age - age / MARGIN)
        });
        Lsn(floor)
    }
}

impl BufferPool {
    /// The log has grown to `end`: what has become too old is brought home.
    #[inline]
    pub fn log_grew(&self, end: Lsn) {
        if end.0 >= self.durability.age.due.load(Ordering::Relaxed) && self.durability.age.look(end)
        {
            self.cleaning.news.notify_all();
        }
    }
}

impl AgeWatch {
    /// The log has grown to `end`, where ages are due. Whether anything ever is too old.
    #[cold]
    fn look(&self, end: Lsn) -> bool {
        let due = self.bound.map_or(u64::MAX, |age| end.0 + age / LOOKS);
        self.due.store(due, Ordering::Relaxed);
        if self.bound.is_some() {
            self.news.notify_all();
        }
        self.bound.is_some()
    }
}

/// Why a pool stopped.
type Cause = Arc<dyn Error + Send + Sync>;

/// Set once, with the first cause, and never reset.
#[derive(Default)]
struct StopSwitch {
    is_set: AtomicBool,
    cause: LeafMutex<Option<Cause>>,
}

impl StopSwitch {
    #[inline]
    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// # Errors
    ///
    /// `Stopped` with the first cause.
    #[inline]
    fn check(&self) -> Result<(), PoolError> {
        if self.is_set() { self.told() } else { Ok(()) }
    }

    #[cold]
    fn told(&self) -> Result<(), PoolError> {
        match &*self.cause.lock() {
            Some(cause) => Err(PoolError::Stopped { cause: Arc::clone(cause) }),
            None => Ok(()),
        }
    }

    /// Stops the pool for `cause`, unless an earlier cause has. Returns the error for the caller.
    fn set(&self, cause: impl FnOnce() -> Cause) -> PoolError {
        let mut first = self.cause.lock();
        let cause = first.get_or_insert_with(cause);
        self.is_set.store(true, Ordering::Release);
        PoolError::Stopped { cause: Arc::clone(cause) }
    }
}
