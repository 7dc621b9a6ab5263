//! Making room in memory: victims in batches, by tasks that need a frame and by a background task.
//!
//! - V1: what becomes free at once (clean, and not admitted to flash) costs one lock section for
//!   the whole batch. What must be written is written together, in one batch per device.
//! - V2: a task that needs a frame stops gathering as soon as it has one; it writes one victim at
//!   most. The background task gathers `evict_batch` of them, and sleeps while every partition has
//!   a few free frames.
//! - V3: where the design appends to flash, victims gather in groups (`append`).
//! - V4: a task that finds no victim waits for a frame to be freed, and gives up after `PATIENCE`,
//!   or if the tasks that hold the frames wait in turn (N1).
//! - V5: where pages are copied beside the log before they are written home, a task writes up to
//!   `SHIELDED_VICTIMS` with its own, so that they share one barrier.
//!
//! With few frames and many tasks, each task may hold a page or two and need one more. Such a
//! deadlock is detected, and ended by refusing one task (`AllPinned`).
//!
//! - N1: a partition stands still if each of its frames is latched, none has become free for
//!   `STILL`, and nothing is under way that may free one or give one to its task: no device has a
//!   request of the pool, no page is on its way out, none is being brought up to date.
//! - N2: then the task that has waited longest is refused, and its operation releases its frames.
//!   The next one is refused `STILL_AGAIN` later, if no frame has become free by then. In this
//!   order each waiting task is refused once before any is refused twice, so tasks that hold frames
//!   have their turn, even if the others try again meanwhile.
//! - N3: a task that latches frames and waits for something else (for the log, or in code of a
//!   caller) looks the same. So a task may be refused without need: the error only says that the
//!   same operation may succeed later.

use std::cell::RefCell;
use std::collections::VecDeque;

use terrace_page::PageId;
use terrace_rt::{LeafMutex, Nanos, now};
use terrace_tier::{Purpose, Way};

use crate::devices::Devices;
use crate::flow::append::{Appended, append_victims, appends};
use crate::flow::write_out::{Job, write_out};
use crate::memory::Section;
use crate::memory::{Memory, Partition, PolicyFrames};
use crate::{BufferPool, PoolError};

/// Victims that one lock section looks at, at most.
const VICTIMS_MAX: usize = 16;
/// Batches of victims for one reading ahead, at most.
const ROUNDS_MAX: u32 = 4;
/// How long a task waits for a frame before it reports that all are pinned.
const PATIENCE: Nanos = Nanos(20_000_000_000);
/// How long a task waits before it looks for victims again.
const NAP: Nanos = Nanos(1_000_000);
/// The most victims written with one barrier (V5), and at most one eighth of the frames.
const SHIELDED_VICTIMS: usize = 16;
const FRAMES_PER_VICTIM: usize = 8;
/// How long a partition stands still before a task is refused (N1).
const STILL: Nanos = Nanos::from_millis(50);
/// The same, for `LATELY` after another task was refused (N2).
const STILL_AGAIN: Nanos = Nanos::from_millis(5);
const LATELY: Nanos = Nanos::from_secs(1);

/// How many victims to gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quota {
    /// Stop when this many frames are free.
    free: usize,
    /// Stop when this many are to be written.
    writes: usize,
}

/// Returns when the partition had a free frame.
///
/// # Errors
///
/// `AllPinned`, or why no victim could be written.
pub(crate) fn make_room(pool: &BufferPool, partition: &Partition) -> Result<(), PoolError> {
    let deadline = now() + PATIENCE;
    let mut standstill = None;
    loop {
        let seen = partition.room.seen();
        let writes = writes_together(pool, partition, 1);
        let freed = evict(pool, partition, Quota { free: 1, writes })?;
        if freed > 0 || !partition.books.lock().free.is_empty() {
            return Ok(());
        }
        // A stopped pool writes nothing, so changed pages never leave.
        pool.durability.check_writable()?;
        let standstill = standstill.get_or_insert_with(|| Standstill::begin(partition));
        if now() >= deadline || standstill.refuses(&pool.memory, &pool.devices) {
            return Err(PoolError::AllPinned);
        }
        let nap = now() + NAP;
        partition.room.wait_until(seen, if nap < deadline { nap } else { deadline });
    }
}

