//! Memory: its frames, the partitions that say which page is where, and the requests for pages.
//!
//! A request reads downward: `request` looks the page up and latches it; `fetch` gives it a frame
//! and reads it, which ends in `loading`; `evict` makes room; `guard` is what the caller holds.
//! `multi_read` does that for many pages together. `frames` has the bytes and latches, `directory`
//! finds a page's frame. This file has what all of them, and `flow` below, work with: the
//! partitions, each with the directory, frames, slots and dirty entries of the pages that hash to
//! it.
//!
//! - P1: a page never changes its partition, so all that is known of it changes in a `Section`.
//! - P2: the lock (`books`) is a leaf: no task waits under it. Latches are only tried under it.
//! - P3: the dirty entry of a page is the `rec_lsn` of its frame, or the NEWER mark of its slot, or
//!   a part of the ledger: after its home write until the next sync of home, and while its redo is
//!   pending. It moves between them within one lock section, so every view under the lock has it.

pub(crate) mod directory;
pub(crate) mod evict;
pub(crate) mod fetch;
pub(crate) mod frames;
pub(crate) mod guard;
pub(crate) mod loading;
pub(crate) mod multi_read;
pub(crate) mod request;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use terrace_page::{FrameId, Lsn, PageId};
use terrace_policy::{FramePolicy, Frames, Standing, Tick, Touch};
use terrace_rt::{LeafGuard, LeafMutex, Signal};

use crate::durability::ledger::{DirtyLsns, Ledger};
use crate::flow::append::Gathered;
use crate::shares::SlotTable;
use crate::watch::observe::SampledMisses;
use crate::{BufferPool, PageEvent, PageObserver, PoolStats};
use directory::{Directory, PageHash};
use evict::Waiting;
use fetch::FetchHistory;
use frames::{Exclusive, Frame, FrameTable, Peeks};

/// The background task keeps 1/128 of the frames free.
const FRAMES_PER_FREE: u32 = 128;

/// Memory, and what is counted of it.
pub(crate) struct Memory {
    pub(crate) frames: FrameTable,
    /// Counts page requests that took no latch, where frames do not count them.
    pub(crate) peeks: Peeks,
    pub(crate) partitions: Box<[Partition]>,
    /// The clock of the policies: one tick for each miss.
    clock: AtomicU64,
    pub(crate) fetches: FetchHistory,
    /// Given when a partition runs low on free frames.
    pub(crate) frames_wanted: Signal,
    /// Runs that are being read ahead.
    pub(crate) read_aheads: AtomicU32,
    /// Pages that tasks may latch for what goes straight home.
    pub(crate) latched_ahead: AtomicU32,
    /// Batches on their way out, and pages on their way in.
    working: AtomicU32,
    pub(crate) misses: SampledMisses,
    observer: Option<Arc<dyn PageObserver>>,
    /// Whether the tier wants to know how often each page was asked for.
    pub(crate) counts_hits: bool,
}

impl Memory {
    /// `frames` frames, divided into these partitions. `None` if there is no memory for them.
    pub(crate) fn new(
        frames: u32,
        partitions: Box<[Partition]>,
        now: Tick,
        counts_hits: bool,
        observer: Option<Arc<dyn PageObserver>>,
    ) -> Option<Memory> {
        Some(Memory {
            frames: FrameTable::new(frames)?,
            peeks: Peeks::default(),
            partitions,
            clock: AtomicU64::new(now.0),
            fetches: FetchHistory::default(),
            frames_wanted: Signal::new(),
            read_aheads: AtomicU32::new(0),
            latched_ahead: AtomicU32::new(0),
            working: AtomicU32::new(0),
            misses: SampledMisses::new(),
            observer,
            counts_hits,
        })
    }

    /// The tick of the latest miss.
    #[inline]
    pub(crate) fn now(&self) -> Tick {
        Tick(self.clock.load(Ordering::Relaxed))
    }

