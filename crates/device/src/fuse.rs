//! A device that is given up for good the first time it does not answer.
//!
//! A flash tier may vanish, and one that goes silent has: the first request that its time limit
//! ends blows the fuse, and all later ones fail at once. So what must learn of it in turn, page by
//! page, does not wait for the limit each time. Home and log may be slow to read; the first write
//! or sync of theirs that a time limit ends stops the engine, and no task waits for another one.
//!
//! - Z1: a fuse never mends: what the device may have done late is not to be read as its state.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_rt::Nanos;

use crate::device::read_together;
use crate::each::Watched;
use crate::{
    Completion, Counters, Device, DeviceError, IoFailure, Operation, Punched, Reads, Request,
    Ticket,
};

/// See the module.
pub struct Fuse {
    below: Arc<dyn Device>,
    protects: Protects,
    is_blown: AtomicBool,
}

/// What fails once a fuse is blown, and blows it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protects {
    All,
    /// All but reads.
    Writes,
}

impl Fuse {
    /// Over `below`, for all requests.
    #[must_use]
    pub fn new(below: Arc<dyn Device>) -> Arc<Fuse> {
        Fuse::over(below, Protects::All)
    }

    /// Over `below`, for all requests but reads.
    #[must_use]
    pub fn for_writes(below: Arc<dyn Device>) -> Arc<Fuse> {
        Fuse::over(below, Protects::Writes)
    }

    fn over(below: Arc<dyn Device>, protects: Protects) -> Arc<Fuse> {
        Arc::new(Fuse { below, protects, is_blown: AtomicBool::new(false) })
    }

    fn refusal(&self, operation: Operation, range: Option<(u64, u64)>) -> io::Error {
        let source = match self.protects {
            Protects::All => {
                let what = "given up, since it did not answer in time or lost a write";
                io::Error::new(ErrorKind::NotConnected, what)
            }
            Protects::Writes => {
                let what = "the device has not answered in time, an earlier write or sync";
                io::Error::new(ErrorKind::TimedOut, what)
            }
        };
        DeviceError::wrap(self.below.name(), operation, range, source)
    }

    fn refuses(&self, operation: Operation) -> bool {
        self.is_blown.load(Ordering::Acquire)
            && (self.protects == Protects::All || operation != Operation::Read)
    }

    #[cold]
    fn look_at(&self, error: &io::Error) {
        let is_read = || DeviceError::of(error).is_some_and(|it| it.operation == Operation::Read);
        if error.kind() == ErrorKind::TimedOut && (self.protects == Protects::All || !is_read()) {
            self.is_blown.store(true, Ordering::Release);
        }
    }
}

impl Device for Fuse {
    fn len(&self) -> u64 {
        self.below.len()
    }

    unsafe fn submit(&self, requests: &[Request<'_>]) -> Ticket {
        if !requests.iter().any(|request| self.refuses(request.op.operation())) {
            // SAFETY: the caller promises of the buffers what the device below asks.
            return unsafe { self.below.submit(requests) };
        }
        Completion::answered(requests.iter().map(|request| {
            let range = Some((request.offset, request.len()));
            Err(self.refusal(request.op.operation(), range))
        }))
    }

    fn wait(&self, ticket: Ticket) -> Result<(), IoFailure> {
        let is_of_below = ticket.was_asked_below();
        let waited = self.below.wait(ticket);
        waited.inspect_err(|failure| {
            if is_of_below {
                self.look_at(&failure.source);
            }
        })
    }

    unsafe fn psync(&self, requests: &[Request<'_>]) -> Result<(), IoFailure> {
        if requests.iter().any(|request| self.refuses(request.op.operation())) {
            // SAFETY: the caller's promise; nothing is passed on.
            let refused = unsafe { self.submit(requests) };
            return refused.wait();
        }
        // SAFETY: the caller promises of the buffers what the device below asks.
        let done = unsafe { self.below.psync(requests) };
        done.inspect_err(|failure| self.look_at(&failure.source))
    }

    unsafe fn read_each(&self, reads: &mut dyn Reads) {
        if self.refuses(Operation::Read) {
            // SAFETY: the caller's promise; nothing is passed on.
            return unsafe { read_together(self, reads) };
        }
        let mut watched = Watched { reads, look_at: |error: &io::Error| self.look_at(error) };
        // SAFETY: the caller promises of the buffers what the device below asks.
        unsafe { self.below.read_each(&mut watched) }
    }

    fn sync(&self) -> io::Result<()> {
        match self.refuses(Operation::Sync) {
            true => Err(self.refusal(Operation::Sync, None)),
            false => self.below.sync().inspect_err(|error| self.look_at(error)),
        }
    }

    fn write_atomically(&self, len: u64) -> bool {
        self.below.write_atomically(len)
    }

    fn set_time_limit(&self, limit: Nanos) {
        self.below.set_time_limit(limit);
    }

    fn is_given_up(&self) -> bool {
        self.protects == Protects::All && self.is_blown.load(Ordering::Acquire)
    }

    fn give_up(&self) {
        if self.protects == Protects::All {
            self.is_blown.store(true, Ordering::Release);
        }
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.refuses(Operation::Reserve) {
            true => Err(self.refusal(Operation::Reserve, Some((offset, len)))),
            false => self.below.reserve(offset, len).inspect_err(|error| self.look_at(error)),
        }
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        match self.refuses(Operation::Grow) {
            true => Err(self.refusal(Operation::Grow, None)),
            false => self.below.grow(len).inspect_err(|error| self.look_at(error)),
        }
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<Punched> {
        match self.refuses(Operation::Punch) {
            true => Err(self.refusal(Operation::Punch, Some((offset, len)))),
            false => self.below.punch(offset, len).inspect_err(|error| self.look_at(error)),
        }
    }

    fn trim(&self, offset: u64, len: u64) {
        if !self.is_given_up() {
            self.below.trim(offset, len);
        }
    }

    fn release(&self) {
        self.below.release();
    }

    fn name(&self) -> String {
        self.below.name()
    }

    fn is_cached(&self) -> bool {
        self.below.is_cached()
    }

    fn queued(&self) -> usize {
        if self.is_given_up() { 0 } else { self.below.queued() }
    }

    fn counters(&self) -> Counters {
        self.below.counters()
    }
}
