//! A job that may never return, waited for no longer than a time limit.
//!
//! - W1: the job runs on a thread of its own, which is left behind if the limit comes first. What
//!   the job returns then is dropped there.
//! - W2: the limit is counted in ticks of waiting, not by the clock: time in which the process was
//!   stopped is one tick at most.
//! - W3: in a virtual world, and without a limit, the caller runs the job.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Helpers, LeafMutex, Nanos, Waited, dead, is_virtual, now, wait_until, wake_all};

/// Waits into which a limit is divided (W2).
const TICKS: u64 = 8;

struct Answer<T> {
    /// Whether the job has ended.
    word: AtomicU64,
    /// What it returned; nothing if it panicked.
    value: LeafMutex<Option<T>>,
}

/// What `job` returns; `None` if it has not returned within `limit`, or panics. A limit of zero is
/// none.
///
/// ```
/// use terrace_rt::{Nanos, within};
///
/// assert_eq!(within(Nanos::from_secs(60), || 7), Some(7));
/// ```
pub fn within<T: Send + 'static>(
    limit: Nanos,
    job: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if is_virtual() || limit == Nanos(0) {
        return Some(job());
    }
    let answer = Arc::new(Answer { word: AtomicU64::new(0), value: LeafMutex::new(None) });
    let own = Arc::clone(&answer);
    Arc::<Helpers>::default().run(move || {
        // For the caller a job that panics is one that does not end.
        let value = catch_unwind(AssertUnwindSafe(job)).ok();
        *own.value.lock() = value;
        own.word.store(1, Ordering::Release);
        wake_all(&own.word);
    });
    let tick = Nanos(limit.0.div_ceil(TICKS));
    let mut ticks = 0;
    while answer.word.load(Ordering::Acquire) == 0 && ticks < TICKS && !dead() {
        let deadline = now().saturating_add(tick);
        while answer.word.load(Ordering::Acquire) == 0
            && wait_until(&answer.word, 0, deadline) == Waited::Woken
        {}
        ticks += 1;
    }
    answer.value.lock().take()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{Real, Virtual, VirtualConfig};

    #[test]
    fn a_job_that_does_not_return_is_left_behind_and_what_it_returns_is_dropped() {
        struct Told(mpsc::Sender<u8>);
        impl Drop for Told {
            fn drop(&mut self) {
                self.0.send(1).expect("somebody listens");
            }
        }
        let run = || {
            let (stuck, release) = mpsc::channel::<()>();
            let (send, told) = mpsc::channel();
            let ended = within(Nanos::from_millis(20), move || {
                let _released = release.recv();
                Told(send)
            });
            assert!(ended.is_none());
            assert!(told.try_recv().is_err());
            drop(stuck);
            told.recv().expect("dropped once it has returned");
            assert_eq!(within(Nanos::from_secs(600), || 7), Some(7));
            assert_eq!(within(Nanos(0), || 7), Some(7));
        };
        run();
        Real::new(1).run(run);
    }

    #[test]
    fn a_virtual_world_runs_it_itself() {
        let world = Virtual::new(VirtualConfig::default());
        let here = std::thread::current().id();
        let ran = world.run(|| within(Nanos(1), || std::thread::current().id()));
        assert_eq!(ran.expect("it ends"), Some(here));
    }
}
