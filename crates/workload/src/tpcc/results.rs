//! What a TPC-C run found: throughput over time, hit ratios, traffic of each device, consistency.
//!
//! Rates and ratios named `averaged` are over the last part of the run, as in the paper; the
//! windows cover all of it. Nothing here depends on the machine, but `wall` times that a caller
//! adds.

use hdrhistogram::Histogram;
use terrace::Stats;
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

impl KindCounts {
    pub(super) fn new() -> KindCounts {
        const HIGHEST_NS: u64 = 3_600_000_000_000;
        let latency_ns = Histogram::new_with_bounds(1, HIGHEST_NS, 2).expect("two digits");
        KindCounts { committed: 0, rolled_back: 0, conflicts: 0, latency_ns }
    }
}

/// The devices at the end of a window, counted since the run began.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceSample {
    /// The permanent home.
    pub home: Counters,
    /// The flash tier; zeroes if the design has none.
    pub flash: Counters,
    /// The log.
    pub log: Counters,
}

impl DeviceSample {
    /// What happened since `earlier`.
    #[must_use]
    pub fn since(self, earlier: DeviceSample) -> DeviceSample {
        DeviceSample {
            home: self.home - earlier.home,
            flash: self.flash - earlier.flash,
            log: self.log - earlier.log,
        }
    }
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
    /// The buffer pool at its end, counted since the database was opened.
    pub pool: PoolStats,
}

impl Window {
    /// The moment before the first window.
    pub(super) fn at_start() -> Window {
        Window {
            end: Nanos::ZERO,
            new_orders: 0,
            transactions: 0,
            devices: DeviceSample::default(),
            pool: PoolStats::default(),
        }
    }
}

/// What one device did over the averaged part.
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

impl DeviceUse {
    pub(super) fn of(counted: Counters, span: Nanos) -> DeviceUse {
        let Counters { reads, writes, read_bytes, written_bytes, busy_ns, .. } = counted;
        let utilisation = busy_ns as f64 / span.0.max(1) as f64;
        DeviceUse { utilisation, reads, writes, read_bytes, written_bytes }
    }
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
    /// The buffer pool when the averaged part began, counted since the database was opened.
    pub before: PoolStats,
    /// The buffer pool at the end of the last window; subtract `before` for the averaged part.
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
