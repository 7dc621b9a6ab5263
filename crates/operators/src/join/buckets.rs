//! ParaHash: the hash buckets of a join, filled and probed by all tasks at once (Fan et al., 4.2).
//!
//! The bucket of a value is `value & (B - 1)`, so their number B is a power of two. A bucket is
//! locked for a few instructions. Buckets form partitions; when memory is full, the largest one is
//! written to blocks, and what comes for it later as well, from both tables.
//!
//! ```text
//!              take(): no memory, and it is the largest
//!   in memory -----------------------------------------> spilled: a block to be filled, and a list
//! ```
//!
//! - B1: a row of the first table is in a bucket, or in the blocks of its partition.
//! - B2: the flag of a partition is set before its buckets are emptied, and looked at under the
//!   lock of a bucket, so nothing is put into a bucket that was emptied.
//! - B3: memory is that of the budget: the buckets, what they hold, and the blocks to be filled.
//! - Not for: values that are all multiples of a power of two, which meet in few buckets.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_rt::{LeafMutex, Mutex};

use super::record::Layout;
use crate::Error;
use crate::budget::Budget;
use crate::spill::{Block, HEADER_BYTES, Space, empty_block};

/// What a bucket grows by, at least.
const GROWTH_BYTES: u64 = 64;
/// And the part of it that a large bucket grows by.
const GROWTH_PART: u64 = 16;
/// What the allocator takes for each piece of memory, about.
const ALLOCATION_BYTES: u64 = 16;

/// The most records that one look into a bucket finds, so that a task holds few at once however
/// many have the same value.
const FOUND_MAX: usize = 256;

/// Which table a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The first, whose rows are in buckets.
    Build = 0,
    /// The second, which is probed with.
    Probe = 1,
}

/// A bucket: records, one behind the other, under the light lock.
type Bucket = LeafMutex<Vec<u8>>;

/// Bytes of a bucket without records.
pub(super) const BUCKET_BYTES: u64 = size_of::<Bucket>() as u64;

#[derive(Default)]
struct Partition {
    is_spilled: AtomicBool,
    /// Memory of its buckets.
    bytes: AtomicU64,
    /// A block to be filled.
    filling: LeafMutex<Vec<u8>>,
    /// Blocks of each side.
    blocks: [LeafMutex<Vec<Block>>; 2],
}

/// The buckets of a join.
pub(super) struct Buckets {
    layouts: [Layout; 2],
    buckets: Vec<Bucket>,
    partitions: Vec<Partition>,
    budget: Budget,
    space: Space,
    /// Held while a partition is written.
    spilling: Mutex<()>,
}

/// Whether a record found room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Found,
    None,
}

impl Buckets {
    /// `count` buckets, a power of two, in `partitions` partitions. Their memory is taken.
    pub(super) fn new(
        (count, partitions): (u64, u64),
        layouts: [Layout; 2],
        budget: Budget,
        space: Space,
    ) -> Buckets {
        assert!(count.is_power_of_two(), "{count} buckets");
        Buckets {
            layouts,
            buckets: (0..count).map(|_| Bucket::new(Vec::new())).collect(),
            partitions: (0..partitions.min(count)).map(|_| Partition::default()).collect(),
            budget,
            space,
            spilling: Mutex::new(()),
        }
    }

