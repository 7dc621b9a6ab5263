//! Room in leaves: bytes that an update has freed stay free until no rollback can need them back.
//!
//! An update that makes a row shorter frees bytes in its leaf, which a rollback needs again. If
//! others used them meanwhile, the rollback would have to split the leaf: it would need a page of
//! home, and log, which there may not be. So code that puts bytes into a leaf, or decides which
//! cells share one, counts each row at the length that is kept for it here.
//!
//! - R1: a page with all rows of a leaf at the lengths kept for them is a page that fits. Shrinking
//!   a row keeps this true; insertions, longer rows, splits and merges ask before they change
//!   anything. So an undo never splits a leaf.
//! - R2: lengths are kept, and asked for, under the latch of the row's leaf. They are given up when
//!   the transaction's COMMIT or END is in the log, with its locks, and without a latch: more is
//!   free then, not less.
//! - Nothing of this is stored. Recovery rolls back before any transaction changes a page, and
//!   finds leaves as R1 has left them.
//! - Rows are identified by a hash. Two that have the same are kept at the longer length.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_rt::LeafMutex;

use crate::{KeyHash, TreeId};

const SHARDS: usize = 64;
const SHARD_SHIFT: u32 = 40;

/// A row whose length is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowHash(u64);

impl RowHash {
    pub(crate) fn of(tree: TreeId, key: KeyHash) -> RowHash {
        RowHash(key.number() ^ u64::from(tree.0).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

#[derive(Clone, Copy)]
struct Kept {
    /// The longest record, flags included.
    len: u32,
    /// How many updates keep it.
    updates: u32,
}

/// Takes a row's hash as it is.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only numbers are hashed")
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

type Shard = HashMap<u64, Kept, BuildHasherDefault<AsItIs>>;

/// The lengths kept for rows that unfinished transactions have made shorter.
pub(crate) struct LeafRoom {
    shards: Vec<LeafMutex<Shard>>,
    /// At least the bytes that all leaves together have to keep free.
    bytes: AtomicU64,
}

impl LeafRoom {
    pub(crate) fn new() -> LeafRoom {
        let shards = (0..SHARDS).map(|_| LeafMutex::default()).collect();
        LeafRoom { shards, bytes: AtomicU64::new(0) }
    }

    fn shard(&self, row: RowHash) -> &LeafMutex<Shard> {
        &self.shards[(row.0 >> SHARD_SHIFT) as usize % SHARDS]
    }

    /// Keeps room for the record of `row` at length `from`: it is about to get `freed` bytes
    /// shorter. Undone by `release` with the same numbers.
    pub(crate) fn keep(&self, row: RowHash, from: usize, freed: usize) {
        self.bytes.fetch_add(freed as u64, Ordering::Relaxed);
        let mut shard = self.shard(row).lock();
        let kept = shard.entry(row.0).or_insert(Kept { len: 0, updates: 0 });
        kept.len = kept.len.max(from as u32);
        kept.updates += 1;
    }

    /// One update of `row` needs its room no more.
    pub(crate) fn release(&self, row: RowHash, freed: usize) {
        {
            let mut shard = self.shard(row).lock();
            let kept = shard.get_mut(&row.0).expect("what is released was kept");
            kept.updates -= 1;
            if kept.updates == 0 {
                shard.remove(&row.0);
            }
        }
        self.bytes.fetch_sub(freed as u64, Ordering::Relaxed);
    }

    /// The length kept for the record of `row`, or 0.
    pub(crate) fn len_of(&self, row: RowHash) -> usize {
        self.shard(row).lock().get(&row.0).map_or(0, |kept| kept.len as usize)
    }

    /// No leaf has to keep more than this free.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_kept_at_its_longest_until_the_last_update_lets_go() {
        let room = LeafRoom::new();
        let row = RowHash::of(TreeId(3), KeyHash::of(b"row"));
        let other = RowHash::of(TreeId(4), KeyHash::of(b"row"));
        assert_ne!(row, other);
        room.keep(row, 1000, 900);
        room.keep(row, 100, 50);
        assert_eq!((room.len_of(row), room.len_of(other), room.bytes()), (1000, 0, 950));
        room.release(row, 50);
        assert_eq!((room.len_of(row), room.bytes()), (1000, 900));
        room.release(row, 900);
        assert_eq!((room.len_of(row), room.bytes()), (0, 0));
    }
}
