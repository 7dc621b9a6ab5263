//! Bringing home up to date for a checkpoint: in ascending order of recLSN, or all of it.
//!
//! - C1: `flush_below` writes the oldest changes first, so that each round moves the oldest dirty
//!   LSN [S3 II-A2; the list of dirty pages is a heap, S3 II-B, since pages come back from flash
//!   old].
//! - C2: latches are tried, so that a batch never waits for one while it holds others; a busy latch
//!   is waited for alone, holding nothing.
//! - C3: the sharp checkpoint stops LC from caching new dirty pages, then empties memory, then
//!   flash [S0 2.3.3, 3.2].
//! - C4: where flash is a part of the database, what is newer there than at home does not hold the
//!   log: pages are brought to flash, and home only if it takes no more.
//! - C5: pages that a flash had which is given up count as those of memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_page::{FrameId, Lsn, PageId};
use terrace_rt::{Nanos, now, sleep};
use terrace_tier::Purpose;

use crate::durability::dirty::Logged;
use crate::flow::append::{bring_to_flash, brings_to_flash};
use crate::flow::cleaner::clean_one_run;
use crate::flow::write_out::{Flush, Planned, write_out};
use crate::{BufferPool, PoolError};

/// Pages written together.
const BATCH_PAGES: usize = 64;
/// How long a sharp checkpoint waits for news of the cleaner.
const CLEANER_NAP: Nanos = Nanos(10_000_000);
/// Pages that the background brings in at once while the devices have little to do; else one, so
/// that it takes no more of a busy device than one client does.
const DRAIN_PAGES: usize = 8;
/// Requests at flash and home together from which on they are busy.
const BUSY_REQUESTS: usize = 8;
/// How long it waits when a page could not be brought in.
const DRAIN_NAP: Nanos = Nanos(10_000_000);
/// How often it tries.
const DRAIN_ROUNDS_MAX: u32 = 1000;

/// A bulk load under way: see [`BufferPool::begin_load`]. One that is dropped before its `flush`
/// ends only once its pages are home: flash could not give them back either, and the tree that they
/// are of would not be freed.
pub struct BulkLoad {
    pool: Arc<BufferPool>,
    is_home: bool,
}

impl BulkLoad {
    /// Brings all pages home: `BufferPool::flush_all`.
    ///
    /// # Errors
    ///
    /// Those of `flush_all`.
    pub fn flush(&mut self) -> Result<(), PoolError> {
        self.pool.flush_all()?;
        self.is_home = true;
        Ok(())
    }
}

