//! One server with measured service times, first come, first served.
//!
//! A request is served in units of 8 KiB. A unit that starts where the last one of its direction
//! ended is sequential. It suits devices whose published figures say more than their geometry:
//! the ioDrive of 2011 was measured by 8 KiB requests of four kinds, and those times are the model.

use terrace_rt::Nanos;

use super::member::{Job, Started};
use super::spec::MeasuredSpec;
use crate::Op;

/// Bytes in a measured request.
const UNIT: u64 = 8192;

/// The server.
pub(super) struct MeasuredServer {
    spec: MeasuredSpec,
    free_at: Nanos,
    read_end: Option<u64>,
    write_end: Option<u64>,
}

impl MeasuredServer {
    pub(super) fn new(spec: MeasuredSpec) -> MeasuredServer {
        MeasuredServer { spec, free_at: Nanos::ZERO, read_end: None, write_end: None }
    }

    pub(super) fn push(&mut self, now: Nanos, job: Job, started: &mut Started) {
        let end = job.offset + job.len;
        let (random, sequential, last_end) = match job.op {
            Op::Read => {
                (self.spec.random_read, self.spec.sequential_read, self.read_end.replace(end))
            }
            Op::Write => {
                (self.spec.random_write, self.spec.sequential_write, self.write_end.replace(end))
            }
        };
        let first = if last_end == Some(job.offset) { sequential } else { random };
        let others = job.len.div_ceil(UNIT) - 1;
        self.free_at = self.free_at.max(now) + first + sequential * others;
        started.finish(self.free_at, job);
    }
}
