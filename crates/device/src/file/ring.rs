//! The ring of an executor: io_uring as a reactor.
//!
//! ```text
//!   start -> lane of the device -> submission queue -> kernel -> completion queue -> complete
//!                                  `-- at most IN_FLIGHT_MAX of a device, each in a slot --'
//! ```
//!
//! - U1: a slot keeps its transfer, and so its memory, until the kernel has answered.
//! - U2: a device that does not answer holds up no other. At most `IN_FLIGHT_MAX` of its requests
//!   are in flight, the others wait in its lane. What may block (a sync, a write to a frozen file
//!   system, anything on a file system that has no asynchronous requests) occupies a worker thread
//!   of the kernel, which the devices of a ring share: the kernel may make `WORKERS_MAX` of them,
//!   where it would make four for each processor unasked.
//! - U3: the ring is used by the thread that made it, and dropped by it once it is empty.
//! - U4: a ring that ends does not wait for a device that does not answer, if the memory of all
//!   requests is their own: it stays allocated until the process ends.
//! - U5: a kernel that refuses the ring in the middle of its life (a filter of system calls, no
//!   memory) is asked no more for a while: blocking calls do what it has not taken yet, and what
//!   comes. A read that it has taken is done again; a write or sync fails, as one that has no
//!   answer in time, and its memory stays allocated.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, opcode, squeue};
use terrace_rt::{Nanos, Reactor};

use super::job::Job;
use super::transfer::{PIECES_MAX, Transfer};

const SUBMISSIONS: u32 = 256;
/// Requests of one device that the kernel has at once, at most.
const IN_FLIGHT_MAX: usize = 128;
/// Worker threads, which the kernel makes as those there are block: enough for 32 devices that do
/// not answer. It makes fewer where the limit of the user's processes is lower.
const WORKERS_MAX: u32 = 32 * IN_FLIGHT_MAX as u32;
/// The most requests that wait for each other before they are passed to the kernel. If they all
/// waited until every task that is ready has run, the device would have that much less to do: reads
/// of 64 tasks lost a fifth to that.
const HANDED_OVER_TOGETHER: usize = 4;
/// The kernel keeps completions beyond that until there is room.
const COMPLETIONS: u32 = 16 * IN_FLIGHT_MAX as u32;
/// More bytes at once become a short transfer, whose rest is moved with blocking calls.
const BYTES_MAX: usize = 1 << 30;
/// How long a ring that ends waits for each further answer (U4).
const LAST_ANSWERS: Nanos = Nanos::from_millis(200);
/// Refusals for want of memory in a row, before the ring is given up (U5).
const SHORTAGES_MAX: u32 = 1000;
/// Transfers by blocking calls before another ring is tried (U5).
const ASIDE_MAX: u32 = 4096;
const BELL: u64 = u64::MAX;
const PER_SECOND: u64 = 1_000_000_000;

/// The asynchronous requests of one executor.
pub(super) struct Ring {
    uring: IoUring,
    /// The requests in flight, each with its lane.
    slots: Vec<Option<(Transfer, usize)>>,
    free: Vec<usize>,
    lanes: Vec<Lane>,
    /// Those in the submission queue: what the kernel has not taken yet, oldest first.
    not_taken: VecDeque<u64>,
    /// The kernel watches the bell.
    bell_armed: bool,
    /// The kernel refuses it (U5).
    refused: bool,
    shortages: u32,
    /// Transfers that went to blocking calls since.
    aside: u32,
}

/// The requests of one device (U2). A lane without any is free for another device.
#[derive(Default)]
struct Lane {
    device: usize,
    in_flight: usize,
    backlog: VecDeque<Transfer>,
}

/// Whether this process may use io_uring.
pub(super) fn availability() -> io::Result<()> {
    static ANSWER: OnceLock<Option<i32>> = OnceLock::new();
    let code = |error: io::Error| error.raw_os_error().unwrap_or(libc::EPERM);
    let answer = ANSWER.get_or_init(|| ask().err().map(code));
    answer.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
}

