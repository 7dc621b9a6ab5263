//! Writing pages from memory to home and flash: the one way for eviction and checkpoints.
//!
//! ```text
//!  job: exclusive latch, places chosen        plan (under the partition's lock)
//!   |   seal the checksum, downgrade          seal
//!   |   readers may come in from here on; a change waits for the latch
//!   |   the log is durable to the page's LSN  journal.make_durable
//!   |   home and flash writes, side by side   transfer
//!   v   entry and slot move on together       complete (under the lock)
//!  done: the latch goes, or is upgraded and the page leaves
//! ```
//!
//! - W1: write-ahead: no page leaves before the log is durable up to its LSN, to flash as to home
//!   [S0 2.4].
//! - W2: the bytes that are written are not changed meanwhile: the shared latch is held throughout.
//! - W3: at most one home write of a page is outstanding, the cleaner's included: who finds one
//!   leaves the page alone, or waits [sources.D3].
//! - W4: a slot is CLEAN only after the home write, if there is one, has finished too [S0 2.3].
//! - W5: in LC the entry moves to flash only after the flash write has finished [sources.D4].
//! - W6: a home write that was not synced may be lost. Where flash is found again with its dirty
//!   pages, what is said there of a page that was written home since the last sync counts from the
//!   first change that home would lack; and its clean copy is pinned until home was synced.
//! - W7: pages that go home are copied to the doublewrite area first, as many at a time as it
//!   takes. The barrier that makes the copies durable is the force of W1.

use terrace_page::{FrameId, Lsn, PageBuf, PageId, lsn, seal};
use terrace_policy::Touch;
use terrace_tier::{Mutation, Outcome, Purpose, Version, Way, Writing, Written};

use crate::durability::dirty::Logged;
use crate::durability::doublewrite::Shield;
use crate::durability::ledger::DirtyLsns;
use crate::flow::homeward::{home_runs, homeward};
use crate::flow::slots::candidate;
use crate::io::PageIo;
use crate::memory::frames::{Exclusive, Frame, Shared};
use crate::memory::{Books, Partition, Place};
use crate::{BufferPool, PageEvent, PoolError};

/// A page to write, and where to.
pub(crate) struct Job<'p> {
    pub partition: &'p Partition,
    pub page: PageId,
    pub guard: Exclusive<'p>,
    pub writing: Writing,
}

/// A job under way.
pub(crate) struct Transfer<'p> {
    pub partition: &'p Partition,
    pub page: PageId,
    pub guard: Shared<'p>,
    pub writing: Writing,
    pub page_lsn: Lsn,
    pub dirty: Option<DirtyLsns>,
    pub touch: Touch,
}

impl<'p> Transfer<'p> {
    /// The slot that is written, over all partitions.
    pub fn slot_number(&self) -> Option<u32> {
        self.writing.slot().map(|slot| self.partition.first_slot + slot)
    }

    /// The slot, and what is written into it.
    pub fn to_slot(&self) -> Option<(u32, &PageBuf)> {
        self.writing.slot().map(|slot| (slot, &*self.guard))
    }

    pub fn seal(job: Job<'p>) -> Transfer<'p> {
        let Job { partition, page, mut guard, writing } = job;
        guard.change(seal);
        let guard = guard.downgrade();
        let frame = guard.frame();
        Transfer {
            partition,
            page,
            writing,
            page_lsn: lsn(&guard),
            dirty: frame.dirty(),
            touch: frame.touch(),
            guard,
        }
    }
}

/// What flushing a page needs.
pub(crate) enum Flush<'p> {
    /// To be written.
    Job(Job<'p>),
    /// Its home write is outstanding already, maybe of an older version.
    Busy,
    /// Nothing.
    Done,
}

impl BufferPool {
    /// Asks the tier where a latched page goes, and registers its home write if that is where.
    pub(crate) fn plan(
        &self,
        partition: &Partition,
        books: &mut Books,
        guard: &Exclusive<'_>,
        purpose: Purpose,
    ) -> Way {
        let frame = guard.frame();
        let page = frame.page().expect("a page to write");
        let Books { slots, ledger, .. } = books;
        let around = self.around(partition, ledger, Some(frame));
        let mut way = slots.left(&candidate(frame), purpose, &around);
        match &mut way {
            Way::Busy => return way,
            Way::Nothing => {}
            Way::Write(writing, displaced) => {
                if writing.home() {
                    ledger.home_write_begins(page);
                }
                if let Some(displaced) = displaced.take() {
                    self.displaced(partition, books, displaced);
                }
            }
        }
        if purpose == Purpose::Evict {
            self.choosing_left(page, frame);
        }
        way
    }

