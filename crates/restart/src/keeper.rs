//! The hooks through which a restart method follows the states of the slots.
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
//!   next checkpoint has home forget the device, and until then the log tells which entries of the
//!   table no longer hold.

use terrace_page::{Lsn, PageId};
pub use terrace_tier::{Freed, Held};

use super::site::{Site, TableError};

/// A restart, while the database is open.
pub trait Keeper: Send + Sync {
    /// Bytes are about to be written into `slots`.
    fn before_writes(&self, _site: &dyn Site, _slots: &[u32]) -> Result<(), TableError> {
        Ok(())
    }

    /// The write into a slot has finished, and home's too if there was one.
    fn filled(&self, _site: &dyn Site, _held: &Held) {}

    /// Home has the page of `slot` too now.
    fn cleaned(&self, _site: &dyn Site, _slot: u32, _page: PageId) {}

    /// `slot` no longer holds `page`.
    fn freed(&self, _site: &dyn Site, _slot: u32, _page: PageId, _why: Freed) {}

    /// `slot` held a base, and its page has a newer copy on flash.
    fn retired(&self, _site: &dyn Site, _slot: u32) {}

    /// Home durably has the page of clean `slot`, which stays pinned until the table says so.
    fn unpin_later(&self, _site: &dyn Site, _slot: u32) {}

    /// What was told of `slots` is to be made as durable as the restart method wants it at once.
    fn harden(&self, _site: &dyn Site, _slots: &[u32]) -> Result<(), TableError> {
        Ok(())
    }

    /// No slot can be reused now.
    fn wanted(&self) {}

    /// A checkpoint is between BEGIN_CHKPT and END_CHKPT; the oldest dirty LSN is known. Returns
    /// the position of the journal that home should name, for the restart method that has one.
    fn checkpoint(&self, _site: &dyn Site) -> Result<u64, TableError> {
        Ok(0)
    }

    /// The life of the background task; returns when the pool closes.
    fn run(&self, _site: &dyn Site) {}

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
