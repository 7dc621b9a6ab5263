//! What the real world promises: no lost wake-ups, whether tasks or threads wait and wake.
#![cfg(not(loom))]

use std::os::fd::BorrowedFd;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use terrace_rt::{
    Event, Latch, Mutex, Nanos, Prng, Queue, Reactor, Real, RwLatch, Signal, Task, Waited, World,
    now, reactor, sleep, spawn, wait_until, yield_now,
};

fn millis(count: u64) -> Nanos {
    Nanos::from_millis(count)
}

#[test]
fn run_borrows_and_returns() {
    let real = Real::new(2);
    let numbers = [1, 2, 3];
    let sum: i32 = real.run(|| numbers.iter().sum());
    assert_eq!(sum, 6);
    assert!(!World::current().is_virtual());
}

#[test]
fn tasks_nest_and_join() {
    fn count(depth: u64) -> u64 {
        if depth == 0 {
            return 1;
        }
        let sum = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let sum = Arc::clone(&sum);
                spawn("child", move || {
                    sum.fetch_add(count(depth - 1), Ordering::Relaxed);
                })
            })
            .collect();
        tasks.into_iter().for_each(Task::join);
        sum.load(Ordering::Relaxed)
    }
    assert_eq!(Real::new(3).run(|| count(5)), 243);
}

#[test]
fn timers_fire_in_order_and_not_early() {
    let real = Real::new(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    real.run(|| {
        let tasks: Vec<_> = [30, 10, 20]
            .map(|span| {
                let order = Arc::clone(&order);
                spawn("sleeper", move || {
                    let start = now();
                    sleep(millis(span));
                    assert!(now() - start >= millis(span));
                    order.lock().push(span);
                })
            })
            .into_iter()
            .collect();
        tasks.into_iter().for_each(Task::join);
    });
    assert_eq!(*order.lock(), [10, 20, 30]);
}

#[test]
fn deadlines_end_waits_of_tasks_and_threads() {
    let real = Real::new(1);
    let check = || {
        let word = AtomicU64::new(0);
        assert_eq!(wait_until(&word, 1, millis(0)), Waited::Woken);
        let deadline = now() + millis(5);
        assert_eq!(wait_until(&word, 0, deadline), Waited::TimedOut);
        assert!(now() >= deadline);
        let signal = Signal::new();
        assert_eq!(signal.wait_until(signal.seen(), now() + millis(2)), Waited::TimedOut);
    };
    real.run(check);
    check();
}

/// Takes the latches at random, and counts what it added under each.
fn contend(seed: u64, shared: &Shared, rounds: u64) {
    let mut prng = Prng::from_seed(seed);
    let mut adds = [0; 3];
    for _ in 0..rounds {
        match prng.below(6) {
            0 => {
                *shared.mutex.lock() += 1;
                adds[0] += 1;
            }
            1 => {
                *shared.latched.write() += 1;
                adds[1] += 1;
            }
            2 => assert!(*shared.latched.read() < u64::MAX),
            3 => {
                shared.latch.lock_exclusive();
                let before = shared.plain.load(Ordering::Relaxed);
                if prng.chance(8) {
                    yield_now();
                }
                shared.plain.store(before + 1, Ordering::Relaxed);
                shared.latch.downgrade();
                assert_eq!(shared.plain.load(Ordering::Relaxed), before + 1);
                shared.latch.unlock_shared();
                adds[2] += 1;
            }
            4 => {
                shared.latch.lock_shared();
                if shared.latch.try_upgrade() {
                    shared.plain.fetch_add(1, Ordering::Relaxed);
                    shared.latch.unlock_exclusive();
                    adds[2] += 1;
                } else {
                    shared.latch.unlock_shared();
                }
            }
            _ => {
                shared.queue.push(1).expect("open");
                assert_eq!(shared.queue.pop(), Some(1));
            }
        }
    }
    for (total, added) in shared.adds.iter().zip(adds) {
        total.fetch_add(added, Ordering::Relaxed);
    }
}

struct Shared {
    mutex: Mutex<u64>,
    latched: RwLatch<u64>,
    latch: Latch,
    plain: AtomicU64,
    adds: [AtomicU64; 3],
    queue: Queue<u64>,
}

#[test]
fn latches_hold_under_tasks_and_threads() {
    let shared = Arc::new(Shared {
        mutex: Mutex::new(0),
        latched: RwLatch::new(0),
        latch: Latch::new(),
        plain: AtomicU64::new(0),
        adds: Default::default(),
        queue: Queue::new(3),
    });
    let real = Real::new(2);
    let tasks: Vec<_> = (0..16)
        .map(|seed| {
            let shared = Arc::clone(&shared);
            real.world().spawn("contender", move || contend(seed, &shared, 10_000))
        })
        .collect();
    let threads: Vec<_> = (100..102)
        .map(|seed| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || contend(seed, &shared, 10_000))
        })
        .collect();
    tasks.into_iter().for_each(Task::join);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let adds = shared.adds.each_ref().map(|added| added.load(Ordering::Relaxed));
    let sums = [*shared.mutex.lock(), *shared.latched.read(), shared.plain.load(Ordering::Relaxed)];
    assert_eq!(sums, adds);
    assert!(!shared.latch.is_held());
}

