//! Writing pages from memory to home and flash: eviction and checkpoints both use it.
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
//! - W3: at most one home write of a page is outstanding, the cleaner's included: a task that finds
//!   one skips the page, or waits [sources.D3].
//! - W4: a slot is CLEAN only after the home write, if there is one, has finished too [S0 2.3].
//! - W5: in LC the entry moves to flash only after the flash write has finished [sources.D4].
//! - W6: a home write that was not synced may be lost. If the restart method keeps bases, the entry
//!   on flash of a page that was written home since the last sync therefore names the first change
//!   that home would lack without that write; and its clean copy is PINNED until home was synced.
//! - W7: pages are copied to the doublewrite area before they are written home, in groups of what
//!   it takes. The barrier that makes the copies durable is the force of W1.
//! - W8: a page of kind Raw whose last change the log keeps is not copied: each change of such a
//!   page gives all of it a value, so redo makes the page from nothing, torn or not.

use terrace_page::{FrameId, Lsn, PageBuf, PageId, PageKind, kind, lsn, seal};
use terrace_policy::Touch;
use terrace_tier::{Mutation, Outcome, Purpose, Version, Way, Writing, Written};

use crate::durability::dirty::Logged;
use crate::durability::doublewrite::Shield;
use crate::durability::ledger::DirtyLsns;
use crate::flow::homeward::{Copying, home_runs, homeward};
use crate::flow::slots::candidate;
use crate::io::PageIo;
use crate::memory::Section;
use crate::memory::frames::{Exclusive, Frame, Shared};
use crate::memory::{Partition, Place};
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
    fn slot_number(&self) -> Option<u32> {
        self.writing.slot().map(|slot| self.partition.first_slot + slot)
    }

    /// W8: its dirty entry keeps the log from a record on that is not after its last change.
    fn is_remade(&self) -> bool {
        let is_kept = |lsns: DirtyLsns| lsns.rec <= self.page_lsn;
        kind(&self.guard) == Some(PageKind::Raw) && self.dirty.is_some_and(is_kept)
    }

    /// The slot, and what is written into it.
    pub fn to_slot(&self) -> Option<(u32, &PageBuf)> {
        self.writing.slot().map(|slot| (slot, &*self.guard))
    }

    fn seal(job: Job<'p>) -> Transfer<'p> {
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

/// Transfers that run together.
pub(crate) struct Transfers<'p> {
    pool: &'p BufferPool,
    pub all: Vec<Transfer<'p>>,
    purpose: Purpose,
}

/// What becomes of a page that a power cut tears at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tearing {
    /// It has a copy in the doublewrite area.
    Mended,
    /// Nothing refers to it.
    Borne,
}

/// Runs `jobs` together, or in groups of what the doublewrite area takes. For eviction the pages
/// then leave memory, unless they were used meanwhile. Returns how many frames became free.
pub(crate) fn write_out<'p>(
    pool: &'p BufferPool,
    jobs: Vec<Job<'p>>,
    purpose: Purpose,
) -> Result<usize, PoolError> {
    write_all(pool, jobs, purpose, Tearing::Mended)
}

/// As `write_out`, without copies in the doublewrite area: see `straight`.
pub(crate) fn write_out_bare<'p>(
    pool: &'p BufferPool,
    jobs: Vec<Job<'p>>,
    purpose: Purpose,
) -> Result<usize, PoolError> {
    write_all(pool, jobs, purpose, Tearing::Borne)
}

fn write_all<'p>(
    pool: &'p BufferPool,
    mut jobs: Vec<Job<'p>>,
    purpose: Purpose,
    tearing: Tearing,
) -> Result<usize, PoolError> {
    let _at_work = pool.memory.at_work();
    let at_once = match tearing {
        Tearing::Mended => pool.durability.shielded_pages(),
        Tearing::Borne => usize::MAX,
    };
    // Even if the pool is stopped, each job is ended: other tasks wait for their home writes.
    let mut written = pool.durability.check_writable().map(|()| 0);
    while !jobs.is_empty() {
        let rest = jobs.split_off(jobs.len().min(at_once));
        let batch = Transfers::seal(pool, std::mem::replace(&mut jobs, rest), purpose);
        match written {
            Ok(freed) => written = batch.write(tearing).map(|more| freed + more),
            Err(_) => batch.give_up(),
        }
    }
    written
}

