//! The real world: the clock of the machine, and executors that run tasks side by side.
//!
//! An executor is a thread with its own tasks, timers and reactor. A thread that is no executor may
//! call everything as well, and blocks where a task would be parked.

mod executor;
mod fork;
mod mailbox;
mod offload;
mod own_reactor;
mod parking;
mod refusal;

use std::io;
use std::mem;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use executor::Reactor;
pub(crate) use fork::PerProcess;
pub use fork::{forks, in_fork, watch_forks};
pub use offload::Helpers;
pub(crate) use offload::run_for_caller;
pub use own_reactor::own_reactor;
pub use refusal::{Calls, refuse_calls};

use self::mailbox::{Mailbox, NewTask};
use crate::task::{Done, NO_TASK, Payload, TaskIndex};
use crate::time::Nanos;
use crate::world::{Waited, World};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The world of threads that have none; it sleeps when it has nothing to do, and never ends.
static DEFAULT: PerProcess<Real> = PerProcess::new(|| Real::new(1));

/// What the handles of a real world share.
pub(crate) struct RealCore {
    mailboxes: Vec<Arc<Mailbox>>,
    next: AtomicUsize,
    /// The first panic of a task that could not be joined any more.
    lost_panic: Mutex<Option<Payload>>,
}

impl RealCore {
    /// Starts a task on executor `at`, or on the next in turn.
    pub(crate) fn spawn(
        &self,
        at: Option<usize>,
        name: &'static str,
        done: Arc<Done>,
        body: Box<dyn FnOnce() + Send>,
    ) {
        let at = at.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed));
        let mailbox = &self.mailboxes[at % self.mailboxes.len()];
        if let Err(task) = mailbox.spawn(NewTask { name, done, body }) {
            finish(&task.done);
        }
    }

    pub(crate) fn executors(&self) -> usize {
        self.mailboxes.len()
    }

    /// Keeps a panic for the caller that joins the task, or else for `Real::run`.
    fn note_panic(&self, done: &Arc<Done>, payload: Payload) {
        if Arc::strong_count(done) > 2 {
            *done.panic.lock() = Some(payload);
        } else {
            let mut lost = self.lost_panic.lock().unwrap_or_else(PoisonError::into_inner);
            lost.get_or_insert(payload);
        }
    }
}

/// Says that a task has ended.
fn finish(done: &Done) {
    done.word.store(1, Ordering::Release);
    parking::wake(&done.word, true);
}

/// The real world of the calling thread.
pub(crate) fn current() -> Arc<RealCore> {
    executor::here(|here| match here {
        Some(executor) => Arc::clone(executor.core()),
        None => Arc::clone(&DEFAULT.get().core),
    })
}

/// Starts the default world, unless the calling thread has a world.
pub(crate) fn start_default() -> io::Result<()> {
    match on_executor() {
        true => Ok(()),
        false => DEFAULT.get_or(|| Real::try_new(1)).map(drop),
    }
}

/// Whether `core` is the default world, which is started.
///
/// # Errors
///
/// If the operating system has no thread or event descriptor left.
pub(crate) fn is_default(core: &Arc<RealCore>) -> io::Result<bool> {
    let default = DEFAULT.get_or(|| Real::try_new(1))?;
    Ok(Arc::ptr_eq(core, &default.core))
}

