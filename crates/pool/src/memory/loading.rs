//! A page in flight, the ends of its reads, and what is done when a device has not the whole page.
//! The rules of reading are those of `fetch`.
//!
//! Redo on first use (`Redo`): a page whose changes are in the log alone is brought up to date when
//! it is read, so that a database can be used before its log is redone. A restart of our own; the
//! idea of redo on demand is that of Graefe's instant recovery.
//!
//! ```text
//!         owe                    read (flash or home)            redo_owed
//! (log) ------> owed, in no frame ---------------------> loaded -----------> dirty, in a frame
//!                  |                                                  ^
//!                  +---------------- drain, in the background --------+
//! ```
//!
//! - O1: until then the page's dirty entry is in the ledger of its partition, and holds the log.
//! - O2: a page is redone under its exclusive latch, before anybody else sees its bytes.
//! - O3: what fails stays owed: whoever reads the page is told, and may try again.
//! - O4: a page whose copy on flash counts as clean is made dirty from the image on that began its
//!   dirty period, though analysis began later: home may have to be rebuilt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_page::{Damage, Lsn, PageBuf, PageId, lsn, verify};
use terrace_rt::LeafMutex;
use terrace_tier::{Freed, Mutation, Reading, SlotState};

use crate::durability::ledger::DirtyLsns;
use crate::io::PageIo;
use crate::memory::frames::Exclusive;
use crate::memory::{Partition, Place};
use crate::shares::SlotTable;
use crate::{BufferPool, PoolError, Tier};

/// Where a page's bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Home,
    Flash,
}

/// What is to be done about a bad copy that home lacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadCopy {
    /// Nothing: the page is whole, from home and the log.
    Rescued,
    /// Its source is to be read, which may be another one now.
    LookAgain,
}

/// A page in flight.
pub(crate) struct Loading<'p> {
    pub guard: Exclusive<'p>,
    pub partition: &'p Partition,
    pub page: PageId,
    /// Where its bytes come from, or came from.
    pub source: Source,
    /// The read of its slot, until it has ended.
    pub reading: Option<Reading>,
}

impl Loading<'_> {
    /// The page is to be read from its slot, or else from home.
    pub(crate) fn read_from(&mut self, reading: Option<Reading>) {
        (self.source, self.reading) = (source_of(&reading), reading);
    }
}

pub(super) fn source_of(reading: &Option<Reading>) -> Source {
    if reading.is_some() { Source::Flash } else { Source::Home }
}

/// The log's changes of pages that are owed. The engine implements it.
pub trait Redo: Send + Sync {
    /// Applies to `bytes` the changes that they lack. `is_whole` says whether they are the page in
    /// some version; otherwise an image in the log must come first. Returns whether any was
    /// applied.
    ///
    /// # Errors
    ///
    /// [`PoolError::Redo`] if the log does not fit the page: `bytes` are then undefined.
    fn redo(&self, page: PageId, bytes: &mut PageBuf, is_whole: bool) -> Result<bool, PoolError>;

    /// The page is redone: its changes are not asked for again.
    fn done(&self, page: PageId);
}

/// Why a page cannot be rebuilt: a device that could not be `read` says nothing about the page,
/// which the log alone does not have.
pub(crate) fn first_cause(read: Result<(), PoolError>, error: PoolError) -> PoolError {
    match read {
        Err(failed @ PoolError::Read { .. }) => failed,
        _ => error,
    }
}

/// Pages that are to be redone when they are first read; which they are, the ledgers know.
#[derive(Default)]
pub(crate) struct Owed {
    count: AtomicU64,
    redo: LeafMutex<Option<Arc<dyn Redo>>>,
}

impl Owed {
    #[inline]
    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// What knows how to redo them, once anything is owed.
    fn redo(&self) -> Option<Arc<dyn Redo>> {
        self.redo.lock().clone()
    }

    fn begin(&self, count: u64, redo: Arc<dyn Redo>) {
        self.count.fetch_add(count, Ordering::Relaxed);
        *self.redo.lock() = Some(redo);
    }

