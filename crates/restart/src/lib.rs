//! Finding the flash tier warm again: what is kept beside the slots, and what is believed of it.
//!
//! Modules in reading order: `layout`, where things lie on the flash device; `header`, whose tier
//! it is; `found`, what opening found there and what the log says of it; `settings`, what a restart
//! is told of the pool; `site`, the pool as a restart sees it; `keeper`, the hooks through which a
//! restart follows the states of the slots; then the restarts themselves.
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
mod header;
mod images;
mod keeper;
mod layout;
mod records;
mod settings;
mod site;
mod tuning;

mod forget;
mod lbr;
mod lvr;
mod mmr;
mod warm;

#[cfg(test)]
mod model;

pub use found::{
    ColdStart, FlashNeed, FlashRecovery, Image, LogFacts, PARTITION_FRAMES_MIN, ScanFrom,
    partitions_of,
};
pub use header::flash_part_of;
pub use layout::FlashLayout;
pub use settings::Settings;
pub use site::{Site, TableError, TableEvent, TableLog, Waited};
pub use tuning::{RestartRules, RestartTuning};
pub use warm::write_synthetic_table;

pub use keeper::{Freed, Held, Keep, Keeper};
pub use records::unlogged;

use terrace_policy::RestartKind;
use terrace_tier::VersionBits;

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

/// The reader of the table that `kind` keeps, for a pool as `settings` says.
fn table_of(
    kind: RestartKind,
    layout: FlashLayout,
    settings: &Settings,
) -> Box<dyn found::Recover> {
    let rules = settings.rules;
    match kind {
        RestartKind::Forget => Box::new(forget::Nothing),
        RestartKind::MemoryMapped => Box::new(mmr::MappedImages::new(&layout)),
        RestartKind::LogBased => Box::new(lbr::LoggedImages::new(&layout, rules)),
        RestartKind::LazyVerification => Box::new(lvr::FlushedImages::new(&layout, rules)),
        kind => Box::new(warm::WarmTable::new(form_of(kind), settings)),
    }
}

/// The keeper of the restart that `settings` names, which goes on from what `recovery` found.
#[must_use]
pub fn keeper_of(
    settings: &Settings,
    layout: &FlashLayout,
    recovery: Option<&FlashRecovery>,
) -> Keeper {
    let table = recovery.map_or(0, FlashRecovery::table_stamp);
    let was_loaded = recovery.is_some_and(|recovery| recovery.cold().is_none());
    if recovery.is_some_and(FlashRecovery::is_disowned) {
        return Some(Box::new(forget::Disowned));
    }
    match settings.kind {
        RestartKind::Forget => None,
        RestartKind::MemoryMapped => {
            Some(Box::new(mmr::MappedTable::new(*layout, table, was_loaded, settings)))
        }
        RestartKind::LogBased => Some(Box::new(lbr::LoggedTable::new(*layout, table, settings))),
        RestartKind::LazyVerification => {
            Some(Box::new(lvr::Flusher::new(*layout, table, settings)))
        }
        kind => {
            let resume = recovery.map(FlashRecovery::resume).unwrap_or_default();
            let pace = pace_of(settings);
            Some(Box::new(warm::TableKeeper::new(*layout, form_of(kind), resume, pace)))
        }
    }
}

/// How the changes of the table get on flash under a restart that keeps one as `warm` does.
fn form_of(kind: RestartKind) -> warm::FormKind {
    match kind {
        RestartKind::MapChunks | RestartKind::MapThrough => warm::FormKind::Chunks,
        RestartKind::MapSegments | RestartKind::MapZone => warm::FormKind::Frontier,
        _ => warm::FormKind::Journal,
    }
}

/// When they do.
fn pace_of(settings: &Settings) -> warm::Pace {
    match (settings.kind, settings.appends) {
        (RestartKind::MapThrough, _) => warm::Pace::AtOnce,
        // One append to the log pages for each block that is written [sources.R16].
        (RestartKind::MapChunks, true) => warm::Pace::Filled(settings.group as usize),
        (RestartKind::MapSegments, _) => warm::Pace::KeptBack(warm::Frontiers {
            reach: warm::Reach::Rears,
            parts: settings.tuning.map_segments,
            group: settings.group,
        }),
        (RestartKind::MapZone, _) => warm::Pace::KeptBack(warm::Frontiers {
            reach: warm::Reach::Zone,
            parts: settings.tuning.map_zones,
            group: 1,
        }),
        _ => warm::Pace::Gathered,
    }
}

/// What the slots remember of their copies' versions. The papers' memory-mapped and log-based
/// tables have no LSN, and cannot tell an old copy of the same page from the right one.
#[must_use]
pub fn version_bits(kind: RestartKind) -> VersionBits {
    match kind {
        RestartKind::Forget | RestartKind::MemoryMapped | RestartKind::LogBased => {
            VersionBits::None
        }
        RestartKind::LazyVerification => VersionBits::Full,
        _ => VersionBits::Low,
    }
}