impl<'p> Transfers<'p> {
    pub fn seal(pool: &'p BufferPool, jobs: Vec<Job<'p>>, purpose: Purpose) -> Transfers<'p> {
        Transfers { pool, all: jobs.into_iter().map(Transfer::seal).collect(), purpose }
    }

    /// The slots that are written, over all partitions.
    pub fn slots(&self) -> Vec<u32> {
        self.all.iter().filter_map(Transfer::slot_number).collect()
    }

    fn give_up(self) {
        self.complete(Outcome { home: false, flash: false });
    }

    /// All have ended so. Returns how many frames became free.
    pub fn complete(self, outcome: Outcome) -> usize {
        let complete = |transfer: Transfer<'_>| transfer.complete(self.pool, self.purpose, outcome);
        self.all.into_iter().map(complete).filter(|&left| left).count()
    }

    fn write(mut self, tearing: Tearing) -> Result<usize, PoolError> {
        let BufferPool { durability, restart, .. } = self.pool;
        self.all.sort_by_key(|transfer| transfer.page);
        let shield = match tearing {
            Tearing::Mended => self.shield(),
            Tearing::Borne => self.write_ahead().map(|()| None),
        };
        let shield = match shield {
            Ok(shield) => shield,
            Err(error) => {
                self.give_up();
                return Err(error);
            }
        };
        self.clear_too_soon();
        let slots = self.slots();
        let (home, flash) = match restart.before_writes(self.pool, &slots) {
            Ok(()) => self.transfer(shield.as_ref()),
            Err(error) => {
                self.give_up();
                return Err(error);
            }
        };
        // From here on the copies in the doublewrite area are not needed.
        let home = match home {
            Ok(()) => {
                drop(shield);
                Ok(())
            }
            Err(source) => Err(durability.stop_torn(source, shield)),
        };
        let pool = self.pool;
        let freed = self.complete(Outcome { home: home.is_ok(), flash });
        restart.harden(pool, &slots);
        home?;
        pool.log_buf_writes(Logged::Full)?;
        Ok(freed)
    }

    /// How far the log must reach before the pages are written, if it must.
    fn log_wanted(&self) -> Option<Lsn> {
        let dirty = self.all.iter().filter(|transfer| transfer.dirty.is_some());
        dirty.map(|transfer| transfer.page_lsn).max()
    }

    /// W1 and W7.
    fn shield(&self) -> Result<Option<Shield<'p>>, PoolError> {
        let homeward = self.all.iter().filter(|transfer| transfer.writing.home());
        let copied = homeward.filter(|transfer| !transfer.is_remade());
        let pages: Vec<&PageBuf> = copied.map(|transfer| &*transfer.guard).collect();
        let upto = self.log_wanted().unwrap_or(Lsn::ZERO);
        match self.pool.durability.shield(&pages, upto)? {
            Some(shield) => Ok(Some(shield)),
            None => self.write_ahead().map(|()| None),
        }
    }

    /// W1.
    pub fn write_ahead(&self) -> Result<(), PoolError> {
        match self.log_wanted() {
            Some(lsn) if !self.pool.config.mutations.has(Mutation::PageBeforeLog) => {
                self.pool.durability.write_ahead(lsn)
            }
            _ => Ok(()),
        }
    }

    /// Breaks W4 and W5 if a mutation is on: entries move before the writes.
    pub fn clear_too_soon(&self) {
        let mutations = self.pool.config.mutations;
        for transfer in &self.all {
            let Some(lsns) = transfer.dirty else { continue };
            let (home, flash) = (transfer.writing.home(), transfer.writing.slot().is_some());
            let too_soon = if home && flash {
                mutations.has(Mutation::CleanBeforeBothWrites)
            } else {
                flash && !home && mutations.has(Mutation::EntryMovesBeforeWrite)
            };
            if too_soon {
                let mut section = Section::enter(self.pool, transfer.partition);
                section.books.clear_dirty(transfer.guard.frame());
                if home {
                    section.written_home(transfer.page, lsns);
                }
            }
        }
    }

    /// The result of the writes home, and whether those to flash succeeded.
    fn transfer(&self, shield: Option<&Shield<'_>>) -> (std::io::Result<()>, bool) {
        let BufferPool { devices, durability, .. } = self.pool;
        let pages = self.all.iter().filter(|transfer| transfer.writing.home());
        let pages = pages.map(|transfer| {
            let copying = if transfer.is_remade() { Copying::No } else { Copying::Yes };
            (transfer.page, &*transfer.guard, copying)
        });
        let home = home_runs(&homeward(pages, shield));
        let flash = self.all.iter().filter_map(|transfer| {
            let number = transfer.partition.slot_page(transfer.writing.slot()?);
            Some(PageIo::write(number, [&*transfer.guard]))
        });
        let flash: Vec<PageIo<'_>> = flash.collect();
        let writes_flash = !flash.is_empty();
        let (home, flash) = devices.write_both(home, flash);
        if writes_flash {
            devices.flash_was_written(durability, flash.is_ok());
        }
        (home, flash.is_ok())
    }
}

