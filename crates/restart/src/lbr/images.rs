//! What LBR's analysis makes of the log [S3 III-C4].
//!
//! | record | what it does to the slots |
//! |---|---|
//! | BEGIN_CHKPT of the last checkpoint that ended | before it nothing is believed: all are FREE |
//! | CHKPT, POST_WRITE | hold what it says; another slot with the same page is free |
//! | PRE_INVALIDATE | is free |
//! | LAZY_CLEANED | is CLEAN, if it was DIRTY |
//! | GIVEN_UP | all are free |
//! | UPDATE, CLR, RESTORE; UNLOGGED | the slot with this page is free |
//!
//! The paper says the last BEGIN_CHKPT; in a crash in the middle of a checkpoint that one has
//! nothing to show yet [sources.R18].

use terrace_page::{Lsn, PageId};
use terrace_tier::{Mutation, Mutations};

use crate::images::{Images, SlotsByPage};
use crate::layout::FlashLayout;
use crate::records::{TierRecord, What};
use crate::recover::{ColdStart, LogFacts, Place, Recover, ScanFrom};
use terrace_tier::Image;

/// The table as analysis rebuilds it.
pub(crate) struct LoggedImages {
    images: Images,
    slots: SlotsByPage,
    slots_count: u32,
    table: u64,
    /// Records before this are not believed.
    began: Lsn,
    mutations: Mutations,
}

impl LoggedImages {
    pub fn new(layout: &FlashLayout, mutations: Mutations) -> LoggedImages {
        LoggedImages {
            images: Images::new(layout.slots, false),
            slots: SlotsByPage::default(),
            slots_count: layout.slots,
            table: 0,
            began: Lsn::MAX,
            mutations,
        }
    }

    fn free(&mut self, slot: u32) {
        if let Some(page) = self.images.page(slot) {
            self.images.free(slot);
            self.slots.remove(&page);
        }
    }

    fn free_page(&mut self, page: PageId) {
        if let Some(slot) = self.slots.remove(&page) {
            self.images.free(slot);
        }
    }

    fn set(&mut self, slot: u32, image: Option<&Image>) {
        self.free(slot);
        if let Some(image) = image {
            self.free_page(image.page);
            self.images.set(slot, image);
            self.slots.insert(image.page, slot);
        }
    }

    fn note(&mut self, slot: u32, what: &What) {
        match what {
            What::Checkpoint(images) => {
                for (slot, image) in (slot..self.slots_count).zip(images) {
                    self.set(slot, image.as_ref());
                }
            }
            What::PostWrite(image) => self.set(slot, Some(image)),
            What::PreInvalidate => self.free(slot),
            What::LazyCleaned => self.images.clean(slot),
        }
    }
}

impl Recover for LoggedImages {
    fn load(&mut self, place: &Place<'_>, _journal: u64) -> Result<(), ColdStart> {
        self.table = place.table;
        self.began = place.began;
        Ok(())
    }

    fn scan_from(&self) -> ScanFrom {
        ScanFrom::OldestDirty
    }

    fn updated(&mut self, page: PageId, _lsn: Lsn) {
        self.free_page(page);
    }

    fn checkpoint_began(&mut self, lsn: Lsn) {
        if self.mutations.has(Mutation::LbrUnendedCheckpoint) && lsn > self.began {
            self.began = lsn;
            (0..self.slots_count).for_each(|slot| self.free(slot));
        }
    }

    fn record(&mut self, lsn: Lsn, payload: &[u8]) {
        if lsn < self.began {
            return;
        }
        match TierRecord::decode(payload) {
            Some(TierRecord::Unlogged { page }) => self.free_page(page),
            Some(TierRecord::GivenUp { table }) if table == self.table => {
                (0..self.slots_count).for_each(|slot| self.free(slot));
            }
            Some(TierRecord::Slots { table, slot, what })
                if table == self.table && slot < self.slots_count =>
            {
                self.note(slot, &what);
            }
            _ => {}
        }
    }

    fn settle(&mut self, _place: &Place<'_>, facts: &LogFacts<'_>) -> Result<(), ColdStart> {
        self.images.take_rec_lsns(facts);
        Ok(())
    }

    fn image(&self, slot: u32) -> Option<Image> {
        self.images.get(slot)
    }
}
