//! The hooks through which a restart follows the states of the slots.
//!
//! ```text
//! take a slot        before the write      after it            the page changes      cleaned
//! freed(Reused) ---> before_writes -----> filled, harden ----> freed(Modified) ---> cleaned
//!  under the lock     blocks               lock; blocks         lock; harden blocks   lock; harden
//! ```
//!
//! - K1: `filled`, `freed` and `cleaned` are called under the lock of the slot's partition, in the
//!   order in which the states change; they neither block nor switch.
//! - K2: `before_writes` and `harden` are called without a lock, with the pages' latches, and may
//!   block. `before_writes` returns before the first byte is written into the slots; `harden`
//!   before the latches go.
//! - K3: a cache whose table cannot be written is given up: no slot is written from then on, the
//!   next checkpoint has home forget the device, and until then the log tells what of the table is
//!   no more.

use std::io;

use terrace_device::said_again;
use terrace_page::{Lsn, PageId};
pub(crate) use terrace_tier::{Freed, Held};

use super::records::Record;
use crate::partition::Partition;
use crate::{BufferPool, PoolError, Tier};

/// A restart, while the database is open.
pub(crate) trait Keep: Send + Sync {
    /// Bytes are about to be written into `slots`.
    fn before_writes(&self, _pool: &BufferPool, _slots: &[u32]) -> Result<(), PoolError> {
        Ok(())
    }

    /// The write into a slot has finished, and home's too if there was one.
    fn filled(&self, _pool: &BufferPool, _held: &Held) {}

    /// Home has the page of `slot` too now.
    fn cleaned(&self, _pool: &BufferPool, _slot: u32, _page: PageId) {}

    /// `slot` no longer holds `page`.
    fn freed(&self, _pool: &BufferPool, _slot: u32, _page: PageId, _why: Freed) {}

    /// `slot` held a base, and its page has a newer copy on flash.
    fn retired(&self, _pool: &BufferPool, _slot: u32) {}

    /// Home durably has the page of clean `slot`, which stays pinned until the table says so.
    fn unpin_later(&self, _pool: &BufferPool, _slot: u32) {}

    /// What was told of `slots` is to be made as durable as the restart wants it at once.
    fn harden(&self, _pool: &BufferPool, _slots: &[u32]) -> Result<(), PoolError> {
        Ok(())
    }

    /// No slot can be reused now.
    fn wanted(&self) {}

    /// A checkpoint is between BEGIN_CHKPT and END_CHKPT; the oldest dirty LSN is known. Returns
    /// the position of the journal that home should name, for the restart that has one.
    fn checkpoint(&self, _pool: &BufferPool) -> Result<u64, PoolError> {
        Ok(0)
    }

    /// The life of the background task; returns when the pool closes.
    fn run(&self, _pool: &BufferPool) {}

    /// Wakes the background task, for the last time.
    fn close(&self) {}

    /// Whether `changed` is to be called.
    fn follows_changes(&self) -> bool {
        false
    }

    /// The change of `page` has a record, at `lsn`.
    fn changed(&self, _page: PageId, _lsn: Lsn) {}

    /// Whether a page that changes without a record needs a record of that.
    fn wants_unlogged(&self) -> bool {
        false
    }

    /// Bytes of memory beside the slots' own books.
    fn bytes(&self) -> usize {
        0
    }
}

/// A keeper, if the restart keeps anything.
pub(crate) type Keeper = Option<Box<dyn Keep>>;

impl BufferPool {
    /// Whether copies on flash are kept as the bases of changes: redo then starts from them.
    pub(crate) fn keeps_bases(&self) -> bool {
        self.keeps_bases
    }

    /// K2: bytes are about to be written into `slots`, numbered over all partitions. A cache whose
    /// table cannot be written is given up, and takes none of them (K3).
    pub(crate) fn before_slot_writes(&self, slots: &[u32]) -> Result<(), PoolError> {
        match &self.keeper {
            Some(keeper) if !slots.is_empty() => {
                let begun = keeper.before_writes(self, slots);
                begun.or_else(|error| if self.gives_up(&error) { Ok(()) } else { Err(error) })
            }
            _ => Ok(()),
        }
    }

    /// K3. The table was not written, for `error`: whether flash is given up for that.
    fn gives_up(&self, error: &PoolError) -> bool {
        let Some(flash) = &self.flash else { return false };
        if self.is_persistent() || !matches!(error, PoolError::Read { tier: Tier::Flash, .. }) {
            return false;
        }
        flash.give_up();
        flash.is_given_up()
    }

    pub(crate) fn slot_filled(&self, held: &Held) {
        if let Some(keeper) = &self.keeper {
            keeper.filled(self, held);
        }
    }

    pub(crate) fn slot_cleaned(&self, slot: u32, page: PageId) {
        if let Some(keeper) = &self.keeper {
            keeper.cleaned(self, slot, page);
        }
    }

    pub(crate) fn slot_freed(&self, slot: u32, page: PageId, why: Freed) {
        if let Some(keeper) = &self.keeper {
            keeper.freed(self, slot, page, why);
        }
    }

    /// No slot can be reused now.
    pub(crate) fn slots_wanted(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.wanted();
        }
    }

    /// A base gave way to a newer copy on flash: it is free once the table there says so.
    pub(crate) fn retire_base(&self, partition: &Partition, slot: u32) {
        if let Some(keeper) = &self.keeper {
            keeper.retired(self, partition.first_slot + slot);
        }
    }

    /// Home was synced: clean `slot` may be used again once the table says that home has its page.
    pub(crate) fn unpin_later(&self, partition: &Partition, slot: u32, page: PageId) {
        let number = partition.first_slot + slot;
        self.slot_cleaned(number, page);
        if let Some(keeper) = &self.keeper {
            keeper.unpin_later(self, number);
        }
    }

    /// In the middle of a checkpoint, after its oldest dirty LSN was taken: returns when the table
    /// on flash says enough for the log to be cut there. Returns how far its journal reaches.
    ///
    /// # Errors
    ///
    /// The table cannot be hardened: what is on flash may not be believed after this session.
    pub fn harden_table(&self) -> Result<u64, PoolError> {
        let hardened = self.keeper.as_ref().map_or(Ok(0), |keeper| keeper.checkpoint(self));
        hardened.inspect_err(|_| self.look_at_flash())
    }

    /// A change of `page` was logged at `lsn`.
    pub(crate) fn page_changed(&self, page: PageId, lsn: Lsn) {
        if let Some(keeper) = &self.keeper {
            keeper.changed(page, lsn);
        }
    }

    /// `page`, whose dirty entry was made, changes without a record. False if the restart needs one
    /// of that, and the log is full.
    pub(crate) fn log_unlogged(&self, page: PageId) -> bool {
        let wants = self.keeper.as_ref().is_some_and(|keeper| keeper.wants_unlogged());
        !wants || self.journal.log_flash(&Record::Unlogged { page }.encode()).is_some()
    }

    /// K2. A table that cannot be hardened may not be believed later: a cache is given up (K3), and
    /// a database that flash is a part of stops.
    pub(crate) fn harden(&self, slots: &[u32]) {
        let Some(keeper) = &self.keeper else { return };
        if let (false, Err(error)) = (slots.is_empty(), keeper.harden(self, slots)) {
            if self.gives_up(&error) {
                return;
            }
            let source = match &error {
                PoolError::Read { source, .. } => said_again(source),
                error => io::Error::other(error.to_string()),
            };
            self.stop_for_table(source);
        }
    }
}