impl Drop for BulkLoad {
    fn drop(&mut self) {
        let durability = &self.pool.durability;
        // A part of the database gives back what it got.
        if !self.is_home && !self.pool.restart.rules.is_persistent {
            // An unlogged change may be as new as the last record.
            let before = durability.journal.last_lsn().0 + 2;
            durability.home_before.fetch_max(before, Ordering::Relaxed);
        }
        durability.loads.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BufferPool {
    /// Writes home every page in memory whose dirty entry is older than `lsn`, oldest first.
    ///
    /// # Errors
    ///
    /// `Stopped` or `Journal`.
    pub fn flush_below(&self, lsn: Lsn) -> Result<(), PoolError> {
        if self.restart.rules.is_persistent && !self.durability.is_sharp() {
            return self.write_older(lsn);
        }
        // What cannot be mended holds the log back; the next sharp checkpoint returns the error.
        if !self.restart.is_recovering() {
            let _mended = mend_lost(self, lsn);
        }
        // Entries made after the call are at least this new, unless they come back from flash.
        let mut oldest_first = Vec::new();
        for partition in &self.memory.partitions {
            let mut books = partition.books.lock();
            let all = partition.frames_count as usize;
            books.ledger.frames_below(lsn, all, self.memory.frames.rec_of(), &mut oldest_first);
        }
        Flush { pool: self, below: lsn }.all(oldest_first)?;
        self.durability.came_home(lsn);
        Ok(())
    }

    /// The background writer: writes home what has been dirty in memory since before `lsn`. Where
    /// copies on flash are kept as bases, a page counts from the first change that its base lacks:
    /// that is what the next opening would have to read.
    ///
    /// # Errors
    ///
    /// `Stopped` or `Journal`.
    pub fn write_older(&self, lsn: Lsn) -> Result<(), PoolError> {
        if !self.restart.rules.keeps_bases {
            return self.flush_below(lsn);
        }
        let mut oldest_first: Vec<(Lsn, FrameId)> = Vec::new();
        for partition in &self.memory.partitions {
            let _books = partition.books.lock();
            let frames = (0..partition.frames_count).map(|at| partition.frame_at(at));
            oldest_first.extend(frames.filter_map(|id| {
                let base = self.memory.frames.frame(id).dirty()?.base;
                (base < lsn).then_some((base, id))
            }));
        }
        Flush { pool: self, below: lsn }.all(oldest_first)
    }

    /// Writes home every page that is dirty at the call, in memory and on flash, and syncs it: the
    /// sharp checkpoint [S0 3.2].
    ///
    /// # Errors
    ///
    /// `Stopped` or `Journal`; `Damaged` if flash lost a page that only the log has now.
    pub fn flush_all(&self) -> Result<(), PoolError> {
        let end = self.durability.next_lsn();
        drain_owed(self, || DRAIN_PAGES);
        self.durability.sharp.fetch_add(1, Ordering::Relaxed);
        let flushed = self
            .flush_below(Lsn::MAX)
            .and_then(|()| flush_flash(self))
            // A page that was modified meanwhile has taken its old entry from flash to memory.
            .and_then(|()| self.flush_below(end));
        self.durability.sharp.fetch_sub(1, Ordering::Relaxed);
        flushed?;
        self.log_buf_writes(Logged::Open)
    }

    /// Begins a bulk load, whose pages are not logged: until it has ended, changed pages that leave
    /// memory are written home, whatever the design. Flash may vanish, or go bad, and nothing else
    /// would have them.
    #[must_use]
    pub fn begin_load(self: &Arc<Self>) -> BulkLoad {
        self.durability.loads.fetch_add(1, Ordering::Relaxed);
        BulkLoad { pool: Arc::clone(self), is_home: false }
    }

    /// Brings home the pages of loads that were given up: a step of each checkpoint.
    ///
    /// # Errors
    ///
    /// `Stopped` or `Journal`.
    pub fn end_loads(&self) -> Result<(), PoolError> {
        match self.durability.home_before() {
            Some(before) => self.flush_below(before),
            None => Ok(()),
        }
    }

    /// Writes home what has to be there before the pool is closed in good order: every dirty page
    /// in memory; dirty pages on flash stay there [S3 IV-B2]. A journalled table needs nothing: it
    /// reopens as fast after a power cut.
    ///
    /// # Errors
    ///
    /// `Stopped` or `Journal`.
    pub fn flush_for_close(&self) -> Result<(), PoolError> {
        if self.config.restart.kind.is_journalled() {
            return Ok(());
        }
        self.flush_below(Lsn::MAX)?;
        self.log_buf_writes(Logged::Open)
    }
}

impl Flush<'_> {
    /// Writes the pages in these frames, in the order of the LSNs.
    fn all(&self, mut frames: Vec<(Lsn, FrameId)>) -> Result<(), PoolError> {
        frames.sort_unstable();
        frames.chunks(BATCH_PAGES).try_for_each(|batch| self.batch(batch))
    }

    fn batch(&self, batch: &[(Lsn, FrameId)]) -> Result<(), PoolError> {
        self.pool.durability.check_writable()?;
        if brings_to_flash(self.pool) {
            bring_to_flash(self.pool, batch, self.below)?;
        }
        let frames = &self.pool.memory.frames;
        let (mut jobs, mut busy) = (Vec::new(), Vec::new());
        for &(_, id) in batch {
            let Some(page) = frames.frame(id).page() else { continue };
            match frames.try_exclusive(id).map(|guard| self.plan(page, guard)) {
                Some(Planned::Job(job)) => jobs.push(job),
                Some(Planned::Done) => {}
                Some(Planned::Busy) | None => busy.push((id, page)),
            }
        }
        if !jobs.is_empty() {
            write_out(self.pool, jobs, Purpose::Checkpoint)?;
        }
        busy.into_iter().try_for_each(|(id, page)| self.busy(id, page))
    }
}

/// Brings home what has been dirty in memory for too long: the life of a background task.
pub(crate) fn run_age_writer(pool: &BufferPool) {
    while !pool.background.is_closing() {
        let seen = pool.durability.age.news.seen();
        // A failure has stopped the pool: the next write returns it.
        let _failed = pool.flush_below(pool.durability.age_floor());
        pool.durability.age.news.wait(seen);
    }
}

/// Waits until no dirty page is on flash; the cleaner brings them home.
fn flush_flash(pool: &BufferPool) -> Result<(), PoolError> {
    let cleaning = &pool.cleaning;
    while cleaning.dirty() > 0 {
        pool.durability.check_writable()?;
        mend_flash(pool)?;
        if pool.background.is_closing() && clean_one_run(pool) {
            continue;
        }
        let seen = cleaning.run_ended.seen();
        cleaning.news.notify_all();
        // Pages stop being dirty on flash by being modified, too: look again after a while.
        cleaning.run_ended.wait_until(seen, now() + CLEANER_NAP);
    }
    Ok(())
}

/// Brings pages into memory whose only copy is bad, if the log can mend them: they are dirty there,
/// and no longer on flash. And redoes pages that are still owed: the cleaner leaves both alone.
fn mend_flash(pool: &BufferPool) -> Result<(), PoolError> {
    mend_lost(pool, Lsn::MAX)?;
    for partition in &pool.memory.partitions {
        let damaged = partition.books.lock().slots.damaged();
        if let Some(page) = damaged {
            pool.write(page)?.dirty();
        }
    }
    for partition in &pool.memory.partitions {
        let owed = partition.books.lock().ledger.owed().next();
        if let Some(page) = owed {
            drop(pool.read(page)?);
        }
    }
    Ok(())
}

/// As `mend_flash`, once flash is given up: of all that it had and home lacks, what has changed
/// before `below`. All at once: a pause for each page would add up while transactions wait.
fn mend_lost(pool: &BufferPool, below: Lsn) -> Result<(), PoolError> {
    if !pool.devices.flash.as_ref().is_some_and(|flash| flash.is_given_up()) {
        return Ok(());
    }
    let mut lost = pool.lost_pages();
    lost.retain(|(_, rec)| *rec < below);
    // In the order of pages, for which the log is read ahead.
    lost.sort_unstable_by_key(|(page, _)| *page);
    let mut first = Ok(());
    for (page, _) in lost {
        // Where the page is in memory already, its entry moves there. One that cannot be mended
        // keeps none behind it.
        let mended = pool.write(page).map(|mut page| {
            page.dirty();
        });
        first = first.and(mended);
    }
    first
}

/// Brings in pages that are owed, in the background: a page at a time while the devices are busy
/// with what others want.
pub(crate) fn drain_owed_gently(pool: &BufferPool) {
    let is_busy = || pool.devices.queued() >= BUSY_REQUESTS;
    drain_owed(pool, || if is_busy() { 1 } else { DRAIN_PAGES });
}

/// Brings in what is owed, at each step the number of pages that `pages_at_once` returns.
fn drain_owed(pool: &BufferPool, pages_at_once: impl Fn() -> usize) {
    for _ in 0..DRAIN_ROUNDS_MAX {
        for partition in &pool.memory.partitions {
            loop {
                let pages: Vec<PageId> = {
                    let books = partition.books.lock();
                    books.ledger.owed().take(pages_at_once()).collect()
                };
                if pages.is_empty() || pool.background.is_closing() {
                    break;
                }
                let before = pool.owed();
                pool.prefetch(&pages);
                if pool.owed() == before {
                    // Memory may be full of what is in use, or a page damaged: one by one.
                    let _failed = pool.read(pages[0]).map(drop);
                    break;
                }
            }
        }
        if pool.owed() == 0 || pool.background.is_closing() || terrace_rt::dead() {
            return;
        }
        sleep(DRAIN_NAP);
    }
}
