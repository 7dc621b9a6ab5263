//! A segment that is being written.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use terrace_page::Lsn;

use super::block::{BlockWriter, Item, parts_of};
use super::fences::Fences;
use super::filter::Filter;
use super::room::{Extent, Purpose, Room};
use super::segment::{Body, Segment};
use crate::log::Aligned;
use crate::versions::part::Row;

/// What came of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// The segment has it.
    Done,
    /// It has not, and takes no more: it is as large as it may be, or the file has no more room.
    Full,
}

/// What a new segment may have of memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentMemory {
    /// How many rows it has, about, and the most bytes for their filter.
    pub(super) rows: u64,
    pub(super) filter_bytes: u64,
    /// Bytes that are written at once, about.
    pub(super) buffer_bytes: u64,
}

/// The writer. Entries come in the order of their places (segment.N1).
pub(super) struct SegmentWriter {
    room: Arc<Room>,
    purpose: Purpose,
    number: u64,
    block_bytes: usize,
    extents: Vec<Arc<Extent>>,
    fences: Fences,
    filter: Filter,
    block: BlockWriter,
    /// Whole blocks that are not written yet.
    buffer: Aligned,
    filled: usize,
    written: u64,
    last: (Vec<u8>, Lsn),
    last_end: Lsn,
    entries: u64,
    entry_bytes: u64,
}

impl SegmentWriter {
    /// One that has its first extent; `None` if there is none.
    ///
    /// # Errors
    ///
    /// What the system says of the file.
    pub(super) fn new(
        room: &Arc<Room>,
        purpose: Purpose,
        memory: SegmentMemory,
    ) -> io::Result<Option<SegmentWriter>> {
        let Some(extent) = room.take(purpose)? else { return Ok(None) };
        let block_bytes = room.block_bytes();
        let buffered = (memory.buffer_bytes).min(room.extent_bytes()) as usize;
        Ok(Some(SegmentWriter {
            room: Arc::clone(room),
            purpose,
            number: room.next_segment(),
            block_bytes,
            extents: vec![extent],
            fences: Fences::default(),
            filter: Filter::new(memory.rows, memory.filter_bytes),
            block: BlockWriter::new(block_bytes),
            buffer: Aligned::zeroed((buffered / block_bytes).max(1) * block_bytes),
            filled: 0,
            written: 0,
            last: (Vec::new(), Lsn::ZERO),
            last_end: Lsn::ZERO,
            entries: 0,
            entry_bytes: 0,
        }))
    }

    /// Appends an entry, if there is room.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub(super) fn push(&mut self, key: &[u8], item: Item<'_>) -> io::Result<Pushed> {
        let Item { ended, before } = item;
        let has_room = !self.block.is_empty() && self.block.push(key, ended, before);
        if !has_room {
            if !self.block.is_empty() {
                self.end_block()?;
            }
            if !self.has_next_block()? {
                return Ok(Pushed::Full);
            }
            self.fences.push(key);
            assert!(self.block.push(key, ended, before), "the largest entry fits a block");
        }
        let (tree, own) = parts_of(key);
        if self.entries == 0 || self.last.0 != key {
            self.filter.add(Row::new(tree, own).hash);
            self.last.0.clear();
            self.last.0.extend_from_slice(key);
        }
        self.last.1 = ended;
        self.entries += 1;
        self.last_end = self.last_end.max(ended);
        Ok(Pushed::Done)
    }

    /// Where the next block goes within the segment.
    fn next_block_at(&self) -> u64 {
        self.written + self.filled as u64
    }

    /// Whether there is room for another block, taken if it must be.
    fn has_next_block(&mut self) -> io::Result<bool> {
        let has = self.extents.len() as u64 * self.room.extent_bytes();
        if self.next_block_at() < has {
            return Ok(true);
        }
        if self.extents.len() >= self.room.segment_extents() {
            return Ok(false);
        }
        let taken = self.room.take(self.purpose)?;
        let is_taken = taken.is_some();
        self.extents.extend(taken);
        Ok(is_taken)
    }

    fn end_block(&mut self) -> io::Result<()> {
        let number = self.fences.len() as u64 - 1;
        let out = &mut self.buffer[self.filled..self.filled + self.block_bytes];
        self.entry_bytes += self.block.finish(self.number, number, out) as u64;
        self.filled += self.block_bytes;
        let ends_extent = self.next_block_at().is_multiple_of(self.room.extent_bytes());
        if self.filled == self.buffer.len() || ends_extent {
            self.write()?;
        }
        Ok(())
    }

    /// Writes what is buffered: all of it is in one extent.
    fn write(&mut self) -> io::Result<()> {
        let extent_bytes = self.room.extent_bytes();
        let extent = &self.extents[(self.written / extent_bytes) as usize];
        let at = extent.at() + self.written % extent_bytes;
        self.room.write(at, &self.buffer[..self.filled])?;
        self.written += self.filled as u64;
        self.filled = 0;
        Ok(())
    }

    /// The segment, written. `None` if it has no entry.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub(super) fn finish(mut self) -> io::Result<Option<Segment>> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        if self.filled > 0 {
            self.write()?;
        }
        if self.entries == 0 {
            return Ok(None);
        }
        self.fences.shrink();
        let body = Body {
            number: self.number,
            room: self.room,
            block_bytes: self.block_bytes,
            fences: self.fences,
            filter: self.filter,
            last: self.last,
            last_end: self.last_end,
            entries: self.entries,
            entry_bytes: self.entry_bytes,
            is_bad: AtomicBool::new(false),
        };
        Ok(Some(Segment::new(body, self.extents)))
    }
}
