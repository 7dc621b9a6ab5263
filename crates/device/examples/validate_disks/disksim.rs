//! Reads DiskSim's description of a disk and its validation traces, and replays one on the other.
//!
//! The files are DiskSim 4.0's own (`tests/data/disksim`, with their `COPYING`): a `.diskspecs`
//! file for the electronics, a `.model` file for layout and mechanics, a `.seek` file with the
//! measured seek curve, and a trace: `R|W`, a note, first sector, sectors, measured service time
//! and think time, both in us. Only what `terrace_device::disk` has is read.

use std::fs;
use std::path::Path;

use terrace_device::Op;
use terrace_device::disk::{
    Buffering, DiskAccess, Drive, DriveSpec, Geometry, Layout, Mechanics, Mechanism, Overheads,
    ReadAhead, SeekCurve, WriteReporting, Zone,
};

/// The five disks, and DiskSim's own error on each, in ms.
pub const DISKS: [(&str, f64); 5] = [
    ("cheetah9LP", 0.107),
    ("atlas10k", 0.268),
    ("barracuda", 0.349),
    ("hp_c2490a", 0.254),
    ("dec_rz26", 0.340),
];

const NS_PER_MS: f64 = 1e6;
const NS_PER_US: f64 = 1e3;
/// DiskSim's "Sparing scheme used" for spares at the end of each track.
const SPARES_ON_EVERY_TRACK: f64 = 3.0;

/// One request of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Traced {
    /// What was asked.
    pub access: DiskAccess,
    /// What the disk took, ns.
    pub measured: f64,
    /// Pause after the answer, ns.
    pub think: f64,
}

/// Modelled and measured service times of a replay, each ascending, in ns.
pub struct Replay {
    /// What the model took.
    pub modelled: Vec<f64>,
    /// What the disk took.
    pub measured: Vec<f64>,
}

impl Replay {
    /// DiskSim's figure of merit: the root mean square horizontal distance between the two
    /// cumulative distributions, in ms.
    pub fn rms_ms(&self) -> f64 {
        let squares: f64 =
            self.modelled.iter().zip(&self.measured).map(|(a, b)| (a - b) * (a - b)).sum();
        (squares / self.modelled.len() as f64).sqrt() / NS_PER_MS
    }

    /// Means of the modelled and of the measured times, in ms.
    pub fn means_ms(&self) -> (f64, f64) {
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64 / NS_PER_MS;
        (mean(&self.modelled), mean(&self.measured))
    }
}

/// Replays `trace` with one request outstanding: each is sent its think time after the answer.
pub fn replay(drive: &mut Drive, trace: &[Traced]) -> Replay {
    let mut now = 0.0;
    let mut modelled = Vec::with_capacity(trace.len());
    for request in trace {
        let finished = drive.serve(now, request.access).finished;
        modelled.push(finished - now);
        now = finished + request.think;
    }
    let mut measured: Vec<f64> = trace.iter().map(|request| request.measured).collect();
    modelled.sort_by(f64::total_cmp);
    measured.sort_by(f64::total_cmp);
    Replay { modelled, measured }
}

/// The trace of disk `name` under `folder`.
pub fn load_trace(folder: &Path, name: &str) -> Vec<Traced> {
    let packed = fs::read(folder.join(format!("{name}.trace.zst"))).expect("a trace");
    let mut reader = ruzstd::decoding::StreamingDecoder::new(&packed[..]).expect("a zstd file");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut reader, &mut text).expect("text");
    text.lines().map(parse_request).collect()
}

fn parse_request(line: &str) -> Traced {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [op, _, sector, count, measured, think] = fields[..] else {
        panic!("six fields in {line:?}");
    };
    let number = |text: &str| text.parse::<f64>().expect("a number");
    Traced {
        access: DiskAccess {
            op: if op == "R" { Op::Read } else { Op::Write },
            sector: sector.parse().expect("a sector"),
            count: count.parse().expect("a count"),
        },
        measured: number(measured) * NS_PER_US,
        think: number(think) * NS_PER_US,
    }
}

/// A drive built from the description of disk `name` under `folder`, whose moves keep to the curve.
pub fn load_drive(folder: &Path, name: &str) -> Drive {
    load_drive_that_errs(folder, name, 0.0)
}

/// The same, whose moves are off by `arrival_error_ms` in the mean.
pub fn load_drive_that_errs(folder: &Path, name: &str, arrival_error_ms: f64) -> Drive {
    let specs = Parameters::load(&folder.join(format!("{name}.diskspecs")));
    let model_file = specs.text("Model").trim_start_matches("source ").to_string();
    let model = Parameters::load(&folder.join(model_file));
    let geometry = geometry(&model);
    let seek = seek_curve(&folder.join(model.text("Full seek curve")));
    let mechanics = Mechanics {
        period: 60e9 / model.number("Rotation speed (in rpms)"),
        seek,
        stroke_scale: 1.0,
        head_switch: model.number("Head switch time") * NS_PER_MS,
        write_settle: model.number("Add. write settling delay") * NS_PER_MS,
        arrival_error: arrival_error_ms * NS_PER_MS,
        starts_anywhere: specs.number("Read any free blocks") > 0.0,
    };
    Drive::new(electronics(name, &specs), Mechanism::new(geometry, mechanics))
}

