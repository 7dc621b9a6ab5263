//! What flash does with a page that comes into memory: it counts it, takes it in, or lets it go.
//!
//! - A1: TAC, and an inclusive tier, write a page after its read from home: before the read returns
//!   [S4], or by a task of its own [S0 2.5]. The page's latch is held during the write.
//! - A2: such a copy is abandoned if the page was dirtied, or left memory, before its write began:
//!   the flash would be newer than home [S0 4.2].
//!
//! While a page is in memory, flash has a slot of its own for it, nothing, or what it had [S0 5;
//! Koltsidas and Viglas, "Designing a flash-aware two-level cache", ADBIS 2011].
//!
//! ```text
//!             comes into memory                 while it is there        leaves memory
//! inclusive   takes a slot, and is written      the slot is not reused   writes it, if it changed
//!             there if it was read from home
//! exclusive   its copy goes; what home lacks    no slot                  is written anew
//!             is the frame's, as if it changed
//! ```
//!
//! - N1: inclusive: a page in memory has a slot from the moment it has a frame, if a slot was free
//!   or clean then, flash took pages, and no write fails; a slot whose page is in memory is never
//!   reused. A slot that does not have its page's bytes is freed when the page leaves.
//! - N2: exclusive: no page whose latch is free has a copy on flash. Exceptions: while the log is
//!   redone, since redo must know where a page came from (the copies are freed after that); after a
//!   failed write of home, since no dirty page could leave memory again; and, under `warm`, a clean
//!   copy whose page's last home write is not synced.
//! - N3: exclusive: the entry of a dirty copy moves to the frame in the section under the lock in
//!   which the copy goes. So the log keeps what home lacks, and flash stays safe to discard.
//! - N4: exclusive: a page that is used while it is on its way to flash stays in memory, and the
//!   copy that was written is dropped.

use std::sync::atomic::{AtomicU64, Ordering};

use terrace_page::{Lsn, PageId};
use terrace_policy::{Design, Inclusion, Replacement, RestartKind, Temperatures};
use terrace_rt::Queue;
use terrace_tier::{BaseRule, Candidate, Count, Freed, Lend, Outcome, Version, Way};

use crate::config::TacWrite;
use crate::flow::append::Appends;
use crate::flow::choosing::Choosing;
use crate::flow::slots::candidate;
use crate::io::{self, PageIo};
use crate::memory::Section;
use crate::memory::frames::{Exclusive, Frame};
use crate::memory::{Books, Memory, Partition, Place};
use crate::shares::TierShares;
use crate::{BufferPool, PageEvent, PoolConfig};

/// Copies that wait for a TAC writer, at most; more are abandoned.
const OFFERED_MAX: usize = 4096;

/// What decides which pages are written to flash, beside the design.
pub(crate) struct FlashTraffic {
    /// Pages that were read from home, for the TAC writers.
    pub(crate) offered: Queue<PageId>,
    /// Pages that no TAC writer wrote, as they were dirtied, left, or came too fast.
    pub(crate) abandoned: AtomicU64,
    /// The hits on evicted pages by which temperatures have aged, if slots are ranked by
    /// temperature.
    aged_hits: Option<AtomicU64>,
    /// When pages that were read from home are written to flash, if they are.
    pub(crate) writes_what_is_read: Option<TacWrite>,
    /// Whether copies are freed when their pages are read.
    pub(crate) is_exclusive: bool,
    /// How pages are appended, if they are.
    pub(crate) appends: Option<Appends>,
    /// Of `auto`.
    pub(crate) choosing: Option<Choosing>,
}

impl FlashTraffic {
    pub(crate) fn new(
        config: &PoolConfig,
        design: &Design,
        (appends, choosing): (Option<Appends>, Option<Choosing>),
    ) -> FlashTraffic {
        let ages = design.replacement == Replacement::Temperature;
        FlashTraffic {
            offered: Queue::new(OFFERED_MAX),
            abandoned: AtomicU64::new(0),
            aged_hits: ages.then(AtomicU64::default),
            writes_what_is_read: design.writes_what_is_read().then_some(config.tac.write),
            is_exclusive: design.inclusion == Inclusion::Exclusive,
            appends,
            choosing,
        }
    }
}

impl FlashTraffic {
    /// A miss warms the page's extent [S4 3].
    pub(crate) fn warm(&self, page: PageId, memory: &Memory, shares: &TierShares) {
        let Some(aged_hits) = &self.aged_hits else { return };
        let hits = memory.retired_hits();
        let before = aged_hits.fetch_max(hits, Ordering::Relaxed);
        let hits = hits.saturating_sub(before) + 1;
        shares.lend(|temperatures: &mut Temperatures| temperatures.on_miss(page, hits));
    }
}

