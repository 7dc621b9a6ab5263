//! What is believed of all slots while a database is opened, in columns.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;

use terrace_page::{Lsn, PageId};
use terrace_policy::{History, Tick};

use super::recover::{ColdStart, LogFacts, Place};
use terrace_device::Device;
use terrace_page_io::{PageIo, Staging, run};
use terrace_tier::Image;

const NONE: u64 = u64::MAX;
const NO_PAGE: u32 = u32::MAX;
/// Pages of a table that opening reads at once: 2 MiB.
const PAGES_PER_READ: u64 = 256;

/// The slot that is believed to hold a page.
pub(super) type SlotsByPage = HashMap<PageId, u32, BuildHasherDefault<PageHasher>>;

/// Spreads page numbers, the same way in every run.
#[derive(Default)]
pub(super) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("page numbers are hashed whole");
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (number ^ (number >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// What each slot is believed to hold. Costs 28 bytes a slot, 36 with versions, until the pool is
/// open.
pub(super) struct Images {
    pages: Box<[u32]>,
    /// The first change that home lacks, or `NONE`.
    newer: Box<[u64]>,
    last: Box<[u64]>,
    previous: Box<[u64]>,
    /// Empty if the table has no versions.
    lsns: Box<[u64]>,
}

impl Images {
    /// `slots` free slots; their versions are kept if the table `has_lsns`.
    pub fn new(slots: u32, has_lsns: bool) -> Images {
        let count = slots as usize;
        Images {
            pages: vec![NO_PAGE; count].into(),
            newer: vec![NONE; count].into(),
            last: vec![0; count].into(),
            previous: vec![NONE; count].into(),
            lsns: vec![0; if has_lsns { count } else { 0 }].into(),
        }
    }

    pub fn get(&self, slot: u32) -> Option<Image> {
        let at = slot as usize;
        let page = self.page(slot)?;
        let some = |number: u64| (number != NONE).then_some(number);
        Some(Image {
            page,
            lsn: self.lsns.get(at).map(|&lsn| Lsn(lsn)),
            newer: some(self.newer[at]).map(Lsn),
            history: History {
                last: Tick(self.last[at]),
                previous: some(self.previous[at]).map(Tick),
            },
        })
    }

    pub fn page(&self, slot: u32) -> Option<PageId> {
        let page = self.pages[slot as usize];
        (page != NO_PAGE).then_some(PageId(u64::from(page)))
    }

    /// The LSN of what a slot holds, in a table that has them; of a free slot any.
    pub fn lsn(&self, slot: u32) -> Lsn {
        Lsn(self.lsns[slot as usize])
    }

    pub fn set(&mut self, slot: u32, image: &Image) {
        let at = slot as usize;
        self.pages[at] = image.page.0 as u32;
        self.newer[at] = image.newer.map_or(NONE, |lsn| lsn.0);
        self.last[at] = image.history.last.0;
        self.previous[at] = image.history.previous.map_or(NONE, |tick| tick.0);
        if let Some(lsn) = self.lsns.get_mut(at) {
            *lsn = image.lsn.unwrap_or(Lsn::ZERO).0;
        }
    }

    /// Home has the page of `slot` too.
    pub fn clean(&mut self, slot: u32) {
        self.newer[slot as usize] = NONE;
    }

    pub fn free(&mut self, slot: u32) {
        self.pages[slot as usize] = NO_PAGE;
    }

    /// The slots that hold something.
    pub fn filled(&self) -> impl Iterator<Item = (u32, PageId)> + '_ {
        (0..self.pages.len() as u32).filter_map(|slot| Some((slot, self.page(slot)?)))
    }

    /// Of slots that claim one page, `keep` names the one that is believed, or none.
    pub fn settle_rivals(&mut self, keep: impl Fn(&Images, &[u32]) -> Option<u32>) {
        let mut claims: Vec<(PageId, u32)> =
            self.filled().map(|(slot, page)| (page, slot)).collect();
        claims.sort_unstable();
        for rivals in claims.chunk_by(|a, b| a.0 == b.0).filter(|rivals| rivals.len() > 1) {
            let slots: Vec<u32> = rivals.iter().map(|&(_, slot)| slot).collect();
            let kept = keep(self, &slots);
            for &slot in slots.iter().filter(|&&slot| Some(slot) != kept) {
                self.free(slot);
            }
        }
    }

    /// No recLSN is before the log's `start`: what was changed before is home.
    pub fn raise_rec_lsns(&mut self, start: Lsn) {
        for newer in self.newer.iter_mut().filter(|newer| **newer != NONE) {
            *newer = (*newer).max(start.0);
        }
    }

    /// Gives the slots that are newer than home the recLSNs that analysis found; one that it does
    /// not know was brought home, and starts anew at the log's end [sources.R17].
    pub fn take_rec_lsns(&mut self, facts: &LogFacts<'_>) {
        for slot in 0..self.pages.len() as u32 {
            let at = slot as usize;
            if let Some(page) = self.page(slot).filter(|_| self.newer[at] != NONE) {
                self.newer[at] = (facts.dirty)(page).map_or(facts.end, |(rec_lsn, _)| rec_lsn).0;
            }
        }
    }
}

/// Shows the table of `place`, a part at a time, in order.
pub(super) fn table_parts(place: &Place<'_>, mut see: impl FnMut(&[u8])) -> Result<(), ColdStart> {
    let layout = &place.layout;
    for first in (0..layout.table_pages).step_by(PAGES_PER_READ as usize) {
        let pages = PAGES_PER_READ.min(layout.table_pages - first);
        let mut staging = Staging::new(pages as usize);
        read_pages(place.flash, layout.table + first, &mut staging)
            .map_err(|error| ColdStart::Device(error.kind()))?;
        see(staging.pages().as_flattened());
    }
    Ok(())
}

/// Reads pages of `flash` from page `first` on, in large requests.
fn read_pages(flash: &dyn Device, first: u64, staging: &mut Staging) -> io::Result<()> {
    const PAGES_PER_IO: usize = 32;
    let ios = staging.pages_mut().chunks_mut(PAGES_PER_IO).enumerate();
    let ios = ios.map(|(at, pages)| PageIo::read(first + (at * PAGES_PER_IO) as u64, pages));
    run(flash, ios.collect())
}
