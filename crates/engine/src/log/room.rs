//! Room in the log: reserved before it is used, and waited for.
//!
//! - N1: `claimed` is the log's end plus all that is reserved, and stays before `offered`, the end
//!   of what the device has for the log. Reserving is one compare-and-swap on it, so that two tasks
//!   that look at the same time cannot both get the last room.
//! - N2: forward records leave a part of the log alone, the slack, whatever is reserved: nested
//!   actions that need more than was reckoned, and checkpoints, have that.
//! - N3: waiting tasks are woken when the log is cut, and when a reservation is given back.

use std::sync::atomic::Ordering;

use terrace_rt::Nanos;

use super::chain::Link;
use super::map::SEGMENT_BYTES_MIN;
use super::record::Draft;
use super::{BLOCK, Log};
use crate::Error;

/// The blocks of start and end are written and kept whole.
pub(super) const EDGE_BYTES: u64 = 2 * BLOCK as u64;

/// Slack is this fraction of a log.
const SLACK_ONE_IN: u64 = 16;
/// The least slack of a log that grows: a checkpoint, and nested actions that exceed what was
/// reckoned, before it has grown for them.
const SLACK_BYTES_MIN: u64 = 64 << 10;

/// The slack of a line of `bytes`.
pub(super) fn slack_of_line(bytes: u64) -> u64 {
    (bytes / SLACK_ONE_IN).max(SLACK_BYTES_MIN)
}

/// As much slack as a line needs that has `bytes` before it, and is whole units.
pub(super) fn slack_behind(bytes: u64) -> u64 {
    (bytes / (SLACK_ONE_IN - 1) + SEGMENT_BYTES_MIN).max(SLACK_BYTES_MIN)
}

/// Which part of the log a record may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// What is neither reserved nor slack.
    Forward,
    /// The slack too: rollbacks, nested actions under way, checkpoints.
    Reserved,
}

/// A wait for room in the log.
pub(crate) struct RoomWait<'l> {
    log: &'l Log,
}

impl RoomWait<'_> {
    /// See `Signal::seen`.
    pub(crate) fn seen(&self) -> u64 {
        self.log.room.seen()
    }

    /// Waits until room was made since `seen`, but no longer than until `deadline`.
    pub(crate) fn wait_until(&self, seen: u64, deadline: Nanos) {
        let _told = self.log.room.wait_until(seen, deadline);
    }
}

impl Drop for RoomWait<'_> {
    fn drop(&mut self) {
        self.log.room_waiters.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Log {
    /// Part of the log that forward records leave alone, whatever is reserved.
    fn slack(&self) -> u64 {
        let bytes = self.mapped_bytes.load(Ordering::Relaxed);
        if self.is_line { slack_of_line(bytes) } else { bytes / SLACK_ONE_IN }
    }

    /// The most that forward records and what is reserved may have together.
    pub(crate) fn forward_capacity(&self) -> u64 {
        let capacity = self.capacity();
        let slack = if self.is_line { slack_of_line(capacity) } else { capacity / SLACK_ONE_IN };
        capacity.saturating_sub(slack + EDGE_BYTES)
    }

    /// Keeps `bytes` of the log for the caller to append with; returns whether there is room now.
    /// Where a log may grow, `reserve_or_extend` makes some.
    pub(crate) fn try_reserve(&self, bytes: u64, room: Room) -> bool {
        let slack = match room {
            Room::Forward => self.slack(),
            Room::Reserved => 0,
        };
        let more = slack + EDGE_BYTES;
        let fits = |claimed: u64| {
            let end = claimed + bytes + more;
            (end <= self.offered.load(Ordering::Acquire)).then_some(claimed + bytes)
        };
        let Ok(before) = self.claimed.fetch_update(Ordering::SeqCst, Ordering::Acquire, fits)
        else {
            return false;
        };
        // Less may be offered since (growth.W4).
        let is_there = before + bytes + more <= self.offered.load(Ordering::SeqCst);
        if !is_there {
            self.claimed.fetch_sub(bytes, Ordering::AcqRel);
        }
        if self.is_short() {
            self.want_extension();
        }
        is_there
    }

    /// Appends a record of no transaction with what is `reserved`, and takes what that lacks from
    /// `Room::Reserved`.
    pub(crate) fn append_reserved(
        &self,
        draft: &mut Draft,
        reserved: &mut u64,
    ) -> Result<(), Error> {
        self.append_linked(draft, Room::Reserved, reserved, Link::None).map(|_| ())
    }

    /// Gives back what `try_reserve` kept.
    pub(crate) fn unreserve(&self, bytes: u64) {
        // Looked at first: others may reserve and append right after.
        let end = self.end().0;
        let before = self.claimed.fetch_sub(bytes, Ordering::AcqRel);
        debug_assert!(before - bytes >= end, "{bytes} log bytes given back twice");
        self.tell_room();
    }

    /// Bytes that `try_reserve` keeps now, or a moment ago.
    #[inline]
    pub(crate) fn reserved(&self) -> u64 {
        self.claimed.load(Ordering::Relaxed).saturating_sub(self.end().0)
    }

    /// Whether a record of `bytes` finds room beside all that is reserved.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        if self.is_short() {
            self.want_extension();
        }
        self.lacking(bytes) == 0
    }

    /// By how much `bytes` find no room beside all that is reserved.
    pub(crate) fn lacking(&self, bytes: u64) -> u64 {
        let wanted = self.claimed.load(Ordering::Acquire) + bytes + self.slack() + EDGE_BYTES;
        wanted.saturating_sub(self.offered.load(Ordering::Acquire))
    }

    /// The error of an append that wants `wanted_bytes` more than there are.
    pub(super) fn full(&self, link: Link<'_>, wanted_bytes: u64) -> Error {
        Error::LogFull {
            own_bytes: link.own_bytes(),
            rollback_bytes: 0,
            wanted_bytes,
            capacity: self.capacity(),
            is_device_full: self.is_device_full(),
        }
    }

    /// The signal that is given when room is made, while the guard lives. Ask before looking.
    pub(crate) fn wait_room(&self) -> RoomWait<'_> {
        self.room_waiters.fetch_add(1, Ordering::SeqCst);
        RoomWait { log: self }
    }

    pub(super) fn tell_room(&self) {
        if self.room_waiters.load(Ordering::SeqCst) > 0 {
            self.room.notify_all();
        }
    }
}
