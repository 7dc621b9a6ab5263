//! Dirty slots on their way home: which is first, which task has claimed it, and how that ended.
//!
//! ```text
//!        claim, claim_root, claim_leaver
//! DIRTY ---------------------------------> LAZYCLEANING
//!
//!               cleaned: home has the page
//! LAZYCLEANING ----------------------------> CLEAN, PINNED until home is synced (table.S5)
//! LAZYCLEANING ----------------------------> DIRTY, home has not got it
//! LAZYCLEANING ----------------------------> what `changes` decided, if it is DOOMED
//! ```
//!
//! - The neighbours of a page at home are the driver's to find: they may be in other partitions.

use terrace_page::{Lsn, PageId, SlotId};
use terrace_policy::CleanKey;

use super::{CLEAN, DAMAGED, DIRTY, DOOMED, LAZYCLEANING, NEWER, PINNED, SlotTable};
use crate::order::Fill;
use crate::{Shares, SlotOrder};

/// Which dirty slot a run of the cleaner begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// The first in order.
    First,
    /// The first in order, if slots are wanted clean ahead of need. They are wanted no more if
    /// there is none.
    Wanted,
    /// The oldest, if it is dirty since before an LSN.
    Below(Lsn),
}

/// A slot that is being brought home: it ends with `cleaned`.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Claim {
    page: PageId,
    slot: u32,
    rec_lsn: Lsn,
}

impl Claim {
    /// The page.
    pub fn page(&self) -> PageId {
        self.page
    }

    /// The slot.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Lower bound of the first change in the page that home lacks.
    pub fn rec_lsn(&self) -> Lsn {
        self.rec_lsn
    }
}

/// How a cleaning ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleaned {
    /// Home has the page.
    AtHome,
    /// Home has not got it.
    NotYet,
    /// The slot's bytes are not the page: only the log can help.
    Damaged,
}

/// What a copy is worth between the write of its page to home and the sync of home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UntilSync {
    /// It may be reused: the log has what home could lose.
    Reusable,
    /// It is PINNED: a restart redoes from it.
    Pinned,
}

/// What became of a slot that was brought home.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Home has the page, and the slot is a clean copy of it.
    Clean,
    /// The slot is dirty again.
    Dirty,
    /// The page changed, or the bytes turned out bad, while it was brought home.
    Stale,
}

impl<O: SlotOrder, S: Shares> SlotTable<O, S> {
    /// The slot to begin with, among those that no task uses and whose pages are `free_to_write`,
    /// and where it stands among those of all partitions: the least key is cleaned first, of append
    /// logs' slots the oldest.
    pub fn root(
        &mut self,
        root: Root,
        free_to_write: impl Fn(PageId) -> bool,
    ) -> Option<(u32, CleanKey)> {
        if root == Root::Wanted && !self.order.wants_cleaning() {
            return None;
        }
        let cleanable = |slot: SlotId| {
            let page = PageId(u64::from(self.pages[slot.0 as usize]));
            self.is_cleanable(slot.0) && free_to_write(page)
        };
        let Root::Below(bound) = root else {
            let next = self.order.next_dirty(cleanable);
            // What is wanted of slots that turn dirty later is for later victims to say.
            while next.is_none() && root == Root::Wanted && self.order.wants_cleaning() {
                self.order.cleaning_begun();
            }
            let slot = next?;
            let key = self.order.clean_key(slot).unwrap_or_else(|| self.age_key(slot.0));
            return Some((slot.0, key));
        };
        let slot = self.order.oldest_dirty(cleanable, |slot| self.rec(slot))?.0;
        (self.newer(slot) < Some(bound)).then(|| (slot, self.age_key(slot)))
    }

    fn age_key(&self, slot: u32) -> CleanKey {
        CleanKey([self.newer(slot).unwrap_or(Lsn::ZERO).0, 0, 0, 0])
    }

    /// Takes the slot that `root` named.
    pub fn claim_root(&mut self, slot: u32) -> Claim {
        self.order.cleaning_begun();
        self.begin_cleaning(slot)
    }

    /// Takes `slot`, if the cleaner may have it.
    pub fn claim(&mut self, slot: u32) -> Option<Claim> {
        self.is_cleanable(slot).then(|| self.begin_cleaning(slot))
    }

    /// Takes a dirty slot of a group that leaves its log, damaged or not: the log has what a bad
    /// copy lacks.
    pub fn claim_leaver(&mut self, slot: u32) -> Claim {
        self.set_damaged(slot, false);
        self.begin_cleaning(slot)
    }

    /// DIRTY -> LAZYCLEANING.
    fn begin_cleaning(&mut self, slot: u32) -> Claim {
        assert_eq!(self.states[slot as usize], DIRTY | NEWER, "slot {slot} is claimed");
        let page = self.page(slot).expect("a dirty slot has a page");
        let rec_lsn = self.rec(slot);
        self.order.taken(SlotId(slot));
        self.set_base(slot, &[DIRTY], LAZYCLEANING);
        Claim { page, slot, rec_lsn }
    }

    /// A claimed slot was brought home, or was not.
    pub fn cleaned(&mut self, claim: Claim, how: Cleaned, until_sync: UntilSync) -> Ended {
        let Claim { slot, .. } = claim;
        if self.has(slot, DOOMED) {
            let is_own = self.keeps_own && self.page(slot).is_some();
            match (self.has(slot, PINNED), is_own) {
                (true, _) => self.base_was_cleaned(slot),
                (false, true) => self.make_own(slot),
                (false, false) => self.release(slot, &[LAZYCLEANING]),
            }
            return Ended::Stale;
        }
        if how == Cleaned::AtHome {
            self.set_newer(slot, None);
            self.set_base(slot, &[LAZYCLEANING], CLEAN);
            self.order.filled(SlotId(slot), claim.page, Fill::Cleaned, &self.shares);
            if until_sync == UntilSync::Pinned {
                self.pin(slot);
            }
            return Ended::Clean;
        }
        let rec_lsn = self.newer(slot).expect("a dirty slot");
        self.set_base(slot, &[LAZYCLEANING], DIRTY);
        let fill = Fill::StillDirty(rec_lsn);
        self.order.filled(SlotId(slot), claim.page, fill, &self.shares);
        if how == Cleaned::Damaged {
            self.set_damaged(slot, true);
        }
        Ended::Dirty
    }

    /// Whether the cleaner may take `slot`.
    pub fn is_cleanable(&self, slot: u32) -> bool {
        self.states[slot as usize] == DIRTY | NEWER && !self.is_leaving(slot)
    }

    /// The pages that the cleaner may take.
    pub fn cleanable_pages(&self) -> impl Iterator<Item = PageId> + '_ {
        let slots = (0..self.count()).filter(|&slot| self.is_cleanable(slot));
        slots.filter_map(|slot| self.page(slot))
    }

    /// Pages that are newer than at home, each with its recLSN.
    pub fn newer_pages(&self) -> impl Iterator<Item = (PageId, Lsn)> + '_ {
        (0..self.count()).filter_map(|slot| Some((self.page(slot)?, self.newer(slot)?)))
    }

    /// A page that is newer than at home and whose bytes are damaged, if there is one.
    pub fn damaged(&self) -> Option<PageId> {
        let slot = (0..self.count()).find(|&slot| self.has(slot, DAMAGED))?;
        self.page(slot)
    }
}
