//! The pages of an index: memory before the device, groups of requests, room, and what a crash
//! must not leave half done.
//!
//! ```text
//!           settle: pages, sync, superblock, sync; the journal begins again
//!              v
//!   ----+------+----op--op--image--image----mark----op-----+--------
//!              |             flush of some keys            | crash: images behind the last mark go
//!              +--- covered by the superblock              | back, operations that no mark covers
//!                                                          | are done again
//! ```
//!
//! - G1: without a journal, an index is whole on its device after `settle` only.
//! - G2: a page that existed at the last mark is written after its image is durable in the journal,
//!   once for each mark.
//! - G3: a mark is durable after all pages written before it.
//! - G4: after a write that failed, nothing is written any more.

use std::collections::BTreeSet;
use std::ops::Sub;
use std::sync::Arc;

use terrace_device::Device;
use terrace_rt::World;

use crate::Error;
use crate::entry::Op;
use crate::group::{self, ReadRun, WriteRun};
use crate::journal::{Covered, Journal};
use crate::page::{Page, PageNo};
use crate::pool::Pool;
use crate::superblock::{Kind, Superblock, first_page};

/// Whether pages that were read or written stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// In the order of LRU.
    Lru,
    /// They go.
    Not,
}

/// Whether a crash must find what a page held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// If it existed at the last mark.
    Wanted,
    /// Nothing refers to what it held.
    Unwanted,
}

/// Where an index is.
#[derive(Clone)]
pub struct Devices {
    /// Its pages.
    pub pages: Arc<dyn Device>,
    /// Its journal; without one a crash loses the index unless it was flushed, and not written
    /// since.
    pub journal: Option<Arc<dyn Device>>,
}

/// What all structures are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of a page, a multiple of 512; 4,096 in the papers.
    pub page_bytes: usize,
    /// Pages of memory: the buffer pool, operations that wait, and tables share them.
    pub memory_pages: usize,
    /// Requests that go to the device together.
    pub pio_max: usize,
    /// Nodes that a search may hold: PioMax times the height, at least.
    pub search_pages: usize,
}

/// What has been asked of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Pages that were wanted.
    pub wanted: u64,
    /// Of them, those in memory.
    pub hits: u64,
    /// Groups that were read and written, and their requests.
    pub read_groups: u64,
    /// Requests of these.
    pub reads: u64,
    /// Groups that were written.
    pub write_groups: u64,
    /// Requests of these.
    pub writes: u64,
}

impl Sub for Traffic {
    type Output = Traffic;

    /// What came between two observations, the later one on the left.
    fn sub(self, earlier: Traffic) -> Traffic {
        Traffic {
            wanted: self.wanted - earlier.wanted,
            hits: self.hits - earlier.hits,
            read_groups: self.read_groups - earlier.read_groups,
            reads: self.reads - earlier.reads,
            write_groups: self.write_groups - earlier.write_groups,
            writes: self.writes - earlier.writes,
        }
    }
}

/// Levels of an index at most: two children of each node fill all pages.
const HEIGHT_MAX: usize = 32;

/// Consecutive pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: PageNo,
    pub(crate) pages: u32,
}

/// The pages of an open index.
pub(crate) struct Pages {
    device: Arc<dyn Device>,
    journal: Option<Journal>,
    kind: Kind,
    identity: u64,
    epoch: u64,
    room: Room,
    pool: Pool,
    next: PageNo,
    /// Pages below existed at the last mark.
    marked_next: PageNo,
    imaged: BTreeSet<PageNo>,
    has_failed: bool,
    traffic: Traffic,
}

impl Pages {
    /// Pages of a new index. Nothing is on the device before `settle`.
    pub(crate) fn create(devices: Devices, kind: Kind, room: Room) -> Result<Pages, Error> {
        let identity = World::current().unique_id()? as u64;
        let journal = devices.journal.map(|device| Journal::new(device, identity, 0));
        Ok(Pages {
            device: devices.pages,
            journal,
            kind,
            identity,
            epoch: 0,
            room,
            pool: Pool::new(room.memory_pages),
            next: first_page(room.page_bytes),
            marked_next: 0,
            imaged: BTreeSet::new(),
            has_failed: false,
            traffic: Traffic::default(),
        })
    }

