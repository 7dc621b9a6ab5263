//! Traffic to flash: what limits it, and TAC's writes of pages that were just read.
//!
//! - A1: TAC, and an inclusive tier, write a page after its read from home: before the read returns
//!   [S4], or by a task of its own [S0 2.5]. The page's latch is held during the write.
//! - A2: such a copy is abandoned if the page was dirtied, or left memory, before its write began:
//!   the flash would be newer than home [S0 4.2].

use std::sync::atomic::{AtomicU64, Ordering};

use terrace_device::Device;
use terrace_page::PageId;
use terrace_policy::{Costs, Design, Filling, Inclusion, Replacement, Temperatures};
use terrace_rt::{LeafMutex, Queue};
use terrace_tier::{Count, Lend, Outcome, Version, Way};

use crate::config::TacWrite;
use crate::flow::append::Appends;
use crate::flow::around::candidate;
use crate::flow::choosing::Choosing;
use crate::io::{self, PageIo};
use crate::memory::frames::Exclusive;
use crate::memory::loading::Loading;
use crate::memory::{Books, Partition, Place};
use crate::{BufferPool, PageEvent, PoolConfig};

/// Copies that wait for a TAC writer, at most; more are abandoned.
const OFFERED_MAX: usize = 4096;

/// What decides which pages are written to flash, beside the design.
pub(crate) struct FlashTraffic {
    pub(crate) filling: LeafMutex<Filling>,
    /// Pages that were read from home, for the TAC writers.
    pub(crate) offered: Queue<PageId>,
    /// The retired hits that temperatures have aged by, if slots are ranked by them.
    aged_hits: Option<AtomicU64>,
    /// When pages that were read from home are written to flash, if they are.
    pub(crate) writes_what_is_read: Option<TacWrite>,
    /// Whether copies go when their pages are read.
    pub(crate) is_exclusive: bool,
    /// How pages are appended, if they are.
    pub(crate) appends: Option<Appends>,
    /// Of a design that picks itself.
    pub(crate) choosing: Option<Choosing>,
}

impl FlashTraffic {
    pub(crate) fn new(
        config: &PoolConfig,
        design: &Design,
        appends: Option<Appends>,
        slots: u32,
        costs: &Costs,
    ) -> FlashTraffic {
        let ages = design.replacement == Replacement::Temperature;
        FlashTraffic {
            filling: LeafMutex::new(Filling::new(slots, config.tau)),
            offered: Queue::new(OFFERED_MAX),
            aged_hits: ages.then(AtomicU64::default),
            writes_what_is_read: design.writes_what_is_read().then_some(config.tac.write),
            is_exclusive: design.inclusion == Inclusion::Exclusive,
            appends,
            choosing: Choosing::new(config, costs),
        }
    }
}

impl BufferPool {
    /// `page` is about to be read from a device: from flash, if it has `slot`. Counted for the
    /// designs that go by benefit.
    pub(crate) fn count_read(
        &self,
        partition: &Partition,
        books: &mut Books,
        (page, slot): (PageId, Option<u32>),
    ) {
        let slots = &mut books.slots;
        slots.counted(page, slot, Count::Read);
        if !slots.is_period_over() {
            return;
        }
        // Pages that stay in memory were read from it, too.
        for id in (0..partition.frames_count).map(|at| partition.frame_at(at)) {
            let frame = self.memory.frames.frame(id);
            if let Some(page) = frame.page() {
                let hits = partition.take_hits(frame);
                let what = Count::InMemory { logical: hits, physical: 0 };
                slots.counted(page, frame.slot(), what);
            }
        }
        slots.halve_counts();
    }

    /// A miss warms the page's extent [S4 3].
    pub(crate) fn warm(&self, page: PageId) {
        let Some(aged_hits) = &self.traffic.aged_hits else { return };
        let hits = self.memory.retired_hits();
        let before = aged_hits.fetch_max(hits, Ordering::Relaxed);
        let hits = hits.saturating_sub(before) + 1;
        self.shares.lend(|temperatures: &mut Temperatures| temperatures.on_miss(page, hits));
    }

    /// A page was read from home: TAC writes it to flash, now or soon (A1).
    pub(crate) fn offer_read_page(&self, loading: &Loading<'_>) {
        let Some(write) = self.traffic.writes_what_is_read else { return };
        // Redo on first use may have changed it (A2).
        if loading.guard.frame().rec_lsn().is_some() {
            return;
        }
        match write {
            TacWrite::Sync => self.write_read_page(loading.page, &loading.guard),
            TacWrite::Async => {
                if self.traffic.offered.try_push(loading.page).is_err() {
                    self.stats.lock().tac_abandoned += 1;
                }
            }
        }
    }

    /// Writes the pages that were read, one by one: the life of a TAC writer.
    pub(crate) fn run_tac_writer(&self) {
        while let Some(page) = self.traffic.offered.pop() {
            let partition = self.memory.partition(page);
            let place = partition.find(&partition.books.lock(), &self.memory.frames, page);
            let guard = match place {
                Place::Memory(id) => self.memory.frames.exclusive_if(id, page),
                _ => None,
            };
            match guard {
                Some(guard) if guard.frame().rec_lsn().is_none() => {
                    self.write_read_page(page, &guard);
                }
                _ => self.stats.lock().tac_abandoned += 1,
            }
        }
    }

    /// Writes a clean page to flash under its exclusive latch, if it is admitted.
    fn write_read_page(&self, page: PageId, guard: &Exclusive<'_>) {
        let partition = self.memory.partition(page);
        let frame = guard.frame();
        let writing = {
            let mut books = partition.books.lock();
            let Books { slots, ledger, .. } = &mut *books;
            let around = self.around(partition, ledger, Some(frame));
            let Way::Write(writing, displaced) = slots.offer(&candidate(frame), &around) else {
                return;
            };
            if let Some(displaced) = displaced {
                self.displaced(partition, &books, displaced);
            }
            if frame.slot().is_none() {
                self.memory.observe(page, PageEvent::SlotTaken);
            }
            frame.set_slot(writing.slot());
            writing
        };
        let slot = writing.slot().expect("what is offered goes to flash");
        let number = partition.first_slot + slot;
        let written = self.before_slot_writes(&[number]).is_ok() && {
            let flash: &dyn Device = self.devices.flash.as_deref().expect("an admitted page");
            io::run(flash, vec![PageIo::write(partition.slot_page(slot), [&**guard])]).is_ok()
        };
        self.flash_was_written(written);
        let mut books = partition.books.lock();
        books.stats.flash_writes += 1;
        let outcome = Outcome { home: false, flash: written };
        let (lsn, newer) = (terrace_page::lsn(guard), None);
        let history = frame.touch().history(self.memory.now());
        let version = Version { lsn, newer, history };
        self.end_writing(partition, &mut books, frame, (writing, outcome), &version);
        drop(books);
        self.harden(&[number]);
    }
}
