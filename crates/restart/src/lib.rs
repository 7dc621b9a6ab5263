//! Finding the flash tier warm again: what is kept beside the slots, and what is believed of it.
//!
//! Modules in reading order: `found`, what opening found on the device and what the log says of it;
//! `rows`, which restart method it is; then the methods themselves, `forget`, `mmr`, `lbr`, `lvr`
//! and `warm`. Below them: `keeper`, the hooks through which a method follows the states of the
//! slots; `recover`, what an opening asks of its table; `site`, the pool as a method sees it;
//! `settings` and `tuning`, what it is told; `images`, what is believed of the slots; `records`,
//! those in the log; `header`, which database the tier belongs to; `layout`, where things lie on
//! the flash device.
//!
//! ```text
//!   look          adopt          load          the engine's analysis         BufferPool
//!  header -----> stamp -----> table of slots ---------------------> images -----------> slots
//!     |  not ours: cold          |  damaged: cold     what the log contradicts goes
//! ```
//!
//! - X1: what is not provably this database's, of this session's history, is not looked at: the
//!   tier starts cold, and nothing is lost, since the log has every change that is not at home.
//! - X2: no page is served from a slot unless its bytes say that they are that page.

#![forbid(unsafe_code)]

mod found;
mod rows;

mod forget;
mod lbr;
mod lvr;
mod mmr;
mod warm;

mod header;
mod images;
mod keeper;
mod layout;
mod records;
mod recover;
mod settings;
mod site;
mod tuning;

#[cfg(test)]
mod model;

pub use found::{FlashNeed, FlashRecovery, keeper_of, partitions_of};
pub use header::flash_part_of;
pub use layout::FlashLayout;
pub use recover::{ColdStart, LogFacts, PARTITION_FRAMES_MIN, ScanFrom};
pub use rows::version_bits;
pub use settings::Settings;
pub use site::{Site, TableError, TableEvent, TableLog, Waited};
pub use tuning::RestartTuning;
pub use warm::write_synthetic_table;

pub use keeper::{Freed, Held, Keeper};
pub use records::unlogged;
pub use terrace_tier::Image;

/// Entry points for fuzzing: whatever a device or the log returns, each returns.
#[doc(hidden)]
pub mod fuzz {
    /// Entries of the memory-mapped table.
    pub fn mapped_table(bytes: &[u8]) {
        super::mmr::fuzz(bytes);
    }

    /// Entries of the flusher's table.
    pub fn flushed_table(bytes: &[u8]) {
        super::lvr::fuzz(bytes);
    }

    /// The header, and pages of the journalled table.
    pub fn journalled_table(bytes: &[u8]) {
        super::header::fuzz(bytes);
        super::warm::fuzz(bytes);
    }

    /// Records of the restarts in the log.
    pub fn flash_record(bytes: &[u8]) {
        super::records::fuzz(bytes);
    }
}