    /// Pages as they were at the last mark, with the structure's state then, and the operations
    /// that are to be done again. The caller does them and settles.
    pub(crate) fn open(
        devices: Devices,
        kind: Kind,
        room: Room,
    ) -> Result<(Pages, Vec<u8>, Vec<Op>), Error> {
        let block = Superblock::read(&*devices.pages, kind)?;
        let room = Room { page_bytes: block.page_bytes, ..room };
        let mut pages = Pages::create(Devices { journal: None, ..devices.clone() }, kind, room)?;
        (pages.identity, pages.epoch, pages.next) = (block.identity, block.epoch, block.next);
        let mut state = block.state;
        let mut ops = Vec::new();
        if let Some(device) = devices.journal {
            let (journal, replay) =
                Journal::open(device, block.identity, block.epoch, block.page_bytes)?;
            if let Some((next, marked)) = replay.mark {
                (pages.next, state) = (next, marked);
            }
            pages.check_next()?;
            for (no, image) in &replay.images {
                pages.check_run(Run { first: *no, pages: 1 })?;
                terrace_device::write(&*pages.device, pages.offset(*no), image)?;
            }
            pages.device.sync()?;
            pages.journal = Some(journal);
            ops = replay.ops;
        }
        pages.check_next()?;
        pages.marked_next = pages.next;
        Ok((pages, state, ops))
    }

    /// Whether the device has all pages that are said to be taken.
    fn check_next(&self) -> Result<(), Error> {
        if self.offset(self.next) > self.device.len() { Err(Error::NotAnIndex) } else { Ok(()) }
    }

    /// Whether pages that something refers to have been taken.
    fn check_run(&self, run: Run) -> Result<(), Error> {
        let is_behind = run.first < first_page(self.room.page_bytes);
        let end = u64::from(run.first) + u64::from(run.pages);
        if is_behind || end > u64::from(self.next) {
            return Err(Error::Corrupt { page: run.first });
        }
        Ok(())
    }

    /// The levels that an index says it has.
    pub(crate) fn check_height(height: usize) -> Result<usize, Error> {
        if (1..=HEIGHT_MAX).contains(&height) { Ok(height) } else { Err(Error::NotAnIndex) }
    }

    pub(crate) fn room(&self) -> Room {
        self.room
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic
    }

    pub(crate) fn next(&self) -> PageNo {
        self.next
    }

    pub(crate) fn has_journal(&self) -> bool {
        self.journal.is_some()
    }

    fn offset(&self, no: PageNo) -> u64 {
        u64::from(no) * self.room.page_bytes as u64
    }

    /// Checks that a search through `height` levels has its memory.
    pub(crate) fn check_search(&self, height: usize) -> Result<(), Error> {
        let Room { pio_max, search_pages, .. } = self.room;
        if pio_max * height > search_pages {
            return Err(Error::SearchMemory { pages: search_pages, pio_max, height });
        }
        Ok(())
    }

    /// Bytes of the buffer pool.
    pub(crate) fn pool_bytes(&self) -> u64 {
        (self.pool.limit() * self.room.page_bytes) as u64
    }

    /// Leaves the buffer pool what `bytes` of other memory leave of the whole, and `least` pages.
    pub(crate) fn share_memory(&mut self, bytes: u64, least: usize) -> Result<(), Error> {
        let others = bytes.div_ceil(self.room.page_bytes as u64) as usize;
        let pages = self.room.memory_pages.saturating_sub(others).max(least).max(1);
        if pages == self.pool.limit() {
            return Ok(());
        }
        let left = self.pool.set_limit(pages);
        self.write_shared(&left, Undo::Wanted)
    }

    /// Takes `count` consecutive pages behind all others, the first a multiple of `align`.
    pub(crate) fn allocate(&mut self, count: u32, align: u32) -> Result<PageNo, Error> {
        let first = self.next.next_multiple_of(align);
        self.claim(first + count)?;
        Ok(first)
    }

    /// All pages below `next` are taken from now on.
    pub(crate) fn claim(&mut self, next: PageNo) -> Result<(), Error> {
        let needed = self.offset(next);
        if needed > self.device.len() {
            self.device.grow(needed).map_err(|_| Error::Full { needed })?;
        }
        self.next = self.next.max(next);
        Ok(())
    }

    /// One page.
    pub(crate) fn get(&mut self, no: PageNo, keep: Keep) -> Result<Arc<Page>, Error> {
        let mut found = self.get_runs(&[Run { first: no, pages: 1 }], keep)?;
        Ok(found.pop().expect("one run").pop().expect("one page"))
    }