/// Tries to have a free frame for each of `pages`, together. Call it with nothing in flight.
pub(crate) fn make_room_for(pool: &BufferPool, pages: &[PageId]) {
    let mut wanted = vec![0_usize; pool.memory.partitions.len()];
    for &page in pages {
        wanted[pool.memory.partition_number(page)] += 1;
    }
    for (partition, wanted) in pool.memory.partitions.iter().zip(wanted) {
        for _ in 0..ROUNDS_MAX {
            let missing = wanted.saturating_sub(partition.books.lock().free.len());
            let writes = missing.min(pool.config.evict_batch as usize);
            let quota = Quota { free: missing, writes };
            if missing == 0 || evict(pool, partition, quota).is_err() {
                break;
            }
        }
    }
}

/// Keeps a few frames free in every partition: the life of the background evictor.
pub(crate) fn run_evictor(pool: &BufferPool) {
    let BufferPool { memory, background, .. } = pool;
    while !background.is_closing() {
        let seen = memory.frames_wanted.seen();
        let mut freed = 0;
        for partition in &memory.partitions {
            let wanted = 2 * partition.free_frames_low();
            let missing = wanted.saturating_sub(partition.books.lock().free.len());
            if missing > 0 && !background.is_closing() {
                let writes = missing.min(pool.config.evict_batch as usize);
                let writes = writes_together(pool, partition, writes);
                // A task that needs a frame meets the same error, and reports it.
                freed += evict(pool, partition, Quota { free: missing, writes }).unwrap_or(0);
            }
        }
        if freed == 0 {
            memory.frames_wanted.wait(seen);
        }
    }
}

/// How many victims to write together: `wanted`, or more if each batch waits for a barrier of the
/// log's device (V5).
fn writes_together(pool: &BufferPool, partition: &Partition, wanted: usize) -> usize {
    let most = SHIELDED_VICTIMS.min(partition.frames_count as usize / FRAMES_PER_VICTIM);
    if pool.durability.shielded_pages() == usize::MAX { wanted } else { wanted.max(most) }
}

/// Frees frames of one partition; returns how many.
fn evict(pool: &BufferPool, partition: &Partition, quota: Quota) -> Result<usize, PoolError> {
    if appends(pool)
        && let Appended::Freed(freed) = append_victims(pool, partition, quota.free)?
    {
        return Ok(freed);
    }
    let (freed, jobs) = Section::enter(pool, partition).gather(quota);
    pool.cleaning.tell_wanted();
    if freed > 0 {
        partition.room.notify_all();
    }
    if jobs.is_empty() {
        return Ok(freed);
    }
    // Frames are free already; the next task that writes a victim reports the error.
    match write_out(pool, jobs, Purpose::Evict) {
        Ok(written) => Ok(freed + written),
        Err(_) if freed > 0 => Ok(freed),
        Err(error) => Err(error),
    }
}

impl<'p> Section<'p> {
    /// Chooses victims: frees those that need no write, and returns the others.
    fn gather(mut self, quota: Quota) -> (usize, Vec<Job<'p>>) {
        let (mut freed, mut jobs) = (0, Vec::new());
        let (memory, partition) = (&self.pool.memory, self.partition);
        let frames = PolicyFrames {
            partition,
            frames: &memory.frames,
            takes_dirty: !self.pool.durability.is_stopped(),
            passed_over: RefCell::new(Vec::new()),
        };
        for _ in 0..VICTIMS_MAX {
            if freed >= quota.free || jobs.len() >= quota.writes {
                break;
            }
            let Some(victim) = self.books.name_victim(&frames, memory.now()) else { break };
            let Some(guard) = memory.try_victim(partition, victim) else {
                frames.passed_over.borrow_mut().push(victim);
                continue;
            };
            match self.plan(&guard, Purpose::Evict) {
                Way::Busy => frames.passed_over.borrow_mut().push(victim),
                Way::Nothing => {
                    memory.evicted(partition, &mut self.books, guard, false);
                    freed += 1;
                }
                Way::Write(writing, _) => {
                    let page = guard.frame().page().expect("a victim has a page");
                    jobs.push(Job { partition, page, guard, writing });
                }
            }
        }
        (freed, jobs)
    }
}

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
    fn refuses(&mut self, memory: &Memory, devices: &Devices) -> bool {
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
            && devices.queued() == 0
            && memory.stands_still(self.partition);
        if refuses {
            queue.refused_at = Some(now);
        }
        refuses
    }
}
