//! Tasks that hold frames and wait for each other's: noticed, and ended by the refusal of one.
//!
//! With few frames for many tasks each may hold a page or two, and need one more.
//!
//! - N1: a partition stands still if each of its frames is latched, none has become free for
//!   `STILL`, and nothing is under way that may free one or give one to its task: no device has a
//!   request of the pool, no page is on its way out, none is being brought up to date.
//! - N2: then the task that has waited longest is refused, and its operation lets go of the frames
//!   that it has. The next one is refused `STILL_AGAIN` later, if no frame has become free by then.
//!   In this order all who wait are refused once before any is twice, so those who have frames have
//!   their turn, whatever the others try again meanwhile.
//! - N3: who latches frames and waits for none (for the log, or in code of a caller) looks the
//!   same. So a refusal may come without need, and only says that the same may succeed later.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use terrace_rt::{LeafMutex, Nanos, now};

use crate::BufferPool;
use crate::memory::Memory;
use crate::memory::partition::Partition;

/// How long nothing moves before a task is refused.
const STILL: Nanos = Nanos::from_millis(50);
/// The same shortly after another one was: for `LATELY`.
const STILL_AGAIN: Nanos = Nanos::from_millis(5);
const LATELY: Nanos = Nanos::from_secs(1);

/// The tasks that wait for a frame of a partition.
#[derive(Debug, Default)]
pub(crate) struct Waiting(LeafMutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// Numbers of the waiting, those that came first in front.
    tickets: VecDeque<u64>,
    next: u64,
    refused_at: Option<Nanos>,
}

/// A task in the queue, and what it has seen of its partition.
pub(crate) struct Standstill<'p> {
    partition: &'p Partition,
    ticket: u64,
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

impl Drop for Standstill<'_> {
    fn drop(&mut self) {
        self.partition.waiting.0.lock().tickets.retain(|&ticket| ticket != self.ticket);
    }
}

impl<'p> Standstill<'p> {
    /// Takes a place at the end of the queue.
    pub fn begin(partition: &'p Partition) -> Standstill<'p> {
        let mut queue = partition.waiting.0.lock();
        let ticket = queue.next;
        queue.next += 1;
        queue.tickets.push_back(ticket);
        Standstill { partition, ticket, room: partition.room.seen(), since: now() }
    }

    /// Whether the caller, which has found no victim, is the one to be refused (N2).
    pub fn refuses(&mut self, pool: &BufferPool) -> bool {
        let (room, now) = (self.partition.room.seen(), now());
        if room != self.room {
            (self.room, self.since) = (room, now);
            return false;
        }
        let mut queue = self.partition.waiting.0.lock();
        let lately = queue.refused_at.filter(|&last| now < last + LATELY);
        let still_at = match lately {
            Some(last) => self.since.max(last) + STILL_AGAIN,
            None => self.since + STILL,
        };
        let refuses = queue.tickets.front() == Some(&self.ticket)
            && now >= still_at
            && pool.devices.queued() == 0
            && pool.memory.stands_still(self.partition);
        if refuses {
            queue.refused_at = Some(now);
        }
        refuses
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
