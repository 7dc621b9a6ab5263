//! Reading the log back: forward until its end, or one record at a time.
//!
//! - E1: the log ends where no valid record begins: a length that is impossible, a checksum that
//!   does not match for that LSN, or an epoch below the one before. The epoch rises, durably, each
//!   time that the database is opened; so what an earlier opening had written past its durable end
//!   is never taken for what a later one wrote.
//! - E2: a whole record that does not decode is no end of the log but corruption.

use std::ops::Range;

use terrace_device::{Device, read};
use terrace_page::Lsn;

use super::buffer::Aligned;
use super::map::Layout;
use super::record::{self, HEADER_BYTES, RECORD_MAX, Record};
use super::{BLOCK, LogMap};
use crate::{Action, Error, Part};

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Of a reader that goes to and fro.
const SMALL_CHUNK_BYTES: usize = 4 * RECORD_MAX;
const _: () = assert!(CHUNK_BYTES >= 2 * RECORD_MAX);

/// A record with its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'a> {
    /// Where it begins.
    pub(crate) lsn: Lsn,
    /// What it says.
    pub(crate) record: Record<'a>,
}

/// Where a forward scan came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// Where the next record would begin.
    pub(crate) position: Lsn,
    /// The last record, or zero.
    pub(crate) last: Lsn,
}

/// Reads records of a log.
pub(crate) struct LogReader<'d> {
    device: &'d dyn Device,
    map: LogMap,
    /// Positions that `chunk` holds.
    held: Range<u64>,
    chunk: Aligned,
    chunk_bytes: usize,
    /// Where it began.
    pub(super) from: u64,
    at: u64,
    last: Lsn,
    epoch: u32,
    /// No record ends past this.
    limit: u64,
}

impl<'d> LogReader<'d> {
    /// A reader of what lies between `from` and `limit`; `from` must begin a record.
    pub(crate) fn new(device: &'d dyn Device, map: LogMap, from: Lsn, limit: Lsn) -> LogReader<'d> {
        LogReader {
            device,
            map,
            held: 0..0,
            chunk: Aligned::zeroed(CHUNK_BYTES),
            chunk_bytes: CHUNK_BYTES,
            from: from.0,
            at: from.0,
            last: Lsn::ZERO,
            epoch: 0,
            limit: limit.0,
        }
    }

    /// A reader of single records, that reads less at once.
    pub(crate) fn for_single_records(
        device: &'d dyn Device,
        map: LogMap,
        limit: Lsn,
    ) -> LogReader<'d> {
        let chunk_bytes = SMALL_CHUNK_BYTES;
        let chunk = Aligned::zeroed(chunk_bytes);
        LogReader { chunk, chunk_bytes, ..LogReader::new(device, map, limit, limit) }
    }

    /// The next record, or `None` at the end of the log.
    ///
    /// # Errors
    ///
    /// `CorruptLog`, `Device`.
    pub(crate) fn next(&mut self) -> Result<Option<Stored<'_>>, Error> {
        let Some((len, epoch)) = self.check(self.at)? else { return Ok(None) };
        if epoch < self.epoch {
            return Ok(None);
        }
        self.epoch = epoch;
        let lsn = Lsn(self.at);
        self.last = lsn;
        self.at += len as u64;
        self.decode(lsn, len).map(Some)
    }

    /// The record at `lsn`, which must have been seen before.
    ///
    /// # Errors
    ///
    /// `CorruptLog`, `Device`.
    pub(crate) fn at(&mut self, lsn: Lsn) -> Result<Stored<'_>, Error> {
        let Some((len, _)) = self.check(lsn.0)? else {
            return Err(Error::corrupt_log(lsn, "a record is gone that a later one names"));
        };
        self.decode(lsn, len)
    }

    /// Where the scan stands: at the end of the log, once `next` has returned `None`.
    pub(crate) fn end(&self) -> End {
        End { position: Lsn(self.at), last: self.last }
    }

    /// The block that holds `position`, as it is on the device.
    ///
    /// # Errors
    ///
    /// `Device`.
    pub(crate) fn block_at(&mut self, position: Lsn) -> Result<Vec<u8>, Error> {
        let mut block = Aligned::zeroed(BLOCK);
        let base = position.0 / BLOCK as u64 * BLOCK as u64;
        // Of a map that ends here nothing is kept.
        if let Some((at, _)) = self.map.place(base) {
            read(self.device, at, &mut block).map_err(Error::device(Part::Log, Action::Read))?;
        }
        Ok(block.to_vec())
    }

    /// The bytes of the record that `next` returned last.
    pub(crate) fn last_bytes(&self) -> &[u8] {
        let (start, end) = (self.last.0 - self.held.start, self.at - self.held.start);
        &self.chunk[start as usize..end as usize]
    }

    fn decode(&self, lsn: Lsn, len: usize) -> Result<Stored<'_>, Error> {
        let at = (lsn.0 - self.held.start) as usize;
        match record::decode(&self.chunk[at..at + len]) {
            Some(record) => Ok(Stored { lsn, record }),
            None => Err(Error::corrupt_log(lsn, "a whole record makes no sense")),
        }
    }

    /// From now on it reads less at once.
    pub(super) fn read_less(&mut self) {
        self.chunk_bytes = SMALL_CHUNK_BYTES;
    }

    /// No record ends past this.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether the log is a line of segments.
    pub(super) fn is_line(&self) -> bool {
        matches!(self.map.layout, Layout::Line(_))
    }

    /// `len` bytes from `position` on, all before the limit; at most half of a chunk.
    pub(super) fn bytes(&mut self, position: u64, len: usize) -> Result<&[u8], Error> {
        let is_held = self.hold(position, len)?;
        assert!(is_held, "no byte is asked for past the limit");
        Ok(&self.chunk[(position - self.held.start) as usize..][..len])
    }

    /// Length and epoch of the record at `position`, if there is a valid one; it is then held.
    pub(super) fn check(&mut self, position: u64) -> Result<Option<(usize, u32)>, Error> {
        if position + HEADER_BYTES as u64 > self.limit {
            return Ok(None);
        }
        if !self.hold(position, HEADER_BYTES)? {
            return Ok(None);
        }
        let at = (position - self.held.start) as usize;
        let Some(len) = record::claimed_len(&self.chunk[at..]) else { return Ok(None) };
        if position + len as u64 > self.limit {
            return Ok(None);
        }
        if !self.hold(position, len)? {
            return Ok(None);
        }
        let at = (position - self.held.start) as usize;
        let record = &self.chunk[at..at + len];
        Ok(record::verify(record, Lsn(position), self.map.salt).map(|epoch| (len, epoch)))
    }

    /// Makes the chunk hold `len` bytes from `position` on, if the map has them.
    fn hold(&mut self, position: u64, len: usize) -> Result<bool, Error> {
        if self.held.start <= position && position + len as u64 <= self.held.end {
            return Ok(true);
        }
        let block = BLOCK as u64;
        let base = position / block * block;
        let end = (base + self.chunk_bytes as u64).min(self.limit.next_multiple_of(block));
        let bytes = (end - base).min(self.map.bytes()) as usize;
        let mut held = 0;
        for (part, at) in self.map.pieces(base, bytes) {
            held = part.end as u64;
            read(self.device, at, &mut self.chunk[part])
                .map_err(Error::device(Part::Log, Action::Read))?;
        }
        self.held = base..base + held;
        Ok(position + len as u64 <= self.held.end)
    }
}