    /// A page is missed, at the tick that is returned.
    pub(crate) fn tick(&self) -> Tick {
        Tick(self.clock.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The partition of `page`.
    #[inline]
    pub(crate) fn partition(&self, page: PageId) -> &Partition {
        &self.partitions[self.partition_number(page)]
    }

    #[inline]
    pub(crate) fn partition_number(&self, page: PageId) -> usize {
        PageHash::of(page).partition(self.partitions.len())
    }

    /// The partition of `slot`, numbered over all partitions.
    pub(crate) fn partition_of_slot(&self, slot: u32) -> &Partition {
        let after = self.partitions.partition_point(|part| part.first_slot <= slot);
        &self.partitions[after - 1]
    }

    #[inline]
    pub(crate) fn lookup(&self, page: PageId) -> Option<FrameId> {
        let hash = PageHash::of(page);
        let partition = &self.partitions[hash.partition(self.partitions.len())];
        partition.find_frame(&self.frames, hash, page)
    }

    /// As `lookup`, for a page that will be read: prefetches its bytes.
    #[inline]
    pub(crate) fn lookup_ahead(&self, page: PageId) -> Option<FrameId> {
        let hash = PageHash::of(page);
        let partition = &self.partitions[hash.partition(self.partitions.len())];
        partition.find_frame_ahead(&self.frames, hash, page)
    }

    /// Hits on pages that have left memory since.
    pub(crate) fn retired_hits(&self) -> u64 {
        self.partitions.iter().map(|part| part.retired_hits.load(Ordering::Relaxed)).sum()
    }

    /// Latches the frame that a policy named as a victim, if it has a page and its latch is free.
    pub(crate) fn try_victim(
        &self,
        partition: &Partition,
        victim: FrameId,
    ) -> Option<Exclusive<'_>> {
        let guard = self.frames.try_exclusive(partition.frame_at(victim.0))?;
        guard.frame().page().is_some().then_some(guard)
    }

    /// Tells the observer, if there is one.
    #[inline]
    pub(crate) fn observe(&self, page: PageId, event: PageEvent) {
        if let Some(observer) = &self.observer {
            terrace_rt::callback(|| observer.saw(page, event));
        }
    }

    /// The page of a latched frame leaves memory; it was changed there if it `was_dirty`.
    pub(crate) fn evicted(
        &self,
        partition: &Partition,
        books: &mut Books,
        guard: Exclusive<'_>,
        was_dirty: bool,
    ) {
        books.stats.evictions += 1;
        books.stats.evictions_dirty += u64::from(was_dirty);
        self.take_out(partition, books, guard);
    }

    /// The same, of a page that is no victim.
    fn take_out(&self, partition: &Partition, books: &mut Books, guard: Exclusive<'_>) {
        let frame = guard.frame();
        let slot = books.slots.evicted(frame.slot());
        if slot != frame.slot() {
            frame.set_slot(slot);
            self.observe(frame.page().expect("a page that leaves"), PageEvent::SlotLost);
        }
        partition.uninstall(books, &self.frames, guard);
    }

    /// The frame's page leaves memory again without having been read or changed.
    pub(crate) fn discard(&self, page: PageId, guard: Exclusive<'_>) {
        let partition = self.partition(page);
        let mut books = partition.books.lock();
        self.take_out(partition, &mut books, guard);
        drop(books);
        partition.room.notify_all();
    }

    /// Says that pages are on their way, as long as what is returned lives (evict.N1).
    pub(crate) fn at_work(&self) -> AtWork<'_> {
        self.working.fetch_add(1, Ordering::Relaxed);
        AtWork(&self.working)
    }

    /// Adds what its partitions and frames count. Returns how many slots there are, and the bytes
    /// that are kept for them.
    pub(crate) fn add_stats(&self, stats: &mut PoolStats) -> (u64, u64) {
        let (mut slots_count, mut slot_bytes) = (0, 0);
        for partition in &self.partitions {
            let books = partition.books.lock();
            stats.add(&books.stats);
            stats.frames_used += u64::from(partition.frames_count) - books.free.len() as u64;
            stats.frames_dirty += u64::from(books.ledger.dirty_frames());
            let slots = &books.slots;
            slots_count += u64::from(slots.count());
            stats.slots_invalid += slots.holes();
            stats.add_admissions(slots.admissions());
            slot_bytes += partition_bytes(partition.frames_count, slots) as u64;
        }
        stats.hits =
            self.retired_hits() + self.frames.iter().map(|frame| frame.hits()).sum::<u64>();
        stats.hits += self.peeks.sum();
        stats.latch_waits = self.frames.waits.count.load(Ordering::Relaxed);
        stats.latch_wait_ns = self.frames.waits.ns.load(Ordering::Relaxed);
        (slots_count, slot_bytes)
    }

    /// Whether home writes wait for a sync. One that is under way may still fail: it is waited for.
    pub(crate) fn has_unsynced(&self) -> bool {
        self.partitions.iter().any(|partition| partition.books.lock().ledger.has_unsynced())
    }

