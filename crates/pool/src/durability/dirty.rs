//! The dirty table: which changes are not at home, and what the log may forget.
//!
//! One entry per page [sources.D5]. It is made by `make_dirty`, moves to flash and back with the
//! page's newest version, and ends when home has that version durably:
//!
//! ```text
//!           make_dirty           wrote_dirty (LC eviction)
//! (none) ------------> in frame -------------------------> in slot (NEWER)
//!    ^                  |   ^            make_dirty          |
//!    |       home write |   +--------------------------------+
//!    |                  v                                    | home write (cleaner)
//!    |               unsynced <------------------------------+
//!    |  sync_home       |
//!    +----- syncing <---+
//! ```
//!
//! The entries that are in no frame and no slot are in the ledger of the page's partition
//! (`ledger.rs`), and so is what stays on flash until home was synced.
//!
//! Recovery that redoes on first use begins with entries that are owed: they are in no frame until
//! their page is read.
//!
//! - E1: entry first, then the flash copy is invalidated, then the record is appended: otherwise a
//!   checkpoint or the cleaner could believe, in between, that no record is owed [sources.D2].
//! - E2: every arrow is one section under the lock of the page's partition, which a page never
//!   changes. So a walk over the partitions, one lock at a time, meets every entry that existed
//!   when the walk began and still exists; an entry made meanwhile has a recLSN above every LSN
//!   appended before the walk, and a checkpoint keeps the log from its own beginning anyway.
//! - E3: a written page counts until home was synced after the write: a power cut may take back
//!   what a device has only completed.
//! - E4: a BUF_WRITE record lists pages whose home copy is durable and holds every update up to
//!   its EOL. EOL is the last LSN when the batch is opened, before any page joins; a page joins
//!   under its latch (or the partition's lock, for the cleaner) if it was not modified since its
//!   image was written; home is synced before the record is appended [S3 II-A; sources.D1].

use terrace_device::Operation;
use terrace_page::{Lsn, PageId};
use terrace_rt::{Nanos, sleep};
use terrace_tier::{BaseRule, Freed, Mutation};

use crate::durability::Durability;
use crate::durability::ledger::{DirtyLsns, Ledger};
use crate::memory::Memory;
use crate::memory::Section;
use crate::memory::frames::Exclusive;
use crate::{BufferPool, Dirtied, PoolError};

/// How long a page is without an entry when `entry_before_invalidation` is off.
const WRONG_ORDER_GAP: Nanos = Nanos(3_000_000);

/// Batches of pages for BUF_WRITE records.
#[derive(Default)]
pub(super) struct BufWrites {
    open: Option<Batch>,
    full: Vec<Batch>,
}

/// How old the oldest changes are that are not everywhere. `Lsn::MAX` where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldestDirty {
    /// The first change that home may lack: the log from here on makes the flash discardable.
    pub rec: Lsn,
    /// The first change that home and the flash may lack.
    pub base: Lsn,
}

struct Batch {
    eol: Lsn,
    pages: Vec<PageId>,
}

/// Makes the dirty entry of a page that is about to change, then invalidates its flash copy.
pub(crate) fn make_dirty(pool: &BufferPool, page: PageId, guard: &Exclusive<'_>) -> Dirtied {
    let partition = pool.memory.partition(page);
    let lower = pool.durability.next_lsn();
    pool.log_grew(lower);
    let newer;
    if pool.config.mutations.has(Mutation::InvalidateBeforeEntry) {
        // The order that is wrong, for tests.
        let mut section = Section::enter(pool, partition);
        newer = section.newer_on_flash(guard);
        section.invalidate(guard);
        drop(section);
        sleep(WRONG_ORDER_GAP);
        let lsns = DirtyLsns::at(newer.unwrap_or(lower).min(lower));
        Section::enter(pool, partition).set_dirty(guard, lsns);
    } else {
        if let Some(choosing) = &pool.traffic.choosing {
            choosing.changed(page);
        }
        let mut section = Section::enter(pool, partition);
        newer = section.newer_on_flash(guard);
        let freed = section.make_dirty_since(guard, lower);
        drop(section);
        pool.restart.harden(pool, freed.as_slice());
    }
    if newer.is_some() { Dirtied::Already } else { Dirtied::Fresh }
}

/// The change that was announced does not come, and the frame's bytes are no page.
pub(crate) fn unmake_dirty(memory: &Memory, page: PageId, guard: &Exclusive<'_>, found: Dirtied) {
    let mut books = memory.partition(page).books.lock();
    let lsns = guard.frame().dirty().expect("an entry to take back");
    books.clear_dirty(guard.frame());
    if found == Dirtied::Already {
        books.ledger.lost(lsns.rec);
    }
}

