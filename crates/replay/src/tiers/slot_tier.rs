//! The designs of SIGMOD 2011, over the same slots in LRU-2 order as the pool: `cw`, `dw`, `lc`.
//!
//! - S1: a change frees the slot of the page at once: `Invalidation::Physical`.
//! - S2: the cleaner works when more than lambda of the slots are newer than home, and gathers runs
//!   of neighbours [S0 3.3.5]. It has no time of its own here: it is done at once.
//! - S3: one partition; no throttle, since no device has a queue.

use super::cleaning::Cleaning;
use super::copies::Copies;
use super::residents::Residents;
use super::{Allocated, FlashSetup, FlashTier, Held, Leaving, Miss, Note, Traffic};
use crate::places::Places;
use terrace_page::{Lsn, SlotId};
use terrace_policy::{
    CleanLeave, CleanerOrder, Design, DirtyLeave, Filling, History, SlotLru2, SlotState, admit,
};

pub struct SlotTier<'a> {
    design: Design,
    lru: SlotLru2,
    copies: Copies,
    filling: Filling,
    cleaning: Cleaning,
    places: &'a Places,
}

impl<'a> SlotTier<'a> {
    pub fn new(
        pages_count: u32,
        places: &'a Places,
        design: Design,
        setup: &FlashSetup,
    ) -> SlotTier<'a> {
        SlotTier {
            design,
            lru: SlotLru2::new(setup.slots, CleanerOrder::Lru2Age),
            copies: Copies::new(pages_count, setup.slots),
            filling: Filling::new(setup.slots, setup.tau),
            cleaning: setup.cleaning,
            places,
        }
    }

    /// A busy slot for the page that leaves, which will be `held` there, if it is admitted.
    fn admitted(&mut self, leaving: &Leaving, held: Held) -> Option<SlotId> {
        let (free, clean) = (self.lru.count(SlotState::Free), self.lru.count(SlotState::Clean));
        let used = self.copies.slots_count() - free;
        let filling = self.filling.is_on(used);
        admit(leaving.class, filling, 0, 0, free + clean).ok()?;
        let slot = match self.lru.take_free(leaving.now) {
            Some(slot) => slot,
            None => {
                let victim = self.lru.victim(|_| true)?;
                self.lru.take(victim);
                victim
            }
        };
        self.copies.put(leaving.page, slot, held);
        Some(slot)
    }

    /// Writes a page that home has, too, or will at the same time.
    fn write_clean(&mut self, leaving: &Leaving, io: &mut Traffic) {
        if let Some(slot) = self.admitted(leaving, Held::Clean) {
            self.lru.fill_clean(slot, leaving.history);
            io.write_flash();
        }
    }

    fn clean(&mut self, io: &mut Traffic) {
        let slots = self.copies.slots_count();
        if !self.cleaning.is_due(self.lru.count(SlotState::Dirty), slots) {
            return;
        }
        while self.cleaning.goes_on(self.lru.count(SlotState::Dirty), slots) {
            let Some(slot) = self.lru.next_dirty(|_| true) else { return };
            for slot in self.cleaning.clean_around(self.places, &mut self.copies, slot, io) {
                self.lru.cleaned(slot);
            }
        }
    }
}

impl Allocated for SlotTier<'_> {
    fn bytes(&self) -> usize {
        self.lru.bytes() + self.copies.bytes()
    }
}

impl FlashTier for SlotTier<'_> {
    fn fetch(&mut self, miss: &Miss, _: &mut Residents, io: &mut Traffic) -> Option<History> {
        let Some(slot) = self.copies.slot(miss.page) else {
            io.read_home(miss.page);
            return None;
        };
        io.read_flash();
        self.lru.hit(slot, miss.now);
        Some(self.lru.history(slot))
    }

    fn note(&mut self, note: Note, _: &mut Traffic) {
        let Note::Changes(page) = note else { return };
        if let Some(slot) = self.copies.forget(page) {
            self.lru.free(slot);
        }
    }

    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic) {
        if !leaving.dirty {
            if self.design.clean_leave == CleanLeave::Flash && !self.held(leaving.page).has_slot() {
                self.write_clean(leaving, io);
            }
            return;
        }
        match self.design.dirty_leave {
            DirtyLeave::FlashAndHome => {
                io.write_home(leaving.page);
                self.write_clean(leaving, io);
            }
            DirtyLeave::Flash => match self.admitted(leaving, Held::Dirty) {
                Some(slot) => {
                    self.lru.fill_dirty(slot, leaving.history, Lsn(leaving.now.0));
                    io.write_flash();
                    self.clean(io);
                }
                None => io.write_home(leaving.page),
            },
            _ => io.write_home(leaving.page),
        }
    }

    #[inline]
    fn held(&self, page: u32) -> Held {
        self.copies.held(page)
    }
}
