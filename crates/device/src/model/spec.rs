//! A modelled device in figures: plain data that a preset fills in and a caller may change.

use terrace_rt::Nanos;

use crate::SECTOR_SIZE;
use crate::disk::{
    Buffering, Drive, DriveSpec, Geometry, Layout, Mechanics, Mechanism, Overheads, SeekCurve,
    WriteReporting, Zone,
};
use crate::nand::NandSpec;

/// A device: equal members, striped; and one more of another kind, if its upper part is there.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Independent members.
    pub members: u32,
    /// Bytes that one member holds before the next one's turn; a multiple of `SECTOR_SIZE`.
    pub stripe: u64,
    /// Every member.
    pub member: MemberSpec,
    /// Whether completed writes may be lost in a power cut until a `sync`.
    pub write_cache: WriteReporting,
    /// Where the upper part of the bytes is, if not on the members.
    pub upper: Option<Upper>,
}

/// The part of a device that is on a member of its own: what a volume manager makes of a disk and a
/// flash card.
#[derive(Clone, Debug)]
pub struct Upper {
    /// Its first byte.
    pub from: u64,
    /// What it is on.
    pub member: MemberSpec,
}

/// What a member is.
#[derive(Clone, Debug)]
pub enum MemberSpec {
    /// A rotating disk.
    Disk(DiskSpec),
    /// One server with measured service times.
    Measured(MeasuredSpec),
    /// A device with a latency and limits on rates.
    Volume(VolumeSpec),
    /// A flash drive.
    Nand(NandSpec),
    /// Takes no time.
    Ram,
}

/// Which of the queued requests a disk serves next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scheduling {
    /// In order of arrival.
    Fcfs,
    /// Aged shortest positioning time first: the least of expected positioning time (arm, rotation,
    /// and the risk to miss the sector) less `aging` times the time waited. 0.01: a second of
    /// waiting is worth the longest positioning. After Jacobson and Wilkes, "Disk scheduling
    /// algorithms based on rotational position" (1991), and Worthington, Ganger and Patt,
    /// "Scheduling algorithms for modern disk drives" (1994). The risk: `Mechanism::positioning`.
    ShortestPositioning {
        /// Share of the waiting time that is taken off the positioning time.
        aging: f64,
    },
}

/// A rotating disk. Times in ms as on data sheets.
#[derive(Clone, Debug)]
pub struct DiskSpec {
    /// Turns per minute.
    pub rpm: f64,
    /// 512-byte sectors on the outermost and on the innermost track.
    pub sectors_per_track: (u32, u32),
    /// Cylinders of the real disk, over which the seek figures are meant.
    pub cylinders: u32,
    /// Seek to the next track, average seek, full stroke.
    pub seek_ms: (f64, f64, f64),
    /// Switch to another surface.
    pub head_switch_ms: f64,
    /// Added to the move before a write.
    pub write_settle_ms: f64,
    /// How far off the drive's own estimate of a move over more than a cylinder is, mean.
    pub arrival_error_ms: f64,
    /// Recording surfaces of the model (see `span`).
    pub surfaces: u32,
    /// Command overhead of host, controller and drive.
    pub overhead_ms: f64,
    /// Host interface, bytes per second.
    pub bus_bytes_per_s: f64,
    /// Segments and read-ahead of the drive's buffer.
    pub buffering: Buffering,
    /// Commands the drive sees at once (NCQ, TCQ).
    pub queue_depth: usize,
    /// Which one it takes.
    pub scheduling: Scheduling,
    /// Share of the real disk's stroke over which the modelled bytes are spread. The model has only
    /// as many cylinders as its bytes need; a move over n of them takes as long as a move over the
    /// same share of the stroke, except that the next cylinder stays the next.
    pub span: f64,
}

/// One server with measured times.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredSpec {
    /// Of reads.
    pub read: MeasuredTimes,
    /// Of writes.
    pub write: MeasuredTimes,
}

/// The times of one direction, for 8 KiB each.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredTimes {
    /// The first of a request that does not continue the last one.
    pub random: Nanos,
    /// The first of a request that does.
    pub sequential: Nanos,
    /// Each further one of a request.
    pub further: Nanos,
}

/// Latency and rate limits of one direction.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time of a request that no limit delays.
    pub latency: Nanos,
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
}

/// A volume with a latency and limits.
#[derive(Clone, Copy, Debug)]
pub struct VolumeSpec {
    /// Reads, or both directions together if `write` is `None`.
    pub read: Limits,
    /// Writes, if they have limits of their own.
    pub write: Option<Limits>,
    /// A larger request counts as several, bytes.
    pub request_bytes_max: u64,
}

impl Spec {
    /// One member.
    #[must_use]
    pub fn single(member: MemberSpec) -> Spec {
        let write_cache = WriteReporting::OnMedium;
        Spec { members: 1, stripe: 1 << 20, member, write_cache, upper: None }
    }

