//! The world a piece of code runs in, found by itself or held as a handle.

use std::io;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::real_world::{self as real, RealCore};
use crate::task::Done;
use crate::time::Nanos;
use crate::timer::Timer;
use crate::virtual_world::{self, Core, here, thread_token};

/// How a wait with a deadline ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// By a wake-up, because the word had changed, or for no reason.
    Woken,
    /// The deadline came first. Also what a destructor in a dead world gets.
    TimedOut,
}

/// A spawned task; dropping it lets the task run on alone.
pub struct Task(Arc<Done>);

impl Task {
    /// Waits until the task is done. In a dead world a destructor returns at once.
    ///
    /// # Panics
    ///
    /// With the task's panic. (In a virtual world that panic comes out of `run` instead.)
    pub fn join(self) {
        while !self.is_done() {
            wait(&self.0.word, 0);
            if dead() {
                return;
            }
        }
        let payload = self.0.panic.lock().take();
        if let Some(payload) = payload {
            panic::resume_unwind(payload);
        }
    }

    /// Whether the task is done.
    pub fn is_done(&self) -> bool {
        self.0.word.load(Ordering::Acquire) != 0
    }
}

/// A handle on a world. Handles are cheap to clone.
#[derive(Clone)]
pub struct World(Inner);

#[derive(Clone)]
enum Inner {
    Virtual(Arc<Core>),
    Real(Arc<RealCore>),
}

impl World {
    pub(crate) fn of_virtual(core: Arc<Core>) -> World {
        World(Inner::Virtual(core))
    }

    pub(crate) fn of_real(core: Arc<RealCore>) -> World {
        World(Inner::Real(core))
    }

    /// The world of the calling task; outside of tasks, the virtual world made or run last on this
    /// thread, or else the real world of the process, which is made when first asked for.
    ///
    /// # Panics
    ///
    /// If that cannot be made: see [`start_default_world`].
    pub fn current() -> World {
        match virtual_world::here_owned() {
            Some(core) => World(Inner::Virtual(core)),
            None => World(Inner::Real(real::current())),
        }
    }

    /// Starts a task. `name` is for deadlock reports. In a dead world `run` is dropped.
    pub fn spawn<F: FnOnce() + Send + 'static>(&self, name: &'static str, run: F) -> Task {
        let done = Arc::new(Done::new());
        match &self.0 {
            Inner::Virtual(core) => {
                core.assert_owner();
                if core.is_dead() {
                    done.word.store(1, Ordering::Release);
                } else {
                    core.spawn(name, Arc::clone(&done), Box::new(run));
                }
            }
            Inner::Real(core) => core.spawn(None, name, Arc::clone(&done), Box::new(run)),
        }
        Task(done)
    }

    /// As [`World::spawn`], on the executor numbered `executor` modulo [`World::executors`].
    pub fn spawn_on<F: FnOnce() + Send + 'static>(
        &self,
        executor: usize,
        name: &'static str,
        run: F,
    ) -> Task {
        match &self.0 {
            Inner::Virtual(_) => self.spawn(name, run),
            Inner::Real(core) => {
                let done = Arc::new(Done::new());
                core.spawn(Some(executor), name, Arc::clone(&done), Box::new(run));
                Task(done)
            }
        }
    }

    /// Starts code of a caller, which may block, compute for long or need a deep stack: in the
    /// default world on a thread of its own, in every other one as a task. Whoever calls it bounds
    /// how much of it runs at once.
    ///
    /// # Errors
    ///
    /// If the operating system has no thread or event descriptor left.
    pub fn spawn_blocking<F: FnOnce() + Send + 'static>(
        &self,
        name: &'static str,
        run: F,
    ) -> io::Result<()> {
        match &self.0 {
            Inner::Real(core) if real::is_default(core)? => real::run_for_caller(run),
            _ => {
                drop(self.spawn(name, run));
                Ok(())
            }
        }
    }

    /// Executors that run tasks side by side; one if virtual.
    pub fn executors(&self) -> usize {
        match &self.0 {
            Inner::Virtual(_) => 1,
            Inner::Real(core) => core.executors(),
        }
    }

    /// Whether time is a number here.
    pub fn is_virtual(&self) -> bool {
        matches!(self.0, Inner::Virtual(_))
    }

    /// A number that no other call draws, for identities: from the system's entropy, or the same
    /// each time if virtual.
    ///
    /// # Errors
    ///
    /// Those of `getrandom(2)`.
    pub fn unique_id(&self) -> io::Result<u128> {
        match &self.0 {
            Inner::Virtual(_) => Ok(0x7e44_ace0_0000_0000_0000_0000_0000_0001),
            Inner::Real(_) => real::unique_id(),
        }
    }

    /// Time since the world began.
    pub fn now(&self) -> Nanos {
        match &self.0 {
            Inner::Virtual(core) => core.owned().now(),
            Inner::Real(_) => real::now(),
        }
    }

    /// Calls `timer.fire(token)` at the instant `at`, or now if that has passed. In a dead world
    /// the timer is dropped.
    ///
    /// # Panics
    ///
    /// In a real world: timers are for device models.
    pub fn call_at(&self, at: Nanos, timer: Arc<dyn Timer>, token: u64) {
        match &self.0 {
            Inner::Virtual(core) => core.call_at(at, timer, token),
            Inner::Real(_) => panic!("timers are for virtual worlds"),
        }
    }

    /// A random number: by the seed in a virtual world, by the system's entropy in a real one.
    pub fn draw(&self) -> u64 {
        match &self.0 {
            Inner::Virtual(core) => core.owned().draw(),
            Inner::Real(_) => real::draw(),
        }
    }

    /// Events that have happened: submissions, completions, wake-ups, switches. Zero if real.
    pub fn events(&self) -> u64 {
        match &self.0 {
            Inner::Virtual(core) => core.owned().events(),
            Inner::Real(_) => 0,
        }
    }

    /// Whether the world has lost its power or was dropped.
    pub fn is_dead(&self) -> bool {
        match &self.0 {
            Inner::Virtual(core) => core.is_dead(),
            Inner::Real(_) => real::dead(),
        }
    }
}

