//! Where the slots of the tier and the pool meet: what the tier asks while it decides (`Around`),
//! and what the pool tells frames, observer and restart method when a slot changes.
//!
//! - T1: a page in memory knows its slot: its frame is told of each change in the section under the
//!   lock in which the slot changes.
//! - T2: the observer is told when a page gets a slot, and when it loses it; the restart method of
//!   each slot that is filled, cleaned, freed or retired, in the order of these changes.
//! - T3: what the restart method was told is hardened after the section, before anything relies on
//!   it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_device::said_again;
use terrace_page::{Lsn, PageId};
use terrace_policy::{History, Tick};
use terrace_restart::{ColdStart, FlashRecovery, Keeper, Site, TableError, unlogged};
use terrace_tier::{
    After, Around, BaseRule, Candidate, Changed, Displaced, Filled, Freed, Held, Mutation, Outcome,
    Version, Writing, Written,
};

use crate::config::CopyRules;
use crate::durability::Journal;
use crate::durability::ledger::{DirtyLsns, Ledger};
use crate::memory::frames::{Exclusive, Frame};
use crate::memory::{Books, Partition, Section};
use crate::shares::SlotTable;
use crate::{BufferPool, PageEvent, PoolError, Tier};

/// The restart method, as the pool uses it.
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

/// A partition of the pool around its slots, while its lock is held.
pub(crate) struct PoolAround<'a> {
    pool: &'a BufferPool,
    partition: &'a Partition,
    ledger: &'a Ledger,
    /// The frame of the page that is asked about, if one is.
    frame: Option<&'a Frame>,
}

/// The page of `frame`, as the tier is told of it.
pub(crate) fn candidate(frame: &Frame) -> Candidate {
    Candidate {
        page: frame.page().expect("a page to write"),
        slot: frame.slot(),
        is_dirty: frame.rec_lsn().is_some(),
        class: frame.class(),
    }
}

impl Around for PoolAround<'_> {
    fn now(&self) -> Tick {
        self.pool.memory.now()
    }

    fn is_filling(&self) -> bool {
        self.pool.shares.is_filling()
    }

    fn is_usable(&self) -> bool {
        self.pool.devices.is_usable()
    }

    fn is_throttled(&self) -> bool {
        self.pool.devices.is_throttled()
    }

    fn is_over_budget(&self) -> bool {
        self.pool.devices.is_over_budget()
    }

    fn is_sharp(&self) -> bool {
        self.pool.durability.is_sharp()
    }

    fn wants_home(&self) -> bool {
        self.pool.durability.wants_home()
    }

    fn is_going_home(&self, page: PageId) -> bool {
        !self.pool.config.mutations.has(Mutation::TwoHomeWrites) && self.ledger.is_going_home(page)
    }

    fn may_go_home(&self, page: PageId) -> bool {
        // What leaves before the end of recovery could take home back in time [S3 III-D6].
        !self.pool.restart.is_recovering() && self.ledger.may_go_home(page)
    }

    fn take_hits(&self) -> u32 {
        self.frame.map_or(0, |frame| self.partition.take_hits(frame))
    }

    fn slots_wanted(&self) {
        self.pool.restart.slots_wanted();
    }

    fn cleaning_wanted(&self) {
        self.pool.shares.want_cleaning();
    }

    fn was_full(&self) {
        self.pool.shares.end_filling();
    }
}

