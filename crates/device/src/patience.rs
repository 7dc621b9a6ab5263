//! What is tried again: errors that pass, a bounded number of times, with growing pauses.
//!
//! - `EINTR` and `EAGAIN` say nothing of the device: any request is tried again.
//! - A read that failed otherwise may succeed the next time, and harms nothing.
//! - A write that failed otherwise is not: what its range holds is the device's to say, and the
//!   caller's to judge. Nor is a sync, which may fail only once for what it has lost (file.F4).
//! - A device that did not answer in time is not asked again.

use std::io::{self, ErrorKind};

use terrace_rt::{Nanos, sleep};

use crate::{Device, IoFailure, Op, Request};

/// Attempts at a request, the first one included, whose error says nothing of the device.
const ATTEMPTS_MAX: u32 = 8;
/// The same of a read that failed otherwise.
const READS_MAX: u32 = 3;
/// The first pause; each is twice as long as the one before.
const PAUSE: Nanos = Nanos::from_micros(100);

/// Whether a request that failed `attempts` times, with `error` the last time, is tried again.
fn may_pass(requests: &[Request<'_>], error: &io::Error, attempts: u32) -> bool {
    match error.kind() {
        ErrorKind::Interrupted | ErrorKind::WouldBlock => attempts < ATTEMPTS_MAX,
        ErrorKind::TimedOut | ErrorKind::NotConnected | ErrorKind::UnexpectedEof => false,
        _ => attempts < READS_MAX && requests.iter().all(|request| request.op == Op::Read),
    }
}

/// What became of `requests` in the end, once the first attempt has ended in `result`: tries again
/// what may succeed then. Blocks the task.
///
/// # Errors
///
/// The last failure.
///
/// # Safety
///
/// As [`Device::submit`], until this returns.
pub unsafe fn persist<D: Device + ?Sized>(
    device: &D,
    requests: &[Request<'_>],
    mut result: Result<(), IoFailure>,
) -> Result<(), IoFailure> {
    let mut attempts = 1;
    while let Err(failure) = &result {
        if !may_pass(requests, &failure.source, attempts) || terrace_rt::dead() {
            break;
        }
        sleep(Nanos(PAUSE.0 << attempts));
        attempts += 1;
        // SAFETY: the caller's promise.
        let ticket = unsafe { device.submit(requests) };
        result = device.wait(ticket);
    }
    result
}
