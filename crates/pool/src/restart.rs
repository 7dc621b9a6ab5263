//! The restart that the pool runs with: what it keeps, and what it wants to be told.

use std::sync::atomic::{AtomicBool, Ordering};

use terrace_restart::{ColdStart, FlashLayout, FlashRecovery, Keeper, Settings};

use crate::{BufferPool, PoolConfig};

/// What the restart wants of the pool, and the pool of it.
pub(crate) struct RestartState {
    pub(crate) keeper: Option<Box<dyn Keeper>>,
    keeps_bases: bool,
    finds_dirty: bool,
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

impl PoolConfig {
    /// Whether redo may start from copies on flash that are older than the log's last checkpoint.
    #[must_use]
    pub fn keeps_bases(&self) -> bool {
        // The slots of an append log are overwritten in order: one is kept by moving it to the
        // rear, which is worth its write only where the log does not have it all.
        let may_keep = self.design.batch().is_none() || self.flash_role.is_persistent();
        self.finds_dirty() && may_keep
    }

    /// Whether an opening may find pages on flash that are newer than home, and believe them.
    fn finds_dirty(&self) -> bool {
        self.restart.kind.is_journalled() && self.design.keeps_dirty_on_flash()
    }

    /// What a restart is told of the pool.
    #[must_use]
    pub fn of_restart(&self) -> Settings {
        Settings {
            kind: self.restart.kind,
            slots: self.flash_slots,
            partitions: self.partitions_count(),
            role: self.flash_role,
            group: self.log_sizes().group,
            appends: self.design.batch().is_some(),
            tuning: self.restart_tuning,
            mutations: self.mutations,
        }
    }
}

impl BufferPool {
    /// Whether copies on flash are kept as the bases of changes: redo then starts from them.
    pub(crate) fn keeps_bases(&self) -> bool {
        self.restart.keeps_bases
    }

    /// Whether an opening may find pages on flash that are newer than home, and believe them.
    pub(crate) fn finds_dirty(&self) -> bool {
        self.restart.finds_dirty
    }
}
