//! A device over another one, real or modelled, that fails, stalls and falls silent by a plan.
//!
//! - Which data survive: a batch that fails changes nothing below, but one that fails in part: the
//!   front of its first request is done. One that is never answered does not reach the device
//!   below. All that was answered is as the device below has it.
//! - Y1: a request that is never answered touches no memory: the time limit ends the wait for it.
//! - Short transfers are the file device's own to make good, and no matter of this trait.

mod plan;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_rt::{LeafMutex, Nanos, sleep};

use self::plan::{Dice, Verdict};
pub use self::plan::{FaultCounts, FaultPlan};
use crate::time_limit::TimeLimit;
use crate::{
    Completion, Counters, Device, DeviceError, IoBuf, Op, Operation, Punched, Request, SECTOR_SIZE,
    Ticket,
};

/// A device with faults. See the module.
pub struct FaultyDevice {
    below: Arc<dyn Device>,
    dice: LeafMutex<Dice>,
    unreadable: LeafMutex<Vec<Range<u64>>>,
    unwritable: LeafMutex<Option<Range<u64>>>,
    /// The unit that is written as a whole or not at all.
    atomic: AtomicU64,
    time_limit: Arc<TimeLimit>,
}

impl FaultyDevice {
    /// Over `below`, with the faults of `plan`.
    #[must_use]
    pub fn new(below: Arc<dyn Device>, plan: FaultPlan) -> Arc<FaultyDevice> {
        let dice = LeafMutex::new(Dice::new(plan));
        let time_limit = TimeLimit::new(below.name());
        let (unreadable, unwritable) = (LeafMutex::new(Vec::new()), LeafMutex::new(None));
        let atomic = AtomicU64::new(SECTOR_SIZE as u64);
        Arc::new(FaultyDevice { below, dice, unreadable, unwritable, atomic, time_limit })
    }

    /// Takes another plan from now on, with a mind of its own: what was silent or dead is not.
    pub fn set_plan(&self, plan: FaultPlan) {
        let mut dice = self.dice.lock();
        let counts = dice.counts;
        *dice = Dice::new(plan);
        dice.counts = counts;
    }

    /// Has the device fall silent, or answer again. What it did not answer it never will.
    pub fn set_silent(&self, silent: bool) {
        self.dice.lock().is_silent = silent;
    }

    /// Kills the device, or brings it back.
    pub fn set_dead(&self, dead: bool) {
        self.dice.lock().is_dead = dead;
    }

    /// Has each read that touches `bytes` fail with `EIO`, until a write has begun there: a sector
    /// that has gone bad, and is replaced when it is next written.
    pub fn set_unreadable(&self, bytes: Range<u64>) {
        self.unreadable.lock().push(bytes);
    }

    /// Has each write that touches `bytes` fail with `EIO` and change nothing, from now on: sectors
    /// that have gone bad, on a device that has none to replace them.
    pub fn set_unwritable(&self, bytes: Option<Range<u64>>) {
        *self.unwritable.lock() = bytes;
    }

    /// Whether a batch fails since it touches what is unreadable or unwritable. Writes make what is
    /// unreadable readable.
    fn is_bad(&self, requests: &[Request<'_>]) -> bool {
        let mut unreadable = self.unreadable.lock();
        let unwritable = self.unwritable.lock().clone();
        for request in requests {
            let (from, to) = (request.offset, request.offset + request.len());
            let touches = |bad: &Range<u64>| bad.start < to && from < bad.end;
            match request.op {
                Op::Read if unreadable.iter().any(touches) => return true,
                Op::Read => {}
                Op::Write if unwritable.as_ref().is_some_and(touches) => return true,
                Op::Write => unreadable.retain(|bad| !touches(bad)),
            }
        }
        false
    }

    /// What it has done so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.dice.lock().counts
    }

