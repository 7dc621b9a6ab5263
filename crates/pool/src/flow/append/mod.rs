//! The append layout: the flash is a log of pages, written in order, round and round [S2 2; S0 5].
//! FaCE and its variants write groups; the rotating tier writes page by page; FASC writes blocks
//! [S2 5].
//!
//! ```text
//!  victims                 one write            the ring of a partition's slots           one read
//!  of memory --gather--> group --append--> rear [ newest ............ oldest | leaving ] front --+
//!                          ^                                                                     |
//!                          +---------------------- second chance -------------------------------<+
//!                                                                    home <----------------------+
//! ```
//!
//! - Each partition has a log of its own, over its own run of slots: nothing is shared by appends
//!   of two partitions. A device meets a few sequential streams, each in large writes; they go
//!   round at the same pace, as pages are spread by their hash, so that what was written together
//!   is stale together. Partitions are fewer where memory is small, since each gathers a group.
//! - P1: victims that wait for their group stay in their frames, with their entries, and can be
//!   used: a page that was, or left otherwise, is no victim any more. So no
//!   buffer beside memory has to be looked into, and the write-ahead rule and the order of entries
//!   are those of `write_out`.
//! - P2: what the policy chose is done in this order: the front group is read, with one read; the
//!   group is written at the rear, with one write, second chances first; frames and entries move
//!   on; what must go home goes home; then the slots of the front group are free. `slots_ahead`
//!   slots are kept free, or leaving, so that the rear never meets a page that is on its way.
//! - P3: a page that is newer than home counts as dirty all the while: in its old slot until its
//!   new one is written, or until home has it. Redo stays in the log until home was synced, so the
//!   slots may be overwritten before that, and the flash may vanish at any instant.
//! - P4: a page at the front that cannot leave now (somebody reads it, or it is still to be redone)
//!   ends the group. If nothing can leave, victims go home as if there were no flash.
//! - P5: FASC's log is of blocks, in any order: a group is what the open block has room for, and
//!   the front is the lightest block. Its pages go home in small batches [S2 3.1].
//!
//! Modules in reading order: `group`, what is gathered and written; `front`, what leaves; `bring`,
//! what is appended and stays in memory.

mod bring;
mod front;
mod group;

pub(crate) use group::Gathered;

use terrace_policy::Batch;

use crate::memory::Partition;
use crate::{BufferPool, PoolConfig};

use group::Claimed;

/// How pages are appended.
#[derive(Clone, Copy)]
pub(crate) struct Appends {
    /// Pages of a group, or of a block, at most.
    group: usize,
    /// Pages of a block that leaves, which are written home at once; `None` where a group leaves.
    migration: Option<usize>,
}

impl Appends {
    /// In a log of such batches.
    pub fn of(batch: Batch, config: &PoolConfig) -> Appends {
        let migration = (batch == Batch::Block).then_some(config.fasc.migration_pages as usize);
        Appends { group: config.log_sizes().group as usize, migration }
    }
}

/// What came of an attempt to make room by appending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appended {
    /// So many frames became free; with none, others are at it, and will tell.
    Freed(usize),
    /// Nothing can be appended now: victims go home.
    Blocked,
}

impl BufferPool {
    /// Whether victims are appended now: not during a sharp checkpoint [S0 3.2], nor after a
    /// failure.
    pub(crate) fn appends(&self) -> bool {
        self.traffic.appends.is_some()
            && self.devices.is_usable()
            && !self.devices.is_over_budget()
            && !self.durability.is_sharp()
            && !self.durability.is_stopped()
    }

    /// Frees frames of one partition, until `wanted` are free, or a group was written.
    pub(crate) fn append_victims(
        &self,
        partition: &Partition,
        wanted: usize,
    ) -> Result<Appended, crate::PoolError> {
        let (freed, claimed) = {
            let mut books = partition.books.lock();
            let freed = self.gather_group(partition, &mut books, wanted);
            let claimed = if freed < wanted {
                self.claim_group(partition, &mut books)
            } else {
                Claimed::Nothing
            };
            (freed, claimed)
        };
        if freed > 0 {
            partition.room.notify_all();
        }
        match claimed {
            Claimed::Nothing => Ok(Appended::Freed(freed)),
            Claimed::Blocked if freed == 0 => {
                self.unblock_front();
                Ok(Appended::Blocked)
            }
            Claimed::Blocked => Ok(Appended::Freed(freed)),
            Claimed::Group(group) => match self.append(group) {
                Ok(written) => Ok(Appended::Freed(freed + written)),
                // What is free already is worth more than an error that others will report too.
                Err(_) if freed > 0 => Ok(Appended::Freed(freed)),
                Err(error) => Err(error),
            },
        }
    }
}