/// A page that is in a latched frame was read from home: TAC writes it to flash, now or soon (A1).
pub(crate) fn offer_read_page(pool: &BufferPool, page: PageId, guard: &Exclusive<'_>) {
    let Some(write) = pool.traffic.writes_what_is_read else { return };
    // Redo on first use may have changed it (A2).
    if guard.frame().rec_lsn().is_some() {
        return;
    }
    match write {
        TacWrite::Sync => write_read_page(pool, page, guard),
        TacWrite::Async => {
            if pool.traffic.offered.try_push(page).is_err() {
                pool.traffic.abandoned.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Writes the pages that were read, one by one: the life of a TAC writer.
pub(crate) fn run_tac_writer(pool: &BufferPool) {
    let BufferPool { memory, traffic, .. } = pool;
    while let Some(page) = traffic.offered.pop() {
        let partition = memory.partition(page);
        let place = partition.find(&partition.books.lock(), &memory.frames, page);
        let guard = match place {
            Place::Memory(id) => memory.frames.exclusive_if(id, page),
            _ => None,
        };
        match guard {
            Some(guard) if guard.frame().rec_lsn().is_none() => write_read_page(pool, page, &guard),
            _ => drop(traffic.abandoned.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// Writes a clean page to flash under its exclusive latch, if it is admitted.
fn write_read_page(pool: &BufferPool, page: PageId, guard: &Exclusive<'_>) {
    let BufferPool { memory, devices, restart, .. } = pool;
    let partition = memory.partition(page);
    let frame = guard.frame();
    let writing = {
        let mut section = Section::enter(pool, partition);
        let (slots, around) = section.slots_around(Some(frame));
        let Way::Write(writing, displaced) = slots.offer(&candidate(frame), &around) else {
            return;
        };
        if let Some(displaced) = displaced {
            section.displaced(displaced);
        }
        if frame.slot().is_none() {
            memory.observe(page, PageEvent::SlotTaken);
        }
        frame.set_slot(writing.slot());
        writing
    };
    let slot = writing.slot().expect("what is offered goes to flash");
    let number = partition.first_slot + slot;
    let ios = || vec![PageIo::write(partition.slot_page(slot), [&**guard])];
    let written =
        restart.before_writes(pool, &[number]).is_ok() && io::run(devices.flash(), ios()).is_ok();
    devices.flash_was_written(&pool.durability, written);
    let mut section = Section::enter(pool, partition);
    section.books.stats.flash_writes += 1;
    let outcome = Outcome { home: false, flash: written };
    let (lsn, newer) = (terrace_page::lsn(guard), None);
    let history = frame.touch().history(memory.now());
    section.end_writing(frame, writing, outcome, &Version { lsn, newer, history });
    drop(section);
    restart.harden(pool, &[number]);
}

/// N2: the copy of a page that was just read, in a latched frame, goes.
pub(crate) fn exclude(pool: &BufferPool, partition: &Partition, guard: &Exclusive<'_>) {
    let is_redone = pool.restart.is_recovering();
    if pool.traffic.is_exclusive && !is_redone && !pool.durability.is_stopped() {
        let lower = pool.durability.next_lsn();
        let freed = Section::enter(pool, partition).take_over(guard, lower);
        pool.restart.harden(pool, freed.as_slice());
    }
}

/// N2: the log was redone: the copies of the pages that are in memory go.
pub(crate) fn exclude_loaded(pool: &BufferPool) {
    if !pool.traffic.is_exclusive || pool.durability.is_stopped() {
        return;
    }
    let frames = &pool.memory.frames;
    for partition in &pool.memory.partitions {
        for id in (0..partition.frames_count).map(|at| partition.frame_at(at)) {
            let page = frames.frame(id).page();
            if let Some(guard) = page.and_then(|page| frames.exclusive_if(id, page)) {
                exclude(pool, partition, &guard);
            }
        }
    }
}

/// Asserts N1 and N2 of a page in memory.
pub(crate) fn check_inclusion(pool: &BufferPool, books: &Books, page: PageId, frame: &Frame) {
    let is_included = frame.slot().and_then(|slot| books.slots.is_in_memory(slot));
    assert_ne!(is_included, Some(false), "{page} is in memory, and may lose its slot");
    let has_copy = frame.slot().is_some_and(|slot| books.slots.is_valid(slot));
    let is_settled = !frame.is_latched() && !pool.durability.is_stopped();
    let is_pure = pool.config.restart.kind == RestartKind::Forget;
    if pool.traffic.is_exclusive && is_settled && is_pure {
        assert!(!has_copy, "{page} is in memory and on flash");
    }
}

/// What flash makes of a page that comes into memory.
impl Section<'_> {
    /// `page` is about to be read from a device: from flash, if it has `slot`. Counted for the
    /// designs that go by benefit.
    pub(crate) fn count_read(&mut self, page: PageId, slot: Option<u32>) {
        let slots = &mut self.books.slots;
        slots.counted(page, slot, Count::Read);
        if !slots.is_period_over() {
            return;
        }
        // Pages that stay in memory were read from it, too.
        for id in (0..self.partition.frames_count).map(|at| self.partition.frame_at(at)) {
            let frame = self.pool.memory.frames.frame(id);
            if let Some(page) = frame.page() {
                let hits = self.partition.take_hits(frame);
                let what = Count::InMemory { logical: hits, physical: 0 };
                slots.counted(page, frame.slot(), what);
            }
        }
        slots.halve_counts();
    }

    /// N1: a slot for the page of `frame`, which it has just got, if it has none.
    pub(crate) fn include(&mut self, frame: &Frame) {
        let page = Candidate { is_dirty: false, ..candidate(frame) };
        let (slots, around) = self.slots_around(Some(frame));
        let Some((slot, displaced)) = slots.arrived(&page, &around) else { return };
        if let Some(displaced) = displaced {
            self.displaced(displaced);
        }
        frame.set_slot(Some(slot));
        self.pool.memory.observe(page.page, PageEvent::SlotTaken);
    }

    /// N3: what flash has of the page of a latched frame is the frame's from now on. The slot that
    /// is freed, over all partitions, is still to be hardened.
    fn take_over(&mut self, guard: &Exclusive<'_>, lower: Lsn) -> Option<u32> {
        let slot = guard.frame().slot()?;
        if !self.books.slots.is_valid(slot) {
            return None;
        }
        if self.books.slots.newer(slot).is_some() {
            return self.make_dirty_since(guard, lower);
        }
        if self.books.slots.keeps(slot, self.pool.restart.any_base()) {
            return None;
        }
        self.books.stats.invalidations += 1;
        let changed = self.books.slots.changes(slot, BaseRule::Never);
        self.copy_changed(guard.frame(), slot, changed, Freed::Modified)
    }
}
