//! A mutex that blocks the task, not the executor.
//!
//! - B1: while a task is parked on the word, PARKED is set, or a task that was woken has not run
//!   yet. A task that was parked locks with PARKED set, since it cannot know that it was the last.
//! - B2: newcomers may be quicker than a task that was woken, which saves a switch; that task then
//!   sets INSIST, and the next time they may not.
//!
//! The protocol is the third mutex of Drepper, "Futexes are tricky" (2011), and the starvation mode
//! of Go's `sync.Mutex`.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::word::{self, AtomicU64, Ordering};

const FREE: u64 = 0;
const LOCKED: u64 = 1;
const PARKED: u64 = 1 << 1;
const INSIST: u64 = 1 << 2;

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
        // A guard only if it is taken: to drop one frees the mutex.
        self.take().then(|| MutexGuard { mutex: self, value: std::marker::PhantomData })
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
        self.swap(FREE, LOCKED, Ordering::Acquire)
    }

    #[cold]
    fn lock_slow(&self) {
        let (mut queued, mut marks) = (false, 0);
        loop {
            let seen = self.word.load(Ordering::Relaxed);
            let bars = if queued { LOCKED } else { LOCKED | INSIST };
            if seen & bars == 0 {
                let parked = if queued { PARKED } else { 0 };
                if self.swap(seen, (seen & !marks) | LOCKED | parked, Ordering::Acquire) {
                    return;
                }
                continue;
            }
            let insist = if queued { INSIST } else { 0 };
            let marked = seen | PARKED | insist;
            if marked == seen || self.swap(seen, marked, Ordering::Relaxed) {
                word::wait_for_latch(&self.word, marked);
                marks |= insist;
                queued = true;
            }
        }
    }

    #[inline]
    fn unlock(&self) {
        if !self.swap(LOCKED, FREE, Ordering::Release) {
            self.unlock_slow();
        }
    }

    #[cold]
    fn unlock_slow(&self) {
        if self.word.fetch_and(!(LOCKED | PARKED), Ordering::Release) & PARKED != 0 {
            word::wake_one(&self.word);
        }
    }

    #[inline]
    fn swap(&self, seen: u64, next: u64, success: Ordering) -> bool {
        self.word.compare_exchange(seen, next, success, Ordering::Relaxed).is_ok()
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