    /// Whether a partition stands still, but for devices and the time (evict.N1).
    fn stands_still(&self, partition: &Partition) -> bool {
        let is_latched = |place| self.frames.try_exclusive(partition.frame_at(place)).is_none();
        self.working.load(Ordering::Relaxed) == 0 && (0..partition.frames_count).all(is_latched)
    }
}

/// The pool moves pages as long as this lives.
pub(crate) struct AtWork<'p>(&'p AtomicU32);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A partition of the pool.
pub(crate) struct Partition {
    pub directory: Directory,
    pub first_frame: u32,
    pub frames_count: u32,
    /// Number of the partition's first slot, over all partitions.
    pub first_slot: u32,
    pub slots_count: u32,
    /// The page of the flash device that this slot is.
    pub first_slot_page: u64,
    pub books: LeafMutex<Books>,
    /// Given when a frame becomes free.
    pub room: Signal,
    /// The tasks that wait for one.
    pub waiting: Waiting,
    /// Given when a home write of one of the partition's pages ends.
    pub home_write_ended: Signal,
    /// Hits on pages that have left memory since.
    pub retired_hits: AtomicU64,
}

/// What the partition's lock guards.
pub(crate) struct Books {
    /// Frames without a page.
    pub free: Vec<FrameId>,
    pub policy: FramePolicy,
    /// Empty if the design has no flash tier.
    pub slots: SlotTable,
    /// Victims that wait in their frames to be appended together.
    pub gathered: Vec<Gathered>,
    pub ledger: Ledger,
    pub stats: PoolStats,
}

/// A section under the lock of a partition: everything known of its pages changes in one (P1).
pub(crate) struct Section<'p> {
    pub pool: &'p BufferPool,
    pub partition: &'p Partition,
    pub books: LeafGuard<'p, Books>,
}

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Memory(FrameId),
    /// A slot of the partition, valid or not.
    Flash(u32),
    Nowhere,
}

impl Books {
    pub fn new(free: Vec<FrameId>, policy: FramePolicy, slots: SlotTable) -> Books {
        Books {
            free,
            policy,
            slots,
            gathered: Vec::new(),
            ledger: Ledger::new(),
            stats: PoolStats::default(),
        }
    }

    /// The frame, numbered within the partition, whose page is to leave memory next.
    pub fn name_victim(&mut self, frames: &PolicyFrames<'_>, now: Tick) -> Option<FrameId> {
        let mut victims = Vec::with_capacity(1);
        let view = PolicyView { frames, slots: &self.slots };
        self.policy.victims(&view, now, 1, &mut victims);
        victims.pop()
    }

    /// Makes the dirty entry of the frame that `guard` holds.
    pub fn set_dirty(&mut self, frames: &FrameTable, guard: &Exclusive<'_>, lsns: DirtyLsns) {
        assert!(guard.frame().rec_lsn().is_none(), "one dirty entry per page");
        assert!(lsns.rec <= lsns.base, "home's copy is no newer than the base");
        guard.frame().set_dirty(Some(lsns));
        self.ledger.frame_dirtied(guard.id(), lsns.rec, frames.rec_of());
    }

    /// Takes the dirty entry of `frame` away; the caller has put it elsewhere.
    pub fn clear_dirty(&mut self, frame: &Frame) {
        assert!(frame.rec_lsn().is_some(), "a dirty entry");
        frame.set_dirty(None);
        self.ledger.frame_cleaned();
    }
}

impl<'p> Section<'p> {
    pub fn enter(pool: &'p BufferPool, partition: &'p Partition) -> Section<'p> {
        Section { pool, partition, books: partition.books.lock() }
    }

    /// The number of `slot` over all partitions.
    pub fn number(&self, slot: u32) -> u32 {
        self.partition.first_slot + slot
    }

    /// The page of a latched frame has a dirty entry from now on.
    pub fn set_dirty(&mut self, guard: &Exclusive<'_>, lsns: DirtyLsns) {
        self.books.set_dirty(&self.pool.memory.frames, guard, lsns);
    }

    /// `page` has no slot any more.
    pub fn detach(&self, page: PageId, slot: u32) {
        self.partition.detach_slot(&self.books, &self.pool.memory.frames, page, slot);
        self.pool.memory.observe(page, PageEvent::SlotLost);
    }
}

