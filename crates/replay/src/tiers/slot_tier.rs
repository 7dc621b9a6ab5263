//! The designs of SIGMOD 2011, over the same slots in LRU-2 order as the pool: `cw`, `dw`, `lc`.
//!
//! - S1: a change frees the slot of the page at once: `Invalidation::Physical`.
//! - S2: the cleaner works when more than lambda of the slots are newer than home, and gathers runs
//!   of neighbours [S0 3.3.5]. It has no time of its own here: it is done at once.
//! - S3: one partition; no throttle, since no device has a queue.

use super::cleaning::{Cleaning, LAMBDA_SLACK, take_home};
use super::residents::Residents;
use super::{FlashSetup, FlashTier, Held, Leaving, Miss, Note, Traffic};
use crate::places::Places;
use terrace_page::{Lsn, SlotId};
use terrace_policy::{
    CleanLeave, CleanerOrder, Design, DirtyLeave, Filling, History, SlotLru2, SlotState, admit,
};

/// No slot.
const NONE: u32 = u32::MAX;

pub struct SlotTier<'a> {
    design: Design,
    lru: SlotLru2,
    slots: Vec<u32>,
    pages: Vec<u32>,
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
            slots: vec![NONE; pages_count as usize],
            pages: vec![NONE; setup.slots as usize],
            filling: Filling::new(setup.slots, setup.tau),
            cleaning: setup.cleaning,
            places,
        }
    }

    fn slot(&self, page: u32) -> Option<SlotId> {
        let slot = self.slots[page as usize];
        (slot != NONE).then_some(SlotId(slot))
    }

    /// A busy slot for `page`, if it is admitted.
    fn admitted(&mut self, leaving: &Leaving) -> Option<SlotId> {
        let (free, clean) = (self.lru.count(SlotState::Free), self.lru.count(SlotState::Clean));
        let used = self.pages.len() as u32 - free;
        let filling = self.filling.is_on(used);
        admit(leaving.class, filling, 0, 0, free + clean).ok()?;
        let slot = match self.lru.take_free(leaving.now) {
            Some(slot) => slot,
            None => {
                let victim = self.lru.victim(|_| true)?;
                self.lru.take(victim);
                self.slots[self.pages[victim.0 as usize] as usize] = NONE;
                victim
            }
        };
        self.slots[leaving.page as usize] = slot.0;
        self.pages[slot.0 as usize] = leaving.page;
        Some(slot)
    }

    /// Writes a page that home has, too, or will at the same time.
    fn write_clean(&mut self, leaving: &Leaving, io: &mut Traffic) {
        if let Some(slot) = self.admitted(leaving) {
            self.lru.fill_clean(slot, leaving.history);
            io.write_flash();
        }
    }

    fn clean(&mut self, io: &mut Traffic) {
        let slots = self.pages.len() as f64;
        let dirty = |lru: &SlotLru2| f64::from(lru.count(SlotState::Dirty));
        if dirty(&self.lru) <= self.cleaning.lambda * slots {
            return;
        }
        while dirty(&self.lru) > (self.cleaning.lambda - LAMBDA_SLACK).max(0.0) * slots {
            let Some(slot) = self.lru.next_dirty(|_| true) else { return };
            let is_dirty = |page: u32| self.held(page) == Held::Dirty;
            let page = self.pages[slot.0 as usize];
            let run = self.cleaning.run_around(self.places, page, is_dirty);
            take_home(&run, io);
            for page in run {
                let slot = self.slot(page).expect("a dirty page has a slot");
                self.lru.cleaned(slot);
            }
        }
    }
}

impl FlashTier for SlotTier<'_> {
    fn fetch(&mut self, miss: &Miss, _: &mut Residents, io: &mut Traffic) -> Option<History> {
        let Some(slot) = self.slot(miss.page) else {
            io.read_home(miss.page);
            return None;
        };
        io.read_flash();
        self.lru.hit(slot, miss.now);
        Some(self.lru.history(slot))
    }

    fn note(&mut self, note: Note, _: &mut Traffic) {
        let Note::Changes(page) = note else { return };
        if let Some(slot) = self.slot(page) {
            self.lru.free(slot);
            self.slots[page as usize] = NONE;
            self.pages[slot.0 as usize] = NONE;
        }
    }

    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic) {
        if !leaving.dirty {
            if self.design.clean_leave == CleanLeave::Flash && self.slot(leaving.page).is_none() {
                self.write_clean(leaving, io);
            }
            return;
        }
        match self.design.dirty_leave {
            DirtyLeave::FlashAndHome => {
                io.write_home(leaving.page);
                self.write_clean(leaving, io);
            }
            DirtyLeave::Flash => match self.admitted(leaving) {
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

    fn held(&self, page: u32) -> Held {
        match self.slot(page).map(|slot| self.lru.state(slot)) {
            None => Held::Nothing,
            Some(SlotState::Dirty) => Held::Dirty,
            Some(_) => Held::Clean,
        }
    }
}
