//! A disk drive: one command from start to end, on medium and buffer.
//!
//! ```text
//! read, absent   overhead | arm, rotation | medium          |
//!                                           | bus ............... |  finished
//!                                           then reads ahead until disturbed
//! read, held     overhead | bus | finished             the arm stays, reading ahead goes on
//! write          overhead | arm and bus together, rotation | medium | finished
//! write, cached  overhead | bus | finished; the medium follows in the background, in order
//! ```
//!
//! - V1: times passed in never fall; `free_at` is when the arm can start the next command.
//! - V2: a command that needs the medium starts after all cached writes have reached it.
//! - Not modelled: retries, thermal recalibration, and the bus as a shared resource.

use super::buffer::{Buffer, Buffering, Lookup, ReadAhead};
use super::mechanism::Mechanism;
use crate::Op;

/// When a write is reported to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteReporting {
    /// When it is on the medium: the write cache is off.
    OnMedium,
    /// When it is in the buffer: the write cache is on.
    InBuffer,
}

/// Time from the arrival of a command to its first effect, by what the previous command was, ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overheads {
    /// A read that the buffer serves, after a read and after a write.
    pub read_held: [f64; 2],
    /// A read from the medium, after a read and after a write.
    pub read_absent: [f64; 2],
    /// A write that continues the previous one, after a read and after a write.
    pub write_next: [f64; 2],
    /// Any other write, after a read and after a write.
    pub write_other: [f64; 2],
    /// Added at the end of reads and of writes.
    pub completion: [f64; 2],
}

impl Overheads {
    /// The same overhead for every command.
    #[must_use]
    pub fn flat(ns: f64) -> Overheads {
        let both = [ns, ns];
        Overheads {
            read_held: both,
            read_absent: both,
            write_next: both,
            write_other: both,
            completion: [0.0; 2],
        }
    }
}

/// The electronics of a drive in figures.
#[derive(Clone, Copy, Debug)]
pub struct DriveSpec {
    /// Command overheads.
    pub overheads: Overheads,
    /// Bus time for a sector, ns.
    pub bus_sector: f64,
    /// The buffer.
    pub buffering: Buffering,
    /// Write cache on or off.
    pub write_reporting: WriteReporting,
}

/// A command: what, where, how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskAccess {
    /// Direction.
    pub op: Op,
    /// First logical sector.
    pub sector: u64,
    /// Sectors.
    pub count: u64,
}

/// When a command is over, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// The arm may start another command.
    pub arm_free: f64,
    /// The host has its answer.
    pub finished: f64,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Next sector to read, and when the head gets there at the earliest.
    next: u64,
    at: f64,
    /// First sector that will not be read ahead.
    limit: u64,
}

/// The state of a drive between commands.
#[derive(Clone, Debug)]
pub struct Drive {
    spec: DriveSpec,
    mechanism: Mechanism,
    buffer: Buffer,
    reading: Option<Reading>,
    /// When the medium has all cached writes.
    written_at: f64,
    last: Option<DiskAccess>,
}

impl Drive {
    /// An idle drive with an empty buffer.
    #[must_use]
    pub fn new(spec: DriveSpec, mechanism: Mechanism) -> Drive {
        let buffer = Buffer::new(spec.buffering);
        Drive { spec, mechanism, buffer, reading: None, written_at: 0.0, last: None }
    }

    /// Arm and platter.
    #[must_use]
    pub fn mechanism(&self) -> &Mechanism {
        &self.mechanism
    }

    /// Serves `access` from `now` on.
    pub fn serve(&mut self, now: f64, access: DiskAccess) -> Service {
        let decoded = now + self.overhead(now, access);
        self.serve_decoded(decoded, decoded + self.data_time(access), access)
    }

    /// Time in ns that the data of a write take over the bus; zero for a read.
    #[must_use]
    pub fn data_time(&self, access: DiskAccess) -> f64 {
        if access.op == Op::Read { 0.0 } else { access.count as f64 * self.spec.bus_sector }
    }

    /// Time in ns that the electronics need before `access` has an effect, if it arrives at `now`.
    pub fn overhead(&mut self, now: f64, access: DiskAccess) -> f64 {
        self.advance(now);
        let after = match self.last {
            Some(last) if last.op == Op::Write => 1,
            _ => 0,
        };
        let overheads = &self.spec.overheads;
        match access.op {
            Op::Read if self.lookup(access) == Lookup::Absent => overheads.read_absent[after],
            Op::Read => overheads.read_held[after],
            Op::Write if self.continues(access) => overheads.write_next[after],
            Op::Write => overheads.write_other[after],
        }
    }

    /// Serves `access`, whose overhead is over, from `now` on; the data of a write have arrived or
    /// will have arrived at `data_at`.
    pub fn serve_decoded(&mut self, now: f64, data_at: f64, access: DiskAccess) -> Service {
        let end = access.sector + access.count;
        assert!(end <= self.mechanism.geometry().sectors(), "an access past the end of the disk");
        self.advance(now);
        let service = match access.op {
            Op::Read => match self.lookup(access) {
                Lookup::Held => self.read_held(now, access),
                Lookup::Coming => self.read_coming(now, access),
                Lookup::Absent => self.read_absent(now, access),
            },
            Op::Write => self.write(now, data_at.max(now), access),
        };
        self.last = Some(access);
        let completion = self.spec.overheads.completion[usize::from(access.op == Op::Write)];
        Service { finished: service.finished + completion, ..service }
    }