impl Partition {
    /// The frame of `page`, if a lookup without the lock finds it.
    #[inline]
    fn find_frame(&self, frames: &FrameTable, hash: PageHash, page: PageId) -> Option<FrameId> {
        let place = self.directory.find(hash, |place| {
            place < self.frames_count && frames.frame(self.frame_at(place)).holds(page)
        })?;
        Some(self.frame_at(place))
    }

    /// As `find_frame`, for a page that will be read: prefetches its bytes before it compares the
    /// frame's page number.
    #[inline]
    fn find_frame_ahead(
        &self,
        frames: &FrameTable,
        hash: PageHash,
        page: PageId,
    ) -> Option<FrameId> {
        let place = self.directory.find(hash, |place| {
            place < self.frames_count && {
                let id = self.frame_at(place);
                frames.prefetch(id);
                frames.frame(id).holds(page)
            }
        })?;
        Some(self.frame_at(place))
    }

    /// Where `page` is.
    pub fn find(&self, books: &Books, frames: &FrameTable, page: PageId) -> Place {
        let is = |place| match self.slot_at(place) {
            None => frames.frame(self.frame_at(place)).holds(page),
            Some(slot) => books.slots.holds(slot, page),
        };
        match self.directory.find(PageHash::of(page), is) {
            None => Place::Nowhere,
            Some(place) => match self.slot_at(place) {
                None => Place::Memory(self.frame_at(place)),
                Some(slot) => Place::Flash(slot),
            },
        }
    }

    #[inline]
    pub fn frame_at(&self, place: u32) -> FrameId {
        FrameId(self.first_frame + place)
    }

    fn slot_at(&self, place: u32) -> Option<u32> {
        place.checked_sub(self.frames_count)
    }

    fn place_of_frame(&self, id: FrameId) -> u32 {
        id.0 - self.first_frame
    }

    /// Free frames below which the background task is called.
    pub fn free_frames_low(&self) -> usize {
        (self.frames_count / FRAMES_PER_FREE) as usize
    }

    /// The least base of dirty frames. Under the lock.
    pub fn oldest_base(&self, frames: &FrameTable) -> Lsn {
        let bases = (0..self.frames_count)
            .filter_map(|at| frames.frame(self.frame_at(at)).dirty())
            .map(|lsns| lsns.base);
        bases.min().unwrap_or(Lsn::MAX)
    }

    /// The page of the flash device that `slot` is.
    pub fn slot_page(&self, slot: u32) -> u64 {
        self.first_slot_page + u64::from(slot)
    }

    /// `page` was found in another slot, too, and that one counts.
    pub fn move_slot(&self, page: PageId, from: u32, to: u32) {
        let (from, to) = (self.place_of_slot(from), self.place_of_slot(to));
        self.directory.replace(PageHash::of(page), from, to);
    }

    /// The copy of `page` has moved on to another slot, wherever the page is.
    pub fn copy_moved(&self, frames: &FrameTable, page: PageId, (from, to): (u32, u32)) {
        match self.find_frame(frames, PageHash::of(page), page) {
            Some(id) => {
                assert_eq!(frames.frame(id).slot(), Some(from), "{page} in memory knows its slot");
                frames.frame(id).set_slot(Some(to));
            }
            None => self.move_slot(page, from, to),
        }
    }

    /// Puts a page that was found in `slot` into the directory of a new pool; if it was found in
    /// another slot before, as `is_it` tells, says which.
    pub fn restore_slot(
        &self,
        hash: PageHash,
        slot: u32,
        is_it: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let is_it = |place| self.slot_at(place).is_some_and(&is_it);
        let other = self.directory.insert_new(hash, self.place_of_slot(slot), is_it);
        other.and_then(|place| self.slot_at(place))
    }

    fn place_of_slot(&self, slot: u32) -> u32 {
        self.frames_count + slot
    }

    /// Puts `page`, which is at `place`, into a free frame.
    pub fn install(&self, frame: &Exclusive<'_>, page: PageId, place: Place) {
        let (hash, to) = (PageHash::of(page), self.place_of_frame(frame.id()));
        match place {
            Place::Memory(_) => panic!("{page} is in memory already"),
            Place::Nowhere => self.directory.insert(hash, to),
            Place::Flash(slot) => self.directory.replace(hash, self.place_of_slot(slot), to),
        }
        frame.frame().set_page(Some(page));
        frame.frame().set_slot(match place {
            Place::Flash(slot) => Some(slot),
            _ => None,
        });
    }