    /// Runs `jobs` together, or as many at a time as the doublewrite area takes. For eviction the
    /// pages then leave memory, unless they were used meanwhile. Returns how many frames became
    /// free.
    pub(crate) fn write_out(
        &self,
        mut jobs: Vec<Job<'_>>,
        purpose: Purpose,
    ) -> Result<usize, PoolError> {
        let _at_work = self.memory.at_work();
        let at_once = self.durability.shielded_pages();
        // Of a stopped pool, too, the jobs are ended one by one: others wait for their home writes.
        let mut written = self.durability.check_writable().map(|()| 0);
        while !jobs.is_empty() {
            let rest = jobs.split_off(jobs.len().min(at_once));
            let batch = std::mem::replace(&mut jobs, rest);
            match written {
                Ok(freed) => written = self.write_batch(batch, purpose).map(|more| freed + more),
                Err(_) => self.give_up(batch.into_iter().map(Transfer::seal), purpose),
            }
        }
        written
    }

    fn give_up<'p>(&self, transfers: impl Iterator<Item = Transfer<'p>>, purpose: Purpose) {
        for transfer in transfers {
            self.complete(transfer, purpose, Outcome { home: false, flash: false });
        }
    }

    fn write_batch(&self, jobs: Vec<Job<'_>>, purpose: Purpose) -> Result<usize, PoolError> {
        let mut transfers: Vec<Transfer<'_>> = jobs.into_iter().map(Transfer::seal).collect();
        transfers.sort_by_key(|transfer| transfer.page);
        let shield = match self.shield_transfers(&transfers) {
            Ok(shield) => shield,
            Err(error) => {
                self.give_up(transfers.into_iter(), purpose);
                return Err(error);
            }
        };
        self.clear_too_soon(&transfers);
        let slots: Vec<u32> = transfers.iter().filter_map(Transfer::slot_number).collect();
        let (home, flash) = match self.restart.before_writes(self, &slots) {
            Ok(()) => self.transfer(&transfers, shield.as_ref()),
            Err(error) => {
                self.give_up(transfers.into_iter(), purpose);
                return Err(error);
            }
        };
        // From here on the copies of what is home are needed no more.
        let home = match home {
            Ok(()) => {
                drop(shield);
                Ok(())
            }
            Err(source) => Err(self.durability.stop_torn(source, shield)),
        };
        let mut freed = 0;
        for transfer in transfers {
            let outcome = Outcome { home: home.is_ok(), flash };
            freed += usize::from(self.complete(transfer, purpose, outcome));
        }
        self.restart.harden(self, &slots);
        home?;
        self.log_buf_writes(Logged::Full)?;
        Ok(freed)
    }

    /// W1 and W7.
    fn shield_transfers(
        &self,
        transfers: &[Transfer<'_>],
    ) -> Result<Option<Shield<'_>>, PoolError> {
        let homeward = transfers.iter().filter(|transfer| transfer.writing.home());
        let pages: Vec<&PageBuf> = homeward.map(|transfer| &*transfer.guard).collect();
        let dirty = transfers.iter().filter(|transfer| transfer.dirty.is_some());
        let upto = dirty.map(|transfer| transfer.page_lsn).max().unwrap_or(Lsn::ZERO);
        match self.durability.shield(&pages, upto)? {
            Some(shield) => Ok(Some(shield)),
            None => self.write_ahead(transfers).map(|()| None),
        }
    }

