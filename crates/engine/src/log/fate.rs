//! What became of a transaction, for readers of what it has overwritten.
//!
//! ```text
//!   open (0) ----- COMMIT or END appended -----> its LSN
//! ```
//!
//! - A1: the LSN is stored under the log's tail, before the end that is behind it. So a task that
//!   has read an end `s` finds that each transaction whose last record begins before `s` has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use terrace_page::Lsn;

/// The fate of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    ended: AtomicU64,
    /// All that it has overwritten is among the versions, whether or not snapshots are open.
    is_kept: AtomicBool,
    /// What it has overwritten was given up: it was more than there is room for.
    is_lost: AtomicBool,
}

impl Fate {
    /// Whether something else refers to it.
    #[inline]
    pub(super) fn is_shared(fate: &Arc<Fate>) -> bool {
        let is_shared = Arc::strong_count(fate) > 1;
        // What the others did with it was before they let go of it.
        fence(Ordering::Acquire);
        is_shared
    }

    /// For the next transaction. It is not shared.
    pub(super) fn reset(&self) {
        self.ended.store(0, Ordering::Relaxed);
        self.is_kept.store(false, Ordering::Relaxed);
        self.is_lost.store(false, Ordering::Relaxed);
    }

    pub(super) fn end(&self, lsn: Lsn) {
        self.ended.store(lsn.0, Ordering::Release);
    }

    /// Its last record, once that is appended.
    #[inline]
    pub(crate) fn ended(&self) -> Option<Lsn> {
        let ended = self.ended.load(Ordering::Acquire);
        (ended != 0).then_some(Lsn(ended))
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::SeqCst)
    }

    pub(crate) fn keep(&self) {
        self.is_kept.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.is_kept.store(false, Ordering::SeqCst);
    }

    /// For tests of the versions alone.
    #[cfg(test)]
    pub(crate) fn end_for_tests(&self, lsn: Lsn) {
        self.end(lsn);
    }
}
