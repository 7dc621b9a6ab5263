//! A copy stops being its page: the page changes in memory, or the bytes in the slot are bad. What
//! becomes of the slot then is decided here, and nowhere else.
//!
//! ```text
//!                        +--> INVALID, a base     the design counts on the copy (table.S5)
//! CLEAN|DIRTY -----------+--> INVALID, OWN        the slot stays its page's
//!                        +--> FREE
//! LAZYCLEANING ----------+--> the same, when the cleaning has ended (DOOMED)
//! ```

use terrace_page::{Lsn, SlotId};

use super::{CLEAN, DIRTY, DOOMED, INVALID, LAZYCLEANING, NEWER, OWN, PINNED, READING, SlotTable};
use crate::{Shares, SlotOrder};

/// Which copies stay as bases when they stop being their pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseRule {
    /// None.
    Never,
    /// A pinned one, and one that home lacks changes of from below an LSN on.
    Below(Lsn),
}

impl BaseRule {
    /// Every copy that home may lack changes of.
    pub const ALL: BaseRule = BaseRule::Below(Lsn::MAX);
}

/// What became of a copy that stopped being its page: the driver tells the structures that know of
/// the slot.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Lower bound of the first change in the copy that home lacked, if there was one.
    pub newer: Option<Lsn>,
    /// What the slot is now.
    pub slot: After,
}

/// What a slot is after its copy stopped being its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It keeps a base of its page.
    Base,
    /// It stays its page's, to be written again in place.
    Own,
    /// Free: the page has no slot.
    Gone,
}

impl<O: SlotOrder, S: Shares> SlotTable<O, S> {
    /// Whether `base` keeps the copy in valid `slot` when it stops being its page.
    pub fn keeps(&self, slot: u32, base: BaseRule) -> bool {
        match base {
            BaseRule::Never => false,
            BaseRule::Below(floor) => {
                self.is_base(slot) && self.newer(slot).is_none_or(|rec| rec < floor)
            }
        }
    }

    /// The page in valid `slot` changes in memory.
    ///
    /// # Panics
    ///
    /// If the slot is read meanwhile.
    pub fn changes(&mut self, slot: u32, base: BaseRule) -> Changed {
        assert!(self.is_valid(slot), "a stale slot {slot} changes");
        let (newer, keeps_own) = (self.newer(slot), self.keeps_own);
        if self.keeps(slot, base) {
            self.keep_base(slot);
            return Changed { newer, slot: After::Base };
        }
        assert!(!self.has(slot, READING), "slot {slot} is read while its page changes");
        if self.base(slot) == LAZYCLEANING {
            self.states[slot as usize] |= DOOMED;
        } else if keeps_own {
            self.order.taken(SlotId(slot));
            self.make_own(slot);
        } else {
            self.release(slot, &[CLEAN, DIRTY]);
        }
        Changed { newer, slot: if keeps_own { After::Own } else { After::Gone } }
    }

    /// The bytes in a slot that only flash has are not the page, which is whole elsewhere. A base
    /// stays, bad as it is: that it is there tells how far back the log must be read.
    pub fn spoiled(&mut self, slot: u32, base: BaseRule) -> Changed {
        let newer = self.newer(slot);
        if self.keeps(slot, base) {
            self.keep_base(slot);
            return Changed { newer, slot: After::Base };
        }
        self.release(slot, &[DIRTY]);
        Changed { newer, slot: After::Gone }
    }

    /// DIRTY|CLEAN -> INVALID, and LAZYCLEANING as soon as that has ended.
    fn keep_base(&mut self, slot: u32) {
        if self.base(slot) == LAZYCLEANING {
            self.states[slot as usize] |= DOOMED | PINNED;
            return;
        }
        self.set_damaged(slot, false);
        self.order.taken(SlotId(slot));
        self.forget_newer(slot);
        self.states[slot as usize] &= !PINNED;
        self.set_base(slot, &[DIRTY, CLEAN], INVALID);
    }

    /// NEWER goes; the first change that home lacks stays known.
    pub(super) fn forget_newer(&mut self, slot: u32) {
        if !self.has(slot, NEWER) {
            self.rec[slot as usize] = 0;
        }
        self.set_newer(slot, None);
    }

    /// CLEAN|DIRTY|LAZYCLEANING -> INVALID, and its page's own.
    pub(super) fn make_own(&mut self, slot: u32) {
        self.set_newer(slot, None);
        self.set_damaged(slot, false);
        self.set_base(slot, &[CLEAN, DIRTY, LAZYCLEANING], INVALID);
        self.states[slot as usize] = INVALID | OWN;
    }
}
