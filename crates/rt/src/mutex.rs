//! A mutex that blocks the task, not the executor.
//!
//! Three states: free, locked, locked with parked tasks. The protocol is the third mutex of
//! Drepper, "Futexes are tricky" (2011): whoever was parked locks with CONTENDED, since it cannot
//! know that it was the last.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::word::{self, AtomicU64, Ordering};

const FREE: u64 = 0;
const LOCKED: u64 = 1;
const CONTENDED: u64 = 2;

/// A mutual exclusion; a task may hold it while it waits for a device.
#[derive(Default)]
pub struct Mutex<T> {
    word: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands the value to one task at a time, so `T: Send` is all that is needed.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// Access to what a [`Mutex`] guards, until dropped.
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// Keeps the guard from being `Sync` for a `T` that is not.
    value: std::marker::PhantomData<&'a mut T>,
}

impl<T> Mutex<T> {
    /// A free mutex around `value`.
    pub fn new(value: T) -> Mutex<T> {
        Mutex { word: AtomicU64::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Takes the mutex; waits while another task holds it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        word::maybe_switch();
        if !self.take() {
            self.lock_slow();
        }
        MutexGuard { mutex: self, value: std::marker::PhantomData }
    }

    /// Takes the mutex if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        word::maybe_switch();
        self.take().then_some(MutexGuard { mutex: self, value: std::marker::PhantomData })
    }

    /// The value, without locking: the exclusive reference is the proof.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value, of which this is the only owner.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    #[inline]
    fn take(&self) -> bool {
        self.word.compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self) {
        while self.word.swap(CONTENDED, Ordering::Acquire) != FREE {
            word::wait_for_latch(&self.word, CONTENDED);
        }
    }

    #[inline]
    fn unlock(&self) {
        if self.word.swap(FREE, Ordering::Release) == CONTENDED {
            word::wake_one(&self.word);
        }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.unlock();
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard proves that this task holds the mutex.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard proves that this task alone holds the mutex.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Mutex").field("word", &self.word).finish_non_exhaustive()
    }
}
