//! What a TPC-C run found: throughput over time, hit ratios, traffic of each device, consistency.
//!
//! Averages are over the last part of the run, as in the paper; the windows cover all of it.
//! Nothing here depends on the machine, but `wall` times that a caller adds.

use hdrhistogram::Histogram;
use terrace::Stats;
use terrace_rt::Nanos;

use super::input::Kind;
use crate::clients::Consistency;
use crate::sampling::{Averages, Window};

/// Counts of one type of transaction.
#[derive(Clone, Debug)]
pub struct KindCounts {
    /// Committed.
    pub committed: u64,
    /// Rolled back on purpose: New-Order with an invalid item (clause 2.4.1.4).
    pub rolled_back: u64,
    /// Times that one was run again after a conflict.
    pub conflicts: u64,
    /// Time from begin (for Delivery, from queueing) to commit, in nanoseconds.
    pub latency_ns: Histogram<u64>,
}

impl KindCounts {
    pub(super) fn new() -> KindCounts {
        const HIGHEST_NS: u64 = 3_600_000_000_000;
        let latency_ns = Histogram::new_with_bounds(1, HIGHEST_NS, 2).expect("two digits");
        KindCounts { committed: 0, rolled_back: 0, conflicts: 0, latency_ns }
    }
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Name of the design.
    pub design: &'static str,
    /// Name of the restart method.
    pub restart: &'static str,
    /// Windows in order of time.
    pub windows: Vec<Window>,
    /// New-Orders committed per minute, averaged.
    pub tpmc: f64,
    /// Averages over the last part of the run; its throughput counts New-Orders.
    pub averages: Averages,
    /// Counts by type over the whole run, in the order of [`Kind::ALL`].
    pub kinds: [KindCounts; 5],
    /// Districts that had no new order when a delivery came (clause 2.7.4.2).
    pub deliveries_skipped: u64,
    /// Pages in use at home at the end.
    pub home_pages: u64,
    /// Pages in use at home when the run began.
    pub loaded_pages: u64,
    /// All counters of the engine at the end of the run.
    pub stats: Stats,
    /// Events of the virtual world; none in the real one.
    pub events: Option<u64>,
    /// The twelve conditions after the run.
    pub consistency: Consistency,
}

impl RunResult {
    /// Counts of one type.
    pub fn kind(&self, kind: Kind) -> &KindCounts {
        &self.kinds[kind as usize]
    }
}

/// How far a run is, for a progress display.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Measured time passed.
    pub done: Nanos,
    /// Of this much.
    pub total: Nanos,
    /// New-Orders per minute in the last window.
    pub tpmc: f64,
}
