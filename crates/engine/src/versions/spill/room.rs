//! Room for runs in the file of old versions.
//!
//! ```text
//!   free ---- `take` ----> taken ---- `give_back` ----> given back ---- `punch` ----> free
//! ```
//!
//! - R1: what is taken, and what was given back and not punched yet, is at most the limit. Tasks
//!   that let go of a run never wait, so they do not punch; the task that takes room does.
//! - R2: the file is made when room is taken for the first time, without a name: it goes with the
//!   process, however that ends.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use terrace_device::{Device, FileDevice, read, write};
use terrace_rt::{LeafMutex, Nanos};

use super::block::BLOCK_MIN;
use crate::log::Aligned;

/// The file is sparse, and this many times as long as the limit: so room that lies in pieces is
/// enough for a run, which lies in one.
const LENGTHS: u64 = 2;

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

#[derive(Default)]
struct Books {
    device: Option<Arc<dyn Device>>,
    /// Free ranges: where each begins, and its length.
    free: BTreeMap<u64, u64>,
    given_back: Vec<(u64, u64)>,
    used: u64,
}

/// The room for runs. See the module.
pub(super) struct Room {
    to: SpillTo,
    limit: u64,
    books: LeafMutex<Books>,
}

impl Room {
    pub(super) fn new(to: SpillTo, limit: u64) -> Room {
        let mut limit = limit;
        if let SpillTo::Device(device) = &to {
            limit = limit.min(device.len());
        }
        let limit = limit / BLOCK_MIN as u64 * BLOCK_MIN as u64;
        Room { to, limit, books: LeafMutex::default() }
    }

    /// Bytes that the file may have, and those that it has.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn used(&self) -> u64 {
        self.books.lock().used
    }

    /// The device, made if it is not there yet.
    fn device(&self) -> io::Result<Arc<dyn Device>> {
        if let Some(device) = &self.books.lock().device {
            return Ok(Arc::clone(device));
        }
        let (device, len): (Arc<dyn Device>, u64) = match &self.to {
            SpillTo::Memory => return Err(io::ErrorKind::Unsupported.into()),
            SpillTo::Device(device) => (Arc::clone(device), device.len()),
            SpillTo::Folder(folder, limit) => {
                let device = FileDevice::nameless(folder, self.limit * LENGTHS)?;
                device.set_time_limit(*limit);
                let len = device.len();
                (Arc::new(device), len)
            }
        };
        let mut books = self.books.lock();
        let len = len / BLOCK_MIN as u64 * BLOCK_MIN as u64;
        books.free.insert(0, len);
        books.device = Some(Arc::clone(&device));
        Ok(device)
    }

    /// `len` bytes in one piece; `None` if that is more than the limit leaves (R1).
    ///
    /// # Errors
    ///
    /// What the system says of the file.
    pub(super) fn take(&self, len: u64) -> io::Result<Option<u64>> {
        self.device()?;
        let mut books = self.books.lock();
        if books.used + len > self.limit {
            return Ok(None);
        }
        let fitting = books.free.iter().find(|(_, free)| **free >= len);
        let Some((&at, &free)) = fitting else { return Ok(None) };
        books.free.remove(&at);
        if free > len {
            books.free.insert(at + len, free - len);
        }
        books.used += len;
        Ok(Some(at))
    }

    /// A range is of no more use.
    pub(super) fn give_back(&self, at: u64, len: u64) {
        if len > 0 {
            self.books.lock().given_back.push((at, len));
        }
    }

    /// Gives the room of what was given back to the file system, and frees it.
    pub(super) fn punch(&self) {
        let (device, ranges) = {
            let mut books = self.books.lock();
            (books.device.clone(), std::mem::take(&mut books.given_back))
        };
        let Some(device) = device else { return };
        for (at, len) in ranges {
            // Room that the file keeps is free for other runs all the same.
            let _kept = device.punch(at, len);
            let mut books = self.books.lock();
            books.used -= len;
            let (mut at, mut len) = (at, len);
            if let Some((&before, &before_len)) = books.free.range(..at).next_back()
                && before + before_len == at
            {
                books.free.remove(&before);
                (at, len) = (before, before_len + len);
            }
            if let Some(after_len) = books.free.remove(&(at + len)) {
                len += after_len;
            }
            books.free.insert(at, len);
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
    use terrace_device::model::{Preset, build};
    use terrace_device::{Keep, Store};
    use terrace_rt::{Prng, World};

    use super::*;

    const BLOCKS: u64 = 40;
    const BLOCK: u64 = BLOCK_MIN as u64;

    #[test]
    fn room_agrees_with_a_list_of_blocks() {
        for seed in 0..200 {
            let store = Store::new(BLOCKS * BLOCK, Keep::Plain);
            let device = build(Preset::Ram, World::current(), store);
            let mut prng = Prng::from_seed(seed);
            let limit = 10 + prng.below(BLOCKS);
            let room = Room::new(SpillTo::Device(device), limit * BLOCK);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            let mut waiting = 0;
            for _ in 0..200 {
                match prng.below(4) {
                    0 if !taken.is_empty() => {
                        let (at, len) = taken.swap_remove(prng.below(taken.len() as u64) as usize);
                        room.give_back(at, len);
                        waiting += len;
                    }
                    1 => {
                        room.punch();
                        waiting = 0;
                    }
                    _ => {
                        let len = (1 + prng.below(8)) * BLOCK;
                        let used: u64 = taken.iter().map(|(_, len)| len).sum();
                        let fits = used + waiting + len <= room.limit();
                        let Some(at) = room.take(len).expect("memory") else { continue };
                        assert!(fits, "seed {seed}: beyond the limit");
                        let is_apart = |&(other, other_len): &(u64, u64)| {
                            at + len <= other || other + other_len <= at
                        };
                        assert!(taken.iter().all(is_apart), "seed {seed}: taken twice");
                        taken.push((at, len));
                    }
                }
                let used: u64 = taken.iter().map(|(_, len)| len).sum();
                assert_eq!(room.used(), used + waiting);
            }
            taken.into_iter().for_each(|(at, len)| room.give_back(at, len));
            room.punch();
            let whole = room.limit().min(BLOCKS * BLOCK);
            assert_eq!((room.used(), room.take(whole).expect("memory")), (0, Some(0)));
        }
    }
}
