//! Batches of page I/O over borrowed memory: submit many, wait once (the papers' psync I/O).
//!
//! All submission is here, so that the borrow of every buffer provably outlives its ticket.

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use terrace_device::{Device, IoBuf, MemoryOwner, Op, PSYNC_GROUP_MAX, Request, Ticket, persist};
use terrace_page::{PAGE_SIZE, PageBuf};

use crate::Staging;

/// Memory of one page that a device fills, borrowed for `'a`.
pub struct PageTarget<'a> {
    bytes: *mut PageBuf,
    borrowed: PhantomData<&'a mut PageBuf>,
}

impl<'a> PageTarget<'a> {
    /// The memory of a frame, by its address: others may peek at it, so that no exclusive reference
    /// to it is made.
    ///
    /// # Safety
    ///
    /// `bytes` is the address of a page of memory that outlives `'a`, and until then nothing else
    /// writes there, or reads but word by word as atomics.
    #[must_use]
    pub unsafe fn from_frame(bytes: *mut PageBuf) -> PageTarget<'a> {
        PageTarget { bytes, borrowed: PhantomData }
    }
}

impl<'a> From<&'a mut PageBuf> for PageTarget<'a> {
    fn from(bytes: &'a mut PageBuf) -> PageTarget<'a> {
        PageTarget { bytes, borrowed: PhantomData }
    }
}

/// One I/O of consecutive pages, over memory borrowed for `'a`.
pub struct PageIo<'a> {
    op: Op,
    offset: u64,
    bufs: Vec<IoBuf>,
    /// What owns the memory of a write, if that is shared.
    owner: Option<MemoryOwner>,
    borrowed: PhantomData<&'a mut PageBuf>,
}