    /// Of `waiting`, commands with an index and their arrival in ns, the one to serve next at
    /// `now`: its expected positioning time less `aging` times the time waited is the least.
    pub fn nearest(
        &mut self,
        now: f64,
        aging: f64,
        waiting: impl Iterator<Item = (usize, DiskAccess, f64)>,
    ) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        for (index, access, arrived) in waiting {
            let cost = self.positioning(now, access) - aging * (now - arrived);
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, index));
            }
        }
        best.map(|(_, index)| index)
    }

    /// Expected time in ns from `now` until `access` could begin to transfer.
    pub fn positioning(&mut self, now: f64, access: DiskAccess) -> f64 {
        self.advance(now);
        if access.op == Op::Read && self.lookup(access) != Lookup::Absent {
            return 0.0;
        }
        let from = now.max(self.written_at);
        from - now + self.mechanism.positioning(from, access.op, access.sector)
    }

    /// When the medium has every cached write: a flush that arrives at `now` ends then.
    #[must_use]
    pub fn flushed_at(&self, now: f64) -> f64 {
        now.max(self.written_at)
    }

    fn continues(&self, access: DiskAccess) -> bool {
        self.last.is_some_and(|last| last.sector + last.count == access.sector)
    }

    fn lookup(&self, access: DiskAccess) -> Lookup {
        let limit = self.reading.map(|reading| reading.limit);
        self.buffer.lookup(access.sector, access.sector + access.count, limit)
    }

    /// Lets reading ahead happen until `now`.
    fn advance(&mut self, now: f64) {
        let Some(reading) = self.reading else {
            return;
        };
        let left = reading.limit - reading.next;
        let (done, at) = self.mechanism.read_on(reading.at, now, reading.next, left);
        if done > 0 {
            let next = reading.next + done;
            self.buffer.extend(next);
            let more = Reading { next, at, limit: reading.limit };
            self.reading = (next < reading.limit).then_some(more);
        }
    }

    fn read_held(&mut self, now: f64, access: DiskAccess) -> Service {
        let end = access.sector + access.count;
        match (&mut self.reading, self.spec.buffering.read_ahead) {
            (Some(reading), ReadAhead::Stream(ahead)) if end <= reading.next => {
                let sectors = self.mechanism.geometry().sectors();
                reading.limit = reading.limit.max((end + ahead).min(sectors));
            }
            (Some(_), _) => {}
            (None, ReadAhead::Stream(_)) => {
                let next = self.buffer.touch(access.sector);
                self.read_ahead(now, end, next);
            }
            (None, _) => {
                self.buffer.touch(access.sector);
            }
        }
        let bus = access.count as f64 * self.spec.bus_sector;
        Service { arm_free: now, finished: now + bus }
    }

    /// The head is on its way to the rest of the range: waits for it, and lets it go on after.
    fn read_coming(&mut self, now: f64, access: DiskAccess) -> Service {
        let reading = self.reading.expect("a range that is coming is being read");
        let end = access.sector + access.count;
        let missing = end.saturating_sub(reading.next);
        let (done, at) = self.mechanism.read_on(reading.at, f64::INFINITY, reading.next, missing);
        assert_eq!(done, missing, "reading on without a time limit reads all");
        let read_at = at.max(now);
        self.buffer.extend(end);
        self.read_ahead(at, end, end);
        let bus = access.count as f64 * self.spec.bus_sector;
        let finished = (now + bus).max(read_at + self.spec.bus_sector);
        Service { arm_free: read_at, finished }
    }

    fn read_absent(&mut self, now: f64, access: DiskAccess) -> Service {
        self.reading = None;
        let from = now.max(self.written_at);
        let medium = self.mechanism.transfer(from, Op::Read, access.sector, access.count);
        let end = access.sector + access.count;
        self.buffer.forget(access.sector, end);
        self.buffer.put(access.sector, end);
        self.read_ahead(medium.end, end, end);
        let bus = access.count as f64 * self.spec.bus_sector;
        let finished = (medium.first + bus).max(medium.end + self.spec.bus_sector);
        Service { arm_free: medium.end, finished }
    }

    /// From time `at` on reads `next..`, as far ahead of `end` as the figures say.
    fn read_ahead(&mut self, at: f64, end: u64, next: u64) {
        let (ReadAhead::Once(ahead) | ReadAhead::Stream(ahead)) = self.spec.buffering.read_ahead
        else {
            return;
        };
        if self.spec.buffering.segments > 0 {
            let limit = (end + ahead).min(self.mechanism.geometry().sectors());
            self.reading = (next < limit).then_some(Reading { next, at, limit });
        }
    }

    fn write(&mut self, now: f64, data_at: f64, access: DiskAccess) -> Service {
        self.reading = None;
        let end = access.sector + access.count;
        if !self.continues(access) {
            self.buffer.forget(access.sector, end);
        }
        match self.spec.write_reporting {
            WriteReporting::OnMedium => {
                let from = now.max(self.written_at);
                let medium = self.mechanism.write_when(from, data_at, access.sector, access.count);
                Service { arm_free: medium.end, finished: medium.end }
            }
            WriteReporting::InBuffer => {
                let full = if self.continues(access) { now } else { now.max(self.written_at) };
                let held_at = full + (data_at - now);
                let from = held_at.max(self.written_at);
                let medium = self.mechanism.transfer(from, Op::Write, access.sector, access.count);
                self.written_at = medium.end;
                self.buffer.forget(access.sector, end);
                self.buffer.put(access.sector, end);
                Service { arm_free: full, finished: held_at }
            }
        }
    }
}
