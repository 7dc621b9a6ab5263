//! Which faults a wrapped device makes, and how often. All chance comes from the seed.

use terrace_rt::{Nanos, Prng};

use crate::Op;

/// Which faults a [`FaultyDevice`](super::FaultyDevice) makes. Rates are per batch, and per `sync`;
/// zero switches a fault off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Decides every fault.
    pub seed: u64,
    /// One in this number of reads fails with `EIO`.
    pub read_error_one_in: u64,
    /// One in this number of writes fails with `EIO`, and changes nothing.
    pub write_error_one_in: u64,
    /// One in this number of reads and writes fails with `EIO` after a part of its first request is
    /// done.
    pub partial_error_one_in: u64,
    /// One in this number of syncs fails with `EIO`. What it was to make durable may be.
    pub sync_error_one_in: u64,
    /// One in this number of requests to grow or to give room back fails with `EIO`, and nothing
    /// changes.
    pub resize_error_one_in: u64,
    /// One in this number of reads and writes fails with `EINTR` or `EAGAIN`, and would succeed if
    /// it were tried again.
    pub passing_error_one_in: u64,
    /// One in this number of reads and writes takes `slow` longer.
    pub slow_one_in: u64,
    /// How much longer.
    pub slow: Nanos,
    /// The device falls silent when it has accepted this number of batches and syncs: it never
    /// answers any of the later ones.
    pub silent_after: Option<u64>,
    /// From that many on everything fails with `ENODEV`.
    pub dies_after: Option<u64>,
}

/// What a [`FaultyDevice`](super::FaultyDevice) has done so far, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Batches and syncs.
    pub accepted: u64,
    /// Reads, writes and syncs that failed with `EIO`.
    pub errors: u64,
    /// Those that failed with an error that passes.
    pub passing: u64,
    /// Those that took longer.
    pub slow: u64,
    /// Those that were never answered.
    pub silent: u64,
    /// Those that failed since the device is dead.
    pub dead: u64,
}

impl FaultCounts {
    /// All faults, of whatever kind.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.errors + self.passing + self.slow + self.silent + self.dead
    }
}

/// What becomes of a batch or a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Well,
    Slow(Nanos),
    Fails(i32),
    /// After this number of 256 parts of the first request are done.
    FailsInPart {
        code: i32,
        of_256: u64,
    },
    Silent,
}

/// The plan, and how far it got.
pub(super) struct Dice {
    plan: FaultPlan,
    prng: Prng,
    pub counts: FaultCounts,
    pub is_silent: bool,
    pub is_dead: bool,
}

impl Dice {
    pub fn new(plan: FaultPlan) -> Dice {
        let prng = Prng::from_seed(plan.seed);
        let counts = FaultCounts::default();
        Dice { plan, prng, counts, is_silent: false, is_dead: false }
    }

    /// Decides over a batch that begins with `op`, or over a sync.
    pub fn decide(&mut self, op: Option<Op>) -> Verdict {
        if let Some(fate) = self.begin() {
            return fate;
        }
        let one_in = match op {
            Some(Op::Read) => self.plan.read_error_one_in,
            Some(Op::Write) => self.plan.write_error_one_in,
            None => self.plan.sync_error_one_in,
        };
        if self.hits(one_in) {
            self.counts.errors += 1;
            return Verdict::Fails(libc::EIO);
        }
        if op.is_some() && self.hits(self.plan.partial_error_one_in) {
            self.counts.errors += 1;
            return Verdict::FailsInPart { code: libc::EIO, of_256: self.prng.below(256) };
        }
        if op.is_some() && self.hits(self.plan.passing_error_one_in) {
            self.counts.passing += 1;
            let is_busy = self.prng.chance(2);
            return Verdict::Fails(if is_busy { libc::EAGAIN } else { libc::EINTR });
        }
        if op.is_some() && self.hits(self.plan.slow_one_in) {
            self.counts.slow += 1;
            return Verdict::Slow(self.plan.slow);
        }
        Verdict::Well
    }

    /// Decides over what moves no bytes and is no sync: it counts as accepted, too.
    pub fn decide_alone(&mut self) -> Verdict {
        match self.begin() {
            Some(fate) => fate,
            None if self.hits(self.plan.resize_error_one_in) => {
                self.counts.errors += 1;
                Verdict::Fails(libc::EIO)
            }
            None => Verdict::Well,
        }
    }

    /// What befalls everything that a dead or a silent device is asked.
    fn begin(&mut self) -> Option<Verdict> {
        let reached = |limit: Option<u64>, count| limit.is_some_and(|limit| count >= limit);
        self.is_silent |= reached(self.plan.silent_after, self.counts.accepted);
        self.is_dead |= reached(self.plan.dies_after, self.counts.accepted);
        self.counts.accepted += 1;
        if self.is_dead {
            self.counts.dead += 1;
            return Some(Verdict::Fails(libc::ENODEV));
        }
        if self.is_silent {
            self.counts.silent += 1;
            return Some(Verdict::Silent);
        }
        None
    }

    fn hits(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.prng.chance(one_in)
    }
}
