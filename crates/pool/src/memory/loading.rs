//! A page in flight: how its reads end, and how it is rebuilt if a device does not return it whole.
//! The rules of reading are those of `fetch`.
//!
//! Redo on first use (`Redo`): a page with pending redo (*owed*) is brought up to date when it is
//! first read, so that a database can be used before its log is redone. It is part of the restart
//! method `warm`; the idea of redo on demand is that of Graefe's instant recovery.
//!
//! ```text
//!         owe                    read (flash or home)            redo_owed
//! (log) ------> owed, in no frame ---------------------> loaded -----------> dirty, in a frame
//!                  |                                                  ^
//!                  +---------------- drain, in the background --------+
//! ```
//!
//! - O1: until it is redone, the page's dirty entry is in the ledger of its partition, and holds
//!   the log.
//! - O2: a page is redone under its exclusive latch, before any other task sees its bytes.
//! - O3: if redo fails, the page stays owed: its reader gets the error, and may try again.
//! - O4: a page whose copy on flash counts as clean gets a recLSN from which the log can rebuild
//!   it, though analysis began later: the home write that made the copy clean may be lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_page::{Damage, Lsn, PageBuf, PageId, lsn, verify};
use terrace_rt::LeafMutex;
use terrace_tier::{Freed, Mutation, Reading, SlotState};

use crate::durability::ledger::DirtyLsns;
use crate::io::PageIo;
use crate::memory::Section;
use crate::memory::frames::Exclusive;
use crate::memory::{Memory, Partition, Place};
use crate::shares::SlotTable;
use crate::{BufferPool, PoolError, Tier};

/// Where a page's bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Home,
    Flash,
}

/// What to do about a bad copy that was newer than home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadCopy {
    /// Nothing: the page was rebuilt from home and the log.
    Rescued,
    /// Read its source, which may be another one now.
    LookAgain,
}

/// A page in flight.
pub(crate) struct Loading<'p> {
    pub pool: &'p BufferPool,
    pub guard: Exclusive<'p>,
    pub partition: &'p Partition,
    pub page: PageId,
    /// Where its bytes come from.
    pub source: Source,
    /// The read of its slot, until it has ended.
    pub reading: Option<Reading>,
}

pub(super) fn source_of(reading: &Option<Reading>) -> Source {
    if reading.is_some() { Source::Flash } else { Source::Home }
}

/// The log's changes of pages that are owed. The engine implements it.
pub trait Redo: Send + Sync {
    /// Applies to `bytes` the changes that they lack. `is_whole` says whether they are the page in
    /// some version; otherwise a record that formats the page must come first. Returns whether any
    /// was applied.
    ///
    /// # Errors
    ///
    /// [`PoolError::Redo`] if the log does not fit the page: `bytes` are then undefined.
    fn redo(&self, page: PageId, bytes: &mut PageBuf, is_whole: bool) -> Result<bool, PoolError>;

    /// The page is redone: its changes are not asked for again.
    fn done(&self, page: PageId);
}

/// Why a page cannot be rebuilt: that home could not be `read`, if that is so, since the log alone
/// does not have the page; otherwise `error`.
pub(crate) fn first_cause(read: Result<(), PoolError>, error: PoolError) -> PoolError {
    match read {
        Err(failed @ PoolError::Read { .. }) => failed,
        _ => error,
    }
}

/// Pages that are to be redone when they are first read. The ledgers know which these are.
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

    pub(crate) fn has(&self, page: PageId, memory: &Memory) -> bool {
        self.count() > 0 && memory.partition(page).books.lock().ledger.is_owed(page)
    }
}

