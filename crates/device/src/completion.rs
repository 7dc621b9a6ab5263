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
//! - C3: a batch with a deadline belongs to a device that copies bytes itself, within
//!   `with_buffers`, or never touches them: what waits for it may go when the deadline has passed.
//! - C2: an abandoned batch belongs to a device that copies bytes itself (a model), which asks
//!   `is_abandoned` before it touches a buffer. A device whose buffers the kernel holds gives a
//!   `Drain` instead, and dropping its ticket waits without switching tasks.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_rt as rt;
use terrace_rt::{LeafMutex, Nanos, Waited};

use crate::IoFailure;

/// Finishes batches without the help of the scheduler, for tickets that are dropped.
pub trait Drain: Send + Sync {
    /// Returns once `completion.is_done()`. Must not switch tasks: the caller may be unwinding.
    fn drain(&self, completion: &Completion);
}

/// A wait that lasts so many limits has failed, though the device answers other requests.
const LIMITS_MAX: u64 = 10;

/// How long a device may be silent, and when it was heard of last.
///
/// - C4: the limit runs from the submission of a batch, or from the last answer of the device if
///   that is later: a long queue is no silence. No wait is longer than `LIMITS_MAX` limits.
#[derive(Default)]
pub(crate) struct TimeLimit {
    /// Nanoseconds; zero: none.
    limit: AtomicU64,
    answered: AtomicU64,
}

impl TimeLimit {
    pub(crate) fn set(&self, limit: Nanos) {
        self.limit.store(limit.0, Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.limit.load(Ordering::Relaxed) > 0
    }

    fn heard_of(&self) {
        self.answered.store(rt::now().0, Ordering::Relaxed);
    }

    fn deadline(&self, submitted: Nanos) -> Nanos {
        let limit = Nanos(self.limit.load(Ordering::Relaxed));
        let heard_of = submitted.max(Nanos(self.answered.load(Ordering::Relaxed)));
        let longest = submitted.saturating_add(Nanos(limit.0.saturating_mul(LIMITS_MAX)));
        heard_of.saturating_add(limit).min(longest)
    }
}

/// The state of a batch, shared between the device and the ticket.
pub struct Completion {
    unfinished: AtomicU64,
    abandoned: AtomicBool,
    /// Held by whoever touches the buffers, and to abandon them.
    touching: LeafMutex<()>,
    /// The limit, and when the batch was submitted.
    limit: Option<(Arc<TimeLimit>, Nanos)>,
    failure: LeafMutex<Option<IoFailure>>,
    drain: Option<Arc<dyn Drain>>,
}

impl Completion {
    /// A batch of `requests` requests on a device that copies bytes itself and asks
    /// `is_abandoned` first.
    #[must_use]
    pub fn new(requests: usize) -> Arc<Completion> {
        Completion::build(requests, None, None)
    }

    /// As `new`, of a device that touches the buffers within `with_buffers` only; it is waited for
    /// no longer than `limit` allows, if it is on (C3).
    #[must_use]
    pub(crate) fn within(requests: usize, limit: &Arc<TimeLimit>) -> Arc<Completion> {
        let limit = limit.is_on().then(|| (Arc::clone(limit), rt::now()));
        Completion::build(requests, None, limit)
    }

    /// A batch of `requests` requests whose buffers are in use until they are finished.
    #[must_use]
    pub fn with_drain(requests: usize, drain: Arc<dyn Drain>) -> Arc<Completion> {
        Completion::build(requests, Some(drain), None)
    }

    fn build(
        requests: usize,
        drain: Option<Arc<dyn Drain>>,
        limit: Option<(Arc<TimeLimit>, Nanos)>,
    ) -> Arc<Completion> {
        assert!(requests > 0, "an empty batch");
        Arc::new(Completion {
            unfinished: AtomicU64::new(requests as u64),
            abandoned: AtomicBool::new(false),
            touching: LeafMutex::new(()),
            limit,
            failure: LeafMutex::new(None),
            drain,
        })
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
        if let Some((limit, _)) = &self.limit {
            limit.heard_of();
        }
        let before = self.unfinished.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a batch finished twice");
        if before == 1 {
            rt::wake_all(&self.unfinished);
        }
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

    fn abandon(&self) {
        let _one_at_a_time = self.touching.lock();
        self.abandoned.store(true, Ordering::Release);
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
        if self.block() == Waited::TimedOut {
            self.completion.abandon();
            if !self.is_done() {
                let what = "the device has not answered in time";
                return Err(IoFailure {
                    index: 0,
                    source: io::Error::new(ErrorKind::TimedOut, what),
                });
            }
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

    /// Waits for the last request, or until the deadline; in a dead world returns at once.
    fn block(&self) -> Waited {
        loop {
            let unfinished = self.completion.unfinished.load(Ordering::Acquire);
            if unfinished == 0 || rt::dead() {
                return Waited::Woken;
            }
            let word = &self.completion.unfinished;
            let Some((limit, submitted)) = &self.completion.limit else {
                rt::wait(word, unfinished);
                continue;
            };
            let deadline = limit.deadline(*submitted);
            if rt::now() >= deadline {
                return Waited::TimedOut;
            }
            rt::wait_until(word, unfinished, deadline);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.is_done() || self.completion.is_abandoned() {
            return;
        }
        match &self.completion.drain {
            Some(drain) => drain.drain(&self.completion),
            None if rt::dead() || std::thread::panicking() => self.completion.abandon(),
            None if self.block() == Waited::TimedOut => self.completion.abandon(),
            None => (),
        }
    }
}
