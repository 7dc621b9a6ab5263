//! The designs that reuse the slot whose last use is oldest, over the same slots by age as the
//! pool: `lazy`, `inclusive`, `exclusive`. They differ in what flash has of a page in memory
//! [Koltsidas and Viglas, "Designing a flash-aware two-level cache", ADBIS 2011].
//!
//! - A1: inclusive: a page that is read gets a slot at once, if one is free, or clean and of a page
//!   that is not in memory; one that would be next and whose page is there counts as used. The
//!   page is written there if it was read from home: at once, or as the engine does, by a task that
//!   comes when whoever asked for the page has to wait again, and not if he has changed it by then.
//! - A2: inclusive: a slot whose page was changed stays its page's, and is written again when the
//!   page leaves memory. Only pages in memory have a slot without their bytes.
//! - A3: exclusive: the copy goes when its page is read; what it had that home lacks is in memory
//!   alone from then on. A write to flash takes no time here, so no page is used during one.
//! - A4: the cleaner works as for the slots in LRU-2 order: what it does is done at once.

use super::aged_slots::AgedSlots;
use super::residents::Residents;
use super::{Allocated, FlashSetup, FlashTier, Held, Leaving, Miss, Note, TacWrite, Traffic};
use crate::places::Places;
use terrace_page::SlotId;
use terrace_policy::{AgeOrder, Design, History, Inclusion, Invalidation, SlotBits, Tick};

/// Slots of pages in memory that are passed over for a victim, and count as used; then they are not
/// looked at any more. The pool passes over as many as memory has frames.
const PASSED_OVER_MAX: u32 = 64;

/// Slots by age.
pub struct AgeTier<'a> {
    inclusion: Inclusion,
    /// Whether the slot of a page that changes stays its page's.
    keeps_own: bool,
    slots: AgedSlots<'a>,
    /// Inclusive: slots whose page is in memory.
    kept: SlotBits,
    when: TacWrite,
    /// A page that was read and is still to be written into its slot, with its uses.
    pending: Option<(u32, History)>,
}

impl<'a> AgeTier<'a> {
    pub fn new(
        pages_count: u32,
        places: &'a Places,
        design: Design,
        setup: &FlashSetup,
    ) -> AgeTier<'a> {
        AgeTier {
            inclusion: design.inclusion,
            keeps_own: design.invalidation == Invalidation::Logical,
            slots: AgedSlots::new(pages_count, places, setup),
            kept: SlotBits::new(setup.slots),
            when: setup.tac_write,
            pending: None,
        }
    }

    /// A slot for `page`, which has none, without its bytes; if there is one.
    fn take_slot(&mut self, page: u32, now: Tick) -> Option<SlotId> {
        let slot = match self.slots.ages.take_free(now) {
            Some(slot) => slot,
            None => {
                let victim = self.victim(now)?;
                self.slots.ages.take(victim);
                victim
            }
        };
        self.slots.copies.put(page, slot, Held::Stale);
        Some(slot)
    }

    /// The slot to reuse (A1). Where few may be, nearly all of them are passed over for one: it is
    /// looked for among those few.
    fn victim(&mut self, now: Tick) -> Option<SlotId> {
        let AgedSlots { ages, copies, .. } = &mut self.slots;
        let passed_over_max = if ages.are_few_but(&self.kept) { 0 } else { PASSED_OVER_MAX };
        let page_of = |slot| copies.page(slot).expect("a filled slot has a page");
        let is_clean = |slot| copies.held(page_of(slot)) == Held::Clean;
        for _ in 0..passed_over_max {
            let victim = ages.victim(AgeOrder::Recency, is_clean)?;
            if !self.kept.has(victim.0) {
                return Some(victim);
            }
            ages.hit(victim, now);
        }
        ages.victim_not_kept(AgeOrder::Recency, &self.kept)
    }

    /// `page`, which may have a slot, is in memory from now on, or is not.
    fn set_kept(&mut self, page: u32, is_in_memory: bool) {
        if self.inclusion == Inclusion::Inclusive
            && let Some(slot) = self.slots.copies.slot(page)
        {
            self.kept.set(slot.0, is_in_memory);
        }
    }

    /// A page that was read from home gets a slot, and is written there now or soon (A1).
    fn include(&mut self, miss: &Miss, io: &mut Traffic) {
        if self.take_slot(miss.page, miss.tick).is_none() {
            return;
        }
        self.pending = Some((miss.page, History::once(miss.now)));
        if self.when == TacWrite::AtOnce {
            self.write_pending(io);
        }
    }

    /// Whoever asked for the page waits, or is done.
    fn write_pending(&mut self, io: &mut Traffic) {
        if let Some((page, history)) = self.pending.take() {
            let slot = self.slots.copies.slot(page).expect("nobody else gets the slot");
            self.slots.write(page, slot, history, Held::Clean, io);
        }
    }
}

impl Allocated for AgeTier<'_> {
    fn bytes(&self) -> usize {
        self.slots.bytes() + self.kept.bytes()
    }
}

impl FlashTier for AgeTier<'_> {
    fn fetch(&mut self, miss: &Miss, _: &mut Residents, io: &mut Traffic) -> Option<History> {
        let Some(slot) = self.slots.copies.slot(miss.page) else {
            io.read_home(miss.page);
            self.write_pending(io);
            if self.inclusion == Inclusion::Inclusive {
                self.include(miss, io);
                self.set_kept(miss.page, true);
            }
            return None;
        };
        let history = self.slots.read(slot, miss, io);
        self.write_pending(io);
        self.set_kept(miss.page, true);
        if self.inclusion == Inclusion::Exclusive {
            self.slots.forget(miss.page);
        }
        Some(history)
    }

    fn note(&mut self, note: Note, io: &mut Traffic) {
        let page = match note {
            Note::TimePasses => return self.write_pending(io),
            Note::Changes(page) => page,
        };
        self.pending = self.pending.filter(|row| row.0 != page);
        if self.keeps_own {
            self.slots.make_stale(page);
        } else {
            self.slots.forget(page);
        }
    }

    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic) {
        let page = leaving.page;
        self.pending = self.pending.filter(|row| row.0 != page);
        self.set_kept(page, false);
        if self.held(page).is_current() {
            return;
        }
        let own = self.slots.copies.slot(page);
        let slot = own.or_else(|| self.take_slot(page, leaving.now));
        match (slot, leaving.dirty) {
            (Some(slot), true) => self.slots.write(page, slot, leaving.history, Held::Dirty, io),
            (Some(slot), false) => self.slots.write(page, slot, leaving.history, Held::Clean, io),
            (None, true) => io.write_home(page),
            (None, false) => {}
        }
        self.slots.clean(io);
    }

    #[inline]
    fn held(&self, page: u32) -> Held {
        self.slots.copies.held(page)
    }
}
