//! A page leaves memory, or is brought up to date below it: where it goes, and the end of that
//! write. What the design says of it is read here, and nowhere else.
//!
//! ```text
//!            left, offer          written: flash has it, and home if it was to
//! (a page) -------------> WRITING ---------------------------------------------> CLEAN | DIRTY
//!                            |     written: it has not
//!                            +--------------------------> FREE, or INVALID and its page's OWN
//! ```
//!
//! - W1: a slot is CLEAN only after the home write, if there is one, has finished too [S0 2.3].
//! - W2: a copy that home lacks is on flash alone only after the flash write has finished
//!   [sources.D4]: until then the driver's own entry counts.
//! - W3: the base that a page has elsewhere is RETIRED when its newer copy is written, not before.
//! - W4: TAC, and inclusive designs, write a page that was read while it stays in memory. Such a
//!   write is abandoned if the page was changed, or left memory, before it began: the flash would
//!   be newer than home [S0 4.2].
//! - W5: inclusive designs give a page a slot as soon as it comes into memory, before anything is
//!   written into it; it is given back if nothing was when the page leaves. The table hears of each
//!   page that comes (`arrived`) and leaves (`evicted`), and no other page gets its slot meanwhile.

use terrace_page::{Lsn, PageId};
use terrace_policy::{AccessClass, CleanLeave, DirtyLeave, History};

use super::admission::Taken;
use super::{LAZYCLEANING, SlotTable};
use crate::{Around, Count, Displaced, Shares, SlotOrder};

/// A page that may be written to flash, as its driver has it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The page.
    pub page: PageId,
    /// Its slot, valid or not, if it has one.
    pub slot: Option<u32>,
    /// Whether it has changes that neither home nor a slot has.
    pub is_dirty: bool,
    /// How it came into memory.
    pub class: AccessClass,
}

/// Why a page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It leaves memory.
    Evict,
    /// It stays; home, or flash that is a part of the database, is to be brought up to date.
    Checkpoint,
}

/// Where a page goes.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub enum Way {
    /// Nowhere yet: a home write of it is under way.
    Busy,
    /// Nowhere: it need not be written.
    Nothing,
    /// There; the page that loses its slot for it.
    Write(Writing, Option<Displaced>),
}

/// A write of a page, under way: it ends with `written`.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Writing {
    page: PageId,
    home: bool,
    slot: Option<u32>,
    is_dirty: bool,
}

impl Writing {
    /// Into a slot of an append log.
    pub fn into_slot(page: PageId, slot: u32, is_dirty: bool) -> Writing {
        Writing { page, home: false, slot: Some(slot), is_dirty }
    }

    /// The page.
    pub fn page(&self) -> PageId {
        self.page
    }

    /// Whether it is written home.
    pub fn home(&self) -> bool {
        self.home
    }

    /// The slot that it is written into.
    pub fn slot(&self) -> Option<u32> {
        self.slot
    }
}

/// How a write ended, on each device that it went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Home has the page.
    pub home: bool,
    /// Flash has it.
    pub flash: bool,
}

impl Outcome {
    /// All is written.
    pub const WRITTEN: Outcome = Outcome { home: true, flash: true };
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its LSN.
    pub lsn: Lsn,
    /// Lower bound of its first change that home lacks, or may lose again.
    pub newer: Option<Lsn>,
    /// The uses of the page.
    pub history: History,
}

/// What came of a write into a slot.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Nothing: it went to no slot.
    Nowhere,
    /// It failed: the slot is free again, or is still its page's, without its bytes.
    Failed,
    /// The page has this slot now.
    Into(Filled),
}

/// A slot that holds its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// The slot.
    pub slot: u32,
    /// Whether the copy is pinned until home was synced: the home write before it may be lost.
    pub is_pinned: bool,
    /// The slot of a base of the page, retired now (W3).
    pub retired: Option<u32>,
}

impl<O: SlotOrder, S: Shares> SlotTable<O, S> {
    /// A page leaves memory, or is to be brought up to date [S0 2.3; S4 3].
    pub fn left(&mut self, page: &Candidate, purpose: Purpose, around: &impl Around) -> Way {
        // A base that is kept for the page is no copy of it, nor is its own slot while it is stale.
        let has_copy = page.slot.is_some_and(|slot| self.is_valid(slot));
        if !has_copy && self.is_own_being_cleaned(page.slot) {
            return Way::Busy;
        }
        let is_evicted = purpose == Purpose::Evict;
        if is_evicted {
            self.count_left(page, around);
        }
        // A persistent tier is as good as home to a checkpoint, too.
        let to_flash = is_evicted || self.is_persistent;
        let is_busy = || around.is_going_home(page.page);
        let (home, taken) = match (page.is_dirty, self.design.dirty_leave, purpose) {
            (false, _, Purpose::Evict) if self.takes_clean(has_copy) => {
                (false, self.place(page, around))
            }
            (false, ..) => return Way::Nothing,
            (true, DirtyLeave::Flash, _) if to_flash && !around.wants_home() => {
                let taken = self.place(page, around);
                (taken.is_none(), taken)
            }
            (true, ..) if is_busy() => return Way::Busy,
            (true, DirtyLeave::Home | DirtyLeave::Flash, _) => (true, None),
            (true, DirtyLeave::FlashAndHome, Purpose::Evict) => (true, self.place(page, around)),
            (true, DirtyLeave::FlashAndHome, Purpose::Checkpoint) => {
                // At a sharp checkpoint random pages are dual-written, filling or not [S0 3.2].
                let both = page.class == AccessClass::Random && around.is_sharp();
                (true, if both { self.place(page, around) } else { None })
            }
            (true, DirtyLeave::HomeAndOwnSlot, _) => (true, self.take_own(page.slot, around)),
        };
        match (home, taken) {
            (true, _) if is_busy() => {
                assert!(taken.is_none(), "a slot is taken for what cannot be written");
                Way::Busy
            }
            (false, None) => Way::Nothing,
            (home, taken) => self.write(page, home, taken),
        }
    }