/// Starts the real world of the process, unless the calling thread has a world or it is started:
/// then [`World::current`] cannot fail.
///
/// # Errors
///
/// If the operating system has no thread or event descriptor left.
pub fn start_default_world() -> io::Result<()> {
    if is_virtual() { Ok(()) } else { real::start_default() }
}

/// Starts a task in the current world: `World::current().spawn(..)`.
pub fn spawn<F: FnOnce() + Send + 'static>(name: &'static str, run: F) -> Task {
    World::current().spawn(name, run)
}

/// Time since the world began (real: since the process first asked).
#[inline]
pub fn now() -> Nanos {
    here(|core| core.map_or_else(real::now, Core::now))
}

/// Whether time is a number here: `World::current().is_virtual()`, at less cost.
#[inline]
pub fn is_virtual() -> bool {
    here(|core| core.is_some())
}

/// Waits for `span`.
pub fn sleep(span: Nanos) {
    here(|core| match core {
        Some(core) => core.sleep_until(core.now().saturating_add(span)),
        None => real::sleep(span),
    });
}

/// Lets the tasks that are ready run first.
pub fn yield_now() {
    here(|core| match core {
        Some(core) => core.yield_now(),
        None => real::yield_now(),
    });
}

/// CPU work that a result depends on: waits for one of the world's cores, then for `span` on it,
/// first come, first served. Costs nothing in a real world, where work takes its own time.
pub fn charge(span: Nanos) {
    here(|core| {
        if let Some(core) = core {
            core.charge(span);
        }
    });
}

/// Waits while `*word == seen`, until woken. May return for no reason; callers look again.
///
/// In a dead world it returns at once inside a destructor (ask [`dead`]), and otherwise does not
/// return: the task ends.
pub fn wait(word: &AtomicU64, seen: u64) {
    here(|core| match core {
        Some(core) => {
            core.wait(word, seen, None);
        }
        None => {
            real::wait(word, seen, None);
        }
    });
}

/// As [`wait`], but not beyond the instant `deadline`.
pub fn wait_until(word: &AtomicU64, seen: u64, deadline: Nanos) -> Waited {
    here(|core| match core {
        Some(core) => core.wait(word, seen, Some(deadline)),
        None => real::wait(word, seen, Some(deadline)),
    })
}

/// Wakes the task that has waited longest on `word`, if any. Change the word before.
pub fn wake_one(word: &AtomicU64) {
    wake(word, false);
}

/// Wakes all tasks that wait on `word`. Change the word before.
pub fn wake_all(word: &AtomicU64) {
    wake(word, true);
}

fn wake(word: &AtomicU64, all: bool) {
    here(|core| match core {
        Some(core) => core.wake(word, all),
        None => real::wake(word, all),
    });
}

/// A place where another task may get its turn, by seed, if the world says so: every latch calls it
/// when it is taken. One relaxed load while no world of the process switches at random.
#[inline]
pub fn maybe_switch() {
    if virtual_world::any_switching() {
        here(|core| core.map_or((), Core::maybe_switch));
    }
}

/// Whether destructors must do nothing but release memory: the world has lost its power, or the
/// task panics, and nothing may wait for anything while it is unwound. What must be done all the
/// same is handed to another task, see [`unwinding`].
#[inline]
pub fn dead() -> bool {
    here(|core| core.map_or_else(real::dead, |core| core.is_dead() || std::thread::panicking()))
}

/// Whether the calling task or thread panics in a world that goes on. A destructor that has to do
/// what may wait, such as the rollback of a transaction, then spawns a task for it.
pub fn unwinding() -> bool {
    std::thread::panicking() && !here(|core| core.map_or_else(real::powerless, Core::is_dead))
}

/// A number for the calling task, or for the calling thread outside of tasks. No other that lives
/// has the same; a later one may. Never zero.
#[inline]
pub fn task_id() -> u64 {
    let task = here(|core| core.map_or_else(real::current_task, Core::current_task));
    // No task is the greatest index.
    thread_token() << 32 | u64::from(task.wrapping_add(1))
}
