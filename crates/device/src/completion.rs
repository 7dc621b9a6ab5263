//! How a device reports the end of a batch to the task that waits.
//!
//! A device makes a `Completion` for a batch, keeps it with the requests, and hands out its
//! `Ticket`. It calls `finish` once for each request; the last one wakes the waiting task.
//!
//! ```text
//!            Completion::new          finish (last)            Ticket::wait
//! (submit) ----------------> pending ---------------> done  ----------------> consumed
//!                               |
//!                               | its deadline; Ticket::drop in a dead or panicking task
//!                               v
//!                           abandoned   the device must not touch the buffers any more
//! ```
//!
//! - C1: the word counts unfinished requests; it only falls, and is zero when the batch is done.
//! - C2: an abandoned batch belongs to a device that copies bytes itself (a model), which asks
//!   `is_abandoned` before it touches a buffer. A device whose buffers the kernel holds gives a
//!   `Drain` instead, and dropping its ticket waits without switching tasks.
//! - C3: a batch with a deadline belongs to a device that copies bytes itself, within
//!   `with_buffers`, or never touches them: what waits for it may go when the deadline has passed.
//! - C4: a batch that a wrapper has answered itself says nothing of the device below the wrapper,
//!   through whose `wait` its result passes.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_rt as rt;
use terrace_rt::{LeafMutex, Nanos, Waited};

use crate::time_limit::TimeLimit;
use crate::{DeviceError, IoFailure, Operation, Request};

/// Finishes batches without the help of the scheduler, for tickets that are dropped.
pub trait Drain: Send + Sync {
    /// Returns once `completion.is_done()`. Must not switch tasks: the caller may be unwinding.
    fn drain(&self, completion: &Completion);

    /// Whether the waiting task lets other tasks run, though the batch is done already.
    fn gives_way(&self) -> bool {
        false
    }
}

/// What a batch is, and how long it may take.
struct Bound {
    limit: Arc<TimeLimit>,
    /// By the limit's clock.
    submitted: Nanos,
    operation: Operation,
    range: Option<(u64, u64)>,
}

impl Bound {
    #[cold]
    fn is_over(&self) -> io::Error {
        let source = io::Error::new(ErrorKind::TimedOut, "the device has not answered in time");
        DeviceError::wrap(self.limit.device().to_owned(), self.operation, self.range, source)
    }
}

/// The state of a batch, shared between the device and the ticket.
pub struct Completion {
    unfinished: AtomicU64,
    abandoned: AtomicBool,
    /// Held to touch the buffers, and to abandon them.
    touching: LeafMutex<()>,
    bound: Option<Bound>,
    failure: LeafMutex<Option<IoFailure>>,
    drain: Option<Arc<dyn Drain>>,
    /// C4.
    was_asked_below: bool,
}

impl Completion {
    /// A batch of `requests` requests on a device that copies bytes itself and asks
    /// `is_abandoned` first.
    #[must_use]
    pub fn new(requests: usize) -> Arc<Completion> {
        Arc::new(Completion::build(requests, None, None))
    }

    /// The ticket of a batch that a wrapper of a device has answered without it (C4).
    pub fn answered(results: impl ExactSizeIterator<Item = io::Result<()>>) -> Ticket {
        let batch = Completion::build(results.len(), None, None);
        let completion = Arc::new(Completion { was_asked_below: false, ..batch });
        results.enumerate().for_each(|(index, result)| completion.finish(index, result));
        completion.ticket()
    }

    /// As `new`, of a device that touches the buffers within `with_buffers` only; it is waited for
    /// no longer than `limit` allows, if it is on (C3). The first request is of `range`, if any.
    #[must_use]
    pub(crate) fn within(
        limit: &Arc<TimeLimit>,
        requests: usize,
        operation: Operation,
        range: Option<(u64, u64)>,
    ) -> Arc<Completion> {
        let bound = limit.is_on().then(|| {
            let (limit, submitted) = (Arc::clone(limit), limit.now());
            Bound { limit, submitted, operation, range }
        });
        Arc::new(Completion::build(requests, None, bound))
    }

