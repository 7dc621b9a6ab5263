//! Reading many pages at once: read-ahead for scans, neighbours that come along, and batches.
//!
//! A long read from home is not split at every page that flash or memory has: it is trimmed at
//! both ends, the middle is read in one piece, and what is not wanted of it is dropped; middle
//! pages that are newer on flash are read there, too [S0 3.3.3]. Six pages, the 3rd and 5th on
//! flash:
//!
//! ```text
//! pages   0    1    2    3    4    5
//!        home home FLSH home FLSH home      split: 3 reads from home, 2 from flash
//!        [---------- one read -------]      trimmed: 1 read from home
//! ```
//!
//! - R1: no task waits for a frame, or for a latch, while it has pages in flight: a page for which
//!   no frame is free is not read.
//! - R2: a page that was read from home is dropped if it is in memory, or newer on flash.

use std::ops::Range;
use std::sync::atomic::Ordering;

use terrace_page::PageId;
use terrace_policy::AccessClass;

use crate::buffer_pool::Intent;
use crate::devices::Devices;
use crate::io::{PageIo, PageTarget};
use crate::memory::Place;
use crate::memory::evict::make_room_for;
use crate::memory::fetch::{Want, install};
use crate::memory::frames::Staging;
use crate::memory::loading::{Loading, Source};
use crate::{BufferPool, PoolError, Tier};

/// Pages in one read from home, at most.
const RUN_PAGES_MAX: u32 = 64;
/// Read-aheads under way, at most; more are not begun.
const READ_AHEADS_MAX: u32 = 64;
/// Pages of a group that is read for one of them while filling [S0 4.3.2; S3 IV-A1].
const GROUP_PAGES: u64 = 8;
/// Pages that `prefetch` reads at once, at most.
const PREFETCH_PAGES_MAX: usize = 64;

/// Where a page of a long read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Residence {
    Memory,
    /// On flash, the same as at home.
    FlashClean,
    /// On flash, newer than at home.
    FlashNewer,
    Home,
}

/// Positions of a long read.
#[derive(Debug, PartialEq, Eq)]
struct Trimmed {
    /// One read from home; maybe empty.
    home: Range<usize>,
    /// Reads from flash.
    flash: Vec<usize>,
}

/// Decides a long read [S0 3.3.3]. With a throttled flash its clean copies count as at home.
fn trim(pages: &[Residence]) -> Trimmed {
    let is_home = |page: &Residence| *page == Residence::Home;
    let first = pages.iter().position(is_home).unwrap_or(pages.len());
    let last = pages.iter().rposition(is_home).map_or(first, |last| last + 1);
    let home = first..last;
    let is_read = |at: &usize| match pages[*at] {
        Residence::FlashNewer => true,
        Residence::FlashClean => !home.contains(at),
        Residence::Memory | Residence::Home => false,
    };
    Trimmed { flash: (0..pages.len()).filter(is_read).collect(), home }
}

/// Where the pages of one read go: to their frames, or, without a frame, to a page of `staging`.
fn bufs_of_run<'a, 'p: 'a>(
    run: impl Iterator<Item = Option<&'a mut Loading<'p>>>,
    staging: &'a mut Staging,
) -> Vec<PageTarget<'a>> {
    let mut unwanted = staging.pages_mut().iter_mut();
    run.map(|place| match place {
        Some(loading) => loading.guard.target(),
        None => unwanted.next().expect("a page of staging for each").into(),
    })
    .collect()
}

/// The result of a batch, for each of its pages.
fn same_result(batch: &std::io::Result<()>) -> std::io::Result<()> {
    match batch {
        Ok(()) => Ok(()),
        Err(error) => Err(error.kind().into()),
    }
}

