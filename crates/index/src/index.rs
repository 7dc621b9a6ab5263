//! What all structures can do.
//!
//! - I1: `get` answers what the last operation on the key left, whether it is in memory or not.
//! - I2: with a journal, what was done before a `commit` that returned survives a crash; of what
//!   came after, the first operations do or do not, in their order.
//! - I3: what was done before a `flush` that returned survives a crash before the next operation,
//!   with a journal or without.

use std::ops::Range;

use crate::Error;
use crate::entry::{Key, Op, Pointer};
use crate::pages::Traffic;

/// Memory of an index beside its buffer pool, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The buffer pool.
    pub pool: u64,
    /// Operations that wait.
    pub queue: u64,
    /// What says where things are: LSMap, BFTL's node table, the fences of an FD-tree's head.
    pub tables: u64,
    /// The most that a search holds.
    pub search: u64,
}

/// An index of an unsigned key.
pub trait Index {
    /// The pointer of `key`.
    ///
    /// # Errors
    ///
    /// A device that failed, a page that is not whole.
    fn get(&mut self, key: Key) -> Result<Option<Pointer>, Error>;

    /// The pointers of `keys`, in their order.
    ///
    /// # Errors
    ///
    /// As `get`.
    fn get_many(&mut self, keys: &[Key]) -> Result<Vec<Option<Pointer>>, Error>;

    /// Inserts, updates or removes.
    ///
    /// # Errors
    ///
    /// As `get`; a device or a journal without room. After a failed write the index takes no more.
    fn apply(&mut self, op: Op) -> Result<(), Error>;

    /// The entries whose keys are in `keys`, in their order.
    ///
    /// # Errors
    ///
    /// As `get`.
    fn range(&mut self, keys: Range<Key>) -> Result<Vec<(Key, Pointer)>, Error>;

    /// Makes durable what was done (I2). Without a journal it does nothing.
    ///
    /// # Errors
    ///
    /// A device or a journal that failed, or has no room.
    fn commit(&mut self) -> Result<(), Error>;

    /// Brings all that waits to its pages, and makes it durable (I3).
    ///
    /// # Errors
    ///
    /// As `commit`.
    fn flush(&mut self) -> Result<(), Error>;

    /// What it has asked of its device.
    fn traffic(&self) -> Traffic;

    /// What it holds in memory.
    fn memory(&self) -> Memory;

    /// Puts `pointer` under `key`.
    ///
    /// # Errors
    ///
    /// As `apply`.
    fn insert(&mut self, key: Key, pointer: Pointer) -> Result<(), Error> {
        self.apply(Op::insert(key, pointer))
    }

    /// Takes `key` out.
    ///
    /// # Errors
    ///
    /// As `apply`.
    fn remove(&mut self, key: Key) -> Result<(), Error> {
        self.apply(Op::remove(key))
    }
}
