//! How a log of segments gets longer and shorter.
//!
//! ```text
//!   stream   first     start            end    claimed        offered = mapped
//!            |---------|----------------|------|--------------|
//!            passed    kept             |      reserved  ahead
//! ```
//!
//! - W1: `claimed` and the slack lie before `mapped`: what is reserved has its place on the device
//!   before it is appended, and the header that says so is durable (space.P1, space.P2). So what
//!   was reserved is appended without growth.
//! - W2: a log is extended where room is reserved, by the task that wants it, and ahead of that by
//!   the log writer. First the segments that the start has passed serve again, then the device is
//!   asked. A device without room is a full log, as one at its limit: its users wait, or get an
//!   error.
//! - W3: after a checkpoint the log keeps ahead as much as was used since the one before, or half
//!   of what it kept then if that is more. What is over goes back to the file system.
//!   It never gets shorter than `LINE_BYTES_MIN`.
//! - W4: to get shorter, the log offers less first; if no task has claimed the part that is to go
//!   by then, none can any more. `try_reserve` looks at what is offered again after it has claimed.
//! - W5: once a header could not be written the log has failed, and its room does not change any
//!   more: a task that waited for the one that met the failure checks for it before all else.
//! - Rollbacks and checkpoints may exceed the limit: `Room::Reserved`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_pool::{AreaRoom, DoublewritePlace};

use super::header::{SEGMENTS_MAX, half_bytes_max};
use super::map::{LINE_BYTES_MIN, Line, SEGMENT_BYTES_MIN, Segment};
use super::room::{EDGE_BYTES, slack_behind, slack_of_line};
use super::space::{Holding, LogSpace, blank};
use super::{Log, Room};
use crate::Error;

/// The log writer extends a line of which at most this fraction is left.
const AHEAD_ONE_IN: u64 = 4;

/// What a line of `bytes` keeps ahead of all claims, if it can, for forward records.
fn ahead_bytes(bytes: u64) -> u64 {
    bytes / AHEAD_ONE_IN + slack_of_line(bytes) + EDGE_BYTES
}

/// When a log gets as short as it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settle {
    /// It goes on.
    Running,
    /// It is closed.
    Closing,
}

impl Log {
    /// Reserves `bytes`, and extends the log for that if it has to and can. It may wait for the
    /// device.
    ///
    /// # Errors
    ///
    /// `Failed` if the header cannot be written.
    pub(crate) fn reserve_or_extend(&self, bytes: u64, room: Room) -> Result<bool, Error> {
        loop {
            if self.try_reserve(bytes, room) {
                return Ok(true);
            }
            if !self.extend(bytes, room)? {
                return Ok(false);
            }
        }
    }

    /// Makes the log long enough for `bytes` more (W2). Whether it is.
    ///
    /// # Errors
    ///
    /// `Failed` if the header cannot be written, or could not be.
    pub(crate) fn extend(&self, bytes: u64, room: Room) -> Result<bool, Error> {
        if !self.is_line {
            return Ok(false);
        }
        let mut held = self.space.hold();
        // What is held is not what the header says if that could not be written (W5).
        self.check()?;
        let Some(line) = held.line() else { return Ok(false) };
        let (line, limit) = (Arc::clone(line), self.space.limit());
        let limit = if room == Room::Forward { limit } else { u64::MAX };
        let mut longer = Longer { next: (*line).clone(), fresh: Vec::new(), is_full: false };
        let passed = longer.next.take_before(self.start().0);
        passed.into_iter().for_each(|segment| longer.next.push(segment));
        while !self.fits(&longer.next, bytes, room) && longer.push(&held, &self.space, limit) {}
        if longer.is_full {
            // No more room is to be got until a reservation or the log's front gives some back.
            self.ceiling.store(longer.next.bytes(), Ordering::Release);
        } else {
            self.ceiling.store(self.space.limit(), Ordering::Release);
        }
        if longer.next.segments().len() > SEGMENTS_MAX {
            longer.next.join();
        }
        if longer.next.end() <= line.end() || longer.next.segments().len() > SEGMENTS_MAX {
            held.give_back(&longer.fresh);
            return Ok(self.fits(&line, bytes, room));
        }
        let next = Arc::new(longer.next);
        held.set_line(Arc::clone(&next)).map_err(|error| self.fail(error))?;
        self.publish(&next);
        Ok(self.fits(&next, bytes, room))
    }

