//! A file or a block device as a `Device`: io_uring where the kernel allows it, `preadv` and
//! `pwritev` elsewhere.
//!
//! ```text
//!                     task on an executor        any other thread
//!   Method::Uring     ring of the executor       a read: ring of the thread, waited for at once
//!                                                another request: positioned, at once
//!                                                more: handed to an executor's ring
//!                     a group (`psync`), on any thread: a ring of the device, one system call
//!                                                reads one by one (`each`): a ring of the device
//!   Method::Positioned    at once, inside `submit`; nothing overlaps
//! ```
//!
//! - F1: one opener at a time, or any number that only read: the file is locked (`flock`, shared by
//!   readers) while the device lives, and no longer:
//!   it is unlocked, not only closed, since a request that the kernel has yet to put away, or a
//!   process that another thread is starting, still holds the file open.
//! - F2: with `direct` the page cache is never used; what cannot be opened so is refused. Buffers
//!   that direct I/O cannot use are copied through aligned ones.
//! - F3: memory that the kernel was given stays borrowed until the request is complete: a ticket
//!   that is dropped waits for it, even while its task is unwound.
//! - F4: after a failed sync every later sync fails too: the kernel may have dropped what it could
//!   not write, and says so only once (Rebello et al., "Can Applications Recover from fsync
//!   Failures?", USENIX ATC 2020). So there is one sync at a time, too.
//! - F5: what opening made and could not finish, for want of room say, it takes away again.
//! - F6: a fork of the process that opened a device shares its lock, and cannot use the device: its
//!   requests fail, and dropping the device there does not unlock it.
//! - F7: under a time limit requests move their bytes through memory of their own, or write from
//!   memory that they have a share in, until the kernel has answered, however late; so a wait may
//!   end before that. What may block in a system call does so on a thread of its own. The file
//!   stays locked until the last answer. A file in memory (tmpfs) has no limit: no device serves
//!   it.
//!
//! Offsets are multiples of 512 bytes; a device with larger logical blocks answers with an error to
//! requests that are not multiples of its own.

mod atomic;
mod each;
pub(crate) mod gauge;
mod group;
mod held;
pub(crate) mod job;
mod open;
mod opening;
mod own_ring;
mod refused;
mod ring;
mod shared;
mod space;
mod spare;
pub(crate) mod syncs;
mod transfer;
mod unanswered;

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rt::{Nanos, World};
use terrace_rt as rt;

pub use self::held::Holder;
pub use self::open::{FileClaim, Room};
pub use self::refused::{OpenError, Refusal};

use self::atomic::Cut;
use self::group::{Ended, Group};
use self::job::Job;
use self::opening::Opening;
use self::ring::Ring;
use self::shared::Shared;
use self::transfer::{PIECES_MAX, Transfer};
use crate::completion::Completion;
use crate::device::read_together;
use crate::failure::Released;
use crate::{
    Counters, Device, IoFailure, Op, PSYNC_GROUP_MAX, Punched, Reads, Request, SECTOR_SIZE, Ticket,
};

/// How requests reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// `Uring` where the kernel allows it and the file is on a drive: FUSE would block in it, and a
    /// file in memory (tmpfs) has nothing to wait for. Else `Positioned`.
    #[default]
    Auto,
    /// Asynchronous requests through the ring of each executor.
    Uring,
    /// One blocking system call for each request.
    Positioned,
}

/// What an opener may do with a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Read and write: no other process has it open.
    #[default]
    ReadWrite,
    /// Read only, beside other readers: it needs no permission to write, and every write fails.
    ReadOnly,
}

/// How to open a file as a device.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Length of the device in bytes, a multiple of 512; none takes the whole file. A file that is
    /// shorter is an error, unless `create` lets it grow.
    pub size: Option<u64>,
    /// Make the file if there is none, and let it grow to `size`.
    pub create: bool,
    /// How requests reach the kernel.
    pub method: Method,
    /// Bypass the page cache (`O_DIRECT`), or fail.
    pub direct: bool,
    /// What the opener may do.
    pub access: Access,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        let access = Access::ReadWrite;
        FileOptions { size: None, create: false, method: Method::Auto, direct: true, access }
    }
}

/// A file or a block device.
pub struct FileDevice(Opening);

impl FileDevice {
    /// Opens the file or block device at `path`, and locks it.
    ///
    /// # Errors
    ///
    /// With the path and what to do: not there, in use by another opener, too short, no direct I/O
    /// on its file system, no io_uring for this process.
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> io::Result<FileDevice> {
        open::open(path.as_ref(), options)
    }

    fn new(shared: Shared) -> FileDevice {
        FileDevice(Opening(Arc::new(shared)))
    }