impl BufferPool {
    /// Starts to read `count` pages from `first` on, as few large requests, for a scan that will
    /// soon want them; marks them sequential. Returns at once; best effort.
    pub fn read_ahead(&self, first: PageId, count: u32) {
        let count = count.min(RUN_PAGES_MAX);
        let is_away = |at: u32| self.memory.lookup(first.plus(u64::from(at))).is_none();
        // A task for pages that are all here costs more than it takes a scan to read them.
        let count = if (0..count).any(is_away) { count } else { 0 };
        let Some(pool) = self.background.pool() else { return };
        if count == 0
            || self.background.is_closing()
            || self.memory.read_aheads.fetch_add(1, Ordering::Relaxed) >= READ_AHEADS_MAX
        {
            self.memory.read_aheads.fetch_sub(u32::from(count > 0), Ordering::Relaxed);
            return;
        }
        self.background.spawn("read-ahead", pool, move |pool| {
            read_run(pool, first, count);
            pool.memory.read_aheads.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Whether a frame has `page`, or is about to: it may leave again.
    pub fn is_in_memory(&self, page: PageId) -> bool {
        self.memory.lookup(page).is_some()
    }

    /// Reads those of `pages` that are not in memory, many at once, and returns when they are
    /// there: best effort, since they may leave again, or find no frame. Their next hit is the use
    /// that they are read for.
    pub fn prefetch(&self, pages: &[PageId]) {
        let intent = Intent { class: AccessClass::Random, cold: false };
        for batch in pages.chunks(PREFETCH_PAGES_MAX) {
            let is_away =
                |page: &PageId| self.devices.has(*page) && self.memory.lookup(*page).is_none();
            let away: Vec<PageId> = batch.iter().copied().filter(is_away).collect();
            make_room_for(self, &away);
            let install = |&page| install(self, page, intent, Want::BestAhead).loading();
            load_batch(&self.devices, away.iter().filter_map(install).collect());
        }
    }
}

/// Reads a run of pages for a scan.
fn read_run(pool: &BufferPool, first: PageId, count: u32) {
    let pages: Vec<PageId> = (0..u64::from(count))
        .map(|at| first.plus(at))
        .take_while(|&page| pool.devices.has(page))
        .collect();
    let residences: Vec<Residence> = pages.iter().map(|&page| residence(pool, page)).collect();
    let trimmed = trim(&residences);
    let intent = Intent { class: AccessClass::Sequential, cold: false };
    let away = pages.iter().zip(&residences).filter(|row| *row.1 != Residence::Memory);
    make_room_for(pool, &away.map(|row| *row.0).collect::<Vec<_>>());
    let try_install = |at: usize, want| install(pool, pages[at], intent, want).loading();
    let flash = trimmed.flash.iter();
    let mut loadings: Vec<Loading<'_>> =
        flash.filter_map(|&at| try_install(at, Want::BestAhead)).collect();
    let mut run: Vec<Option<Loading<'_>>> = Vec::new();
    for at in trimmed.home.clone() {
        let wanted = !trimmed.flash.contains(&at);
        run.push(wanted.then(|| try_install(at, Want::HomeUnlessNewer)).flatten());
    }
    // Pages may have come to flash, or gone, since they were looked up.
    for place in &mut run {
        if place.as_ref().is_some_and(|loading| loading.source != Source::Home) {
            loadings.extend(place.take());
        }
    }
    if let Some(&start) = pages.get(trimmed.home.start) {
        load_run(&pool.devices, start, &mut run);
    }
    load_batch(&pool.devices, loadings);
}

fn residence(pool: &BufferPool, page: PageId) -> Residence {
    let BufferPool { memory, devices, .. } = pool;
    let partition = memory.partition(page);
    let books = partition.books.lock();
    match partition.find(&books, &memory.frames, page) {
        Place::Memory(_) => Residence::Memory,
        Place::Nowhere => Residence::Home,
        Place::Flash(slot) => match &books.slots {
            slots if slots.newer(slot).is_some() => Residence::FlashNewer,
            slots if slots.is_valid(slot) && !devices.is_throttled() => Residence::FlashClean,
            _ => Residence::Home,
        },
    }
}

/// Reads the pages from `start` on in one I/O from home. Places without a loading are read and
/// dropped (R2), except at the ends. Loaded pages are served and taken out of `run`.
fn load_run(devices: &Devices, start: PageId, run: &mut [Option<Loading<'_>>]) {
    let Some(first) = run.iter().position(Option::is_some) else { return };
    let last = run.iter().rposition(Option::is_some).expect("there is a first");
    let run = &mut run[first..=last];
    let dropped = run.iter().filter(|place| place.is_none()).count();
    let mut staging = Staging::new(dropped);
    let bufs = bufs_of_run(run.iter_mut().map(Option::as_mut), &mut staging);
    let read = devices.read_home(vec![PageIo::read(start.0 + first as u64, bufs)]);
    for loading in run.iter_mut().filter_map(Option::take) {
        loading.end(same_result(&read));
    }
}

/// Reads pages in flight, each from its source, all at once; serves what is whole.
fn load_batch(devices: &Devices, mut loadings: Vec<Loading<'_>>) {
    let (mut home, mut flash) = (Vec::new(), Vec::new());
    for loading in &mut loadings {
        match &loading.reading {
            None => home.push(PageIo::read(loading.page.0, [loading.guard.target()])),
            Some(reading) => {
                let number = loading.partition.slot_page(reading.slot());
                flash.push(PageIo::read(number, [loading.guard.target()]));
            }
        }
    }
    let (home, flash) = devices.read_both(home, flash);
    for loading in loadings {
        let read = if loading.source == Source::Home { &home } else { &flash };
        loading.end(same_result(read));
    }
}

/// Makes room for the group that `page` will be read with, if it is at home only. Neighbours are
/// cold: they are the first to leave, for flash. Call it with nothing in flight.
pub(crate) fn make_room_for_group(pool: &BufferPool, page: PageId) {
    if residence(pool, page) != Residence::Home {
        return;
    }
    let group = page.0 - page.0 % GROUP_PAGES;
    let pages = (group..group + GROUP_PAGES).map(PageId);
    let away = |page: &PageId| pool.devices.has(*page) && residence(pool, *page) == Residence::Home;
    make_room_for(pool, &pages.filter(away).collect::<Vec<_>>());
}

impl Loading<'_> {
    /// The read of the page, among others, has ended: serves it if it is whole.
    fn end(mut self, read: std::io::Result<()>) {
        let is_whole = match self.reading.take() {
            None => self.judge(Tier::Home, read).is_ok(),
            Some(reading) => {
                let read = self.judge(Tier::Flash, read);
                self.flash_was_read(reading, read).unwrap_or(false)
            }
        };
        if is_whole && self.redo_if_owed().is_ok() {
            drop(self.serve());
        } else {
            // The next request for the page reads it alone, and returns the error.
            self.unload();
        }
    }

    /// Reads the page from home together with those of its aligned group that are at home only and
    /// for which frames are free: one read, from the first to the last of them [S3 IV-A1]. What
    /// else lies between is read and dropped.
    pub(crate) fn load_with_neighbours(&mut self) -> Result<(), PoolError> {
        let (pool, page) = (self.pool, self.page.0);
        let group = page - page % GROUP_PAGES;
        let intent = Intent { class: AccessClass::Random, cold: true };
        let neighbour = |page: u64| match PageId(page) {
            page if !pool.devices.has(page) => None,
            page => install(pool, page, intent, Want::OnlyHome).loading(),
        };
        let mut before: Vec<_> = (group..page).map(neighbour).skip_while(Option::is_none).collect();
        let mut after: Vec<_> = (page + 1..group + GROUP_PAGES).map(neighbour).collect();
        after.truncate(after.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
        let first = page - before.len() as u64;
        let holes = before.iter().chain(&after).filter(|neighbour| neighbour.is_none()).count();
        let mut staging = Staging::new(holes);
        let run = (before.iter_mut().map(Option::as_mut))
            .chain([Some(&mut *self)])
            .chain(after.iter_mut().map(Option::as_mut));
        let bufs = bufs_of_run(run, &mut staging);
        let read = pool.devices.read_home(vec![PageIo::read(first, bufs)]);
        for other in before.into_iter().chain(after).flatten() {
            other.end(same_result(&read));
        }
        if read.is_ok() {
            self.judge(Tier::Home, Ok(())).or_else(|error| self.redo_damaged(error))
        } else {
            // A neighbour's bad sector must not hide this page.
            self.load()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Residence::{FlashClean, FlashNewer, Home, Memory};
    use super::*;

    /// Six pages, the 3rd and the 5th on flash: one read from home, not five [S0 3.3.3].
    #[test]
    fn a_long_read_is_not_split_in_the_middle() {
        let pages = [Home, Home, FlashClean, Home, FlashClean, Home];
        assert_eq!(trim(&pages), Trimmed { home: 0..6, flash: vec![] });
    }

    #[test]
    fn a_long_read_is_trimmed_at_both_ends() {
        let pages = [FlashClean, Memory, Home, FlashClean, Home, FlashNewer, FlashClean];
        assert_eq!(trim(&pages), Trimmed { home: 2..5, flash: vec![0, 5, 6] });
    }

    #[test]
    fn newer_pages_in_the_middle_are_read_from_flash_too() {
        let pages = [Home, FlashNewer, Memory, Home];
        assert_eq!(trim(&pages), Trimmed { home: 0..4, flash: vec![1] });
    }

    #[test]
    fn a_run_that_is_not_at_home_alone_reads_nothing_there() {
        assert_eq!(trim(&[Memory, FlashClean]), Trimmed { home: 2..2, flash: vec![1] });
    }
}