    /// W1.
    pub(crate) fn write_ahead(&self, transfers: &[Transfer<'_>]) -> Result<(), PoolError> {
        let dirty = transfers.iter().filter(|transfer| transfer.dirty.is_some());
        let upto = dirty.map(|transfer| transfer.page_lsn).max();
        match upto {
            Some(lsn) if !self.config.mutations.has(Mutation::PageBeforeLog) => {
                self.durability.write_ahead(lsn)
            }
            _ => Ok(()),
        }
    }

    /// Breaks W4 and W5, if a mutation says so: entries move before the writes.
    pub(crate) fn clear_too_soon(&self, transfers: &[Transfer<'_>]) {
        let mutations = self.config.mutations;
        for transfer in transfers {
            let Some(lsns) = transfer.dirty else { continue };
            let (home, flash) = (transfer.writing.home(), transfer.writing.slot().is_some());
            let too_soon = if home && flash {
                mutations.has(Mutation::CleanBeforeBothWrites)
            } else {
                flash && !home && mutations.has(Mutation::EntryMovesBeforeWrite)
            };
            if too_soon {
                let mut books = transfer.partition.books.lock();
                books.clear_dirty(transfer.guard.frame());
                if home {
                    self.written_home(&mut books, transfer.page, lsns);
                }
            }
        }
    }

    fn transfer(
        &self,
        transfers: &[Transfer<'_>],
        shield: Option<&Shield<'_>>,
    ) -> (std::io::Result<()>, bool) {
        let pages = transfers.iter().filter(|transfer| transfer.writing.home());
        let pages = pages.map(|transfer| (transfer.page, &*transfer.guard));
        let home = home_runs(&homeward(pages, shield));
        let mut flash = Vec::new();
        for transfer in transfers {
            if let Some(slot) = transfer.writing.slot() {
                let number = transfer.partition.slot_page(slot);
                flash.push(PageIo::write(number, [&*transfer.guard]));
            }
        }
        let writes_flash = !flash.is_empty();
        let (home, flash) = self.devices.write_both(home, flash);
        if writes_flash {
            self.devices.flash_was_written(&self.durability, flash.is_ok());
        }
        (home, flash.is_ok())
    }
}

/// What was written: entries and slots move on, and pages leave memory if they may.
impl BufferPool {
    /// Moves slot and entry on, and lets the page leave if it may. Whether a frame became free.
    pub(crate) fn complete(
        &self,
        transfer: Transfer<'_>,
        purpose: Purpose,
        outcome: Outcome,
    ) -> bool {
        let (home, slot) = (transfer.writing.home(), transfer.writing.slot());
        if self.traffic.is_exclusive && slot.is_some() {
            return self.complete_exclusive(transfer, outcome);
        }
        let Transfer { partition, page, guard, writing, page_lsn, dirty, touch } = transfer;
        let frame = guard.frame();
        let mut books = partition.books.lock();
        let had_slot = frame.slot().is_some();
        let at_home = home && outcome.home;
        // write_out.W6: what home was just sent counts as lacking until it is synced.
        let lacking =
            dirty.filter(|_| !home || self.restart.rules.keeps_bases).map(|lsns| lsns.rec);
        let version = self.version(&books, (page, frame), page_lsn, lacking);
        let ended = (writing, outcome);
        let is_filled = self.end_writing(partition, &mut books, frame, ended, &version);
        if let Some(slot) = slot.filter(|_| is_filled && at_home && self.restart.rules.keeps_bases)
        {
            books.ledger.keep_until_sync(slot, page);
        }
        // A rule that is off may have cleared the entry already.
        if let Some(lsns) = dirty.filter(|_| frame.rec_lsn().is_some()) {
            if at_home || (is_filled && !home) {
                books.clear_dirty(frame);
                self.memory.observe(page, PageEvent::WriteOut);
            }
            if at_home {
                self.entry_until_sync(&mut books, (page, frame), lsns, is_filled);
            }
        }
        if !had_slot && frame.slot().is_some() {
            self.memory.observe(page, PageEvent::SlotTaken);
        }
        let leaves =
            purpose == Purpose::Evict && frame.rec_lsn().is_none() && frame.touch() == touch;
        let left = match guard.try_upgrade_if(leaves) {
            Some(exclusive) => {
                self.memory.evicted(partition, &mut books, exclusive, dirty.is_some());
                true
            }
            None => false,
        };
        if home {
            books.ledger.home_write_ends(page);
        }
        drop(books);
        if home {
            partition.home_write_ended.notify_all();
        }
        if left {
            partition.room.notify_all();
        }
        if is_filled && !home && dirty.is_some() {
            self.wake_cleaner();
        }
        left
    }

    /// arriving.N4: a page was written to flash, to leave memory. Whether it did.
    pub(crate) fn complete_exclusive(&self, transfer: Transfer<'_>, outcome: Outcome) -> bool {
        let Transfer { partition, page, guard, writing, page_lsn, touch, .. } = transfer;
        let mut books = partition.books.lock();
        let leaves = outcome.flash && guard.frame().touch() == touch;
        let rec = guard.frame().dirty().map(|lsns| lsns.rec);
        let version = self.version(&books, (page, guard.frame()), page_lsn, rec);
        let slot = guard.frame().slot();
        let Some(guard) = guard.try_upgrade_if(leaves) else {
            let void = Outcome { home: false, flash: false };
            let written = books.slots.written(writing, void, &version, slot);
            assert_eq!(written, Written::Failed, "what stays in memory is not on flash");
            return false;
        };
        let frame = guard.frame();
        self.end_writing(partition, &mut books, frame, (writing, outcome), &version);
        if rec.is_some() {
            books.clear_dirty(frame);
            self.memory.observe(page, PageEvent::WriteOut);
        }
        if slot.is_none() {
            self.memory.observe(page, PageEvent::SlotTaken);
        }
        self.memory.evicted(partition, &mut books, guard, rec.is_some());
        drop(books);
        partition.room.notify_all();
        if rec.is_some() {
            self.wake_cleaner();
        }
        true
    }

    /// What is written of the page of `frame`, of which home lacks changes from `rec` on.
    pub(crate) fn version(
        &self,
        books: &Books,
        (page, frame): (PageId, &Frame),
        lsn: Lsn,
        rec: Option<Lsn>,
    ) -> Version {
        // write_out.W6: what the slot says must hold after a power cut, too. A clean copy is the
        // log's to redo where bases are not kept.
        let at_risk =
            books.ledger.at_risk(page).filter(|_| rec.is_some() || self.restart.rules.keeps_bases);
        let newer = rec.into_iter().chain(at_risk).min();
        Version { lsn, newer, history: frame.touch().history(self.memory.now()) }
    }

    /// The page was written home, and to flash if it `has_copy`: its entry waits for a sync.
    fn entry_until_sync(
        &self,
        books: &mut Books,
        (page, frame): (PageId, &Frame),
        lsns: DirtyLsns,
        has_copy: bool,
    ) {
        // Until home is synced a copy on flash stands for the page.
        let stands = has_copy && self.restart.rules.keeps_bases;
        let base = if stands { Lsn::MAX } else { lsns.base };
        self.written_home(books, page, DirtyLsns { base, ..lsns });
        self.base_until_sync(books, frame, page);
    }

    /// The page was written home: a base that it has is kept until home is synced.
    fn base_until_sync(&self, books: &mut Books, frame: &Frame, page: PageId) {
        if let (true, Some(slot)) = (self.restart.rules.keeps_bases, frame.slot())
            && books.slots.is_kept_for(slot, page)
        {
            books.ledger.keep_until_sync(slot, page);
        }
    }
}

/// Single pages of memory that have changed, for a checkpoint (flush.C2).
impl BufferPool {
    /// Writes one page, if it is in memory and has changed. Call it without latches.
    pub(crate) fn flush_page(&self, partition: &Partition, page: PageId) -> Result<(), PoolError> {
        let place = partition.find(&partition.books.lock(), &self.memory.frames, page);
        match place {
            Place::Memory(id) => self.flush_busy(id, page, Lsn::MAX),
            Place::Flash(_) | Place::Nowhere => Ok(()),
        }
    }

    /// Writes one page that was latched, or being written home, when it was tried.
    pub(crate) fn flush_busy(
        &self,
        id: FrameId,
        page: PageId,
        below: Lsn,
    ) -> Result<(), PoolError> {
        let partition = self.memory.partition(page);
        loop {
            self.durability.check_writable()?;
            let seen = partition.home_write_ended.seen();
            // A page that has left its frame was written, or has moved to flash.
            let Some(guard) = self.memory.frames.exclusive_if(id, page) else { return Ok(()) };
            match self.flush_job(partition, page, guard, below) {
                Flush::Job(job) => {
                    self.write_out(vec![job], Purpose::Checkpoint)?;
                    return Ok(());
                }
                Flush::Done => return Ok(()),
                Flush::Busy => partition.home_write_ended.wait(seen),
            }
        }
    }

    pub(crate) fn flush_job<'p>(
        &'p self,
        partition: &'p Partition,
        page: PageId,
        guard: Exclusive<'p>,
        below: Lsn,
    ) -> Flush<'p> {
        let is_old =
            guard.frame().dirty().is_some_and(|lsns| match self.restart.rules.is_persistent {
                true if !self.durability.is_sharp() => lsns.base < below,
                _ => lsns.rec < below,
            });
        if !guard.frame().holds(page) || !is_old {
            return Flush::Done;
        }
        let mut books = partition.books.lock();
        let plan = self.plan(partition, &mut books, &guard, Purpose::Checkpoint);
        drop(books);
        match plan {
            Way::Nothing => Flush::Done,
            Way::Busy => Flush::Busy,
            Way::Write(writing, _) => Flush::Job(Job { partition, page, guard, writing }),
        }
    }
}
