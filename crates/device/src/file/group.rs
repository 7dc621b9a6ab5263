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
//! - G3: a group may grow while it is under way, a part at a time, which is handed over by itself.
//! - G4: a group that the kernel interrupts (a signal) is waited for again; nothing of it is handed
//!   over twice. One that it refuses is done by blocking calls.

use io_uring::IoUring;
use io_uring::types::SubmitArgs;
use terrace_rt::{LeafMutex, Nanos, drive_reactor};

use super::ring::{entry, timespec};
use super::transfer::Transfer;
use crate::PSYNC_GROUP_MAX;

/// How often answers are looked for that the kernel refuses to wait for.
const LOOK_AGAIN: Nanos = Nanos::from_millis(1);
/// How long a group that unwinds waits for each further answer, if its memory is its own.
const LAST_ANSWERS: Nanos = Nanos::from_millis(200);

/// The idle rings of a device.
#[derive(Default)]
pub(super) struct Groups(LeafMutex<Vec<IoUring>>);

impl Groups {
    /// A ring for a group; none if the kernel gives none.
    pub(super) fn take(&self) -> Option<IoUring> {
        let idle = self.0.lock().pop();
        idle.or_else(open)
    }

    /// The ring has nothing left.
    pub(super) fn give_back(&self, ring: IoUring) {
        self.0.lock().push(ring);
    }
}

/// Answers are taken when the thread enters the kernel, which need not interrupt it for them.
/// Kernels before 5.19 do not know that flag.
fn open() -> Option<IoUring> {
    let entries = PSYNC_GROUP_MAX as u32;
    let quick = IoUring::builder().setup_coop_taskrun().build(entries);
    quick.or_else(|_| IoUring::new(entries)).ok()
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
    pub(super) fn new(ring: IoUring, transfers: Vec<Transfer>) -> Group {
        let mut group = Group::begin(ring);
        transfers.into_iter().for_each(|transfer| group.push(transfer));
        group
    }

    /// An empty one (G3).
    pub(super) fn begin(ring: IoUring) -> Group {
        Group { ring: Some(ring), transfers: Vec::new(), left: 0, refused: false }
    }

    /// Adds a transfer to the submission queue.
    ///
    /// # Panics
    ///
    /// If it is full.
    pub(super) fn push(&mut self, transfer: Transfer) {
        if self.refused {
            return transfer.run_aside();
        }
        let entry = entry(&transfer).user_data(self.transfers.len() as u64);
        // SAFETY: the memory that the entry points to belongs to a transfer that is kept until it
        // is answered (G2).
        let pushed = unsafe { self.ring().submission().push(&entry) };
        pushed.expect("an idle ring has room for a group");
        self.transfers.push(Some(transfer));
        self.left += 1;
    }

    /// Those without an answer.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Hands over what is new, waits for `want` answers, at most for `span`, and tells `answered`
    /// the place of each transfer that has one now.
    pub(super) fn go_on(&mut self, want: usize, span: Option<Nanos>, answered: impl FnMut(usize)) {
        self.enter(want, span);
        self.reap(answered);
    }

    /// Hands it over and waits for all of it, each time as long as `span` says; none is for ever.
    pub(super) fn run(mut self, span: impl Fn() -> Option<Nanos>) -> Ended {
        while self.left > 0 {
            let span = span();
            if span == Some(Nanos::ZERO) {
                return Ended::Late(self);
            }
            self.enter(self.left, span);
            self.reap(|_| ());
        }
        Ended::Answered(self.into_ring())
    }

    /// The ring of a group that is answered, if it can be used again.
    pub(super) fn into_ring(mut self) -> Option<IoUring> {
        assert!(self.left == 0, "a ring that is idle");
        self.ring.take().filter(|_| !self.refused)
    }

    /// Waits for the rest, however long that takes.
    pub(super) fn run_out(self) {
        drop(self.run(|| None));
    }

    fn ring(&mut self) -> &mut IoUring {
        self.ring.as_mut().expect("it is under way")
    }

    fn enter(&mut self, want: usize, span: Option<Nanos>) {
        if self.refused {
            return if want > 0 {
                drive_reactor(LOOK_AGAIN)
            };
        }
        let ring = self.ring();
        let entered = match span {
            Some(span) if want > 0 => {
                let span = timespec(span);
                ring.submitter().submit_with_args(want, &SubmitArgs::new().timespec(&span))
            }
            _ => ring.submit_and_wait(want),
        };
        match entered.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)) {
            // The time is over, a signal came, or the kernel is short of something for now.
            Ok(_) | Err(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => (),
            Err(_) => self.refused(),
        }
    }

    fn reap(&mut self, mut answered: impl FnMut(usize)) {
        loop {
            let next = self.ring().completion().next();
            let Some(answer) = next else { return };
            let place = answer.user_data() as usize;
            let transfer = self.transfers[place].take();
            self.left -= 1;
            transfer.expect("the kernel answers once").complete(answer.result());
            answered(place);
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
    /// Only unwinding gets here with anything left.
    fn drop(&mut self) {
        while self.left > 0 {
            let before = self.left;
            let is_detached = self.transfers.iter().flatten().all(Transfer::is_detached);
            self.enter(before, is_detached.then_some(LAST_ANSWERS));
            self.reap(|_| ());
            if is_detached && self.left == before {
                // The memory stays, since the kernel may use it.
                std::mem::forget(std::mem::take(&mut self.transfers));
                self.left = 0;
            }
        }
    }
}
