//! Rollbacks that memory has no frames for.
//!
//! With few frames for many tasks, an operation may be refused a frame since all wait for each
//! other's. A transaction then is rolled back and run again; its rollback can't be given up.
//!
//! - F1: rollbacks that were refused go on one after the other, and hold no frame as they wait for
//!   their turn. A rollback takes no locks, so none waits for what another one holds.
//! - F2: a transaction that was refused is run again when no rollback waits. So a refused
//!   transaction leaves the frames to the rollback whose turn it is, which can get all of them in
//!   the end.

use std::sync::atomic::{AtomicU32, Ordering};

use terrace_rt::{Mutex, MutexGuard, Nanos, Signal, now};

/// The rollbacks that were refused a frame.
pub(crate) struct FrameRoom {
    turn: Mutex<()>,
    stuck: AtomicU32,
    /// Given when none is stuck any more.
    clear: Signal,
}

/// The turn of a rollback, as long as this lives.
pub(crate) struct Turn<'r> {
    room: &'r FrameRoom,
    _turn: MutexGuard<'r, ()>,
}

impl FrameRoom {
    pub(crate) fn new() -> FrameRoom {
        FrameRoom { turn: Mutex::new(()), stuck: AtomicU32::new(0), clear: Signal::new() }
    }

    /// Waits until no other rollback has the turn (F1).
    pub(crate) fn turn(&self) -> Turn<'_> {
        self.stuck.fetch_add(1, Ordering::Relaxed);
        Turn { room: self, _turn: self.turn.lock() }
    }

    /// Waits, for `limit` at most, while rollbacks are stuck (F2).
    pub(crate) fn wait_for_rollbacks(&self, limit: Nanos) {
        let deadline = now().saturating_add(limit);
        loop {
            let seen = self.clear.seen();
            if self.stuck.load(Ordering::Relaxed) == 0 || now() >= deadline || terrace_rt::dead() {
                return;
            }
            self.clear.wait_until(seen, deadline);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.room.stuck.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.room.clear.notify_all();
        }
    }
}
