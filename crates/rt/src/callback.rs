//! Code of a caller that runs while a latch is held for it: what would wait there is refused.
//!
//! - C1: a latch has no time limit and finds no circles. Code of callers that runs under one may
//!   ask for anything, that very latch included, and would wait for ever. So it runs in
//!   [`callback`], and whatever may wait asks [`in_callback`] before it does.
//! - C2: it is told by task, not by thread: code of a caller may let other tasks run meanwhile.
//! - Cost: a task in no callback, in a thread where no other task is in one, pays one load.

use std::cell::{Cell, RefCell};

use crate::world::task_id;

thread_local! {
    /// The length of `CALLED`.
    static COUNT: Cell<usize> = const { Cell::new(0) };

    /// The tasks of this thread that are in a callback, once for each that they are in.
    static CALLED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Takes its task out of the list, also when the callback panics or its task is ended.
struct Called(u64);

impl Drop for Called {
    fn drop(&mut self) {
        CALLED.with_borrow_mut(|called| {
            let last = called.iter().rposition(|task| *task == self.0);
            called.swap_remove(last.expect("it was put there, and stays in its thread"));
            COUNT.set(called.len());
        });
    }
}

/// Runs code of a caller under a latch (C1). What it owns is dropped under the latch, too.
pub fn callback<T>(run: impl FnOnce() -> T) -> T {
    let task = task_id();
    CALLED.with_borrow_mut(|called| {
        called.push(task);
        COUNT.set(called.len());
    });
    let _called = Called(task);
    run()
}

/// Whether the calling task, or the calling thread outside of tasks, runs a [`callback`].
#[inline]
pub fn in_callback() -> bool {
    COUNT.get() > 0 && is_called()
}

#[cold]
fn is_called() -> bool {
    let task = task_id();
    CALLED.with_borrow(|called| called.contains(&task))
}
