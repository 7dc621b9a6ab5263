//! A [`Latch`] around a value, with guards.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};

use crate::latch::Latch;

/// Many readers or one writer of a value; blocks the task.
#[derive(Default)]
pub struct RwLatch<T> {
    latch: Latch,
    value: UnsafeCell<T>,
}

// SAFETY: readers share the value (`T: Sync`), a writer has it alone (`T: Send`).
unsafe impl<T: Send + Sync> Sync for RwLatch<T> {}

/// Shared access to what a [`RwLatch`] guards, until dropped.
pub struct ReadGuard<'a, T> {
    owner: &'a RwLatch<T>,
    value: PhantomData<&'a T>,
}

/// Exclusive access to what a [`RwLatch`] guards, until dropped.
pub struct WriteGuard<'a, T> {
    owner: &'a RwLatch<T>,
    value: PhantomData<&'a mut T>,
}

impl<T> RwLatch<T> {
    /// A free latch around `value`.
    pub fn new(value: T) -> RwLatch<T> {
        RwLatch { latch: Latch::new(), value: UnsafeCell::new(value) }
    }

    /// Takes the shared mode; waits while a writer has or wants the latch.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T> {
        self.latch.lock_shared();
        ReadGuard { owner: self, value: PhantomData }
    }

    /// Takes the exclusive mode; waits until no task holds the latch.
    #[inline]
    pub fn write(&self) -> WriteGuard<'_, T> {
        self.latch.lock_exclusive();
        WriteGuard { owner: self, value: PhantomData }
    }

    /// The value, without locking: the exclusive reference is the proof.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value, of which this is the only owner.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<'a, T> WriteGuard<'a, T> {
    /// Keeps reading what was written; no writer gets in between.
    pub fn downgrade(self) -> ReadGuard<'a, T> {
        let owner = self.owner;
        owner.latch.downgrade();
        mem::forget(self);
        ReadGuard { owner, value: PhantomData }
    }
}

impl<T> Drop for ReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.owner.latch.unlock_shared();
    }
}

impl<T> Drop for WriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.owner.latch.unlock_exclusive();
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard proves the shared mode, under which no task writes.
        unsafe { &*self.owner.value.get() }
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard proves the exclusive mode.
        unsafe { &*self.owner.value.get() }
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard proves the exclusive mode.
        unsafe { &mut *self.owner.value.get() }
    }
}

impl<T> fmt::Debug for RwLatch<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RwLatch").field("latch", &self.latch).finish_non_exhaustive()
    }
}