    /// Asks a device again that had no room for a log of the length that it may have. Whether it
    /// has got some.
    ///
    /// # Errors
    ///
    /// `Failed` if the header cannot be written.
    #[cold]
    pub(crate) fn look_for_room(&self, bytes: u64) -> Result<bool, Error> {
        if !self.is_device_full() {
            return Ok(false);
        }
        let left = self.offered.load(Ordering::Acquire);
        let left = left.saturating_sub(self.claimed.load(Ordering::Acquire));
        self.extend(left + bytes, Room::Forward)?;
        Ok(!self.is_device_full())
    }

    /// Whether the log may be longer than its device had room for.
    pub(crate) fn is_device_full(&self) -> bool {
        self.is_line && self.ceiling.load(Ordering::Acquire) < self.space.limit()
    }

    /// Whether `bytes` more fit beside all that is claimed on such a line.
    fn fits(&self, line: &Line, bytes: u64, room: Room) -> bool {
        let slack = if room == Room::Forward { slack_of_line(line.bytes()) } else { 0 };
        self.claimed.load(Ordering::Acquire) + bytes + slack + EDGE_BYTES <= line.end()
    }

    /// The line is durable: what is new on it may be used.
    fn publish(&self, line: &Arc<Line>) {
        self.map.lock().layout = super::map::Layout::Line(Arc::clone(line));
        self.mapped_bytes.store(line.bytes(), Ordering::Release);
        self.mapped.store(line.end(), Ordering::Release);
        self.offered.store(line.end(), Ordering::SeqCst);
        self.tell_room();
    }

    /// Whether little is left of a line that may be longer.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        if !self.is_line {
            return false;
        }
        let bytes = self.mapped_bytes.load(Ordering::Relaxed);
        let wanted = self.claimed.load(Ordering::Relaxed) + ahead_bytes(bytes);
        wanted > self.offered.load(Ordering::Relaxed)
            && bytes < self.ceiling.load(Ordering::Relaxed)
    }

    /// Has the log writer extend the line, unless it was told already.
    #[cold]
    pub(super) fn want_extension(&self) {
        if !self.is_extension_wanted.swap(true, Ordering::AcqRel) {
            self.write_wanted.notify_all();
        }
    }

    /// The log writer's: extends the log ahead of the tasks that reserve.
    pub(super) fn extend_ahead(&self) -> Result<(), Error> {
        self.is_extension_wanted.store(false, Ordering::Release);
        if self.is_short() {
            self.extend(self.mapped_bytes.load(Ordering::Relaxed) / AHEAD_ONE_IN, Room::Forward)?;
        }
        Ok(())
    }

    /// After a checkpoint has cut the log: what is not needed any more goes back (W3).
    ///
    /// # Errors
    ///
    /// `Failed` if the header cannot be written.
    pub(crate) fn settle(&self, settle: Settle) -> Result<(), Error> {
        if !self.may_settle.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut held = self.space.hold();
        self.check()?;
        let Some(line) = held.line() else { return Ok(()) };
        let line = Arc::clone(line);
        self.ceiling.store(self.space.limit(), Ordering::Release);
        let end = self.end().0;
        let used = end - self.settled.swap(end, Ordering::Relaxed);
        let demand = used.max(self.demand.load(Ordering::Relaxed) / 2);
        self.demand.store(demand, Ordering::Relaxed);
        let ahead = match settle {
            Settle::Running => demand.min(self.space.limit() / 2),
            Settle::Closing => 0,
        };
        let (mut next, mut cut) = self.shorter(&line, ahead);
        if next.end() < line.end() && !self.offer_less(&next) {
            // A task has claimed it meanwhile.
            next = (*line).clone();
            cut = next.take_before(self.start().0);
        }
        if next == *line || next.segments().len() > SEGMENTS_MAX {
            return Ok(());
        }
        let next = Arc::new(next);
        held.set_line(Arc::clone(&next)).map_err(|error| self.fail(error))?;
        self.publish(&next);
        held.give_back(&cut);
        Ok(())
    }

    /// `line` with `ahead` bytes of room, and the segments that this does not need.
    fn shorter(&self, line: &Line, ahead: u64) -> (Line, Vec<Segment>) {
        let start = self.start().0;
        let (mut next, mut cut) = (line.clone(), Vec::new());
        let passed = next.take_before(start);
        // A little over is not worth a change of the header.
        let little = ahead.max(SEGMENT_BYTES_MIN);
        let least = start + LINE_BYTES_MIN;
        let mut front = Vec::new();
        if start.saturating_sub(next.first()) >= little || next.end() < least {
            front = next.cut_before(start);
        }
        let filled = self.claimed.load(Ordering::Acquire) + EDGE_BYTES + ahead;
        let slack = slack_behind(filled - next.first());
        let wanted = (filled + slack).max(least);
        for segment in passed {
            if next.end() < wanted {
                next.push(segment);
            } else {
                cut.push(segment);
            }
        }
        for piece in front {
            // A device that has given it away may have no room for another one.
            if next.end() < least {
                next.push(piece);
            } else {
                cut.push(piece);
            }
        }
        if next.end() >= wanted + little {
            cut.extend(next.cut_after(wanted));
        }
        (next, cut)
    }

    /// W4. Whether the rest of the line can go.
    fn offer_less(&self, next: &Line) -> bool {
        let before = self.offered.swap(next.end(), Ordering::SeqCst);
        let claimed = self.claimed.load(Ordering::SeqCst);
        let is_free = claimed + slack_of_line(next.bytes()) + EDGE_BYTES <= next.end();
        if !is_free {
            self.offered.store(before, Ordering::SeqCst);
        }
        is_free
    }

    /// The opening is through, and what it has written is on the devices.
    ///
    /// # Errors
    ///
    /// `Device` if a copy of the header cannot be written: the next change would go over the other
    /// one, which may be the only one that is whole.
    pub(crate) fn begin_settling(&self) -> Result<(), Error> {
        if let Err(error) = self.space.tidy() {
            self.fail(Error::clone(&error));
            return Err(error);
        }
        self.may_settle.store(true, Ordering::Release);
        Ok(())
    }
}