/// Has the kernel do nothing, once. A filter may let a ring be made and then refuse its use.
pub(super) fn ask() -> io::Result<()> {
    let mut uring = IoUring::new(2)?;
    if !uring.params().is_feature_ext_arg() || allow_workers(&uring).is_err() {
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    let nothing = opcode::Nop::new().build();
    // SAFETY: the entry points to no memory.
    let queued = unsafe { uring.submission().push(&nothing) };
    queued.map_err(|_| io::Error::from_raw_os_error(libc::ENOSYS))?;
    match uring.submit_and_wait(1) {
        // A signal came after it was handed over.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        done => done.map(drop),
    }
}

/// The queues of a ring.
fn open(submissions: u32, completions: u32) -> Option<IoUring> {
    let quick = IoUring::builder()
        .setup_cqsize(completions)
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(submissions);
    // Kernels before 6.1 do not know the flags of the first attempt.
    let plain = || IoUring::builder().setup_cqsize(completions).build(submissions);
    let uring = quick.or_else(|_| plain()).ok()?;
    allow_workers(&uring).ok()?;
    Some(uring)
}

/// Lets the kernel make `WORKERS_MAX` workers for files and block devices (U2); from Linux 5.15 on.
fn allow_workers(uring: &IoUring) -> io::Result<()> {
    // Zero leaves the number of workers for other files as it is.
    uring.submitter().register_iowq_max_workers(&mut [WORKERS_MAX, 0])
}

impl Ring {
    /// A ring for the calling thread, an executor; none if the kernel gives none.
    pub(super) fn of_executor() -> Option<Ring> {
        Ring::open(SUBMISSIONS, COMPLETIONS)
    }

    /// A ring for the calling thread, with queues of these lengths.
    pub(super) fn open(submissions: u32, completions: u32) -> Option<Ring> {
        open(submissions, completions).map(|uring| Ring {
            uring,
            slots: Vec::new(),
            free: Vec::new(),
            lanes: Vec::new(),
            not_taken: VecDeque::new(),
            bell_armed: false,
            refused: false,
            shortages: 0,
            aside: 0,
        })
    }

    /// Takes a transfer; the kernel gets it with the next few, or at the next `poll` or `wait`.
    pub(super) fn start(&mut self, transfer: Transfer) {
        let is_beyond =
            matches!(transfer.job(), Job::Grow { .. }) || transfer.pieces().len() > PIECES_MAX;
        if is_beyond || (self.refused && !self.try_another()) {
            return transfer.run_aside();
        }
        let lane = self.lane(transfer.device());
        self.lanes[lane].backlog.push_back(transfer);
        self.feed(lane);
        if self.uring.submission().len() >= HANDED_OVER_TOGETHER {
            self.enter(0, None);
        }
    }

    /// How many workers the kernel may make for files and block devices.
    #[cfg(test)]
    pub(super) fn workers_max(&self) -> u32 {
        let mut found = [0; 2];
        self.uring.submitter().register_iowq_max_workers(&mut found).expect("it is known");
        found[0]
    }

    /// Whether the kernel has requests that it has not answered.
    pub(super) fn has_requests(&self) -> bool {
        self.in_flight() > 0
    }

    /// Waits for an answer, at most for `span`.
    pub(super) fn wait_for_one(&mut self, span: Option<Nanos>) {
        self.enter(1, span);
        self.reap();
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The lane of `device`: there are few, since one without requests is used again.
    fn lane(&mut self, device: usize) -> usize {
        let is_its = |lane: &Lane| lane.in_flight > 0 && lane.device == device;
        let found = self.lanes.iter().position(is_its);
        found.unwrap_or_else(|| {
            let unused = self.lanes.iter().position(|lane| lane.in_flight == 0);
            let lane = unused.unwrap_or_else(|| {
                self.lanes.push(Lane::default());
                self.lanes.len() - 1
            });
            self.lanes[lane].device = device;
            lane
        })
    }

    /// Moves transfers from the backlog of a lane to the submission queue.
    fn feed(&mut self, lane: usize) {
        while self.lanes[lane].in_flight < IN_FLIGHT_MAX {
            let Some(transfer) = self.lanes[lane].backlog.pop_front() else { return };
            if self.refused {
                transfer.run_aside();
                continue;
            }
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
            let entry = entry(&transfer).user_data(slot as u64);
            self.slots[slot] = Some((transfer, lane));
            self.lanes[lane].in_flight += 1;
            if !self.push(&entry) {
                self.take_back(slot);
            }
        }
    }

    /// Puts an entry into the submission queue; false if the kernel has refused the ring.
    fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: the memory that the entry points to belongs to a transfer in a slot (U1), or is
        // none at all (the bell).
        while unsafe { self.uring.submission().push(entry) }.is_err() {
            self.enter(0, None);
            if self.refused {
                return false;
            }
        }
        self.not_taken.push_back(entry.get_user_data());
        true
    }

    /// Hands the submission queue over, and waits for `want` completions, at most for `span`.
    fn enter(&mut self, want: usize, span: Option<Nanos>) {
        if self.refused {
            return;
        }
        let result = match span {
            None => self.uring.submit_and_wait(want),
            Some(span) => {
                let span = timespec(span);
                self.uring.submitter().submit_with_args(want, &SubmitArgs::new().timespec(&span))
            }
        };
        let left = self.uring.submission().len();
        self.not_taken.drain(..self.not_taken.len().saturating_sub(left));
        match result.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)) {
            Ok(_) => self.shortages = 0,
            // The time is over, a signal came, or the kernel wants its completions reaped.
            Err(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => (),
            Err(libc::ENOMEM) if self.shortages < SHORTAGES_MAX => self.shortages += 1,
            Err(code) => self.give_up(code),
        }
    }

    /// The kernel has refused the ring with `code` (U5).
    #[cold]
    fn give_up(&mut self, code: i32) {
        self.refused = true;
        self.aside = 0;
        self.reap();
        for slot in std::mem::take(&mut self.not_taken) {
            if slot != BELL {
                self.take_back(slot as usize);
            }
        }
        for lane in 0..self.lanes.len() {
            let backlog = std::mem::take(&mut self.lanes[lane].backlog);
            backlog.into_iter().for_each(Transfer::run_aside);
        }
        for slot in 0..self.slots.len() {
            if self.slots[slot].as_ref().is_some_and(|(it, _)| it.is_detached())
                && let Some(transfer) = self.empty(slot)
            {
                transfer.lose(code);
            }
        }
    }

    /// Takes the answers, if the kernel gives any, to requests that are not detached.
    #[cold]
    fn reap_refused(&mut self) {
        if self.has_requests() {
            let (none, events) = (None::<&libc::sigset_t>, EnterFlags::GETEVENTS.bits());
            // SAFETY: nothing is handed over, and no memory is given.
            let _refused = unsafe { self.uring.submitter().enter(0, 0, events, none) };
            self.reap();
        }
    }

    /// Another ring in place of one that was refused, now and then, if that has nothing left.
    #[cold]
    fn try_another(&mut self) -> bool {
        self.aside += 1;
        if self.aside < ASIDE_MAX || self.in_flight() > 0 {
            return false;
        }
        self.aside = 0;
        let params = self.uring.params();
        let (submissions, completions) = (params.sq_entries(), params.cq_entries());
        let Some(uring) = ask().ok().and_then(|()| open(submissions, completions)) else {
            return false;
        };
        self.uring = uring;
        self.bell_armed = false;
        self.refused = false;
        self.shortages = 0;
        true
    }

    /// A blocking call does what the kernel has not taken.
    fn take_back(&mut self, slot: usize) {
        if let Some(transfer) = self.empty(slot) {
            transfer.run_aside();
        }
    }

    fn empty(&mut self, slot: usize) -> Option<Transfer> {
        let (transfer, lane) = self.slots[slot].take()?;
        self.free.push(slot);
        self.lanes[lane].in_flight -= 1;
        Some(transfer)
    }

    fn reap(&mut self) {
        loop {
            let next = self.uring.completion().next();
            let Some(entry) = next else { return };
            if entry.user_data() == BELL {
                self.bell_armed = false;
                continue;
            }
            let slot = entry.user_data() as usize;
            let lane = self.slots[slot].as_ref().map(|(_, lane)| *lane);
            // One that was given up (U5) has had its error.
            let transfer = self.empty(slot);
            assert!(transfer.is_some() || self.refused, "the kernel answers once");
            transfer.into_iter().for_each(|it| it.complete(entry.result()));
            lane.into_iter().for_each(|lane| self.feed(lane));
        }
    }
}

