//! What the pool counts.

use terrace_tier::Admissions;
use terrace_tier::Choice;

/// Counters since the pool was opened, and gauges (named so). Counts of hits are approximate when
/// several threads hit one frame at once; all else is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Page requests served by a frame.
    pub hits: u64,
    /// Page requests that found no frame.
    pub misses: u64,
    /// Misses served by the flash.
    pub flash_hits: u64,
    /// Of `flash_hits`, those on a page newer than home.
    pub flash_hits_dirty: u64,
    /// Pages read from flash for any purpose but cleaning.
    pub flash_reads: u64,
    /// Pages written to flash.
    pub flash_writes: u64,
    /// Writes to the table that the restart method keeps on flash.
    pub table_writes: u64,
    /// Bytes of log records in which the restart method keeps its table, without their headers.
    pub table_log_bytes: u64,
    /// Times that the restart method gave up its table, as it could not be written, or the log was
    /// full: the flash tier starts cold, or nearly so, if the database is opened before the next
    /// checkpoint (under `mmr` after it, too).
    pub tables_given_up: u64,
    /// Reads or writes of flash that failed or returned damaged bytes, and were survived.
    pub flash_faults: u64,
    /// Gauge: slots of the flash tier.
    pub slots: u64,
    /// Gauge: slots that hold a page, valid or not.
    pub slots_used: u64,
    /// Gauge: slots whose page is newer than home.
    pub slots_dirty: u64,
    /// Gauge: slots that are kept for a page although their bytes are stale (TAC), or cannot be
    /// written yet although they hold none (append logs).
    pub slots_invalid: u64,
    /// Pages of the front of an append log that were taken in again at its rear.
    pub second_chances: u64,
    /// Pages admitted to flash.
    pub admissions: u64,
    /// Pages not admitted because of their class or temperature.
    pub bypassed_by_policy: u64,
    /// Pages not admitted because more than mu requests were queued at the flash.
    pub bypassed_by_throttle: u64,
    /// Pages not admitted because the day's budget of writes to flash was spent.
    pub bypassed_by_budget: u64,
    /// Pages not admitted because no slot was free or clean.
    pub bypassed_for_room: u64,
    /// Reads of clean flash pages sent to home because more than mu requests were queued.
    pub throttled_reads: u64,
    /// Reads of clean flash pages sent to home because the flash was the busier device.
    pub spilled_reads: u64,
    /// Flash copies that became stale because their page was modified; of exclusive tiers, that
    /// went because it was read.
    pub invalidations: u64,
    /// TAC: copies abandoned because the page was dirtied, or left, before its write began.
    pub tac_abandoned: u64,
    /// Writes that the lazy cleaner sent to home.
    pub cleaner_ios: u64,
    /// Pages in those writes.
    pub cleaner_pages: u64,
    /// Read requests sent to home.
    pub home_reads: u64,
    /// Pages in those requests.
    pub home_read_pages: u64,
    /// Write requests sent to home.
    pub home_writes: u64,
    /// Pages in those requests.
    pub home_write_pages: u64,
    /// Pages that were copied to the doublewrite area before they were written home.
    pub doublewrite_pages: u64,
    /// Pages read ahead or along with a neighbour.
    pub pages_read_ahead: u64,
    /// Times that a page's latch was not free when it was asked for.
    pub latch_waits: u64,
    /// Time spent in them, in ns.
    pub latch_wait_ns: u64,
    /// Gauge: frames of memory.
    pub frames: u64,
    /// Gauge: frames that hold a page.
    pub frames_used: u64,
    /// Gauge: frames whose page is newer than home and flash.
    pub frames_dirty: u64,
    /// Frames freed by eviction.
    pub evictions: u64,
    /// Of `evictions`, those whose page had to be written first.
    pub evictions_dirty: u64,
    /// Gauge: what the design that picks itself has picked.
    pub choice: Option<Choice>,
    /// How often it picked something else.
    pub choice_changes: u64,
    /// Memory that the flash tier costs, per slot, in bytes: all that is allocated for it, rounded
    /// up.
    pub metadata_bytes_per_slot: u64,
}

impl PoolStats {
    /// Adds what a table counts itself.
    pub(crate) fn add_admissions(&mut self, of: Admissions) {
        self.admissions += of.admitted;
        self.bypassed_by_policy += of.by_policy;
        self.bypassed_by_throttle += of.throttled;
        self.bypassed_by_budget += of.over_budget;
        self.bypassed_for_room += of.no_room;
    }

    /// Adds counters; gauges are set where they are known, and admissions by the tables.
    pub(crate) fn add(&mut self, other: &PoolStats) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.flash_hits += other.flash_hits;
        self.flash_hits_dirty += other.flash_hits_dirty;
        self.flash_reads += other.flash_reads;
        self.flash_writes += other.flash_writes;
        self.table_writes += other.table_writes;
        self.table_log_bytes += other.table_log_bytes;
        self.tables_given_up += other.tables_given_up;
        self.flash_faults += other.flash_faults;
        self.second_chances += other.second_chances;
        self.throttled_reads += other.throttled_reads;
        self.spilled_reads += other.spilled_reads;
        self.invalidations += other.invalidations;
        self.tac_abandoned += other.tac_abandoned;
        self.cleaner_ios += other.cleaner_ios;
        self.cleaner_pages += other.cleaner_pages;
        self.home_reads += other.home_reads;
        self.home_read_pages += other.home_read_pages;
        self.home_writes += other.home_writes;
        self.home_write_pages += other.home_write_pages;
        self.doublewrite_pages += other.doublewrite_pages;
        self.pages_read_ahead += other.pages_read_ahead;
        self.evictions += other.evictions;
        self.evictions_dirty += other.evictions_dirty;
    }
}
