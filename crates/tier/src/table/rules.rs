//! What a table is made for.

use terrace_policy::{AdmissionRule, CleanerOrder, Costs, Design, TacRule};

use super::VersionBits;
use crate::LogSizes;
use crate::auto::SKETCH_SLOTS;

/// What a table is made for.
#[derive(Clone)]
pub struct SlotRules {
    /// Where pages go, what is admitted and which slot is reused next.
    pub design: Design,
    /// Which dirty slot is cleaned first.
    pub order: CleanerOrder,
    /// How much of a copy's version is kept.
    pub versions: VersionBits,
    /// Which page TAC admits.
    pub tac_rule: TacRule,
    /// What requests cost.
    pub costs: Costs,
    /// Slots of all partitions.
    pub tier_slots: u32,
    /// The sketch of uses, of a design that admits by them, is made for one in this number of
    /// slots.
    pub sketch_one_in: u32,
    /// Of an append log.
    pub log: LogSizes,
    /// Whether copies are kept as bases of changes (table.S5).
    pub keeps_bases: bool,
    /// Whether flash is a part of the database: what is there is as good as at home.
    pub is_persistent: bool,
    /// Whether a slot is used again only when the table on flash says that it may be.
    pub waits_for_table: bool,
}

impl SlotRules {
    /// One in how many slots the sketch of uses is made for, unless others are asked for.
    #[must_use]
    pub fn usual_sketch(design: &Design) -> u32 {
        if design.admission == AdmissionRule::Chosen { SKETCH_SLOTS } else { 1 }
    }

    /// Those of a cache whose restart method keeps nothing, in one partition of `slots`.
    #[must_use]
    pub fn of_cache(design: Design, slots: u32, costs: Costs) -> SlotRules {
        SlotRules {
            design,
            order: CleanerOrder::Lru2Age,
            versions: VersionBits::None,
            tac_rule: TacRule::HotterThanColdest,
            costs,
            tier_slots: slots,
            sketch_one_in: SlotRules::usual_sketch(&design),
            log: LogSizes::NONE,
            keeps_bases: false,
            is_persistent: false,
            waits_for_table: false,
        }
    }
}