impl Reactor for Ring {
    fn poll(&mut self) {
        if self.refused {
            return self.reap_refused();
        }
        let submission = self.uring.submission();
        let work = !submission.is_empty() || submission.taskrun() || submission.cq_overflow();
        drop(submission);
        if work {
            self.enter(0, None);
        }
        self.reap();
    }

    fn is_busy(&self) -> bool {
        self.has_requests() && !self.refused
    }

    fn wait(&mut self, bell: BorrowedFd<'_>, span: Option<Nanos>) {
        if !self.bell_armed {
            let watch = opcode::PollAdd::new(Fd(bell.as_raw_fd()), libc::POLLIN as u32);
            self.bell_armed = self.push(&watch.build().user_data(BELL));
        }
        // What has completed already ends the wait at once: the kernel counts it.
        self.wait_for_one(span);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            let before = self.in_flight();
            let is_detached = self.slots.iter().flatten().all(|(it, _)| it.is_detached());
            self.enter(1, is_detached.then_some(LAST_ANSWERS));
            self.reap();
            if (is_detached || self.refused) && self.in_flight() == before {
                // U4: the memory stays, and what holds the file open. (Of U5 only those are left
                // whose submitters wait in `drain`.)
                std::mem::forget(std::mem::take(&mut self.slots));
                self.free.clear();
            }
        }
    }
}