/// Sixteen bytes of the system's random numbers. It blocks only before the system has any.
pub(crate) fn unique_id() -> io::Result<u128> {
    let mut bytes = [0_u8; 16];
    loop {
        // SAFETY: the buffer is writable for its whole length during the call.
        let drawn = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match usize::try_from(drawn) {
            Ok(len) if len == bytes.len() => return Ok(u128::from_le_bytes(bytes)),
            Ok(_) => (),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

pub(crate) fn now() -> Nanos {
    Nanos(START.elapsed().as_nanos() as u64)
}

pub(crate) fn sleep(span: Nanos) {
    executor::here(|here| match here {
        Some(executor) => executor.sleep_until(now().saturating_add(span)),
        None => thread::sleep(Duration::from_nanos(span.0)),
    });
}

pub(crate) fn yield_now() {
    executor::here(|here| match here {
        Some(executor) => executor.yield_now(),
        None => thread::yield_now(),
    });
}

pub(crate) fn wait(word: &AtomicU64, seen: u64, deadline: Option<Nanos>) -> Waited {
    executor::here(|here| match here {
        Some(executor) => executor.wait(word, seen, deadline),
        None => {
            let span = deadline.map(|at| at.saturating_sub(now()));
            parking::wait_thread(word, seen, span)
        }
    })
}

pub(crate) fn wake(word: &AtomicU64, all: bool) {
    parking::wake(word, all);
}

pub(crate) fn dead() -> bool {
    let is_dead =
        |here: &executor::Executor| here.is_dead() || (here.in_task() && thread::panicking());
    executor::here(|here| here.is_some_and(is_dead))
}

/// Whether the caller's world is dropped.
pub(crate) fn powerless() -> bool {
    executor::here(|here| here.is_some_and(executor::Executor::is_dead))
}

/// The task that runs now, or `NO_TASK`.
#[inline]
pub(crate) fn current_task() -> TaskIndex {
    executor::here(|here| here.map_or(NO_TASK, executor::Executor::current))
}

/// Whether the caller is an executor of a real world, or a task on it.
pub fn on_executor() -> bool {
    executor::here(|here| here.is_some())
}

/// Uses the reactor of the executor that the caller runs on, made by `make` if it has none yet.
/// `operate` must not wait. None if the caller is no task of a real world, or `make` gives none.
pub fn reactor<R: Reactor, T>(
    make: impl FnOnce() -> Option<R>,
    operate: impl FnOnce(&mut R) -> T,
) -> Option<T> {
    executor::here(|here| here.and_then(|executor| executor.reactor(make, operate)))
}

/// Blocks the thread for at most `span`, without switching tasks, while the reactor of the calling
/// executor, if any, goes on. For destructors that must see a request completed.
pub fn drive_reactor(span: Nanos) {
    executor::here(|here| match here {
        Some(executor) => executor.drive(span),
        None => thread::sleep(Duration::from_nanos(span.0)),
    });
}

/// A world of executors. Dropping it unwinds the tasks that are left, and stops the executors.
pub struct Real {
    core: Arc<RealCore>,
    threads: Vec<JoinHandle<()>>,
    /// Of the process that made it.
    forks: u64,
}

impl Real {
    /// Starts `executors` executors, at least one.
    ///
    /// # Panics
    ///
    /// If the operating system has no thread or event descriptor left.
    pub fn new(executors: usize) -> Real {
        Real::try_new(executors).expect("a thread and an event descriptor for each executor")
    }

    /// As `new`.
    ///
    /// # Errors
    ///
    /// If the operating system has no thread or event descriptor left.
    pub fn try_new(executors: usize) -> io::Result<Real> {
        assert!(executors > 0, "a world without executors");
        let mailboxes = (0..executors).map(|_| Mailbox::new().map(Arc::new));
        let mailboxes = mailboxes.collect::<io::Result<_>>()?;
        let next = AtomicUsize::new(0);
        let core = Arc::new(RealCore { mailboxes, next, lost_panic: Mutex::new(None) });
        watch_forks();
        let mut real = Real { core, threads: Vec::new(), forks: forks() };
        for mailbox in &real.core.mailboxes {
            let (core, mailbox) = (Arc::clone(&real.core), Arc::clone(mailbox));
            let name = "terrace-executor".to_owned();
            let run = move || executor::run(core, mailbox);
            real.threads.push(thread::Builder::new().name(name).spawn(run)?);
        }
        Ok(real)
    }

    /// A handle to give to others.
    pub fn world(&self) -> World {
        World::of_real(Arc::clone(&self.core))
    }

    /// Runs `main` as a task on the first executor, and blocks the calling thread until it is done.
    ///
    /// # Panics
    ///
    /// With the panic of `main`, or of a task that panicked and was not joined; and if called by an
    /// executor.
    pub fn run<T: Send>(&self, main: impl FnOnce() -> T + Send) -> T {
        executor::here(|here| assert!(here.is_none(), "run() on an executor"));
        let mut result = None;
        let slot = &mut result;
        let body: Box<dyn FnOnce() + Send + '_> = Box::new(move || *slot = Some(main()));
        // SAFETY: this function returns, or panics, only after the task has ended, and a task that
        // has ended has no body any more. Nothing in between unwinds.
        let body: Box<dyn FnOnce() + Send + 'static> = unsafe { mem::transmute(body) };
        let done = Arc::new(Done::new());
        self.core.spawn(Some(0), "main", Arc::clone(&done), body);
        while done.word.load(Ordering::Acquire) == 0 {
            parking::wait_thread(&done.word, 0, None);
        }
        let own = done.panic.lock().take();
        let lost = &self.core.lost_panic;
        let lost = || lost.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(payload) = own.or_else(lost) {
            std::panic::resume_unwind(payload);
        }
        result.expect("main is done")
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        if forks() != self.forks {
            // The threads are the parent's.
            return mem::forget(mem::take(&mut self.threads));
        }
        self.core.mailboxes.iter().for_each(|mailbox| mailbox.stop());
        for thread in self.threads.drain(..) {
            // An executor that panicked has said so on standard error.
            let _ended = thread.join();
        }
    }
}

/// A random number: each hasher that the standard library makes is keyed by the system.
pub(crate) fn draw() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(now().0);
    hasher.write_u32(std::process::id());
    hasher.finish()
}