/// What was written: entries and slots move on, and pages leave memory if they may.
impl Transfer<'_> {
    /// Moves slot and entry on, and lets the page leave if it may. Whether a frame became free.
    fn complete(self, pool: &BufferPool, purpose: Purpose, outcome: Outcome) -> bool {
        let (home, slot) = (self.writing.home(), self.writing.slot());
        if pool.traffic.is_exclusive && slot.is_some() {
            return self.complete_exclusive(pool, outcome);
        }
        let Transfer { partition, page, guard, writing, page_lsn, dirty, touch } = self;
        let BufferPool { memory, restart, .. } = pool;
        let frame = guard.frame();
        let mut section = Section::enter(pool, partition);
        let had_slot = frame.slot().is_some();
        let at_home = home && outcome.home;
        // W6: changes that were just written home count as lacking there until home is synced.
        let lacking = dirty.filter(|_| !home || restart.rules.keeps_bases).map(|lsns| lsns.rec);
        let version = section.version(frame, page_lsn, lacking);
        let is_filled = section.end_writing(frame, writing, outcome, &version);
        if let Some(slot) = slot.filter(|_| is_filled && at_home && restart.rules.keeps_bases) {
            section.books.ledger.keep_until_sync(slot, page);
        }
        // A mutation may have cleared the entry already.
        if let Some(lsns) = dirty.filter(|_| frame.rec_lsn().is_some()) {
            if at_home || (is_filled && !home) {
                section.books.clear_dirty(frame);
                memory.observe(page, PageEvent::WriteOut);
            }
            if at_home {
                section.entry_until_sync(page, frame, lsns, is_filled);
            }
        }
        if !had_slot && frame.slot().is_some() {
            memory.observe(page, PageEvent::SlotTaken);
        }
        let leaves =
            purpose == Purpose::Evict && frame.rec_lsn().is_none() && frame.touch() == touch;
        let exclusive = guard.try_upgrade_if(leaves);
        let left = exclusive.is_some();
        if let Some(exclusive) = exclusive {
            memory.evicted(partition, &mut section.books, exclusive, dirty.is_some());
        }
        if home {
            section.books.ledger.home_write_ends(page);
        }
        drop(section);
        if home {
            partition.home_write_ended.notify_all();
        }
        if left {
            partition.room.notify_all();
        }
        if is_filled && !home && dirty.is_some() {
            pool.cleaning.wake(pool.durability.is_sharp());
        }
        left
    }

    /// arriving.N4: a page was written to flash, to leave memory. Whether it did.
    fn complete_exclusive(self, pool: &BufferPool, outcome: Outcome) -> bool {
        let Transfer { partition, page, guard, writing, page_lsn, touch, .. } = self;
        let memory = &pool.memory;
        let mut section = Section::enter(pool, partition);
        let leaves = outcome.flash && guard.frame().touch() == touch;
        let rec = guard.frame().dirty().map(|lsns| lsns.rec);
        let version = section.version(guard.frame(), page_lsn, rec);
        let slot = guard.frame().slot();
        let Some(guard) = guard.try_upgrade_if(leaves) else {
            let void = Outcome { home: false, flash: false };
            let written = section.books.slots.written(writing, void, &version, slot);
            assert_eq!(written, Written::Failed, "what stays in memory is not on flash");
            return false;
        };
        let frame = guard.frame();
        section.end_writing(frame, writing, outcome, &version);
        if rec.is_some() {
            section.books.clear_dirty(frame);
            memory.observe(page, PageEvent::WriteOut);
        }
        if slot.is_none() {
            memory.observe(page, PageEvent::SlotTaken);
        }
        memory.evicted(partition, &mut section.books, guard, rec.is_some());
        drop(section);
        partition.room.notify_all();
        if rec.is_some() {
            pool.cleaning.wake(pool.durability.is_sharp());
        }
        true
    }
}

