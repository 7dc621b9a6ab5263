//! Group-writing: invalidations that must be durable before their slots are overwritten share a
//! force of the log [S3 III-C3].
//!
//! - G1: the task that completes the group forces the log for all of it, or the first one with an
//!   expired timeout.
//! - G2: `wait` returns only when the log is durable to its LSN, or with the log's error.
//! - G3: no task waits longer than the timeout before a force begins.

use terrace_page::Lsn;
use terrace_rt::{LeafMutex, Nanos, Signal, now};

use crate::site::{TableError, TableLog};

/// The group that gathers.
#[derive(Debug, Default)]
struct Gathering {
    /// How many groups were before it.
    number: u64,
    members: u32,
    /// The last LSN of its members.
    upto: Lsn,
    /// When its first member has waited long enough.
    deadline: Nanos,
}

/// Writers that wait for a force together.
pub(super) struct Group {
    members_max: u32,
    timeout: Nanos,
    gathering: LeafMutex<Gathering>,
    /// Given when a force has ended.
    forced: Signal,
}

impl Group {
    /// Groups of at most `members_max`; one is none.
    pub fn new(members_max: u32, timeout: Nanos) -> Group {
        let gathering = LeafMutex::new(Gathering::default());
        Group { members_max, timeout, gathering, forced: Signal::new() }
    }

    /// Waits with `members` writes until the log is durable up to `lsn`.
    ///
    /// # Errors
    ///
    /// The log's.
    pub fn wait(&self, log: &dyn TableLog, lsn: Lsn, members: u32) -> Result<(), TableError> {
        if self.members_max == 1 {
            return log.make_durable(lsn);
        }
        let (number, deadline) = match self.join(lsn, members) {
            Joined::Last(upto) => return self.force(log, upto),
            Joined::Waits { number, deadline } => (number, deadline),
        };
        loop {
            let seen = self.forced.seen();
            if log.durable_lsn() >= lsn {
                return Ok(());
            }
            if now() >= deadline || terrace_rt::dead() {
                let upto = self.close(number).unwrap_or(lsn).max(lsn);
                return self.force(log, upto);
            }
            self.forced.wait_until(seen, deadline);
        }
    }

    fn join(&self, lsn: Lsn, members: u32) -> Joined {
        let mut gathering = self.gathering.lock();
        if gathering.members == 0 {
            gathering.deadline = now() + self.timeout;
        }
        gathering.members += members;
        gathering.upto = gathering.upto.max(lsn);
        if gathering.members >= self.members_max {
            return Joined::Last(gathering.begin_next());
        }
        Joined::Waits { number: gathering.number, deadline: gathering.deadline }
    }

    /// Ends group `number`, if it still gathers; returns the last LSN of its members.
    fn close(&self, number: u64) -> Option<Lsn> {
        let mut gathering = self.gathering.lock();
        (gathering.number == number).then(|| gathering.begin_next())
    }

    fn force(&self, log: &dyn TableLog, upto: Lsn) -> Result<(), TableError> {
        let forced = log.make_durable(upto);
        self.forced.notify_all();
        forced
    }
}

/// What became of a writer.
enum Joined {
    /// It completes the group, whose last LSN this is.
    Last(Lsn),
    /// It waits for others.
    Waits { number: u64, deadline: Nanos },
}

impl Gathering {
    fn begin_next(&mut self) -> Lsn {
        let upto = self.upto;
        *self = Gathering { number: self.number + 1, ..Gathering::default() };
        upto
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use terrace_rt::{Prng, Virtual, VirtualConfig, sleep};

    const TIMEOUT: Nanos = Nanos(2_000_000);
    const FORCE: Nanos = Nanos(300_000);

    /// A log that counts its forces, each of which takes a while.
    #[derive(Default)]
    struct CountedLog {
        last: AtomicU64,
        durable: AtomicU64,
        forces: AtomicU64,
    }

    impl TableLog for CountedLog {
        fn last_lsn(&self) -> Lsn {
            Lsn(self.last.load(Ordering::Relaxed))
        }

        fn durable_lsn(&self) -> Lsn {
            Lsn(self.durable.load(Ordering::Relaxed))
        }

        fn make_durable(&self, upto: Lsn) -> Result<(), TableError> {
            self.forces.fetch_add(1, Ordering::Relaxed);
            sleep(FORCE);
            self.durable.fetch_max(upto.0, Ordering::Relaxed);
            Ok(())
        }

        fn append(&self, _payload: &[u8]) -> Option<Lsn> {
            Some(Lsn(self.last.fetch_add(1, Ordering::Relaxed) + 1))
        }

        fn append_kept(&self, payload: &[u8]) -> Option<Lsn> {
            self.append(payload)
        }
    }

    /// `writers` tasks that each come after a time that `arrives` draws; returns the forces, and
    /// the longest that one of them waited.
    fn run(members_max: u32, writers: u64, seed: u64, spread: u64) -> (u64, Nanos) {
        let world = Virtual::new(VirtualConfig { seed, switch_one_in: 3, ..Default::default() });
        let ran = world.run(|| {
            let group = Arc::new(Group::new(members_max, TIMEOUT));
            let log = Arc::new(CountedLog::default());
            let longest = Arc::new(AtomicU64::new(0));
            let mut prng = Prng::from_seed(seed);
            let tasks: Vec<_> = (0..writers)
                .map(|_| {
                    let (group, log, longest) = (group.clone(), log.clone(), longest.clone());
                    let (after, members) = (prng.below(spread + 1), 1 + prng.below(2) as u32);
                    world.world().spawn("writer", move || {
                        sleep(Nanos(after));
                        let began = now();
                        let lsn = log.append(&[]).expect("room");
                        group.wait(&*log, lsn, members).expect("a log");
                        assert!(log.durable_lsn() >= lsn, "{lsn} is not durable");
                        longest.fetch_max((now() - began).0, Ordering::Relaxed);
                    })
                })
                .collect();
            tasks.into_iter().for_each(terrace_rt::Task::join);
            (log.forces.load(Ordering::Relaxed), Nanos(longest.load(Ordering::Relaxed)))
        });
        ran.expect("nobody waits for ever")
    }

    #[test]
    fn nobody_goes_on_before_its_record_is_durable_or_waits_too_long() {
        for seed in 0..200 {
            let (forces, longest) = run(8, 1 + seed % 40, seed, seed * 300_000);
            assert!(longest.0 <= TIMEOUT.0 + 2 * FORCE.0, "seed {seed}: {longest:?}");
            assert!(forces >= 1);
        }
    }

    #[test]
    fn a_full_group_takes_one_force_and_no_group_one_each() {
        let (forces, longest) = run(8, 64, 1, 0);
        assert!(forces <= 64 * 2 / 8, "{forces} forces");
        assert!(longest < TIMEOUT, "a full group does not wait");
        assert_eq!(run(1, 64, 1, 0).0, 64);
    }

    #[test]
    fn a_single_writer_waits_for_the_timeout() {
        let (forces, longest) = run(8, 1, 1, 0);
        assert_eq!(forces, 1);
        assert!(longest >= TIMEOUT);
    }
}
