//! What an overlay has been sent: blocks of 4 KiB, in memory up to a limit, then in a file.
//!
//! ```text
//! number of a block --> entry:  valid   bit i: sector i of the block was written here
//!                               place   memory, or a position in the file
//! ```
//!
//! - B1: a sector whose bit is not set was never written; the device below has it.
//! - B2: a block keeps its place: memory is handed out first, and what no longer fits goes to the
//!   file, block by block, each at a position of its own.
//! - B3: the file has no name, so that it vanishes with the process, however that ends.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{SECTOR_SIZE, nameless};

/// Bytes of a block.
pub(super) const BLOCK: usize = 8 * SECTOR_SIZE;
/// All sectors of a block.
const WHOLE: u8 = u8::MAX;

const _: () = assert!(BLOCK / SECTOR_SIZE == u8::BITS as usize);

/// Memory for what overlays were sent, which several of them may share.
#[derive(Debug)]
pub struct OverlayMemory {
    limit: u64,
    used: AtomicU64,
}

impl OverlayMemory {
    /// At most `bytes`, rounded down to whole blocks of 4 KiB. None is taken before it is needed.
    #[must_use]
    pub fn new(bytes: u64) -> Arc<OverlayMemory> {
        Arc::new(OverlayMemory { limit: bytes, used: AtomicU64::new(0) })
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn take_block(&self) -> bool {
        let more = |used: u64| Some(used + BLOCK as u64).filter(|&more| more <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

enum Place {
    Memory(Box<[u8; BLOCK]>),
    /// The position in the file, in blocks.
    File(u64),
}

struct Entry {
    valid: u8,
    place: Place,
}

/// How much of a range was written here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coverage {
    Nothing,
    Some,
    All,
}

/// The blocks of one overlay.
pub(super) struct Blocks {
    memory: Arc<OverlayMemory>,
    entries: BTreeMap<u64, Entry>,
    file: Option<File>,
    file_blocks: u64,
}

/// A part of a range that lies in one block.
struct Piece {
    block: u64,
    /// First byte, within the block and within the range.
    from: usize,
    start: usize,
    len: usize,
}

impl Piece {
    /// The bits of its sectors.
    fn bits(&self) -> u8 {
        let sectors = self.len / SECTOR_SIZE;
        let ones = if sectors == u8::BITS as usize { WHOLE } else { (1 << sectors) - 1 };
        ones << (self.from / SECTOR_SIZE)
    }
}

/// The pieces of `len` bytes at `offset`, in order.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut start = 0;
    std::iter::from_fn(move || {
        (start < len).then(|| {
            let at = offset + start as u64;
            let from = (at % BLOCK as u64) as usize;
            let piece = Piece {
                block: at / BLOCK as u64,
                from,
                start,
                len: (BLOCK - from).min(len - start),
            };
            start += piece.len;
            piece
        })
    })
}

impl Blocks {
    pub(super) fn new(memory: &Arc<OverlayMemory>) -> Blocks {
        let memory = Arc::clone(memory);
        Blocks { memory, entries: BTreeMap::new(), file: None, file_blocks: 0 }
    }

    /// How much of `len` bytes at `offset` is here.
    pub(super) fn coverage(&self, offset: u64, len: usize) -> Coverage {
        let (first, end) = (offset / BLOCK as u64, (offset + len as u64).div_ceil(BLOCK as u64));
        if self.entries.range(first..end).next().is_none() {
            return Coverage::Nothing;
        }
        let (mut any, mut all) = (false, true);
        for piece in pieces(offset, len) {
            let valid = self.entries.get(&piece.block).map_or(0, |entry| entry.valid);
            any |= valid & piece.bits() != 0;
            all &= valid & piece.bits() == piece.bits();
        }
        match (any, all) {
            (false, _) => Coverage::Nothing,
            (true, false) => Coverage::Some,
            (true, true) => Coverage::All,
        }
    }

    /// Puts what is here of the range at `offset` over `bytes`.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub(super) fn read_over(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        for piece in pieces(offset, bytes.len()) {
            let Some(entry) = self.entries.get(&piece.block) else { continue };
            for sector in (0..piece.len).step_by(SECTOR_SIZE) {
                let from = piece.from + sector;
                if entry.valid & 1 << (from / SECTOR_SIZE) == 0 {
                    continue;
                }
                let to = &mut bytes[piece.start + sector..][..SECTOR_SIZE];
                match &entry.place {
                    Place::Memory(block) => to.copy_from_slice(&block[from..][..SECTOR_SIZE]),
                    Place::File(at) => {
                        let file = self.file.as_ref().expect("a block is in it");
                        file.read_exact_at(to, at * BLOCK as u64 + from as u64)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Keeps `bytes` as what stands at `offset`.
    ///
    /// # Errors
    ///
    /// Those of the file: then some of the range is here, some is as it was.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for piece in pieces(offset, bytes.len()) {
            let place = match self.entries.get_mut(&piece.block) {
                Some(entry) => &mut entry.place,
                None => {
                    let place = self.new_place()?;
                    let entry = Entry { valid: 0, place };
                    &mut self.entries.entry(piece.block).or_insert(entry).place
                }
            };
            let new = &bytes[piece.start..][..piece.len];
            match place {
                Place::Memory(block) => block[piece.from..][..piece.len].copy_from_slice(new),
                Place::File(at) => {
                    let file = self.file.as_ref().expect("a block is in it");
                    file.write_all_at(new, *at * BLOCK as u64 + piece.from as u64)?;
                }
            }
            let entry = self.entries.get_mut(&piece.block).expect("just found or made");
            entry.valid |= piece.bits();
        }
        Ok(())
    }

    fn new_place(&mut self) -> io::Result<Place> {
        if self.memory.take_block() {
            return Ok(Place::Memory(Box::new([0; BLOCK])));
        }
        if self.file.is_none() {
            self.file = Some(nameless::file(&std::env::temp_dir())?);
        }
        let at = self.file_blocks;
        self.file_blocks += 1;
        Ok(Place::File(at))
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let in_memory = self.entries.values();
        let in_memory = in_memory.filter(|entry| matches!(entry.place, Place::Memory(_))).count();
        self.memory.used.fetch_sub((in_memory * BLOCK) as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

    use super::*;

    const LEN: usize = 40 * BLOCK;

    /// Against a model that keeps every byte, and whether it was written.
    #[test]
    fn blocks_agree_with_their_model() {
        for (seed, limit) in (0..60).zip([0, 5 * BLOCK as u64, u64::MAX].into_iter().cycle()) {
            let memory = OverlayMemory::new(limit);
            let mut blocks = Blocks::new(&memory);
            let mut model: Vec<Option<u8>> = vec![None; LEN];
            let mut prng = Prng::from_seed(seed);
            for _ in 0..200 {
                let first = prng.below((LEN / SECTOR_SIZE) as u64) as usize;
                let most = (LEN / SECTOR_SIZE - first).min(40) as u64;
                let range = first * SECTOR_SIZE..(first + 1 + prng.below(most) as usize) * 512;
                if prng.chance(3) {
                    let bytes: Vec<u8> = range.clone().map(|_| prng.next_u64() as u8).collect();
                    blocks.write(range.start as u64, &bytes).expect("room");
                    let new = bytes.into_iter().map(Some);
                    model.splice(range.clone(), new);
                }
                let mut read = vec![7; range.len()];
                blocks.read_over(range.start as u64, &mut read).expect("readable");
                let expected: Vec<u8> =
                    model[range.clone()].iter().map(|b| b.unwrap_or(7)).collect();
                assert!(read == expected, "seed {seed}");
                let written = model[range.clone()].iter().filter(|b| b.is_some()).count();
                let coverage = match written {
                    0 => Coverage::Nothing,
                    all if all == range.len() => Coverage::All,
                    _ => Coverage::Some,
                };
                assert_eq!(blocks.coverage(range.start as u64, range.len()), coverage);
                assert!(memory.used() <= limit);
            }
            assert_eq!(blocks.file.is_some(), limit != u64::MAX, "spilled past the limit");
            drop(blocks);
            assert_eq!(memory.used(), 0);
        }
    }
}