    /// A changed page is written home, and nowhere else, whatever the design: neither flash nor the
    /// log has what it could be made anew from.
    pub fn sent_home(&mut self, page: &Candidate, around: &impl Around) -> Way {
        let has_copy = page.slot.is_some_and(|slot| self.is_valid(slot));
        let is_cleaned = !has_copy && self.is_own_being_cleaned(page.slot);
        if is_cleaned || around.is_going_home(page.page) {
            return Way::Busy;
        }
        self.write(page, true, None)
    }

    fn write(&mut self, page: &Candidate, home: bool, taken: Option<Taken>) -> Way {
        let (slot, displaced) = taken.map_or((None, None), |(slot, page)| (Some(slot), page));
        if let Some(slot) = slot {
            self.issue(slot);
        }
        let is_dirty = page.is_dirty && !home;
        Way::Write(Writing { page: page.page, home, slot, is_dirty }, displaced)
    }

    fn takes_clean(&self, has_copy: bool) -> bool {
        self.design.clean_leave == CleanLeave::Flash && !has_copy
    }

    /// A slot for a page without a valid copy: its own, if it has one, or one that it is admitted
    /// to.
    fn place(&mut self, page: &Candidate, around: &impl Around) -> Option<Taken> {
        match page.slot.filter(|_| self.keeps_own) {
            Some(slot) if self.is_own(slot) => self.take_own(Some(slot), around),
            Some(base) => self.take_beside(page.page, base, around),
            None => self.admit(page, around),
        }
    }

    /// Whether the cleaner still is at the slot that the page will get again: what it writes home
    /// is under way, so the page could go nowhere else.
    fn is_own_being_cleaned(&self, slot: Option<u32>) -> bool {
        self.keeps_own && slot.is_some_and(|slot| self.base(slot) == LAZYCLEANING)
    }

    /// What was asked of a page that leaves memory is counted.
    fn count_left(&mut self, page: &Candidate, around: &impl Around) {
        if self.design.replacement.counts_hits() {
            // The request that brought it was no hit.
            let logical = around.take_hits().saturating_add(1);
            self.counted(page.page, page.slot, Count::InMemory { logical, physical: 1 });
        }
        if page.is_dirty {
            self.counted(page.page, page.slot, Count::Write);
        }
    }

    /// A page that was read from home, and is in memory, may be written to flash (W4).
    pub fn offer(&mut self, page: &Candidate, around: &impl Around) -> Way {
        let has_copy = page.slot.is_some_and(|slot| self.is_valid(slot));
        if page.is_dirty || has_copy || !self.design.writes_what_is_read() {
            return Way::Nothing;
        }
        let taken = match page.slot {
            Some(slot) => self.take_own(Some(slot), around),
            None => self.admit(page, around),
        };
        if taken.is_none() { Way::Nothing } else { self.write(page, false, taken) }
    }

    /// A write has ended. `slot` is the one that its page has now, if it has one.
    pub fn written(
        &mut self,
        writing: Writing,
        how: Outcome,
        version: &Version,
        slot: Option<u32>,
    ) -> Written {
        let Writing { home, slot: to, is_dirty, .. } = writing;
        let Some(to) = to else { return Written::Nowhere };
        // W1.
        if !how.flash || (home && !how.home) {
            self.give_back(to, slot == Some(to));
            return Written::Failed;
        }
        let Version { lsn, newer, history } = *version;
        let is_pinned = match newer {
            Some(rec_lsn) if is_dirty => {
                self.wrote_dirty(to, history, lsn, rec_lsn);
                false
            }
            at_risk => {
                self.wrote_clean(to, history, lsn);
                if at_risk.is_some() {
                    self.pin(to);
                }
                at_risk.is_some()
            }
        };
        let retired = slot.filter(|&base| base != to);
        if let Some(base) = retired {
            self.carry(base, to);
            self.retire(base);
        }
        Written::Into(Filled { slot: to, is_pinned, retired })
    }

    /// A page comes into memory. The slot that is its own from now on, without its bytes (W5), if
    /// it had none, and the page that lost it.
    #[must_use]
    pub fn arrived(
        &mut self,
        page: &Candidate,
        around: &impl Around,
    ) -> Option<(u32, Option<Displaced>)> {
        let in_memory = self.in_memory.as_mut()?;
        if let Some(slot) = page.slot {
            in_memory.set(slot, true);
            return None;
        }
        let taken = self.admit(page, around)?;
        // There is nothing in it yet.
        self.give_back(taken.0, true);
        Some(taken)
    }

    /// A page with this slot has left memory. The slot that it still has (W5).
    #[must_use]
    pub fn evicted(&mut self, slot: Option<u32>) -> Option<u32> {
        let slot = slot?;
        let Some(in_memory) = &mut self.in_memory else { return Some(slot) };
        in_memory.set(slot, false);
        if self.is_own(slot) {
            self.release_own(slot);
            return None;
        }
        Some(slot)
    }

    /// Whether the page of `slot` is in memory, as an inclusive design was told.
    pub fn is_in_memory(&self, slot: u32) -> Option<bool> {
        self.in_memory.as_ref().map(|in_memory| in_memory.has(slot))
    }
}
