//! What a TPC-C run found: throughput over time, hit ratios, traffic of each device, consistency.
//!
//! Rates and ratios named `averaged` are over the last part of the run, as in the paper; the windows
//! cover all of it. Nothing here depends on the machine, but `wall` times that a caller adds.

use hdrhistogram::Histogram;
use terrace_device::Counters;
use terrace_pool::PoolStats;
use terrace_rt::Nanos;

use super::input::Kind;

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

/// One device at the end of a window, counted since the run began.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceSample {
    /// The permanent home.
    pub home: Counters,
    /// The flash tier; zeroes if the design has none.
    pub flash: Counters,
    /// The log.
    pub log: Counters,
}

/// One window of a run.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// When it ended, since the run began.
    pub end: Nanos,
    /// New-Orders committed in it.
    pub new_orders: u64,
    /// All transactions committed in it.
    pub transactions: u64,
    /// Devices at its end, counted since the run began; subtract the window before.
    pub devices: DeviceSample,
    /// The buffer pool at its end, counted since the run began.
    pub pool: PoolStats,
}

/// A share of time or of requests over the averaged part.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceUse {
    /// Share of the time that the device was busy, the mean over its members.
    pub utilisation: f64,
    /// Requests read.
    pub reads: u64,
    /// Requests written.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// Outcome of the twelve conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Not checked.
    Unchecked,
    /// All hold.
    Ok,
    /// Broken: the first few, in words.
    Broken(Vec<String>),
}

impl Consistency {
    /// `ok`, `unchecked`, or the first violation.
    pub fn summary(&self) -> &str {
        match self {
            Consistency::Unchecked => "unchecked",
            Consistency::Ok => "ok",
            Consistency::Broken(found) => found.first().map_or("broken", String::as_str),
        }
    }
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Name of the design.
    pub design: &'static str,
    /// Windows in order of time.
    pub windows: Vec<Window>,
    /// Length of the averaged part.
    pub averaged: Nanos,
    /// New-Orders committed per minute, averaged.
    pub tpmc: f64,
    /// Transactions committed per second, averaged.
    pub transactions_per_s: f64,
    /// Share of page requests that memory served, averaged.
    pub memory_hit_ratio: f64,
    /// Share of memory misses that flash served, averaged.
    pub flash_hit_ratio: f64,
    /// Share of flash hits on pages newer than home, averaged.
    pub flash_dirty_hit_share: f64,
    /// The buffer pool at the end.
    pub pool: PoolStats,
    /// The home device, averaged.
    pub home: DeviceUse,
    /// The flash device, averaged.
    pub flash: DeviceUse,
    /// The log device, averaged.
    pub log: DeviceUse,
    /// Counts by type over the whole run, in the order of [`Kind::ALL`].
    pub kinds: [KindCounts; 5],
    /// Districts that had no new order when a delivery came (clause 2.7.4.2).
    pub deliveries_skipped: u64,
    /// Pages in use at home at the end, and when loaded.
    pub home_pages: u64,
    /// Pages in use at home when loaded.
    pub loaded_pages: u64,
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
