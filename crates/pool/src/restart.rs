//! What the pool and its restart want of each other: the restart is told of each slot that is
//! filled, cleaned, freed or retired, in the order of these changes, within the section under the
//! partition's lock in which the slot changes. What it was told is hardened after the section,
//! before anything relies on it. A slot is numbered over all partitions here.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_device::said_again;
use terrace_page::{Lsn, PageId};
use terrace_restart::{ColdStart, FlashRecovery, Keeper, Site, TableError};
use terrace_tier::{BaseRule, Freed, Held};

use crate::config::CopyRules;
use crate::{PoolError, Tier};

/// What the restart wants of the pool, and the pool of it.
pub(crate) struct RestartState {
    keeper: Option<Box<dyn Keeper>>,
    /// How long copies count, and for what.
    pub(crate) rules: CopyRules,
    /// Whether it wants to know the LSNs of changes.
    pub(crate) follows_changes: bool,
    /// Why the flash tier started cold, if it did.
    pub(crate) cold_start: Option<ColdStart>,
    /// From the opening until `begin`.
    is_recovering: AtomicBool,
}

impl RestartState {
    /// With this keeper, in an opening that found what `recovery` says.
    pub(crate) fn new(
        rules: CopyRules,
        keeper: Option<Box<dyn Keeper>>,
        recovery: Option<&FlashRecovery>,
    ) -> RestartState {
        RestartState {
            rules,
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

    pub(crate) fn keeper(&self) -> Option<&dyn Keeper> {
        self.keeper.as_deref()
    }

    /// Which copies are needed while home may lack changes of theirs.
    pub(crate) fn any_base(&self) -> BaseRule {
        if self.rules.keeps_bases { BaseRule::ALL } else { BaseRule::Never }
    }

    /// Bytes are about to be written into `slots` (keeper.K2). A cache whose table cannot be
    /// written is given up, and takes none of them (keeper.K3).
    pub(crate) fn before_writes(&self, site: &dyn Site, slots: &[u32]) -> Result<(), PoolError> {
        match &self.keeper {
            Some(keeper) if !slots.is_empty() => {
                let begun = keeper.before_writes(site, slots).map_err(PoolError::from);
                begun.or_else(|error| if self.gives_up(site, &error) { Ok(()) } else { Err(error) })
            }
            _ => Ok(()),
        }
    }

    /// The table was not written, for `error`: whether flash is given up for that (keeper.K3).
    fn gives_up(&self, site: &dyn Site, error: &PoolError) -> bool {
        let is_flash = matches!(error, PoolError::Read { tier: Tier::Flash, .. });
        if self.rules.is_persistent || !is_flash {
            return false;
        }
        site.flash().give_up();
        site.flash().is_given_up()
    }

    pub(crate) fn filled(&self, site: &dyn Site, held: &Held) {
        if let Some(keeper) = &self.keeper {
            keeper.filled(site, held);
        }
    }

    pub(crate) fn cleaned(&self, site: &dyn Site, slot: u32, page: PageId) {
        if let Some(keeper) = &self.keeper {
            keeper.cleaned(site, slot, page);
        }
    }

    pub(crate) fn freed(&self, site: &dyn Site, slot: u32, page: PageId, why: Freed) {
        if let Some(keeper) = &self.keeper {
            keeper.freed(site, slot, page, why);
        }
    }

    /// A base gave way to a newer copy on flash: it is free once the table there says so.
    pub(crate) fn retired(&self, site: &dyn Site, slot: u32) {
        if let Some(keeper) = &self.keeper {
            keeper.retired(site, slot);
        }
    }

    /// Home was synced: clean `slot` may be used again once the table says that home has its page.
    pub(crate) fn unpin_later(&self, site: &dyn Site, slot: u32, page: PageId) {
        if let Some(keeper) = &self.keeper {
            keeper.cleaned(site, slot, page);
            keeper.unpin_later(site, slot);
        }
    }

    /// No slot can be reused now.
    pub(crate) fn slots_wanted(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.wanted();
        }
    }

    /// A change of `page` was logged at `lsn`.
    pub(crate) fn page_changed(&self, page: PageId, lsn: Lsn) {
        if let Some(keeper) = &self.keeper {
            keeper.changed(page, lsn);
        }
    }

    /// Whether a change without a record needs one of the restart's.
    pub(crate) fn wants_unlogged(&self) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| keeper.wants_unlogged())
    }

    /// Hardens the table (keeper.K2). One that cannot be hardened may not be believed later: a
    /// cache is given up (keeper.K3), and a database that flash is a part of stops.
    pub(crate) fn harden(&self, site: &dyn Site, slots: &[u32]) {
        let Some(keeper) = &self.keeper else { return };
        let Err(error) = keeper.harden(site, slots).map_err(PoolError::from) else { return };
        if !slots.is_empty() && !self.gives_up(site, &error) {
            let _stopped = site.stop(match &error {
                PoolError::Read { source, .. } => said_again(source),
                error => io::Error::other(error.to_string()),
            });
        }
    }

    /// Makes the table say enough for the log to be cut. Returns how far its journal reaches.
    pub(crate) fn checkpoint(&self, site: &dyn Site) -> Result<u64, PoolError> {
        let checkpointed = self.keeper.as_ref().map_or(Ok(0), |keeper| keeper.checkpoint(site));
        checkpointed.map_err(PoolError::from)
    }
}

impl From<TableError> for PoolError {
    fn from(error: TableError) -> PoolError {
        match error {
            TableError::Flash { source } => {
                PoolError::Read { tier: Tier::Flash, page: PageId(0), source }
            }
            TableError::Pool { cause } => match cause.downcast_ref::<PoolError>() {
                Some(error) => error.clone(),
                None => PoolError::Journal { source: cause },
            },
        }
    }
}
