//! Room for runs in the file of old versions.
//!
//! ```text
//!   fresh ---- `take` ----> taken ---- drop of the `Extent` ----> given back ---- `punch` ----> free
//!                             ^                                       |                          |
//!                             '---------------- `take` ---------------+--------------------------'
//! ```
//!
//! - R1: the file is as long as the limit, and given away in extents of one size: so it never takes
//!   more than its limit, and no room is lost between runs of different sizes.
//! - R2: what is spilled leaves a reserve free, with which a merge can always go on: it takes a
//!   step's extents before it gives back those that it has read (merge.G2).
//! - R3: a task that lets go of an extent never waits, so it does not punch; the task that spills
//!   does. Extents that are given back and not punched are the first to be taken again.
//! - R4: the file is made when room is taken for the first time, without a name: it goes with the
//!   process, however that ends.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_device::{Device, FileDevice, read, write};
use terrace_rt::{LeafMutex, Nanos};

use super::block::{BLOCK_MAX, BLOCK_MIN};
use crate::log::Aligned;

/// The file has about this many extents, if they are not too small or too large then.
const EXTENTS: u64 = 4096;
const EXTENT_MAX: u64 = 4 << 20;
/// A segment has one in this of all extents, at most,
const SEGMENT_ONE_IN: usize = 256;
const SEGMENT_MIN: usize = 2;
/// and no more than this.
const SEGMENT_MAX: usize = 16;
/// Most runs that are merged at once: each keeps an extent of which not all was read.
pub(super) const MERGED_MAX: usize = 8;
/// A block has one in this of what is on disk, if it is not too small or too large then.
const BLOCK_ONE_IN: u64 = 64 << 10;

/// Where old versions go.
#[derive(Clone)]
pub(crate) enum SpillTo {
    /// Nowhere: they stay in memory.
    Memory,
    /// To a file without a name in this folder; it is waited for no longer than this.
    Folder(PathBuf, Nanos),
    /// To a device.
    Device(Arc<dyn Device>),
}

/// What room is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// More versions on disk.
    Spill,
    /// The same versions in other runs.
    Merge,
}

#[derive(Default)]
struct Books {
    device: Option<Arc<dyn Device>>,
    /// Extents that were never taken begin here.
    fresh: u32,
    free: Vec<u32>,
    given_back: Vec<u32>,
    /// Extents that are taken, or being punched.
    taken: usize,
}

/// The room for runs. See the module.
pub(super) struct Room {
    to: SpillTo,
    extent_bytes: u64,
    count: usize,
    books: LeafMutex<Books>,
    next_segment: AtomicU64,
}

/// An extent of the file that is in use.
pub(super) struct Extent {
    room: Arc<Room>,
    number: u32,
}

impl Extent {
    /// Where it begins.
    pub(super) fn at(&self) -> u64 {
        u64::from(self.number) * self.room.extent_bytes
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        let mut books = self.room.books.lock();
        books.taken -= 1;
        books.given_back.push(self.number);
    }
}

impl Room {
    pub(super) fn new(to: SpillTo, limit: u64) -> Room {
        let mut limit = limit;
        if let SpillTo::Device(device) = &to {
            limit = limit.min(device.len());
        }
        let extent_bytes = (limit / EXTENTS).next_power_of_two();
        let extent_bytes = extent_bytes.clamp(BLOCK_MIN as u64, EXTENT_MAX);
        let count = (limit / extent_bytes).min(u64::from(u32::MAX)) as usize;
        let books = LeafMutex::default();
        Room { to, extent_bytes, count, books, next_segment: AtomicU64::new(1) }
    }

    pub(super) fn extent_bytes(&self) -> u64 {
        self.extent_bytes
    }

    /// The most extents of a segment.
    pub(super) fn segment_extents(&self) -> usize {
        (self.count / SEGMENT_ONE_IN).clamp(SEGMENT_MIN, SEGMENT_MAX)
    }

    /// Extents that are left for merges (R2).
    fn reserve(&self) -> usize {
        self.segment_extents() + MERGED_MAX + 1
    }

    /// Bytes of the file that may be spilled to.
    pub(super) fn spill_bytes(&self) -> u64 {
        self.count.saturating_sub(self.reserve()) as u64 * self.extent_bytes
    }

    /// Bytes of the file that are taken, or not punched yet.
    pub(super) fn used(&self) -> u64 {
        let books = self.books.lock();
        (books.taken + books.given_back.len()) as u64 * self.extent_bytes
    }