    /// Runs of pages, each by one request at most, in groups of PioMax requests.
    pub(crate) fn get_runs(
        &mut self,
        runs: &[Run],
        keep: Keep,
    ) -> Result<Vec<Vec<Arc<Page>>>, Error> {
        let mut found: Vec<Option<Vec<Arc<Page>>>> = Vec::with_capacity(runs.len());
        let mut missing = Vec::new();
        for (at, run) in runs.iter().enumerate() {
            self.check_run(*run)?;
            let numbers = run.first..run.first + run.pages;
            let here = numbers.clone().all(|no| self.pool.has(no));
            self.traffic.wanted += 1;
            self.traffic.hits += u64::from(here);
            found.push(here.then(|| numbers.filter_map(|no| self.pool.get(no)).collect()));
            if !here {
                missing.push(at);
            }
        }
        for group in missing.chunks(self.room.pio_max) {
            let wanted: Vec<Run> = group.iter().map(|at| runs[*at]).collect();
            for (at, read) in group.iter().zip(self.read_group(&wanted)?) {
                let pages = self.admit(runs[*at], read, keep)?;
                found[*at] = Some(pages);
            }
        }
        Ok(found.into_iter().map(|pages| pages.expect("found or read")).collect())
    }

    /// What was read of a run, with what memory has newer.
    fn admit(&mut self, run: Run, read: Vec<Page>, keep: Keep) -> Result<Vec<Arc<Page>>, Error> {
        let mut pages = Vec::with_capacity(read.len());
        for (no, page) in (run.first..).zip(read) {
            if let Some(newer) = self.pool.get(no) {
                pages.push(newer);
                continue;
            }
            page.verify(no)?;
            if !self.kind.has(&page) {
                return Err(Error::Corrupt { page: no });
            }
            let page = Arc::new(page);
            if keep == Keep::Lru
                && let Some(left) = self.pool.put(no, Arc::clone(&page), false)
            {
                self.write_shared(&[left], Undo::Wanted)?;
            }
            pages.push(page);
        }
        Ok(pages)
    }

    /// Reads from the device, whatever memory has, without looking at the bytes.
    fn read_group(&mut self, runs: &[Run]) -> Result<Vec<Vec<Page>>, Error> {
        let blank = |run: &Run| (0..run.pages).map(|_| Page::blank(self.room.page_bytes)).collect();
        let mut group: Vec<ReadRun> =
            runs.iter().map(|run| (self.offset(run.first), blank(run))).collect();
        group::read(&*self.device, &mut group)?;
        self.traffic.read_groups += 1;
        self.traffic.reads += group.len() as u64;
        Ok(group.into_iter().map(|(_, pages)| pages).collect())
    }

    /// As `get_runs` of one page each, for pages of which some may be no page at all: these are
    /// `None`. Memory is not asked, and keeps none.
    pub(crate) fn survey(&mut self, numbers: &[PageNo]) -> Result<Vec<Option<Page>>, Error> {
        let mut found = Vec::with_capacity(numbers.len());
        for group in numbers.chunks(self.room.pio_max) {
            let runs: Vec<Run> = group.iter().map(|no| Run { first: *no, pages: 1 }).collect();
            runs.iter().try_for_each(|run| self.check_run(*run))?;
            for (no, mut read) in group.iter().zip(self.read_group(&runs)?) {
                found.push(read.pop().filter(|page| page.is_whole(*no)));
            }
        }
        Ok(found)
    }

    /// Puts a changed page into memory; it is written when it leaves.
    pub(crate) fn put(&mut self, no: PageNo, mut page: Page) -> Result<(), Error> {
        page.seal(no);
        match self.pool.put(no, Arc::new(page), true) {
            Some(left) => self.write_shared(&[left], Undo::Wanted),
            None => Ok(()),
        }
    }

    /// Writes pages at once, adjacent ones by one request, in groups of PioMax requests.
    pub(crate) fn write(
        &mut self,
        pages: Vec<(PageNo, Page)>,
        undo: Undo,
        keep: Keep,
    ) -> Result<(), Error> {
        let seal = |(no, mut page): (PageNo, Page)| {
            page.seal(no);
            (no, Arc::new(page))
        };
        let mut pages: Vec<(PageNo, Arc<Page>)> = pages.into_iter().map(seal).collect();
        pages.sort_unstable_by_key(|(no, _)| *no);
        self.write_shared(&pages, undo)?;
        for (no, page) in pages {
            self.pool.written(no, &page);
            if keep == Keep::Lru
                && let Some(left) = self.pool.put(no, page, false)
            {
                self.write_shared(&[left], Undo::Wanted)?;
            }
        }
        Ok(())
    }

    fn write_shared(&mut self, pages: &[(PageNo, Arc<Page>)], undo: Undo) -> Result<(), Error> {
        if self.has_failed {
            return Err(Error::Failed);
        }
        let written = self.write_runs(pages, undo);
        self.has_failed |= written.is_err();
        written
    }

