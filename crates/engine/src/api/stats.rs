//! What an open database counts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_device::Counters;
use terrace_pool::PoolStats;
use terrace_rt::Nanos;

use crate::api::spilling;
use crate::{Database, Error, Lsn, TransactionId};

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
    /// find those on disk. Some hundred KiB may stay for the next snapshot.
    pub version_bytes: u64,
    /// Gauge: where the log ended when the oldest snapshot that is open was begun.
    pub oldest_snapshot_at: Option<Lsn>,
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
    /// Gauge: the open transaction that began to write first: the log is kept from there on. `None`
    /// if there is none, or it is one of the engine's own.
    pub holder: Option<TransactionId>,
    /// Gauge: bytes of log since that one began.
    pub held_bytes: u64,
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

/// What a table takes: see [`Database::table_stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStats {
    /// Rows that are committed; `None` until [`Table::len`](crate::Table::len) or
    /// [`Database::check`] has counted the rows of a table of an older version.
    pub rows: Option<u64>,
    /// Pages that belong to it, those of large values included.
    pub pages: u64,
    /// Bytes of these pages.
    pub bytes: u64,
    /// Pages from its root to a row, both included.
    pub depth: u32,
}

impl Database {
    /// Counters and gauges of transactions, log, memory, flash and devices.
    pub fn stats(&self) -> Stats {
        let engine = self.engine();
        let (locks, tally) = (engine.locks.counts(), &engine.tally);
        let mut log = engine.log.stats();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        log.checkpoints = count(&tally.checkpoints);
        log.checkpoint_time = Nanos(count(&tally.checkpoint_ns));
        log.table_time = Nanos(count(&tally.table_ns));
        if let Some((holder, held_bytes)) = engine.held_log() {
            (log.holder, log.held_bytes) = (holder, held_bytes);
        }
        let transactions = TransactionStats {
            commits: tally.commits.sum(),
            rollbacks: tally.rollbacks.sum(),
            conflicts: count(&tally.conflicts),
            lock_waits: locks.waits,
            lock_escalations: count(&tally.escalations),
            locks: locks.stored,
            active: engine.locks.owners_count() + engine.versions.open_count(),
            oldest_snapshot_at: engine.versions.horizon().oldest(),
            ..spilling::stats(engine)
        };
        Stats {
            pool: engine.pool.stats(),
            log,
            transactions,
            home_device: engine.home.counters(),
            flash_device: engine.flash.as_ref().map(|device| device.counters()),
            log_device: engine.log_device.counters(),
            cached: CachedParts {
                home: engine.home.is_cached(),
                flash: engine.flash.as_ref().is_some_and(|device| device.is_cached()),
                log: engine.log_device.is_cached(),
            },
            home_used_bytes: engine.trees.used_bytes(),
        }
    }

    /// The names of all tables, uncommitted ones included, and the bytes of the pages that each
    /// uses. It reads the allocation maps, no rows.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `Device`, `Failed`.
    pub fn table_bytes(&self) -> Result<BTreeMap<String, u64>, Error> {
        self.engine().check_beginning()?;
        self.engine().trees.table_bytes().map_err(|error| self.engine().explain(error))
    }

    /// What each table takes, uncommitted tables included, by name. It reads the allocation maps
    /// and the root of each table, no rows.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `Device`, `Failed`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use terrace::TableDef;
    /// # let db = terrace::doc_test::database();
    /// const STOCK: TableDef<u64, &str> = TableDef::new("stock");
    /// db.write(|txn| txn.open_table(STOCK)?.insert(1, "apples"))?;
    /// let stock = db.table_stats()?["stock"];
    /// assert_eq!((stock.rows, stock.depth), (Some(1), 1));
    /// assert_eq!(stock.bytes, stock.pages * 8192);
    /// # Ok::<(), terrace::Error>(())
    /// ```
    pub fn table_stats(&self) -> Result<BTreeMap<String, TableStats>, Error> {
        let engine = self.engine();
        engine.check_beginning()?;
        engine.check_running()?;
        engine.trees.table_stats(&engine.counts).map_err(|error| engine.explain(error))
    }
}
