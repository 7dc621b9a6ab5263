//! The misses so far: the clock of the policies, and what a miss needs to know of those before it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_page::PageId;
use terrace_policy::Tick;

/// What a miss needs to know of the misses before it.
pub(crate) struct FetchHistory {
    /// The clock of the policies: one tick for each miss.
    clock: AtomicU64,
    /// Memory was full once: ramp-up is over [S0 4.3.2].
    memory_was_full: AtomicBool,
    /// The page that a read of its own fetched last, for the 64-page rule.
    last: AtomicU64,
}

impl FetchHistory {
    pub(crate) fn since(now: Tick) -> FetchHistory {
        FetchHistory {
            clock: AtomicU64::new(now.0),
            memory_was_full: AtomicBool::new(false),
            last: AtomicU64::new(u64::MAX),
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Tick {
        Tick(self.clock.load(Ordering::Relaxed))
    }

    pub(crate) fn tick(&self) -> Tick {
        Tick(self.clock.fetch_add(1, Ordering::Relaxed) + 1)
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
