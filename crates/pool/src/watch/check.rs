//! Asserting what must hold between any two events.
//!
//! With P the version of a page at home and P' a newer one, the copies in memory and on flash may
//! be [S0 Fig.3]:
//!
//! ```text
//!            case 1   case 2   case 3   case 4   case 5   case 6
//! memory       P        P'                         P        P'
//! flash                          P        P'       P        P'
//! home         P        P        P        P        P        P
//!            all designs       all     LC only    all     LC only
//! ```
//!
//! What is said of LC holds for all designs that keep pages on flash that are newer than home. TAC,
//! CC, CAC and inclusive tiers keep slots with stale bytes, which are no copies; they are INVALID.
//! So does lazy cleaning under the restart method `warm`, as bases of changes.

use terrace_page::{FrameId, PageId};
use terrace_tier::{Mutation, SlotState};

use crate::BufferPool;
use crate::flow::arriving::check_inclusion;
use crate::memory::Place;
use crate::memory::Section;
use crate::memory::frames::Frame;

/// Where copies of a page are.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// It has a frame.
    pub in_memory: bool,
    /// It has a slot, with its bytes or without.
    pub has_slot: bool,
    /// It has a slot with its bytes.
    pub on_flash: bool,
    /// The bytes in its slot are newer than at home.
    pub is_newer: bool,
}

impl BufferPool {
    /// Where copies of `page` are, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn copies(&self, page: PageId) -> Copies {
        let partition = self.memory.partition(page);
        let books = partition.books.lock();
        let (in_memory, slot) = match partition.find(&books, &self.memory.frames, page) {
            Place::Memory(id) => (true, self.memory.frames.frame(id).slot()),
            Place::Flash(slot) => (false, Some(slot)),
            Place::Nowhere => (false, None),
        };
        let slots = &books.slots;
        let copy = slot.filter(|&slot| slots.is_valid(slot));
        Copies {
            in_memory,
            has_slot: slot.is_some(),
            on_flash: copy.is_some(),
            is_newer: copy.is_some_and(|slot| slots.newer(slot).is_some()),
        }
    }

    /// Whether memory or flash has changes of `page` that home may lack.
    #[must_use]
    pub fn is_newer_than_home(&self, page: PageId) -> bool {
        let partition = self.memory.partition(page);
        let books = partition.books.lock();
        let is_newer = |slot| books.slots.newer(slot).is_some();
        match partition.find(&books, &self.memory.frames, page) {
            Place::Memory(id) => {
                let frame = self.memory.frames.frame(id);
                frame.rec_lsn().is_some() || frame.slot().is_some_and(is_newer)
            }
            Place::Flash(slot) => is_newer(slot),
            Place::Nowhere => false,
        }
    }

    /// Whether home has `page` as it is, or had a moment ago, and a later version is written there
    /// over that one.
    #[must_use]
    pub fn is_at_home(&self, page: PageId) -> bool {
        // What was redone by now is dirty, or has gone home.
        !self.owed.has(page, &self.memory) && !self.is_newer_than_home(page)
    }

    /// Asserts the relations between the copies of every page [S0 Fig.3] and the pool's own books.
    ///
    /// # Panics
    ///
    /// If a relation is broken: a bug.
    pub fn check(&self) {
        for partition in &self.memory.partitions {
            let section = Section::enter(self, partition);
            section.check_frames();
            section.check_slots();
        }
    }
}

impl Section<'_> {
    fn check_frames(&self) {
        let Section { pool, partition, books } = self;
        let frames = &pool.memory.frames;
        let (mut used, mut dirty) = (0, 0);
        for at in 0..partition.frames_count {
            let id = partition.frame_at(at);
            let frame = frames.frame(id);
            let Some(page) = frame.page() else {
                assert_eq!(frame.rec_lsn(), None, "{id} is dirty without a page");
                continue;
            };
            used += 1;
            dirty += u32::from(frame.rec_lsn().is_some());
            let found = partition.find(books, frames, page);
            assert_eq!(found, Place::Memory(id), "{page} is in {id}");
            self.check_copies(page, frame);
        }
        assert_eq!(used + books.free.len() as u32, partition.frames_count, "every frame is known");
        assert_eq!(dirty, books.ledger.dirty_frames(), "dirty frames are counted");
        let is_free = |id: &FrameId| frames.frame(*id).page().is_none();
        assert!(books.free.iter().all(is_free), "a free frame has no page");
    }

    /// The relations of one page that is in memory.
    fn check_copies(&self, page: PageId, frame: &Frame) {
        check_inclusion(self.pool, &self.books, page, frame);
        let Some(slot) = frame.slot() else { return };
        let slots = &self.books.slots;
        assert!(slots.holds(slot, page), "{page} has slot {slot}");
        let is_copy = slots.is_valid(slot);
        // A write of a dirty page into its slot counts as a copy only when it is complete.
        let is_whole = !self.pool.config.mutations.has(Mutation::KeepStaleCopy);
        if frame.rec_lsn().is_some() && is_whole {
            assert!(!is_copy, "{page} is dirty in memory and valid in slot {slot}");
        }
        if !is_copy {
            assert!(slots.keeps_stale(), "{page} owns stale slot {slot}");
        }
    }

    fn check_slots(&self) {
        let Section { pool, partition, books } = self;
        let (frames, slots) = (&pool.memory.frames, &books.slots);
        slots.check();
        for slot in 0..slots.count() {
            let state = slots.state(slot);
            let is_known = slots.is_valid(slot) || state == SlotState::Invalid;
            let Some(page) = slots.page(slot).filter(|_| is_known) else { continue };
            match partition.find(books, frames, page) {
                Place::Flash(found) => assert_eq!(found, slot, "{page} has one slot"),
                Place::Memory(id) => {
                    assert_eq!(frames.frame(id).slot(), Some(slot), "{page} knows its slot");
                }
                Place::Nowhere => panic!("{page} in slot {slot} is not in the directory"),
            }
        }
    }
}
