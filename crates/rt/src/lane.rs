//! A small number for each thread: which of several counters to use, so that no two threads write
//! to one cache line. It decides nothing else.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LANE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The number of the calling thread: threads that run at the same time have different ones, until
/// there have been more than the caller has counters.
#[inline]
pub fn lane() -> usize {
    let lane = LANE.get();
    if lane == usize::MAX { first_lane() } else { lane }
}

#[cold]
fn first_lane() -> usize {
    let lane = THREADS.fetch_add(1, Ordering::Relaxed);
    LANE.set(lane);
    lane
}
