//! The real world: the clock of the machine, and tasks that run side by side.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::parking;
use crate::time::Nanos;
use crate::world::{Done, Waited, World};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
static DEFAULT: LazyLock<Arc<RealCore>> = LazyLock::new(|| Arc::new(RealCore {}));

/// What the handles of a real world share.
pub(crate) struct RealCore {}

impl RealCore {
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        done: Arc<Done>,
        body: Box<dyn FnOnce() + Send>,
    ) {
        let run = move || {
            if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(body)) {
                *done.panic.lock() = Some(payload);
            }
            done.word.store(1, Ordering::Release);
            wake(&done.word, true);
        };
        let spawned = thread::Builder::new().name(name.to_owned()).spawn(run);
        spawned.expect("no memory for a thread");
    }
}

/// The real world of the calling thread.
pub(crate) fn current() -> Arc<RealCore> {
    Arc::clone(&DEFAULT)
}

pub(crate) fn now() -> Nanos {
    Nanos(START.elapsed().as_nanos() as u64)
}

pub(crate) fn sleep(span: Nanos) {
    thread::sleep(Duration::from_nanos(span.0));
}

pub(crate) fn yield_now() {
    thread::yield_now();
}

pub(crate) fn wait(word: &AtomicU64, seen: u64, deadline: Option<Nanos>) -> Waited {
    parking::wait_thread(word, seen, deadline.map(|at| at.saturating_sub(now())))
}

pub(crate) fn wake(word: &AtomicU64, all: bool) {
    parking::wake(word, all);
}

/// A world of executors.
pub struct Real {
    core: Arc<RealCore>,
}

impl Real {
    /// Starts `executors` executors, at least one.
    pub fn new(executors: usize) -> Real {
        assert!(executors > 0, "a world without executors");
        Real { core: Arc::new(RealCore {}) }
    }

    /// A handle to give to others.
    pub fn world(&self) -> World {
        World::of_real(Arc::clone(&self.core))
    }

    /// Runs `main` and waits for it.
    pub fn run<T: Send>(&self, main: impl FnOnce() -> T + Send) -> T {
        main()
    }
}