    /// Whether what is spilled next may have `bytes` bytes.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        let extents = bytes.div_ceil(self.extent_bytes) as usize;
        self.books.lock().taken + extents + self.reserve() <= self.count
    }

    /// Bytes of a block of a segment that is written now.
    pub(super) fn block_bytes(&self) -> usize {
        let block = (self.used() / BLOCK_ONE_IN).next_power_of_two() as usize;
        block.clamp(BLOCK_MIN, BLOCK_MAX.min(self.extent_bytes as usize))
    }

    /// A number for a segment.
    pub(super) fn next_segment(&self) -> u64 {
        self.next_segment.fetch_add(1, Ordering::Relaxed)
    }

    /// The device, made if it is not there yet.
    fn device(&self) -> io::Result<Arc<dyn Device>> {
        if let Some(device) = &self.books.lock().device {
            return Ok(Arc::clone(device));
        }
        let device: Arc<dyn Device> = match &self.to {
            SpillTo::Memory => return Err(io::ErrorKind::Unsupported.into()),
            SpillTo::Device(device) => Arc::clone(device),
            SpillTo::Folder(folder, limit) => {
                let len = self.count as u64 * self.extent_bytes;
                let device = FileDevice::nameless(folder, len)?;
                device.set_time_limit(*limit);
                Arc::new(device)
            }
        };
        // Another task may have made one meanwhile, with a name of its own: that of the first counts.
        Ok(Arc::clone(self.books.lock().device.get_or_insert(device)))
    }

    /// An extent; `None` if there is none for this (R2).
    ///
    /// # Errors
    ///
    /// What the system says of the file.
    pub(super) fn take(self: &Arc<Room>, purpose: Purpose) -> io::Result<Option<Arc<Extent>>> {
        self.device()?;
        let kept = if purpose == Purpose::Spill { self.reserve() } else { 0 };
        let mut books = self.books.lock();
        if books.taken + kept >= self.count {
            return Ok(None);
        }
        let used_before = books.given_back.pop().or_else(|| books.free.pop());
        let number = used_before.unwrap_or_else(|| {
            books.fresh += 1;
            books.fresh - 1
        });
        books.taken += 1;
        drop(books);
        Ok(Some(Arc::new(Extent { room: Arc::clone(self), number })))
    }

    /// Gives the room of what was given back to the file system, but for that of `spare` extents.
    pub(super) fn punch(&self, spare: usize) {
        for _ in 0..self.count {
            let (device, number) = {
                let mut books = self.books.lock();
                let Some(device) = books.device.clone() else { return };
                if books.given_back.len() <= spare {
                    return;
                }
                let Some(number) = books.given_back.pop() else { return };
                books.taken += 1;
                (device, number)
            };
            // Room that the file keeps is free for other runs all the same.
            let _kept = device.punch(u64::from(number) * self.extent_bytes, self.extent_bytes);
            let mut books = self.books.lock();
            books.taken -= 1;
            books.free.push(number);
        }
    }

    /// # Errors
    ///
    /// What the device says.
    pub(super) fn read(&self, at: u64, len: usize) -> io::Result<Aligned> {
        let device = self.device()?;
        let mut bytes = Aligned::zeroed(len);
        read(&*device, at, &mut bytes)?;
        Ok(bytes)
    }

    /// # Errors
    ///
    /// What the device says.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        write(&*self.device()?, at, bytes)
    }

    /// The owner needs the device no more.
    pub(super) fn release(&self) {
        if let Some(device) = &self.books.lock().device {
            device.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use terrace_device::model::{Preset, build};
    use terrace_device::{Keep, Store};
    use terrace_rt::{Prng, World};

    use super::*;

    const BLOCK: u64 = BLOCK_MIN as u64;

    #[test]
    fn room_agrees_with_a_set_of_extents() {
        for seed in 0..200 {
            let mut prng = Prng::from_seed(seed);
            let count = 12 + prng.below(60) as usize;
            let store = Store::new(count as u64 * BLOCK + prng.below(2) * 8192, Keep::Plain);
            let device = build(Preset::Ram, World::current(), store);
            let room = Arc::new(Room::new(SpillTo::Device(device), 1 << 40));
            assert_eq!((room.count, room.extent_bytes), (count, BLOCK));
            let reserve = room.segment_extents() + MERGED_MAX + 1;
            let mut taken: Vec<Arc<Extent>> = Vec::new();
            let mut waiting = 0;
            for _ in 0..400 {
                match prng.below(5) {
                    0 | 1 if !taken.is_empty() => {
                        taken.swap_remove(prng.below(taken.len() as u64) as usize);
                        waiting += 1;
                    }
                    2 => {
                        let spare = prng.below(4) as usize;
                        room.punch(spare);
                        waiting = waiting.min(spare);
                    }
                    what => {
                        let purpose = if what == 3 { Purpose::Spill } else { Purpose::Merge };
                        let kept = if purpose == Purpose::Spill { reserve } else { 0 };
                        let fits = taken.len() + kept < count;
                        let extent = room.take(purpose).expect("memory");
                        assert_eq!(extent.is_some(), fits, "seed {seed}");
                        let Some(extent) = extent else { continue };
                        waiting -= usize::from(waiting > 0);
                        assert!(extent.at() + BLOCK <= count as u64 * BLOCK, "beyond the limit");
                        taken.push(extent);
                    }
                }
                let places: BTreeSet<u64> = taken.iter().map(|extent| extent.at()).collect();
                assert_eq!(places.len(), taken.len(), "seed {seed}: taken twice");
                assert_eq!(room.used(), (taken.len() + waiting) as u64 * BLOCK, "seed {seed}");
                let one_more = taken.len() + reserve < count;
                assert_eq!(room.fits(1), one_more);
            }
            taken.clear();
            room.punch(0);
            assert_eq!(room.used(), 0);
        }
    }
}
