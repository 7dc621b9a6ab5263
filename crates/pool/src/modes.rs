//! What the pool is now, and was made to be: questions that all of its parts ask.

use std::sync::atomic::Ordering;

use terrace_policy::{Inclusion, Tick};
use terrace_tier::{Mutation, Mutations};

use crate::BufferPool;

impl BufferPool {
    #[inline]
    pub(crate) fn now(&self) -> Tick {
        self.memory.fetches.now()
    }

    /// The faults that are in force: none, but in tests.
    #[inline]
    pub fn mutations(&self) -> Mutations {
        self.config.mutations
    }

    /// Whether flash is a part of the database.
    #[inline]
    pub(crate) fn is_persistent(&self) -> bool {
        self.config.flash_role.is_persistent()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.background.is_closing()
    }

    pub(crate) fn is_sharp(&self) -> bool {
        self.durability.sharp.load(Ordering::Relaxed) > 0
    }

    /// Whether copies go when their pages are read.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.traffic.inclusion == Inclusion::Exclusive
    }

    /// Whether victims are appended now: not during a sharp checkpoint [S0 3.2], nor after a
    /// failure.
    pub(crate) fn appends(&self) -> bool {
        self.traffic.appends.is_some()
            && self.flash_is_usable()
            && !self.is_over_budget()
            && !self.is_sharp()
            && !self.durability.stop.is_set()
    }

    /// Whether what is read from a slot must be the version that was written there.
    pub(crate) fn checks_versions(&self) -> bool {
        !self.config.mutations.has(Mutation::SkipVerify)
            && !self.config.mutations.has(Mutation::SkipLsnCheck)
    }

    /// Whether a slot is used again only when the table says durably that it may be.
    pub(crate) fn waits_for_table(&self) -> bool {
        self.config.waits_for_table()
    }
}
