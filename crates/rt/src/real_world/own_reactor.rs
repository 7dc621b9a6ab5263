//! A reactor of a thread that is no executor, for requests that it waits for itself.
//!
//! - W1: a reactor may take a file descriptor for as long as its thread lives: at most
//!   [`REACTORS_MAX`] threads have one.
//! - W2: a fork does not touch the reactor of its parent, and makes its own.

use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reactors of this kind in a process, at most.
const REACTORS_MAX: usize = 64;

static REACTORS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

struct Own {
    process: u32,
    reactor: Box<dyn Any>,
}

impl Own {
    fn new<R: Any>(make: impl FnOnce() -> Option<R>) -> Option<Own> {
        let more = |reactors| (reactors < REACTORS_MAX).then_some(reactors + 1);
        REACTORS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let Some(reactor) = make() else {
            REACTORS.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        Some(Own { process: std::process::id(), reactor: Box::new(reactor) })
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        REACTORS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Uses the reactor of the calling thread, which is no executor, made by `make` if it has none yet.
/// `operate` may wait. None if too many threads have one, the thread is ending, or `make` gives
/// none.
pub fn own_reactor<R: Any, T>(
    make: impl FnOnce() -> Option<R>,
    operate: impl FnOnce(&mut R) -> T,
) -> Option<T> {
    let used = OWN.try_with(|own| {
        let mut own = own.borrow_mut();
        if let Some(of_parent) = own.take_if(|own| own.process != std::process::id()) {
            // W2
            std::mem::forget(of_parent);
        }
        if own.is_none() {
            *own = Own::new(make);
        }
        let reactor = &mut own.as_mut()?.reactor;
        Some(operate(reactor.downcast_mut().expect("one kind of reactor in a process")))
    });
    used.ok().flatten()
}
