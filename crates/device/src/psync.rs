//! Psync I/O: a group of requests submitted together, its results taken together.
//!
//! After Roh et al., "MPSearch: Multi-Path Search for Tree-based Indexes to Exploit Internal
//! Parallelism of Flash SSDs" (IEEE Data Engineering Bulletin, June 2014), 2.3: the unit is an array
//! of requests, the caller blocks until all of them are done, and the next group starts only then.
//!
//! - P1: a group is never split: a file with io_uring hands it over and waits for all of it with one
//!   system call. A file without io_uring does one request after the other.
//! - P2: the thread waits, on an executor too: its other tasks wait with it. Who wants them to go on
//!   submits a batch and waits for its ticket ([`Device::submit`]).
//! - P3: requests of one group have no order (device.D2): none overlaps another, unless both read.

use crate::{Device, IoBuf, IoFailure, Op, Request, persist};

/// The most requests of a group.
pub const PSYNC_GROUP_MAX: usize = 1024;

/// One read of a group.
#[derive(Debug)]
pub struct PsyncRead<'a> {
    /// First byte on the device, a multiple of `SECTOR_SIZE`.
    pub offset: u64,
    /// Where it goes; its length is a multiple of `SECTOR_SIZE`, and not zero. Direct I/O copies
    /// what is not aligned to 4,096 bytes.
    pub bytes: &'a mut [u8],
}

/// One write of a group.
#[derive(Clone, Copy, Debug)]
pub struct PsyncWrite<'a> {
    /// First byte on the device, a multiple of `SECTOR_SIZE`.
    pub offset: u64,
    /// What is written; as of [`PsyncRead`].
    pub bytes: &'a [u8],
}

/// Reads a whole group; an empty one at once.
///
/// # Errors
///
/// The first request that failed, once reads were tried again as `read` does; the bytes of all are
/// then undefined, though initialised.
///
/// # Panics
///
/// As [`Device::submit`], and for more than [`PSYNC_GROUP_MAX`] requests.
pub fn psync_read(device: &dyn Device, group: &mut [PsyncRead<'_>]) -> Result<(), IoFailure> {
    let parts = group.iter_mut().map(|it| (it.offset, IoBuf::from_mut(it.bytes))).collect();
    // SAFETY: the memory is borrowed exclusively, each piece once, until this function returns.
    unsafe { run(device, Op::Read, parts) }
}

/// Writes a whole group; an empty one at once. Durable only after a `sync`.
///
/// # Errors
///
/// The first request that failed; the ranges of all then hold any mixture of old and new sectors.
///
/// # Panics
///
/// As [`Device::submit`], and for more than [`PSYNC_GROUP_MAX`] requests.
pub fn psync_write(device: &dyn Device, group: &[PsyncWrite<'_>]) -> Result<(), IoFailure> {
    let parts = group.iter().map(|it| (it.offset, IoBuf::from_ref(it.bytes))).collect();
    // SAFETY: the memory is borrowed until this function returns, so no task changes it.
    unsafe { run(device, Op::Write, parts) }
}

/// # Safety
///
/// The memory of `parts` may be used as `op` says until this returns.
unsafe fn run(device: &dyn Device, op: Op, parts: Vec<(u64, IoBuf)>) -> Result<(), IoFailure> {
    assert!(parts.len() <= PSYNC_GROUP_MAX, "a group of {} requests", parts.len());
    if parts.is_empty() {
        return Ok(());
    }
    let requests: Vec<_> = parts
        .iter()
        .map(|(offset, buf)| Request {
            op,
            offset: *offset,
            bufs: std::slice::from_ref(buf),
            owner: None,
        })
        .collect();
    // SAFETY: the caller's promise; `psync` and `persist` return when the memory is free again.
    unsafe {
        let done = device.psync(&requests);
        persist(device, &requests, done)
    }
}
