//! What flash has of a page while it is in memory: a slot of its own, nothing, or what it had
//! [S0 5; Koltsidas and Viglas, "Designing a flash-aware two-level cache", ADBIS 2011].
//!
//! ```text
//!             comes into memory                 while it is there        leaves memory
//! inclusive   takes a slot, and is written      nobody else gets it      writes it, if it changed
//!             there if it was read from home
//! exclusive   its copy goes; what home lacks    no slot                  is written anew
//!             is the frame's, as if it changed
//! ```
//!
//! - N1: inclusive: a page in memory has a slot from the moment it has a frame, if one was free or
//!   clean then, flash took pages, and no write is lost; a slot whose page is in memory is never
//!   reused. A slot without bytes of its page is given back when the page leaves.
//! - N2: exclusive: no page whose latch is free has a copy on flash. Except while the log is redone
//!   (who redoes wants to know where a page came from; the copies go when that is over), after a
//!   failed write of home (nothing that is dirty could leave memory again), and a clean copy that
//!   stands for a home write that is not synced (`warm`).
//! - N3: exclusive: the entry of a dirty copy moves to the frame in the section under the lock in
//!   which the copy goes. So the log keeps what home lacks, and flash stays safe to discard.
//! - N4: exclusive: a page that is used while it is on its way to flash stays in memory, and what
//!   was written of it is forgotten.

use terrace_page::PageId;
use terrace_policy::RestartKind;
use terrace_tier::{BaseRule, Candidate, Freed};

use crate::memory::frames::{Exclusive, Frame};
use crate::memory::loading::Loading;
use crate::memory::{Books, Partition};
use crate::{BufferPool, PageEvent};

impl BufferPool {
    /// N1: a slot for `page`, which has just got a frame, if it has none.
    pub(crate) fn include(
        &self,
        partition: &Partition,
        books: &mut Books,
        page: PageId,
        frame: &Frame,
    ) {
        let page = Candidate { page, slot: frame.slot(), is_dirty: false, class: frame.class() };
        let Books { slots, ledger, .. } = &mut *books;
        let around = self.around(partition, ledger, Some(frame));
        let Some((slot, displaced)) = slots.arrived(&page, &around) else { return };
        if let Some(displaced) = displaced {
            self.displaced(partition, books, displaced);
        }
        frame.set_slot(Some(slot));
        self.memory.observe(page.page, PageEvent::SlotTaken);
    }

    /// N2: the copy of a page that was just read goes.
    pub(crate) fn exclude(&self, loading: &Loading<'_>) {
        let is_redone = self.restart.is_recovering();
        if self.traffic.is_exclusive && !is_redone && !self.durability.is_stopped() {
            let freed = self.take_over(loading.partition, &loading.guard);
            self.harden(freed.as_slice());
        }
    }

    /// N2: the log was redone: the copies of the pages that are in memory go.
    pub(crate) fn exclude_loaded(&self) {
        if !self.traffic.is_exclusive || self.durability.is_stopped() {
            return;
        }
        for partition in &self.memory.partitions {
            for at in 0..partition.frames_count {
                let id = partition.frame_at(at);
                let page = self.memory.frames.frame(id).page();
                let guard = page.and_then(|page| self.memory.frames.exclusive_if(id, page));
                if let Some(guard) = guard {
                    let freed = self.take_over(partition, &guard);
                    self.harden(freed.as_slice());
                }
            }
        }
    }

    /// N3: what flash has of the page of a latched frame is the frame's from now on. The slot that
    /// is freed, over all partitions, is still to be hardened.
    fn take_over(&self, partition: &Partition, guard: &Exclusive<'_>) -> Option<u32> {
        let frame = guard.frame();
        let slot = frame.slot()?;
        let lower = self.durability.next_lsn();
        let mut books = partition.books.lock();
        if !books.slots.is_valid(slot) {
            return None;
        }
        if books.slots.newer(slot).is_some() {
            return self.make_dirty_since(partition, &mut books, guard, lower);
        }
        if books.slots.keeps(slot, self.any_base()) {
            return None;
        }
        books.stats.invalidations += 1;
        let changed = books.slots.changes(slot, BaseRule::Never);
        let page = frame.page().expect("a page that was read");
        self.copy_changed(partition, (page, frame), slot, (changed, Freed::Modified))
    }

    /// Asserts N1 and N2 of a page in memory.
    pub(crate) fn check_inclusion(&self, books: &Books, page: PageId, frame: &Frame) {
        let has_copy = frame.slot().is_some_and(|slot| books.slots.is_valid(slot));
        let is_settled = !frame.is_latched() && !self.durability.is_stopped();
        let is_pure = self.config.restart.kind == RestartKind::Forget;
        if self.traffic.is_exclusive && is_settled && is_pure {
            assert!(!has_copy, "{page} is in memory and on flash");
        }
    }
}