    /// Takes the page out of its frame, which becomes free; its flash copy stays known.
    pub fn uninstall(&self, books: &mut Books, frames: &FrameTable, guard: Exclusive<'_>) {
        let frame = guard.frame();
        let page = frame.page().expect("a page to take out");
        assert!(frame.rec_lsn().is_none(), "dirty {page} leaves memory");
        let from = self.place_of_frame(guard.id());
        match frame.slot() {
            Some(slot) => {
                self.directory.replace(PageHash::of(page), from, self.place_of_slot(slot));
            }
            None => self.remove(books, frames, page, from),
        }
        frame.set_page(None);
        frame.set_slot(None);
        self.retired_hits.fetch_add(frame.take_hits(), Ordering::Relaxed);
        books.free.push(guard.id());
        drop(guard);
    }

    /// Forgets that `page` has a copy in `slot`, wherever the page is.
    pub fn detach_slot(&self, books: &Books, frames: &FrameTable, page: PageId, slot: u32) {
        match self.find_frame(frames, PageHash::of(page), page) {
            Some(id) => {
                let frame = frames.frame(id);
                assert_eq!(frame.slot(), Some(slot), "{page} in memory knows its slot");
                frame.set_slot(None);
            }
            None => self.remove(books, frames, page, self.place_of_slot(slot)),
        }
    }

    /// The hits of a frame since they were taken last; they stay in the sum.
    pub(crate) fn take_hits(&self, frame: &Frame) -> u32 {
        let hits = frame.take_hits();
        self.retired_hits.fetch_add(hits, Ordering::Relaxed);
        hits.min(u64::from(u32::MAX)) as u32
    }

    fn remove(&self, books: &Books, frames: &FrameTable, page: PageId, place: u32) {
        let hash_at = |place| {
            let page = match self.slot_at(place) {
                None => frames.frame(self.frame_at(place)).page(),
                Some(slot) => books.slots.page(slot),
            };
            PageHash::of(page.expect("a place in the directory has a page"))
        };
        self.directory.remove(PageHash::of(page), place, hash_at);
    }
}

/// The partition of `page`, if there are `count`.
pub(crate) fn partition_of(page: PageId, count: usize) -> usize {
    PageHash::of(page).partition(count)
}

/// Bytes of the directory for the given number of slots, beside the frames.
fn directory_bytes(frames: u32, slots: u32) -> usize {
    let entries = Directory::entries_for(frames + slots) - Directory::entries_for(frames);
    entries * size_of::<u32>()
}

/// Bytes of all that is kept for each slot of a partition.
pub(crate) fn partition_bytes(frames: u32, slots: &SlotTable) -> usize {
    slots.bytes() + directory_bytes(frames, slots.count())
}

/// A partition's frames, and which of them may leave.
pub(crate) struct PolicyFrames<'a> {
    pub partition: &'a Partition,
    pub frames: &'a FrameTable,
    /// Whether dirty pages may leave.
    pub takes_dirty: bool,
    /// Frames that were named and cannot leave now.
    pub passed_over: RefCell<Vec<FrameId>>,
}

impl PolicyFrames<'_> {
    fn frame(&self, id: FrameId) -> &Frame {
        self.frames.frame(self.partition.frame_at(id.0))
    }
}

/// A partition's frames, as the memory policy sees them.
struct PolicyView<'a> {
    frames: &'a PolicyFrames<'a>,
    slots: &'a SlotTable,
}

impl Frames for PolicyView<'_> {
    fn count(&self) -> u32 {
        self.frames.partition.frames_count
    }

    fn touch(&self, frame: FrameId) -> Touch {
        self.frames.frame(frame).touch()
    }

    fn set_touch(&self, frame: FrameId, touch: Touch) {
        self.frames.frame(frame).set_touch(touch);
    }

    fn evictable(&self, frame: FrameId) -> bool {
        let state = self.frames.frame(frame);
        state.page().is_some()
            && !state.is_latched()
            && (self.frames.takes_dirty || state.rec_lsn().is_none())
            && !self.frames.passed_over.borrow().contains(&frame)
    }

    fn standing(&self, frame: FrameId) -> Option<Standing> {
        let state = self.frames.frame(frame);
        state.page()?;
        let slot = state.slot();
        let is_newer = |slot| self.slots.newer(slot).is_some();
        Some(Standing {
            is_on_flash: slot.is_some(),
            is_ahead_of_home: state.rec_lsn().is_some() || slot.is_some_and(is_newer),
        })
    }
}