    pub(super) fn layout(&self, side: Side) -> &Layout {
        &self.layouts[side as usize]
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(super) fn space(&self) -> &Space {
        &self.space
    }

    fn bucket_of(&self, value: i64) -> usize {
        (value as u64 & (self.buckets.len() as u64 - 1)) as usize
    }

    fn partition_of(&self, bucket: usize) -> usize {
        (bucket as u64 * self.partitions.len() as u64 / self.buckets.len() as u64) as usize
    }

    /// Puts a record of the first table where it belongs.
    pub(super) fn insert(&self, record: &[u8]) -> Result<(), Error> {
        let bucket = self.bucket_of(self.layout(Side::Build).value(record));
        let partition = self.partition_of(bucket);
        loop {
            if self.partitions[partition].is_spilled.load(Ordering::Acquire) {
                return self.spill(partition, Side::Build, record);
            }
            if self.keep(bucket, record) == Room::Found {
                return Ok(());
            }
            self.make_room()?;
        }
    }

    /// Puts a record into a bucket of a partition that is in memory. `None` also if it is no more.
    fn keep(&self, bucket: usize, record: &[u8]) -> Room {
        let partition = &self.partitions[self.partition_of(bucket)];
        let mut held = self.buckets[bucket].lock();
        if partition.is_spilled.load(Ordering::Acquire) {
            return Room::None;
        }
        self.append(&mut held, &partition.bytes, record)
    }

    fn growth_min(&self) -> u64 {
        GROWTH_BYTES.max(self.layout(Side::Build).width() as u64)
    }

    fn append(&self, held: &mut Vec<u8>, bytes: &AtomicU64, record: &[u8]) -> Room {
        if held.capacity() - held.len() < record.len() {
            // Large buckets grow by a part of them, if there is memory for that.
            let growth = self.growth_min().max(held.capacity() as u64 / GROWTH_PART);
            let allocation = if held.capacity() == 0 { ALLOCATION_BYTES } else { 0 };
            let growths = [growth, self.growth_min()];
            let Some(growth) = growths.into_iter().find(|it| self.budget.take(it + allocation))
            else {
                return Room::None;
            };
            bytes.fetch_add(growth + allocation, Ordering::Relaxed);
            let free = held.capacity() - held.len();
            held.reserve_exact(free + growth as usize);
        }
        held.extend_from_slice(record);
        Room::Found
    }

    /// Puts a record into the blocks of a partition.
    fn spill(&self, partition: usize, side: Side, record: &[u8]) -> Result<(), Error> {
        let partition = &self.partitions[partition];
        let full = {
            let mut filling = partition.filling.lock();
            if filling.is_empty() {
                *filling = empty_block(self.space.block_bytes());
            }
            let is_full = filling.len() + record.len() > self.space.block_bytes() as usize;
            let full = is_full
                .then(|| std::mem::replace(&mut *filling, empty_block(self.space.block_bytes())));
            filling.extend_from_slice(record);
            full
        };
        match full {
            Some(mut full) => self.write(partition, side, &mut full),
            None => Ok(()),
        }
    }

    fn write(&self, partition: &Partition, side: Side, block: &mut Vec<u8>) -> Result<(), Error> {
        let block = self.space.write(block)?;
        partition.blocks[side as usize].lock().push(block);
        Ok(())
    }

    /// Spills the largest partition that is in memory.
    fn make_room(&self) -> Result<(), Error> {
        let _one = self.spilling.lock();
        let width = self.layout(Side::Build).width();
        if self.budget.has(self.growth_min() + ALLOCATION_BYTES) {
            // Another task has made room meanwhile.
            return Ok(());
        }
        let in_memory = self
            .partitions
            .iter()
            .enumerate()
            .filter(|(_, partition)| !partition.is_spilled.load(Ordering::Relaxed));
        let bytes = |partition: &Partition| partition.bytes.load(Ordering::Relaxed);
        // All are spilled: the caller looks at its own again.
        let Some((at, largest)) = in_memory.max_by_key(|(_, partition)| bytes(partition)) else {
            return Ok(());
        };
        largest.is_spilled.store(true, Ordering::Release);
        // One block was left free for this moment; what the buckets had is more than a block.
        let block_bytes = self.space.block_bytes();
        self.budget.give(block_bytes);
        self.budget.take_spare(block_bytes);
        for bucket in self.of_partition(at) {
            let records = std::mem::take(&mut *self.buckets[bucket].lock());
            for record in records.chunks_exact(width) {
                self.spill(at, Side::Build, record)?;
            }
        }
        self.budget.give(largest.bytes.swap(0, Ordering::Relaxed));
        self.budget.take_spare(block_bytes);
        Ok(())
    }

    fn of_partition(&self, partition: usize) -> std::ops::Range<usize> {
        let (buckets, all) = (self.buckets.len() as u64, self.partitions.len() as u64);
        let begin = |at: u64| (at * buckets).div_ceil(all) as usize;
        begin(partition as u64)..begin(partition as u64 + 1)
    }

    /// Calls `found` with the records that have the value of a record of the second table, from
    /// byte `from` of their bucket on, or puts that record into the blocks of its partition. After
    /// `FOUND_MAX` records it returns the byte where it is to go on.
    pub(super) fn probe(
        &self,
        record: &[u8],
        from: usize,
        found: impl FnMut(&[u8]),
    ) -> Result<Option<usize>, Error> {
        let bucket = self.bucket_of(self.layout(Side::Probe).value(record));
        let partition = self.partition_of(bucket);
        if self.partitions[partition].is_spilled.load(Ordering::Acquire) {
            return self.spill(partition, Side::Probe, record).map(|()| None);
        }
        Ok(self.probe_loaded(record, from, found))
    }

    /// As `probe`, where the partition is known to be in memory, or loaded again.
    pub(super) fn probe_loaded(
        &self,
        record: &[u8],
        from: usize,
        mut found: impl FnMut(&[u8]),
    ) -> Option<usize> {
        let build = self.layout(Side::Build);
        let value = self.layout(Side::Probe).value(record);
        if !build.fits(value) {
            return None;
        }
        let held = self.buckets[self.bucket_of(value)].lock();
        let width = build.width();
        let places = (from..held.len()).step_by(width);
        for (count, at) in places.filter(|at| build.is_same(&held, *at, value)).enumerate() {
            if count == FOUND_MAX {
                return Some(at);
            }
            found(&held[at..at + width]);
        }
        None
    }

    /// Puts a record of a spilled partition back into its bucket, if there is memory.
    pub(super) fn load(&self, record: &[u8]) -> Room {
        let bucket = self.bucket_of(self.layout(Side::Build).value(record));
        let partition = &self.partitions[self.partition_of(bucket)];
        self.append(&mut self.buckets[bucket].lock(), &partition.bytes, record)
    }

    /// Ends a side: what waits is written.
    pub(super) fn finish(&self, side: Side) -> Result<(), Error> {
        for partition in self.spilled().map(|at| &self.partitions[at]) {
            let mut filling = std::mem::take(&mut *partition.filling.lock());
            if filling.len() > HEADER_BYTES {
                self.write(partition, side, &mut filling)?;
            }
        }
        Ok(())
    }

    /// Partitions that are spilled.
    pub(super) fn spilled(&self) -> impl Iterator<Item = usize> + '_ {
        let is_spilled = |at: &usize| self.partitions[*at].is_spilled.load(Ordering::Acquire);
        (0..self.partitions.len()).filter(is_spilled)
    }

    /// The blocks of a partition, which its list forgets.
    pub(super) fn take_blocks(&self, partition: usize, side: Side) -> Vec<Block> {
        std::mem::take(&mut *self.partitions[partition].blocks[side as usize].lock())
    }

    /// Empties the buckets of a partition.
    pub(super) fn clear(&self, partition: usize) {
        for bucket in self.of_partition(partition) {
            drop(std::mem::take(&mut *self.buckets[bucket].lock()));
        }
        self.budget.give(self.partitions[partition].bytes.swap(0, Ordering::Relaxed));
    }

    /// Empties the partitions that are in memory, and gives back the blocks of the others.
    pub(super) fn clear_all(&self) {
        for at in 0..self.partitions.len() {
            if self.partitions[at].is_spilled.load(Ordering::Relaxed) {
                self.budget.give(self.space.block_bytes());
            } else {
                self.clear(at);
            }
        }
    }
}
