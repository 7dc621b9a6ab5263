//! Admission to flash: which page gets a slot, and TAC's writes of pages that were just read.
//!
//! - A1: a page is admitted if no more than mu requests are queued at the flash, if it is random or
//!   the tier is filling, and if a slot is free or clean [S0 2.2, 3.3].
//! - A2: TAC asks temperatures instead of classes, and writes after the read from home: before the
//!   read returns [S4], or by a task of its own [S0 2.5]. The page's latch is held during the
//!   write.
//! - A3: a TAC copy is abandoned if the page was dirtied, or left memory, before its write began:
//!   the flash would be newer than home [S0 4.2].
//! - A4: a page that owns an invalid slot gets that one again, never a second [sources.R5].
//! - A5: CC and CAC write a page that is on flash there again, whatever it benefits: in place, or,
//!   where its copy is kept as a base, into another slot if there is one.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use terrace_device::{Device, DeviceError, Operation};
use terrace_page::PageId;
use terrace_policy::{
    AccessClass, AdmissionRule, Costs, Filling, Refusal, Replacement, Temperatures, admit,
};
use terrace_rt::{LeafMutex, Queue};
use terrace_tier::{Count, Freed, Gauge, Held, Lend, NoVictim};

use crate::config::TacWrite;
use crate::devices::budget::WriteBudget;
use crate::devices::spill::Spilling;
use crate::flow::choosing::Choosing;
use crate::io::{self, PageIo};
use crate::memory::fetch::Loading;
use crate::memory::frames::{Exclusive, Frame};
use crate::memory::partition::{Books, Partition, Place};
use crate::{BufferPool, PageEvent, PoolConfig, Stop, Tier};

/// After so many writes in a row failed, the flash is left alone.
const FLASH_FAILURES_MAX: u32 = 8;

/// Copies that wait for a TAC writer, at most; more are abandoned.
const OFFERED_MAX: usize = 4096;

/// What decides which pages are written to flash, beside the design.
pub(crate) struct FlashTraffic {
    pub(crate) filling: LeafMutex<Filling>,
    /// Of writes to flash, if they are limited.
    budget: Option<WriteBudget>,
    /// Writes to flash that failed since the last that did not.
    failures: AtomicU32,
    /// Pages that were read from home, for the TAC writers.
    pub(crate) offered: Queue<PageId>,
    /// The retired hits that temperatures have aged by.
    aged_hits: AtomicU64,
    /// Of a design that picks itself.
    pub(crate) choosing: Option<Choosing>,
    pub(crate) spilling: Option<Spilling>,
    /// What requests cost: as configured, or measured.
    pub(crate) costs: Costs,
}

impl FlashTraffic {
    pub(crate) fn new(
        config: &PoolConfig,
        slots: u32,
        flash: Option<&dyn Device>,
        costs: Costs,
    ) -> FlashTraffic {
        let budget = flash.zip(config.flash_writes_per_day).map(|(flash, bytes_per_day)| {
            WriteBudget::new(bytes_per_day, terrace_rt::now(), flash.counters().written_bytes)
        });
        FlashTraffic {
            filling: LeafMutex::new(Filling::new(slots, config.tau)),
            budget,
            failures: AtomicU32::new(0),
            offered: Queue::new(OFFERED_MAX),
            aged_hits: AtomicU64::new(0),
            choosing: Choosing::new(config, &costs),
            spilling: Spilling::new(config, &costs),
            costs,
        }
    }
}

impl BufferPool {
    /// Whether the flash is too busy for what can do without it [S0 3.3.2].
    pub(crate) fn flash_is_throttled(&self) -> bool {
        self.devices.flash.as_ref().is_some_and(|flash| flash.queued() > self.config.mu)
    }

    /// Whether the tier is being filled with every page [S0 3.3.1].
    pub(crate) fn is_filling(&self) -> bool {
        self.traffic.filling.lock().is_on(self.shares.gauge(Gauge::Used))
    }

    pub(crate) fn flash_is_usable(&self) -> bool {
        let is_there = self.devices.flash.as_ref().is_some_and(|flash| !flash.is_given_up());
        is_there && self.traffic.failures.load(Ordering::Relaxed) < FLASH_FAILURES_MAX
    }

    /// Whether the day's share of writes to flash is spent.
    pub(crate) fn is_over_budget(&self) -> bool {
        let budget = self.traffic.budget.as_ref().zip(self.devices.flash.as_ref());
        budget.is_some_and(|(budget, flash)| {
            !budget.allows(terrace_rt::now(), flash.counters().written_bytes)
        })
    }

    /// A write to flash ended.
    pub(crate) fn flash_was_written(&self, written: bool) {
        if written {
            self.traffic.failures.store(0, Ordering::Relaxed);
        } else {
            self.traffic.failures.fetch_add(1, Ordering::Relaxed);
            self.stats.lock().flash_faults += 1;
            self.look_at_flash();
        }
    }

