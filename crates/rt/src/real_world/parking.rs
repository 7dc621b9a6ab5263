//! Which task waits on which word in the real world: sharded by address, so that a wake-up finds
//! its sleeper without a lock that all share.
//!
//! - P1: a waiter compares the word under its shard's lock, and a waker changes the word before it
//!   takes that lock: so no wake-up is lost.
//! - P2: a waiter leaves the table exactly once: taken out by a waker, which then tells it, or by
//!   itself at its deadline. So each message belongs to one wait.
//! - P3: the waiters of one word are woken first come, first served.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::PerProcess;
use super::mailbox::Mailbox;
use crate::task::TaskIndex;
use crate::time::Nanos;
use crate::world::Waited;

const SHARD_BITS: u32 = 6;

type Table = [Mutex<VecDeque<Waiter>>; 1 << SHARD_BITS];

static TABLE: PerProcess<Table> =
    PerProcess::new(|| [const { Mutex::new(VecDeque::new()) }; 1 << SHARD_BITS]);

thread_local! {
    static PARKER: Arc<Parker> = Arc::default();
}

struct Waiter {
    address: usize,
    sleeper: Sleeper,
}

/// The task or thread to wake.
pub(super) enum Sleeper {
    /// A thread that is no executor.
    Thread(Arc<Parker>),
    /// A task of the executor behind the mailbox.
    Task(Arc<Mailbox>, TaskIndex),
}

impl Sleeper {
    fn wake_up(self) {
        match self {
            Sleeper::Thread(parker) => parker.unpark(),
            Sleeper::Task(mailbox, task) => mailbox.wake_task(task),
        }
    }

    fn is_same(&self, other: &Sleeper) -> bool {
        match (self, other) {
            (Sleeper::Thread(one), Sleeper::Thread(two)) => Arc::ptr_eq(one, two),
            (Sleeper::Task(one, task), Sleeper::Task(two, other)) => {
                task == other && Arc::ptr_eq(one, two)
            }
            _ => false,
        }
    }
}

/// The bed of one thread.
#[derive(Default)]
pub(super) struct Parker {
    woken: Mutex<bool>,
    bell: Condvar,
}

impl Parker {
    fn unpark(&self) {
        *lock(&self.woken) = true;
        self.bell.notify_one();
    }

    /// Sleeps until woken or until `span` is over; true if woken, which is then forgotten.
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
        std::mem::take(&mut *woken)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shard(address: usize) -> MutexGuard<'static, VecDeque<Waiter>> {
    let mixed = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    lock(&TABLE.get()[(mixed >> (u64::BITS - SHARD_BITS)) as usize])
}

/// Puts `sleeper` down as a waiter on `word`; false if the word is not `seen`.
pub(super) fn enter(word: &AtomicU64, seen: u64, sleeper: Sleeper) -> bool {
    let address = std::ptr::from_ref(word) as usize;
    let mut waiters = shard(address);
    let waits = word.load(Ordering::Acquire) == seen;
    if waits {
        waiters.push_back(Waiter { address, sleeper });
    }
    waits
}

/// Takes `sleeper` out; false if a waker has done so, whose message is on its way.
pub(super) fn leave(address: usize, sleeper: &Sleeper) -> bool {
    let mut waiters = shard(address);
    let is_it = |waiter: &Waiter| waiter.address == address && waiter.sleeper.is_same(sleeper);
    match waiters.iter().position(is_it) {
        Some(at) => waiters.remove(at).is_some(),
        None => false,
    }
}

/// Blocks the thread while `*word == seen`, until woken or for `span`.
pub(super) fn wait_thread(word: &AtomicU64, seen: u64, span: Option<Nanos>) -> Waited {
    // A thread that is ending may have lost its parker already.
    let parker = PARKER.try_with(Arc::clone).unwrap_or_default();
    if !enter(word, seen, Sleeper::Thread(Arc::clone(&parker))) {
        return Waited::Woken;
    }
    if parker.sleep(span.map(|span| Duration::from_nanos(span.0))) {
        return Waited::Woken;
    }
    let address = std::ptr::from_ref(word) as usize;
    if leave(address, &Sleeper::Thread(Arc::clone(&parker))) {
        return Waited::TimedOut;
    }
    // The message is on its way: it belongs to this wait, so take it.
    parker.sleep(None);
    Waited::Woken
}

/// Wakes the first waiter on `word`, or all.
pub(super) fn wake(word: &AtomicU64, all: bool) {
    let address = std::ptr::from_ref(word) as usize;
    let mut waiters = shard(address);
    let mut at = 0;
    while at < waiters.len() {
        if waiters[at].address != address {
            at += 1;
            continue;
        }
        if let Some(waiter) = waiters.remove(at) {
            waiter.sleeper.wake_up();
        }
        if !all {
            return;
        }
    }
}