    /// As `within`, of a batch.
    #[must_use]
    pub(crate) fn of_batch(limit: &Arc<TimeLimit>, requests: &[Request<'_>]) -> Arc<Completion> {
        let first = &requests[0];
        let range = Some((first.offset, first.len()));
        Completion::within(limit, requests.len(), first.op.operation(), range)
    }

    /// A batch of `requests` requests whose buffers are in use until they are finished.
    #[must_use]
    pub fn with_drain(requests: usize, drain: Arc<dyn Drain>) -> Arc<Completion> {
        Arc::new(Completion::build(requests, Some(drain), None))
    }

    fn build(requests: usize, drain: Option<Arc<dyn Drain>>, bound: Option<Bound>) -> Completion {
        assert!(requests > 0, "an empty batch");
        Completion {
            unfinished: AtomicU64::new(requests as u64),
            abandoned: AtomicBool::new(false),
            touching: LeafMutex::new(()),
            bound,
            failure: LeafMutex::new(None),
            drain,
            was_asked_below: true,
        }
    }

    /// The submitter's half. Call it once for each completion.
    pub fn ticket(self: &Arc<Completion>) -> Ticket {
        Ticket { completion: Arc::clone(self) }
    }

    /// Reports request `index` of the batch; the last report wakes the waiting task.
    ///
    /// # Panics
    ///
    /// If more requests are reported than the batch had.
    pub fn finish(&self, index: usize, result: io::Result<()>) {
        if let Err(source) = result {
            let mut failure = self.failure.lock();
            if failure.as_ref().is_none_or(|first| index < first.index) {
                *failure = Some(IoFailure { index, source });
            }
        }
        if let Some(bound) = &self.bound {
            bound.limit.answered(bound.operation);
        }
        let before = self.unfinished.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a batch finished twice");
        if before == 1 {
            rt::wake_all(&self.unfinished);
        }
    }

    /// For how long to wait until asking this again; zero: no longer. None: without a limit.
    pub(crate) fn wait_for(&self) -> Option<Nanos> {
        let bound = self.bound.as_ref()?;
        Some(bound.limit.wait_for(bound.operation, bound.submitted))
    }

    /// Whether every request is finished.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) == 0
    }

    /// Runs `touch`, which may use the buffers, unless the submitter has gone.
    pub fn with_buffers(&self, touch: impl FnOnce()) {
        let _one_at_a_time = self.touching.lock();
        if !self.is_abandoned() {
            touch();
        }
    }

    /// Has the device leave the buffers alone, unless the batch is done. One that is abandoned has
    /// failed, whatever its device reports: it may have passed the buffers by.
    fn abandon(&self) {
        let _one_at_a_time = self.touching.lock();
        if !self.is_done() {
            self.abandoned.store(true, Ordering::Release);
        }
    }

    /// Whether the submitter has gone: its buffers must not be touched.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }
}

/// A submitted batch. Wait for it; a dropped ticket waits too, unless its world is dead.
#[must_use = "buffers are in use until the ticket has been waited for"]
pub struct Ticket {
    completion: Arc<Completion>,
}

impl Ticket {
    /// Blocks the task until the whole batch is complete.
    ///
    /// # Errors
    ///
    /// The first request of the batch that failed.
    pub fn wait(self) -> Result<(), IoFailure> {
        if self.completion.drain.as_ref().is_some_and(|drain| drain.gives_way()) && !rt::dead() {
            rt::yield_now();
        }
        if self.block() == Waited::TimedOut {
            self.completion.abandon();
        }
        if let (true, Some(bound)) = (self.completion.is_abandoned(), &self.completion.bound) {
            return Err(IoFailure { index: 0, source: bound.is_over() });
        }
        if !self.is_done() {
            // Only a destructor in a dead world gets here; its ticket is abandoned by `drop`.
            let source = io::Error::other("the world has lost its power");
            return Err(IoFailure { index: 0, source });
        }
        let mut failure = self.completion.failure.lock();
        failure.take().map_or(Ok(()), Err)
    }