    /// The method in use: never `Auto`.
    #[must_use]
    pub fn method(&self) -> Method {
        self.0.method
    }

    /// The path it was opened with.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Does what moves no bytes, and waits for it.
    fn do_alone(&self, job: Job, range: (u64, u64)) -> io::Result<()> {
        let completion = self.0.completion(1, job, Some(range));
        let ticket = completion.ticket();
        self.0.gauge.start(1);
        let at = Request { op: Op::Write, offset: range.0, bufs: &[], owner: None };
        start(&self.0, Transfer::new(&self.0, &completion, 0, job, &at));
        ticket.wait().map_err(|failure| failure.source)
    }

    /// Bytes of room that the file has; `None` if its file system does not answer in time.
    fn room(&self) -> Option<u64> {
        let shared = Arc::clone(&self.0);
        let bytes = move || shared.file.metadata().ok().map(|it| it.blocks() * SECTOR_SIZE as u64);
        match self.0.is_limited() {
            true => rt::within(self.0.time_limit.get(), bytes).flatten(),
            false => bytes(),
        }
    }

    /// Counts a batch as outstanding.
    fn begin(&self, requests: &[Request<'_>], parts: &Cut) -> Arc<Completion> {
        requests.iter().for_each(|request| request.validate(self.len()));
        let first = &requests[0];
        let range = Some((first.offset, first.len()));
        let parts = match parts.is_on() {
            true => requests.iter().map(|request| parts.of(request).count()).sum(),
            false => requests.len(),
        };
        let completion = self.0.completion(parts, Job::of(first.op), range);
        self.0.gauge.start(parts);
        completion
    }

    /// The transfers of a batch.
    fn transfers(
        &self,
        requests: &[Request<'_>],
        completion: &Arc<Completion>,
        parts: Cut,
    ) -> impl Iterator<Item = Transfer> {
        requests.iter().enumerate().flat_map(move |(index, request)| {
            let job = Job::of(request.op);
            let transfer =
                move |part| Transfer::of_part(&self.0, completion, (index, job), request, part);
            parts.of(request).map(transfer)
        })
    }

    /// Whether rings can take requests now.
    fn has_rings(&self) -> bool {
        self.0.method == Method::Uring
            && !World::current().is_virtual()
            && !self.0.is_forked()
            && !self.0.released.load(Ordering::Acquire)
    }

    /// Whether a ring can take the group as one.
    fn takes_group(&self, requests: &[Request<'_>]) -> bool {
        self.has_rings()
            && requests.len() <= PSYNC_GROUP_MAX
            && requests.iter().all(|request| request.bufs.len() <= PIECES_MAX)
            && !(self.0.atomic.is_on() && requests.iter().any(|it| it.op == Op::Write))
    }
}

fn start(shared: &Shared, transfer: Transfer) {
    if shared.is_forked() {
        let what = "the process that opened it was forked: open it after the fork";
        return transfer.refuse(io::Error::other(what));
    }
    if shared.released.load(Ordering::Acquire) {
        return transfer.refuse(Released::error());
    }
    let mut transfer = Some(transfer);
    if shared.method == Method::Uring {
        rt::reactor(Ring::of_executor, |ring| ring.start(transfer.take().expect("started once")));
    }
    match transfer {
        // A system call that never returns must not take its caller with it.
        Some(transfer) if !World::current().is_virtual() => start_here(shared, transfer),
        Some(transfer) => transfer.run_here(),
        None => (),
    }
}

/// Starts a transfer of a thread that is no executor.
fn start_here(shared: &Shared, transfer: Transfer) {
    let left = match shared.method == Method::Uring && !rt::on_executor() {
        true => own_ring::read_here(transfer),
        false => Some(transfer),
    };
    if let Some(transfer) = left {
        transfer.run_aside();
    }
}

impl Device for FileDevice {
    fn len(&self) -> u64 {
        self.0.len.load(Ordering::Acquire)
    }

    unsafe fn submit(&self, requests: &[Request<'_>]) -> Ticket {
        let parts = self.0.atomic.cut();
        let completion = self.begin(requests, &parts);
        let ticket = completion.ticket();
        let transfers = self.transfers(requests, &completion, parts);
        let asynchronous = self.0.method == Method::Uring && requests.len() > 1;
        if asynchronous
            && !self.0.is_forked()
            && !rt::on_executor()
            && !World::current().is_virtual()
        {
            // This thread has no ring: a task of the default world uses its own.
            let shared = Arc::clone(&self.0);
            let transfers: Vec<_> = transfers.collect();
            let hand_over = move || transfers.into_iter().for_each(|each| start(&shared, each));
            drop(World::current().spawn("file requests", hand_over));
        } else {
            transfers.for_each(|transfer| start(&self.0, transfer));
        }
        ticket
    }

    unsafe fn psync(&self, requests: &[Request<'_>]) -> Result<(), IoFailure> {
        let ring = if self.takes_group(requests) { self.0.groups.take() } else { None };
        let Some(ring) = ring else {
            // SAFETY: the caller's promise; the ticket is waited for.
            let ticket = unsafe { self.submit(requests) };
            return self.wait(ticket);
        };
        let parts = self.0.atomic.cut();
        let completion = self.begin(requests, &parts);
        let ticket = completion.ticket();
        let transfers = self.transfers(requests, &completion, parts);
        match Group::new(ring, transfers.collect()).run(|| completion.wait_for()) {
            Ended::Answered(ring) => ring.into_iter().for_each(|it| self.0.groups.give_back(it)),
            Ended::Late(group) => Arc::clone(&self.0.helpers).run(move || group.run_out()),
        }
        self.wait(ticket)
    }

    unsafe fn read_each(&self, reads: &mut dyn Reads) {
        // The calling thread reads by itself; an executor has a ring, and other tasks.
        let reads_here = self.has_rings() && !rt::on_executor();
        let ring = if reads_here { self.0.groups.take() } else { None };
        match ring {
            // SAFETY: the caller's promise.
            Some(ring) => unsafe { self.read_through(ring, reads) },
            // SAFETY: the caller's promise.
            None => unsafe { read_together(self, reads) },
        }
    }

    fn sync(&self) -> io::Result<()> {
        let synced = self.0.syncs.run(|| {
            let completion = self.0.completion(1, Job::Sync, None);
            let ticket = completion.ticket();
            self.0.gauge.start(1);
            let empty = Request { op: Op::Write, offset: 0, bufs: &[], owner: None };
            start(&self.0, Transfer::new(&self.0, &completion, 0, Job::Sync, &empty));
            ticket.wait().map_err(|failure| failure.source)
        });
        synced.unwrap_or_else(|| {
            let source = io::Error::other("an earlier sync failed; reopen");
            Err(self.0.explain(Job::Sync, (0, 0), source))
        })
    }

    /// By `fallocate`. A block device has all its room; a file system that knows no reservations
    /// promises nothing.
    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        assert!(len > 0 && offset + len <= self.len(), "a range of the device");
        match self.do_alone(Job::Reserve { len }, (offset, len)) {
            Err(source) if source.kind() == ErrorKind::Unsupported => Ok(()),
            done => done,
        }
    }

    /// By `ftruncate` and `fsync`: a file is sparse where it has grown.
    fn grow(&self, len: u64) -> io::Result<()> {
        let found = self.len();
        if len <= found {
            return Ok(());
        }
        assert!(len.is_multiple_of(SECTOR_SIZE as u64), "{len} bytes are not whole sectors");
        let (job, range) = (Job::Grow { len }, (found, len - found));
        if self.0.is_fixed {
            return Err(self.0.explain(job, range, ErrorKind::Unsupported.into()));
        }
        self.do_alone(job, range)?;
        self.0.len.fetch_max(len, Ordering::AcqRel);
        Ok(())
    }

    /// By `fallocate`. A block device has all its room for good. What others write into the same
    /// file meanwhile makes the bytes fewer.
    fn punch(&self, offset: u64, len: u64) -> io::Result<Punched> {
        assert!(len > 0 && offset + len <= self.len(), "a range of the device");
        if self.0.is_block_device {
            return Ok(Punched::Kept);
        }
        let before = self.room();
        match self.do_alone(Job::Punch { len }, (offset, len)) {
            Ok(()) => {
                let freed = before.and_then(|before| Some(before.saturating_sub(self.room()?)));
                Ok(Punched::Freed { bytes: freed.unwrap_or(0).min(len) })
            }
            Err(source) if source.kind() == ErrorKind::Unsupported => Ok(Punched::Kept),
            Err(source) => Err(source),
        }
    }

    fn release(&self) {
        self.0.release();
    }

    /// By `RWF_ATOMIC`, where the drive and the file system offer it for this file.
    fn write_atomically(&self, len: u64) -> bool {
        len <= SECTOR_SIZE as u64 || self.0.atomic.keep(len)
    }

    fn set_time_limit(&self, limit: Nanos) {
        self.0.time_limit.set(limit);
    }

    fn name(&self) -> String {
        self.0.path.display().to_string()
    }

    fn is_cached(&self) -> bool {
        !self.0.direct
    }

    fn queued(&self) -> usize {
        self.0.gauge.queued()
    }

    fn counters(&self) -> Counters {
        self.0.gauge.counters()
    }
}

#[cfg(test)]
mod tests;
