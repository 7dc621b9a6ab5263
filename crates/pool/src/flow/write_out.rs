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

use std::sync::Arc;

use terrace_device::Operation;
use terrace_page::{Lsn, PageBuf, PageId};
use terrace_tier::{Mutation, Outcome, Purpose, Way};

use crate::durability::dirty::Logged;
use crate::durability::doublewrite::{CopyError, Doublewrite, Shield};
use crate::flow::homeward::{Homeward, home_runs, homeward};
use crate::flow::slots::candidate;
use crate::flow::written::{Job, Transfer};
use crate::io::{self, PageIo};
use crate::memory::frames::Exclusive;
use crate::memory::{Books, Partition};
use crate::{BufferPool, PoolError};

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
        let at_once = self.shielded_pages();
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
        let (home, flash) = match self.before_slot_writes(&slots) {
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
            Err(source) => Err(self.stop_torn(source, shield)),
        };
        let mut freed = 0;
        for transfer in transfers {
            let outcome = Outcome { home: home.is_ok(), flash };
            freed += usize::from(self.complete(transfer, purpose, outcome));
        }
        self.harden(&slots);
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
        match self.shield(&pages, upto)? {
            Some(shield) => Ok(Some(shield)),
            None => self.write_ahead(transfers).map(|()| None),
        }
    }

    /// The area that home writes go through.
    fn doublewrite(&self) -> Option<&Arc<Doublewrite>> {
        self.durability
            .journal
            .doublewrite()
            .filter(|_| !self.config.mutations.has(Mutation::SkipDoublewrite))
    }

    /// Most pages that may go home together.
    pub(crate) fn shielded_pages(&self) -> usize {
        self.doublewrite().map_or(usize::MAX, |area| area.batch_pages())
    }

    /// W7: copies `pages`, at most `shielded_pages`, beside the log, and makes the copies durable,
    /// and the log up to `upto`. The shield is to be kept until the pages are at home. `None` if
    /// nothing is copied.
    pub(crate) fn shield(
        &self,
        pages: &[&PageBuf],
        upto: Lsn,
    ) -> Result<Option<Shield<'_>>, PoolError> {
        let Some(area) = self.doublewrite().filter(|_| !pages.is_empty()) else { return Ok(None) };
        let shield = area.copy(pages).map_err(|error| match error {
            CopyError::Log(source) => self.durability.journal.failed(source),
            CopyError::Home(source) => self.stop_for_home(Operation::Sync, source),
            error @ CopyError::Torn => self.stop_for_home(Operation::Write, error.into()),
        })?;
        if !self.config.mutations.has(Mutation::PageBeforeLog) {
            self.durability.journal.barrier(upto)?;
        }
        Ok(Some(shield))
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

    /// Runs `work`, which writes some of `pages` home, on as many at a time as the doublewrite area
    /// takes. The log has their changes already. A failure stops the pool.
    pub(crate) fn write_shielded(
        &self,
        pages: &[(PageId, &PageBuf)],
        work: impl Fn(&[Homeward<'_>]) -> std::io::Result<()>,
    ) -> Result<(), PoolError> {
        for part in pages.chunks(self.shielded_pages()) {
            let copied: Vec<&PageBuf> = part.iter().map(|(_, bytes)| *bytes).collect();
            let shield = self.shield(&copied, Lsn::ZERO).map_err(|error| {
                self.stop_for_home(Operation::Write, std::io::Error::other(error))
            })?;
            let written = work(&homeward(part.iter().copied(), shield.as_ref()));
            written.map_err(|source| self.stop_torn(source, shield))?;
        }
        Ok(())
    }

    /// A home write failed, and may have torn its pages. The cause is kept before anyone meets
    /// what follows from it.
    fn stop_torn(&self, source: std::io::Error, shield: Option<Shield<'_>>) -> PoolError {
        let error = self.stop_for_home(Operation::Write, source);
        if let Some(shield) = shield {
            shield.torn();
        }
        error
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
        {
            let mut stats = self.stats.lock();
            stats.home_writes += home.len() as u64;
            stats.home_write_pages += home.iter().map(|io| io.pages() as u64).sum::<u64>();
            stats.flash_writes += flash.len() as u64;
        }
        if flash.is_empty() {
            return (io::run(&*self.devices.home, home), true);
        }
        let device = self.devices.flash.as_deref().expect("a slot is on flash");
        let (home, flash) = io::run_both((&*self.devices.home, home), (device, flash));
        self.flash_was_written(flash.is_ok());
        (home, flash.is_ok())
    }
}