/// A line on its way to be longer.
struct Longer {
    next: Line,
    fresh: Vec<Segment>,
    /// The device has no room.
    is_full: bool,
}

impl Longer {
    /// Pushes another segment, if there may be one: as long as the line, within bounds.
    fn push(&mut self, held: &Holding<'_>, space: &LogSpace, limit: u64) -> bool {
        let bytes = self.next.bytes().max(LINE_BYTES_MIN);
        let left = limit.saturating_sub(self.next.bytes());
        let whole = left / SEGMENT_BYTES_MIN * SEGMENT_BYTES_MIN;
        let mut bytes = (1 << bytes.ilog2()).min(space.segment_max()).min(whole);
        while bytes >= SEGMENT_BYTES_MIN {
            if let Some(segment) = held.find_room(&self.fresh, bytes) {
                self.next.push(segment);
                self.fresh.push(segment);
                return true;
            }
            self.is_full = true;
            bytes = bytes / 2 / SEGMENT_BYTES_MIN * SEGMENT_BYTES_MIN;
        }
        false
    }
}

impl AreaRoom for Log {
    /// An area four times as large, as far as it may grow.
    fn larger(&self, area: DoublewritePlace) -> std::io::Result<Option<DoublewritePlace>> {
        let mut held = self.space.hold();
        self.check().map_err(std::io::Error::other)?;
        let half_bytes = (4 * area.half_bytes).min(half_bytes_max(self.space.limit()));
        if held.line().is_none() || held.area() != area || half_bytes <= area.half_bytes {
            return Ok(None);
        }
        let Some(range) = held.find_room(&[], 2 * half_bytes) else { return Ok(None) };
        let place = DoublewritePlace { at: range.at, half_bytes };
        let moved = blank(&*self.device, range).and_then(|()| held.set_area(place));
        match moved {
            Ok(()) => Ok(Some(place)),
            Err(error) => Err(std::io::Error::other(self.fail(error))),
        }
    }

    fn may_grow(&self) -> bool {
        self.is_line && self.may_settle.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests;
