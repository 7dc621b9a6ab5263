//! Writing home single pages of memory that have changed. Its rules are those of `flush`.

use terrace_page::{FrameId, Lsn, PageId};
use terrace_tier::{Purpose, Way};

use crate::flow::written::Job;
use crate::memory::frames::Exclusive;
use crate::memory::{Partition, Place};
use crate::{BufferPool, PoolError};

/// What flushing a page needs.
pub(super) enum Flush<'p> {
    /// To be written.
    Job(Job<'p>),
    /// Its home write is outstanding already, maybe of an older version.
    Busy,
    /// Nothing.
    Done,
}

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
    pub(super) fn flush_busy(
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

    pub(super) fn flush_job<'p>(
        &'p self,
        partition: &'p Partition,
        page: PageId,
        guard: Exclusive<'p>,
        below: Lsn,
    ) -> Flush<'p> {
        let is_old = guard.frame().dirty().is_some_and(|lsns| match self.restart.is_persistent {
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
