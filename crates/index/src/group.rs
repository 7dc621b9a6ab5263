//! psync I/O: a group of requests goes to the device together, and its answers come together.
//!
//! The next group is submitted after the last answer, by one task, without completion handlers.
//! All submission is here, so that the borrow of every buffer provably outlives its ticket.

use std::io;

use terrace_device::{Device, IoBuf, Op, Request, persist};

use crate::page::Page;

/// Consecutive pages that one request reads: the first byte on the device, and where they go.
pub(crate) type ReadRun = (u64, Vec<Page>);
/// Consecutive pages that one request writes.
pub(crate) type WriteRun<'a> = (u64, Vec<&'a Page>);

/// Reads all runs together.
pub(crate) fn read(device: &dyn Device, runs: &mut [ReadRun]) -> io::Result<()> {
    let bufs: Vec<Vec<IoBuf>> = runs
        .iter_mut()
        .map(|(_, pages)| pages.iter_mut().map(|page| IoBuf::from_mut(page.bytes_mut())).collect())
        .collect();
    let offsets: Vec<u64> = runs.iter().map(|(offset, _)| *offset).collect();
    run(device, Op::Read, &offsets, &bufs)
}

/// Writes all runs together.
pub(crate) fn write(device: &dyn Device, runs: &[WriteRun<'_>]) -> io::Result<()> {
    let bufs: Vec<Vec<IoBuf>> = runs
        .iter()
        .map(|(_, pages)| pages.iter().map(|page| IoBuf::from_ref(page.bytes())).collect())
        .collect();
    let offsets: Vec<u64> = runs.iter().map(|(offset, _)| *offset).collect();
    run(device, Op::Write, &offsets, &bufs)
}

/// The callers borrow every buffer, exclusively if it is read into, until this returns.
fn run(device: &dyn Device, op: Op, offsets: &[u64], bufs: &[Vec<IoBuf>]) -> io::Result<()> {
    if offsets.is_empty() {
        return Ok(());
    }
    let requests: Vec<Request<'_>> = offsets
        .iter()
        .zip(bufs)
        .map(|(offset, bufs)| Request { op, offset: *offset, bufs, owner: None })
        .collect();
    // SAFETY: the callers borrow every buffer until this function returns, and the ticket is waited
    // for, or dropped by unwinding, before that.
    let ticket = unsafe { device.submit(&requests) };
    let waited = device.wait(ticket);
    // SAFETY: as above.
    unsafe { persist(device, &requests, waited) }.map_err(|failure| failure.source)
}
