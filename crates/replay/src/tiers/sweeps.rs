//! Sweeps over home: when more than lambda of the slots are newer than home, all of these go there
//! in the order in which they lie at home, neighbours together [S0 5; S4 4.4, 6].
//!
//! - W1: a sweep is of the pages that were dirty when it began. One that was changed since, or went
//!   home otherwise, is passed over.
//! - W2: as many writes are under way at a time as the pool's cleaner has; a sweep goes on when
//!   memory misses, or a group is appended. Without queues a sweep is over at once.

use super::cleaning::Cleaning;
use super::copies::Copies;
use super::queues::Moment;
use super::{Held, Traffic};
use crate::places::Places;
use std::cmp::Reverse;
use terrace_page::SlotId;

/// The pages of a sweep that are still to go home.
pub struct Sweeps {
    cleaning: Cleaning,
    /// The next is the last.
    pages: Vec<u32>,
    /// When each run that home was sent is written.
    sent: Vec<Moment>,
}

impl Sweeps {
    /// None yet.
    pub fn new(cleaning: Cleaning) -> Sweeps {
        Sweeps { cleaning, pages: Vec::new(), sent: Vec::new() }
    }

    /// Whether one is to begin, with so many dirty slots.
    pub fn is_due(&self, dirty: u32, slots: u32) -> bool {
        self.pages.is_empty() && self.cleaning.is_due(dirty, slots)
    }

    /// Begins, with all that is dirty.
    pub fn begin(&mut self, copies: &Copies, places: &Places) {
        let slots = (0..copies.slots_count()).map(SlotId);
        let pages = slots.filter_map(|slot| copies.page(slot));
        self.pages.extend(pages.filter(|&page| copies.held(page) == Held::Dirty));
        self.pages.sort_unstable_by_key(|&page| Reverse(places.of(page)));
    }

    /// Takes the next page home, and its neighbours, if home is to be sent more now. Which slots
    /// are clean.
    pub fn next_run(
        &mut self,
        places: &Places,
        copies: &mut Copies,
        io: &mut Traffic,
    ) -> Option<Vec<SlotId>> {
        self.sent.retain(|&written| written > io.now());
        if self.sent.len() >= self.cleaning.writes as usize {
            return None;
        }
        let slot = loop {
            let page = self.pages.pop()?;
            if copies.held(page) == Held::Dirty {
                break copies.slot(page).expect("a dirty page has a slot");
            }
        };
        io.begin_batch();
        let run = self.cleaning.clean_around(places, copies, slot, io);
        self.sent.extend(Some(io.batch_written_at()).filter(|&written| written > io.now()));
        Some(run)
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.pages.capacity() * size_of::<u32>() + self.sent.capacity() * size_of::<Moment>()
    }
}
