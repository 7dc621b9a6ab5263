//! What the requests to a file keep alive: the file with its lock, and what all of them ask.
//!
//! Its rules are those of the folder.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rt::{Helpers, LeafMutex, Nanos};
use terrace_rt as rt;

use super::Method;
use super::atomic::AtomicWrites;
use super::gauge::Gauge;
use super::group::Groups;
use super::job::Job;
use super::spare::Spare;
use super::syncs::Syncs;
use super::unanswered::Unanswered;
use crate::time_limit::TimeLimit;
use crate::{Completion, DeviceError, Drain, IoBuf};

/// One batch in this number of a device that never waits ends with a turn of the other tasks.
const GIVES_WAY_ONE_IN: u64 = 16;

/// What the requests in flight keep alive.
pub(super) struct Shared {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) len: AtomicU64,
    pub(super) is_block_device: bool,
    /// It was opened as a device of this length, or cannot have another one.
    pub(super) is_fixed: bool,
    pub(super) method: Method,
    /// Its requests are done in the call that makes them, and no device is asked.
    pub(super) never_waits: bool,
    /// The batches that it has had, if it never waits.
    pub(super) batches: AtomicU64,
    /// The page cache is bypassed.
    pub(super) direct: bool,
    /// Alignment of memory for direct I/O, in bytes; 1 if the page cache is used, or is the file.
    pub(super) memory_align: usize,
    /// Which writes are atomic.
    pub(super) atomic: AtomicWrites,
    /// The process that opened it.
    pub(super) owner: u32,
    pub(super) gauge: Gauge,
    /// What runs system calls that may never return (file.F7).
    pub(super) helpers: Arc<Helpers>,
    pub(super) identity: (u64, u64),
    /// It was closed with requests outstanding.
    pub(super) unanswered: LeafMutex<Option<Unanswered>>,
    pub(super) syncs: Syncs,
    /// Idle rings for groups of requests.
    pub(super) groups: Groups,
    /// Memory for requests that own theirs.
    pub(super) spare: Spare,
    /// Its lock was given up: it is not ours any more.
    pub(super) released: AtomicBool,
    pub(super) time_limit: Arc<TimeLimit>,
}

impl Shared {
    /// Whether waits are bounded: then the memory of all that is in flight is its own (file.F7).
    pub(super) fn is_limited(&self) -> bool {
        self.time_limit.is_on() && !self.never_waits
    }

    pub(super) fn completion(
        &self,
        requests: usize,
        job: Job,
        range: Option<(u64, u64)>,
    ) -> Arc<Completion> {
        match self.is_limited() {
            true => Completion::within(&self.time_limit, requests, job.operation(), range),
            false => Completion::with_drain(requests, Arc::new(self.driver())),
        }
    }

    /// Of one more batch. A task that never waits for its device, and so has its executor to
    /// itself, lets others run now and then.
    fn driver(&self) -> Driver {
        let gives_way = self.never_waits
            && rt::on_executor()
            && self.batches.fetch_add(1, Ordering::Relaxed).is_multiple_of(GIVES_WAY_ONE_IN);
        Driver { gives_way }
    }

    /// Whether this is a fork of the process that opened it, which has the file, its lock and its
    /// contents alone (file.F6).
    pub(super) fn is_forked(&self) -> bool {
        std::process::id() != self.owner
    }

    /// Adds to `source` what was tried, and where.
    pub(super) fn explain(&self, job: Job, range: (u64, u64), source: io::Error) -> io::Error {
        let (operation, device) = (job.operation(), self.path.display().to_string());
        let range = (job != Job::Sync).then_some(range);
        DeviceError::wrap(device, operation, range, source)
    }

    /// Whether direct I/O needs a copy of `bufs`.
    pub(super) fn must_copy(&self, bufs: &[IoBuf]) -> bool {
        let align = self.memory_align;
        !bufs.iter().all(|buf| buf.ptr().addr().is_multiple_of(align) && buf.len() % align == 0)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.is_forked() {
            // If it fails the lock goes with the file's last holder.
            let _unlocked = self.file.unlock();
        }
    }
}

/// Completes requests for a ticket that is dropped.
struct Driver {
    gives_way: bool,
}

impl Drain for Driver {
    fn drain(&self, completion: &Completion) {
        const LOOK_AGAIN: Nanos = Nanos::from_millis(1);
        while !completion.is_done() {
            rt::drive_reactor(LOOK_AGAIN);
        }
    }

    fn gives_way(&self) -> bool {
        self.gives_way
    }
}
