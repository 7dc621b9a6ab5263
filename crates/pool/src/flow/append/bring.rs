//! Bringing flash up to date where it is a part of the database: changed pages are appended and
//! stay in memory, so that the log can be cut. FaCE's checkpoint flushes to flash [sources.U1].
//!
//! - B1: a page is appended once more than it would be if it waited to leave; its slot before is a
//!   base, and free when the table names the new one.
//! - B2: what finds no slot goes home, as ever.

use terrace_page::{FrameId, Lsn};
use terrace_rt::{Nanos, now};
use terrace_tier::Purpose;

use super::group::{Claimed, Gathered};
use crate::memory::Partition;
use crate::{BufferPool, PoolError};

/// How long one waits for slots that are leaving, before looking again.
const SLOTS_NAP: Nanos = Nanos(1_000_000);
/// How often one looks before pages go home instead.
const LOOKS_MAX: u32 = 100;

impl BufferPool {
    /// Whether changed pages are appended to bring flash up to date, not written home.
    pub(crate) fn brings_to_flash(&self) -> bool {
        self.restart.is_persistent && self.appends()
    }

    /// Appends those of `batch` that still have changes from before `below` that are nowhere else.
    ///
    /// # Errors
    ///
    /// `Stopped` or `Journal`.
    pub(crate) fn bring_to_flash(
        &self,
        batch: &[(Lsn, FrameId)],
        below: Lsn,
    ) -> Result<(), PoolError> {
        for partition in &self.memory.partitions {
            let of_partition = |id: &FrameId| {
                let range = partition.first_frame..partition.first_frame + partition.frames_count;
                range.contains(&id.0)
            };
            let ids = batch.iter().map(|&(_, id)| id).filter(of_partition);
            let waiting: Vec<Gathered> =
                ids.filter_map(|id| self.waits(partition, id, below)).collect();
            self.append_all(partition, waiting)?;
        }
        Ok(())
    }

    fn waits(&self, partition: &Partition, id: FrameId, below: Lsn) -> Option<Gathered> {
        let frame = self.memory.frames.frame(id);
        let (page, touch) = (frame.page()?, frame.touch());
        let is_old = frame.dirty()?.base < below;
        is_old.then(|| Gathered { frame: FrameId(id.0 - partition.first_frame), page, touch })
    }

    fn append_all(
        &self,
        partition: &Partition,
        mut waiting: Vec<Gathered>,
    ) -> Result<(), PoolError> {
        let mut looks = 0;
        while !waiting.is_empty() && looks < LOOKS_MAX && self.brings_to_flash() {
            self.durability.check_writable()?;
            let seen = partition.room.seen();
            let claimed = {
                let mut books = partition.books.lock();
                self.claim_slots(partition, &mut books, &mut waiting, Purpose::Checkpoint)
            };
            match claimed {
                Claimed::Group(group) => drop(self.append(group)?),
                Claimed::Nothing => {
                    looks += 1;
                    partition.room.wait_until(seen, now() + SLOTS_NAP);
                }
                Claimed::Blocked => return Ok(()),
            }
        }
        Ok(())
    }

    /// Nothing can leave the front: what only waits for home to be synced, or for the table, can
    /// after this.
    pub(super) fn unblock_front(&self) {
        if self.restart.is_persistent {
            // Whoever writes next is told of a failure.
            let _failed = self.sync_home().and_then(|()| self.harden_table());
        }
    }
}
