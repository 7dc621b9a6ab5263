//! OPT as a flash tier: the page leaves whose next read is farthest [S4 4].
//!
//! - O1: the least misses of reads, not the least time: it does not ask what a miss costs.
//! - O2: a page is cached as it is read from home. A written page goes to home, and to its slot if
//!   it has one.
//! - For traces of a memory's misses alone: each of its requests comes here.
//! - Cost: 4 bytes per reference, 4 per page, and a tree of the slots.

use super::residents::Residents;
use super::{Allocated, FlashTier, Held, Leaving, Miss, Note, Traffic};
use crate::References;
use crate::opt::{Bypass, NEVER};
use std::collections::BTreeSet;
use terrace_policy::History;

/// Not cached.
const ABSENT: u32 = NEVER - 1;

pub struct OptTier {
    slots: usize,
    bypass: Bypass,
    /// For each reference, the next that reads its page, or [`NEVER`].
    next_reads: Vec<u32>,
    /// The reference that comes next.
    at: usize,
    /// Cached pages by their next read.
    cached: BTreeSet<(u32, u32)>,
    /// The next read of each page that is cached, or `ABSENT`.
    reads: Vec<u32>,
}

impl OptTier {
    pub fn new(references: &References, slots: u32, bypass: Bypass) -> OptTier {
        let pages = references.pages();
        assert!(pages.len() < ABSENT as usize, "references are numbered by 32 bits");
        let mut seen = vec![NEVER; references.pages_count() as usize];
        let mut next_reads = vec![NEVER; pages.len()];
        for at in (0..pages.len()).rev() {
            let seen = &mut seen[pages[at] as usize];
            next_reads[at] = *seen;
            if !references.is_write(at) {
                *seen = at as u32;
            }
        }
        OptTier {
            slots: slots as usize,
            bypass,
            next_reads,
            at: 0,
            cached: BTreeSet::new(),
            reads: vec![ABSENT; references.pages_count() as usize],
        }
    }

    fn next_read(&mut self) -> u32 {
        self.at += 1;
        self.next_reads[self.at - 1]
    }

    /// Whether there is room for a page that is read next at `next`; a cached page with a farther
    /// next read leaves for it.
    fn makes_room(&mut self, next: u32) -> bool {
        if self.cached.len() < self.slots {
            return true;
        }
        let &(farthest, victim) = self.cached.last().expect("it is full");
        if self.bypass == Bypass::Allowed && farthest <= next {
            return false;
        }
        self.cached.remove(&(farthest, victim));
        self.reads[victim as usize] = ABSENT;
        true
    }
}

impl Allocated for OptTier {
    fn bytes(&self) -> usize {
        let numbers = self.next_reads.capacity() + self.reads.capacity();
        4 * numbers + self.cached.len() * size_of::<(u32, u32)>()
    }
}

impl FlashTier for OptTier {
    fn fetch(&mut self, miss: &Miss, _: &mut Residents, io: &mut Traffic) -> Option<History> {
        let (page, next) = (miss.page, self.next_read());
        let was = self.reads[page as usize];
        if was != ABSENT {
            io.read_flash();
            self.cached.remove(&(was, page));
        } else {
            io.read_home(page);
            if !self.makes_room(next) {
                return None;
            }
            io.write_flash();
        }
        self.cached.insert((next, page));
        self.reads[page as usize] = next;
        (was != ABSENT).then(|| History::once(miss.now))
    }

    fn note(&mut self, _: Note, _: &mut Traffic) {}

    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic) {
        if !leaving.dirty {
            return;
        }
        self.next_read();
        io.write_home(leaving.page);
        if self.held(leaving.page).has_slot() {
            io.write_flash();
        }
    }

    fn held(&self, page: u32) -> Held {
        if self.reads[page as usize] == ABSENT { Held::Nothing } else { Held::Clean }
    }
}
