//! How many pages an append log takes, and frees, together.
//!
//! A group of victims takes its part of memory until it is full, and its part of the log when it
//! leaves: so a small partition has smaller groups than were asked for.

use terrace_policy::{Batch, BlockRules};

/// A group takes at most one in this number of the frames, and of the slots.
const PLACES_PER_GROUP_MIN: u32 = 8;
/// The least slots that a log keeps free or leaving: that many pages can be on their way.
const SLOTS_AHEAD_MIN: u32 = 32;

/// What is asked of append logs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogRules {
    /// Pages of a group of FaCE, at most.
    pub group: u32,
    /// Pages of a block of FASC, at most.
    pub block: u32,
    /// Page requests of a window of FASC.
    pub window: u64,
    /// Share of the slots from which on a block of FASC leaves for each that is written.
    pub full: f64,
    /// Pages of a block that are written home at once.
    pub migration: u32,
}

impl Default for LogRules {
    /// As published; the share is not [sources.R15].
    fn default() -> LogRules {
        LogRules { group: 64, block: 128, window: 4096, full: 0.95, migration: 8 }
    }
}

impl LogRules {
    /// Batches of a block on their way home at once: one such buffer fills while the other is
    /// written.
    pub const MIGRATIONS: usize = 2;

    /// Pages that are to be appended together.
    #[must_use]
    pub fn asked(&self, batch: Batch) -> u32 {
        match batch {
            Batch::Page => 1,
            Batch::Group => self.group,
            Batch::Block => self.block,
        }
    }

    /// The sizes of a log of `slots`, for the victims of `frames`.
    #[must_use]
    pub fn sizes(&self, batch: Batch, frames: u32, slots: u32) -> LogSizes {
        let places = frames.min(slots) / PLACES_PER_GROUP_MIN;
        let group = self.asked(batch).min(places).max(1);
        let ahead = match batch {
            // Whole blocks, and one in reserve [sources.R14].
            Batch::Block => (2 * group).max((f64::from(slots) * (1.0 - self.full)) as u32),
            Batch::Page | Batch::Group => {
                (2 * group).max(SLOTS_AHEAD_MIN).min(slots / PLACES_PER_GROUP_MIN).max(group)
            }
        };
        LogSizes { group, ahead, window: self.window }
    }
}

/// The sizes of one append log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSizes {
    /// Pages that are appended together, and leave the log together, at most.
    pub group: u32,
    /// Slots that are free, or leaving, before a page is appended: a group that is being written,
    /// and one that is on its way home meanwhile.
    pub ahead: u32,
    /// Page requests of a window, if the log is replaced by blocks.
    pub window: u64,
}

impl LogSizes {
    /// Of a tier that does not append.
    pub const NONE: LogSizes = LogSizes { group: 1, ahead: 1, window: 1 };

    /// How the slots are put into blocks.
    #[must_use]
    pub fn blocks(&self) -> BlockRules {
        BlockRules { block_slots: self.group, window_requests: self.window }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_rt::Prng;

    #[test]
    fn a_group_that_leaves_makes_room_for_one_that_comes() {
        let mut prng = Prng::from_seed(7);
        for step in 0..10_000 {
            let (frames, slots) = (1 + prng.below(4096) as u32, 1 + prng.below(4096) as u32);
            let rules = LogRules { group: 1 + prng.below(1024) as u32, ..LogRules::default() };
            for batch in [Batch::Page, Batch::Group, Batch::Block] {
                let sizes = rules.sizes(batch, frames, slots);
                assert!((1..=rules.asked(batch)).contains(&sizes.group), "step {step}: {sizes:?}");
                let is_small = sizes.group <= frames.min(slots) / 8;
                assert!(is_small || sizes.group == 1, "step {step}: {sizes:?}");
                assert!(sizes.ahead >= sizes.group, "step {step}: {sizes:?}");
                assert!(sizes.group == 1 || sizes.ahead < slots, "step {step}: {sizes:?}");
            }
        }
    }
}
