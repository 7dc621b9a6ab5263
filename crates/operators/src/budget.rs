//! Memory that an operator may use, counted in bytes.
//!
//! - B1: `take` never lets more than the limit be in use. `take_spare` may pass it, by what its
//!   caller left free for that.

use std::sync::atomic::{AtomicU64, Ordering};

/// The memory of one operator.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: AtomicU64,
    peak: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Budget {
        Budget { limit, used: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    /// Takes memory, if there is as much.
    #[must_use]
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        let before = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if let Ok(before) = before {
            self.peak.fetch_max(before + bytes, Ordering::Relaxed);
        }
        before.is_ok()
    }

    /// Takes memory all the same (B1).
    pub(crate) fn take_spare(&self, bytes: u64) {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        self.peak.fetch_max(before + bytes, Ordering::Relaxed);
    }

    /// Gives memory back.
    pub(crate) fn give(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes given back of {before}");
    }

    /// Whether there is as much.
    pub(crate) fn has(&self, bytes: u64) -> bool {
        self.used.load(Ordering::Relaxed).saturating_add(bytes) <= self.limit
    }

    /// The most that was in use at once.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_and_the_peak_is_kept() {
        let budget = Budget::new(100);
        assert!(budget.take(60) && !budget.take(41) && budget.take(40));
        assert!(!budget.has(1) && !budget.take(u64::MAX));
        budget.give(70);
        assert!(budget.has(70) && !budget.has(71));
        budget.take_spare(90);
        assert_eq!(budget.peak(), 120);
    }
}