/// As the kernel takes it.
pub(super) fn timespec(span: Nanos) -> Timespec {
    Timespec::new().sec(span.0 / PER_SECOND).nsec((span.0 % PER_SECOND) as u32)
}

/// What the kernel is asked for `transfer`.
pub(super) fn entry(transfer: &Transfer) -> squeue::Entry {
    let (fd, offset) = (Fd(transfer.fd()), transfer.offset());
    let (pieces, flags) = (transfer.pieces(), transfer.flags());
    let (at, count) = (pieces.as_ptr(), pieces.len() as u32);
    match (transfer.job(), pieces) {
        (Job::Sync, _) => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        (Job::Reserve { len }, _) => opcode::Fallocate::new(fd, len).offset(offset).build(),
        (Job::Punch { len }, _) => {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            opcode::Fallocate::new(fd, len).offset(offset).mode(mode).build()
        }
        (Job::Grow { .. }, _) => unreachable!("no ring can, see `start`"),
        (Job::Read, [one]) => {
            let len = one.iov_len.min(BYTES_MAX) as u32;
            opcode::Read::new(fd, one.iov_base.cast(), len).offset(offset).build()
        }
        (Job::Write, [one]) => {
            let len = one.iov_len.min(BYTES_MAX) as u32;
            opcode::Write::new(fd, one.iov_base.cast(), len).offset(offset).rw_flags(flags).build()
        }
        (Job::Read, _) => opcode::Readv::new(fd, at, count).offset(offset).build(),
        (Job::Write, _) => {
            opcode::Writev::new(fd, at, count).offset(offset).rw_flags(flags).build()
        }
    }
}
