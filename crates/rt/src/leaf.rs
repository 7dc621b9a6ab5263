//! A mutex for a few instructions: its holder may not wait for anything.
//!
//! - It is the operating system's mutex, so it costs a task nothing to hold it, and it would stop a
//!   whole executor to wait under it. Hence the rule, checked in debug builds at every task switch.
//! - It does not remember panics: what it guards must be consistent between any two statements, or
//!   be thrown away with the world.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};

thread_local! {
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// Asserts, in debug builds, that this thread holds no leaf mutex.
#[inline]
pub(crate) fn assert_none_held() {
    debug_assert!(HELD.get() == 0, "a task switches while it holds a leaf mutex");
}

/// A mutual exclusion that never blocks inside.
#[derive(Debug, Default)]
pub struct LeafMutex<T>(Mutex<T>);

/// Access to what a [`LeafMutex`] guards, until dropped.
#[derive(Debug)]
pub struct LeafGuard<'a, T>(MutexGuard<'a, T>);

impl<T> LeafMutex<T> {
    /// A free mutex around `value`.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> LeafMutex<T> {
        LeafMutex(Mutex::new(value))
    }

    /// A free mutex around `value`.
    #[cfg(loom)]
    pub fn new(value: T) -> LeafMutex<T> {
        LeafMutex(Mutex::new(value))
    }

    /// Takes the mutex. The holder must not wait, sleep or take a task-blocking latch.
    #[inline]
    pub fn lock(&self) -> LeafGuard<'_, T> {
        let guard = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if cfg!(debug_assertions) {
            HELD.set(HELD.get() + 1);
        }
        LeafGuard(guard)
    }

    /// The value, of which this is the only owner.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(not(loom))]
impl<T> LeafMutex<T> {
    /// The value, without locking: the exclusive reference is the proof.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<T> Drop for LeafGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            HELD.set(HELD.get() - 1);
        }
    }
}

impl<T> Deref for LeafGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for LeafGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
