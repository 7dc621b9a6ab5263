//! What the uncut run of a script's path did, by what the engine and the devices counted.

use std::fmt;

use terrace::Stats;
use terrace_policy::{Design, Inclusion, Restart};

/// What the uncut run of a path did.
pub(super) struct Seen {
    pub design: Design,
    pub restart: Restart,
    /// Counted before and after it; zeroes where the database is not open.
    pub before: Stats,
    pub after: Stats,
    /// Writes to the flash device.
    pub flash_writes: usize,
    /// Writes to home.
    pub home_writes: usize,
    /// Barriers on the log.
    pub log_syncs: usize,
}

/// What a script that missed its path did instead.
impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = (&self.before.pool, &self.after.pool);
        write!(
            f,
            "admissions {}, invalidations {}, evicted dirty {}, checkpoints {}, records {}, \
             slots used {} to {}, slots dirty {} to {}, frames dirty {} to {}, flash writes {}, \
             home writes {}, log forces {}",
            self.admissions(),
            self.invalidations(),
            self.evicted_dirty(),
            self.checkpoints(),
            self.records(),
            before.slots_used,
            after.slots_used,
            before.slots_dirty,
            after.slots_dirty,
            before.frames_dirty,
            after.frames_dirty,
            self.flash_writes,
            self.home_writes,
            self.log_syncs,
        )
    }
}

impl Seen {
    /// Bytes of the device that the log has taken.
    pub fn log_growth(&self) -> i64 {
        self.after.log.allocated_bytes as i64 - self.before.log.allocated_bytes as i64
    }

    pub fn records(&self) -> u64 {
        self.after.log.records - self.before.log.records
    }

    pub fn admissions(&self) -> u64 {
        self.after.pool.admissions - self.before.pool.admissions
    }

    pub fn invalidations(&self) -> u64 {
        self.after.pool.invalidations - self.before.pool.invalidations
    }

    /// Slots that were taken for pages and are used, or were left as their pages were read.
    pub fn grown(&self) -> i64 {
        let is_exclusive = self.design.inclusion == Inclusion::Exclusive;
        let left = if is_exclusive { self.invalidations() } else { 0 };
        self.after.pool.slots_used as i64 - self.before.pool.slots_used as i64 + left as i64
    }

    pub fn evicted_dirty(&self) -> u64 {
        self.after.pool.evictions_dirty - self.before.pool.evictions_dirty
    }

    pub fn checkpoints(&self) -> u64 {
        self.after.log.checkpoints - self.before.log.checkpoints
    }
}
