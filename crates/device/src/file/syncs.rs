//! The syncs of a file: one at a time, and none after one that failed (file.F4).
//!
//! The kernel tells an open file of a write that it has lost only once, at the first sync. Of two
//! syncs side by side the one would fail, and the other succeed for the same writes.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_rt as rt;

/// See the module.
#[derive(Default)]
pub(crate) struct Syncs {
    one_at_a_time: rt::Mutex<()>,
    has_failed: AtomicBool,
}

impl Syncs {
    /// Runs `sync` once those before it have ended; `None` if one of them failed.
    pub(crate) fn run(&self, sync: impl FnOnce() -> io::Result<()>) -> Option<io::Result<()>> {
        // A task that unwinds may not wait for another task.
        let _one = if rt::dead() {
            self.one_at_a_time.try_lock()
        } else {
            Some(self.one_at_a_time.lock())
        };
        if self.has_failed.load(Ordering::Acquire) {
            return None;
        }
        let synced = sync();
        if synced.is_err() {
            self.has_failed.store(true, Ordering::Release);
        }
        Some(synced)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// The bug: a sync that began while another one was under way took the kernel's success for its
    /// own, though the other had been told, once for both, that writes were lost.
    #[test]
    fn a_sync_beside_one_that_fails_does_not_succeed() {
        let syncs = Syncs::default();
        let (first_began, first) = mpsc::channel();
        let (second_began, second) = mpsc::channel();
        thread::scope(|threads| {
            let syncs = &syncs;
            threads.spawn(move || {
                let failed = syncs.run(|| {
                    first_began.send(()).expect("somebody listens");
                    // The second one comes, or waits.
                    let _came = second.recv_timeout(Duration::from_millis(200));
                    Err(io::Error::from_raw_os_error(libc::EIO))
                });
                assert!(failed.is_some_and(|failed| failed.is_err()));
            });
            first.recv().expect("it begins");
            let synced = syncs.run(|| {
                second_began.send(()).expect("somebody listens");
                Ok(())
            });
            assert!(synced.is_none(), "the kernel has told the first one, for both");
        });
        assert!(syncs.run(|| Ok(())).is_none());
    }
}
