//! A segment: a piece of a run, written once.
//!
//! ```text
//! memory   fences: the first key of each block | filter
//! file     block 0 | block 1 | ...                in extents, which need not be neighbours
//! ```
//!
//! - N1: entries are in the order of whole key and end of the change: their *place*.
//! - N2: a merge writes a segment at a time. Once one is written, what it was made of is cut off the
//!   segments that were read: these are replaced by ones that begin at the next place. Blocks in
//!   front of that are read no more, and their extents are given back once no reader has the
//!   segment as it was.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_page::Lsn;

use super::block::{Block, Cursor, Item};
use super::cache::Cache;
use super::chunk::{Chunk, Spilled, Wanted};
use super::fences::Fences;
use super::filter::Filter;
use super::room::{Extent, Room};
use crate::versions::part::Row;

/// Where an entry is in its run: its whole key, and where its change ended.
pub(super) type Place<'p> = (&'p [u8], Lsn);

/// What never changes of a segment.
pub(super) struct Body {
    pub(super) number: u64,
    pub(super) room: Arc<Room>,
    pub(super) block_bytes: usize,
    pub(super) fences: Fences,
    pub(super) filter: Filter,
    /// Its last place.
    pub(super) last: (Vec<u8>, Lsn),
    /// The last of its changes ended here.
    pub(super) last_end: Lsn,
    pub(super) entries: u64,
    /// Bytes of its entries.
    pub(super) entry_bytes: u64,
    /// Reading it has failed: it is not merged.
    pub(super) is_bad: AtomicBool,
}

/// A segment, or what a merge has left of it.
#[derive(Clone)]
pub(super) struct Segment {
    body: Arc<Body>,
    /// Those of its extents from the first one on that is needed.
    extents: Vec<Arc<Extent>>,
    extents_gone: usize,
    /// What is in front of this place is in another run (N2).
    from: Option<(Vec<u8>, Lsn)>,
    /// The first block that has anything from there on.
    first_block: usize,
}

impl Segment {
    pub(super) fn new(body: Body, extents: Vec<Arc<Extent>>) -> Segment {
        Segment { body: Arc::new(body), extents, extents_gone: 0, from: None, first_block: 0 }
    }

    /// Bytes of the file.
    pub(super) fn file_bytes(&self) -> u64 {
        self.extents.len() as u64 * self.body.room.extent_bytes()
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        let own = size_of::<Segment>() + size_of::<Body>() + self.body.last.0.len();
        let extents = self.extents.len() * (size_of::<Extent>() + 3 * size_of::<usize>());
        own + extents + self.body.fences.memory() + self.body.filter.memory()
    }

    pub(super) fn filter_memory(&self) -> usize {
        self.body.filter.memory()
    }

    pub(super) fn entries(&self) -> u64 {
        self.body.entries
    }

    pub(super) fn entry_bytes(&self) -> u64 {
        self.body.entry_bytes
    }

    pub(super) fn last_end(&self) -> Lsn {
        self.body.last_end
    }

    pub(super) fn is_bad(&self) -> bool {
        self.body.is_bad.load(Ordering::Relaxed)
    }

    pub(super) fn first_key(&self) -> &[u8] {
        self.body.fences.key(0)
    }

    pub(super) fn last_key(&self) -> &[u8] {
        &self.body.last.0
    }

    pub(super) fn blocks(&self) -> usize {
        self.body.fences.len()
    }

    pub(super) fn first_block(&self) -> usize {
        self.first_block
    }

    /// The first key of a block.
    pub(super) fn fence(&self, block: usize) -> &[u8] {
        self.body.fences.key(block)
    }

    /// The block in which keys from `key` on begin, at the earliest.
    pub(super) fn first_with(&self, key: &[u8]) -> usize {
        self.body.fences.first_with(key).max(self.first_block)
    }

