//! Room in the log: reserved before it is used, and waited for.
//!
//! - N1: `claimed` is the log's end plus all that is reserved. Reserving is one compare-and-swap on
//!   it, so that two who look at the same time cannot both have the last room.
//! - N2: forward records leave a part of the ring alone, the slack, whatever is reserved: nested
//!   actions that need more than was reckoned, and checkpoints, have that.
//! - N3: whoever waits is told when the log is cut, and when a reservation is given back.

use std::sync::atomic::Ordering;

use terrace_rt::Nanos;

use super::{BLOCK, Log};

/// The blocks of start and end are written and kept whole.
pub(super) const EDGE_BYTES: u64 = 2 * BLOCK as u64;

/// Which part of the ring a record may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// What is neither reserved nor slack.
    Forward,
    /// The slack too: rollbacks, nested actions under way, checkpoints.
    Reserved,
}

/// Somebody waits for room in the log.
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
    /// Part of the ring that forward records leave alone, whatever is reserved.
    fn slack(&self) -> u64 {
        self.ring.capacity / 16
    }

    /// The most that forward records and what is reserved may have together.
    pub(crate) fn forward_capacity(&self) -> u64 {
        self.ring.capacity.saturating_sub(self.slack() + EDGE_BYTES)
    }

    /// Keeps `bytes` of the ring for whoever asks, to append with; whether there is room.
    pub(crate) fn try_reserve(&self, bytes: u64, room: Room) -> bool {
        let slack = match room {
            Room::Forward => self.slack(),
            Room::Reserved => 0,
        };
        let fits = |claimed: u64| {
            // The start only rises, so what fits now does when the swap succeeds.
            let used = claimed.saturating_sub(self.start.load(Ordering::Acquire));
            (used + bytes + slack + EDGE_BYTES <= self.ring.capacity).then_some(claimed + bytes)
        };
        self.claimed.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
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
        self.lacking(bytes) == 0
    }

    /// By how much `bytes` find no room beside all that is reserved.
    pub(crate) fn lacking(&self, bytes: u64) -> u64 {
        let used = self.claimed.load(Ordering::Acquire).saturating_sub(self.start().0);
        (used + bytes + self.slack() + EDGE_BYTES).saturating_sub(self.ring.capacity)
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