/// Entries begin, and wait for home to be synced.
impl Section<'_> {
    /// Makes the entry of a page whose first change is at `lower`, and invalidates its flash copy;
    /// the slot that is freed, over all partitions, is still to be hardened.
    pub(crate) fn make_dirty_since(&mut self, guard: &Exclusive<'_>, lower: Lsn) -> Option<u32> {
        let rec = self.newer_on_flash(guard).unwrap_or(lower).min(lower);
        let (slots, rule) = (&self.books.slots, self.base_rule());
        let is_base = |slot: u32| !slots.is_damaged(slot) && slots.keeps(slot, rule);
        let stays = guard.frame().slot().is_some_and(is_base);
        // Without a base of its own the page has what home has.
        self.set_dirty(guard, DirtyLsns { rec, base: if stays { lower } else { rec } });
        match self.pool.config.mutations.has(Mutation::KeepStaleCopy) {
            true => None,
            false => self.invalidate(guard),
        }
    }

    fn newer_on_flash(&self, guard: &Exclusive<'_>) -> Option<Lsn> {
        self.books.slots.newer(guard.frame().slot()?)
    }

    /// Which copies must outlast a change of their page. One whose every change that home lacks is
    /// in the log that analysis reads need not: the page counts as it does without a copy, and its
    /// slot is free for another. But where flash is persistent no slot is that the table calls
    /// newer than home: what the table says of it would be all that there is.
    fn base_rule(&self) -> BaseRule {
        match self.pool.restart.any_base() {
            BaseRule::Below(_) if self.pool.config.mutations.has(Mutation::DropOldBases) => {
                BaseRule::Below(Lsn::ZERO)
            }
            BaseRule::Below(_) if !self.pool.restart.rules.is_persistent => {
                BaseRule::Below(self.books.ledger.base_floor())
            }
            any => any,
        }
    }

    /// The slot, over all partitions, whose copy is no longer the page's.
    fn invalidate(&mut self, guard: &Exclusive<'_>) -> Option<u32> {
        let slot = guard.frame().slot()?;
        if !self.books.slots.is_valid(slot) {
            return None;
        }
        self.books.stats.invalidations += 1;
        let rule = self.base_rule();
        let changed = self.books.slots.changes(slot, rule);
        self.copy_changed(guard.frame(), slot, changed, Freed::Modified)
    }

    /// The entry of a page that was written home, and not modified since, becomes one that waits
    /// for a sync; the page joins a BUF_WRITE batch.
    pub(crate) fn written_home(&mut self, page: PageId, lsns: DirtyLsns) {
        let mutations = self.pool.config.mutations;
        if !mutations.has(Mutation::EntryEndsBeforeSync) {
            self.books.ledger.written_home(lsns);
            if self.pool.restart.rules.finds_dirty && !mutations.has(Mutation::DirtyCopyTrustsHome)
            {
                self.books.ledger.at_risk_until_sync(page, lsns.rec);
            }
        }
        self.pool.durability.join_buf_write(page);
    }

    /// Home was synced: it has what bases were kept for, and what pinned copies stand for. A slot
    /// of a persistent tier is used again only when the table says durably that it may be: so what
    /// the table calls newer than home is there, always.
    fn end_bases(&mut self) {
        let waits = self.pool.restart.rules.waits_for_table;
        for (slot, page) in self.books.ledger.sync_ended() {
            if waits && self.books.slots.is_pinned(slot) {
                self.pool.restart.unpin_later(self.pool, self.number(slot), page);
                continue;
            }
            if !waits && self.books.slots.unpin(slot) {
                self.pool.restart.cleaned(self.pool, self.number(slot), page);
            }
            if !self.books.slots.is_kept_for(slot, page) {
                continue;
            }
            self.detach(page, slot);
            if waits {
                self.books.slots.retire(slot);
                self.retired(slot);
            } else {
                self.books.slots.release_base(slot);
                self.freed(slot, page, Freed::Modified);
            }
        }
    }
}

impl BufferPool {
    /// The least LSN that the log must keep for redo: a lower bound of every change that is not
    /// durable at home, over memory and flash, as one consistent view [S3 Fig.3]; `None` if home
    /// has them all. Syncs home first, so that pages written before the call no longer count.
    pub fn oldest_dirty_lsn(&self) -> Option<Lsn> {
        let oldest = self.oldest_over_partitions(Ledger::base_floor);
        Some(oldest.rec).filter(|&lsn| lsn != Lsn::MAX)
    }

