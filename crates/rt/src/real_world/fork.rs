//! Forks of the process, counted in the child: what the parent has open is not the child's.
//!
//! A child that was made without the C library (by the system call itself) is not counted: files
//! ask for the process's number before each request, too.

use std::convert::Infallible;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

static FORKS: AtomicU64 = AtomicU64::new(0);

/// How many forks lie between this process and the one that first called [`watch_forks`]. One
/// relaxed load.
#[inline]
pub fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// From now on forks are counted.
pub fn watch_forks() {
    extern "C" fn count() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static WATCHING: Once = Once::new();
    // SAFETY: the handler only adds to an atomic, which is allowed in the child of a fork.
    WATCHING.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(count));
    });
}

/// What a process has one of, and its fork another, made when first asked for: threads of the
/// parent do not run in the child, and what they have locked there stays locked. Never dropped.
pub(crate) struct PerProcess<T: 'static> {
    newest: AtomicPtr<Owned<T>>,
    make: fn() -> T,
}

struct Owned<T> {
    forks: u64,
    value: T,
}

impl<T: Sync + 'static> PerProcess<T> {
    pub(crate) const fn new(make: fn() -> T) -> PerProcess<T> {
        PerProcess { newest: AtomicPtr::new(ptr::null_mut()), make }
    }

    /// That of this process.
    #[inline]
    pub(crate) fn get(&self) -> &'static T {
        let made = self.get_or(|| Ok::<T, Infallible>((self.make)()));
        made.unwrap_or_else(|never| match never {})
    }

    /// That of this process, made by `make` if there is none yet.
    #[inline]
    pub(crate) fn get_or<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&'static T, E> {
        let newest = self.newest.load(Ordering::Acquire);
        // SAFETY: it is null, or was leaked by `renew`.
        match unsafe { newest.as_ref() } {
            Some(owned) if owned.forks == forks() => Ok(&owned.value),
            _ => make().map(|value| self.renew(newest, value)),
        }
    }

    /// Takes no lock: a thread that is in the parent only might have it.
    #[cold]
    fn renew(&self, before: *mut Owned<T>, value: T) -> &'static T {
        watch_forks();
        let fresh = Box::into_raw(Box::new(Owned { forks: forks(), value }));
        let newest = &self.newest;
        match newest.compare_exchange(before, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it is never freed.
            Ok(_) => unsafe { &(*fresh).value },
            Err(_) => {
                // SAFETY: made above, and no other code knows it.
                drop(unsafe { Box::from_raw(fresh) });
                self.get()
            }
        }
    }
}

/// For tests: runs `child` in a fork of the process, which ends with what that returns, or with 255
/// if it panics; returns how it ended. One that hangs is killed. The child has this thread only:
/// what another one has locked stays locked there.
///
/// # Panics
///
/// If the system has no process left, or the child was killed.
#[doc(hidden)]
pub fn in_fork(child: impl FnOnce() -> u8) -> u8 {
    let mut status = 0;
    // SAFETY: the child runs `child` and ends at once, without the parent's destructors; the
    // parent waits for the child that it has made.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "a process is left");
    if pid == 0 {
        const SECONDS: libc::c_uint = 60;
        // SAFETY: a plain system call; the signal ends the process.
        unsafe { libc::alarm(SECONDS) };
        let run = std::panic::AssertUnwindSafe(child);
        let code = std::panic::catch_unwind(run).unwrap_or(u8::MAX);
        // SAFETY: it does not return.
        unsafe { libc::_exit(code.into()) }
    }
    // SAFETY: `status` lives until the call returns.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert!(waited == pid && libc::WIFEXITED(status), "the child ends by itself: {status}");
    libc::WEXITSTATUS(status) as u8
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, mpsc};

    use crate::{Helpers, Real, World, in_fork, sleep, spawn};

    /// What needs threads of the process, and what those have in common.
    fn use_all() {
        let ran = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&ran);
        spawn("a task", move || {
            sleep(crate::Nanos::from_micros(10));
            runs.store(true, std::sync::atomic::Ordering::Release);
        })
        .join();
        assert!(ran.load(std::sync::atomic::Ordering::Acquire));
        let (send, receive) = mpsc::channel();
        Arc::<Helpers>::default().run(move || send.send(7).expect("somebody listens"));
        assert_eq!(receive.recv(), Ok(7));
        assert_eq!(Real::new(1).run(|| 8), 8);
        assert_eq!(World::current().executors(), 1);
    }

    #[test]
    fn a_fork_has_threads_of_its_own() {
        // The child waited for ever for threads that only its parent has.
        let real = Real::new(1);
        use_all();
        let code = in_fork(|| {
            use_all();
            drop(real);
            in_fork(|| {
                use_all();
                3
            }) + 4
        });
        assert_eq!(code, 7);
        use_all();
    }
}
