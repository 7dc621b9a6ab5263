//! The log of a copy: records of another log, with the positions that they had there.
//!
//! - N1: the header comes last. Until then the device holds no log.

use std::ops::Range;
use std::sync::Arc;

use terrace_device::Device;
use terrace_page::Lsn;

use super::BLOCK;
use super::header::{self, LogShape, Table};
use super::map::{Layout, Line, LogMap, SEGMENT_BYTES_MIN, Segment};
use super::room::EDGE_BYTES;
use crate::{Action, Error, Part};

/// A log is made longer by so many bytes at once.
const STEP_BYTES: u64 = 16 << 20;
/// What a line has behind its end: a record that an opening appends finds room there.
const AHEAD_BYTES: u64 = 1 << 20;
/// Of a ring, records of the copy may take all but this part.
const FREE_ONE_IN: u64 = 4;

/// A log that is being made.
pub(crate) struct NewLog {
    database: u128,
    table: Table,
    map: LogMap,
    /// Where the stream begins, a multiple of `BLOCK`.
    first: u64,
}

impl NewLog {
    /// The log of `database`, whose first record is at `first`.
    ///
    /// # Errors
    ///
    /// `InvalidOption`.
    pub(crate) fn new(
        device: &dyn Device,
        shape: LogShape,
        database: u128,
        first: Lsn,
    ) -> Result<NewLog, Error> {
        let table = match shape {
            LogShape::Fixed => Table::ring(device.len())?,
            LogShape::Growing => Table::line(first),
        };
        let map = LogMap::new(table.layout.clone(), database);
        Ok(NewLog { database, table, map, first: first.0 / BLOCK as u64 * BLOCK as u64 })
    }

    /// Part of each record's checksum.
    pub(crate) fn salt(&self) -> u64 {
        self.map.salt
    }

    /// Makes room for the stream up to `to`.
    ///
    /// # Errors
    ///
    /// `InvalidOption` if a log of fixed size is too small; `Device`.
    pub(crate) fn extend(&mut self, device: &dyn Device, to: Lsn) -> Result<(), Error> {
        let wanted = to.0 - self.first;
        match &self.table.layout {
            Layout::Ring(ring) if wanted + EDGE_BYTES > ring.bytes - ring.bytes / FREE_ONE_IN => {
                let what = "the log of the backup does not fit in three quarters of that: give \
                    more, or a log that grows";
                Err(Error::InvalidOption { option: "log_size", what })
            }
            Layout::Line(line) if wanted > line.bytes() => {
                self.set_line(device, wanted.next_multiple_of(STEP_BYTES))
            }
            _ => Ok(()),
        }
    }

    /// Makes a line of one segment of `bytes`.
    fn set_line(&mut self, device: &dyn Device, bytes: u64) -> Result<(), Error> {
        let Layout::Line(line) = &self.table.layout else { return Ok(()) };
        let segment = Segment { at: line.segments()[0].at, bytes };
        let end = segment.at + bytes;
        if device.len() < end {
            device.grow(end).map_err(Error::device(Part::Log, Action::Grow))?;
        }
        let line = Line::new(self.first, vec![segment], end).expect("a sound line");
        self.table.layout = Layout::Line(Arc::new(line));
        self.map = LogMap::new(self.table.layout.clone(), self.database);
        Ok(())
    }

    /// Where `len` bytes from `position` on lie: see `LogMap::pieces`.
    pub(crate) fn pieces(
        &self,
        position: u64,
        len: usize,
    ) -> impl Iterator<Item = (Range<usize>, u64)> {
        self.map.pieces(position, len)
    }

    /// The records end at `end`, and are written: makes them a log, durably.
    ///
    /// # Errors
    ///
    /// `Device`.
    pub(crate) fn finish(mut self, device: &dyn Device, end: Lsn) -> Result<(), Error> {
        let bytes = (end.0 - self.first + AHEAD_BYTES).next_multiple_of(SEGMENT_BYTES_MIN);
        self.set_line(device, bytes)?;
        let needed = self.table.ranges().into_iter().filter_map(Segment::end).max().unwrap_or(0);
        let reserved = device.reserve(0, needed);
        reserved.map_err(Error::device(Part::Log, Action::Reserve))?;
        let sync = || device.sync().map_err(Error::device(Part::Log, Action::Sync));
        sync()?;
        header::write_new(device, &self.table, self.database)?;
        sync()
    }
}
