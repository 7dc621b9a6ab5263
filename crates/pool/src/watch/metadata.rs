//! The memory that the books of a flash tier take: who pays for it, and how much it is.
//!
//! - Idea: directory, slots, orders, ghosts and tables are memory that could have been frames. The
//!   tier of 2011 took 88 bytes for each page of flash, a hundredth of it, and its comparisons left
//!   that out; the FASC paper charges it [S2 7.3].
//! - M1: what is charged is what an open pool of this configuration allocates, rounded up to whole
//!   frames. The structures of one partition, the largest, are built for it, and asked.
//! - M2: what comes and goes is not in it: the bytes of runs on their way home, and the records of
//!   a table that are still to be written.
//! - M3: TAC's temperatures count as if every extent of home had been asked for.

use terrace_page::PAGE_SIZE;
use terrace_policy::{Costs, Replacement, Temperatures};

use crate::build::Plan;
use crate::flow::choosing::Choosing;
use crate::flow::cleaning::Sweep;
use crate::shares::TierShares;
use crate::{PoolConfig, PoolError};
use terrace_restart::{FlashLayout, keeper_of};

/// Who pays for the memory that the books of the flash tier take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// Nobody: it is beside the frames, as in the papers' comparisons but one.
    Free,
    /// The frames: there are fewer, and together they take what was asked for.
    Charged,
}

/// Fewer frames than this are not left: one task's splits and evictions may latch them all.
const FRAMES_LEFT_MIN: u64 = 16;

impl PoolConfig {
    /// Bytes that the books of the flash tier will take (M1), over a home of so many pages.
    #[must_use]
    pub fn metadata_bytes(&self, home_pages: u64) -> u64 {
        let slots = if self.design.uses_flash() { self.flash_slots } else { 0 };
        if slots == 0 {
            return 0;
        }
        // Sizes do not depend on what requests cost.
        let costs = Costs::PUBLISHED;
        let layout = FlashLayout::new(slots, self.restart.kind);
        let replacement = self.design.replacement;
        let shares = TierShares::new(replacement, Temperatures::new(self.tac.costs, 1), &costs);
        let plan = Plan::new(self, &layout, &shares, None, &costs);
        let of_partitions = plan.largest_bytes() as u64 * u64::from(self.partitions_count());
        let of_temperatures = match replacement {
            Replacement::Temperature => Temperatures::bytes_for(home_pages) as u64,
            _ => shares.bytes() as u64,
        };
        let of_choosing = Choosing::new(self, &costs).map_or(0, |choosing| choosing.bytes());
        let of_keeper =
            keeper_of(&self.of_restart(), &layout, None).map_or(0, |keeper| keeper.bytes());
        let of_sweep = Sweep::of(self.design.cleaning, slots, self.lambda).bytes();
        let of_others = of_choosing + of_keeper + of_sweep;
        of_partitions + of_temperatures + of_others as u64
    }

    /// Takes the books of the flash tier from the frames, if they are to pay for them: to be called
    /// once, when all else is set, for a home of so many pages.
    ///
    /// # Errors
    ///
    /// `Config` if the books take all of the memory.
    pub fn charge(&mut self, home_pages: u64) -> Result<(), PoolError> {
        if self.metadata == Metadata::Free {
            return Ok(());
        }
        let frames = self.metadata_bytes(home_pages).div_ceil(PAGE_SIZE as u64);
        let left =
            u64::from(self.frames).checked_sub(frames).filter(|&left| left >= FRAMES_LEFT_MIN);
        let what = "the books of the flash tier take all of the memory: a smaller flash, or more \
                    memory, or leave them uncharged";
        self.frames = left.ok_or(PoolError::Config { what })? as u32;
        Ok(())
    }
}
