//! Waiting for a future: the calling task or thread blocks until it is ready.
//!
//! - B1: the word is cleared before the future is polled, so a wake-up during the poll is seen.
//! - B2: wakers own the word: one that outlives the wait wakes no task, and harms none.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::{dead, wait, wake_all};

/// Whether the future is to be polled again.
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Woken>) {
        self.0.store(1, Ordering::Release);
        wake_all(&self.0);
    }
}

/// Polls `future` until it is ready. Between two polls the calling task waits, and others run; a
/// thread that is no executor blocks.
///
/// # Panics
///
/// If a destructor calls it in a dead world.
///
/// ```
/// assert_eq!(terrace_rt::block_on(async { 7 }), 7);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    let woken = Arc::new(Woken(AtomicU64::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        woken.0.store(0, Ordering::Release);
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        while woken.0.load(Ordering::Acquire) == 0 {
            wait(&woken.0, 0);
            assert!(!dead(), "a destructor waits for a future in a dead world");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::{LeafMutex, Nanos, Real, Virtual, VirtualConfig, now, sleep, spawn};

    /// A future that a task makes ready after a while.
    fn after(span: Nanos) -> impl Future<Output = u64> {
        let slot: Arc<LeafMutex<(Option<u64>, Option<Waker>)>> = Arc::default();
        let theirs = Arc::clone(&slot);
        spawn("answer", move || {
            sleep(span);
            let waker = {
                let mut slot = theirs.lock();
                slot.0 = Some(7);
                slot.1.take()
            };
            waker.into_iter().for_each(Waker::wake);
        });
        poll_fn(move |context| {
            let mut slot = slot.lock();
            slot.1 = Some(context.waker().clone());
            slot.0.map_or(Poll::Pending, Poll::Ready)
        })
    }

    #[test]
    fn a_task_that_waits_for_a_future_lets_others_run() {
        let world = Virtual::new(VirtualConfig::default());
        let waited = world.run(|| (block_on(after(Nanos::from_secs(3))), now()));
        assert_eq!(waited.expect("nobody waits for ever"), (7, Nanos::from_secs(3)));
        // On one executor the task that answers needs it.
        assert_eq!(Real::new(1).run(|| block_on(after(Nanos::from_millis(2)))), 7);
    }

    #[test]
    fn a_thread_waits_for_a_future_too() {
        assert_eq!(block_on(after(Nanos::from_millis(2))), 7);
    }
}
