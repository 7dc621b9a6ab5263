//! The requests of threads that have no ring, where a wait for them may end: Linux AIO.
//!
//! Nobody can give up a blocking system call, so under a time limit another thread would have to
//! make it, and two switches between threads cost as much as a fast device takes to answer. AIO
//! hands a direct request to the device and waits for it apart from that.
//!
//! ```text
//!   idle --- submit ---> in flight --- an answer in time ---------> idle
//!                            |                                        ^
//!                            `--- the limit: a helper thread waits ---'
//! ```
//!
//! - A1: a context has at most one request in flight, whose transfer, and so its memory, is kept
//!   until the kernel has answered, even if this thread panics.
//! - A2: no context is closed while it has a request in flight: the kernel would wait for it.
//! - Not for: files behind the page cache, which AIO reads and writes while it submits.

use std::io;
use std::mem::ManuallyDrop;
use std::ptr;

use terrace_rt::{self as rt, LeafMutex, Nanos};

use super::transfer::{Job, PIECES_MAX, Transfer};

/// Contexts kept for later requests.
const IDLE_MAX: usize = 64;
const PER_SECOND: u64 = 1_000_000_000;

const PREADV: u16 = 7;
const PWRITEV: u16 = 8;
const FDSYNC: u16 = 3;

/// `struct iocb` of the kernel.
#[repr(C)]
struct Block {
    data: u64,
    #[cfg(target_endian = "big")]
    flags: u32,
    key: u32,
    #[cfg(target_endian = "little")]
    flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    memory: u64,
    pieces: u64,
    offset: i64,
    reserved: u64,
    event_flags: u32,
    event_file: u32,
}
const _: () = assert!(size_of::<Block>() == 64);

/// `struct io_event` of the kernel.
#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    block: u64,
    answer: i64,
    answer_2: i64,
}

/// Runs `transfer`, and returns when it is finished or after `limit`; then it finishes whenever the
/// device answers.
pub(super) fn run(transfer: Transfer, limit: Nanos) {
    let context = Context::take(transfer.owner());
    let Some(context) = context.filter(|context| context.submit(&transfer)) else {
        return rt::offload(move || transfer.run_here());
    };
    // A1.
    let transfer = ManuallyDrop::new(transfer);
    match context.wait(Some(limit)) {
        Some(answer) => {
            context.keep();
            ManuallyDrop::into_inner(transfer).complete(answer);
        }
        None => rt::offload(move || {
            let answer = context.wait(None).expect("without a limit it waits for the answer");
            context.keep();
            ManuallyDrop::into_inner(transfer).complete(answer);
        }),
    }
}

/// A queue of the kernel's for one request.
struct Context {
    id: libc::c_ulong,
    /// The process that has it: a fork does not.
    process: u32,
}

static IDLE: LeafMutex<Vec<Context>> = LeafMutex::new(Vec::new());

impl Context {
    /// One of the kept ones, or a new one; none if the system gives no more.
    fn take(process: u32) -> Option<Context> {
        if let Some(context) = IDLE.lock().pop() {
            if context.process == process {
                return Some(context);
            }
            // A parent's: here its id names nothing.
            std::mem::forget(context);
        }
        let mut id: libc::c_ulong = 0;
        // SAFETY: the kernel writes the id, which must be zero before.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut id) };
        (result == 0).then_some(Context { id, process })
    }

    fn keep(self) {
        let mut idle = IDLE.lock();
        if idle.len() < IDLE_MAX {
            idle.push(self);
        }
    }

    /// Hands the transfer to the device, unless the kernel would block or does not want it.
    fn submit(&self, transfer: &Transfer) -> bool {
        let (opcode, flags) = match transfer.job() {
            Job::Read => (PREADV, libc::RWF_NOWAIT as u32),
            Job::Write => (PWRITEV, libc::RWF_NOWAIT as u32),
            Job::Sync => (FDSYNC, 0),
            Job::Reserve { .. } => return false,
        };
        let pieces = transfer.pieces();
        if pieces.len() > PIECES_MAX {
            return false;
        }
        let has_memory = transfer.job() != Job::Sync;
        let mut block = Block {
            data: 0,
            key: 0,
            flags,
            opcode,
            priority: 0,
            file: transfer.fd() as u32,
            memory: if has_memory { pieces.as_ptr().addr() as u64 } else { 0 },
            pieces: if has_memory { pieces.len() as u64 } else { 0 },
            offset: if has_memory { transfer.offset() as i64 } else { 0 },
            reserved: 0,
            event_flags: 0,
            event_file: 0,
        };
        let mut blocks = [&raw mut block];
        // SAFETY: the kernel copies the block and the list of pieces. What the pieces point to
        // belongs to the transfer, which is kept until the answer (A1).
        let taken = unsafe { libc::syscall(libc::SYS_io_submit, self.id, 1, blocks.as_mut_ptr()) };
        taken == 1
    }

    /// The answer of the request in flight; none if it has not come within `limit`.
    fn wait(&self, limit: Option<Nanos>) -> Option<i32> {
        let deadline = limit.map(|limit| rt::now().saturating_add(limit));
        let mut left = limit;
        loop {
            let span = left.map(|left| libc::timespec {
                tv_sec: (left.0 / PER_SECOND) as libc::time_t,
                tv_nsec: (left.0 % PER_SECOND) as libc::c_long,
            });
            let mut event = Event::default();
            let span = span.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: the kernel reads the span and writes one event.
            let got = unsafe {
                libc::syscall(libc::SYS_io_getevents, self.id, 1, 1, &raw mut event, span)
            };
            if got == 1 {
                return Some(event.answer as i32);
            }
            let is_error =
                got < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted;
            assert!(!is_error, "io_getevents: {}", io::Error::last_os_error());
            left = deadline.map(|deadline| deadline.saturating_sub(rt::now()));
            if left.is_some_and(|left| left.0 == 0) {
                return None;
            }
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A2: a request may be in flight.
            return;
        }
        // SAFETY: nothing is in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}
