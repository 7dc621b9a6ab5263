//! A volume with a latency and limits on rates: a cloud volume, or an SSD seen from afar.
//!
//! Each limit is a bucket without depth: a request may pass when the one before has been paid for.
//! A request is done its latency after both of its limits, requests and bytes, let it pass. Limits
//! delay in order of arrival; latencies overlap.

use terrace_rt::Nanos;

use super::job::{MemberJob, Started};
use super::spec::{Limits, VolumeSpec};
use crate::Op;

#[derive(Clone, Copy, Default)]
struct Meter {
    /// When the requests so far are paid for, ns.
    requests: f64,
    /// When the bytes so far are paid for, ns.
    bytes: f64,
}

impl Meter {
    /// When a request of `len` bytes that counts as `count` is done.
    fn pass(&mut self, now: f64, limits: &Limits, count: u64, len: u64) -> f64 {
        self.requests = self.requests.max(now) + count as f64 * 1e9 / limits.iops;
        self.bytes = self.bytes.max(now) + len as f64 * 1e9 / limits.bytes_per_s;
        // The latency of an undelayed request includes its own share of the limits.
        let own = (count as f64 * 1e9 / limits.iops).max(len as f64 * 1e9 / limits.bytes_per_s);
        let delay = (self.requests.max(self.bytes) - now - own).max(0.0);
        now + delay + own.max(limits.latency.0 as f64)
    }
}

/// The server.
pub(super) struct VolumeServer {
    spec: VolumeSpec,
    meters: [Meter; 2],
}

impl VolumeServer {
    pub(super) fn new(spec: VolumeSpec) -> VolumeServer {
        VolumeServer { spec, meters: [Meter::default(); 2] }
    }

    pub(super) fn push(&mut self, now: Nanos, job: MemberJob, started: &mut Started) {
        let count = job.len.div_ceil(self.spec.request_bytes_max);
        let (meter, limits) = match (job.op, &self.spec.write) {
            (Op::Write, Some(write)) => (&mut self.meters[1], write),
            _ => (&mut self.meters[0], &self.spec.read),
        };
        let done = meter.pass(now.0 as f64, limits, count, job.len);
        started.finish(Nanos(done.ceil() as u64), job);
    }
}
