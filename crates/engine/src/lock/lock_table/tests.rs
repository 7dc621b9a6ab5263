//! The lock table, case by case, in a virtual world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use terrace_rt::{Prng, Virtual, VirtualConfig};

use super::*;
use crate::{KeyHash, LockMode, TreeId};

const MODES: [LockMode; 4] =
    [LockMode::Shared, LockMode::Exclusive, LockMode::GapScan, LockMode::GapInsert];

const LONG: Nanos = Nanos(1 << 40);

fn key(number: u64) -> Resource {
    Resource::key(TreeId(1), KeyHash::of(&number.to_le_bytes()))
}

/// Which owner holds what; none waits, since `try_acquire` never does.
#[derive(Default)]
struct Model {
    held: BTreeMap<(Resource, usize), Modes>,
}

impl Model {
    fn acquire(&mut self, resource: Resource, owner: usize, modes: Modes) -> bool {
        let clash = self.held.iter().any(|((other, holder), held)| {
            *other == resource && *holder != owner && held.conflict_with(modes)
        });
        if !clash {
            let held = self.held.entry((resource, owner)).or_default();
            *held = held.and(modes);
        }
        !clash
    }
}

/// Threads have lists of free owners of their own: one takes those of others before the table
/// grows, and all of them can be open at once, wherever they were given back.
#[test]
fn owners_go_from_thread_to_thread() {
    let table = LockTable::new(1 << 20);
    for _ in 0..20 {
        let (table, count) = (&table, OWNERS_CHUNK / 4);
        let owners: Vec<Vec<Owner>> = std::thread::scope(|scope| {
            let enter = move || (0..count).map(|_| table.enter(0).expect("room")).collect();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(enter)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(table.owners_count(), OWNERS_CHUNK as u64);
        assert_eq!(table.all_owners().count(), OWNERS_CHUNK, "no more are made than are open");
        let ids: BTreeSet<OwnerId> = owners.iter().flatten().map(|owner| owner.id).collect();
        assert_eq!(ids.len(), OWNERS_CHUNK, "each was given once");
        std::thread::scope(|scope| {
            for owners in owners {
                scope.spawn(|| owners.into_iter().for_each(|owner| table.leave(owner)));
            }
        });
        assert_eq!(table.owners_count(), 0);
    }
}

#[test]
fn locks_agree_with_their_model() {
    for seed in 0..200 {
        let mut prng = Prng::from_seed(seed);
        let table = LockTable::new(1 << 20);
        let owners: Vec<Owner> = (0..5).map(|_| table.enter(0).expect("room")).collect();
        let mut model = Model::default();
        for step in 0..300 {
            let owner = prng.below(5) as usize;
            let resource = key(prng.below(12));
            if prng.below(10) == 0 {
                let all: Vec<Resource> = model.held.keys().map(|(held, _)| *held).collect();
                all.iter().for_each(|resource| table.release(&owners[owner], *resource));
                model.held.retain(|(_, holder), _| *holder != owner);
            } else {
                let modes = Modes::from(MODES[prng.below(4) as usize]);
                let granted = table.try_acquire(&owners[owner], resource, modes).expect("room");
                let expected = model.acquire(resource, owner, modes);
                assert_eq!(granted, expected, "seed {seed} step {step}");
            }
        }
        table.check();
        assert_eq!(table.counts().stored, model.held.len() as u64);
    }
}

fn in_world<T>(seed: u64, run: impl FnOnce() -> T) -> T {
    let config = VirtualConfig { seed, switch_one_in: 3, cores: 1, stack_bytes: 64 << 10 };
    Virtual::new(config).run(run).expect("nobody waits for ever")
}

/// Tasks lock random keys in random order and hold them for a while. Exclusive holders are alone,
/// no circle lasts, and in the end nothing is left.
#[test]
fn deadlocks_are_found_and_exclusion_holds() {
    let mut deadlocks = 0;
    for seed in 0..60 {
        deadlocks += in_world(seed, || {
            let table = Arc::new(LockTable::new(1 << 20));
            let writers = Arc::new((0..6).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
            let tasks: Vec<_> = (0..8)
                .map(|task| {
                    let (table, writers) = (Arc::clone(&table), Arc::clone(&writers));
                    terrace_rt::spawn("locker", move || {
                        let mut prng = Prng::from_seed(seed * 100 + task);
                        for _ in 0..20 {
                            lock_some(&table, &writers, &mut prng);
                        }
                    })
                })
                .collect();
            tasks.into_iter().for_each(terrace_rt::Task::join);
            table.check();
            assert_eq!(table.counts().stored, 0, "seed {seed}");
            table.counts().deadlocks
        });
    }
    assert!(deadlocks > 0, "the test never closed a circle");
}

fn lock_some(table: &LockTable, writers: &[AtomicU64], prng: &mut Prng) {
    let owner = table.enter(0).expect("room");
    let mut held = Vec::new();
    for _ in 0..1 + prng.below(4) {
        let number = prng.below(6);
        let exclusive = prng.below(2) == 0;
        let mode = if exclusive { LockMode::Exclusive } else { LockMode::Shared };
        if table.acquire(&owner, key(number), Modes::from(mode), LONG).is_err() {
            break;
        }
        if exclusive && !held.contains(&(number, true)) {
            assert_eq!(writers[number as usize].fetch_add(1, Ordering::Relaxed), 0);
        }
        held.push((number, exclusive));
        terrace_rt::yield_now();
        let written = writers[number as usize].load(Ordering::Relaxed);
        let own = u64::from(held.contains(&(number, true)));
        assert_eq!(written, own, "an exclusive lock beside another");
    }
    held.sort_unstable();
    held.dedup();
    for (number, exclusive) in held {
        if exclusive {
            writers[number as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }
    (0..6).for_each(|number| table.release(&owner, key(number)));
    table.leave(owner);
}

#[test]
fn waiters_are_served_in_turn() {
    let order = in_world(1, || {
        let table = Arc::new(LockTable::new(1 << 20));
        let first = table.enter(0).expect("room");
        table.acquire(&first, key(1), LockMode::Shared.into(), LONG).expect("free");
        let served = Arc::new(LeafMutex::new(Vec::new()));
        let modes = [LockMode::Exclusive, LockMode::Shared, LockMode::Exclusive];
        let tasks: Vec<_> = (0..3_usize)
            .map(|index| {
                let (table, served) = (Arc::clone(&table), Arc::clone(&served));
                let task = terrace_rt::spawn("waiter", move || {
                    let owner = table.enter(0).expect("room");
                    table.acquire(&owner, key(1), modes[index].into(), LONG).expect("no circle");
                    served.lock().push(index);
                    terrace_rt::sleep(terrace_rt::Nanos(10));
                    table.release(&owner, key(1));
                    table.leave(owner);
                });
                terrace_rt::sleep(terrace_rt::Nanos(10));
                task
            })
            .collect();
        table.release(&first, key(1));
        tasks.into_iter().for_each(terrace_rt::Task::join);
        std::mem::take(&mut *served.lock())
    });
    assert_eq!(order, [0, 1, 2], "a reader does not pass a writer who waits");
}

#[test]
fn a_full_table_says_so() {
    let table = LockTable::new(1);
    let owner = table.enter(0).expect("room");
    let refused = (0..5000).any(|number| {
        let acquired = table.try_acquire(&owner, key(number), LockMode::Shared.into());
        matches!(acquired, Err(Error::TooManyLocks))
    });
    assert!(refused);
}

/// The bug: a wait had no end if its holder stayed.
#[test]
fn a_wait_ends_at_its_time_limit() {
    in_world(1, || {
        let table = LockTable::new(1 << 20);
        let (holder, waiter) = (table.enter(0).expect("room"), table.enter(0).expect("room"));
        table.acquire(&holder, key(1), LockMode::Exclusive.into(), LONG).expect("free");
        let began = now();
        let refused = table.acquire(&waiter, key(1), LockMode::Shared.into(), Nanos(5_000));
        let id = table.id(&holder);
        assert_eq!(refused, Err(Refused::TimedOut { holder: Some(id), queued: None }));
        assert_ne!(table.id(&waiter), id);
        assert!(now() >= began.saturating_add(Nanos(5_000)));
        assert_eq!((table.counts().timeouts, table.counts().stored), (1, 1));
        assert_eq!(table.waits(|tree, _| tree.to_string()), "");
        table.release(&holder, key(1));
        table.acquire(&waiter, key(1), LockMode::Shared.into(), Nanos(5_000)).expect("free");
        table.check();
    });
}

#[test]
fn a_wait_that_is_interrupted_leaves_nothing_behind() {
    in_world(1, || {
        let table = Arc::new(LockTable::new(1 << 20));
        let (holder, third) = (table.enter(1).expect("room"), table.enter(2).expect("room"));
        table.acquire(&holder, key(1), LockMode::Shared.into(), LONG).expect("free");
        let other = Arc::clone(&table);
        let waiter = terrace_rt::spawn("waiter", move || {
            let owner = other.enter(3).expect("room");
            other.set_txn(&owner, TxnId(7));
            let refused = other.acquire(&owner, key(1), LockMode::Exclusive.into(), LONG);
            assert_eq!(refused, Err(Refused::Interrupted));
            other.acquire(&owner, key(2), LockMode::Exclusive.into(), LONG).expect("free");
            other.release(&owner, key(2));
        });
        terrace_rt::sleep(Nanos(10));
        table.interrupt(TxnId(8));
        assert!(!table.try_acquire(&third, key(1), LockMode::Shared.into()).expect("room"));
        table.interrupt(TxnId(7));
        // No owner waits behind its request any more.
        assert!(table.try_acquire(&third, key(1), LockMode::Shared.into()).expect("room"));
        waiter.join();
        table.interrupt(TxnId(7));
        assert_eq!(table.counts().stored, 2);
        table.check();
    });
}

/// The bug: an owner that waited behind a queued request got an error that named the owner of that
/// request as the holder of the lock.
#[test]
fn who_waits_behind_a_wish_is_told_of_the_holder_too() {
    in_world(1, || {
        let table = Arc::new(LockTable::new(1 << 20));
        let (reader, second) = (table.enter(1).expect("room"), table.enter(2).expect("room"));
        table.acquire(&reader, key(1), LockMode::Shared.into(), LONG).expect("free");
        let other = Arc::clone(&table);
        let writer = terrace_rt::spawn("writer", move || {
            let owner = other.enter(3).expect("room");
            other.show_key(&owner, b"a key");
            let refused = other.acquire(&owner, key(1), LockMode::Exclusive.into(), Nanos(9_000));
            assert!(refused.is_err());
        });
        terrace_rt::sleep(Nanos(10));
        let refused = table.acquire(&second, key(1), LockMode::Shared.into(), Nanos(100));
        let Err(Refused::TimedOut { holder, queued: Some(queued) }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(holder, Some(table.id(&reader)));
        let name = |tree: TreeId, key: Option<&[u8]>| format!("{tree}, {:?}", key.expect("one"));
        let waits = table.waits(name);
        let (key, reader) = (b"a key", table.id(&reader));
        let expected = format!(
            "{queued} waits for the lock of {}, behind {reader}\n    {reader} holds S\n    \
             {queued} waits for X\n",
            name(TreeId(1), Some(key)),
        );
        assert_eq!(waits, expected);
        drop(writer);
    });
}

/// Those behind a wish that was given up are served at once.
#[test]
fn who_gives_up_holds_nobody_up() {
    in_world(1, || {
        let table = Arc::new(LockTable::new(1 << 20));
        let reader = table.enter(0).expect("room");
        table.acquire(&reader, key(1), LockMode::Shared.into(), LONG).expect("free");
        let other = Arc::clone(&table);
        let writer = terrace_rt::spawn("writer", move || {
            let owner = other.enter(0).expect("room");
            let refused = other.acquire(&owner, key(1), LockMode::Exclusive.into(), Nanos(1_000));
            assert!(matches!(refused, Err(Refused::TimedOut { holder: Some(_), queued: None })));
        });
        terrace_rt::sleep(Nanos(10));
        let second = table.enter(0).expect("room");
        let began = now();
        table.acquire(&second, key(1), LockMode::Shared.into(), LONG).expect("a shared lock");
        assert!(now().saturating_sub(began) <= Nanos(1_100), "it waited behind a wish only");
        writer.join();
        table.check();
    });
}

/// The bug: a transaction within another one of the same task waited for that one for ever.
#[test]
fn a_task_that_waits_for_itself_is_told() {
    in_world(1, || {
        let table = LockTable::new(1 << 20);
        let (outer, inner) = (table.enter(9).expect("room"), table.enter(9).expect("room"));
        table.acquire(&outer, key(1), LockMode::Exclusive.into(), LONG).expect("free");
        let refused = table.acquire(&inner, key(1), LockMode::Shared.into(), LONG);
        assert_eq!(refused, Err(Refused::Nested { holder: table.id(&outer) }));
        assert_eq!(table.counts().stored, 1);
    });
}

/// The bug: a task with two transactions waited, by the inner one, for another task that waited for
/// the outer one, and the cycle was not found: both stood still until their time limits.
#[test]
fn circles_through_two_transactions_of_a_task_are_found() {
    for inner_waits_last in [false, true] {
        in_world(1, move || {
            let table = Arc::new(LockTable::new(1 << 20));
            let (outer, inner) = (table.enter(9).expect("room"), table.enter(9).expect("room"));
            table.acquire(&outer, key(1), LockMode::Exclusive.into(), LONG).expect("free");
            let shared = Arc::clone(&table);
            let other = terrace_rt::spawn("other", move || {
                let owner = shared.enter(8).expect("room");
                shared.acquire(&owner, key(2), LockMode::Exclusive.into(), LONG).expect("free");
                terrace_rt::sleep(Nanos(if inner_waits_last { 10 } else { 1_000 }));
                let waited = shared.acquire(&owner, key(1), LockMode::Shared.into(), LONG);
                (1..=2).for_each(|number| shared.release(&owner, key(number)));
                shared.leave(owner);
                let expected = if inner_waits_last { Ok(()) } else { Err(Refused::Circle) };
                assert_eq!(waited, expected);
            });
            terrace_rt::sleep(Nanos(500));
            let refused = table.acquire(&inner, key(2), LockMode::Shared.into(), LONG);
            if inner_waits_last {
                assert_eq!(refused, Err(Refused::Nested { holder: table.id(&outer) }));
                table.release(&outer, key(1));
            } else {
                assert_eq!(refused, Ok(()));
            }
            other.join();
            assert!(now() < LONG, "somebody waited for the limit");
            table.check();
        });
    }
}

/// Tasks lock random keys in random order, with limits so short that many waits end at them. An
/// owner that gives up leaves nothing behind, and exclusion holds.
#[test]
fn random_waits_with_time_limits_leave_nothing_behind() {
    let (mut timeouts, mut deadlocks) = (0, 0);
    for seed in 0..60 {
        let counts = in_world(seed, || {
            let table = Arc::new(LockTable::new(1 << 20));
            let tasks: Vec<_> = (0..8)
                .map(|task| {
                    let table = Arc::clone(&table);
                    terrace_rt::spawn("locker", move || {
                        let mut prng = Prng::from_seed(seed * 100 + task);
                        (0..20).for_each(|_| lock_briefly(&table, &mut prng));
                    })
                })
                .collect();
            tasks.into_iter().for_each(terrace_rt::Task::join);
            table.check();
            assert_eq!(table.counts().stored, 0, "seed {seed}");
            table.counts()
        });
        timeouts += counts.timeouts;
        deadlocks += counts.deadlocks;
    }
    assert!(timeouts > 100 && deadlocks > 0, "{timeouts} timeouts, {deadlocks} circles");
}

fn lock_briefly(table: &LockTable, prng: &mut Prng) {
    let owner = table.enter(0).expect("room");
    for _ in 0..1 + prng.below(4) {
        let modes = Modes::from(MODES[prng.below(4) as usize]);
        let limit = Nanos(1 + prng.below(300));
        let resource = key(prng.below(5));
        if table.acquire(&owner, resource, modes, limit).is_err() {
            break;
        }
        table.check();
        terrace_rt::sleep(Nanos(prng.below(200)));
    }
    (0..5).for_each(|number| table.release(&owner, key(number)));
    table.leave(owner);
}
