//! The one trait of all devices: submit a batch, wait for its ticket, make it durable.
//!
//! - D1: a request is one I/O: one contiguous range of the device, scattered over or gathered from
//!   any number of buffers. Offsets and lengths are multiples of `SECTOR_SIZE`.
//! - D2: requests in flight have no order among themselves, in one batch or across batches. A
//!   caller that needs an order waits in between. Overlapping requests in flight, one of them a
//!   write, leave or return either version, sector by sector.
//! - D3: a completed write is read back by every later request. It is durable when a `sync` that
//!   began after its completion has returned; a device may lose or tear it before.
//! - D4: after `submit` the buffers belong to the device until the ticket has been waited for.

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::{Range, Sub};
use std::sync::Arc;

use terrace_rt::Nanos;

use crate::{Operation, Reads, Ticket, persist};

/// The unit of atomicity and alignment of every device, in bytes.
pub const SECTOR_SIZE: usize = 512;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Device to buffers.
    Read,
    /// Buffers to device.
    Write,
}

impl Op {
    /// What errors call it.
    #[must_use]
    pub fn operation(self) -> Operation {
        match self {
            Op::Read => Operation::Read,
            Op::Write => Operation::Write,
        }
    }
}

/// A piece of memory that takes part in an I/O: an address and a length, without a lifetime.
///
/// The submitter promises that it stays valid, see `Device::submit`.
#[derive(Clone, Copy, Debug)]
pub struct IoBuf {
    ptr: *mut u8,
    len: usize,
}

// SAFETY: an `IoBuf` is an address. Only `Device::submit`, which is unsafe, leads to an access, and
// its contract covers the thread that makes it.
unsafe impl Send for IoBuf {}
// SAFETY: as above.
unsafe impl Sync for IoBuf {}

impl IoBuf {
    /// Memory to read into, or to write from.
    #[must_use]
    pub fn from_mut(bytes: &mut [u8]) -> IoBuf {
        IoBuf { ptr: bytes.as_mut_ptr(), len: bytes.len() }
    }

    /// Memory to write from. Using it in an `Op::Read` breaks the contract of `Device::submit`.
    #[must_use]
    pub fn from_ref(bytes: &[u8]) -> IoBuf {
        IoBuf { ptr: bytes.as_ptr().cast_mut(), len: bytes.len() }
    }

    /// Memory by address, `len` bytes.
    #[must_use]
    pub fn from_raw(ptr: *mut u8, len: usize) -> IoBuf {
        IoBuf { ptr, len }
    }

    /// The first byte.
    #[must_use]
    pub fn ptr(self) -> *mut u8 {
        self.ptr
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether it holds no byte.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// One I/O on the range `offset..offset + len()` of a device, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Direction.
    pub op: Op,
    /// First byte on the device, a multiple of `SECTOR_SIZE`.
    pub offset: u64,
    /// Memory in order; the sum of lengths is a multiple of `SECTOR_SIZE`, and not zero.
    pub bufs: &'a [IoBuf],
    /// What owns the memory of a write, if that is shared: a device whose requests outlive the wait
    /// for them keeps the owner, where it would else copy the bytes.
    pub owner: Option<&'a MemoryOwner>,
}

/// Memory that stays allocated, and unchanged, as long as a share in it exists.
pub type MemoryOwner = Arc<dyn Any + Send + Sync>;

impl Request<'_> {
    /// Bytes that the request moves.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.bufs.iter().map(|buf| buf.len as u64).sum()
    }

    /// Whether the request moves no byte, which no device accepts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks invariant D1 and that the range lies on a device of `device_len` bytes.
    ///
    /// # Panics
    ///
    /// On a misaligned or empty request, or one past the end: all are bugs of the caller.
    pub fn validate(&self, device_len: u64) {
        let len = self.len();
        let sector = SECTOR_SIZE as u64;
        assert!(len > 0, "an empty request");
        assert!(len.is_multiple_of(sector), "length {len} is not whole sectors");
        assert!(self.offset.is_multiple_of(sector), "offset {} is not aligned", self.offset);
        assert!(len <= device_len, "a request of {len} bytes is longer than the device");
        assert!(
            self.offset <= device_len - len,
            "request {}+{len} ends past the device's {device_len} bytes",
            self.offset,
        );
    }
}