    /// The flash failed: a database that it is a part of stops once it is given up.
    pub(crate) fn look_at_flash(&self) {
        let Some(flash) = self.devices.flash.as_deref().filter(|flash| flash.is_given_up()) else {
            return;
        };
        if self.is_persistent() {
            let what = "the device has not answered in time, or has lost a write";
            let source = std::io::Error::new(ErrorKind::TimedOut, what);
            let source = DeviceError::wrap(flash.name(), Operation::Read, None, source);
            self.stop_for(Stop::new(Tier::Flash, flash, Operation::Read, source));
        }
    }

    /// A slot for `page`, which has no valid copy on flash, in READY; or none, and why is counted.
    pub(crate) fn admit(
        &self,
        partition: &Partition,
        books: &mut Books,
        page: PageId,
        class: AccessClass,
    ) -> Option<u32> {
        // An append log takes pages in groups only (`append`).
        if !self.flash_is_usable() || self.config.design.batch().is_some() {
            return None;
        }
        let queued = self.devices.flash.as_ref().map_or(0, |flash| flash.queued());
        let class = match self.admission() {
            AdmissionRule::Temperature | AdmissionRule::All | AdmissionRule::Benefit => {
                AccessClass::Random
            }
            AdmissionRule::RandomClass | AdmissionRule::Frequency | AdmissionRule::Chosen => class,
            AdmissionRule::Nothing => {
                books.stats.bypassed_by_policy += 1;
                return None;
            }
        };
        let filling = class == AccessClass::Sequential && self.is_filling();
        let slot = match admit(class, filling, queued, self.config.mu, 1) {
            Ok(()) if self.is_over_budget() => Err(Refusal::OverBudget),
            Ok(()) => self.take_slot(partition, books, page, None),
            Err(refusal) => Err(refusal),
        };
        match slot {
            Ok(slot) => {
                books.stats.admissions += 1;
                return Some(slot);
            }
            Err(Refusal::Throttled) => books.stats.bypassed_by_throttle += 1,
            Err(Refusal::OverBudget) => books.stats.bypassed_by_budget += 1,
            Err(Refusal::Sequential) => books.stats.bypassed_by_policy += 1,
            Err(Refusal::NoRoom) => books.stats.bypassed_for_room += 1,
        }
        None
    }

    /// A slot for a page whose slot `own` keeps a base, which is not written over (A5).
    pub(crate) fn take_other_slot(
        &self,
        partition: &Partition,
        books: &mut Books,
        page: PageId,
        own: u32,
    ) -> Option<u32> {
        if !self.flash_is_usable() {
            return None;
        }
        self.take_slot(partition, books, page, Some(own)).ok()
    }

    /// A free slot, or that of the victim [S0 2.3: alloc], for a page that may have one.
    fn take_slot(
        &self,
        partition: &Partition,
        books: &mut Books,
        page: PageId,
        own: Option<u32>,
    ) -> Result<u32, Refusal> {
        if let Some(slot) = books.slots_mut().alloc(page, self.now()) {
            return Ok(slot);
        }
        let victim = self.victim(partition, books, page, own);
        if books.slots_mut().wants_cleaning() {
            self.cleaning.is_wanted.store(true, Ordering::Relaxed);
        }
        let victim = match victim {
            Ok(victim) => victim,
            Err(NoVictim::Busy) => {
                self.slots_wanted();
                return Err(Refusal::NoRoom);
            }
            // Colder than all that is there: by the policy, as a sequential page is.
            Err(NoVictim::Colder) => return Err(Refusal::Sequential),
        };
        let former = books.slots_mut().page(victim).expect("a clean slot has a page");
        partition.detach_slot(books, &self.memory.frames, former, victim);
        self.observe(former, PageEvent::SlotLost);
        books.slots_mut().reuse(victim, page);
        self.slot_freed(partition.first_slot + victim, former, Freed::Reused);
        Ok(victim)
    }

    /// The slot to reuse for `page`. One whose page may not lose it counts as used now, as its page
    /// is.
    fn victim(
        &self,
        partition: &Partition,
        books: &mut Books,
        page: PageId,
        own: Option<u32>,
    ) -> Result<u32, NoVictim> {
        // As many as can be in the way.
        for _ in 0..=partition.frames_count {
            let victim = books.slots_mut().victim(page, own)?;
            let former = books.slots_mut().page(victim).expect("a clean slot has a page");
            if !self.is_included(partition, books, former) {
                return Ok(victim);
            }
            let now = self.now();
            books.slots_mut().used(victim, now);
        }
        Err(NoVictim::Busy)
    }

