//! Pages that go straight home: parts of large values, which the log does not have.
//!
//! ```text
//!   create, dirty      frames, latched; their copies on flash count no more
//!   (a record)         says that they are new: redo is over with what they were before
//!   apply, go_home     the log up to that record, then home, with one write for neighbours
//!   sync_written       once for all of a value, before a record refers to it
//! ```
//!
//! - H1: such a page is in no doublewrite batch. If a power cut tears it, nothing refers to it, and
//!   after the record no change of what it was before is redone.
//! - H2: it never goes to flash before home has it: it is latched until then.
//! - H3: it leaves memory at once, unless a task waits for it: a value may be larger than memory.
//! - H4: all tasks together latch a part of memory: others go on. Beyond that each has a few.

use std::sync::atomic::Ordering;

use terrace_tier::{Purpose, Way};

use crate::flow::slots::candidate;
use crate::flow::write_out::{Job, write_out_bare};
use crate::memory::Section;
use crate::memory::frames::Exclusive;
use crate::{BufferPool, PageMut, PoolError};

/// Tasks latch one page of this many at most, all together, for what goes straight home...
const LATCHED_ONE_IN: u32 = 4;
/// ...but for so many of each task.
const LATCHED_MIN: u32 = 8;

/// Pages that a task may latch at once, until this is dropped.
pub struct Latched<'p> {
    pool: &'p BufferPool,
    pages: u32,
}

impl Latched<'_> {
    /// How many.
    pub fn pages(&self) -> u32 {
        self.pages
    }
}

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        self.pool.memory.latched_ahead.fetch_sub(self.pages, Ordering::Relaxed);
    }
}

impl BufferPool {
    /// Allows a task to latch pages that go straight home: `wanted`, or as many as leave memory to
    /// other tasks.
    pub fn latched_ahead(&self, wanted: u32) -> Latched<'_> {
        let most = self.frames() / LATCHED_ONE_IN;
        let pages = |taken: u32| wanted.min(most.saturating_sub(taken).max(LATCHED_MIN));
        let take = |taken: u32| Some(taken + pages(taken));
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = self.memory.latched_ahead.fetch_update(set, fetch, take);
        let taken = taken.expect("there is always some");
        Latched { pool: self, pages: pages(taken) }
    }

    /// Writes changed pages home, and takes them out of memory; they are durable after
    /// [`BufferPool::sync_written`]. Nothing may refer to them yet.
    ///
    /// # Errors
    ///
    /// `Stopped` or `Journal`.
    pub fn go_home(&self, pages: Vec<PageMut<'_>>) -> Result<(), PoolError> {
        let jobs = pages.into_iter().map(|page| {
            let page_id = page.id();
            self.job_home(page_id, page.into_exclusive())
        });
        write_out_bare(self, jobs.collect(), Purpose::Evict).map(drop)
    }

    /// The cleaner may still write what the page was before from flash: at most one home write of a
    /// page is outstanding.
    fn job_home<'p>(&'p self, page: terrace_page::PageId, guard: Exclusive<'p>) -> Job<'p> {
        let partition = self.memory.partition(page);
        loop {
            let seen = partition.home_write_ended.seen();
            let way = Section::enter(self, partition).plan_home(&guard);
            match way {
                Way::Write(writing, _) => return Job { partition, page, guard, writing },
                Way::Busy | Way::Nothing => partition.home_write_ended.wait(seen),
            }
        }
    }

    /// Makes durable what was written home by now.
    ///
    /// # Errors
    ///
    /// `Stopped`.
    pub fn sync_written(&self) -> Result<(), PoolError> {
        self.sync_home()
    }
}

impl Section<'_> {
    /// As `plan`, for a page that goes home and nowhere else.
    fn plan_home(&mut self, guard: &Exclusive<'_>) -> Way {
        let frame = guard.frame();
        let (slots, around) = self.slots_around(Some(frame));
        let way = slots.sent_home(&candidate(frame), &around);
        if let Way::Write(writing, _) = &way {
            self.books.ledger.home_write_begins(writing.page());
        }
        way
    }
}
