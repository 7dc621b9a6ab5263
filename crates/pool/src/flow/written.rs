//! Pages that were written: their entries and slots move on, and they leave memory if they may.
//! Its rules are those of `write_out` and `inclusion`.

use terrace_page::{Lsn, PageBuf, PageId, lsn, seal};
use terrace_policy::Touch;
use terrace_tier::{Outcome, Purpose, Version, Writing, Written};

use crate::durability::ledger::DirtyLsns;
use crate::memory::frames::{Exclusive, Frame, Shared};
use crate::memory::{Books, Partition};
use crate::{BufferPool, PageEvent};

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
        let lacking = dirty.filter(|_| !home || self.restart.keeps_bases).map(|lsns| lsns.rec);
        let version = self.version(&books, (page, frame), page_lsn, lacking);
        let ended = (writing, outcome);
        let is_filled = self.end_writing(partition, &mut books, frame, ended, &version);
        if let Some(slot) = slot.filter(|_| is_filled && at_home && self.restart.keeps_bases) {
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
            books.ledger.at_risk(page).filter(|_| rec.is_some() || self.restart.keeps_bases);
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
        let stands = has_copy && self.restart.keeps_bases;
        let base = if stands { Lsn::MAX } else { lsns.base };
        self.written_home(books, page, DirtyLsns { base, ..lsns });
        self.base_until_sync(books, frame, page);
    }

    /// The page was written home: a base that it has is kept until home is synced.
    fn base_until_sync(&self, books: &mut Books, frame: &Frame, page: PageId) {
        if let (true, Some(slot)) = (self.restart.keeps_bases, frame.slot())
            && books.slots.is_kept_for(slot, page)
        {
            books.ledger.keep_until_sync(slot, page);
        }
    }
}
