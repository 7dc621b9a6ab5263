//! Rings for groups of requests (`psync`): one system call hands a group over and waits for all.
//!
//! ```text
//!   idle ring --> its submission queue holds the whole group --> one call --> all answers --> idle
//! ```
//!
//! - G1: a group has a ring to itself, and any thread may use an idle one; a device has as many as
//!   groups were ever under way at the same time.
//! - G2: transfers keep the memory that the kernel was given until it has answered. What has no
//!   answer within the time limit goes to a helper, with its ring.
//! - G3: a group that the kernel interrupts (a signal) is waited for again; nothing of it is handed
//!   over twice. One that it refuses is done by blocking calls.

use io_uring::IoUring;
use io_uring::types::SubmitArgs;
use terrace_rt::{LeafMutex, Nanos, drive_reactor};

use super::ring::{entry, timespec};
use super::transfer::Transfer;
use crate::PSYNC_GROUP_MAX;

/// How often answers are looked for that the kernel refuses to wait for.
const LOOK_AGAIN: Nanos = Nanos::from_millis(1);

/// The idle rings of a device.
#[derive(Default)]
pub(super) struct Groups(LeafMutex<Vec<IoUring>>);

impl Groups {
    /// A ring for a group; none if the kernel gives none.
    pub(super) fn take(&self) -> Option<IoUring> {
        let idle = self.0.lock().pop();
        idle.or_else(|| IoUring::new(PSYNC_GROUP_MAX as u32).ok())
    }

    /// The ring has nothing left.
    pub(super) fn give_back(&self, ring: IoUring) {
        self.0.lock().push(ring);
    }
}

/// A group on its way.
pub(super) struct Group {
    /// Present until the end of `run`.
    ring: Option<IoUring>,
    /// Those without an answer.
    transfers: Vec<Option<Transfer>>,
    left: usize,
    /// The kernel refuses the ring: it is not entered again.
    refused: bool,
}

/// How a wait for a group ended.
pub(super) enum Ended {
    /// All is answered; the ring, if it can be used again.
    Answered(Option<IoUring>),
    /// The time is over, and the kernel still has some of it.
    Late(Group),
}

impl Group {
    /// Puts `transfers` into the submission queue of an idle ring.
    ///
    /// # Panics
    ///
    /// If there are more than it holds.
    pub(super) fn new(mut ring: IoUring, transfers: Vec<Transfer>) -> Group {
        for (slot, transfer) in transfers.iter().enumerate() {
            let entry = entry(transfer).user_data(slot as u64);
            // SAFETY: the memory that the entry points to belongs to a transfer that is kept until
            // it is answered (G2).
            let pushed = unsafe { ring.submission().push(&entry) };
            pushed.expect("an idle ring has room for a group");
        }
        let left = transfers.len();
        let transfers = transfers.into_iter().map(Some).collect();
        Group { ring: Some(ring), transfers, left, refused: false }
    }

    /// Hands it over and waits for all of it, each time as long as `span` says; none is for ever.
    pub(super) fn run(mut self, span: impl Fn() -> Option<Nanos>) -> Ended {
        while self.left > 0 {
            let span = span();
            if span == Some(Nanos::ZERO) {
                return Ended::Late(self);
            }
            self.enter(span);
            self.reap();
        }
        Ended::Answered(self.ring.take().filter(|_| !self.refused))
    }

    /// Waits for the rest, however long that takes.
    pub(super) fn run_out(self) {
        drop(self.run(|| None));
    }

    fn ring(&mut self) -> &mut IoUring {
        self.ring.as_mut().expect("it is under way")
    }

    fn enter(&mut self, span: Option<Nanos>) {
        if self.refused {
            return drive_reactor(LOOK_AGAIN);
        }
        let left = self.left;
        let ring = self.ring();
        let entered = match span {
            None => ring.submit_and_wait(left),
            Some(span) => {
                let span = timespec(span);
                ring.submitter().submit_with_args(left, &SubmitArgs::new().timespec(&span))
            }
        };
        match entered.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)) {
            // The time is over, a signal came, or the kernel is short of something for now.
            Ok(_) | Err(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => (),
            Err(_) => self.refused(),
        }
    }

    fn reap(&mut self) {
        loop {
            let next = self.ring().completion().next();
            let Some(answer) = next else { return };
            let transfer = self.transfers[answer.user_data() as usize].take();
            self.left -= 1;
            transfer.expect("the kernel answers once").complete(answer.result());
        }
    }

    /// The kernel refuses the ring: blocking calls do what it has not taken, which is the end of
    /// the group, since it takes in order; the answers to the others appear in memory.
    #[cold]
    fn refused(&mut self) {
        self.refused = true;
        let not_taken = self.ring().submission().len();
        let first = self.transfers.len() - not_taken;
        for transfer in self.transfers[first..].iter_mut().filter_map(Option::take) {
            self.left -= 1;
            transfer.run_aside();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.left > 0 {
            // Only unwinding gets here: the memory stays, since the kernel may use it.
            std::mem::forget(std::mem::take(&mut self.transfers));
        }
    }
}