    fn write_runs(&mut self, pages: &[(PageNo, Arc<Page>)], undo: Undo) -> Result<(), Error> {
        if undo == Undo::Wanted {
            self.log_images(pages)?;
        }
        let mut runs: Vec<WriteRun<'_>> = Vec::new();
        for (no, page) in pages {
            let offset = self.offset(*no);
            let page_bytes = self.room.page_bytes as u64;
            match runs.last_mut() {
                Some((first, run)) if *first + run.len() as u64 * page_bytes == offset => {
                    run.push(page);
                }
                _ => runs.push((offset, vec![page])),
            }
        }
        for group in runs.chunks(self.room.pio_max) {
            group::write(&*self.device, group)?;
            self.traffic.write_groups += 1;
            self.traffic.writes += group.len() as u64;
        }
        Ok(())
    }

    /// G2.
    fn log_images(&mut self, pages: &[(PageNo, Arc<Page>)]) -> Result<(), Error> {
        if self.journal.is_none() {
            return Ok(());
        }
        let existed = |no: &PageNo| *no < self.marked_next && !self.imaged.contains(no);
        let wanted: Vec<PageNo> = pages.iter().map(|(no, _)| *no).filter(existed).collect();
        for group in wanted.chunks(self.room.pio_max) {
            let runs: Vec<Run> = group.iter().map(|no| Run { first: *no, pages: 1 }).collect();
            let read = self.read_group(&runs)?;
            let journal = self.journal.as_mut().expect("just seen");
            for (no, old) in group.iter().zip(read) {
                journal.image(*no, old[0].bytes());
            }
            journal.force()?;
            self.imaged.extend(group);
        }
        Ok(())
    }

    /// Notes an operation, durable after `commit`.
    pub(crate) fn log(&mut self, op: Op) -> Result<(), Error> {
        if self.has_failed {
            return Err(Error::Failed);
        }
        if let Some(journal) = &mut self.journal {
            journal.op(op);
        }
        Ok(())
    }

    /// Makes all operations durable that were logged.
    pub(crate) fn commit(&mut self) -> Result<(), Error> {
        if self.has_failed {
            return Err(Error::Failed);
        }
        let forced = self.journal.as_mut().map_or(Ok(()), Journal::force);
        self.has_failed |= forced.is_err();
        forced
    }

    /// Whether the journal wants a settling soon.
    pub(crate) fn wants_settling(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::is_half_full)
    }

    /// Ends a flush: a crash finds the pages as they are now, and no operation on `covered` keys.
    pub(crate) fn mark(&mut self, state: &[u8], covered: Option<Covered>) -> Result<(), Error> {
        if self.journal.is_none() {
            return Ok(());
        }
        let marked = self.mark_in_journal(state, covered);
        self.has_failed |= marked.is_err();
        marked
    }

    fn mark_in_journal(&mut self, state: &[u8], covered: Option<Covered>) -> Result<(), Error> {
        let dirty = self.pool.take_dirty();
        self.write_shared(&dirty, Undo::Wanted)?;
        self.device.sync()?;
        let journal = self.journal.as_mut().expect("the caller has looked");
        journal.mark(self.next, covered, state);
        journal.force()?;
        self.marked();
        Ok(())
    }

    fn marked(&mut self) {
        self.marked_next = self.next;
        self.imaged.clear();
    }

    /// Writes all that is dirty, and the superblock; the journal begins again.
    pub(crate) fn settle(&mut self, state: Vec<u8>) -> Result<(), Error> {
        if self.has_failed {
            return Err(Error::Failed);
        }
        let settled = self.settle_all(state);
        self.has_failed |= settled.is_err();
        settled
    }

    fn settle_all(&mut self, state: Vec<u8>) -> Result<(), Error> {
        let dirty = self.pool.take_dirty();
        self.write_shared(&dirty, Undo::Wanted)?;
        self.device.sync()?;
        self.epoch += 1;
        let (kind, page_bytes, next) = (self.kind, self.room.page_bytes, self.next);
        let (epoch, identity) = (self.epoch, self.identity);
        Superblock { kind, page_bytes, next, epoch, identity, state }.write(&*self.device)?;
        self.device.sync()?;
        if let Some(journal) = &mut self.journal {
            journal.restart(self.epoch);
        }
        self.marked();
        Ok(())
    }

    /// The page is of no use any more.
    pub(crate) fn forget(&mut self, no: PageNo) {
        self.pool.forget(no);
    }
}
