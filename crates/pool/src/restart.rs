//! The restart that the pool runs with: what it keeps, and what it wants to be told.

use std::sync::atomic::{AtomicBool, Ordering};

use terrace_restart::{ColdStart, FlashLayout, FlashRecovery, Keeper};

use crate::PoolConfig;

/// What the restart wants of the pool, and the pool of it.
pub(crate) struct RestartState {
    pub(crate) keeper: Option<Box<dyn Keeper>>,
    /// Whether copies on flash are kept as the bases of changes: redo then starts from them.
    pub(crate) keeps_bases: bool,
    /// Whether an opening may find pages on flash that are newer than home, and believe them.
    pub(crate) finds_dirty: bool,
    /// Whether flash is a part of the database.
    pub(crate) is_persistent: bool,
    /// Whether a slot is used again only when the table says durably that it may be.
    pub(crate) waits_for_table: bool,
    /// Whether it wants to know the LSNs of changes.
    pub(crate) follows_changes: bool,
    /// Why the flash tier started cold, if it did.
    pub(crate) cold_start: Option<ColdStart>,
    /// From the opening until `begin`.
    is_recovering: AtomicBool,
}

impl RestartState {
    pub(crate) fn new(
        config: &PoolConfig,
        layout: &FlashLayout,
        recovery: Option<&FlashRecovery>,
    ) -> RestartState {
        let keeper = terrace_restart::keeper_of(&config.of_restart(), layout, recovery);
        RestartState {
            keeps_bases: config.keeps_bases(),
            finds_dirty: config.finds_dirty(),
            is_persistent: config.flash_role.is_persistent(),
            waits_for_table: config.waits_for_table(),
            follows_changes: keeper.as_ref().is_some_and(|keeper| keeper.follows_changes()),
            keeper,
            cold_start: recovery.and_then(FlashRecovery::cold),
            is_recovering: AtomicBool::new(true),
        }
    }

    pub(crate) fn is_recovering(&self) -> bool {
        self.is_recovering.load(Ordering::Relaxed)
    }

    pub(crate) fn recovered(&self) {
        self.is_recovering.store(false, Ordering::Release);
    }
}