impl<'a> PageIo<'a> {
    fn new(op: Op, offset: u64, bufs: Vec<IoBuf>) -> PageIo<'a> {
        PageIo { op, offset, bufs, owner: None, borrowed: PhantomData }
    }

    /// Reads consecutive pages, from page number `first` of a device on.
    pub fn read<T>(first: u64, pages: impl IntoIterator<Item = T>) -> PageIo<'a>
    where
        T: Into<PageTarget<'a>>,
    {
        let buf = |page: T| IoBuf::from_raw(page.into().bytes.cast(), PAGE_SIZE);
        let bufs = pages.into_iter().map(buf).collect();
        PageIo::new(Op::Read, first * PAGE_SIZE as u64, bufs)
    }

    /// Writes consecutive pages, from page number `first` of a device on.
    pub fn write(first: u64, pages: impl IntoIterator<Item = &'a PageBuf>) -> PageIo<'a> {
        let bufs = pages.into_iter().map(|page| IoBuf::from_ref(page)).collect();
        PageIo::new(Op::Write, first * PAGE_SIZE as u64, bufs)
    }

    /// Writes bytes that are not pages, whole sectors of them, from byte `offset` of a device on.
    pub fn write_bytes(offset: u64, bytes: &'a [u8]) -> PageIo<'a> {
        PageIo::new(Op::Write, offset, vec![IoBuf::from_ref(bytes)])
    }

    /// Writes the bytes `range` of `staging`, whole sectors of them, from byte `offset` of a device
    /// on. A write that is not answered in time keeps a share in `staging`, and nothing is copied
    /// for it.
    pub fn write_staged(offset: u64, staging: &'a Arc<Staging>, range: Range<usize>) -> PageIo<'a> {
        // Shared staging does not change: `Staging::pages_mut` needs it unshared.
        let buf = IoBuf::from_ref(&staging.pages().as_flattened()[range]);
        let owner: MemoryOwner = Arc::clone(staging) as _;
        PageIo { owner: Some(owner), ..PageIo::new(Op::Write, offset, vec![buf]) }
    }

    /// Reads pages that lie one after the other from byte `offset` of a device on.
    pub fn read_from(offset: u64, pages: impl IntoIterator<Item = &'a mut PageBuf>) -> PageIo<'a> {
        let bufs = pages.into_iter().map(|page| IoBuf::from_mut(page)).collect();
        PageIo::new(Op::Read, offset, bufs)
    }

    /// Pages that it moves.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.bufs.iter().map(|buf| buf.len()).sum::<usize>() / PAGE_SIZE
    }

    fn request(&self) -> Request<'_> {
        Request { op: self.op, offset: self.offset, bufs: &self.bufs, owner: self.owner.as_ref() }
    }
}

/// Runs `ios` on `device`, all at once, and waits for them. No I/O is no work.
///
/// # Errors
///
/// Those of the device.
pub fn run(device: &dyn Device, ios: Vec<PageIo<'_>>) -> io::Result<()> {
    let is_group = (2..=PSYNC_GROUP_MAX).contains(&ios.len());
    if !is_group || terrace_rt::on_executor() || ios.iter().any(|io| io.op != Op::Read) {
        return run_beside(device, ios, || ()).1;
    }
    // No other task of this thread has to wait, and one system call does for all.
    let requests: Vec<Request<'_>> = ios.iter().map(PageIo::request).collect();
    // SAFETY: `ios` borrows every buffer, exclusively, until this returns.
    let done = unsafe { device.psync(&requests) };
    // SAFETY: as above.
    unsafe { persist(device, &requests, done) }.map_err(|failure| failure.source)
}

/// As `run`, with `work` done while the device serves it.
pub fn run_beside<T>(
    device: &dyn Device,
    ios: Vec<PageIo<'_>>,
    work: impl FnOnce() -> T,
) -> (T, io::Result<()>) {
    if ios.is_empty() {
        return (work(), Ok(()));
    }
    let requests: Vec<Request<'_>> = ios.iter().map(PageIo::request).collect();
    // SAFETY: `ios` borrows every buffer, exclusively if it is read into, and lives until the
    // ticket has been waited for, or is dropped while unwinding, since tickets are declared after
    // it.
    let ticket = unsafe { device.submit(&requests) };
    let done = work();
    let waited = device.wait(ticket);
    // SAFETY: as above.
    (done, unsafe { persist(device, &requests, waited) }.map_err(|failure| failure.source))
}

/// Runs batches one after the other, up to `at_once` of them together, and waits for all.
///
/// # Errors
///
/// Those of the device.
pub fn run_in_turn(
    device: &dyn Device,
    batches: &[Vec<PageIo<'_>>],
    at_once: usize,
) -> io::Result<()> {
    let requests: Vec<Vec<Request<'_>>> =
        batches.iter().map(|ios| ios.iter().map(PageIo::request).collect()).collect();
    let mut result = Ok(());
    let mut tickets = VecDeque::new();
    for requests in &requests {
        if tickets.len() == at_once.max(1) {
            // SAFETY: as in `run_beside`: `batches` outlives the tickets.
            result = result.and(unsafe { wait_for_first(device, &mut tickets) });
        }
        // SAFETY: as in `run_beside`: `batches` outlives the tickets.
        tickets.push_back((unsafe { device.submit(requests) }, &**requests));
    }
    while !tickets.is_empty() {
        // SAFETY: as above.
        result = result.and(unsafe { wait_for_first(device, &mut tickets) });
    }
    result
}

/// Waits for the first batch that was submitted, and tries again what may pass.
///
/// # Safety
///
/// As `Device::submit`, for the requests of that batch, until this returns.
unsafe fn wait_for_first(
    device: &dyn Device,
    tickets: &mut VecDeque<(Ticket, &[Request<'_>])>,
) -> io::Result<()> {
    let (ticket, requests) = tickets.pop_front().expect("a batch was submitted");
    let waited = device.wait(ticket);
    // SAFETY: the caller's promise.
    unsafe { persist(device, requests, waited) }.map_err(|failure| failure.source)
}

/// Runs two batches on two devices side by side, and waits for both.
pub fn run_both(
    first: (&dyn Device, Vec<PageIo<'_>>),
    second: (&dyn Device, Vec<PageIo<'_>>),
) -> (io::Result<()>, io::Result<()>) {
    if first.1.is_empty() || second.1.is_empty() {
        return (run(first.0, first.1), run(second.0, second.1));
    }
    let (ios_1, ios_2) = (first.1, second.1);
    let requests_1: Vec<Request<'_>> = ios_1.iter().map(PageIo::request).collect();
    let requests_2: Vec<Request<'_>> = ios_2.iter().map(PageIo::request).collect();
    // SAFETY: as in `run`.
    let ticket_1 = unsafe { first.0.submit(&requests_1) };
    // SAFETY: as in `run`.
    let ticket_2 = unsafe { second.0.submit(&requests_2) };
    let (waited_1, waited_2) = (first.0.wait(ticket_1), second.0.wait(ticket_2));
    // SAFETY: as in `run`.
    let result_1 = unsafe { persist(first.0, &requests_1, waited_1) };
    // SAFETY: as in `run`.
    let result_2 = unsafe { persist(second.0, &requests_2, waited_2) };
    (result_1.map_err(|failure| failure.source), result_2.map_err(|failure| failure.source))
}