#[test]
fn wake_ups_cross_executors_and_threads() {
    const ROUNDS: u64 = 20_000;
    let real = Real::new(2);
    let (there, back) = (Arc::new(Queue::new(1)), Arc::new(Queue::new(1)));
    let (inbox, outbox) = (Arc::clone(&there), Arc::clone(&back));
    let echo = real.world().spawn_on(1, "echo", move || {
        while let Some(item) = inbox.pop() {
            outbox.push(item).expect("open");
        }
    });
    let play = |rounds| {
        for item in 0..rounds {
            there.push(item).expect("open");
            assert_eq!(back.pop(), Some(item));
        }
    };
    real.run(|| play(ROUNDS));
    play(ROUNDS / 10);
    there.close();
    echo.join();
}

#[test]
fn deadlines_race_with_wake_ups() {
    let real = Real::new(2);
    real.run(|| {
        let word = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(Event::new());
        let (other, stopped) = (Arc::clone(&word), Arc::clone(&stop));
        let waker = World::current().spawn_on(1, "waker", move || {
            while !stopped.is_set() {
                terrace_rt::wake_all(&other);
                yield_now();
            }
        });
        let waiters: Vec<_> = (0..4)
            .map(|seed| {
                let word = Arc::clone(&word);
                World::current().spawn_on(0, "waiter", move || {
                    let mut prng = Prng::from_seed(seed);
                    for _ in 0..5_000 {
                        wait_until(&word, 0, now() + Nanos(prng.below(3_000)));
                    }
                })
            })
            .collect();
        waiters.into_iter().for_each(Task::join);
        stop.set();
        waker.join();
    });
}

#[test]
fn a_panic_comes_out_of_join_and_run() {
    let real = Real::new(1);
    let fails = || panic::resume_unwind(Box::new("planted"));
    let joined = panic::catch_unwind(AssertUnwindSafe(|| {
        real.world().spawn("fails", fails).join();
    }));
    assert_eq!(joined.expect_err("panics").downcast_ref(), Some(&"planted"));
    let ran = panic::catch_unwind(AssertUnwindSafe(|| real.run(fails)));
    assert_eq!(ran.expect_err("panics").downcast_ref(), Some(&"planted"));
    let lost = panic::catch_unwind(AssertUnwindSafe(|| {
        real.run(|| {
            drop(spawn("fails", fails));
            sleep(millis(5));
        });
    }));
    assert!(lost.is_err());
    assert_eq!(real.run(|| 1), 1, "the world goes on");
}

#[test]
fn a_dropped_world_unwinds_its_tasks() {
    let alive = Arc::new(AtomicUsize::new(0));
    let real = Real::new(2);
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let alive = Arc::clone(&alive);
            real.world().spawn("waiter", move || {
                alive.fetch_add(1, Ordering::Relaxed);
                Event::new().wait();
            })
        })
        .collect();
    let late = real.world();
    real.run(|| {
        while alive.load(Ordering::Relaxed) < 10 {
            yield_now();
        }
    });
    drop(real);
    assert_eq!(Arc::strong_count(&alive), 1);
    tasks.into_iter().for_each(Task::join);
    late.spawn("late", || unreachable!()).join();
}

#[test]
fn tasks_that_never_start_are_joined_too() {
    for _ in 0..200 {
        let real = Real::new(1);
        let task = real.world().spawn("unlucky", || Event::new().wait());
        drop(real);
        task.join();
    }
}

#[test]
fn a_thread_without_a_world_has_one() {
    let done = Arc::new(Event::new());
    let other = Arc::clone(&done);
    spawn("first", move || other.set()).join();
    assert!(done.is_set());
}

/// The executor used to wait for another thread inside its ring. Under valgrind, which lets no
/// other thread run while one is in there, both waited for ever.
#[test]
fn an_executor_sleeps_in_its_reactor_only_while_that_is_busy() {
    struct Idle;
    impl Reactor for Idle {
        fn poll(&mut self) {}

        fn is_busy(&self) -> bool {
            false
        }

        fn wait(&mut self, _bell: BorrowedFd<'_>, _span: Option<Nanos>) {
            // The test would go on if this returned, so that the failure can be told.
            WAITS.fetch_add(1, Ordering::Relaxed);
        }
    }
    static WAITS: AtomicUsize = AtomicUsize::new(0);
    let (real, event) = (Real::new(1), Arc::new(Event::new()));
    let other = Arc::clone(&event);
    let setter = thread::spawn(move || {
        thread::sleep(std::time::Duration::from_millis(20));
        other.set();
    });
    real.run(|| {
        assert_eq!(reactor(|| Some(Idle), |_| ()), Some(()));
        event.wait();
        sleep(millis(5));
    });
    setter.join().unwrap();
    assert_eq!(WAITS.load(Ordering::Relaxed), 0);
}
