//! Where the slots of the tier and the pool meet: what the tier asks while it decides, and who is
//! told when a slot changes.
//!
//! - T1: a page in memory knows its slot: its frame is told of each change in the section under the
//!   lock in which the slot changes.
//! - T2: the observer is told when a page gets a slot, and when it loses it; the restart of each
//!   slot that is filled, cleaned, freed or retired, in the order of these changes.
//! - T3: what the restart was told is hardened after the section, before anything relies on it.

use std::sync::atomic::Ordering;

use terrace_page::{Lsn, PageId};
use terrace_policy::{History, Tick};
use terrace_tier::{
    After, Around, Candidate, Changed, Displaced, Filled, Freed, Gauge, Held, Mutation, Outcome,
    Version, Writing, Written,
};

use crate::durability::ledger::{DirtyLsns, Ledger};
use crate::memory::frames::{Exclusive, Frame};
use crate::memory::{Books, Partition};
use crate::{BufferPool, PageEvent, PoolError};

/// A partition of the pool around its slots, while its lock is held.
pub(crate) struct PoolAround<'a> {
    pool: &'a BufferPool,
    partition: &'a Partition,
    ledger: &'a Ledger,
    /// The frame of the page that is asked about, if one is.
    frame: Option<&'a Frame>,
}

impl BufferPool {
    /// The surroundings of the slots of `partition`, whose `ledger` this is.
    pub(crate) fn around<'a>(
        &'a self,
        partition: &'a Partition,
        ledger: &'a Ledger,
        frame: Option<&'a Frame>,
    ) -> PoolAround<'a> {
        PoolAround { pool: self, partition, ledger, frame }
    }
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
        self.pool.is_filling()
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
        self.pool.cleaning.is_wanted.store(true, Ordering::Relaxed);
    }

    fn was_full(&self) {
        // More than any number of slots ends the filling for good.
        self.pool.traffic.filling.lock().is_on(u32::MAX);
    }
}

impl BufferPool {
    /// Whether the tier is being filled with every page [S0 3.3.1].
    pub(crate) fn is_filling(&self) -> bool {
        self.traffic.filling.lock().is_on(self.shares.gauge(Gauge::Used))
    }
}

/// A slot has changed.
impl BufferPool {
    /// A page lost its slot to another, or with the group that it was in.
    pub(crate) fn displaced(&self, partition: &Partition, books: &Books, displaced: Displaced) {
        let Displaced { page, slot } = displaced;
        partition.detach_slot(books, &self.memory.frames, page, slot);
        self.memory.observe(page, PageEvent::SlotLost);
        self.restart.freed(self, partition.first_slot + slot, page, Freed::Reused);
    }

    /// The copy in `slot` stopped being the page of `frame`, as `changed` says: tells the frame,
    /// the watcher and the restart. Returns the slot over all partitions, if its page lost it.
    pub(crate) fn copy_changed(
        &self,
        partition: &Partition,
        (page, frame): (PageId, &Frame),
        slot: u32,
        (changed, why): (Changed, Freed),
    ) -> Option<u32> {
        match changed.slot {
            After::Base => return None,
            After::Own => {}
            After::Gone => {
                frame.set_slot(None);
                self.memory.observe(page, PageEvent::SlotLost);
            }
        }
        let number = partition.first_slot + slot;
        self.restart.freed(self, number, page, why);
        Some(number)
    }

    /// The copy of the page in a latched frame was forgotten, as `changed` says: what it had that
    /// home lacks is the frame's to keep, as if the page had changed.
    pub(crate) fn taken_back(
        &self,
        partition: &Partition,
        books: &mut Books,
        guard: &Exclusive<'_>,
        changed: Changed,
    ) {
        let frame = guard.frame();
        let slot = frame.slot().expect("a page with a copy has a slot");
        let page = frame.page().expect("a page with a copy");
        if let Some(rec_lsn) = changed.newer {
            books.set_dirty(&self.memory.frames, guard, DirtyLsns::at(rec_lsn));
        }
        self.copy_changed(partition, (page, frame), slot, (changed, Freed::Reused));
    }

    /// The copy of a page, in this version, has moved from one slot to another, wherever the page
    /// is.
    pub(crate) fn copy_moved(
        &self,
        partition: &Partition,
        (page, lsn): (PageId, Lsn),
        (from, to): (u32, u32),
        newer: Option<Lsn>,
    ) {
        partition.copy_moved(&self.memory.frames, page, (from, to));
        let history = Some(History::once(self.memory.now()));
        self.restart
            .filled(self, &Held { slot: partition.first_slot + to, page, lsn, newer, history });
        if self.restart.rules.waits_for_table {
            self.restart.retired(self, partition.first_slot + from);
        } else {
            self.restart.freed(self, partition.first_slot + from, page, Freed::Reused);
        }
    }

    /// A write of the page of `frame` has ended: its slot, and whoever knows of it, are told.
    /// Whether a slot holds it now.
    pub(crate) fn end_writing(
        &self,
        partition: &Partition,
        books: &mut Books,
        frame: &Frame,
        (writing, outcome): (Writing, Outcome),
        version: &Version,
    ) -> bool {
        let page = writing.page();
        let written = books.slots.written(writing, outcome, version, frame.slot());
        let Written::Into(Filled { slot, is_pinned, retired }) = written else { return false };
        if is_pinned {
            books.ledger.keep_while_at_risk(slot, page);
        }
        let Version { lsn, newer, history } = *version;
        let number = partition.first_slot + slot;
        self.restart.filled(self, &Held { slot: number, page, lsn, newer, history: Some(history) });
        if let Some(base) = retired {
            books.ledger.keep_no_longer(base);
            self.restart.retired(self, partition.first_slot + base);
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
