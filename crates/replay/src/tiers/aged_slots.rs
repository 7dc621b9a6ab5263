//! Slots by age, the copies in them, and the lazy cleaner over both: the books of the designs whose
//! slots the pool keeps so.
//!
//! - B1: a slot is dirty in the ages if and only if its copy is newer than home, and those are
//!   counted.

use super::cleaning::Cleaning;
use super::copies::Copies;
use super::{Allocated, FlashSetup, Held, Miss, Traffic};
use crate::places::Places;
use terrace_page::SlotId;
use terrace_policy::{History, SlotAges};

/// The slots, and what is in them.
pub struct AgedSlots<'a> {
    pub ages: SlotAges,
    pub copies: Copies,
    /// Pages that were cleaned, and in how many writes.
    pub cleaned: (u64, u64),
    dirty_count: u32,
    cleaning: Cleaning,
    places: &'a Places,
}

impl<'a> AgedSlots<'a> {
    /// As many as `setup` has, for pages below `pages_count`.
    pub fn new(pages_count: u32, places: &'a Places, setup: &FlashSetup) -> AgedSlots<'a> {
        AgedSlots {
            ages: SlotAges::new(setup.slots, u64::from(setup.slots)),
            copies: Copies::new(pages_count, setup.slots),
            cleaned: (0, 0),
            dirty_count: 0,
            cleaning: setup.cleaning,
            places,
        }
    }

    /// Whether a copy is newer than home.
    pub fn has_dirty(&self) -> bool {
        self.dirty_count > 0
    }

    /// The page in `slot` is read. Its uses.
    pub fn read(&mut self, slot: SlotId, miss: &Miss, io: &mut Traffic) -> History {
        io.read_flash();
        self.ages.hit(slot, miss.tick);
        let previous = self.ages.history(slot).previous;
        History { last: miss.now, previous: previous.filter(|&tick| tick < miss.now) }
    }

    /// `page` is written into `slot`, which is its own and taken.
    pub fn write(
        &mut self,
        page: u32,
        slot: SlotId,
        history: History,
        held: Held,
        io: &mut Traffic,
    ) {
        match held {
            Held::Dirty => self.ages.fill_dirty(slot, history),
            _ => self.ages.fill_clean(slot, history),
        }
        self.dirty_count += u32::from(held == Held::Dirty);
        self.copies.set(page, held);
        io.write_flash();
    }

    /// The copy of `page`, if there is one, is gone.
    pub fn forget(&mut self, page: u32) {
        self.dirty_count -= u32::from(self.copies.held(page) == Held::Dirty);
        if let Some(slot) = self.copies.forget(page) {
            self.ages.free(slot);
        }
    }

    /// Cleans as much as is due: all at once, since the cleaner has no time of its own here.
    pub fn clean(&mut self, io: &mut Traffic) {
        let slots = self.copies.slots_count();
        if self.cleaning.is_due(self.dirty_count, slots) {
            while self.cleaning.goes_on(self.dirty_count, slots) && self.clean_run(io) {}
        }
    }

    /// Cleans a run. Whether there was one.
    pub fn clean_run(&mut self, io: &mut Traffic) -> bool {
        let Some(root) = self.ages.next_dirty(|_| true) else { return false };
        let run = self.cleaning.clean_around(self.places, &mut self.copies, root, io);
        self.cleaned.0 += run.len() as u64;
        self.cleaned.1 += 1;
        self.dirty_count -= run.len() as u32;
        for slot in run {
            self.ages.take(slot);
            self.ages.was_cleaned(slot, true);
        }
        true
    }
}

impl Allocated for AgedSlots<'_> {
    fn bytes(&self) -> usize {
        self.ages.bytes() + self.copies.bytes()
    }
}