/// The reads of a page in flight, and their ends.
impl Loading<'_> {
    /// The page is to be read from its slot, or else from home.
    pub(super) fn read_from(&mut self, reading: Option<Reading>) {
        (self.source, self.reading) = (source_of(&reading), reading);
    }

    /// Reads the page from home, and verifies it.
    pub(super) fn read_home(&mut self) -> Result<(), PoolError> {
        let io = PageIo::read(self.page.0, [self.guard.target()]);
        let read = self.pool.devices.read_home(vec![io]);
        self.judge(Tier::Home, read)
    }

    /// The read of a slot has ended. Whether flash served; if not, home will.
    pub(super) fn flash_was_read(
        &self,
        reading: Reading,
        read: Result<(), PoolError>,
    ) -> Result<bool, PoolError> {
        let BufferPool { devices, durability, restart, .. } = self.pool;
        let mut section = Section::enter(self.pool, self.partition);
        let slot = reading.slot();
        let copy = section.books.slots.read_ended(reading, lsn(&self.guard));
        let checks_versions = self.pool.config.mutations.checks_versions();
        let read = match read {
            Ok(()) if checks_versions && !copy.is_version => {
                let (tier, page, damage) = (Tier::Flash, self.page, Damage::Version);
                Err(PoolError::Damaged { tier, page, damage })
            }
            read => read,
        };
        let Err(error) = read else { return Ok(true) };
        devices.look_at_flash(durability);
        if copy.is_newer {
            // Also while the log is redone: redo may have counted on the copy.
            return Err(error);
        }
        section.books.stats.flash_faults += 1;
        // A base stays: home has the page, but may lose it again.
        let changed = section.books.slots.changes(slot, restart.any_base());
        let freed = section.copy_changed(self.guard.frame(), slot, changed, Freed::Modified);
        drop(section);
        restart.harden(self.pool, freed.as_slice());
        Ok(false)
    }

    /// Whether a device returned the page (fetch.F3), and home a version no newer than the log: a
    /// page is written home after its records, so a log that ends before one of them has lost its
    /// tail. A flash that is newer than the log is recognized as a whole, at the opening.
    pub(super) fn judge(&self, tier: Tier, read: std::io::Result<()>) -> Result<(), PoolError> {
        let BufferPool { config, durability, restart, .. } = self.pool;
        let (page, bytes, mutations) = (self.page, &*self.guard, config.mutations);
        read.map_err(|source| PoolError::Read { tier, page, source: Arc::new(source) })?;
        if mutations.has(Mutation::SkipVerify) {
            return Ok(());
        }
        // Redo checks that itself while it runs: it knows where the log ended.
        let is_newer = || !restart.is_recovering() && lsn(bytes) >= durability.next_lsn();
        match verify(bytes, page) {
            Err(Damage::WrongPage { .. })
                if tier == Tier::Flash && mutations.has(Mutation::SkipPageIdCheck) =>
            {
                Ok(())
            }
            Ok(()) if tier == Tier::Home && is_newer() => {
                Err(PoolError::Damaged { tier, page, damage: Damage::Version })
            }
            verified => verified.map_err(|damage| PoolError::Damaged { tier, page, damage }),
        }
    }
}