/// Why a batch failed: its first failing request. Others of the batch may have failed or not.
#[derive(Debug)]
pub struct IoFailure {
    /// Position of the request in the batch.
    pub index: usize,
    /// What the device said.
    pub source: io::Error,
}

impl fmt::Display for IoFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} of the batch: {}", self.index, self.source)
    }
}

impl std::error::Error for IoFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// What became of a range that was given back, see [`Device::punch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Punched {
    /// Its room is free for others.
    Freed {
        /// Bytes of room that it had, as far as the device can tell: not those of a hole.
        bytes: u64,
    },
    /// The device keeps its room: it is of a kind that has nothing to give back, or is on a file
    /// system without holes.
    Kept,
}

/// What a device has done since it was opened. Counts completed requests only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes that the medium took for them, as far as the device tells: on a flash drive with what
    /// garbage collection moved, the map, and padding. 0 of devices that do not tell.
    pub programmed_bytes: u64,
    /// Durability barriers.
    pub syncs: u64,
    /// Time with at least one request in service, in ns; for an array the mean over its members.
    /// Utilisation is this over the elapsed time.
    pub busy_ns: u64,
}

impl Sub for Counters {
    type Output = Counters;

    /// What happened between two observations, the later one on the left.
    fn sub(self, earlier: Counters) -> Counters {
        Counters {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            read_bytes: self.read_bytes - earlier.read_bytes,
            written_bytes: self.written_bytes - earlier.written_bytes,
            programmed_bytes: self.programmed_bytes - earlier.programmed_bytes,
            syncs: self.syncs - earlier.syncs,
            busy_ns: self.busy_ns - earlier.busy_ns,
        }
    }
}

/// A place for bytes. See the module for the invariants D1 to D4.
///
/// `submit` and `wait` together are the papers' psync I/O: many requests in, one wait.
#[expect(clippy::len_without_is_empty, reason = "no device is empty")]
pub trait Device: Send + Sync {
    /// Capacity in bytes, a multiple of `SECTOR_SIZE`. Only `grow` changes it.
    fn len(&self) -> u64;

