//! Page requests that took no latch: a count that no two threads write to the same line of.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that each thread keeps on a cache line of its own.
#[derive(Default)]
pub(crate) struct Peeks([PeekLine; PEEK_LINES]);

/// Threads beyond so many share lines; then some of what they count at the same instant is lost.
const PEEK_LINES: usize = 32;

#[derive(Default)]
#[repr(align(128))]
struct PeekLine(AtomicU64);

impl Peeks {
    /// Counts one.
    #[inline]
    pub fn count(&self) {
        let line = &self.0[terrace_rt::lane() % PEEK_LINES].0;
        line.store(line.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// All that was counted.
    pub fn sum(&self) -> u64 {
        self.0.iter().map(|line| line.0.load(Ordering::Relaxed)).sum()
    }
}
