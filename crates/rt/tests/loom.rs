//! Every latch under every interleaving and every order that the memory model allows.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p terrace-rt --release --test loom`.
#![cfg(loom)]

use std::panic;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use terrace_rt::{Event, Latch, LeafMutex, Mutex, Queue, RwLatch, Signal, model};

/// Switches forced upon a thread in one run; bugs need few, and each more costs a factor.
const PREEMPTIONS: usize = 2;

fn check(scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(scenario);
}

/// Runs `first` here and the others on threads of their own, and waits for all.
fn together(first: impl FnOnce(), others: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = others.into_iter().map(thread::spawn).collect();
    first();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

/// A value whose races loom sees.
struct Watched(UnsafeCell<u64>);

// SAFETY: loom complains about every access that the latch under test fails to order.
unsafe impl Sync for Watched {}
// SAFETY: as above.
unsafe impl Send for Watched {}

impl Watched {
    fn new() -> Watched {
        Watched(UnsafeCell::new(0))
    }

    fn add_one(&self) {
        // SAFETY: checked by loom.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }

    fn get(&self) -> u64 {
        // SAFETY: checked by loom.
        self.0.with(|value| unsafe { *value })
    }
}

#[test]
fn mutex_excludes() {
    check(|| {
        let mutex = Arc::new(Mutex::new(Watched::new()));
        let add = |mutex: &Arc<Mutex<Watched>>| {
            let mutex = Arc::clone(mutex);
            move || mutex.lock().add_one()
        };
        together(add(&mutex), vec![Box::new(add(&mutex)), Box::new(add(&mutex))]);
        assert_eq!(mutex.lock().get(), 3);
    });
}

#[test]
fn latch_excludes_writers() {
    check(|| {
        let shared = Arc::new((Latch::new(), Watched::new()));
        let write = |shared: &Arc<(Latch, Watched)>| {
            let shared = Arc::clone(shared);
            move || {
                shared.0.lock_exclusive();
                shared.1.add_one();
                shared.0.unlock_exclusive();
            }
        };
        together(write(&shared), vec![Box::new(write(&shared)), Box::new(write(&shared))]);
        assert_eq!(shared.1.get(), 3);
        assert!(!shared.0.is_held());
    });
}

#[test]
fn latch_lets_readers_in_and_writers_too() {
    check(|| {
        let latch = Arc::new(RwLatch::new(Watched::new()));
        let read = |latch: &Arc<RwLatch<Watched>>| {
            let latch = Arc::clone(latch);
            move || assert!(latch.read().get() <= 1)
        };
        let writer = Arc::clone(&latch);
        let write = move || writer.write().add_one();
        together(write, vec![Box::new(read(&latch)), Box::new(read(&latch))]);
        assert_eq!(latch.read().get(), 1);
    });
}

#[test]
fn latch_wakes_queued_readers_behind_two_writers() {
    check(|| {
        let latch = Arc::new(RwLatch::new(Watched::new()));
        let (one, two) = (Arc::clone(&latch), Arc::clone(&latch));
        let read = || assert!(latch.read().get() <= 2);
        let first = move || one.write().add_one();
        let second = move || {
            two.write().add_one();
            drop(two.read());
        };
        together(read, vec![Box::new(first), Box::new(second)]);
    });
}

#[test]
fn latch_is_not_lost_by_those_who_give_up() {
    check(|| {
        let shared = Arc::new((Latch::new(), AtomicU64::new(0)));
        let (one, two) = (Arc::clone(&shared), Arc::clone(&shared));
        let end = move || {
            one.0.lock_exclusive();
            one.1.store(1, Ordering::Relaxed);
            one.0.unlock_exclusive();
        };
        let give_up = move || {
            if two.0.lock_exclusive_while(|| two.1.load(Ordering::Relaxed) == 0) {
                two.0.unlock_exclusive();
            }
        };
        let read = || {
            shared.0.lock_shared();
            shared.0.unlock_shared();
        };
        together(read, vec![Box::new(end), Box::new(give_up)]);
        assert!(!shared.0.is_held());
    });
}

#[test]
fn latch_downgrades_and_upgrades() {
    check(|| {
        let shared = Arc::new((Latch::new(), Watched::new()));
        let (one, two) = (Arc::clone(&shared), Arc::clone(&shared));
        let upgrade = move || {
            one.0.lock_shared();
            if one.0.try_upgrade() {
                one.1.add_one();
                one.0.unlock_exclusive();
            } else {
                one.0.unlock_shared();
            }
        };
        let downgrade = move || {
            two.0.lock_exclusive();
            two.1.add_one();
            let before = two.1.get();
            two.0.downgrade();
            assert_eq!(two.1.get(), before);
            two.0.unlock_shared();
        };
        let read = || {
            shared.0.lock_shared();
            assert!(shared.1.get() <= 2);
            shared.0.unlock_shared();
        };
        together(read, vec![Box::new(upgrade), Box::new(downgrade)]);
    });
}

#[test]
fn latch_versions_catch_writers() {
    check(|| {
        let shared = Arc::new((Latch::new(), AtomicU64::new(0), AtomicU64::new(0)));
        let writer = Arc::clone(&shared);
        let write = move || {
            writer.0.lock_exclusive();
            writer.1.store(1, Ordering::Relaxed);
            writer.2.store(1, Ordering::Relaxed);
            writer.0.unlock_exclusive();
        };
        let read = || {
            let Some(version) = shared.0.optimistic() else { return };
            let one = shared.1.load(Ordering::Relaxed);
            let two = shared.2.load(Ordering::Relaxed);
            if shared.0.validate(version) {
                assert_eq!(one, two, "a validated read saw half a change");
            }
        };
        together(read, vec![Box::new(write)]);
    });
}

/// How the pool's frames are peeked: writers change the bytes in place until a holder of the latch
/// has said that they may be peeked, and as atomics from then on.
#[test]
fn plain_changes_and_optimistic_reads_never_meet() {
    check(|| {
        let shared = Arc::new((Latch::new(), AtomicU64::new(0), Watched::new()));
        let write = |shared: &Arc<(Latch, AtomicU64, Watched)>| {
            let shared = Arc::clone(shared);
            move || {
                shared.0.lock_exclusive();
                if shared.1.load(Ordering::Acquire) == 0 {
                    shared.2.add_one();
                }
                shared.0.unlock_exclusive();
            }
        };
        let allowing = Arc::clone(&shared);
        let allow = move || {
            allowing.0.lock_shared();
            allowing.1.store(1, Ordering::Release);
            allowing.0.unlock_shared();
        };
        let read = || {
            let Some(version) = shared.0.optimistic() else { return };
            if shared.1.load(Ordering::Acquire) == 1 {
                let _seen = shared.2.get();
                let _counts = shared.0.validate(version);
            }
        };
        together(read, vec![Box::new(write(&shared)), Box::new(allow)]);
    });
}

#[test]
fn event_is_seen_with_what_came_before() {
    check(|| {
        let shared = Arc::new((Event::new(), Watched::new()));
        let wait = |shared: &Arc<(Event, Watched)>| {
            let shared = Arc::clone(shared);
            move || {
                shared.0.wait();
                assert_eq!(shared.1.get(), 1);
            }
        };
        let set = || {
            shared.1.add_one();
            shared.0.set();
        };
        together(set, vec![Box::new(wait(&shared)), Box::new(wait(&shared))]);
    });
}

#[test]
fn signal_is_not_missed() {
    check(|| {
        let shared = Arc::new((Signal::new(), AtomicU64::new(0)));
        let wait = |shared: &Arc<(Signal, AtomicU64)>| {
            let shared = Arc::clone(shared);
            move || loop {
                let seen = shared.0.seen();
                if shared.1.load(Ordering::Relaxed) == 2 {
                    return;
                }
                shared.0.wait(seen);
            }
        };
        let notify = |shared: &Arc<(Signal, AtomicU64)>| {
            let shared = Arc::clone(shared);
            move || {
                shared.1.fetch_add(1, Ordering::Relaxed);
                shared.0.notify_all();
            }
        };
        together(wait(&shared), vec![Box::new(notify(&shared)), Box::new(notify(&shared))]);
    });
}

#[test]
fn queue_blocks_and_wakes_on_both_sides() {
    check(|| {
        let queue = Arc::new(Queue::new(1));
        let (one, two) = (Arc::clone(&queue), Arc::clone(&queue));
        let push = move || {
            one.push(1).expect("open");
            one.push(2).expect("open");
        };
        let pop = move || {
            assert!(two.pop().is_some());
        };
        let pop_here = || assert!(queue.pop().is_some());
        together(pop_here, vec![Box::new(push), Box::new(pop)]);
        assert!(queue.is_empty());
    });
}

#[test]
fn queue_closes_for_those_who_wait() {
    check(|| {
        let queue = Arc::new(Queue::<u64>::new(1));
        let (one, two) = (Arc::clone(&queue), Arc::clone(&queue));
        let pop = move || assert_eq!(one.pop(), None);
        let pop_too = move || assert_eq!(two.pop(), None);
        together(|| queue.close(), vec![Box::new(pop), Box::new(pop_too)]);
    });
}

/// The mutex with its protocol, and the ways to break it.
#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    NoWake,
    LocksAsIfAlone,
    RelaxedRelease,
}

fn planted_mutex(planted: Planted) {
    let shared = Arc::new((AtomicU64::new(0), Watched::new()));
    let add = |shared: &Arc<(AtomicU64, Watched)>| {
        let shared = Arc::clone(shared);
        move || {
            let word = &shared.0;
            let mut locked = 1;
            while word.compare_exchange(0, locked, Ordering::Acquire, Ordering::Relaxed).is_err() {
                if planted != Planted::LocksAsIfAlone {
                    locked = 2;
                }
                if word.compare_exchange(1, 2, Ordering::Relaxed, Ordering::Relaxed) != Err(0) {
                    model::wait(word, 2);
                }
            }
            shared.1.add_one();
            let release = match planted {
                Planted::RelaxedRelease => Ordering::Relaxed,
                _ => Ordering::Release,
            };
            if word.swap(0, release) == 2 && planted != Planted::NoWake {
                model::wake_one(word);
            }
        }
    };
    together(add(&shared), vec![Box::new(add(&shared)), Box::new(add(&shared))]);
}

#[test]
fn planted_bugs_are_caught() {
    check(|| planted_mutex(Planted::Nothing));
    for planted in [Planted::NoWake, Planted::LocksAsIfAlone, Planted::RelaxedRelease] {
        let caught = panic::catch_unwind(|| check(move || planted_mutex(planted)));
        assert!(caught.is_err(), "the model missed a bug");
    }
}

#[test]
fn leaf_mutex_excludes() {
    check(|| {
        let leaf = Arc::new(LeafMutex::new(Watched::new()));
        let other = Arc::clone(&leaf);
        together(|| leaf.lock().add_one(), vec![Box::new(move || other.lock().add_one())]);
        assert_eq!(leaf.lock().get(), 2);
    });
}
