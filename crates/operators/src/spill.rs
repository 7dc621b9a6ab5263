//! Blocks on a device, for what does not fit in memory.
//!
//! ```text
//! offset size field
//!      0    4 checksum   CRC-32C of the block's number and bytes 4..
//!      4    4 used       bytes that follow
//! ```
//!
//! - L1: a block that was written is read back with what was written, or as an error.
//! - L2: a block is in one list, or free.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_device::{Device, read, write};
use terrace_rt::LeafMutex;

use crate::Error;

const USED_AT: usize = 4;
/// Bytes of a block before what it holds.
pub(crate) const HEADER_BYTES: usize = USED_AT + 4;
/// Bytes of the smallest block, and the unit of all.
pub(crate) const BLOCK_MIN: u64 = 4 << 10;
/// Bytes of the largest.
const BLOCK_MAX: u64 = 64 << 10;

/// Where operators put what does not fit in memory: a range of a device that nothing else uses.
#[derive(Clone)]
pub struct Spill {
    /// The device.
    pub device: Arc<dyn Device>,
    /// The first byte of the range, a multiple of 4,096.
    pub first_byte: u64,
    /// Its length.
    pub bytes: u64,
}

/// A block's place.
pub(crate) type Block = u32;

/// The blocks of a range.
pub(crate) struct Space {
    spill: Spill,
    block_bytes: u64,
    places: LeafMutex<Places>,
    written: AtomicU64,
}

struct Places {
    next: Block,
    end: Block,
    free: Vec<Block>,
}

/// The size of blocks of which `count` are to share `memory`.
pub(crate) fn block_bytes(memory: u64, count: u64) -> u64 {
    (memory / count / BLOCK_MIN * BLOCK_MIN).clamp(BLOCK_MIN, BLOCK_MAX)
}

/// Memory for a block's bytes, to be filled.
pub(crate) fn empty_block(block_bytes: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(block_bytes as usize);
    bytes.resize(HEADER_BYTES, 0);
    bytes
}

fn checksum(block: Block, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&block.to_le_bytes()), &bytes[USED_AT..])
}

impl Space {
    pub(crate) fn new(spill: Spill, block_bytes: u64) -> Result<Space, Error> {
        if !spill.first_byte.is_multiple_of(BLOCK_MIN) {
            return Err(Error::Sectors { bytes: spill.first_byte });
        }
        let (end, len) = (spill.first_byte.saturating_add(spill.bytes), spill.device.len());
        if end > len {
            return Err(Error::PastEnd { end, len });
        }
        let end = Block::try_from(spill.bytes / block_bytes).unwrap_or(Block::MAX);
        let places = LeafMutex::new(Places { next: 0, end, free: Vec::new() });
        Ok(Space { spill, block_bytes, places, written: AtomicU64::new(0) })
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Bytes that were written in all.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Writes what stands in `bytes` after the header, and empties them.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) -> Result<Block, Error> {
        let used = (bytes.len() - HEADER_BYTES) as u32;
        assert!(bytes.len() as u64 <= self.block_bytes, "a block of {} bytes", bytes.len());
        let block = self.place()?;
        bytes[USED_AT..HEADER_BYTES].copy_from_slice(&used.to_le_bytes());
        let sum = checksum(block, bytes);
        bytes[..USED_AT].copy_from_slice(&sum.to_le_bytes());
        bytes.resize(bytes.len().next_multiple_of(terrace_device::SECTOR_SIZE), 0);
        write(&*self.spill.device, self.offset(block), bytes)?;
        self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        bytes.truncate(HEADER_BYTES);
        Ok(block)
    }

    /// Reads a block into `bytes`, and tells what it holds.
    pub(crate) fn read<'a>(&self, block: Block, bytes: &'a mut Vec<u8>) -> Result<&'a [u8], Error> {
        bytes.resize(self.block_bytes as usize, 0);
        read(&*self.spill.device, self.offset(block), bytes)?;
        let used = u32::from_le_bytes(bytes[USED_AT..HEADER_BYTES].try_into().expect("four bytes"));
        let end = HEADER_BYTES + used as usize;
        let sum = u32::from_le_bytes(bytes[..USED_AT].try_into().expect("four bytes"));
        if end > bytes.len() || sum != checksum(block, &bytes[..end]) {
            return Err(Error::SpillCorrupt { byte: self.offset(block) });
        }
        Ok(&bytes[HEADER_BYTES..end])
    }

    /// Gives a block's place to others.
    pub(crate) fn free(&self, block: Block) {
        self.places.lock().free.push(block);
    }

    fn offset(&self, block: Block) -> u64 {
        self.spill.first_byte + u64::from(block) * self.block_bytes
    }

    fn place(&self) -> Result<Block, Error> {
        let mut places = self.places.lock();
        if let Some(block) = places.free.pop() {
            return Ok(block);
        }
        if places.next == places.end {
            return Err(Error::SpillFull { bytes: self.spill.bytes });
        }
        places.next += 1;
        Ok(places.next - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_device::model::{Preset, build};
    use terrace_device::{Keep, Store};
    use terrace_rt::World;

    fn space(bytes: u64) -> Space {
        let device = build(Preset::Ram, World::current(), Store::new(1 << 20, Keep::Plain));
        let spill = Spill { device, first_byte: 8 << 10, bytes };
        Space::new(spill, BLOCK_MIN).expect("it is on the device")
    }

    #[test]
    fn blocks_read_back_what_was_written_and_are_used_again() {
        let space = space(12 << 10);
        let mut bytes = empty_block(BLOCK_MIN);
        let mut put = |fill: u8, len: usize| {
            bytes.extend(std::iter::repeat_n(fill, len));
            space.write(&mut bytes)
        };
        let blocks: Vec<Block> =
            [(1, 4088), (2, 0), (3, 700)].map(|(fill, len)| put(fill, len).expect("room")).into();
        assert_eq!(blocks, [0, 1, 2]);
        let full = put(4, 1).expect_err("no room").to_string();
        assert!(full.contains("12288 bytes") && !full.contains('\n'), "{full}");
        let mut read = Vec::new();
        assert_eq!(space.read(0, &mut read).expect("whole"), [1; 4088]);
        assert_eq!(space.read(1, &mut read).expect("whole"), []);
        assert_eq!(space.read(2, &mut read).expect("whole"), [3; 700]);
        space.free(1);
        let mut bytes = empty_block(BLOCK_MIN);
        bytes.push(5);
        assert_eq!(space.write(&mut bytes).expect("room again"), 1);
        assert_eq!(space.written(), 4096 + 512 + 1024 + 512);
    }

    /// L1: what was never written, or is another block's, is no block.
    #[test]
    fn a_block_that_is_not_what_was_written_is_an_error() {
        let space = space(12 << 10);
        let mut bytes = empty_block(BLOCK_MIN);
        bytes.push(9);
        space.write(&mut bytes).expect("room");
        let mut moved = vec![0; BLOCK_MIN as usize];
        terrace_device::read(&*space.spill.device, space.offset(0), &mut moved).expect("it reads");
        terrace_device::write(&*space.spill.device, space.offset(1), &moved).expect("it writes");
        for block in [1, 2] {
            let mut read = Vec::new();
            let error = space.read(block, &mut read);
            assert!(matches!(error, Err(Error::SpillCorrupt { .. })), "{error:?}");
        }
    }
}
