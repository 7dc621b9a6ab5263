//! A rotating disk as a server: its command queue, and which command it takes next.
//!
//! - Q1: the drive sees the oldest `queue_depth` commands; later ones wait in the host.
//! - Q2: a command can start when its overhead is over. Overheads and the data of writes follow one
//!   another, beside the arm, so a queue hides them but cannot beat them.
//! - Q3: queued writes that continue one another are written in one go, and reported together.
//! - Simpler than firmware: a read that the buffer serves waits for the arm like any other.

use terrace_rt::Nanos;

use super::job::{MemberJob, Started};
use super::spec::{DiskSpec, Scheduling};
use crate::disk::{DiskAccess, Drive, WriteReporting};
use crate::{Op, SECTOR_SIZE};

struct Queued {
    job: MemberJob,
    access: DiskAccess,
    arrived: f64,
    /// The overhead is over.
    ready: f64,
    /// The data of a write are in the buffer.
    data_at: f64,
}

/// The queue and the drive.
pub(super) struct DiskServer {
    drive: Drive,
    /// In order of arrival.
    queue: Vec<Queued>,
    scheduling: Scheduling,
    depth: usize,
    /// When the electronics have decoded the last command.
    decoded: f64,
    /// When the arm can start the next command.
    arm_free: f64,
}

impl DiskServer {
    pub(super) fn new(spec: &DiskSpec, bytes: u64, cache: WriteReporting) -> DiskServer {
        assert!(spec.queue_depth > 0, "a disk that accepts no command");
        DiskServer {
            drive: spec.drive(bytes, cache),
            queue: Vec::new(),
            scheduling: spec.scheduling,
            depth: spec.queue_depth,
            decoded: 0.0,
            arm_free: 0.0,
        }
    }

    pub(super) fn push(&mut self, now: Nanos, job: MemberJob) {
        let sector_size = SECTOR_SIZE as u64;
        let access = DiskAccess {
            op: job.op,
            sector: job.offset / sector_size,
            count: job.len / sector_size,
        };
        let now = now.0 as f64;
        let ready = self.decoded.max(now) + self.drive.overhead(now, access);
        let data_at = ready + self.drive.data_time(access);
        self.decoded = data_at;
        self.queue.push(Queued { job, access, arrived: now, ready, data_at });
    }

    pub(super) fn start(&mut self, now: Nanos, started: &mut Started) {
        let now = now.0 as f64;
        while !self.queue.is_empty() && self.arm_free <= now {
            let Some(next) = self.choose(now) else {
                let seen = self.queue.iter().take(self.depth);
                let soonest = seen.map(|queued| queued.ready).fold(f64::INFINITY, f64::min);
                started.ask_again(instant(soonest));
                return;
            };
            let mut queued = self.queue.remove(next);
            let mut merged = vec![queued.job];
            while let Some(follower) = self.follower(now, &queued) {
                let follower = self.queue.remove(follower);
                queued.access.count += follower.access.count;
                queued.data_at = queued.data_at.max(follower.data_at);
                merged.push(follower.job);
            }
            let service = self.drive.serve_decoded(now, queued.data_at, queued.access);
            self.arm_free = service.arm_free;
            merged.into_iter().for_each(|job| started.finish(instant(service.finished), job));
        }
        if !self.queue.is_empty() {
            started.ask_again(instant(self.arm_free));
        }
    }

    /// When all cached writes are on the medium, asked at `now` with an empty queue.
    pub(super) fn flushed_at(&self, now: Nanos) -> Nanos {
        assert!(self.queue.is_empty(), "a flush overtook commands");
        instant(self.drive.flushed_at(now.0 as f64))
    }

    /// A queued write that continues `write` and has arrived.
    fn follower(&self, now: f64, write: &Queued) -> Option<usize> {
        let end = write.access.sector + write.access.count;
        let continues = |queued: &Queued| {
            queued.access.op == Op::Write && queued.access.sector == end && queued.data_at <= now
        };
        let seen = || self.queue.iter().take(self.depth);
        (write.access.op == Op::Write).then(|| seen().position(continues)).flatten()
    }

    fn choose(&mut self, now: f64) -> Option<usize> {
        let seen = self.queue.iter().take(self.depth).enumerate();
        let mut ready = seen.filter(|(_, queued)| queued.ready <= now);
        match self.scheduling {
            Scheduling::Fcfs => ready.next().map(|(index, _)| index),
            Scheduling::ShortestPositioning { aging } => {
                let waiting = ready.map(|(index, queued)| (index, queued.access, queued.arrived));
                self.drive.nearest(now, aging, waiting)
            }
        }
    }
}

/// The first whole nanosecond at or after `at`.
fn instant(at: f64) -> Nanos {
    Nanos(at.ceil() as u64)
}
