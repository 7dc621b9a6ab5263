//! The rows of [`terrace_policy::RESTARTS`]: the reader and the keeper of each one's table.

use terrace_policy::RestartKind;
use terrace_tier::VersionBits;

use super::keeper::Keeper;
use super::layout::FlashLayout;
use super::recover::Recover;
use super::settings::Settings;
use super::{forget, lbr, lvr, mmr, warm};

/// The reader of the table that `kind` keeps, for a pool as `settings` says.
pub(super) fn table_of(
    kind: RestartKind,
    layout: FlashLayout,
    settings: &Settings,
) -> Box<dyn Recover> {
    let mutations = settings.mutations;
    match kind {
        RestartKind::Forget => Box::new(forget::Nothing),
        RestartKind::MemoryMapped => Box::new(mmr::MappedImages::new(&layout)),
        RestartKind::LogBased => Box::new(lbr::LoggedImages::new(&layout, mutations)),
        RestartKind::LazyVerification => Box::new(lvr::FlushedImages::new(&layout, mutations)),
        kind => Box::new(warm::WarmTable::new(form_of(kind), settings)),
    }
}

/// The keeper of the restart that `settings` names, of the table that was begun at `table`; whether
/// that `was_loaded` by this opening, and where a journal goes on then.
pub(super) fn keeper_of(
    settings: &Settings,
    layout: FlashLayout,
    (table, was_loaded): (u64, bool),
    resume: impl FnOnce() -> warm::Resume,
) -> Option<Box<dyn Keeper>> {
    match settings.kind {
        RestartKind::Forget => None,
        RestartKind::MemoryMapped => {
            Some(Box::new(mmr::MappedTable::new(layout, table, was_loaded, settings)))
        }
        RestartKind::LogBased => Some(Box::new(lbr::LoggedTable::new(layout, table, settings))),
        RestartKind::LazyVerification => Some(Box::new(lvr::Flusher::new(layout, table, settings))),
        kind => {
            let pace = pace_of(settings);
            Some(Box::new(warm::TableKeeper::new(layout, form_of(kind), resume(), pace)))
        }
    }
}

/// The keeper of a device whose header could not be written.
pub(super) fn disowned() -> Option<Box<dyn Keeper>> {
    Some(Box::new(forget::Disowned))
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
