//! Tasks that hold frames and wait for each other's: noticed, and ended by the refusal of one.
//!
//! With few frames for many tasks each may hold a page or two, and need one more.
//!
//! - N1: a partition stands still if each of its frames is latched, none has become free for
//!   `STILL`, and nothing is under way that may free one or give one to its task: no device has a
//!   request of the pool, no page is on its way out, none is being brought up to date.
//! - N2: then one of the tasks that wait is refused, and its operation lets go of the frames that
//!   it has. The next one is refused `STILL_AGAIN` later, if no frame has become free by then.
//! - N3: who latches frames and waits for none (for the log, or in code of a caller) looks the
//!   same. So a refusal may come without need, and only says that the same may succeed later.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use terrace_rt::{Nanos, now};

use crate::BufferPool;
use crate::memory::Memory;
use crate::memory::partition::Partition;

/// How long nothing moves before a task is refused.
const STILL: Nanos = Nanos::from_millis(50);
/// The same shortly after another one was: for `LATELY`.
const STILL_AGAIN: Nanos = Nanos::from_millis(5);
const LATELY: Nanos = Nanos::from_secs(1);
/// Who has waited for less than `STILL` is refused so many times later: a task that tries again at
/// once, as a rollback does, would be refused again and again in place of those who have frames.
const LATER: u64 = 4;

/// What a task that waits for a frame has seen of its partition.
pub(crate) struct Standstill {
    began: Nanos,
    /// The signal of free frames, and since when it is the same.
    room: u64,
    since: Nanos,
}

/// The pool moves pages as long as this lives.
pub(crate) struct AtWork<'p>(&'p AtomicU32);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Standstill {
    pub fn begin(partition: &Partition) -> Standstill {
        let now = now();
        Standstill { began: now, room: partition.room.seen(), since: now }
    }

    /// Whether the caller, which has found no victim, is the one to be refused (N2).
    pub fn refuses(&mut self, pool: &BufferPool, partition: &Partition) -> bool {
        let (room, now) = (partition.room.seen(), now());
        if room != self.room {
            (self.room, self.since) = (room, now);
            return false;
        }
        let refused_at: &AtomicU64 = &partition.refused_at;
        let last = refused_at.load(Ordering::Relaxed);
        let is_lately = last > 0 && now < Nanos(last) + LATELY;
        let is_new = now < self.began + STILL;
        let still = match (is_lately, is_new) {
            (true, false) => STILL_AGAIN,
            (true, true) => STILL_AGAIN * LATER,
            (false, _) => STILL,
        };
        now >= self.since.max(Nanos(last)) + still
            && pool.devices.queued() == 0
            && pool.memory.stands_still(partition)
            && refused_at
                .compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

impl Memory {
    /// Says that pages are on their way, as long as what is returned lives (N1).
    pub(crate) fn at_work(&self) -> AtWork<'_> {
        self.working.fetch_add(1, Ordering::Relaxed);
        AtWork(&self.working)
    }

    /// N1, but for devices and the time.
    fn stands_still(&self, partition: &Partition) -> bool {
        let is_latched = |place| self.frames.try_exclusive(partition.frame_at(place)).is_none();
        self.working.load(Ordering::Relaxed) == 0 && (0..partition.frames_count).all(is_latched)
    }
}
