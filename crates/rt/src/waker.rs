//! Waking a future's task: code of a caller, which may do anything.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes by `waker`. A waker that panics has said so on standard error, and disturbs no other task:
/// the one who wakes has others to wake. Hold no latch and no leaf mutex.
pub fn wake_future(waker: Waker) {
    crate::leaf::assert_none_held();
    let _woken = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}
