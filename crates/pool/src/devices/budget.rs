//! A daily budget of writes to flash, kept by admission: what flash wears out by.
//!
//! - Idea: a bucket of bytes that fills evenly through the day and is emptied by whatever the
//!   device was sent, tables and journals included. While it is empty no page is admitted.
//! - B1: in any time t the device is sent at most t's share of the budget, a hundredth of the
//!   budget more, what was admitted and not yet sent, and what is written without admission.
//! - B2: after an opening the bucket is empty: a database that is often reopened keeps its budget.

use terrace_rt::{LeafMutex, Nanos};

const DAY_NS: f64 = 86_400e9;
/// What the bucket holds: what a quiet time saves for a busy one.
const SAVED_DAYS: f64 = 0.01;

/// The budget of one flash device.
pub(crate) struct WriteBudget {
    bytes_per_day: f64,
    bucket: LeafMutex<Bucket>,
}

struct Bucket {
    bytes: f64,
    /// When, and at how many bytes written in all, the bucket was filled last.
    at: Nanos,
    written: u64,
}

impl WriteBudget {
    /// A budget from `now` on for a device that was sent `written` bytes already.
    pub fn new(bytes_per_day: u64, now: Nanos, written: u64) -> WriteBudget {
        let bucket = Bucket { bytes: 0.0, at: now, written };
        WriteBudget { bytes_per_day: bytes_per_day as f64, bucket: LeafMutex::new(bucket) }
    }

    /// Whether a page may be written now that the device was sent `written` bytes in all.
    pub fn allows(&self, now: Nanos, written: u64) -> bool {
        let mut bucket = self.bucket.lock();
        let days = now.saturating_sub(bucket.at).0 as f64 / DAY_NS;
        let filled = bucket.bytes + days * self.bytes_per_day;
        let spent = written.saturating_sub(bucket.written) as f64;
        bucket.bytes = filled.min(self.bytes_per_day * SAVED_DAYS) - spent;
        bucket.at = bucket.at.max(now);
        bucket.written = bucket.written.max(written);
        bucket.bytes > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_rt::Prng;

    const PAGE: u64 = 8192;
    const PER_DAY: u64 = 10 << 30;
    const HOUR: u64 = 3_600_000_000_000;

    #[test]
    fn a_busy_day_spends_its_budget_and_no_more() {
        for seed in 0..20 {
            let mut prng = Prng::from_seed(seed);
            let (mut now, mut written) = (0, 1 << 40);
            let budget = WriteBudget::new(PER_DAY, Nanos(now), written);
            while now < 24 * HOUR {
                now += prng.below(20_000_000);
                if budget.allows(Nanos(now), written) {
                    written += PAGE;
                }
            }
            let ratio = (written - (1 << 40)) as f64 / PER_DAY as f64;
            assert!((0.99..=1.0001).contains(&ratio), "seed {seed}: {ratio}");
        }
    }

    #[test]
    fn a_quiet_day_saves_a_hundredth() {
        let budget = WriteBudget::new(PER_DAY, Nanos(0), 0);
        assert!(!budget.allows(Nanos(0), 0), "it begins empty");
        assert!(budget.allows(Nanos(20 * HOUR), 0));
        let saved = PER_DAY / 100;
        assert!(budget.allows(Nanos(20 * HOUR), saved - PAGE));
        assert!(!budget.allows(Nanos(20 * HOUR), saved + PAGE));
        assert!(budget.allows(Nanos(21 * HOUR), saved + PAGE));
    }
}