    fn redone(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BufferPool {
    /// Reads a page in flight from home, and verifies it.
    pub(crate) fn read_home(&self, loading: &mut Loading<'_>) -> Result<(), PoolError> {
        let io = PageIo::read(loading.page.0, [loading.guard.target()]);
        let read = self.devices.read_home(vec![io]);
        self.judge(loading.page, Tier::Home, read, &loading.guard)
    }

    /// The read of a slot has ended. Whether flash served; if not, home will.
    pub(crate) fn flash_was_read(
        &self,
        loading: &Loading<'_>,
        reading: Reading,
        read: Result<(), PoolError>,
    ) -> Result<bool, PoolError> {
        let mut books = loading.partition.books.lock();
        let slot = reading.slot();
        let copy = books.slots.read_ended(reading, lsn(&loading.guard));
        let read = match read {
            Ok(()) if self.config.mutations.checks_versions() && !copy.is_version => {
                let (tier, page, damage) = (Tier::Flash, loading.page, Damage::Version);
                Err(PoolError::Damaged { tier, page, damage })
            }
            read => read,
        };
        let Err(error) = read else { return Ok(true) };
        self.devices.look_at_flash(&self.durability);
        if copy.is_newer {
            // Also while the log is redone: that may have gone by what the copy had.
            return Err(error);
        }
        books.stats.flash_faults += 1;
        // A base stays: home has the page, but may lose it again.
        let changed = books.slots.changes(slot, self.restart.any_base());
        let of = (loading.page, loading.guard.frame());
        let freed = self.copy_changed(loading.partition, of, slot, (changed, Freed::Modified));
        drop(books);
        self.restart.harden(self, freed.as_slice());
        Ok(false)
    }

    /// Whether what a device returned is `page` (fetch.F3), and at home no newer than the log: a
    /// page goes there after its records, so a log that ends before one of them has lost its tail.
    /// A flash that is newer is told as a whole, when it is opened.
    pub(crate) fn judge(
        &self,
        page: PageId,
        tier: Tier,
        read: std::io::Result<()>,
        bytes: &PageBuf,
    ) -> Result<(), PoolError> {
        read.map_err(|source| PoolError::Read { tier, page, source: Arc::new(source) })?;
        if self.config.mutations.has(Mutation::SkipVerify) {
            return Ok(());
        }
        match verify(bytes, page) {
            Err(Damage::WrongPage { .. })
                if tier == Tier::Flash && self.config.mutations.has(Mutation::SkipPageIdCheck) =>
            {
                Ok(())
            }
            Ok(()) if tier == Tier::Home && self.is_newer_than_log(bytes) => {
                Err(PoolError::Damaged { tier, page, damage: Damage::Version })
            }
            verified => verified.map_err(|damage| PoolError::Damaged { tier, page, damage }),
        }
    }

    /// Whether a page has changes that the log lacks. Redo looks for itself while it runs: it knows
    /// where the log ended.
    fn is_newer_than_log(&self, bytes: &PageBuf) -> bool {
        !self.restart.is_recovering() && lsn(bytes) >= self.durability.next_lsn()
    }
}

/// What is owed, or damaged.
impl BufferPool {
    /// From now on `redo` knows what `pages` lack: page, the first change that home may lack, and
    /// where the log has all that rebuilds it, from its image on. Before anything is read.
    pub fn owe(&self, pages: impl IntoIterator<Item = (PageId, Lsn, Lsn)>, redo: Arc<dyn Redo>) {
        let mut count = 0;
        for (page, rec, rebuilt_from) in pages {
            let partition = self.memory.partition(page);
            let mut books = partition.books.lock();
            // O4. A dirty copy tells itself from where on home lacks changes.
            let is_clean = match partition.find(&books, &self.memory.frames, page) {
                _ if self.restart.rules.is_persistent => false,
                Place::Flash(slot) => books.slots.newer(slot).is_none(),
                Place::Memory(_) | Place::Nowhere => false,
            };
            let rec = if is_clean { rec.min(rebuilt_from) } else { rec };
            books.ledger.owe(page, rec);
            count += 1;
        }
        self.owed.begin(count, redo);
    }

    /// Pages that are still to be redone.
    #[must_use]
    pub fn owed(&self) -> u64 {
        self.owed.count()
    }

    pub(crate) fn is_owed(&self, page: PageId) -> bool {
        self.owed() > 0 && self.memory.partition(page).books.lock().ledger.is_owed(page)
    }

    /// Redoes a page that was just read, if it is owed: most pools owe none.
    pub(crate) fn redo_if_owed(&self, loading: &mut Loading<'_>) -> Result<(), PoolError> {
        if self.owed() == 0 { Ok(()) } else { self.redo_owed(loading, true) }
    }

    /// Redoes a page that was just read, if it is owed (O2).
    pub(crate) fn redo_owed(
        &self,
        loading: &mut Loading<'_>,
        is_whole: bool,
    ) -> Result<(), PoolError> {
        let (page, partition) = (loading.page, loading.partition);
        let Some(rec) = partition.books.lock().ledger.owed_from(page) else { return Ok(()) };
        let redo = self.owed.redo().expect("who owes knows how to redo");
        let is_changed = loading.guard.change(|bytes| redo.redo(page, bytes, is_whole))?;
        let guard = &loading.guard;
        let mut books = partition.books.lock();
        books.ledger.redone(page);
        self.owed.redone();
        // A copy that counts as clean may be newer than home: the write behind it may be lost. Not
        // where flash is persistent: what is clean in the table was synced home. And of what was
        // read from home, the copy may be an older version, which the log's records fit as well.
        let slot = guard.frame().slot();
        let is_copy = slot.is_some_and(|slot| {
            let slots = &mut books.slots;
            slots.is_valid(slot) && slots.newer(slot).is_none()
        });
        // A rescue has made the entry already, from an older change on.
        let is_dirty = guard.frame().rec_lsn().is_some();
        let mut freed = None;
        if is_dirty {
            assert!(guard.frame().rec_lsn() <= Some(rec), "{page} is rescued from the start");
        } else if is_changed
            || (is_copy && (loading.source == Source::Home || !self.restart.rules.is_persistent))
        {
            freed = self.make_dirty_since(partition, &mut books, guard, rec);
        }
        drop(books);
        self.restart.harden(self, freed.as_slice());
        redo.done(page);
        Ok(())
    }

    /// A page in flight was rescued, and what it is owed cannot be redone: it is owed from where
    /// the rescue began, which holds the log as its dirty entry did (O3).
    pub(crate) fn owe_again(&self, loading: &Loading<'_>) {
        let frame = loading.guard.frame();
        let Some(rec) = frame.rec_lsn() else { return };
        let mut books = loading.partition.books.lock();
        books.ledger.owe_from(loading.page, rec);
        books.clear_dirty(frame);
    }

    /// What is damaged at home may be whole in the log.
    pub(crate) fn redo_damaged(
        &self,
        loading: &mut Loading<'_>,
        error: PoolError,
    ) -> Result<(), PoolError> {
        match error {
            // A page that is newer than the log is whole: nothing in the log makes up for it.
            PoolError::Damaged { damage, .. }
                if damage != Damage::Version && self.is_owed(loading.page) =>
            {
                self.redo_owed(loading, false).map_err(|_| error)
            }
            error => Err(error),
        }
    }

    /// Whether what is bad in `slot`, which home lacks, can be given up: nobody brings it home.
    pub(crate) fn may_rescue(&self, slots: &SlotTable, slot: u32) -> bool {
        slots.keeps(slot, self.restart.any_base()) || slots.state(slot) == SlotState::Dirty
    }

    /// A copy that only flash had is bad: home may have the same version, and the log has all that
    /// home lacks.
    pub(crate) fn rescue(
        &self,
        loading: &mut Loading<'_>,
        slot: u32,
        rec: Lsn,
    ) -> Result<BadCopy, PoolError> {
        let partition = loading.partition;
        if self.restart.rules.is_persistent {
            // The log need not have it, and no crash leaves such a slot: the device lost a write.
            let (tier, page) = (Tier::Flash, loading.page);
            return Err(PoolError::Damaged { tier, page, damage: Damage::Checksum });
        }
        // What is owed may go further back: home had a part of it when its copy was written.
        let owed = partition.books.lock().ledger.owed_from(loading.page);
        let rec = owed.map_or(rec, |owed| owed.min(rec));
        let is_whole = self.read_home(loading).is_ok();
        let is_same = is_whole && {
            let books = partition.books.lock();
            let version = terrace_page::lsn(&loading.guard);
            self.config.restart.kind.is_journalled() && books.slots.may_be(slot, version)
        };
        if !is_same && !self.rebuild_from_owed(loading, is_whole) {
            let read = self.read_home(loading);
            let (page, is_whole) = (loading.page, read.is_ok());
            let bytes = |bytes: &mut _| self.durability.journal.repair(page, rec, bytes, is_whole);
            loading.guard.change(bytes).map_err(|error| first_cause(read, error))?;
        }
        let mut books = partition.books.lock();
        let is_there = loading.guard.frame().slot() == Some(slot);
        if !is_there || !self.may_rescue(&books.slots, slot) {
            // The cleaner has it now, or it has moved on.
            return Ok(BadCopy::LookAgain);
        }
        books.stats.flash_faults += 1;
        // A base stays: nobody but its entry tells, after a power cut, that home lacks the changes
        // from `rec` on: not even the last checkpoint, which counted on the copy.
        let changed = books.slots.spoiled(slot, self.restart.any_base());
        let of = (loading.page, loading.guard.frame());
        self.copy_changed(partition, of, slot, (changed, Freed::Modified));
        books.set_dirty(&self.memory.frames, &loading.guard, DirtyLsns::at(rec));
        drop(books);
        self.restart.harden(self, &[partition.first_slot + slot]);
        loading.source = Source::Home;
        Ok(BadCopy::Rescued)
    }

    /// Brings what home has up to date by the changes that are held in memory for a page that is
    /// owed. Whether it could: else its bytes are undefined, and the log must be read.
    fn rebuild_from_owed(&self, loading: &mut Loading<'_>, is_whole: bool) -> bool {
        // Whoever is owed has a change held, the last one; and each is checked against the version
        // that it was written on.
        let redo = self.owed.redo().filter(|_| self.is_owed(loading.page));
        redo.is_some_and(|redo| {
            let page = loading.page;
            loading.guard.change(|bytes| redo.redo(page, bytes, is_whole)).is_ok()
        })
    }
}
