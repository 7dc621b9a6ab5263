//! Where the slots of the tier and the pool meet: what the tier asks while it decides, and who is
//! told when a slot changes.
//!
//! - T1: a page in memory knows its slot: its frame is told of each change in the section under the
//!   lock in which the slot changes.
//! - T2: the observer is told when a page gets a slot, and when it loses it; the restart of each
//!   slot that is filled, cleaned, freed or retired, in the order of these changes.
//! - T3: what the restart was told is hardened after the section, before anything relies on it.

use terrace_page::{Lsn, PageId};
use terrace_policy::{History, Tick};
use terrace_rt::LeafGuard;
use terrace_tier::{
    After, Around, Candidate, Changed, Displaced, Filled, Freed, Held, Mutation, Outcome, Version,
    Writing, Written,
};

use crate::durability::ledger::{DirtyLsns, Ledger};
use crate::memory::frames::{Exclusive, Frame};
use crate::memory::{Books, Partition};
use crate::shares::SlotTable;
use crate::{BufferPool, PageEvent, PoolError};

/// A section under the lock of a partition: all that is known of its pages changes in one.
pub(crate) struct Section<'p> {
    pub pool: &'p BufferPool,
    pub partition: &'p Partition,
    pub books: LeafGuard<'p, Books>,
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
        self.pool.cleaning.want();
    }

    fn was_full(&self) {
        self.pool.shares.end_filling();
    }
}

impl<'p> Section<'p> {
    pub fn enter(pool: &'p BufferPool, partition: &'p Partition) -> Section<'p> {
        Section { pool, partition, books: partition.books.lock() }
    }

    /// The slots, and what surrounds them while they decide about the page of `frame`.
    pub fn slots_around<'a>(
        &'a mut self,
        frame: Option<&'a Frame>,
    ) -> (&'a mut SlotTable, PoolAround<'a>) {
        let Books { slots, ledger, .. } = &mut *self.books;
        (slots, PoolAround { pool: self.pool, partition: self.partition, ledger, frame })
    }

    /// The number of `slot` over all partitions.
    pub fn number(&self, slot: u32) -> u32 {
        self.partition.first_slot + slot
    }

    /// A page lost its slot to another, or with the group that it was in.
    pub fn displaced(&self, displaced: Displaced) {
        let Displaced { page, slot } = displaced;
        self.detach(page, slot);
        self.freed(slot, page, Freed::Reused);
    }

    /// `page` has no slot any more.
    pub fn detach(&self, page: PageId, slot: u32) {
        self.partition.detach_slot(&self.books, &self.pool.memory.frames, page, slot);
        self.pool.memory.observe(page, PageEvent::SlotLost);
    }

    pub fn freed(&self, slot: u32, page: PageId, why: Freed) {
        self.pool.restart.freed(self.pool, self.number(slot), page, why);
    }

    /// A base gave way to a newer copy on flash: it is free once the table there says so.
    pub fn retired(&self, slot: u32) {
        self.pool.restart.retired(self.pool, self.number(slot));
    }

    /// The page of a latched frame has a dirty entry from now on.
    pub fn set_dirty(&mut self, guard: &Exclusive<'_>, lsns: DirtyLsns) {
        self.books.set_dirty(&self.pool.memory.frames, guard, lsns);
    }

    /// The copy in `slot` stopped being the page of `frame`, as `changed` says: tells the frame,
    /// the watcher and the restart. Returns the slot over all partitions, if its page lost it.
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

    /// A write of the page of `frame` has ended: its slot, and whoever knows of it, are told.
    /// Whether a slot holds it now.
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
