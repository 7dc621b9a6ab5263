//! What other threads tell an executor: wake this task, start that one, stop.
//!
//! - M1: `post` leaves the mail first and rings the bell second; the executor says that it falls
//!   asleep first and looks for mail second. So it never sleeps on mail.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::task::{Done, TaskIndex};

/// A task to start.
pub(super) struct NewTask {
    pub(super) name: &'static str,
    pub(super) done: Arc<Done>,
    pub(super) body: Box<dyn FnOnce() + Send>,
}

/// What has come in.
#[derive(Default)]
pub(super) struct Mail {
    pub(super) woken: Vec<TaskIndex>,
    pub(super) spawned: Vec<NewTask>,
    pub(super) stop: bool,
    /// The reader has gone.
    closed: bool,
}

/// The way into an executor.
pub(crate) struct Mailbox {
    mail: Mutex<Mail>,
    pending: AtomicBool,
    asleep: AtomicBool,
    bell: File,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Mailbox> {
        // SAFETY: a plain system call.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if bell < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is open and nothing else owns it.
        let bell = unsafe { File::from_raw_fd(bell) };
        let [pending, asleep] = [false, false].map(AtomicBool::new);
        Ok(Mailbox { mail: Mutex::default(), pending, asleep, bell })
    }

    /// A waker has taken `task` out of the parking table.
    pub(super) fn wake_task(&self, task: TaskIndex) {
        if !super::executor::wake_here(self, task) {
            self.post(|mail| mail.woken.push(task));
        }
    }

    /// Starts a task; gives it back if the executor has ended.
    pub(super) fn spawn(&self, task: NewTask) -> Result<(), NewTask> {
        let mut task = Some(task);
        self.post(|mail| {
            if !mail.closed {
                mail.spawned.extend(task.take());
            }
        });
        task.map_or(Ok(()), Err)
    }

    pub(super) fn stop(&self) {
        self.post(|mail| mail.stop = true);
    }

    /// Whether there is mail. One relaxed load; `fall_asleep` is the careful one.
    #[inline]
    pub(super) fn has_mail(&self) -> bool {
        self.pending.load(Ordering::Relaxed)
    }

    /// Swaps what has come in against `empty`.
    pub(super) fn take(&self, empty: &mut Mail) {
        let mut mail = self.lock();
        self.pending.store(false, Ordering::Relaxed);
        std::mem::swap(&mut mail.woken, &mut empty.woken);
        std::mem::swap(&mut mail.spawned, &mut empty.spawned);
        empty.stop = mail.stop;
    }

    /// The end: gives back what will not start any more.
    pub(super) fn close(&self) -> Vec<NewTask> {
        let mut mail = self.lock();
        mail.closed = true;
        std::mem::take(&mut mail.spawned)
    }

    /// Announces sleep; false if mail came first. Either way `wake_up` comes next.
    pub(super) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        !self.pending.load(Ordering::SeqCst)
    }

    /// The opposite; true if a sender rings, or is about to ring, the bell.
    pub(super) fn wake_up(&self) -> bool {
        !self.asleep.swap(false, Ordering::SeqCst)
    }

    /// Readable when mail came to a sleeper.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Stops the bell; false if it does not ring (yet).
    pub(super) fn silence(&self) -> bool {
        let mut count = [0; 8];
        match (&self.bell).read_exact(&mut count) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("eventfd: {error}"),
        }
    }

    fn post(&self, write: impl FnOnce(&mut Mail)) {
        write(&mut self.lock());
        self.pending.store(true, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            // A counter that is full is readable, which is all that is asked for.
            let _readable = (&self.bell).write_all(&1u64.to_ne_bytes());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
