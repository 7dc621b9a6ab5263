//! What a miss needs to know of the misses before it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_page::PageId;

/// What a miss needs to know of the misses before it.
pub(crate) struct FetchHistory {
    /// Memory was full once: ramp-up is over [S0 4.3.2].
    memory_was_full: AtomicBool,
    /// The page that a read of its own fetched last, for the 64-page rule.
    last: AtomicU64,
}

impl FetchHistory {
    pub(crate) fn new() -> FetchHistory {
        FetchHistory { memory_was_full: AtomicBool::new(false), last: AtomicU64::new(u64::MAX) }
    }

    pub(crate) fn memory_is_full(&self) {
        self.memory_was_full.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_ramp_up(&self) -> bool {
        !self.memory_was_full.load(Ordering::Relaxed)
    }

    /// The page that was fetched before `page`.
    pub(crate) fn followed_by(&self, page: PageId) -> Option<PageId> {
        let previous = self.last.swap(page.0, Ordering::Relaxed);
        (previous != u64::MAX).then_some(PageId(previous))
    }
}
