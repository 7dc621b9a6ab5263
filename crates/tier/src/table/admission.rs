//! Admission: which page gets a slot, which page loses one for it, and what is counted of that.
//!
//! - A1: a page is admitted if the flash is not too busy, if it is random or the tier is being
//!   filled, if flash may be written at all, and if a slot is free or its content gives way
//!   [S0 2.2, 3.3].
//! - A2: designs that go by temperature or benefit ask no class: the order of their slots decides.
//! - A3: a page that owns an invalid slot gets that one again, never a second [sources.R5].
//! - A4: a page whose slot keeps a base is written to another slot, whatever it benefits: a base is
//!   not written over.
//! - A5: the slot of a page that may not lose it (inclusive designs) counts as used now, as its
//!   page is.

use terrace_page::{PageId, SlotId};
use terrace_policy::{AccessClass, AdmissionRule, Tick};

use super::{NoVictim, Seen, SlotTable, is_used_more};
use crate::order::Asks;
use crate::{Around, Candidate, Shares, SlotOrder};

/// Why a page gets no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too many requests are queued at the flash device.
    Throttled,
    /// The flash was sent all that it may be sent by now.
    OverBudget,
    /// By what is admitted: nothing, no sequential page, or none that is worth less than what is
    /// there.
    ByPolicy,
    /// No slot is free or clean.
    NoRoom,
}

/// What came of the pages that asked for slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admissions {
    /// Pages that got one.
    pub admitted: u64,
    /// Refused as `Throttled`.
    pub throttled: u64,
    /// Refused as `OverBudget`.
    pub over_budget: u64,
    /// Refused as `ByPolicy`.
    pub by_policy: u64,
    /// Refused as `NoRoom`.
    pub no_room: u64,
}

impl Admissions {
    fn refused(&mut self, why: Refusal) {
        *match why {
            Refusal::Throttled => &mut self.throttled,
            Refusal::OverBudget => &mut self.over_budget,
            Refusal::ByPolicy => &mut self.by_policy,
            Refusal::NoRoom => &mut self.no_room,
        } += 1;
    }
}

/// A page that lost its slot to another one: the driver forgets that it had one, and tells the
/// structures that keep account of the slot.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Displaced {
    /// The page.
    pub page: PageId,
    /// The slot.
    pub slot: u32,
}

/// A slot, and the page that lost it, if one did.
pub(super) type Taken = (u32, Option<Displaced>);

/// Whether a page of `class` may have a slot by `rule`, if there is one (A1, A2).
fn admits(rule: AdmissionRule, class: AccessClass, around: &impl Around) -> Result<(), Refusal> {
    let is_sequential = match rule {
        AdmissionRule::Nothing => return Err(Refusal::ByPolicy),
        AdmissionRule::Temperature | AdmissionRule::All | AdmissionRule::Benefit => false,
        AdmissionRule::RandomClass | AdmissionRule::Frequency | AdmissionRule::Chosen => {
            class == AccessClass::Sequential
        }
    };
    // Whether the tier is being filled has memory: it is asked whatever the queue is.
    let is_kept_out = is_sequential && !around.is_filling();
    match () {
        () if around.is_throttled() => Err(Refusal::Throttled),
        () if is_kept_out => Err(Refusal::ByPolicy),
        () if around.is_over_budget() => Err(Refusal::OverBudget),
        () => Ok(()),
    }
}

impl<O: SlotOrder, S: Shares> SlotTable<O, S> {
    /// What came of admissions so far.
    pub fn admissions(&self) -> Admissions {
        self.admissions
    }

    /// A page of a group got a slot.
    pub fn admitted(&mut self) {
        self.admissions.admitted += 1;
    }

    /// A slot in READY for a page that has none.
    pub(super) fn admit(&mut self, page: &Candidate, around: &impl Around) -> Option<Taken> {
        // An append log takes pages in groups only.
        if self.appends || !around.is_usable() {
            return None;
        }
        let admitted = admits(self.design.admission, page.class, around);
        match admitted.and_then(|()| self.take_slot(page.page, None, around)) {
            Ok(taken) => {
                self.admissions.admitted += 1;
                Some(taken)
            }
            Err(why) => {
                self.admissions.refused(why);
                None
            }
        }
    }

    /// A slot in READY for a page whose slot `base` keeps a base (A4).
    pub(super) fn take_beside(
        &mut self,
        page: PageId,
        base: u32,
        around: &impl Around,
    ) -> Option<Taken> {
        if !around.is_usable() {
            return None;
        }
        self.take_slot(page, Some(base), around).ok()
    }

    /// The slot that a page still owns, in READY, to be written again (A3).
    pub(super) fn take_own(&mut self, slot: Option<u32>, around: &impl Around) -> Option<Taken> {
        let slot = slot.filter(|&slot| self.is_own(slot))?;
        if !around.is_usable() {
            return None;
        }
        // What flash alone would have goes there, busy or not.
        if !self.keeps_dirty && around.is_throttled() {
            self.admissions.refused(Refusal::Throttled);
            return None;
        }
        if around.is_over_budget() {
            self.admissions.refused(Refusal::OverBudget);
            return None;
        }
        self.refresh(slot);
        Some((slot, None))
    }

    /// A free slot, or that of the victim [S0 2.3: alloc], for a page in memory that may have one.
    fn take_slot(
        &mut self,
        page: PageId,
        own: Option<u32>,
        around: &impl Around,
    ) -> Result<Taken, Refusal> {
        let taken = self.free_or_reused(page, own, around)?;
        if let Some(in_memory) = &mut self.in_memory {
            in_memory.set(taken.0, true);
        }
        Ok(taken)
    }

    fn free_or_reused(
        &mut self,
        page: PageId,
        own: Option<u32>,
        around: &impl Around,
    ) -> Result<Taken, Refusal> {
        if let Some(slot) = self.alloc(page, around.now()) {
            return Ok((slot, None));
        }
        let victim = self.victim_not_included(page, own, around.now());
        if self.wants_cleaning() {
            around.cleaning_wanted();
        }
        match victim {
            Ok(slot) => {
                let former = self.page(slot).expect("a clean slot has a page");
                self.reuse(slot, page);
                Ok((slot, Some(Displaced { page: former, slot })))
            }
            Err(NoVictim::Busy) => {
                around.slots_wanted();
                Err(Refusal::NoRoom)
            }
            // Worth less than all that is there: by the policy, as a sequential page is.
            Err(NoVictim::Colder) => Err(Refusal::ByPolicy),
        }
    }

    /// The slot to reuse for `page` (A5).
    fn victim_not_included(
        &mut self,
        page: PageId,
        own: Option<u32>,
        now: Tick,
    ) -> Result<u32, NoVictim> {
        let Some(kept) = &self.in_memory else { return self.victim(page, own) };
        let asks = Asks { page, own: own.map(SlotId), compares: self.admits_by_frequency };
        let slots = Seen { states: &self.states, pages: &self.pages };
        let victim = self.order.victim_but((kept, now), asks, &slots, &self.shares)?;
        self.gives_way(victim.0, page)
    }

    /// The victim, if admission finds that it gives way to `page`.
    pub(super) fn gives_way(&self, victim: u32, page: PageId) -> Result<u32, NoVictim> {
        let other = PageId(u64::from(self.pages[victim as usize]));
        match &self.uses {
            Some(uses) if self.admits_by_frequency && !is_used_more(uses, page, other) => {
                Err(NoVictim::Colder)
            }
            _ => Ok(victim),
        }
    }
}
