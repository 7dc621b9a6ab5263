//! One server of an array, its accounting, and how the array's addresses are striped.

use terrace_rt::Nanos;

use super::disk_server::DiskServer;
use super::job::{MemberJob, Started};
use super::measured::MeasuredServer;
use super::spec::{MemberSpec, Spec};
use super::volume::VolumeServer;
use crate::disk::WriteReporting;
use crate::nand::{NandDrive, Wear};

enum Server {
    Disk(Box<DiskServer>),
    Measured(MeasuredServer),
    Volume(VolumeServer),
    Nand(Box<NandDrive<MemberJob>>),
    Ram,
}

/// A server and the time it was busy.
pub(super) struct Member {
    server: Server,
    outstanding: usize,
    busy_since: Nanos,
    busy: Nanos,
    /// When a timer will ask it to start something.
    asked: Option<Nanos>,
}

impl Member {
    /// An idle member of `bytes` bytes.
    pub(super) fn new(spec: &MemberSpec, bytes: u64, write_cache: WriteReporting) -> Member {
        let server = match spec {
            MemberSpec::Disk(disk) => {
                Server::Disk(Box::new(DiskServer::new(disk, bytes, write_cache)))
            }
            MemberSpec::Measured(measured) => Server::Measured(MeasuredServer::new(*measured)),
            MemberSpec::Volume(volume) => Server::Volume(VolumeServer::new(*volume)),
            MemberSpec::Nand(nand) => Server::Nand(Box::new(NandDrive::new(nand, bytes))),
            MemberSpec::Ram => Server::Ram,
        };
        Member::idle(server)
    }

    /// The same member after its power was off: a flash drive keeps its state, others are new.
    pub(super) fn restarted(
        &self,
        spec: &MemberSpec,
        bytes: u64,
        write_cache: WriteReporting,
    ) -> Member {
        match &self.server {
            Server::Nand(drive) => Member::idle(Server::Nand(Box::new(drive.restarted()))),
            _ => Member::new(spec, bytes, write_cache),
        }
    }

    fn idle(server: Server) -> Member {
        Member { server, outstanding: 0, busy_since: Nanos::ZERO, busy: Nanos::ZERO, asked: None }
    }

    /// Accepts a job; `start` afterwards.
    pub(super) fn push(&mut self, now: Nanos, job: MemberJob, started: &mut Started) {
        if self.outstanding == 0 {
            self.busy_since = now;
        }
        self.outstanding += 1;
        match &mut self.server {
            Server::Disk(disk) => disk.push(now, job),
            Server::Measured(measured) => measured.push(now, job, started),
            Server::Volume(volume) => volume.push(now, job, started),
            Server::Nand(drive) => drive.push(now, job.op, job.offset, job.len, job),
            Server::Ram => started.finish(now, job),
        }
    }

    /// Starts what can start.
    pub(super) fn start(&mut self, now: Nanos, started: &mut Started) {
        match &mut self.server {
            Server::Disk(disk) => disk.start(now, started),
            Server::Nand(drive) => {
                if let Some(at) = drive.run(now, |at, job| started.finish(at, job)) {
                    started.ask_again(at);
                }
            }
            Server::Measured(_) | Server::Volume(_) | Server::Ram => {}
        }
    }

    /// Whether a timer must be set to ask at the instant `at`: none is set that fires by then.
    pub(super) fn needs_timer(&mut self, at: Nanos) -> bool {
        let needed = self.asked.is_none_or(|asked| at < asked);
        if needed {
            self.asked = Some(at);
        }
        needed
    }

    /// Takes note that a timer has fired.
    pub(super) fn timer_fired(&mut self, now: Nanos) {
        self.asked = self.asked.filter(|asked| *asked > now);
    }

    /// Takes note that a job is over.
    pub(super) fn finished(&mut self, now: Nanos) {
        assert!(self.outstanding > 0, "a member finished a job it did not have");
        self.outstanding -= 1;
        if self.outstanding == 0 {
            self.busy += now.saturating_sub(self.busy_since);
        }
    }

    /// When a flush that begins at `now`, with nothing outstanding, is over.
    pub(super) fn flushed_at(&mut self, now: Nanos) -> Nanos {
        assert_eq!(self.outstanding, 0, "a flush overtook requests");
        match &mut self.server {
            Server::Disk(disk) => disk.flushed_at(now),
            Server::Nand(drive) => drive.flushed_at(now),
            Server::Measured(_) | Server::Volume(_) | Server::Ram => now,
        }
    }

    /// Forgets what a range holds, where that saves work.
    pub(super) fn trim(&mut self, offset: u64, len: u64) {
        if let Server::Nand(drive) = &mut self.server {
            drive.trim(offset, len);
        }
    }

    /// What a flash drive has written to its flash.
    pub(super) fn wear(&self) -> Option<Wear> {
        match &self.server {
            Server::Nand(drive) => Some(drive.wear()),
            _ => None,
        }
    }

    /// Time with something outstanding, until `now`.
    pub(super) fn busy(&self, now: Nanos) -> Nanos {
        if self.outstanding == 0 {
            return self.busy;
        }
        self.busy + now.saturating_sub(self.busy_since)
    }
}

/// Calls `each` with `(member, offset on it, bytes)` for the parts of a range of the device.
pub(super) fn for_each_part(
    spec: &Spec,
    offset: u64,
    len: u64,
    mut each: impl FnMut(usize, u64, u64),
) {
    let end = offset + len;
    let from = spec.upper.as_ref().map_or(end, |upper| upper.from);
    let border = from.clamp(offset, end);
    for_each_stripe(spec, offset, border - offset, &mut each);
    if border < end {
        each(spec.members as usize, border - from, end - border);
    }
}

/// The same for a range on the striped members.
fn for_each_stripe(spec: &Spec, offset: u64, len: u64, mut each: impl FnMut(usize, u64, u64)) {
    let members = u64::from(spec.members);
    let (mut at, end) = (offset, offset + len);
    while at < end {
        // A single member holds all stripes in a row, so they need not be told apart.
        let within = if members == 1 { 0 } else { at % spec.stripe };
        let run = if members == 1 { len } else { (spec.stripe - within).min(end - at) };
        let stripe = at / spec.stripe;
        let on_member = if members == 1 { at } else { stripe / members * spec.stripe + within };
        each((stripe % members) as usize, on_member, run);
        at += run;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where each sector of a range is, one by one.
    fn sectors(spec: &Spec, offset: u64, len: u64) -> Vec<(usize, u64)> {
        let mut found = Vec::new();
        for_each_part(spec, offset, len, |member, at, bytes| {
            assert!(bytes > 0);
            found.extend((0..bytes / 512).map(|sector| (member, at + sector * 512)));
        });
        found
    }

    #[test]
    fn a_range_over_the_border_is_in_both_parts() {
        let striped = Spec { members: 3, stripe: 1024, ..Spec::single(MemberSpec::Ram) };
        let placed = striped.clone().with_upper(8192, MemberSpec::Ram);
        assert_eq!(placed.all_members(10_240).len(), 4);
        assert_eq!(placed.all_members(10_240)[3].1, 2_048);
        for (offset, len) in
            [(0, 512), (7_168, 1_024), (7_680, 1_024), (8_192, 2_048), (512, 9_728)]
        {
            let mut expected = sectors(&striped, offset, len);
            for (at, place) in expected.iter_mut().enumerate() {
                let byte = offset + at as u64 * 512;
                if byte >= 8_192 {
                    *place = (3, byte - 8_192);
                }
            }
            assert_eq!(sectors(&placed, offset, len), expected, "{offset}+{len}");
        }
    }
}