/// Pages with pending redo.
impl BufferPool {
    /// From now on `redo` has the changes of `pages`: for each page the first change that home may
    /// lack, and the LSN from which on the log can rebuild it. Call it before anything is read.
    pub fn owe(&self, pages: impl IntoIterator<Item = (PageId, Lsn, Lsn)>, redo: Arc<dyn Redo>) {
        let mut count = 0;
        for (page, rec, rebuilt_from) in pages {
            let partition = self.memory.partition(page);
            let mut books = partition.books.lock();
            // O4. The entry of a dirty copy says itself from where on home lacks changes.
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

    /// Brings home's version of `page`, whose copy on flash is bad, up to date with the log's
    /// records from `rec` on.
    pub(crate) fn repair_from_log(
        &self,
        page: PageId,
        rec: Lsn,
        bytes: &mut PageBuf,
        is_whole: bool,
    ) -> Result<(), PoolError> {
        let journal = &self.durability.journal;
        match self.devices.flash().is_given_up() {
            true => journal.repair_among(page, rec, bytes, is_whole, &|| self.lost_pages()),
            false => journal.repair(page, rec, bytes, is_whole),
        }
    }

    /// Pages that are newer on flash than at home, each with its recLSN: what is lost once flash is
    /// given up. Not those that are owed, of which home may lack changes from before that.
    pub(crate) fn lost_pages(&self) -> Vec<(PageId, Lsn)> {
        let mut lost = Vec::new();
        for partition in &self.memory.partitions {
            let books = partition.books.lock();
            let newer = books.slots.newer_pages();
            lost.extend(newer.filter(|(page, _)| !books.ledger.is_owed(*page)));
        }
        lost
    }

    /// Pages that are still to be redone.
    #[must_use]
    pub fn owed(&self) -> u64 {
        self.owed.count()
    }
}

/// A page in flight that is owed, or damaged.
impl Loading<'_> {
    /// Redoes a page that was just read, if it is owed: most pools owe none.
    pub(super) fn redo_if_owed(&mut self) -> Result<(), PoolError> {
        if self.pool.owed() == 0 { Ok(()) } else { self.redo_owed(true) }
    }

    /// Redoes a page that was just read, if it is owed (O2).
    fn redo_owed(&mut self, is_whole: bool) -> Result<(), PoolError> {
        let BufferPool { owed, restart, .. } = self.pool;
        let (page, partition) = (self.page, self.partition);
        let Some(rec) = partition.books.lock().ledger.owed_from(page) else { return Ok(()) };
        let redo = owed.redo().expect("who owes knows how to redo");
        let is_changed = self.guard.change(|bytes| redo.redo(page, bytes, is_whole))?;
        let mut section = Section::enter(self.pool, partition);
        section.books.ledger.redone(page);
        owed.redone();
        // A copy that counts as clean may be newer than home, since the home write that made it
        // clean may be lost; not where flash is persistent, whose clean pages were synced home. If
        // the page was read from home, its copy may be an older version, on which the log's records
        // fit as well.
        let frame = self.guard.frame();
        let slots = &section.books.slots;
        let is_clean = |slot| slots.is_valid(slot) && slots.newer(slot).is_none();
        let is_copy = frame.slot().is_some_and(is_clean);
        let mut freed = None;
        if frame.rec_lsn().is_some() {
            // A rescue has made the entry already, from an older change on.
            assert!(frame.rec_lsn() <= Some(rec), "{page} is rescued from the start");
        } else if is_changed
            || (is_copy && (self.source == Source::Home || !restart.rules.is_persistent))
        {
            freed = section.make_dirty_since(&self.guard, rec);
        }
        drop(section);
        restart.harden(self.pool, freed.as_slice());
        redo.done(page);
        Ok(())
    }

    /// A page in flight was rescued, and what it is owed cannot be redone: it is owed from where
    /// the rescue began, which holds the log as its dirty entry did (O3).
    pub(super) fn owe_again(&self) {
        let frame = self.guard.frame();
        let Some(rec) = frame.rec_lsn() else { return };
        let mut books = self.partition.books.lock();
        books.ledger.owe_from(self.page, rec);
        books.clear_dirty(frame);
    }

    /// The log may have all of a page that is damaged at home.
    pub(super) fn redo_damaged(&mut self, error: PoolError) -> Result<(), PoolError> {
        match error {
            // A page that is newer than the log is whole: no record of the log can mend it.
            PoolError::Damaged { damage, .. }
                if damage != Damage::Version
                    && self.pool.owed.has(self.page, &self.pool.memory) =>
            {
                self.redo_owed(false).map_err(|_| error)
            }
            error => Err(error),
        }
    }

    /// Whether the bad copy in `slot`, which is newer than home, can be given up: it is not being
    /// written home.
    pub(super) fn may_rescue(&self, slots: &SlotTable, slot: u32) -> bool {
        slots.keeps(slot, self.pool.restart.any_base()) || slots.state(slot) == SlotState::Dirty
    }

    /// The copy is bad, and its entry says that home lacks it: home may have the same version all
    /// the same, and otherwise the log has all changes that home lacks.
    pub(super) fn rescue(&mut self, slot: u32, rec: Lsn) -> Result<BadCopy, PoolError> {
        let BufferPool { config, restart, .. } = self.pool;
        let (page, partition) = (self.page, self.partition);
        if restart.rules.is_persistent {
            // The log need not have it, and no crash leaves such a slot: the device lost a write.
            let (tier, damage) = (Tier::Flash, Damage::Checksum);
            return Err(PoolError::Damaged { tier, page, damage });
        }
        // What is owed may go further back: home had a part of it when its copy was written.
        let owed = partition.books.lock().ledger.owed_from(page);
        let rec = owed.map_or(rec, |owed| owed.min(rec));
        let is_whole = self.read_home().is_ok();
        let is_same = is_whole
            && config.restart.kind.is_journalled()
            && partition.books.lock().slots.may_be(slot, lsn(&self.guard));
        let rebuilt = match is_same || self.rebuild_from_owed(is_whole) {
            true => Ok(()),
            false => self.rebuild_from_log(rec),
        };
        let mut section = Section::enter(self.pool, partition);
        let is_there = self.guard.frame().slot() == Some(slot);
        if !is_there || !self.may_rescue(&section.books.slots, slot) {
            // The cleaner has it now, or it has moved on; if it came home meanwhile, the log may
            // have been cut.
            return Ok(BadCopy::LookAgain);
        }
        rebuilt?;
        section.books.stats.flash_faults += 1;
        // A base stays: after a power cut its entry alone says that home lacks the changes from
        // `rec` on. The last checkpoint does not: it counted on the copy.
        let changed = section.books.slots.spoiled(slot, restart.any_base());
        section.copy_changed(self.guard.frame(), slot, changed, Freed::Modified);
        section.set_dirty(&self.guard, DirtyLsns::at(rec));
        drop(section);
        restart.harden(self.pool, &[partition.first_slot + slot]);
        self.source = Source::Home;
        Ok(BadCopy::Rescued)
    }

    /// Brings home's version of the page up to date with the log's records from `rec` on.
    fn rebuild_from_log(&mut self, rec: Lsn) -> Result<(), PoolError> {
        let (page, pool) = (self.page, self.pool);
        let read = self.read_home();
        let is_whole = read.is_ok();
        let repair = |bytes: &mut _| pool.repair_from_log(page, rec, bytes, is_whole);
        self.guard.change(repair).map_err(|error| first_cause(read, error))
    }

    /// Brings home's version of an owed page up to date with the changes that are held in memory.
    /// Whether it could: if not, the bytes are undefined, and the log must be read.
    fn rebuild_from_owed(&mut self, is_whole: bool) -> bool {
        let BufferPool { owed, memory, .. } = self.pool;
        let page = self.page;
        // For each owed page at least the last change is held, and each change is checked against
        // the version that it was written on.
        let redo = owed.redo().filter(|_| owed.has(page, memory));
        let redone =
            |redo: Arc<dyn Redo>| self.guard.change(|bytes| redo.redo(page, bytes, is_whole));
        redo.map(redone).is_some_and(|redone| redone.is_ok())
    }
}
