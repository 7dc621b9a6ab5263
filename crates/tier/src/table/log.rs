//! What the slots of an append log can do beside the others: leave in order, and move on.
//!
//! - O1: the cleaner takes no slot of a group that is leaving: the task that has the group leave
//!   writes home the pages that must go there.
//! - O2: a page that moves on is in its old slot until its new one is written, and from then on in
//!   the new one: entry, version and mark move in one section under the lock.

use terrace_page::{PageId, SlotId};
use terrace_policy::{Fronted, Leave};

use super::{
    CLEAN, DAMAGED, DIRTY, FREE, INVALID, NEWER, READING, RETIRED, STATE, SlotTable, WRITING,
};
use crate::order::Fill;
use crate::{Leaving, LogSlots, Shares, SlotOrder};

impl<O: SlotOrder, S: Shares> SlotTable<O, S> {
    /// The order of the slots, if they are those of an append log.
    pub fn log(&self) -> Option<&LogSlots> {
        self.order.log()
    }

    pub(super) fn log_mut(&mut self) -> &mut LogSlots {
        self.order.log_mut().expect("only the slots of an append log leave in order")
    }

    /// Slots that were taken and hold nothing: their pages have changed since.
    pub fn holes(&self) -> u64 {
        let Some(log) = self.log() else { return 0 };
        log.count_held(|slot| self.states[slot.0 as usize] == FREE) as u64
    }

    /// Lets a group leave. Dirty pages that are not `free_to_write` do not leave. Returns slots and
    /// answers.
    pub fn leave(
        &mut self,
        leaving: &Leaving,
        free_to_write: impl Fn(PageId) -> bool,
    ) -> Vec<(u32, Leave)> {
        let mut answers = Vec::new();
        self.leave_into(leaving, free_to_write, &mut answers);
        answers.into_iter().map(|(slot, leave)| (slot.0, leave)).collect()
    }

    pub(super) fn leave_into(
        &mut self,
        leaving: &Leaving,
        free_to_write: impl Fn(PageId) -> bool,
        answers: &mut Vec<(SlotId, Leave)>,
    ) {
        let (states, pages) = (&self.states, &self.pages);
        let fronted = |slot: SlotId| {
            let (mut state, page) = (states[slot.0 as usize], pages[slot.0 as usize]);
            let is_read = state & READING != 0;
            state &= !(DAMAGED | READING);
            match state {
                FREE => Fronted::Hole,
                _ if state == DIRTY | NEWER && !free_to_write(PageId(u64::from(page))) => {
                    Fronted::InUse
                }
                _ if is_read && (state == CLEAN || state == DIRTY | NEWER) => Fronted::Read,
                CLEAN => Fronted::Clean,
                _ if state == DIRTY | NEWER => Fronted::Dirty,
                INVALID => Fronted::Base,
                // Its group waits until it is free.
                RETIRED => Fronted::Hole,
                _ => Fronted::InUse,
            }
        };
        let log = self.order.log_mut().expect("only the slots of an append log leave in order");
        log.leave(leaving, fronted, answers);
    }

    /// Whether `slot` is in a group that is leaving (O1).
    pub(super) fn is_leaving(&self, slot: u32) -> bool {
        self.log().is_some_and(|log| log.is_leaving(SlotId(slot)))
    }

    /// Whether a task reads `slot`.
    pub fn is_read(&self, slot: u32) -> bool {
        self.has(slot, READING)
    }

    /// Whether `slot` holds nothing.
    pub fn is_free(&self, slot: u32) -> bool {
        self.states[slot as usize] == FREE
    }

    /// The page of clean `slot` is forgotten: CLEAN -> FREE.
    pub fn drop_clean(&mut self, slot: u32) {
        self.release(slot, &[CLEAN]);
    }

    /// The bytes of `from` were written into `to` (O2): WRITING -> CLEAN|DIRTY, and `from` is FREE,
    /// or RETIRED if it `is_kept`.
    pub fn move_on(&mut self, from: u32, to: u32, is_kept: bool) {
        assert!(self.is_valid(from) && !self.is_read(from), "slot {from} moves to {to}");
        assert_eq!(self.pages[from as usize], self.pages[to as usize]);
        let newer = self.newer(from);
        let state = self.states[from as usize] & STATE;
        self.set_base(to, &[WRITING], state);
        self.versions.copy(from, to);
        match is_kept {
            true => self.retire_moved(from),
            false => self.release(from, &[CLEAN, DIRTY]),
        }
        if let Some(rec_lsn) = newer {
            let page = PageId(u64::from(self.pages[to as usize]));
            self.order.filled(SlotId(to), page, Fill::StillDirty(rec_lsn), &self.shares);
            self.set_newer(to, Some(rec_lsn));
        }
    }
}