    /// The block behind the last one that begins with a key that is `before` something.
    pub(super) fn end(&self, before: impl Fn(&[u8]) -> bool) -> usize {
        self.body.fences.count(before).max(self.first_block)
    }

    /// What is left of it from `place` on; `None` if that is nothing (N2).
    pub(super) fn from(&self, place: Place<'_>) -> Option<Segment> {
        if (&self.body.last.0[..], self.body.last.1) < place {
            return None;
        }
        let first_block = self.first_with(place.0);
        let block_at = first_block as u64 * self.body.block_bytes as u64;
        let gone = (block_at / self.body.room.extent_bytes()) as usize;
        Some(Segment {
            body: Arc::clone(&self.body),
            extents: self.extents[gone - self.extents_gone..].to_vec(),
            extents_gone: gone,
            from: Some((place.0.to_vec(), place.1)),
            first_block,
        })
    }

    /// Whether what is at a place is in this segment, and not in another run.
    pub(super) fn has(&self, place: Place<'_>) -> bool {
        self.from.as_ref().is_none_or(|(key, ended)| place >= (&key[..], *ended))
    }

    /// # Errors
    ///
    /// What the device says; `InvalidData` if the block is not what was written.
    pub(super) fn read(&self, block: usize) -> io::Result<Block> {
        let size = self.body.block_bytes as u64;
        let extent_bytes = self.body.room.extent_bytes();
        let at = block as u64 * size;
        let extent = &self.extents[(at / extent_bytes) as usize - self.extents_gone];
        let bytes = self.body.room.read(extent.at() + at % extent_bytes, size as usize)?;
        Block::verified(bytes, self.body.number, block as u64)
    }

    /// As `read`, for a merge, which does not try again what has failed.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub(super) fn read_to_merge(&self, block: usize) -> io::Result<Block> {
        self.read(block).inspect_err(|_| self.body.is_bad.store(true, Ordering::Relaxed))
    }

    fn cached(&self, block: usize, cache: &Cache) -> io::Result<Arc<Block>> {
        cache.block((self.body.number, block), || self.read(block))
    }

    /// The next entry of a block that is in this segment.
    fn next<'b>(&self, block: &'b Block, cursor: &mut Cursor) -> io::Result<Option<Item<'b>>> {
        while let Some(item) = cursor.next(block)? {
            if self.has((cursor.key(), item.ended)) {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    /// What a snapshot at `at` sees of `row`, whose whole key is `key`, if it is here.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub(super) fn find(
        &self,
        at: Lsn,
        (row, key): (&Row<'_>, &[u8]),
        cache: &Cache,
    ) -> io::Result<Option<Spilled>> {
        let is_left = self.has((key, Lsn::MAX));
        if !is_left || self.last_end() < at || !self.body.filter.may_have(row.hash) {
            return Ok(None);
        }
        for number in self.first_with(key)..self.blocks() {
            if self.fence(number) > key {
                break;
            }
            let block = self.cached(number, cache)?;
            let mut cursor = block.cursor();
            while let Some(item) = self.next(&block, &mut cursor)? {
                if cursor.key() > key {
                    return Ok(None);
                }
                if cursor.key() == key && item.ended >= at {
                    return Ok(Some((item.ended, item.before.map(<[u8]>::to_vec))));
                }
            }
        }
        Ok(None)
    }

    /// Puts to `chunk` what a snapshot at `at` sees of the rows of a block in a range; bytes of
    /// that.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub(super) fn put(
        &self,
        block: usize,
        (at, wanted): (Lsn, &Wanted<'_>),
        cache: &Cache,
        chunk: &mut Chunk,
    ) -> io::Result<usize> {
        let mut bytes = 0;
        let block = self.cached(block, cache)?;
        let mut cursor = block.cursor();
        while let Some(item) = self.next(&block, &mut cursor)? {
            if item.ended >= at && wanted.has(cursor.key()) {
                bytes += chunk.put(cursor.key(), item.ended, item.before);
            }
        }
        Ok(bytes)
    }
}
