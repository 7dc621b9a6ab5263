//! Time and tasks, in one of two worlds that the code above cannot tell apart.
//!
//! - **Virtual** ([`Virtual`]): one thread, time is a number, an event heap decides what happens
//!   next. The same seed gives the same run, and the power can be cut at any event.
//! - **Real** ([`Real`]): a few executors, each a thread that runs tasks and keeps its own ring to
//!   the devices. A foreign thread may call everything too, and blocks while it waits.
//!
//! In both, tasks are stackful coroutines, so the engine is plain blocking code. Everything that
//! blocks is built on [`wait`] and [`wake_one`], which have the shape of a futex.
//!
//! Rules for the code above:
//!
//! - No threads, clocks, blocking primitives, thread-local state or unseeded chance of its own.
//! - A destructor may run while its task is unwound. There, what would wait returns at once:
//!   ask [`dead`] after each wait in a loop of your own, and do nothing but free memory if it is.
//!   What must be done even after a panic, where [`unwinding`] says so, another task does.
//! - What is guarded by a [`LeafMutex`] must not wait. Debug builds check it at each switch.
//! - The address of a word that tasks wait on must stay valid until they have been woken.

#[cfg(not(loom))]
mod block_on;
#[cfg(not(loom))]
mod callback;
mod lane;
mod latch;
mod leaf;
#[cfg(loom)]
pub mod model;
mod mutex;
mod prng;
mod queue;
mod rw_latch;
mod signal;
mod time;
mod timer;
mod word;

#[cfg(not(loom))]
mod real_world;
#[cfg(not(loom))]
mod stack;
#[cfg(not(loom))]
mod task;
#[cfg(not(loom))]
mod virtual_world;
#[cfg(not(loom))]
mod waker;
#[cfg(not(loom))]
mod within;
#[cfg(not(loom))]
mod world;

#[cfg(not(loom))]
pub use block_on::block_on;
#[cfg(not(loom))]
pub use callback::{callback, in_callback};
pub use lane::lane;
pub use latch::Latch;
pub use leaf::{LeafGuard, LeafMutex};
pub use mutex::{Mutex, MutexGuard};
pub use prng::Prng;
pub use queue::Queue;
pub use rw_latch::{ReadGuard, RwLatch, WriteGuard};
pub use signal::{Event, Signal};
pub use time::Nanos;
pub use timer::Timer;

#[cfg(not(loom))]
pub use real_world::{
    Calls, Helpers, Reactor, Real, drive_reactor, forks, in_fork, on_executor, own_reactor,
    reactor, refuse_calls, watch_forks,
};
#[cfg(not(loom))]
pub use virtual_world::{Stopped, Virtual, VirtualConfig};
#[cfg(not(loom))]
pub use waker::wake_future;
#[cfg(not(loom))]
pub use within::within;
#[cfg(not(loom))]
pub use world::{
    Task, Waited, World, charge, dead, is_virtual, maybe_switch, now, sleep, spawn,
    start_default_world, task_id, unwinding, wait, wait_until, wake_all, wake_one, yield_now,
};
