//! What a member is asked to do, and what its server has decided.

use terrace_rt::Nanos;

use crate::Op;

/// A part of a request, for one member.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberJob {
    /// Place of the request in the device's table.
    pub(super) slot: usize,
    /// The member.
    pub(super) member: usize,
    /// Direction.
    pub(super) op: Op,
    /// First byte on the member.
    pub(super) offset: u64,
    /// Bytes.
    pub(super) len: u64,
}

/// What a server has decided: jobs that end at known instants, and when to ask it again.
#[derive(Default)]
pub(super) struct Started {
    /// Jobs and the instants at which they are over.
    pub(super) finishes: Vec<(Nanos, MemberJob)>,
    /// When to call `start` again, at the latest.
    pub(super) ask_at: Option<Nanos>,
}

impl Started {
    pub(super) fn finish(&mut self, at: Nanos, job: MemberJob) {
        self.finishes.push((at, job));
    }

    pub(super) fn ask_again(&mut self, at: Nanos) {
        self.ask_at = Some(self.ask_at.map_or(at, |before| before.min(at)));
    }
}
