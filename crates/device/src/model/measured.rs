//! One server with measured service times, first come, first served.
//!
//! A request is served in units of 8 KiB. The first is sequential if it starts where the last
//! request of its direction ended, else random; the others of the request take the time of their
//! bytes. It suits devices whose published figures say more than their geometry: the ioDrive of
//! 2011 was measured by 8 KiB requests of four kinds, and those times are the model.

use terrace_rt::Nanos;

use super::job::{MemberJob, Started};
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

    pub(super) fn push(&mut self, now: Nanos, job: MemberJob, started: &mut Started) {
        let end = job.offset + job.len;
        let (times, last_end) = match job.op {
            Op::Read => (&self.spec.read, self.read_end.replace(end)),
            Op::Write => (&self.spec.write, self.write_end.replace(end)),
        };
        let first = if last_end == Some(job.offset) { times.sequential } else { times.random };
        let others = job.len.div_ceil(UNIT) - 1;
        self.free_at = self.free_at.max(now) + first + times.further * others;
        started.finish(self.free_at, job);
    }
}
