//! Sweeps over home: when more than lambda of the slots are newer than home, all of these go there
//! in the order in which they lie at home, neighbours together [S0 5; S4 4.4, 6].
//!
//! - W1: a sweep is of the pages that were dirty when it began. One that was changed since, or was
//!   written home otherwise, is passed over.
//! - W2: the number of writes under way at a time is that of the pool's cleaner; a sweep goes on
//!   when memory misses, or a group is appended. Without queues a sweep is over at once.

use super::cleaning::Cleaning;
use super::queues::Moment;
use crate::places::Places;
use std::cmp::Reverse;

/// The pages of a sweep that are still to be written home.
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

    /// Whether a sweep is to begin, with `dirty` dirty slots.
    pub fn is_due(&self, dirty: u32, slots: u32) -> bool {
        self.pages.is_empty() && self.cleaning.is_due(dirty, slots)
    }

    /// Begins, with `pages`, which are dirty.
    pub fn begin(&mut self, pages: impl Iterator<Item = u32>, places: &Places) {
        self.pages.extend(pages);
        self.pages.sort_unstable_by_key(|&page| Reverse(places.of(page)));
    }

    /// The next page to be written home, of those that still are dirty, if home is to get more
    /// `now`.
    pub fn next(&mut self, now: Moment, is_dirty: impl Fn(u32) -> bool) -> Option<u32> {
        self.sent.retain(|&written| written > now);
        if self.sent.len() >= self.cleaning.writes as usize {
            return None;
        }
        loop {
            let page = self.pages.pop()?;
            if is_dirty(page) {
                return Some(page);
            }
        }
    }

    /// Home was sent a run, and has `written` it then.
    pub fn sent(&mut self, written: Moment) {
        self.sent.push(written);
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.pages.capacity() * size_of::<u32>() + self.sent.capacity() * size_of::<Moment>()
    }
}
