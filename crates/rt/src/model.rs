//! A world for loom: its mutex and condition variable behind the same futex shape.
//!
//! All words share one list of sleepers; a sleeper compares its word under the list's mutex, so
//! the model loses a wake-up only if a latch does.

use std::collections::VecDeque;
use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Condvar, Mutex};

struct Sleeper {
    address: usize,
    woken: Arc<Mutex<bool>>,
    bell: Arc<Condvar>,
}

loom::lazy_static! {
    static ref SLEEPERS: Mutex<VecDeque<Sleeper>> = Mutex::new(VecDeque::new());
}

/// No model has power cuts.
pub(crate) fn dead() -> bool {
    false
}

/// Loom switches by itself.
pub(crate) fn maybe_switch() {}

/// Waits while `*word == seen`, until woken.
pub fn wait(word: &AtomicU64, seen: u64) {
    let woken = Arc::new(Mutex::new(false));
    let bell = Arc::new(Condvar::new());
    {
        let mut sleepers = SLEEPERS.lock().expect("not poisoned");
        if word.load(Ordering::Acquire) != seen {
            return;
        }
        let address = std::ptr::from_ref(word) as usize;
        sleepers.push_back(Sleeper { address, woken: woken.clone(), bell: bell.clone() });
    }
    let mut guard = woken.lock().expect("not poisoned");
    while !*guard {
        guard = bell.wait(guard).expect("not poisoned");
    }
}

/// Wakes the first that waits on `word`.
pub fn wake_one(word: &AtomicU64) {
    wake(word, false);
}

/// Wakes all that wait on `word`.
pub fn wake_all(word: &AtomicU64) {
    wake(word, true);
}

fn wake(word: &AtomicU64, all: bool) {
    let address = std::ptr::from_ref(word) as usize;
    let mut sleepers = SLEEPERS.lock().expect("not poisoned");
    while let Some(at) = sleepers.iter().position(|sleeper| sleeper.address == address) {
        let sleeper = sleepers.remove(at).expect("found");
        *sleeper.woken.lock().expect("not poisoned") = true;
        sleeper.bell.notify_one();
        if !all {
            return;
        }
    }
}
