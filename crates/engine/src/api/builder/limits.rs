//! Options that limit what transactions take: locks, versions, time.

use std::sync::Arc;

use terrace_device::Device;
use terrace_rt::Nanos;

use super::Builder;

impl Builder {
    /// Most memory for locks, in bytes: 64 MiB by default. It is allocated as needed.
    #[must_use]
    pub fn lock_memory(mut self, bytes: u64) -> Builder {
        self.lock_bytes = bytes;
        self
    }

    /// Most memory for versions, in bytes: 64 MiB by default, at least 64 KiB and at most 64 GiB.
    /// It is allocated as needed, on top of [`Builder::memory`].
    ///
    /// While a snapshot is open ([`Database::begin_read`](crate::Database::begin_read)), what rows
    /// were before they are changed is kept here: about 90 bytes for each row that was changed
    /// since the oldest snapshot was opened, its key and its value. Beyond this limit the oldest
    /// snapshots are ended, and return [`Error::SnapshotTooOld`](crate::Error::SnapshotTooOld);
    /// writers never wait for them. With [`Builder::version_limit`], versions go to disk before
    /// that.
    ///
    /// Transactions that change more than 4 MiB keep how to undo it in as much memory again. One
    /// that finds no room there makes readers that begin before it ends take locks.
    ///
    /// Creating or opening the database fails with `InvalidOption` if the limit is out of range.
    #[must_use]
    pub fn version_memory(mut self, bytes: u64) -> Builder {
        self.version_bytes = bytes;
        self
    }

    /// Lets versions go to disk, and gives the most space there, in bytes: at least 1 MiB. Without
    /// this option, or with 0, versions stay in memory and no file is made. Spilling is off by
    /// default because it is new, and has been tested for less time than the rest.
    ///
    /// From a quarter of [`Builder::version_memory`] on, the versions of transactions that have
    /// ended are written to sorted runs. Those of open transactions stay in memory. The oldest
    /// snapshots are ended, and return [`Error::SnapshotTooOld`](crate::Error::SnapshotTooOld), if
    /// versions take all of `version_memory`, since they come faster than the disk takes them, or
    /// half of it while the file is full and merging its runs can free nothing: writers wait
    /// neither for snapshots nor for the disk. The file never takes more than this limit. A part of
    /// it is left for merges: a sixth of 1 MiB, an 80th of 16 MiB, a 160th of 64 MiB and more.
    ///
    /// The file has no name, and is made in the folder of the home when it is needed for the first
    /// time: it goes with the process. If the home is a block device, versions stay in memory, as
    /// they do in a database on [`Builder::devices`] without a [`Builder::version_device`]. If the
    /// file fails, or its disk is full, snapshots are ended, and return
    /// [`Error::SnapshotLost`](crate::Error::SnapshotLost); nothing else is concerned.
    ///
    /// Creating or opening the database fails with `InvalidOption` if the limit is out of range.
    #[must_use]
    pub fn version_limit(mut self, bytes: u64) -> Builder {
        self.version_limit = Some(bytes);
        self
    }

    /// The device for versions, in place of a file: as [`Builder::devices`] for the parts of the
    /// database. What it holds is overwritten, and of no use afterwards. Without a
    /// [`Builder::version_limit`], versions may take all of it.
    #[must_use]
    pub fn version_device(mut self, device: Arc<dyn Device>) -> Builder {
        self.version_device = Some(device);
        self
    }

    /// How long a transaction waits for a lock before it fails with `LockTimeout`, and for space in
    /// a full log before it fails with `LogHeld`: 10 s by default.
    /// [`WriteTransaction::set_lock_timeout`](crate::WriteTransaction::set_lock_timeout) overrides
    /// it for one transaction.
    #[must_use]
    pub fn lock_timeout(mut self, limit: Nanos) -> Builder {
        self.lock_limits.timeout = limit;
        self
    }

    /// How long [`Database::close`](crate::Database::close) waits for transactions that other tasks
    /// and threads have open: 10 s by default. The next operation of one that is still open then
    /// fails with `Closed`; it is rolled back, at the next opening at the latest.
    #[must_use]
    pub fn close_timeout(mut self, limit: Nanos) -> Builder {
        self.lock_limits.close_timeout = limit;
        self
    }

    /// How many closures of [`Database::run`](crate::Database::run) run at once: 256 by default, at
    /// least 1. Each that runs has a stack of its own, of which it takes the memory that it has
    /// used. Those beyond wait in their futures.
    ///
    /// Creating or opening the database fails with `InvalidOption` if it is 0.
    #[must_use]
    pub fn run_limit(mut self, closures: usize) -> Builder {
        self.run_limit = closures;
        self
    }

    /// After how many row locks in one table a transaction tries to lock the whole table instead:
    /// 10,000 by default.
    #[must_use]
    pub fn lock_escalation(mut self, rows: usize) -> Builder {
        self.lock_limits.escalate_at = rows;
        self
    }
}