    /// As `oldest_dirty_lsn`, and the same for what neither home nor the flash has: where analysis
    /// may begin while the flash tier is whole. The flash counts only once its table is hardened.
    /// A checkpoint begins with this, and ends with `checkpoint_taken`.
    pub fn oldest_dirty(&self) -> OldestDirty {
        // Where analysis will begin is not known before all were asked: until then every base is
        // kept.
        self.oldest_over_partitions(|_| Lsn::MAX)
    }

    /// Home says durably that analysis begins at `from` or before.
    pub fn checkpoint_taken(&self, from: Lsn) {
        for partition in &self.memory.partitions {
            partition.books.lock().ledger.set_base_floor(from);
        }
    }

    /// The minimum over all partitions, each of which gets a floor of bases by `floor`.
    fn oldest_over_partitions(&self, floor: impl Fn(&Ledger) -> Lsn) -> OldestDirty {
        // After a failure the entries stay, and so does the log: nothing to report.
        let _failed = self.log_buf_writes(Logged::Open);
        let oldest = self.memory.partitions.iter().map(|partition| {
            let mut books = partition.books.lock();
            let floor = floor(&books.ledger);
            books.ledger.set_base_floor(floor);
            let in_frame = books.ledger.oldest_frame(self.memory.frames.rec_of());
            let in_frame = in_frame.map_or(Lsn::MAX, |(lsn, _)| lsn);
            let in_slot = match self.config.mutations.has(Mutation::OldestWithoutFlash) {
                false => books.slots.oldest_newer(),
                true => None,
            };
            let rec = in_frame.min(in_slot.unwrap_or(Lsn::MAX));
            let base = partition.oldest_base(&self.memory.frames);
            DirtyLsns { rec, base }.min(books.ledger.oldest())
        });
        let oldest = oldest.fold(DirtyLsns::NONE, DirtyLsns::min);
        // Without bases, analysis finds the dirty pages on flash.
        let base = if self.restart.rules.keeps_bases { oldest.base } else { oldest.rec };
        OldestDirty { rec: oldest.rec, base }
    }

    /// Logs the batches that are full, or the open one too. Call it without latches.
    pub(crate) fn log_buf_writes(&self, which: Logged) -> Result<(), PoolError> {
        let batches = self.durability.take_buf_writes(which);
        if batches.is_empty() && (which == Logged::Full || !self.memory.has_unsynced()) {
            return Ok(());
        }
        if !self.config.mutations.has(Mutation::BufWriteBeforeSync) {
            self.sync_home()?;
        }
        self.durability.log_batches(&batches);
        Ok(())
    }

    /// Makes the home writes that have completed durable, and drops their entries.
    pub(crate) fn sync_home(&self) -> Result<(), PoolError> {
        let _one_at_a_time = self.durability.sync.lock();
        self.durability.check_writable()?;
        for partition in &self.memory.partitions {
            partition.books.lock().ledger.sync_begins();
        }
        let synced = self.durability.home.sync();
        if let Err(source) = synced {
            for partition in &self.memory.partitions {
                partition.books.lock().ledger.sync_failed();
            }
            return Err(self.durability.stop_for_home(Operation::Sync, source));
        }
        for partition in &self.memory.partitions {
            Section::enter(self, partition).end_bases();
        }
        Ok(())
    }
}

impl Durability {
    /// `page` joins the open batch (E4).
    pub(crate) fn join_buf_write(&self, page: PageId) {
        let mut writes = self.buf_writes.lock();
        let new = || Batch { eol: self.journal.last_lsn(), pages: Vec::new() };
        let batch = writes.open.get_or_insert_with(new);
        batch.pages.push(page);
        if batch.pages.len() >= self.buf_write_pages {
            let batch = writes.open.take();
            writes.full.extend(batch);
        }
    }

    /// The batches to log.
    fn take_buf_writes(&self, which: Logged) -> Vec<Batch> {
        let mut writes = self.buf_writes.lock();
        let mut batches = std::mem::take(&mut writes.full);
        if which == Logged::Open {
            batches.extend(writes.open.take());
        }
        batches
    }

    /// Logs `batches`, whose pages are durable at home.
    fn log_batches(&self, batches: &[Batch]) {
        for batch in batches {
            let eol = match self.mutations.has(Mutation::EolAfterJoin) {
                true => self.journal.last_lsn(),
                false => batch.eol,
            };
            self.journal.log_buf_write(&batch.pages, eol);
        }
    }
}

/// Which batches to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logged {
    /// Those with the number of pages that a record takes.
    Full,
    /// These and the one that still grows.
    Open,
}