    /// Starts a batch and returns at once. It may block for room in a bounded queue.
    ///
    /// Failures, a full or dead device among them, are reported by `wait`.
    ///
    /// # Panics
    ///
    /// If `Request::validate` does: misaligned, empty, or past the end. The batch must not be
    /// empty.
    ///
    /// # Safety
    ///
    /// Until the ticket has been waited for (or dropped), every buffer stays allocated; no task
    /// touches the buffers of a read, and none changes those of a write. `bufs` arrays and the
    /// requests themselves are free to go when `submit` returns. Where a write has an `owner`, its
    /// buffers stay allocated and unchanged until the owner is dropped, too.
    unsafe fn submit(&self, requests: &[Request<'_>]) -> Ticket;

    /// Blocks the task until the whole batch is complete.
    ///
    /// # Errors
    ///
    /// The first request of the batch that failed.
    fn wait(&self, ticket: Ticket) -> Result<(), IoFailure> {
        ticket.wait()
    }

    /// Submits a batch and waits for all of it, as [`psync`](crate::psync_read) has it. A file with
    /// io_uring does so in one system call, which no other task of the thread interrupts.
    ///
    /// # Errors
    ///
    /// The first request of the batch that failed.
    ///
    /// # Panics
    ///
    /// As `submit`.
    ///
    /// # Safety
    ///
    /// As `submit`, until this returns.
    unsafe fn psync(&self, requests: &[Request<'_>]) -> Result<(), IoFailure> {
        // SAFETY: the caller's promise; the ticket is waited for.
        let ticket = unsafe { self.submit(requests) };
        self.wait(ticket)
    }

    /// Reads what `reads` asks for, and returns when all of it has ended: see `each`. A thread that
    /// is no executor does so by a ring of its own, if the device is a file with io_uring.
    ///
    /// # Panics
    ///
    /// As `submit`, and for more than [`PSYNC_GROUP_MAX`](crate::PSYNC_GROUP_MAX) reads.
    ///
    /// # Safety
    ///
    /// As `submit`, for each buffer, until its read has ended or this returns or unwinds.
    unsafe fn read_each(&self, reads: &mut dyn Reads) {
        // SAFETY: the caller's promise.
        unsafe { read_together(self, reads) }
    }

    /// Whether `wait` would return at once.
    fn is_done(&self, ticket: &Ticket) -> bool {
        ticket.is_done()
    }

    /// Blocks the task until every write that had completed before the call is durable.
    ///
    /// # Errors
    ///
    /// If the device could not. Whether the writes are durable is then unknown, and a second call
    /// that succeeds does not make it known: give up writing.
    fn sync(&self) -> io::Result<()>;

    /// Makes sure that writes to `offset..offset + len` will find room, as far as the device can
    /// promise it; what is stored there stays. Blocks the task. A device that has its room from
    /// the start, or cannot promise, has nothing to do.
    ///
    /// # Errors
    ///
    /// `StorageFull` and the like if there is no room: nothing that was promised before is lost.
    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        let _ = (offset, len);
        Ok(())
    }

    /// Makes the device `len` bytes long, a multiple of `SECTOR_SIZE`, if it is shorter. The new
    /// length is durable when this returns; the new bytes read as zeroes, and have no room yet that
    /// is promised. Blocks the task.
    ///
    /// # Errors
    ///
    /// `Unsupported` if its length is fixed, as that of a block device; else what the system says.
    /// The device is then as long as before.
    fn grow(&self, len: u64) -> io::Result<()> {
        if len <= self.len() { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    /// Gives the room of `offset..offset + len` back, and tells whether that had an effect. What
    /// the range holds is undefined until it is written again: what it held, or zeroes. A promise
    /// of room for it (`reserve`) is void. No request for the range may be in flight. Blocks the
    /// task.
    ///
    /// # Errors
    ///
    /// What the system says; the room is then given back or not.
    fn punch(&self, offset: u64, len: u64) -> io::Result<Punched> {
        let _ = (offset, len);
        Ok(Punched::Kept)
    }

    /// Has the device write atomically, from now on, each range of `len` bytes at a multiple of
    /// `len` that a write covers: a power cut, and a write that fails, leave all of such a range as
    /// it was, or all of it as it was to be. Whether it can; if not, nothing has changed. What was
    /// asked for once holds for as long as the device lives.
    fn write_atomically(&self, len: u64) -> bool {
        len <= SECTOR_SIZE as u64
    }

    /// Tells the device that the caller will not read `offset..offset + len` before it is written
    /// again: what the range holds is undefined from now on. A hint, which most devices ignore;
    /// flash drives need not move what was trimmed. No write to the range may be in flight.
    fn trim(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Bounds every wait for a request or a sync that begins from now on; zero: no bound. A request
    /// that has not completed by then fails with `TimedOut`, its buffers are free, and the device
    /// does not touch them any more. A device that always answers has nothing to do.
    fn set_time_limit(&self, limit: Nanos) {
        let _ = limit;
    }

    /// Whether the device is out of use for good, see [`Fuse`](crate::Fuse).
    fn is_given_up(&self) -> bool {
        false
    }

    /// Whether a request of it has failed, as far as it remembers.
    fn has_failed(&self) -> bool {
        self.is_given_up()
    }

    /// Puts the device out of use for good, if it can be.
    fn give_up(&self) {}

    /// The owner needs it no more, though others may still hold it: it gives up its lock, and every
    /// later request fails.
    fn release(&self) {}

    /// What errors call it: its path, if it has one.
    fn name(&self) -> String {
        String::from("a device without a name")
    }

    /// Whether the operating system keeps copies of its bytes in memory, which no budget counts.
    fn is_cached(&self) -> bool {
        false
    }

    /// Requests submitted and not yet complete.
    fn queued(&self) -> usize;

    /// What the device has done so far.
    fn counters(&self) -> Counters;
}

/// Reads `bytes.len()` bytes at `offset`; blocks the task.
///
/// # Errors
///
/// What the device said; `bytes` is then undefined, though initialised.
///
/// # Panics
///
/// As `Device::submit`.
pub fn read(device: &dyn Device, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    let bufs = [IoBuf::from_mut(bytes)];
    let request = Request { op: Op::Read, offset, bufs: &bufs, owner: None };
    // SAFETY: `bytes` is borrowed exclusively until this function returns, and the ticket is waited
    // for, or dropped by unwinding, before that.
    let ticket = unsafe { device.submit(&[request]) };
    let waited = device.wait(ticket);
    // SAFETY: as above.
    unsafe { persist(device, &[request], waited) }.map_err(|failure| failure.source)
}

/// Writes `bytes` at `offset`; blocks the task. Durable only after a `sync`.
///
/// # Errors
///
/// What the device said; the range then holds any mixture of old and new sectors.
///
/// # Panics
///
/// As `Device::submit`.
pub fn write(device: &dyn Device, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let bufs = [IoBuf::from_ref(bytes)];
    let request = Request { op: Op::Write, offset, bufs: &bufs, owner: None };
    // SAFETY: `bytes` is borrowed until this function returns, so no task changes it, and the
    // ticket is waited for, or dropped by unwinding, before that.
    let ticket = unsafe { device.submit(&[request]) };
    let waited = device.wait(ticket);
    // SAFETY: as above.
    unsafe { persist(device, &[request], waited) }.map_err(|failure| failure.source)
}

/// As `write`, of bytes of `memory` without a copy: a request that is not answered in time has a
/// share in the memory for as long as the device may read it.
///
/// # Errors
///
/// As `write`.
///
/// # Panics
///
/// As `Device::submit`, and if `memory` has no such `range`.
pub fn write_shared<T>(
    device: &dyn Device,
    offset: u64,
    memory: &Arc<T>,
    range: Range<usize>,
) -> io::Result<()>
where
    T: AsRef<[u8]> + Send + Sync + 'static,
{
    let owner: MemoryOwner = Arc::clone(memory) as _;
    let bufs = [IoBuf::from_ref(&(**memory).as_ref()[range])];
    let request = Request { op: Op::Write, offset, bufs: &bufs, owner: Some(&owner) };
    // SAFETY: `memory` is borrowed until this function returns, and the ticket is waited for, or
    // dropped by unwinding, before that. The bytes are borrowed from what `owner` points to, which
    // no task can change or move while there is a share in it.
    let ticket = unsafe { device.submit(&[request]) };
    let waited = device.wait(ticket);
    // SAFETY: as above.
    unsafe { persist(device, &[request], waited) }.map_err(|failure| failure.source)
}

/// All reads as one batch, which ends as a whole: what a device does that cannot do better. If one
/// of them fails, all have failed.
///
/// # Safety
///
/// As [`Device::read_each`].
pub(crate) unsafe fn read_together<D: Device + ?Sized>(device: &D, reads: &mut dyn Reads) {
    let (mut all, mut part) = (Vec::new(), Vec::new());
    loop {
        reads.next(&mut part);
        if part.is_empty() {
            break;
        }
        all.append(&mut part);
    }
    if all.is_empty() {
        return;
    }
    let requests: Vec<_> = all
        .iter()
        .map(|(offset, buf)| Request {
            op: Op::Read,
            offset: *offset,
            bufs: std::slice::from_ref(buf),
            owner: None,
        })
        .collect();
    // SAFETY: the caller's promise; the ticket is waited for.
    let ticket = unsafe { device.submit(&requests) };
    let done = device.wait(ticket);
    // SAFETY: the caller's promise; `persist` returns when the memory is free again.
    let done = unsafe { persist(device, &requests, done) };
    for index in 0..all.len() {
        let result = match &done {
            Ok(()) => Ok(()),
            Err(failure) => Err(failure.source.kind().into()),
        };
        reads.ended(index, result);
    }
}