    /// The same device, whose bytes from `from` on are on a member of its own. The others keep the
    /// places that they have, so that the rest of the bytes is no faster for it.
    #[must_use]
    pub fn with_upper(mut self, from: u64, member: MemberSpec) -> Spec {
        self.upper = Some(Upper { from, member });
        self
    }

    /// Whether places on it depend on its length.
    pub(super) fn has_geometry(&self) -> bool {
        let is_mechanical = matches!(self.member, MemberSpec::Disk(_) | MemberSpec::Nand(_));
        self.members > 1 || self.upper.is_some() || is_mechanical
    }

    /// Its members and how many bytes each holds, if the device holds `len`: the upper one last.
    pub(super) fn all_members(&self, len: u64) -> Vec<(MemberSpec, u64)> {
        let stripes = len.div_ceil(self.stripe).div_ceil(u64::from(self.members));
        let lower = (0..self.members).map(|_| (self.member.clone(), stripes * self.stripe));
        let upper = self.upper.iter().map(|upper| {
            let bytes = len.saturating_sub(upper.from).max(SECTOR_SIZE as u64);
            (upper.member.clone(), bytes)
        });
        lower.chain(upper).collect()
    }

    /// The same device with its bytes over `span` of each disk's stroke; no disk, no change.
    ///
    /// # Panics
    ///
    /// Unless `0 < span <= 1`.
    #[must_use]
    pub fn with_span(mut self, span: f64) -> Spec {
        assert!(span > 0.0 && span <= 1.0, "a span of {span} strokes");
        if let MemberSpec::Disk(disk) = &mut self.member {
            disk.span = span;
        }
        self
    }

    /// The same device with a volatile write cache.
    #[must_use]
    pub fn with_write_cache(mut self) -> Spec {
        self.write_cache = WriteReporting::InBuffer;
        self
    }
}

const NS_PER_MS: f64 = 1e6;
/// Zones of a modelled disk, if it has cylinders enough.
const ZONES: u32 = 16;
/// Fewest cylinders of a model, however few bytes it holds.
const CYLINDERS_MIN: u32 = 16;

impl DiskSpec {
    /// An idle drive that holds at least `bytes`.
    pub(crate) fn drive(&self, bytes: u64, write_reporting: WriteReporting) -> Drive {
        let period = 60e9 / self.rpm;
        let (single, average, full) = self.seek_ms;
        let geometry = self.geometry(bytes, period);
        let last = geometry.locate(geometry.sectors() - 1).cylinder;
        let stroke = self.span * f64::from(self.cylinders - 1) / f64::from(last);
        let mechanics = Mechanics {
            period,
            seek: SeekCurve::from_figures(
                self.cylinders,
                single * NS_PER_MS,
                average * NS_PER_MS,
                full * NS_PER_MS,
            ),
            stroke_scale: stroke.max(1.0),
            head_switch: self.head_switch_ms * NS_PER_MS,
            write_settle: self.write_settle_ms * NS_PER_MS,
            arrival_error: self.arrival_error_ms * NS_PER_MS,
            starts_anywhere: false,
        };
        let electronics = DriveSpec {
            overheads: Overheads::flat(self.overhead_ms * NS_PER_MS),
            bus_sector: SECTOR_SIZE as f64 / self.bus_bytes_per_s * 1e9,
            buffering: self.buffering,
            write_reporting,
        };
        Drive::new(electronics, Mechanism::new(geometry, mechanics))
    }

    fn geometry(&self, bytes: u64, period: f64) -> Geometry {
        let sectors = bytes.div_ceil(SECTOR_SIZE as u64);
        let (outer, inner) = self.sectors_per_track;
        // Zones differ in length, so their mean falls short of the sectors by less than one each.
        let mean = u64::from((outer + inner) / 2).max(1) * u64::from(self.surfaces);
        let cylinders = (sectors.div_ceil(mean) as u32 + ZONES).max(CYLINDERS_MIN);
        let zones = if outer == inner { 1 } else { ZONES.min(cylinders / 4) };
        let switch = self.head_switch_ms + self.write_settle_ms;
        let step = self.seek_ms.0.max(self.head_switch_ms) + self.write_settle_ms;
        let zone = |index: u32| {
            let first_cylinder = cylinders * index / zones;
            let drop = (outer - inner) * index / (zones - 1).max(1);
            let sectors_per_track = outer - drop;
            let skew =
                |ms: f64| (ms * NS_PER_MS / period * f64::from(sectors_per_track)).ceil() + 1.0;
            Zone {
                first_cylinder,
                cylinders: cylinders * (index + 1) / zones - first_cylinder,
                sectors_per_track,
                spares_per_track: 0,
                reserved: 0,
                spares: 0,
                offset: 0.0,
                track_skew: skew(switch),
                cylinder_skew: skew(step),
                slips: Vec::new(),
            }
        };
        let zones = (0..zones).map(zone).collect();
        let geometry = Geometry::new(self.surfaces, Layout::Conventional, zones);
        assert!(geometry.sectors() >= sectors, "the modelled disk is too small for its bytes");
        geometry
    }
}
