//! What the latches stand on: an atomic word, and waiting for it to change.
//!
//! Under `cfg(loom)` the same latch code runs on loom's atomics and on a parking table made of
//! loom's mutex and condition variable, with the same futex shape.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub(crate) use crate::world::{dead, maybe_switch, wait, wake_all, wake_one};

#[cfg(loom)]
pub(crate) use crate::model::{dead, maybe_switch, wait, wake_all, wake_one};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Waits for a latch. A destructor that does so while the world is dead would never get it, since
/// the owner is unwound later: that is a bug in the destructor, which must ask `dead()` first.
pub(crate) fn wait_for_latch(word: &AtomicU64, seen: u64) {
    wait(word, seen);
    assert!(
        word.load(Ordering::Relaxed) != seen || !dead(),
        "a destructor waits for a latch in a dead world: ask rt::dead() first"
    );
}
