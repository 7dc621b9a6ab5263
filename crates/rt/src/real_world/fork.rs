//! Forks of the process, counted in the child: what the parent has open is not the child's.
//!
//! A child that was made without the C library (by the system call itself) is not counted: files
//! ask for the process's number before each request, too.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// For tests: runs `child` in a fork of the process, which ends with what that returns, or with 255
/// if it panics; returns how it ended. The child has this thread only: what another one has locked
/// stays locked there.
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
