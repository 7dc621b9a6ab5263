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
//!   Nor does what is shown a page (`read_once`) while others are in flight.
//! - R2: a page that was read from home is dropped if it is in memory, or newer on flash.

use std::sync::atomic::Ordering;

use terrace_page::PageId;
use terrace_policy::AccessClass;
use terrace_tier::{Residence, trim};

use crate::buffer_pool::Intent;
use crate::devices::Devices;
use crate::io::{PageIo, PageRead, PageReads, PageTarget};
use crate::memory::evict::make_room_for;
use crate::memory::fetch::{Want, install};
use crate::memory::frames::{Exclusive, Staging};
use crate::memory::loading::{Loading, Source};
use crate::memory::{Partition, Place};
use crate::{BufferPool, PageEvent, PageRef, PoolError, Tier};

/// Pages in one read from home, at most.
const RUN_PAGES_MAX: u32 = 64;
/// Read-aheads under way, at most; more are not begun.
const READ_AHEADS_MAX: u32 = 64;
/// Pages of a group that is read for one of them while filling [S0 4.3.2; S3 IV-A1].
const GROUP_PAGES: u64 = 8;
/// Pages that `prefetch` reads at once, at most.
const PREFETCH_PAGES_MAX: usize = 64;

/// Pages that are handed over to home together while more are looked for.
const PART_PAGES: usize = 16;

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
        let announced = (0..u64::from(count)).map(|at| first.plus(at));
        announced.for_each(|page| self.memory.observe(page, PageEvent::Ahead));
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
    /// there: best effort, since they may leave again, or find no frame.
    pub fn prefetch(&self, pages: &[PageId]) {
        self.read_many(pages, Want::Best, &mut |_, _, page| drop(page));
    }

    /// As `prefetch`, for one use of each that will come soon: their next hit is that use, and they
    /// count as read ahead.
    pub fn prefetch_once(&self, pages: &[PageId]) {
        self.read_many(pages, Want::BestAhead, &mut |_, _, page| drop(page));
    }

    /// As `prefetch_once`, and `show` uses each page that was read, as it comes, while others of
    /// them are still being read: with its place in `pages`, latched. So `show` must not wait for
    /// any latch or frame. A page that was in memory before, or could not be read, is not shown.
    pub fn read_once(&self, pages: &[PageId], mut show: impl FnMut(usize, PageRef<'_>)) {
        self.read_many(pages, Want::BestAhead, &mut |at, page, guard| {
            guard.frame().hit(self.memory.now());
            self.memory.observe(page, PageEvent::Read);
            show(at, PageRef::new(page, guard.downgrade()));
        });
    }

    /// Reads those of `pages` that are not in memory, and passes each to `arrived`, with its place
    /// in `pages`, while others are latched.
    fn read_many(
        &self,
        pages: &[PageId],
        want: Want,
        arrived: &mut dyn FnMut(usize, PageId, Exclusive<'_>),
    ) {
        let intent = Intent { class: AccessClass::Random, cold: false };
        for (number, batch) in pages.chunks(PREFETCH_PAGES_MAX).enumerate() {
            let first = number * PREFETCH_PAGES_MAX;
            let is_away =
                |page: PageId| self.devices.has(page) && self.memory.lookup(page).is_none();
            let away = |at: &usize| is_away(pages[*at]);
            let away: Vec<usize> = (first..first + batch.len()).filter(away).collect();
            make_room_for(self, &away.iter().map(|at| pages[*at]).collect::<Vec<_>>());
            let loadings = away.into_iter().filter_map(|at| {
                install(self, pages[at], intent, want).loading().map(|loading| (at, loading))
            });
            // A page that is served, or owed, may wait for flash or for the log.
            if self.devices.flash.is_none() && self.owed() == 0 {
                self.devices.read_home_each(&mut FromHome { pool: self, loadings, arrived });
                continue;
            }
            let (places, loadings): (Vec<_>, Vec<_>) = loadings.unzip();
            let mut places = places.into_iter();
            load_batch(&self.devices, loadings, |page, guard| {
                let at = places.next().expect("one for each");
                guard.into_iter().for_each(|guard| arrived(at, page, guard));
            });
        }
    }
}

/// Pages that are read from home one by one: a page gets its frame while those before it are being
/// read, and is checked and served while those behind it are.
struct FromHome<'p, 'a, L> {
    pool: &'p BufferPool,
    /// Each with its place in what is asked for.
    loadings: L,
    arrived: &'a mut dyn FnMut(usize, PageId, Exclusive<'_>),
}

/// What a page in flight is, beside its frame.
struct Wanted<'p> {
    page: PageId,
    partition: &'p Partition,
    at: usize,
}

impl<'p, L> PageReads<Exclusive<'p>, Wanted<'p>> for FromHome<'p, '_, L>
where
    L: Iterator<Item = (usize, Loading<'p>)>,
{
    fn next(&mut self, part: &mut Vec<PageRead<Exclusive<'p>, Wanted<'p>>>) {
        let read = |(at, loading): (usize, Loading<'p>)| {
            assert!(loading.source == Source::Home, "there is no flash");
            let Loading { guard, page, partition, .. } = loading;
            PageRead { number: page.0, place: guard, note: Wanted { page, partition, at } }
        };
        part.extend(self.loadings.by_ref().take(PART_PAGES).map(read));
        self.pool.devices.home_is_read(part.len() as u64, part.len() as u64);
    }

    fn ended(&mut self, guard: Exclusive<'p>, wanted: Wanted<'p>, read: std::io::Result<()>) {
        let Wanted { page, partition, at } = wanted;
        let (pool, source) = (self.pool, Source::Home);
        let loading = Loading { pool, guard, partition, page, source, reading: None };
        if let Some(guard) = loading.end(read) {
            (self.arrived)(at, page, guard);
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
    load_batch(&pool.devices, loadings, |_, page| drop(page));
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
        drop(loading.end(same_result(&read)));
    }
}

/// Reads pages in flight, each from its source, all at once; serves what is whole. Tells what
/// became of each, in their order.
fn load_batch<'p>(
    devices: &Devices,
    mut loadings: Vec<Loading<'p>>,
    mut ended: impl FnMut(PageId, Option<Exclusive<'p>>),
) {
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
        ended(loading.page, loading.end(same_result(read)));
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

impl<'p> Loading<'p> {
    /// The read of the page, among others, has ended: serves it if it is whole.
    fn end(mut self, read: std::io::Result<()>) -> Option<Exclusive<'p>> {
        let is_whole = match self.reading.take() {
            None => self.judge(Tier::Home, read).is_ok(),
            Some(reading) => {
                let read = self.judge(Tier::Flash, read);
                self.flash_was_read(reading, read).unwrap_or(false)
            }
        };
        if is_whole && self.redo_if_owed().is_ok() {
            Some(self.serve())
        } else {
            // The next request for the page reads it alone, and returns the error.
            self.unload();
            None
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
            drop(other.end(same_result(&read)));
        }
        if read.is_ok() {
            self.judge(Tier::Home, Ok(())).or_else(|error| self.redo_damaged(error))
        } else {
            // A neighbour's bad sector must not hide this page.
            self.load()
        }
    }
}