/// Bus time for a sector, in ms, of the disks whose own files leave it to the bus (they say 0): the
/// step from one size to the next in the measured times of reads that continue the last one.
const BUS_SECTOR_MS: [(&str, f64); 2] = [("hp_c2490a", 0.155), ("dec_rz26", 0.072)];

fn electronics(name: &str, specs: &Parameters) -> DriveSpec {
    let known = BUS_SECTOR_MS.iter().find(|(disk, _)| *disk == name);
    let bus_ms = known.map_or_else(|| specs.number("Bulk sector transfer time"), |(_, ms)| *ms);
    let pair = |what: &str| {
        ["read", "write"].map(|after| specs.number(&format!("{what} over. after {after}")))
    };
    let scaled = |what: &str| pair(what).map(|ms| ms * NS_PER_MS);
    let completion = ["Read", "Write"]
        .map(|what| specs.number(&format!("{what} completion overhead")) * NS_PER_MS);
    let ahead = specs.number("Maximum read-ahead (blks)") as u64;
    let reads_on = specs.number("Buffer continuous read") > 0.0;
    let reports_early = specs.number("Fast write level") > 0.0;
    DriveSpec {
        overheads: Overheads {
            read_held: scaled("Read hit"),
            read_absent: scaled("Read miss"),
            write_next: scaled("Write hit"),
            write_other: scaled("Write miss"),
            completion,
        },
        bus_sector: bus_ms * NS_PER_MS,
        buffering: Buffering {
            segments: specs.number("Number of buffer segments") as usize,
            segment_sectors: specs.number("Segment size (in blks)") as u64,
            read_ahead: if reads_on { ReadAhead::Once(ahead) } else { ReadAhead::Off },
        },
        write_reporting: if reports_early {
            WriteReporting::InBuffer
        } else {
            WriteReporting::OnMedium
        },
    }
}

fn geometry(model: &Parameters) -> Geometry {
    let surfaces = model.number("Number of data surfaces") as u32;
    let serpentine = model.number("LBN-to-PBN mapping scheme") > 0.0;
    let layout = if serpentine { Layout::Serpentine } else { Layout::Conventional };
    let on_every_track = model.number("Sparing scheme used") == SPARES_ON_EVERY_TRACK;
    let zones = model.blocks("dm_layout_g1_zone");
    let zones = zones.iter().map(|zone| {
        let first_cylinder = zone.number("First cylinder number") as u32;
        let spares = zone.number("Number of spares") as u32;
        Zone {
            first_cylinder,
            cylinders: zone.number("Last cylinder number") as u32 - first_cylinder + 1,
            sectors_per_track: zone.number("Blocks per track") as u32,
            spares_per_track: if on_every_track { spares } else { 0 },
            reserved: zone.number("Empty space at zone front") as u64,
            spares: if on_every_track { 0 } else { u64::from(spares) },
            offset: zone.number("Offset of first block"),
            track_skew: zone.number("Skew for track switch"),
            cylinder_skew: zone.number("Skew for cylinder switch"),
            slips: zone.list("slips"),
        }
    });
    Geometry::new(surfaces, layout, zones.collect())
}

fn seek_curve(path: &Path) -> SeekCurve {
    let text = fs::read_to_string(path).expect("a seek curve");
    let points = text.lines().skip(1).filter_map(|line| {
        let (distance, ms) = line.split_once(',')?;
        let number = |text: &str| text.trim().parse::<f64>().expect("a number");
        Some((number(distance), number(ms) * NS_PER_MS))
    });
    SeekCurve::measured(points.collect())
}

/// The `name = value` parameters of a file or block, comments removed.
struct Parameters {
    text: String,
}

impl Parameters {
    fn load(path: &Path) -> Parameters {
        let raw =
            fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let bare = raw.lines().map(|line| line.split('#').next().unwrap_or(""));
        Parameters { text: bare.collect::<Vec<_>>().join("\n") }
    }

    /// What follows `name =`, up to a comma or the end of the line.
    fn text(&self, name: &str) -> &str {
        self.after(name).split([',', '\n']).next().expect("split yields at least one").trim()
    }

    fn number(&self, name: &str) -> f64 {
        let text = self.text(name);
        text.parse().unwrap_or_else(|_| panic!("{name} = {text:?} is not a number"))
    }

    /// The numbers in brackets after `name =`.
    fn list(&self, name: &str) -> Vec<u64> {
        let (_, rest) = self.after(name).split_once('[').expect("a list");
        let (inside, _) = rest.split_once(']').expect("the end of a list");
        let items = inside.split(',').map(str::trim).filter(|item| !item.is_empty());
        items.map(|item| item.parse().expect("a number")).collect()
    }

    /// The blocks of type `kind`, which hold no blocks themselves.
    fn blocks(&self, kind: &str) -> Vec<Parameters> {
        let pieces = self.text.split(kind).skip(1);
        let inside = pieces.map(|piece| piece.split('}').next().expect("a block"));
        inside.map(|text| Parameters { text: text.to_string() }).collect()
    }

    fn after(&self, name: &str) -> &str {
        for (at, _) in self.text.match_indices(name) {
            let rest = self.text[at + name.len()..].trim_start();
            let before = self.text[..at].chars().last();
            if let Some(value) = rest.strip_prefix('=')
                && before.is_none_or(char::is_whitespace)
            {
                return value.trim_start();
            }
        }
        panic!("no parameter {name:?}");
    }
}
