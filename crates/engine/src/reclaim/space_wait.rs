//! How an operation that found home full waits for what is being freed (reclaim.R6).

use std::sync::atomic::Ordering;

use terrace_page::TxnId;
use terrace_rt::{Nanos, Waited, dead, now};

use super::{PACE, Reclaim};

/// An operation that found home full, and waits for space.
#[derive(Debug, Default)]
pub(crate) struct SpaceWait {
    /// How much had been reclaimed when it was last tried, and when to give up.
    tried: Option<(u64, Nanos)>,
}

/// What a transaction found that ended since home was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldUp {
    /// How much had been reclaimed by then.
    performed: u64,
}

impl SpaceWait {
    /// Whether nothing was waited for yet.
    pub(crate) fn is_new(&self) -> bool {
        self.tried.is_none()
    }
}

impl Reclaim {
    /// Whether space is about to be free once `txn`, for which home was full, has ended: the task
    /// has work, or garbage that other transactions made waits for the end of `txn` or of older
    /// ones. What `txn` itself gave up is in use again once it is rolled back.
    #[cold]
    pub(crate) fn held_up(&self, txn: TxnId) -> Option<HeldUp> {
        let queue = self.queue.lock();
        let is_futile = queue.is_stopped || queue.is_resting;
        let is_held_up = queue.has_work() || queue.blocked.values().any(|by| *by != txn);
        (is_held_up && !is_futile).then_some(HeldUp { performed: queue.performed })
    }

    /// Called after the transaction that saw `held_up` has ended: waits, until `until` at most,
    /// until the task has done a piece of work since. Whether it has; false at once if it has
    /// nothing to do.
    #[cold]
    pub(crate) fn has_freed_since(&self, held_up: HeldUp, until: Nanos) -> bool {
        let mut wait = SpaceWait { tried: Some((held_up.performed, until)) };
        self.frees_more(TxnId(0), &mut wait, Nanos::ZERO)
    }

    /// Called after home was full for an operation of `txn`, without latches: waits until the task
    /// has done a piece of work since the last call, `limit` at most in all. Returns whether the
    /// operation is to be tried again: the first time it is, since what was being freed may be free
    /// by now. False if the task has nothing to do, or nothing before `txn` ends, if it meets
    /// errors itself, or has done nothing for a second.
    #[cold]
    pub(crate) fn frees_more(&self, txn: TxnId, wait: &mut SpaceWait, limit: Nanos) -> bool {
        let (tried, until) = match wait.tried {
            Some((tried, until)) => (Some(tried), until),
            None => (None, now().saturating_add(limit)),
        };
        let deadline = until.min(now().saturating_add(PACE));
        loop {
            let seen = self.idle.seen();
            {
                let queue = self.queue.lock();
                if tried.is_none_or(|tried| queue.performed > tried) {
                    wait.tried = Some((queue.performed, until));
                    return true;
                }
                let blocked_until = self.blocked_until.load(Ordering::Acquire);
                // One that has not written yet has no number, and holds nothing up.
                let is_free_to_end = txn == TxnId(0) || blocked_until < txn.0;
                let will_free = !queue.blocked.is_empty() && is_free_to_end;
                // A pause is short: its holder waits for devices only.
                let is_futile = queue.is_stopped || queue.is_resting || queue.has_met_error;
                if is_futile || !(queue.has_work() || will_free) {
                    return false;
                }
            }
            if dead() || self.idle.wait_until(seen, deadline) == Waited::TimedOut {
                return false;
            }
        }
    }
}