    /// Whether `wait` would return at once.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.completion.is_done()
    }

    /// As `Completion::wait_for`.
    pub(crate) fn wait_for(&self) -> Option<Nanos> {
        self.completion.wait_for()
    }

    /// Whether the result tells of the device that is waited for (C4).
    pub(crate) fn was_asked_below(&self) -> bool {
        self.completion.was_asked_below
    }

    /// Waits for the last request, or until the deadline; in a dead world returns at once.
    fn block(&self) -> Waited {
        loop {
            let unfinished = self.completion.unfinished.load(Ordering::Acquire);
            if unfinished == 0 || rt::dead() {
                return Waited::Woken;
            }
            let word = &self.completion.unfinished;
            match self.completion.wait_for() {
                None => rt::wait(word, unfinished),
                Some(Nanos::ZERO) => return Waited::TimedOut,
                Some(span) => {
                    rt::wait_until(word, unfinished, rt::now().saturating_add(span));
                }
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.is_done() || self.completion.is_abandoned() {
            return;
        }
        if let Some(drain) = &self.completion.drain {
            drain.drain(&self.completion);
        } else if rt::dead() || std::thread::panicking() || self.block() == Waited::TimedOut {
            self.completion.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use rt::{Virtual, VirtualConfig};

    use super::*;
    use crate::errno;

    const SECOND: Nanos = Nanos::from_secs(1);

    /// The bug: a read whose device answered just after it was given up was reported as done,
    /// though nothing had filled its buffer.
    #[test]
    fn a_batch_that_was_given_up_is_not_done_by_a_late_answer() {
        let limit = TimeLimit::new(String::from("a device"));
        limit.set(Nanos(1));
        let batch = Completion::within(&limit, 1, Operation::Read, None);
        let ticket = batch.ticket();
        batch.abandon();
        batch.with_buffers(|| panic!("nobody owns the buffers any more"));
        batch.finish(0, Ok(()));
        assert!(ticket.wait().is_err());
        let done = Completion::within(&limit, 1, Operation::Read, None);
        done.finish(0, Ok(()));
        done.abandon();
        assert!(done.ticket().wait().is_ok());
    }

    #[test]
    fn answers_to_reads_do_not_prolong_the_wait_for_a_write() {
        // On a frozen file system reads go on, so a write was waited for for ten limits.
        let config = VirtualConfig { seed: 1, switch_one_in: 0, cores: 1, stack_bytes: 64 << 10 };
        let waited = Virtual::new(config).run(|| {
            let limit = TimeLimit::new(String::from("a device"));
            limit.set(SECOND * 3);
            let begin = |operation| Completion::within(&limit, 1, operation, Some((512, 1024)));
            let (write, slow_read) = (begin(Operation::Write), begin(Operation::Read));
            let reading = Arc::clone(&limit);
            rt::spawn("reads", move || {
                for _ in 0..20 {
                    rt::sleep(SECOND);
                    Completion::within(&reading, 1, Operation::Read, None).finish(0, Ok(()));
                }
                slow_read.finish(0, Ok(()));
            });
            let read = begin(Operation::Read);
            let error = write.ticket().wait().expect_err("it is not answered").source;
            let after_write = rt::now();
            read.ticket().wait().expect_err("nor is this");
            (error, after_write, rt::now())
        });
        let (error, after_write, after_read) = waited.expect("nobody waits for ever");
        assert_eq!((after_write, after_read), (SECOND * 3, SECOND * 23));
        assert_eq!((error.kind(), errno(&error)), (ErrorKind::TimedOut, Some(libc::ETIMEDOUT)));
        let told = DeviceError::of(&error).expect("it tells which device");
        assert_eq!((&*told.device, told.operation), ("a device", Operation::Write));
        assert_eq!(told.range, Some((512, 1024)));
    }
}
