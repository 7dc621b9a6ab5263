//! What a running backup asks of the engine: the log that it has not copied yet, and the pages that
//! were written past the log.
//!
//! - K1: the log is not cut past `pin` as long as it holds; what the pin has passed is cut as far
//!   as the last checkpoint would have. A writer whose checkpoint made no room takes the pin away,
//!   and so does a checkpoint that finds none: the backup then ends with an error. So no writer
//!   waits for a backup, and the room that is held back for what has to go on is not used up. What
//!   only the pin keeps is no reason for another checkpoint.
//! - K2: a page that is written without a record is noted after it has its dirty entry, and before
//!   its latch goes. So a backup that reads it either finds that home lacks it, and then waits for
//!   the latch, or has begun before the note, which is then made.
//! - K3: before a record that refers to such pages is appended, those of its transaction are moved
//!   to the pages that the backup has to copy. So when there are none, every record before the end
//!   of the log refers to copied pages only.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_page::{Lsn, PageId, TxnId};
use terrace_rt::LeafMutex;

/// Numbers of pages, in the order in which they were written.
pub(crate) type Runs = Vec<Range<u64>>;

/// Pages that the log does not have.
#[derive(Default)]
struct Unlogged {
    /// Those that no record refers to yet, by transaction.
    unfinished: BTreeMap<TxnId, Runs>,
    /// Those that a record refers to, or is about to.
    referred: Runs,
}

/// See the module.
pub(crate) struct BackupWatch {
    is_running: AtomicBool,
    /// `Lsn::MAX` if nothing is pinned.
    pin: AtomicU64,
    /// Where the last checkpoint would have cut the log.
    would_cut: AtomicU64,
    is_behind: AtomicBool,
    pages: LeafMutex<Unlogged>,
}

impl BackupWatch {
    pub(crate) fn new() -> BackupWatch {
        BackupWatch {
            is_running: AtomicBool::new(false),
            pin: AtomicU64::new(Lsn::MAX.0),
            would_cut: AtomicU64::new(0),
            is_behind: AtomicBool::new(false),
            pages: LeafMutex::new(Unlogged::default()),
        }
    }

    /// Begins, with the log pinned from `from` on. `false` if another backup runs.
    pub(crate) fn begin(&self, from: Lsn) -> bool {
        if self.is_running.swap(true, Ordering::SeqCst) {
            return false;
        }
        // A load that came as the last one ended may have left something.
        *self.pages.lock() = Unlogged::default();
        self.is_behind.store(false, Ordering::SeqCst);
        self.pin.store(from.0, Ordering::SeqCst);
        true
    }

    /// It has ended.
    pub(crate) fn end(&self) {
        self.pin.store(Lsn::MAX.0, Ordering::SeqCst);
        *self.pages.lock() = Unlogged::default();
        self.is_running.store(false, Ordering::SeqCst);
    }

    /// The log before `to` is not needed any more. Where it may be cut now.
    pub(crate) fn advance(&self, to: Lsn) -> Lsn {
        let higher = |pin: u64| (pin != Lsn::MAX.0 && pin < to.0).then_some(to.0);
        let _pin = self.pin.fetch_update(Ordering::SeqCst, Ordering::SeqCst, higher);
        Lsn(self.would_cut.load(Ordering::SeqCst).min(self.pin.load(Ordering::SeqCst)))
    }

    /// Where the log may be cut that a checkpoint would cut at `start`.
    pub(super) fn cut(&self, start: Lsn) -> Lsn {
        self.would_cut.store(start.0, Ordering::SeqCst);
        start.min(Lsn(self.pin.load(Ordering::SeqCst)))
    }

    /// Bytes of the log which only the pin keeps, as of the last checkpoint.
    pub(crate) fn keeps(&self) -> u64 {
        let pin = self.pin.load(Ordering::SeqCst);
        self.would_cut.load(Ordering::SeqCst).saturating_sub(pin)
    }

    /// K1: takes the pin away if it holds back a cut at `start`. Whether it did.
    pub(super) fn gives_way(&self, start: Lsn) -> bool {
        let pin = self.pin.load(Ordering::SeqCst);
        if pin >= start.0 {
            return false;
        }
        self.is_behind.store(true, Ordering::SeqCst);
        self.pin.store(Lsn::MAX.0, Ordering::SeqCst);
        true
    }

    /// Whether the log has gone on without the backup.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::SeqCst)
    }

    /// K2: the transaction writes pages without a record.
    pub(crate) fn wrote(&self, txn: TxnId, first: PageId, count: u32) {
        if !self.is_running.load(Ordering::SeqCst) {
            return;
        }
        let (start, end) = (first.0, first.0 + u64::from(count));
        let mut pages = self.pages.lock();
        let runs = pages.unfinished.entry(txn).or_default();
        match runs.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => runs.push(start..end),
        }
    }

    /// K3: the transaction is about to refer to what it has written.
    pub(crate) fn refers(&self, txn: TxnId) {
        if !self.is_running.load(Ordering::SeqCst) {
            return;
        }
        let mut pages = self.pages.lock();
        let runs = pages.unfinished.remove(&txn).unwrap_or_default();
        pages.referred.extend(runs);
    }

    /// The pages that are to be copied before the backup can end; without any, what `end` tells,
    /// asked at a moment when there are none.
    pub(crate) fn settle(&self, end: impl FnOnce() -> Lsn) -> Result<Lsn, Runs> {
        let mut pages = self.pages.lock();
        match pages.referred.is_empty() {
            true => Ok(end()),
            false => Err(std::mem::take(&mut pages.referred)),
        }
    }
}
