//! What can be set of the published restarts, with the papers' values as defaults; and the switches
//! that take their cures out.

use terrace_page::PAGE_SIZE;
use terrace_rt::Nanos;

/// How the restarts of the ICDE 2013 paper harden their tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartTuning {
    /// MMR: bytes of the table that are written at once, around the entry that changed: a page of
    /// the memory that the paper maps. A power of two of at least 512 [S3 III-B2: 4 KiB].
    pub mmr_unit: u32,
    /// LBR: writes that overwrite a clean slot and share one force of the log, at most; one turns
    /// group-writing off [S3 III-C3: eight].
    pub lbr_group: u32,
    /// LBR: how long such a write waits for others, at most [sources.R19].
    pub lbr_timeout: Nanos,
    /// LVR: parts of the table, each hardened by one write [S3 III-D2].
    pub lvr_chunks: u32,
    /// LVR: how long the flusher sleeps [S3 III-D2].
    pub lvr_pause: Nanos,
    /// LVR: chunks after which it does [S3 III-D2].
    pub lvr_chunks_per_pause: u32,
    /// LVR: chunks after which a checkpoint's pass lets others run [S3 III-D2].
    pub lvr_chunks_per_yield: u32,
    /// FaCE's map: a segment has one of so many parts of the slots. The paper's have 64,000 entries
    /// [sources.U1], an eighth to a sixty-fourth of its tiers; here 16 [sources.R21].
    pub map_segments: u32,
    /// CAC's map: one of so many parts of the slots is in the eviction zone, beside those that are
    /// free [sources.R21].
    pub map_zones: u32,
}

impl Default for RestartTuning {
    fn default() -> RestartTuning {
        RestartTuning {
            mmr_unit: 4096,
            lbr_group: 8,
            lbr_timeout: Nanos(2_000_000),
            lvr_chunks: 1024,
            lvr_pause: Nanos(500_000_000),
            lvr_chunks_per_pause: 8,
            lvr_chunks_per_yield: 64,
            map_segments: 16,
            map_zones: 16,
        }
    }
}

impl RestartTuning {
    /// What is wrong with it, if something is.
    #[must_use]
    pub fn flaw(&self) -> Option<&'static str> {
        if !self.mmr_unit.is_power_of_two() || !(512..=PAGE_SIZE as u32).contains(&self.mmr_unit) {
            return Some("restart_tuning.mmr_unit must be a power of two from 512 to 8192");
        }
        let lvr = [self.lvr_chunks, self.lvr_chunks_per_pause, self.lvr_chunks_per_yield];
        let counts = [&[self.lbr_group, self.map_segments, self.map_zones][..], &lvr].concat();
        counts.contains(&0).then_some("counts of restart_tuning must not be zero")
    }
}

/// Switches that take out one cure of a restart each, so that tests can show what it cures. All on
/// by default; nothing but a test turns one off.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartRules {
    /// What is read from a slot must be the page that the slot is said to hold.
    pub checks_page_id: bool,
    /// What is read from a slot must be the version that the slot is said to hold, where that is
    /// kept.
    pub checks_lsn: bool,
    /// MMR: an entry says that its slot holds a page only once the page is durable there.
    pub mmr_syncs_slots: bool,
    /// MMR: CLEAN -> READY is durable before the slot is overwritten.
    pub mmr_hardens_reused: bool,
    /// MMR: -> FREE is durable before the page changes.
    pub mmr_hardens_modified: bool,
    /// MMR: a table that cannot be written is given up, for this session and the next opening.
    pub mmr_gives_up: bool,
    /// LBR: a slot is durable before its POST_WRITE is logged.
    pub lbr_syncs_slots: bool,
    /// LBR: PRE_INVALIDATE is durable before the slot is overwritten.
    pub lbr_forces_before_write: bool,
    /// LBR: so is the change that freed the slot.
    pub lbr_forces_freed: bool,
    /// LBR: only a checkpoint that ended has the table.
    pub lbr_ended_checkpoints: bool,
    /// LBR: a PRE_INVALIDATE that finds the log full gives up what the log says of the table.
    pub lbr_gives_up: bool,
    /// LVR: beforeHardeningLSN is what is durable, not the log's tail.
    pub lvr_durable_lsn: bool,
    /// LVR: entries that are older than the log go.
    pub lvr_shallow: bool,
    /// LVR: a BUF_WRITE frees older copies of its pages.
    pub lvr_buf_write_frees: bool,
    /// LVR: a checkpoint ends after a full pass of the flusher.
    pub lvr_checkpoint_waits: bool,
    /// FASC's map: log pages of one write count together.
    pub chunks_count_together: bool,
}

impl Default for RestartRules {
    fn default() -> RestartRules {
        RestartRules {
            checks_page_id: true,
            checks_lsn: true,
            mmr_syncs_slots: true,
            mmr_hardens_reused: true,
            mmr_hardens_modified: true,
            mmr_gives_up: true,
            lbr_syncs_slots: true,
            lbr_forces_before_write: true,
            lbr_forces_freed: true,
            lbr_ended_checkpoints: true,
            lbr_gives_up: true,
            lvr_durable_lsn: true,
            lvr_shallow: true,
            lvr_buf_write_frees: true,
            lvr_checkpoint_waits: true,
            chunks_count_together: true,
        }
    }
}
