//! The task that forces the log for commits whose callers do not wait in the call.
//!
//! - F1: it starts with the first such commit, in the world of the database, and is joined at the
//!   closing: a database that has none does without it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_page::Lsn;
use terrace_rt::{LeafMutex, Task, World};

use super::Engine;

/// The task, once there is one.
#[derive(Default)]
pub(crate) struct Forcing {
    is_started: AtomicBool,
    state: LeafMutex<State>,
}

#[derive(Default)]
struct State {
    /// Until the task has started.
    world: Option<World>,
    task: Option<Task>,
}

impl Forcing {
    /// The database is open: the task may start in `world`.
    pub(crate) fn allow(&self, world: &World) {
        self.state.lock().world = Some(world.clone());
    }

    /// Gives the task, to be joined; none starts any more.
    pub(crate) fn end(&self) -> Option<Task> {
        let mut state = self.state.lock();
        state.world = None;
        state.task.take()
    }
}

impl Engine {
    /// Has the log made durable up to `position`, without a wait.
    pub(crate) fn want_durable(self: &Arc<Engine>, position: Lsn) {
        self.log.want_durable(position);
        if !self.forcing.is_started.load(Ordering::Acquire) {
            self.start_forcing();
        }
    }

    #[cold]
    fn start_forcing(self: &Arc<Engine>) {
        let mut state = self.forcing.state.lock();
        // Without one the database is closed: the closing has forced the log, or tells why not.
        let Some(world) = state.world.take() else { return };
        let engine = Arc::clone(self);
        let force = move || engine.log.force_as_wanted(|| engine.check_open().is_err());
        state.task = Some(world.spawn("log force", force));
        self.forcing.is_started.store(true, Ordering::Release);
    }
}