    /// A batch that is never answered, or one that has failed.
    fn refused(&self, requests: &[Request<'_>], failure: Option<io::Error>) -> Ticket {
        let completion = Completion::of_batch(&self.time_limit, requests);
        let ticket = completion.ticket();
        if let Some(failure) = failure {
            for index in (1..requests.len()).rev() {
                completion.finish(index, Ok(()));
            }
            completion.finish(0, Err(failure));
        }
        ticket
    }

    /// Does the given part of `request`, in units that are written atomically, and waits for
    /// it.
    ///
    /// # Safety
    ///
    /// As `Device::submit`.
    unsafe fn do_front(&self, request: &Request<'_>, of_256: u64) {
        let whole = self.atomic.load(Ordering::Relaxed);
        let end = request.offset + request.len() * of_256 / 256;
        let mut left = (end / whole * whole).saturating_sub(request.offset) as usize;
        let mut front = Vec::new();
        for buf in request.bufs {
            let len = buf.len().min(left);
            left -= len;
            front.extend((len > 0).then(|| IoBuf::from_raw(buf.ptr(), len)));
        }
        if !front.is_empty() {
            let part = Request { bufs: &front, ..*request };
            // SAFETY: the buffers are the caller's, cut short, and waited for here.
            let done = unsafe { self.below.submit(&[part]) }.wait();
            // The whole request fails, whatever became of its front.
            drop(done);
        }
    }

    /// What befalls an operation that moves no bytes.
    fn meet(&self, operation: Operation, range: (u64, u64)) -> io::Result<()> {
        let fate = self.dice.lock().decide_alone();
        match fate {
            Verdict::Silent => {
                let never = Completion::within(&self.time_limit, 1, operation, Some(range));
                never.ticket().wait().map_err(|failure| failure.source)
            }
            Verdict::Fails(code) => Err(self.error(code, operation, Some(range))),
            Verdict::Well | Verdict::Slow(_) | Verdict::FailsInPart { .. } => Ok(()),
        }
    }

    fn error(&self, code: i32, operation: Operation, range: Option<(u64, u64)>) -> io::Error {
        let source = io::Error::from_raw_os_error(code);
        DeviceError::wrap(self.below.name(), operation, range, source)
    }
}

impl Device for FaultyDevice {
    fn len(&self) -> u64 {
        self.below.len()
    }

    unsafe fn submit(&self, requests: &[Request<'_>]) -> Ticket {
        requests.iter().for_each(|request| request.validate(self.below.len()));
        let first = &requests[0];
        let verdict = self.dice.lock().decide(Some(first.op));
        let fate = match verdict {
            Verdict::Well if self.is_bad(requests) => Verdict::Fails(libc::EIO),
            fate => fate,
        };
        match fate {
            Verdict::Well => (),
            Verdict::Slow(span) => sleep(span),
            Verdict::Silent => return self.refused(requests, None),
            Verdict::FailsInPart { code, of_256 } => {
                // SAFETY: a part of what the caller promises.
                unsafe { self.do_front(first, of_256) };
                let error =
                    self.error(code, first.op.operation(), Some((first.offset, first.len())));
                return self.refused(requests, Some(error));
            }
            Verdict::Fails(code) => {
                let range = Some((first.offset, first.len()));
                let error = self.error(code, first.op.operation(), range);
                return self.refused(requests, Some(error));
            }
        }
        // SAFETY: the caller promises of the buffers what the device below asks.
        unsafe { self.below.submit(requests) }
    }

    fn sync(&self) -> io::Result<()> {
        let fate = self.dice.lock().decide(None);
        match fate {
            Verdict::Well | Verdict::Slow(_) => self.below.sync(),
            Verdict::Silent => {
                let never = Completion::within(&self.time_limit, 1, Operation::Sync, None);
                never.ticket().wait().map_err(|failure| failure.source)
            }
            Verdict::Fails(code) | Verdict::FailsInPart { code, .. } => {
                Err(self.error(code, Operation::Sync, None))
            }
        }
    }

    fn write_atomically(&self, len: u64) -> bool {
        let can = self.below.write_atomically(len);
        if can {
            self.atomic.fetch_max(len, Ordering::Relaxed);
        }
        can
    }

    fn set_time_limit(&self, limit: Nanos) {
        self.time_limit.set(limit);
        self.below.set_time_limit(limit);
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        self.below.reserve(offset, len)
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        let range = (self.len(), len.saturating_sub(self.len()));
        self.meet(Operation::Grow, range)?;
        self.below.grow(len)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<Punched> {
        self.meet(Operation::Punch, (offset, len))?;
        self.below.punch(offset, len)
    }

    fn trim(&self, offset: u64, len: u64) {
        self.below.trim(offset, len);
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
        self.below.queued()
    }

    fn counters(&self) -> Counters {
        self.below.counters()
    }
}

#[cfg(test)]
mod tests;
