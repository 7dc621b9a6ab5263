//! What an open database counts.

use terrace_device::Counters;
use terrace_pool::PoolStats;
use terrace_rt::Nanos;

/// Transactions since the database was opened, and gauges (named so).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionStats {
    /// Committed, read-only ones included.
    pub commits: u64,
    /// Rolled back, conflicts included.
    pub rollbacks: u64,
    /// Refused because of a deadlock.
    pub conflicts: u64,
    /// Lock requests that had to wait.
    pub lock_waits: u64,
    /// Row locks replaced by one on the table.
    pub lock_escalations: u64,
    /// Gauge: locks held or waited for.
    pub locks: u64,
    /// Gauge: transactions open, snapshots included.
    pub active: u64,
    /// Gauge: snapshots open.
    pub snapshots: u64,
    /// Gauge: how long the oldest snapshot is open; zero if none is.
    pub oldest_snapshot: Nanos,
    /// Gauge: bytes of memory of the versions that are kept for snapshots, and of what it takes to
    /// find those on disk.
    pub version_bytes: u64,
    /// Gauge: bytes of versions on disk.
    pub version_disk_bytes: u64,
    /// Gauge: sorted runs of versions on disk.
    pub version_runs: u64,
    /// Reads and writes of versions on disk that failed, or returned other bytes than were written.
    pub version_failures: u64,
}

/// The log since the database was opened, and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStats {
    /// Records appended.
    pub records: u64,
    /// Bytes of those records.
    pub bytes: u64,
    /// Writes to the log device.
    pub writes: u64,
    /// Durability barriers.
    pub forces: u64,
    /// Commits that waited for a barrier: over `forces`, the size of a commit group.
    pub durable_commits: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Time that these took together.
    pub checkpoint_time: Nanos,
    /// Of that, until the table of the flash tier had caught up, where the restart method has one
    /// that checkpoints wait for.
    pub table_time: Nanos,
    /// Gauge: bytes that recovery would need.
    pub used_bytes: u64,
    /// Gauge: bytes that the log may have: its size, or its limit if it grows, or what it has if
    /// its device has no room for more.
    pub capacity_bytes: u64,
    /// Gauge: bytes that the log has on its device, without the doublewrite area.
    pub allocated_bytes: u64,
}

/// Parts of a database that lie in the page cache of the operating system too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachedParts {
    /// The home.
    pub home: bool,
    /// The flash tier.
    pub flash: bool,
    /// The log.
    pub log: bool,
}

/// Counters and gauges of an open database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Memory and flash.
    pub pool: PoolStats,
    /// The log.
    pub log: LogStats,
    /// Transactions and locks.
    pub transactions: TransactionStats,
    /// The home device.
    pub home_device: Counters,
    /// The flash device, if there is one.
    pub flash_device: Option<Counters>,
    /// The log device.
    pub log_device: Counters,
    /// What the operating system keeps copies of in its page cache, since its file system has no
    /// direct I/O: memory that is not counted here.
    pub cached: CachedParts,
    /// Bytes of the home that belong to tables or maps.
    pub home_used_bytes: u64,
}
