//! CC and CAC, over the same slots by benefit as the pool [S1e 5].
//!
//! - B1: a slot whose page was changed stays its page's, and is written again when the page leaves
//!   memory: `Invalidation::Logical`.
//! - B2: dirty slots go home when they are next to be reused, a few ahead. That has no time of its
//!   own here: they are clean before the next page is placed.
//! - B3: what memory served is told when a page leaves, or when counts are halved.

use super::cleaning::Cleaning;
use super::copies::Copies;
use super::residents::Residents;
use super::{Allocated, FlashSetup, FlashTier, Held, Leaving, Miss, Note, Traffic};
use crate::places::Places;
use terrace_page::{PageId, SlotId};
use terrace_policy::{Design, Expansion, ExpansionRule, History, Replacement, SlotBenefit};

/// Slots by benefit.
pub struct BenefitTier<'a> {
    ranks: SlotBenefit,
    expansion: Expansion,
    counts_hits: bool,
    copies: Copies,
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
            copies: Copies::new(pages_count, setup.slots),
            cleaning: setup.cleaning,
            places,
        }
    }

    /// Memory served `logical` requests for `page`, of which a device was asked `physical` times.
    fn count_in_memory(&mut self, page: u32, physical: u32, logical: u32) {
        let (slot, reads) = (self.copies.slot(page), (physical, logical));
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
                let former = self.copies.page(victim).expect("a filled slot has a page");
                self.ranks.replace(victim, id(former), id(page));
                victim
            }
        };
        self.copies.put(page, slot, Held::Stale);
        Some(slot)
    }

    /// Takes home what is wanted clean (B2).
    fn clean(&mut self, io: &mut Traffic) {
        while self.ranks.cleanings_wanted() > 0 {
            self.ranks.cleaning_begun();
            let Some(root) = self.ranks.next_dirty(|_| true) else { continue };
            for slot in self.cleaning.clean_around(self.places, &mut self.copies, root, io) {
                self.ranks.take(slot);
                self.ranks.fill_clean(slot);
            }
        }
    }
}

impl Allocated for BenefitTier<'_> {
    fn bytes(&self) -> usize {
        self.ranks.bytes() + self.expansion.bytes() + self.copies.bytes()
    }
}

impl FlashTier for BenefitTier<'_> {
    fn fetch(
        &mut self,
        miss: &Miss,
        residents: &mut Residents,
        io: &mut Traffic,
    ) -> Option<History> {
        self.ranks.read(id(miss.page), self.copies.slot(miss.page));
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
            self.ranks.take(self.copies.slot(page).expect("it is held"));
            self.copies.set(page, Held::Stale);
        }
    }

    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic) {
        let page = leaving.page;
        if self.counts_hits {
            // The request that brought the page was no hit.
            self.count_in_memory(page, 1, leaving.hits.saturating_add(1));
        }
        if leaving.dirty {
            let slot = self.copies.slot(page);
            self.ranks.wrote(id(page), slot);
        }
        if self.held(page).is_current() {
            return;
        }
        let slot = self.copies.slot(page).or_else(|| self.admitted(page));
        match (slot, leaving.dirty) {
            (Some(slot), true) => self.ranks.fill_dirty(slot),
            (Some(slot), false) => self.ranks.fill_clean(slot),
            (None, true) => io.write_home(page),
            (None, false) => {}
        }
        if slot.is_some() {
            self.copies.set(page, if leaving.dirty { Held::Dirty } else { Held::Clean });
            io.write_flash();
        }
        self.clean(io);
    }

    #[inline]
    fn held(&self, page: u32) -> Held {
        self.copies.held(page)
    }
}
