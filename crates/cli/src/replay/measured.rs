//! Replays of one policy, and how long they take.

use super::Source;
use crate::interval::rounded;
use crate::output::cpu_seconds;
use serde_json::{Value, json};
use terrace_replay::Policy;

/// What a policy did.
pub(super) struct Measured {
    pub(super) policy: Policy,
    pub(super) capacity: u32,
    pub(super) requests: u64,
    pub(super) misses: u64,
    pub(super) wall_s: f64,
    /// On the processor, where the system says.
    pub(super) cpu_s: Option<f64>,
}

impl Measured {
    pub(super) fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.requests as f64
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "policy": self.policy.name(),
            "capacity_pages": self.capacity,
            "requests": self.requests,
            "misses": self.misses,
            "miss_ratio": rounded(self.miss_ratio()),
            "host": {
                "wall_s": rounded(self.wall_s),
                "requests_per_s": (self.requests as f64 / self.wall_s.max(1e-9)).round(),
            },
        })
    }
}

pub(super) fn measured(policy: Policy, source: &Source, capacity: u32, seed: u64) -> Measured {
    let (misses, wall_s, cpu_s) = timed(|| policy.misses(&source.references, capacity, seed));
    let requests = source.references.pages().len() as u64;
    Measured { policy, capacity, requests, misses, wall_s, cpu_s }
}

/// What `work` gives, the time that passed, and the time on the processor.
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, f64, Option<f64>) {
    let (watch, cpu) = (std::time::Instant::now(), cpu_seconds());
    let done = work();
    let cpu_s = cpu.and_then(|began| Some(cpu_seconds()? - began));
    (done, watch.elapsed().as_secs_f64(), cpu_s)
}
