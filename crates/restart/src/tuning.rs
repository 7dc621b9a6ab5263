//! What can be set of the published restarts, with the papers' values as defaults.

use terrace_page::PAGE_SIZE;
use terrace_rt::Nanos;

/// How the restart methods of the ICDE 2013 paper harden their tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartTuning {
    /// MMR: bytes of the table that are written at once, around the entry that changed: a page of
    /// the memory that the paper maps. A power of two of at least 512.
    // Source: [S3 III-B2: 4 KiB].
    pub mmr_unit: u32,
    /// LBR: writes that overwrite a clean slot and share one force of the log, at most; one turns
    /// group-writing off.
    // Source: [S3 III-C3: eight].
    pub lbr_group: u32,
    /// LBR: how long such a write waits for others, at most.
    // Source: [sources.R19].
    pub lbr_timeout: Nanos,
    /// LVR: parts of the table, each hardened by one write.
    // Source: [S3 III-D2].
    pub lvr_chunks: u32,
    /// LVR: how long the flusher sleeps.
    // Source: [S3 III-D2].
    pub lvr_pause: Nanos,
    /// LVR: chunks after which it does.
    // Source: [S3 III-D2].
    pub lvr_chunks_per_pause: u32,
    /// LVR: chunks after which a checkpoint's pass lets others run.
    // Source: [S3 III-D2].
    pub lvr_chunks_per_yield: u32,
    /// FaCE's map: the number of segments that the slots are divided into. The paper's have 64,000
    /// entries, an eighth to a sixty-fourth of its tiers; here 16.
    // Source: [sources.U1; sources.R21].
    pub map_segments: u32,
    /// CAC's map: one in this number of the slots is in the eviction zone, beside those that are
    /// free.
    // Source: [sources.R21].
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
