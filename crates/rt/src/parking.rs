//! Who waits on which word in the real world: sharded by address, so that a wake-up finds its
//! sleeper without a lock that all share.
//!
//! - P1: a waiter compares the word under its shard's lock, and a waker changes the word before it
//!   takes that lock: so no wake-up is lost.
//! - P2: a waiter leaves the table exactly once: taken out by a waker, or by itself at its deadline.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::time::Nanos;
use crate::world::Waited;

const SHARDS: usize = 64;

/// One sleeping thread.
#[derive(Default)]
pub(crate) struct Parker {
    woken: Mutex<bool>,
    bell: Condvar,
}

impl Parker {
    fn wake(&self) {
        *lock(&self.woken) = true;
        self.bell.notify_one();
    }

    /// Sleeps until woken or until `span` is over; true if woken.
    fn sleep(&self, span: Option<Duration>) -> bool {
        let mut woken = lock(&self.woken);
        while !*woken {
            match span {
                None => woken = self.bell.wait(woken).unwrap_or_else(PoisonError::into_inner),
                Some(span) => {
                    let waited = self.bell.wait_timeout(woken, span);
                    let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    woken = guard;
                    if timeout.timed_out() {
                        break;
                    }
                }
            }
        }
        *woken
    }
}

struct Waiter {
    address: usize,
    parker: Arc<Parker>,
}

static TABLE: [Mutex<VecDeque<Waiter>>; SHARDS] = [const { Mutex::new(VecDeque::new()) }; SHARDS];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shard(address: usize) -> MutexGuard<'static, VecDeque<Waiter>> {
    let mixed = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    lock(&TABLE[(mixed >> 58) as usize])
}

/// Blocks the thread while `*word == seen`, until woken or for `span`.
pub(crate) fn wait_thread(word: &AtomicU64, seen: u64, span: Option<Nanos>) -> Waited {
    let address = std::ptr::from_ref(word) as usize;
    let parker = Arc::new(Parker::default());
    {
        let mut waiters = shard(address);
        if word.load(Ordering::Acquire) != seen {
            return Waited::Woken;
        }
        waiters.push_back(Waiter { address, parker: Arc::clone(&parker) });
    }
    if parker.sleep(span.map(|span| Duration::from_nanos(span.0))) {
        return Waited::Woken;
    }
    shard(address).retain(|waiter| !Arc::ptr_eq(&waiter.parker, &parker));
    Waited::TimedOut
}

/// Wakes the first waiter on `word`, or all.
pub(crate) fn wake(word: &AtomicU64, all: bool) {
    let address = std::ptr::from_ref(word) as usize;
    let mut waiters = shard(address);
    let mut at = 0;
    while at < waiters.len() {
        if waiters[at].address != address {
            at += 1;
            continue;
        }
        if let Some(waiter) = waiters.remove(at) {
            waiter.parker.wake();
        }
        if !all {
            return;
        }
    }
}