    /// The slot that `page` still owns, taken to be rewritten (A4).
    pub(crate) fn take_own_slot(&self, books: &mut Books, slot: Option<u32>) -> Option<u32> {
        let slot = slot.filter(|&slot| books.slots_mut().is_own(slot))?;
        if !self.flash_is_usable() {
            return None;
        }
        // What flash alone would have goes there, busy or not (A5).
        if self.flash_is_throttled() && !self.config.design.keeps_dirty_on_flash() {
            books.stats.bypassed_by_throttle += 1;
            return None;
        }
        if self.is_over_budget() {
            books.stats.bypassed_by_budget += 1;
            return None;
        }
        books.slots_mut().refresh(slot);
        Some(slot)
    }

    /// `page` is about to be read from a device: from flash, if it has `slot`. Counted for the
    /// designs that go by benefit.
    pub(crate) fn count_read(
        &self,
        partition: &Partition,
        books: &mut Books,
        (page, slot): (PageId, Option<u32>),
    ) {
        let Some(slots) = &mut books.slots else { return };
        slots.counted(page, slot, Count::Read);
        if !slots.is_period_over() {
            return;
        }
        // Pages that stay in memory were read from it, too.
        for id in (0..partition.frames_count).map(|at| partition.frame_at(at)) {
            let frame = self.memory.frames.frame(id);
            if let Some(page) = frame.page() {
                let hits = self.take_hits(partition, frame);
                let what = Count::InMemory { logical: hits, physical: 0 };
                slots.counted(page, frame.slot(), what);
            }
        }
        slots.halve_counts();
    }

    /// A page is about to leave memory, or to be written: what was asked of it is counted.
    pub(crate) fn count_leaving(&self, partition: &Partition, books: &mut Books, frame: &Frame) {
        let Some(slots) = &mut books.slots else { return };
        let page = frame.page().expect("a page that leaves");
        if self.config.design.replacement.counts_hits() {
            // The request that brought it was no hit.
            let hits = self.take_hits(partition, frame);
            let what = Count::InMemory { logical: hits.saturating_add(1), physical: 1 };
            slots.counted(page, frame.slot(), what);
        }
        if frame.rec_lsn().is_some() {
            slots.counted(page, frame.slot(), Count::Write);
        }
    }

    /// The hits of a frame since they were taken last; they stay in the sum.
    fn take_hits(&self, partition: &Partition, frame: &Frame) -> u32 {
        let hits = frame.take_hits();
        partition.retired_hits.fetch_add(hits, Ordering::Relaxed);
        hits.min(u64::from(u32::MAX)) as u32
    }

    /// A miss warms the page's extent [S4 3].
    pub(crate) fn warm(&self, page: PageId) {
        if self.config.design.replacement != Replacement::Temperature {
            return;
        }
        let hits = self.memory.retired_hits();
        let before = self.traffic.aged_hits.fetch_max(hits, Ordering::Relaxed);
        let hits = hits.saturating_sub(before) + 1;
        self.shares.lend(|temperatures: &mut Temperatures| temperatures.on_miss(page, hits));
    }

    /// A page was read from home: TAC writes it to flash, now or soon (A2).
    pub(crate) fn offer_read_page(&self, loading: &Loading<'_>) {
        // Redo on first use may have changed it (A3).
        if !self.config.design.writes_what_is_read() || loading.guard.frame().rec_lsn().is_some() {
            return;
        }
        match self.config.tac.write {
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
        let slot = {
            let mut books = partition.books.lock();
            let own = frame.slot();
            if own.is_some_and(|slot| books.slots_mut().is_valid(slot)) {
                return;
            }
            let slot = match own {
                Some(_) => self.take_own_slot(&mut books, own),
                None => self.admit(partition, &mut books, page, frame.class()),
            };
            let Some(slot) = slot else { return };
            books.slots_mut().issue(slot);
            if own.is_none() {
                self.observe(page, PageEvent::SlotTaken);
            }
            frame.set_slot(Some(slot));
            slot
        };
        let number = partition.first_slot + slot;
        let written = self.before_slot_writes(&[number]).is_ok() && {
            let flash: &dyn Device = self.devices.flash.as_deref().expect("an admitted page");
            io::run(flash, vec![PageIo::write(partition.slot_page(slot), [&**guard])]).is_ok()
        };
        self.flash_was_written(written);
        let mut books = partition.books.lock();
        books.stats.flash_writes += 1;
        if written {
            let (history, lsn) = (frame.touch().history(self.now()), terrace_page::lsn(guard));
            books.slots_mut().wrote_clean(slot, history, lsn);
            let history = Some(history);
            self.slot_filled(&Held { slot: number, page, lsn, newer: None, history });
        } else {
            books.slots_mut().give_back(slot, true);
        }
        drop(books);
        self.harden(&[number]);
    }
}
