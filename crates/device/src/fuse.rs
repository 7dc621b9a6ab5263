//! A device that is given up for good the first time it does not answer.
//!
//! A flash tier may vanish, and one that goes silent has: the first request that its time limit
//! ends blows the fuse, and all later ones fail at once. So what must learn of it in turn, page by
//! page, does not wait for the limit each time.
//!
//! - Z1: a fuse never mends: what the device may have done late is not to be read as its state.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_rt::Nanos;

use crate::{Completion, Counters, Device, DeviceError, IoFailure, Operation, Request, Ticket};

/// See the module.
pub struct Fuse {
    below: Arc<dyn Device>,
    is_blown: AtomicBool,
}

impl Fuse {
    /// Over `below`.
    #[must_use]
    pub fn new(below: Arc<dyn Device>) -> Arc<Fuse> {
        Arc::new(Fuse { below, is_blown: AtomicBool::new(false) })
    }

    fn refusal(&self, operation: Operation, range: Option<(u64, u64)>) -> io::Error {
        let what = "given up, since it did not answer in time or lost a write";
        let source = io::Error::new(ErrorKind::NotConnected, what);
        DeviceError::wrap(self.below.name(), operation, range, source)
    }

    fn look_at(&self, error: &io::Error) {
        if error.kind() == ErrorKind::TimedOut {
            self.is_blown.store(true, Ordering::Release);
        }
    }
}

impl Device for Fuse {
    fn len(&self) -> u64 {
        self.below.len()
    }

    unsafe fn submit(&self, requests: &[Request<'_>]) -> Ticket {
        if !self.is_given_up() {
            // SAFETY: the caller promises of the buffers what the device below asks.
            return unsafe { self.below.submit(requests) };
        }
        let completion = Completion::new(requests.len());
        let ticket = completion.ticket();
        for (index, request) in requests.iter().enumerate() {
            let range = Some((request.offset, request.len()));
            completion.finish(index, Err(self.refusal(request.op.operation(), range)));
        }
        ticket
    }

    fn wait(&self, ticket: Ticket) -> Result<(), IoFailure> {
        let waited = self.below.wait(ticket);
        waited.inspect_err(|failure| self.look_at(&failure.source))
    }

    fn sync(&self) -> io::Result<()> {
        match self.is_given_up() {
            true => Err(self.refusal(Operation::Sync, None)),
            false => self.below.sync().inspect_err(|error| self.look_at(error)),
        }
    }

    fn set_time_limit(&self, limit: Nanos) {
        self.below.set_time_limit(limit);
    }

    fn is_given_up(&self) -> bool {
        self.is_blown.load(Ordering::Acquire)
    }

    fn give_up(&self) {
        self.is_blown.store(true, Ordering::Release);
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.is_given_up() {
            true => Err(self.refusal(Operation::Reserve, Some((offset, len)))),
            false => self.below.reserve(offset, len).inspect_err(|error| self.look_at(error)),
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
