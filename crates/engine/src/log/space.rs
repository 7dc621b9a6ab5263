//! The room of a log on its device, and the header that tells of it.
//!
//! - P1: what the header is about to name has room that the device has promised, and its length is
//!   durable. So a full file system is met before a record needs the room.
//!   What a place of the doublewrite area holds is durable, too, before the header names it.
//! - P2: the header is durable, in both copies, before what is new in it is used, and before what
//!   it does not name any more is given back (header.G1).
//! - P3: one task at a time changes it. It may wait for the device, and for nothing else.

use std::sync::Arc;

use terrace_device::{Device, write};
use terrace_pool::{DoublewritePlace, HALF_BYTES_MIN};
use terrace_rt::{Mutex, MutexGuard};

use super::header::{self, BLOCK, HEADERS_BYTES, Header, Table, area_range};
use super::map::{Layout, Line, LogMap, SEGMENT_BYTES_MIN, Segment, free_place};
use crate::{Action, Error, Part};

/// The largest segment of a log whose limit does not ask for larger ones.
const SEGMENT_BYTES_MAX: u64 = 16 << 20;
/// About the number of segments of a line that is as long as it may be.
const SEGMENTS_AIM: u64 = 128;

/// The room of a log.
pub(crate) struct LogSpace {
    device: Arc<dyn Device>,
    database: u128,
    /// The most bytes of all segments together; rollbacks and recovery may exceed it.
    limit: u64,
    state: Mutex<State>,
}

struct State {
    table: Table,
    /// That of the newer copy, which lies at this number modulo two blocks.
    sequence: u64,
    /// A copy is bad, or says something older.
    is_stale: bool,
}

/// The right to change the room.
pub(crate) struct Holding<'s> {
    space: &'s LogSpace,
    state: MutexGuard<'s, State>,
}

impl LogSpace {
    /// The room that `header` tells of, which may grow to `limit`.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        database: u128,
        header: &Header,
        limit: u64,
    ) -> LogSpace {
        let mut table = header.table.clone();
        if let Layout::Line(_) = table.layout {
            table.limit = limit;
        }
        let is_stale = header.stale.is_some() || table.limit != header.table.limit;
        let state = State { table, sequence: header.sequence, is_stale };
        LogSpace { device, database, limit, state: Mutex::new(state) }
    }

    /// How long the log may be.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// How large a segment may be.
    pub(crate) fn segment_max(&self) -> u64 {
        let large = (self.limit / SEGMENTS_AIM).checked_next_power_of_two().unwrap_or(1 << 62);
        let usual = 1 << (self.limit / 64).max(1).ilog2();
        large.max(SEGMENT_BYTES_MAX).min(usual.max(large)).max(SEGMENT_BYTES_MIN)
    }

    pub(crate) fn map(&self) -> LogMap {
        LogMap::new(self.state.lock().table.layout.clone(), self.database)
    }

    pub(crate) fn hold(&self) -> Holding<'_> {
        Holding { space: self, state: self.state.lock() }
    }

    /// Makes the doublewrite area of a log that grows as small as it was at first: for an opening,
    /// which has made home whole, and has written nothing home since.
    ///
    /// # Errors
    ///
    /// `Device`.
    pub(crate) fn shrink_area(&self) -> Result<DoublewritePlace, Error> {
        let mut held = self.hold();
        let area = held.state.table.area;
        if held.line().is_none() || area.half_bytes == HALF_BYTES_MIN {
            return Ok(area);
        }
        let area = DoublewritePlace { half_bytes: HALF_BYTES_MIN, ..area };
        held.commit(Table { area, ..held.state.table.clone() })?;
        Ok(area)
    }

    /// Makes both copies of the header say the same, and gives back what they do not name: for an
    /// opening that is through.
    ///
    /// # Errors
    ///
    /// `Device` if the header cannot be written. What is not given back is used again.
    pub(crate) fn tidy(&self) -> Result<(), Error> {
        let mut held = self.hold();
        if held.state.is_stale {
            let table = held.state.table.clone();
            held.commit(table)?;
        }
        if held.line().is_none() {
            return Ok(());
        }
        let mut used = held.state.table.ranges();
        used.sort_unstable();
        let mut at = HEADERS_BYTES;
        let end = Segment { at: self.device.len(), bytes: 0 };
        for range in used.into_iter().chain([end]) {
            if range.at > at {
                held.give_back(&[Segment { at, bytes: range.at - at }]);
            }
            at = at.max(range.at + range.bytes);
        }
        Ok(())
    }
}

