//! What a virtual world promises: the same run for the same seed, and a clean end at any event.
#![cfg(not(loom))]

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use terrace_rt::{
    Event, Latch, LeafMutex, Mutex, Nanos, Prng, Queue, RwLatch, Signal, Stopped, Timer, Virtual,
    VirtualConfig, Waited, World, charge, dead, maybe_switch, now, sleep, spawn, wait, wait_until,
    wake_all, wake_one, yield_now,
};

fn world(seed: u64, switch_one_in: u32) -> Virtual {
    Virtual::new(VirtualConfig { seed, switch_one_in, ..VirtualConfig::default() })
}

fn millis(count: u64) -> Nanos {
    Nanos::from_millis(count)
}

/// Some tasks that sleep, queue, latch and lock; returns what they did, in order.
fn busy_scenario(seed: u64) -> Vec<(u64, u64)> {
    let trace = Arc::new(LeafMutex::new(Vec::new()));
    let world = world(seed, 3);
    let shared = Arc::new((Mutex::new(0u64), RwLatch::new(0u64), Queue::new(2), Latch::new()));
    let result = world.run(|| {
        let tasks: Vec<_> = (0..8u64)
            .map(|id| {
                let (trace, shared) = (Arc::clone(&trace), Arc::clone(&shared));
                spawn("worker", move || {
                    let mut prng = Prng::from_seed(id);
                    for _ in 0..20 {
                        *shared.0.lock() += id;
                        if prng.chance(3) {
                            *shared.1.write() += 1;
                        } else {
                            let _count = shared.1.read();
                            charge(Nanos(prng.below(100)));
                        }
                        shared.2.push(id).expect("open");
                        sleep(Nanos(prng.below(50)));
                        let other = shared.2.pop().expect("open");
                        shared.3.lock_exclusive();
                        trace.lock().push((now().0, id * 100 + other));
                        shared.3.unlock_exclusive();
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(terrace_rt::Task::join);
        assert_eq!(*shared.0.lock(), 28 * 20);
    });
    result.expect("no power cut");
    let trace = trace.lock().clone();
    assert_eq!(trace.len(), 160);
    trace
}

#[test]
fn a_seed_names_one_run() {
    let one = busy_scenario(1);
    assert_eq!(one, busy_scenario(1));
    assert_ne!(one, busy_scenario(2));
    let other_thread = std::thread::spawn(|| busy_scenario(1));
    assert_eq!(one, busy_scenario(1));
    assert_eq!(one, other_thread.join().expect("no panic"));
}

#[test]
fn time_passes_only_by_sleeping() {
    let world = world(0, 0);
    let order = LeafMutex::new(Vec::new());
    let order = Arc::new(order);
    let ran = world.run(|| {
        for span in [30, 10, 20] {
            let order = Arc::clone(&order);
            spawn("sleeper", move || {
                sleep(millis(span));
                order.lock().push((span, now()));
            });
        }
        sleep(millis(31));
        now()
    });
    assert_eq!(ran, Ok(millis(31)));
    assert_eq!(*order.lock(), [(10, millis(10)), (20, millis(20)), (30, millis(30))]);
}

#[test]
fn charges_queue_for_the_cores() {
    let world = Virtual::new(VirtualConfig { cores: 2, ..VirtualConfig::default() });
    let ends = Arc::new(LeafMutex::new(Vec::new()));
    let ran = world.run(|| {
        let tasks: Vec<_> = (0..5)
            .map(|_| {
                let ends = Arc::clone(&ends);
                spawn("worker", move || {
                    charge(millis(10));
                    ends.lock().push(now().0 / 1_000_000);
                })
            })
            .collect();
        tasks.into_iter().for_each(terrace_rt::Task::join);
    });
    assert_eq!(ran, Ok(()));
    assert_eq!(*ends.lock(), [10, 10, 20, 20, 30]);
}

#[test]
fn waiters_are_woken_in_order_and_in_time() {
    let world = world(0, 0);
    let order = Arc::new(LeafMutex::new(Vec::new()));
    let ran = world.run(|| {
        let word = Arc::new(AtomicU64::new(0));
        for id in 0..5 {
            let (word, order) = (Arc::clone(&word), Arc::clone(&order));
            spawn("waiter", move || {
                let deadline = if id == 2 { millis(1) } else { millis(100) };
                let waited = wait_until(&word, 0, deadline);
                order.lock().push((id, waited));
            });
        }
        sleep(millis(2));
        wake_one(&word);
        wake_one(&word);
        yield_now();
        order.lock().push((9, Waited::Woken));
        wake_all(&word);
        wait(&word, 1);
        sleep(millis(200));
    });
    assert_eq!(ran, Ok(()));
    let ids: Vec<_> = order.lock().clone();
    let (woken, late) = (Waited::Woken, Waited::TimedOut);
    assert_eq!(ids, [(2, late), (0, woken), (1, woken), (9, woken), (3, woken), (4, woken)]);
    assert_eq!(world.world().now(), millis(202));
}

#[test]
fn a_deadline_that_has_passed_is_due_at_once() {
    let world = world(0, 0);
    let ran = world.run(|| {
        sleep(millis(5));
        let word = AtomicU64::new(0);
        for late in [Nanos::ZERO, millis(1), millis(5)] {
            assert_eq!(wait_until(&word, 0, late), Waited::TimedOut);
            assert_eq!(now(), millis(5));
        }
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn many_deadlines_that_do_not_come_are_swept() {
    let world = world(0, 0);
    let ran = world.run(|| {
        let word = Arc::new(AtomicU64::new(0));
        let other = Arc::clone(&word);
        let stop = Arc::new(Event::new());
        let stopped = Arc::clone(&stop);
        spawn("waker", move || {
            while !stopped.is_set() {
                wake_all(&other);
                yield_now();
            }
        });
        for _ in 0..100_000 {
            assert_eq!(wait_until(&word, 0, Nanos::MAX), Waited::Woken);
        }
        stop.set();
        assert_eq!(wait_until(&word, 0, millis(1)), Waited::TimedOut);
    });
    assert_eq!(ran, Ok(()));
}

#[test]
fn switching_at_latches_finds_a_race() {
    let finds = |switch_one_in| {
        (0..50).any(|seed| {
            let world = world(seed, switch_one_in);
            let sum = world.run(|| {
                let cell = Arc::new((Mutex::new(0), Latch::new()));
                let tasks: Vec<_> = (0..4)
                    .map(|_| {
                        let cell = Arc::clone(&cell);
                        spawn("adder", move || {
                            for _ in 0..10 {
                                let read = *cell.0.lock();
                                *cell.0.lock() = read + 1;
                            }
                        })
                    })
                    .collect();
                tasks.into_iter().for_each(terrace_rt::Task::join);
                *cell.0.lock()
            });
            sum != Ok(40)
        })
    };
    assert!(!finds(0), "nobody else runs between two latches");
    assert!(finds(4), "the planted race shows");
}

/// Greedy tasks take a latch again as soon as they have let it go; a modest one still gets it.
fn gets_its_turn<L: Send + Sync + 'static>(
    latch: L,
    greedy: impl Fn(&L) + Copy + Send + 'static,
    modest: impl Fn(&L),
) {
    let latch = Arc::new(latch);
    let ran = world(0, 0).run(|| {
        let stop = Arc::new(Event::new());
        for _ in 0..3 {
            let (latch, stop) = (Arc::clone(&latch), Arc::clone(&stop));
            spawn("greedy", move || {
                while !stop.is_set() && now() < millis(100) {
                    greedy(&latch);
                }
            });
        }
        sleep(Nanos(10));
        for _ in 0..10 {
            modest(&latch);
        }
        stop.set();
        now()
    });
    assert!(ran.as_ref().is_ok_and(|&end| end < millis(1)), "starved until {ran:?}");
}

#[test]
fn nobody_starves() {
    let hold = || sleep(Nanos(100));
    let read = move |latch: &RwLatch<()>| {
        let _held = latch.read();
        hold();
    };
    let write = move |latch: &RwLatch<()>| {
        let _held = latch.write();
        hold();
    };
    let lock = move |mutex: &Mutex<()>| {
        let _held = mutex.lock();
        hold();
    };
    gets_its_turn(RwLatch::new(()), read, write);
    gets_its_turn(RwLatch::new(()), write, read);
    gets_its_turn(RwLatch::new(()), write, write);
    gets_its_turn(Mutex::new(()), lock, lock);
}

/// Counts what is alive, and complains if it is dropped on a stack that goes on running.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Alive {
        count.fetch_add(1, Ordering::Relaxed);
        Alive(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        // A destructor that would wait must come back.
        if dead() {
            sleep(millis(1));
            wait(&AtomicU64::new(0), 0);
            yield_now();
            maybe_switch();
            wake_all(&AtomicU64::new(0));
        }
    }
}

struct Bell(AtomicU64);

impl Timer for Bell {
    fn fire(self: Arc<Self>, token: u64) {
        self.0.fetch_add(token, Ordering::Relaxed);
        wake_all(&self.0);
    }
}

fn small_scenario(alive: &Arc<AtomicUsize>) {
    let _here = Alive::new(alive);
    let mutex = Arc::new(Mutex::new(0u64));
    let queue = Arc::new(Queue::new(1));
    let signal = Arc::new(Signal::new());
    let tasks: Vec<_> = (0..3)
        .map(|id| {
            let (mutex, queue, signal) = (mutex.clone(), queue.clone(), signal.clone());
            let alive = Alive::new(alive);
            spawn("worker", move || {
                let _alive = alive;
                let mut held = mutex.lock();
                sleep(Nanos(id));
                *held += 1;
                drop(held);
                queue.push(id).expect("open");
                signal.notify_all();
            })
        })
        .collect();
    let bell = Arc::new(Bell(AtomicU64::new(0)));
    World::current().call_at(Nanos(5), Arc::clone(&bell) as Arc<dyn Timer>, 7);
    let seen = signal.seen();
    for _ in 0..3 {
        queue.pop().expect("open");
    }
    signal.wait(seen);
    tasks.into_iter().for_each(terrace_rt::Task::join);
    while bell.0.load(Ordering::Relaxed) != 7 {
        wait(&bell.0, 0);
    }
    assert_eq!(*mutex.lock(), 3);
}

#[test]
fn power_can_be_cut_at_every_event() {
    let events = {
        let world = world(3, 2);
        let alive = Arc::default();
        world.run(|| small_scenario(&alive)).expect("no power cut");
        world.world().events()
    };
    assert!(events > 20, "{events}");
    let mut cuts = 0;
    for event in 0..=events + 1 {
        let world = world(3, 2);
        let alive = Arc::default();
        world.cut_at_event(event);
        match world.run(|| small_scenario(&alive)) {
            Err(Stopped::PowerCut { event: at, .. }) => {
                assert!(at >= event);
                cuts += 1;
                assert!(dead() && world.world().is_dead());
            }
            other => assert_eq!(other, Ok(())),
        }
        assert_eq!(alive.load(Ordering::Relaxed), 0, "event {event}: everything was dropped");
    }
    assert!(cuts > 20, "{cuts}");
}

#[test]
fn power_can_be_cut_at_an_instant() {
    let world = world(0, 0);
    world.cut_at(millis(15));
    let ticks = AtomicUsize::new(0);
    let stopped = world.run(|| {
        loop {
            sleep(millis(10));
            ticks.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(matches!(stopped, Err(Stopped::PowerCut { at, .. }) if at == millis(15)));
    assert_eq!(ticks.into_inner(), 1);
}

#[test]
fn a_task_that_catches_its_end_is_ended_again() {
    let world = world(0, 0);
    world.cut_at(millis(1));
    let count = AtomicUsize::new(0);
    let stopped = world.run(|| {
        for _ in 0..3 {
            let slept = panic::catch_unwind(|| sleep(Nanos::from_secs(1)));
            assert!(slept.is_err());
            count.fetch_add(1, Ordering::Relaxed);
        }
        assert!(dead());
    });
    assert!(matches!(stopped, Err(Stopped::PowerCut { .. })));
    assert_eq!(count.into_inner(), 3);
}

#[test]
fn a_deadlock_is_named() {
    let world = world(0, 0);
    let stopped = world.run(|| {
        let one = Arc::new((Mutex::new(()), Mutex::new(())));
        let two = Arc::clone(&one);
        let task = spawn("other", move || {
            let _second = two.1.lock();
            sleep(Nanos(1));
            let _first = two.0.lock();
        });
        let _first = one.0.lock();
        sleep(Nanos(1));
        let _second = one.1.lock();
        task.join();
    });
    assert_eq!(stopped, Err(Stopped::Deadlock { tasks: vec!["main", "other"] }));
}

#[test]
fn a_panic_comes_out_of_run() {
    let alive = Arc::new(AtomicUsize::new(0));
    let world = world(0, 0);
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        let alive = Arc::clone(&alive);
        world.run(move || {
            let mine = Alive::new(&alive);
            let other = Alive::new(&alive);
            let task = spawn("other", move || {
                let _other = other;
                sleep(millis(1));
                panic::resume_unwind(Box::new("planted"));
            });
            task.join();
            drop(mine);
        })
    }));
    let payload = result.expect_err("the panic comes out");
    assert_eq!(payload.downcast_ref(), Some(&"planted"));
    assert_eq!(alive.load(Ordering::Relaxed), 0);
    assert!(world.world().is_dead());
}

#[test]
fn background_tasks_stand_still_between_runs() {
    let ticks = Arc::new(AtomicUsize::new(0));
    let world = world(0, 0);
    let counter = Arc::clone(&ticks);
    world.world().spawn("ticker", move || {
        loop {
            sleep(millis(1));
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    for round in 1..=3 {
        world.run(|| sleep(Nanos(10_400_000))).expect("no power cut");
        assert_eq!(ticks.load(Ordering::Relaxed), round * 104 / 10);
    }
    drop(world);
    assert_eq!(Arc::strong_count(&ticks), 1, "the task was unwound");
}

/// A destructor that asked `dead()` went on to wait while its task panicked, and so aborted.
#[test]
fn destructors_of_a_panicking_task_are_told_to_do_nothing() {
    struct Careful(Arc<Mutex<()>>, Arc<AtomicUsize>);
    impl Drop for Careful {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
            if !dead() {
                drop(self.0.lock());
            }
        }
    }
    let world = world(1, 0);
    let (mutex, drops) = (Arc::new(Mutex::new(())), Arc::new(AtomicUsize::new(0)));
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        world.run(|| {
            let holder = Arc::clone(&mutex);
            drop(spawn("holder", move || {
                let _held = holder.lock();
                sleep(millis(10));
            }));
            sleep(millis(1));
            let _careful = Careful(Arc::clone(&mutex), Arc::clone(&drops));
            panic!("broken");
        })
    }));
    let payload = result.expect_err("the panic comes out");
    assert_eq!(payload.downcast_ref(), Some(&"broken"));
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn a_panic_outside_drops_the_world_cleanly() {
    let alive = Arc::new(AtomicUsize::new(0));
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        let world = world(0, 0);
        for _ in 0..3 {
            let alive = Alive::new(&alive);
            world.world().spawn("sleeper", move || {
                let _alive = alive;
                sleep(millis(10));
            });
        }
        world.run(|| sleep(millis(1))).expect("no power cut");
        panic::resume_unwind(Box::new("planted"));
    }));
    assert!(result.is_err());
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn what_outlives_a_dead_world_finds_it_dead() {
    let crashed = world(0, 0);
    crashed.cut_at(millis(1));
    assert!(crashed.run(|| sleep(millis(2))).is_err());
    let next = world(0, 0);
    assert_eq!(next.run(dead), Ok(false));
    drop(next);
    assert!(dead(), "the older world is found again");
    drop(crashed);
    assert!(!dead());
}

#[test]
fn a_handle_knows_its_thread() {
    let world = world(0, 0);
    let handle = world.world();
    let other = handle.clone();
    assert!(std::thread::spawn(move || handle.now()).join().is_err());
    drop(world);
    assert_eq!(std::thread::spawn(move || other.is_dead()).join().ok(), Some(true));
}

#[test]
fn tasks_nest() {
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
        tasks.into_iter().for_each(terrace_rt::Task::join);
        sum.load(Ordering::Relaxed)
    }
    assert_eq!(world(0, 0).run(|| count(5)), Ok(243));
}

#[test]
fn a_closed_queue_lets_everybody_go() {
    let ran = world(0, 0).run(|| {
        let queue = Arc::new(Queue::new(1));
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let queue = Arc::clone(&queue);
                spawn("popper", move || while queue.pop().is_some() {})
            })
            .collect();
        for item in 0..10 {
            queue.push(item).expect("open");
        }
        queue.close();
        assert_eq!(queue.push(1), Err(1));
        tasks.into_iter().for_each(terrace_rt::Task::join);
    });
    assert_eq!(ran, Ok(()));
}

#[test]
#[cfg(debug_assertions)]
fn a_leaf_mutex_held_at_a_switch_is_a_bug() {
    let world = world(0, 0);
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        world.run(|| {
            let leaf = LeafMutex::new(0);
            let _held = leaf.lock();
            sleep(Nanos(1));
        })
    }));
    assert!(result.is_err());
}

/// The bug: an attempt at a mutex that another task had freed it.
#[test]
fn an_attempt_that_fails_leaves_a_mutex_to_its_owner() {
    let mutex = Mutex::new(());
    let held = mutex.lock();
    (0..3).for_each(|_| assert!(mutex.try_lock().is_none()));
    drop(held);
    let held = mutex.try_lock();
    assert!(held.is_some() && mutex.try_lock().is_none());
    drop(held);
    assert!(mutex.try_lock().is_some());
}
