//! What a restart method is told of the pool that it is to keep.

use terrace_policy::{FlashRole, RestartKind};

use terrace_tier::Mutations;

use super::tuning::RestartTuning;

/// Which restart, of what tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which restart.
    pub kind: RestartKind,
    /// Slots of the tier.
    pub slots: u32,
    /// Partitions into which the tier is divided.
    pub partitions: u32,
    /// Whether flash is a part of the database.
    pub role: FlashRole,
    /// Slots that are written together, at most.
    pub group: u32,
    /// Whether slots are appended, and written together.
    pub appends: bool,
    /// How the restart hardens its table.
    pub tuning: RestartTuning,
    /// Faults that tests put in force.
    pub mutations: Mutations,
}
