//! What a file device counts: requests, bytes, and the time in which it had any.

use terrace_rt::{LeafMutex, Nanos, now};

use super::job::Job;
use crate::Counters;

/// Counters and the length of the queue.
#[derive(Default)]
pub(crate) struct Gauge(LeafMutex<State>);

#[derive(Default)]
struct State {
    queued: usize,
    busy_since: Nanos,
    counters: Counters,
}

impl Gauge {
    pub(crate) fn start(&self, requests: usize) {
        let mut state = self.0.lock();
        let now = now();
        if state.queued == 0 {
            state.busy_since = now;
        }
        state.queued += requests;
    }

    pub(crate) fn finish(&self, job: Job, bytes: u64) {
        let mut state = self.0.lock();
        let now = now();
        assert!(state.queued > 0, "a request finished twice");
        state.queued -= 1;
        if state.queued == 0 {
            state.counters.busy_ns += now.saturating_sub(state.busy_since).0;
        }
        match job {
            Job::Read => {
                state.counters.reads += 1;
                state.counters.read_bytes += bytes;
            }
            Job::Write => {
                state.counters.writes += 1;
                state.counters.written_bytes += bytes;
            }
            Job::Sync => state.counters.syncs += 1,
            Job::Reserve { .. } | Job::Grow { .. } | Job::Punch { .. } => (),
        }
    }

    pub(crate) fn queued(&self) -> usize {
        self.0.lock().queued
    }

    pub(crate) fn counters(&self) -> Counters {
        let state = self.0.lock();
        // Read under the lock, so that no later observation is less.
        let now = now();
        let mut counters = state.counters;
        if state.queued > 0 {
            counters.busy_ns += now.saturating_sub(state.busy_since).0;
        }
        counters
    }
}