impl Holding<'_> {
    /// The line, of a log that grows.
    pub(crate) fn line(&self) -> Option<&Arc<Line>> {
        match &self.state.table.layout {
            Layout::Line(line) => Some(line),
            Layout::Ring(_) => None,
        }
    }

    pub(crate) fn area(&self) -> DoublewritePlace {
        self.state.table.area
    }

    /// What the header names.
    #[cfg(test)]
    pub(crate) fn table_ranges(&self) -> Vec<Segment> {
        self.state.table.ranges()
    }

    /// A place for `bytes` that is apart from all that the header names and from what is `taken`,
    /// with room that the device has promised; none if it has none (P1).
    pub(crate) fn find_room(&self, taken: &[Segment], bytes: u64) -> Option<Segment> {
        let mut used = self.state.table.ranges();
        used.extend_from_slice(taken);
        let at = free_place(HEADERS_BYTES, &mut used, bytes);
        let device = &self.space.device;
        let found = device.len();
        let grown = if at + bytes > found { device.grow(at + bytes) } else { Ok(()) };
        // A device that cannot grow, or has no room, is full.
        grown.and_then(|()| device.reserve(at, bytes)).ok().map(|()| Segment { at, bytes })
    }

    /// Has the header name these segments instead (P2).
    ///
    /// # Errors
    ///
    /// `Device`: then either header may be on the device.
    pub(crate) fn set_line(&mut self, line: Arc<Line>) -> Result<(), Error> {
        self.commit(Table { layout: Layout::Line(line), ..self.state.table.clone() })
    }

    /// Has the header name another doublewrite area.
    ///
    /// # Errors
    ///
    /// As `set_line`.
    pub(crate) fn set_area(&mut self, area: DoublewritePlace) -> Result<(), Error> {
        let old = area_range(&self.state.table.area);
        self.commit(Table { area, ..self.state.table.clone() })?;
        self.give_back(&[old]);
        Ok(())
    }

    /// Gives back ranges that the header does not name any more.
    pub(crate) fn give_back(&self, ranges: &[Segment]) {
        for range in ranges {
            // What is not given back is free all the same. If the device does not answer, it is
            // not written any more either.
            let _kept = self.space.device.punch(range.at, range.bytes);
        }
    }

    fn commit(&mut self, table: Table) -> Result<(), Error> {
        self.state.table = table;
        self.write_copy()?;
        self.write_copy()?;
        self.state.is_stale = false;
        Ok(())
    }

    /// Writes the older copy anew, and syncs.
    fn write_copy(&mut self) -> Result<(), Error> {
        let device = &*self.space.device;
        self.state.sequence += 1;
        let sequence = self.state.sequence;
        let block = header::encode(&self.state.table, self.space.database, sequence);
        let at = header::copy_at(sequence);
        write(device, at, &block).map_err(Error::device(Part::Log, Action::Write))?;
        device.sync().map_err(Error::device(Part::Log, Action::Sync))
    }
}

/// Fills a range with zeroes, and syncs: nothing that lay there is taken for something new.
///
/// # Errors
///
/// `Device`.
pub(crate) fn blank(device: &dyn Device, range: Segment) -> Result<(), Error> {
    let zeroes = super::Aligned::zeroed((range.bytes as usize).min(64 * BLOCK));
    for at in (range.at..range.at + range.bytes).step_by(zeroes.len()) {
        let len = zeroes.len().min((range.at + range.bytes - at) as usize);
        write(device, at, &zeroes[..len]).map_err(Error::device(Part::Log, Action::Write))?;
    }
    device.sync().map_err(Error::device(Part::Log, Action::Sync))
}
