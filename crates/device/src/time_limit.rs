//! How long a device may be silent, and when it answered last.
//!
//! - T1: the limit runs from the submission of a batch, or from the last answer of the device to a
//!   request of the same kind if that is later: a long queue is no silence. Answers to reads say
//!   nothing of writes: a frozen file system serves the ones and not the others. No wait is longer
//!   than `LIMITS_MAX` limits.
//! - T2: time in which the process did not run (a stopped job, a frozen container, a machine that
//!   is moved) does not count. A task that waits looks at the clock of the limit every `tick`; so
//!   does each submission and each answer. If more than `TICKS_MISSED` ticks pass between two
//!   looks, the process was paused or no task waited, and the clock stood still meanwhile.
//! - T3: so no wait ends at the first look after a pause. Another wait follows, in which the
//!   answers that came during the pause are taken.
//! - T4: a virtual world is never paused, and its waits have no ticks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_rt as rt;
use terrace_rt::{LeafMutex, Nanos};

use crate::Operation;

/// A wait that lasts this many limits has failed, though the device answers other requests.
const LIMITS_MAX: u64 = 10;
/// Looks at the clock while a limit runs out (T2).
const TICKS: u64 = 8;
const TICK_MIN: Nanos = Nanos::from_millis(10);
/// A busy machine wakes a task late, but not by this much.
const TICKS_MISSED: u64 = 2;

/// The time limit of a device.
pub(crate) struct TimeLimit {
    /// What errors call the device.
    device: String,
    /// Nanoseconds; zero: none.
    limit: AtomicU64,
    clock: Clock,
    /// By `clock`: of reads, of writes, and of all else.
    answered: [AtomicU64; 3],
}

impl TimeLimit {
    pub(crate) fn new(device: String) -> Arc<TimeLimit> {
        let (limit, clock) = (AtomicU64::new(0), Clock::default());
        Arc::new(TimeLimit { device, limit, clock, answered: Default::default() })
    }

    pub(crate) fn set(&self, limit: Nanos) {
        self.limit.store(limit.0, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Nanos {
        Nanos(self.limit.load(Ordering::Relaxed))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.limit.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    /// The time by the clock of the limit, which stands still while no task looks at it (T2).
    pub(crate) fn now(&self) -> Nanos {
        match rt::is_virtual() {
            true => rt::now(),
            false => self.clock.look(self.tick(), rt::now),
        }
    }

    /// The device has answered a request of this kind.
    pub(crate) fn answered(&self, operation: Operation) {
        self.last_answer(operation).store(self.now().0, Ordering::Relaxed);
    }

    /// For how long to wait until the next look at the clock; zero if the time of a batch is over
    /// that was submitted at the instant `submitted` of this clock.
    pub(crate) fn wait_for(&self, operation: Operation, submitted: Nanos) -> Nanos {
        let now = self.now();
        let limit = Nanos(self.limit.load(Ordering::Relaxed));
        let answered = Nanos(self.last_answer(operation).load(Ordering::Relaxed));
        let longest = submitted.saturating_add(Nanos(limit.0.saturating_mul(LIMITS_MAX)));
        let deadline = submitted.max(answered).saturating_add(limit).min(longest);
        let left = deadline.saturating_sub(now);
        if rt::is_virtual() { left } else { left.min(self.tick()) }
    }

    fn tick(&self) -> Nanos {
        Nanos(self.limit.load(Ordering::Relaxed) / TICKS).max(TICK_MIN)
    }

    fn last_answer(&self, operation: Operation) -> &AtomicU64 {
        &self.answered[match operation {
            Operation::Read => 0,
            Operation::Write => 1,
            _ => 2,
        }]
    }
}

/// A clock that stands still while no task looks at it (T2). Nanoseconds.
#[derive(Default)]
struct Clock {
    /// When a task looked last.
    looked: AtomicU64,
    /// The time in which no task looked. Changes under `lagging`, before `looked` does.
    behind: AtomicU64,
    lagging: LeafMutex<()>,
}

impl Clock {
    fn look(&self, tick: Nanos, now: impl Fn() -> Nanos) -> Nanos {
        let longest = tick.0.saturating_mul(TICKS_MISSED);
        loop {
            let behind = self.behind.load(Ordering::Acquire);
            let at = now().0;
            let looked = self.looked.load(Ordering::Acquire);
            if at.saturating_sub(looked) > longest {
                self.lag(longest, &now);
                continue;
            }
            if at > looked {
                self.looked.fetch_max(at, Ordering::AcqRel);
            }
            // A pause between the two is noticed by another look, or by the next one.
            if self.behind.load(Ordering::Acquire) == behind {
                return Nanos(at.saturating_sub(behind));
            }
        }
    }

    #[cold]
    fn lag(&self, longest: u64, now: impl Fn() -> Nanos) {
        let _one = self.lagging.lock();
        let at = now().0;
        let unseen = at.saturating_sub(self.looked.load(Ordering::Acquire));
        if unseen > longest {
            self.behind.fetch_add(unseen, Ordering::AcqRel);
            self.looked.fetch_max(at, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_clock_stands_still_while_nobody_looks_at_it() {
        let (clock, time) = (Clock::default(), Cell::new(Nanos(1_000)));
        let after = |span| {
            time.set(time.get() + Nanos(span));
            clock.look(Nanos(10), || time.get())
        };
        let begun = after(0);
        assert_eq!(after(20), begun + Nanos(20), "a look may be late");
        assert_eq!(after(10), begun + Nanos(30));
        assert_eq!(after(21), begun + Nanos(30), "a pause");
        assert_eq!(after(0), begun + Nanos(30));
        assert_eq!(after(3_600), begun + Nanos(30));
        assert_eq!(after(7), begun + Nanos(37));
    }

    /// Whichever task looks first after a pause, the others do not see the clock jump either.
    #[test]
    fn threads_that_look_at_once_see_no_pause() {
        const THREADS: u64 = 4;
        const ROUNDS: u64 = 2_000;
        let (clock, time) = (Clock::default(), AtomicU64::new(1_000));
        let look = || clock.look(Nanos(10), || Nanos(time.load(Ordering::SeqCst)));
        let (begun, ready) = (look(), AtomicU64::new(0));
        std::thread::scope(|threads| {
            for _ in 0..THREADS {
                threads.spawn(|| {
                    for round in 1..=ROUNDS {
                        // The last one that is ready makes the pause.
                        if ready.fetch_add(1, Ordering::SeqCst) + 1 == round * THREADS {
                            time.fetch_add(1_000, Ordering::SeqCst);
                        }
                        while time.load(Ordering::SeqCst) < 1_000 + 1_000 * round {
                            std::thread::yield_now();
                        }
                        assert_eq!(look(), begun, "round {round}");
                    }
                });
            }
        });
    }
}
