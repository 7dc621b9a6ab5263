//! CC and CAC, over the same slots by benefit as the pool [S1e 5; SPEC 6.3].
//!
//! - B1: a slot whose page was changed stays its page's, and is written again when the page leaves
//!   memory: `Invalidation::Logical`.
//! - B2: dirty slots go home when they are next to be reused, a few ahead. That has no time of its
//!   own here: they are clean before the next page is placed.
//! - B3: what memory served is told when a page leaves, or when counts are halved.

use super::cleaning::{Cleaning, take_home};
use super::residents::Residents;
use super::{FlashSetup, FlashTier, Held, Leaving, Miss, Note, Traffic};
use crate::places::Places;
use terrace_page::{PageId, SlotId};
use terrace_policy::{
    Design, Expansion, ExpansionRule, History, Replacement, SlotBenefit, SlotState,
};

/// No slot.
const NONE: u32 = u32::MAX;

/// Slots by benefit.
pub struct BenefitTier<'a> {
    ranks: SlotBenefit,
    expansion: Expansion,
    counts_hits: bool,
    slots: Vec<u32>,
    pages: Vec<u32>,
    cleaning: Cleaning,
    places: &'a Places,
}

/// What the ranks call a page: any number does that it keeps.
fn id(page: u32) -> PageId {
    PageId(u64::from(page))
}

impl<'a> BenefitTier<'a> {
    pub fn new(
        pages_count: u32,
        places: &'a Places,
        design: Design,
        frames: u32,
        setup: &FlashSetup,
    ) -> BenefitTier<'a> {
        let rule = match design.replacement {
            Replacement::AnticipatedBenefit => ExpansionRule::Estimated,
            _ => ExpansionRule::One,
        };
        let expansion = Expansion::new(rule, &setup.costs);
        BenefitTier {
            ranks: SlotBenefit::new(setup.slots, frames, &setup.costs, &expansion),
            expansion,
            counts_hits: design.replacement.counts_hits(),
            slots: vec![NONE; pages_count as usize],
            pages: vec![NONE; setup.slots as usize],
            cleaning: setup.cleaning,
            places,
        }
    }

    /// The slot of `page`, stale or not.
    fn slot(&self, page: u32) -> Option<SlotId> {
        let slot = self.slots[page as usize];
        (slot != NONE).then_some(SlotId(slot))
    }

    /// Memory served `logical` requests for `page`, of which a device was asked `physical` times.
    fn count_in_memory(&mut self, page: u32, physical: u32, logical: u32) {
        let (slot, reads) = (self.slot(page), (physical, logical));
        self.ranks.was_in_memory(id(page), slot, reads, &mut self.expansion);
    }

    /// Forgets half of what was counted, if that is due (B3).
    fn end_period(&mut self, residents: &mut Residents) {
        if !self.ranks.is_period_over() {
            return;
        }
        let here: Vec<u32> = residents.pages().collect();
        for page in here {
            let frame = residents.get_mut(page).expect("a page that is here");
            let hits = std::mem::take(&mut frame.hits);
            self.count_in_memory(page, 0, hits);
        }
        self.ranks.halve();
    }

    /// A busy slot for `page`, which has none.
    fn admitted(&mut self, page: u32) -> Option<SlotId> {
        let slot = match self.ranks.take_free(id(page)) {
            Some(slot) => slot,
            None => {
                let victim = self.ranks.victim(id(page), None, |_| true, |_| true).ok()?;
                let former = self.pages[victim.0 as usize];
                self.ranks.replace(victim, id(former), id(page));
                self.slots[former as usize] = NONE;
                victim
            }
        };
        self.slots[page as usize] = slot.0;
        self.pages[slot.0 as usize] = page;
        Some(slot)
    }

    /// Takes home what is wanted clean (B2).
    fn clean(&mut self, io: &mut Traffic) {
        while self.ranks.cleanings_wanted() > 0 {
            self.ranks.cleaning_begun();
            let Some(root) = self.ranks.next_dirty(|_| true) else { continue };
            let is_dirty = |page: u32| self.held(page) == Held::Dirty;
            let page = self.pages[root.0 as usize];
            let run = self.cleaning.run_around(self.places, page, is_dirty);
            take_home(&run, io);
            for page in run {
                let slot = self.slot(page).expect("a dirty page has a slot");
                self.ranks.take(slot);
                self.ranks.fill_clean(slot);
            }
        }
    }
}

impl FlashTier for BenefitTier<'_> {
    fn fetch(
        &mut self,
        miss: &Miss,
        residents: &mut Residents,
        io: &mut Traffic,
    ) -> Option<History> {
        self.ranks.read(id(miss.page), self.slot(miss.page));
        self.end_period(residents);
        if !self.held(miss.page).is_current() {
            io.read_home(miss.page);
            return None;
        }
        io.read_flash();
        Some(History::once(miss.now))
    }

    fn note(&mut self, note: Note, _: &mut Traffic) {
        if let Note::Changes(page) = note
            && self.held(page).is_current()
        {
            self.ranks.take(self.slot(page).expect("it is held"));
        }
    }

    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic) {
        let page = leaving.page;
        if self.counts_hits {
            // The request that brought the page was no hit.
            self.count_in_memory(page, 1, leaving.hits.saturating_add(1));
        }
        if leaving.dirty {
            let slot = self.slot(page);
            self.ranks.wrote(id(page), slot);
        }
        if self.held(page).is_current() {
            return;
        }
        let slot = self.slot(page).or_else(|| self.admitted(page));
        match (slot, leaving.dirty) {
            (Some(slot), true) => self.ranks.fill_dirty(slot),
            (Some(slot), false) => self.ranks.fill_clean(slot),
            (None, true) => io.write_home(page),
            (None, false) => {}
        }
        if slot.is_some() {
            io.write_flash();
        }
        self.clean(io);
    }

    fn held(&self, page: u32) -> Held {
        match self.slot(page).map(|slot| self.ranks.state(slot)) {
            None => Held::Nothing,
            Some(SlotState::Clean) => Held::Clean,
            Some(SlotState::Dirty) => Held::Dirty,
            Some(_) => Held::Stale,
        }
    }
}