/// Where pages go, and what becomes of their entries.
impl Section<'_> {
    /// Asks the tier where a latched page goes, and registers its home write if that is where.
    pub(crate) fn plan(&mut self, guard: &Exclusive<'_>, purpose: Purpose) -> Way {
        let frame = guard.frame();
        let page = frame.page().expect("a page to write");
        let (slots, around) = self.slots_around(Some(frame));
        let mut way = slots.left(&candidate(frame), purpose, &around);
        match &mut way {
            Way::Busy => return way,
            Way::Nothing => {}
            Way::Write(writing, displaced) => {
                if writing.home() {
                    self.books.ledger.home_write_begins(page);
                }
                if let Some(displaced) = displaced.take() {
                    self.displaced(displaced);
                }
            }
        }
        if let (Purpose::Evict, Some(choosing)) = (purpose, &self.pool.traffic.choosing) {
            choosing.left(page, frame, self.pool.memory.now());
        }
        way
    }

    /// What is written of the page of `frame`, of which home lacks changes from `rec` on.
    fn version(&self, frame: &Frame, lsn: Lsn, rec: Option<Lsn>) -> Version {
        let page = frame.page().expect("a page that was written");
        // W6: the slot's entry must hold after a power cut, too. Where bases are not kept, the log
        // redoes the changes of a clean copy.
        let counts = rec.is_some() || self.pool.restart.rules.keeps_bases;
        let at_risk = self.books.ledger.at_risk(page).filter(|_| counts);
        let newer = rec.into_iter().chain(at_risk).min();
        Version { lsn, newer, history: frame.touch().history(self.pool.memory.now()) }
    }

    /// The page was written home, and to flash if it `has_copy`: its entry waits for a sync, and so
    /// does a base that it has.
    fn entry_until_sync(&mut self, page: PageId, frame: &Frame, lsns: DirtyLsns, has_copy: bool) {
        let keeps_bases = self.pool.restart.rules.keeps_bases;
        // Until home is synced a copy on flash stands for the page.
        let base = if has_copy && keeps_bases { Lsn::MAX } else { lsns.base };
        self.written_home(page, DirtyLsns { base, ..lsns });
        if let (true, Some(slot)) = (keeps_bases, frame.slot())
            && self.books.slots.is_kept_for(slot, page)
        {
            self.books.ledger.keep_until_sync(slot, page);
        }
    }
}

/// Pages of memory that have changed before an LSN are written, for a checkpoint (flush.C2).
#[derive(Clone, Copy)]
pub(crate) struct Flush<'p> {
    pub pool: &'p BufferPool,
    pub below: Lsn,
}

/// What flushing a page needs.
pub(crate) enum Planned<'p> {
    /// To be written.
    Job(Job<'p>),
    /// Its home write is outstanding already, maybe of an older version.
    Busy,
    /// Nothing.
    Done,
}

impl<'p> Flush<'p> {
    /// Writes one page, if it is in memory. Call it without latches.
    pub fn page(&self, page: PageId) -> Result<(), PoolError> {
        let partition = self.pool.memory.partition(page);
        let place = partition.find(&partition.books.lock(), &self.pool.memory.frames, page);
        match place {
            Place::Memory(id) => self.busy(id, page),
            Place::Flash(_) | Place::Nowhere => Ok(()),
        }
    }

    /// Writes one page that was latched, or being written home, when it was tried.
    pub fn busy(&self, id: FrameId, page: PageId) -> Result<(), PoolError> {
        let partition = self.pool.memory.partition(page);
        loop {
            self.pool.durability.check_writable()?;
            let seen = partition.home_write_ended.seen();
            // A page that has left its frame was written, or has moved to flash.
            let Some(guard) = self.pool.memory.frames.exclusive_if(id, page) else {
                return Ok(());
            };
            match self.plan(page, guard) {
                Planned::Job(job) => {
                    return write_out(self.pool, vec![job], Purpose::Checkpoint).map(drop);
                }
                Planned::Done => return Ok(()),
                Planned::Busy => partition.home_write_ended.wait(seen),
            }
        }
    }

    /// What the page that was in a frame needs, which is latched now.
    pub fn plan(&self, page: PageId, guard: Exclusive<'p>) -> Planned<'p> {
        let BufferPool { memory, durability, restart, .. } = self.pool;
        let counts_bases = restart.rules.is_persistent && !durability.is_sharp();
        let since = |lsns: DirtyLsns| if counts_bases { lsns.base } else { lsns.rec };
        let is_old = guard.frame().dirty().is_some_and(|lsns| since(lsns) < self.below);
        if !guard.frame().holds(page) || !is_old {
            return Planned::Done;
        }
        let partition = memory.partition(page);
        let way = Section::enter(self.pool, partition).plan(&guard, Purpose::Checkpoint);
        match way {
            Way::Nothing => Planned::Done,
            Way::Busy => Planned::Busy,
            Way::Write(writing, _) => Planned::Job(Job { partition, page, guard, writing }),
        }
    }
}