/// A slot has changed.
impl Section<'_> {
    /// The slots, and what surrounds them while they decide about the page of `frame`.
    pub fn slots_around<'a>(
        &'a mut self,
        frame: Option<&'a Frame>,
    ) -> (&'a mut SlotTable, PoolAround<'a>) {
        let Books { slots, ledger, .. } = &mut *self.books;
        (slots, PoolAround { pool: self.pool, partition: self.partition, ledger, frame })
    }

    /// A page lost its slot to another, or with the group that it was in.
    pub fn displaced(&self, displaced: Displaced) {
        let Displaced { page, slot } = displaced;
        self.detach(page, slot);
        self.freed(slot, page, Freed::Reused);
    }

    pub fn freed(&self, slot: u32, page: PageId, why: Freed) {
        self.pool.restart.freed(self.pool, self.number(slot), page, why);
    }

    /// A base gave way to a newer copy on flash: it is free once the table there says so.
    pub fn retired(&self, slot: u32) {
        self.pool.restart.retired(self.pool, self.number(slot));
    }

    /// The copy in `slot` stopped being the page of `frame`, as `changed` says: tells the frame,
    /// the watcher and the restart method. Returns the slot over all partitions, if its page lost
    /// it.
    pub fn copy_changed(
        &self,
        frame: &Frame,
        slot: u32,
        changed: Changed,
        why: Freed,
    ) -> Option<u32> {
        let page = frame.page().expect("a page with a copy");
        match changed.slot {
            After::Base => return None,
            After::Own => {}
            After::Gone => {
                frame.set_slot(None);
                self.pool.memory.observe(page, PageEvent::SlotLost);
            }
        }
        self.freed(slot, page, why);
        Some(self.number(slot))
    }

    /// The copy of the page in a latched frame was forgotten, as `changed` says: what it had that
    /// home lacks is the frame's to keep, as if the page had changed.
    pub fn taken_back(&mut self, guard: &Exclusive<'_>, changed: Changed) {
        let slot = guard.frame().slot().expect("a page with a copy has a slot");
        if let Some(rec_lsn) = changed.newer {
            self.set_dirty(guard, DirtyLsns::at(rec_lsn));
        }
        self.copy_changed(guard.frame(), slot, changed, Freed::Reused);
    }

    /// The copy of a page, in this version, has moved from one slot to another, wherever the page
    /// is.
    pub fn copy_moved(
        &self,
        (page, lsn): (PageId, Lsn),
        (from, to): (u32, u32),
        newer: Option<Lsn>,
    ) {
        let BufferPool { memory, restart, .. } = self.pool;
        self.partition.copy_moved(&memory.frames, page, (from, to));
        let history = Some(History::once(memory.now()));
        restart.filled(self.pool, &Held { slot: self.number(to), page, lsn, newer, history });
        if restart.rules.waits_for_table {
            self.retired(from);
        } else {
            self.freed(from, page, Freed::Reused);
        }
    }

    /// A write of the page of `frame` has ended: tells its slot, and the structures that know of
    /// it. Returns whether a slot holds it now.
    pub fn end_writing(
        &mut self,
        frame: &Frame,
        writing: Writing,
        outcome: Outcome,
        version: &Version,
    ) -> bool {
        let page = writing.page();
        let written = self.books.slots.written(writing, outcome, version, frame.slot());
        let Written::Into(Filled { slot, is_pinned, retired }) = written else { return false };
        if is_pinned {
            self.books.ledger.keep_while_at_risk(slot, page);
        }
        let Version { lsn, newer, history } = *version;
        let held = Held { slot: self.number(slot), page, lsn, newer, history: Some(history) };
        self.pool.restart.filled(self.pool, &held);
        if let Some(base) = retired {
            self.books.ledger.keep_no_longer(base);
            self.retired(base);
        }
        frame.set_slot(Some(slot));
        true
    }
}

/// The restart method is told. Slots are numbered over all partitions here.
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

    /// `page`, whose dirty entry was made, changes without a record. False if the restart method
    /// needs one of that, and the log is full.
    pub(crate) fn log_unlogged(&self, journal: &dyn Journal, page: PageId) -> bool {
        let wants = self.keeper.as_ref().is_some_and(|keeper| keeper.wants_unlogged());
        !wants || journal.log_flash(&unlogged(page)).is_some()
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

impl BufferPool {
    /// In the middle of a checkpoint, after its oldest dirty LSN was taken: returns when the table
    /// on flash says enough for the log to be cut there. Returns how far its journal reaches.
    ///
    /// # Errors
    ///
    /// The table cannot be hardened: what is on flash may not be believed after this session.
    pub fn harden_table(&self) -> Result<u64, PoolError> {
        let hardened = self.restart.checkpoint(self);
        hardened.inspect_err(|_| self.devices.look_at_flash(&self.durability))
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
