//! The virtual world: one thread, a number for a clock, and the same run for the same seed.
//!
//! What happens next is decided by a run queue (first come, first served) and, when it is empty, by
//! an event heap keyed by time and order of making. Chance enters only through the seed.
//!
//! ```
//! use terrace_rt::{Nanos, Virtual, VirtualConfig, now, sleep};
//!
//! let world = Virtual::new(VirtualConfig { seed: 1, ..VirtualConfig::default() });
//! let woke = world.run(|| {
//!     sleep(Nanos::from_secs(36_000));
//!     now()
//! });
//! assert_eq!(woke.unwrap(), Nanos::from_secs(36_000));
//! ```

mod core;
mod schedule;

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;

pub(crate) use self::core::{Core, any_switching, here, here_owned, thread_token};

use crate::stack::STACK_BYTES;
use crate::task::Done;
use crate::time::Nanos;
use crate::world::World;

/// What a virtual world is made of.
#[derive(Clone, Debug)]
pub struct VirtualConfig {
    /// Decides where tasks switch at random.
    pub seed: u64,
    /// Tasks switch at one in this number of latch acquisitions; 0 is never.
    pub switch_one_in: u32,
    /// Cores for which [`crate::charge`] queues; at least one.
    pub cores: u32,
    /// Bytes in the stack of each task.
    pub stack_bytes: usize,
}

impl Default for VirtualConfig {
    fn default() -> VirtualConfig {
        VirtualConfig { seed: 0, switch_one_in: 0, cores: 1, stack_bytes: STACK_BYTES }
    }
}

/// Why a virtual world stopped before its main task was done. Its tasks are gone; it is dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The power was cut, as [`Virtual::cut_at_event`] or [`Virtual::cut_at`] asked.
    PowerCut {
        /// Events that had happened.
        event: u64,
        /// When it was cut.
        at: Nanos,
    },
    /// Every task waits, and nothing is to come.
    Deadlock {
        /// The names of the tasks that wait.
        tasks: Vec<&'static str>,
    },
}

impl fmt::Display for Stopped {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stopped::PowerCut { event, at } => write!(out, "power cut at event {event}, {at}"),
            Stopped::Deadlock { tasks } => write!(out, "deadlock of {}", tasks.join(", ")),
        }
    }
}

impl std::error::Error for Stopped {}

/// A virtual world. Dropping it unwinds all its tasks.
pub struct Virtual {
    core: Arc<Core>,
    /// The world belongs to the thread that made it.
    not_send: PhantomData<*const ()>,
}

impl Virtual {
    /// A world at time zero, without tasks. The free functions called on this thread mean it, until
    /// another virtual world is made or run here, or this one is dropped.
    pub fn new(config: VirtualConfig) -> Virtual {
        let core = Arc::new(Core::new(config));
        core.enter();
        Virtual { core, not_send: PhantomData }
    }

    /// A handle to give to others.
    pub fn world(&self) -> World {
        World::of_virtual(Arc::clone(&self.core))
    }

    /// Runs `main` as a task, and all other tasks beside it, until `main` returns. Tasks that are
    /// not done by then stand still until the next call.
    ///
    /// # Errors
    ///
    /// [`Stopped`] if the power was cut or nothing can happen any more. The world is dead then.
    ///
    /// # Panics
    ///
    /// With the panic of the first task that panics (the others are unwound before, and the world
    /// is dead), if the world is dead already, and if called inside a task.
    pub fn run<T, F: FnOnce() -> T>(&self, main: F) -> Result<T, Stopped> {
        assert!(!self.core.is_dead(), "run() in a dead world");
        assert!(!self.core.is_running(), "run() inside run()");
        self.core.enter();
        let mut result = None;
        let slot = &mut result;
        let body: Box<dyn FnOnce() + '_> = Box::new(move || *slot = Some(main()));
        // SAFETY: the body runs in a task that is gone when `run_until` returns or unwinds: done,
        // or unwound with the world. So it does not outlive what it borrows.
        let body: Box<dyn FnOnce() + 'static> = unsafe { mem::transmute(body) };
        let done = Arc::new(Done::new());
        self.core.spawn("main", Arc::clone(&done), body);
        self.core.run_until(&done)?;
        Ok(result.expect("main is done"))
    }

    /// Cuts the power once `event` events have happened, at the next switch.
    pub fn cut_at_event(&self, event: u64) {
        self.core.cut_at_event(event);
    }

    /// Cuts the power at the instant `at`, after what happens at that instant.
    pub fn cut_at(&self, at: Nanos) {
        self.core.cut_at(at);
    }
}

impl Drop for Virtual {
    fn drop(&mut self) {
        self.core.kill();
        self.core.leave();
    }
}
