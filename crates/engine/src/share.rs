//! What threads use together, laid out so that they do not slow each other down by it.
//!
//! A core that writes to a cache line takes it from all other cores that have it. So what one
//! thread writes often lies on lines of its own (`Apart`), a count that all write has a line for
//! each lane of threads (`Tally`), and a counted pointer that each transaction takes and gives back
//! has its count in the lane, too (`Share`).

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_rt::lane;

/// Lanes: threads beyond so many share one.
const LANES: usize = 16;

/// A value on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> Deref for Apart<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// A count that each thread adds to on a line of its own.
#[derive(Debug, Default)]
pub(crate) struct Tally([Apart<AtomicU64>; LANES]);

impl Tally {
    /// Counts one more.
    #[inline]
    pub(crate) fn count(&self) {
        self.0[lane() % LANES].fetch_add(1, Ordering::Relaxed);
    }

    /// All that was counted.
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(|line| line.load(Ordering::Relaxed)).sum()
    }
}

/// A value that many own: behind an `Arc` of this, whose count is a lane's or a transaction's own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Share<T>(Arc<T>);

impl<T> Share<T> {
    /// A new share of `value`.
    pub(crate) fn new(value: Arc<T>) -> Arc<Share<T>> {
        Arc::new(Share(value))
    }
}

impl<T> Deref for Share<T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

/// A share for each lane.
#[derive(Debug)]
pub(crate) struct Shares<T>([Arc<Share<T>>; LANES]);

impl<T> Shares<T> {
    /// Shares of `value`.
    pub(crate) fn new(value: &Arc<T>) -> Shares<T> {
        Shares(std::array::from_fn(|_| Share::new(Arc::clone(value))))
    }

    /// That of this thread's lane.
    #[inline]
    pub(crate) fn own(&self) -> &Arc<Share<T>> {
        &self.0[lane() % LANES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_counts_what_all_threads_count() {
        let tally = Tally::default();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..1000).for_each(|_| tally.count()));
            }
        });
        assert_eq!(tally.sum(), 3000);
    }

    #[test]
    fn a_share_keeps_its_value_until_the_last_is_gone() {
        let value = Arc::new(7);
        let shares = Shares::new(&value);
        let own = Arc::clone(shares.own());
        drop(shares);
        assert_eq!((***own, Arc::strong_count(&value)), (7, 2));
        drop(own);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
