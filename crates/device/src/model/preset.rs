//! The modelled devices by name: one table, from which names, help and tests are made.
//!
//! Sources: [S0] is Do et al., "Turbocharging DBMS buffer pool using SSDs" (SIGMOD 2011), [S3] is
//! Do et al., "Fast peak-to-peak behavior with SSD buffer pool" (ICDE 2013), [S4] is Canim et al.,
//! "SSD bufferpool extensions for database systems" (VLDB 2010). `docs/DISKS.md` says
//! which figures of a disk are taken from where, which are calibrated, and on what.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use terrace_rt::{Nanos, World};

use super::geometry;
use super::sim::SimDevice;
use super::spec::{
    DiskSpec, Limits, MeasuredSpec, MeasuredTimes, MemberSpec, Scheduling, Spec, VolumeSpec,
};
use crate::disk::{Buffering, ReadAhead, WriteReporting};
use crate::nand::{Content, NandSpec, Placement, Side};
use crate::store::Store;

macro_rules! presets {
    ($($variant:ident, $name:literal, $spec:expr, $about:literal, $source:literal;)*) => {
        /// A modelled device with a name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Preset {
            $(#[doc = concat!("`", $name, "`: ", $about)] $variant,)*
        }

        impl Preset {
            /// All names, in the order of the table.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// The whole table.
            pub const TABLE: &'static [PresetRow] = &[$(PresetRow {
                preset: Preset::$variant,
                name: $name,
                about: $about,
                source: $source,
            }),*];

            /// The device in figures.
            #[must_use]
            pub fn spec(self) -> Spec {
                match self {
                    $(Preset::$variant => $spec,)*
                }
            }
        }
    };
}

presets! {
    Sigmod2011Hdd, "sigmod2011-hdd", array(8, sata_2011()),
        "eight 7,200 rpm SATA disks, striped by 256 KiB, write cache off", "[S0] Table 1";
    Sigmod2011Log, "sigmod2011-log", Spec::single(MemberSpec::Disk(sata_2011())),
        "one 7,200 rpm SATA disk for a log, write cache off", "[S0] 4.1, Table 1";
    Icde2013Hdd, "icde2013-hdd", array(18, sas_2013()),
        "eighteen 10,000 rpm SAS disks, striped by 256 KiB, write cache off", "[S3] Table IV";
    Vldb2010Hdd, "vldb2010-hdd", Spec::single(MemberSpec::Disk(sata_2010())),
        "one 7,200 rpm SATA disk of 1 TB whose outermost 15 GB are used, write cache off",
        "[S4] 4.1; what it does not say as its class";
    Vldb2010Array, "vldb2010-array", array(3, sata_2010()),
        "three of these disks, striped by 256 KiB", "[S4] 5.2";
    Vldb2010Card, "vldb2010-card", Spec::single(MemberSpec::Volume(fusion_card())),
        "the 80 GB SLC Fusion-io card, many requests at once", "[S4] Table 1";
    Vldb2010Ssd, "vldb2010-ssd", Spec::single(MemberSpec::Measured(iodrive_2010())),
        "this card as one server: one request at a time", "[S4] Table 1";
    IoDrive, "iodrive", Spec::single(MemberSpec::Measured(iodrive())),
        "the 160 GB SLC Fusion ioDrive as one server", "[S0] Table 1, [S3] Table IV";
    Hdd7200, "hdd-7200", Spec::single(MemberSpec::Disk(sata_today())),
        "one 7,200 rpm SATA disk of today", "data sheets of 4 to 8 TB nearline disks";
    Gp3, "gp3", Spec::single(MemberSpec::Volume(gp3())),
        "a cloud volume of 3,000 IOPS and 125 MiB/s",
        "Amazon EBS gp3, base performance: docs.aws.amazon.com/ebs/latest/userguide/\
         ebs-volume-types.html, 2026-11; its latency, \"single-digit\" ms there, is assumed";
    Io2, "io2", Spec::single(MemberSpec::Volume(io2())),
        "a provisioned cloud volume of 64,000 IOPS",
        "Amazon EBS io2 Block Express: docs.aws.amazon.com/ebs/latest/userguide/\
         ebs-optimization.html, 2026-11: under 500 us on average; 64,000 IOPS are one choice";
    PdBalanced, "pd-balanced", Spec::single(MemberSpec::Volume(persistent_disk(6.0, 0.28))),
        "a balanced persistent disk of 1,000 GiB, 6,000 IOPS and 280 MiB/s",
        "Google Cloud: cloud.google.com/compute/docs/disks/performance, 2026-11: 6 IOPS and \
         0.28 MiB/s for each GiB, sub-millisecond; without what an instance adds";
    PdSsd, "pd-ssd", Spec::single(MemberSpec::Volume(persistent_disk(30.0, 0.48))),
        "an SSD persistent disk of 1,000 GiB, 30,000 IOPS and 480 MiB/s",
        "Google Cloud: cloud.google.com/compute/docs/disks/performance, 2026-11: 30 IOPS and \
         0.48 MiB/s for each GiB, sub-millisecond; without what an instance adds";
    AzurePremiumV2, "azure-premium-v2", Spec::single(MemberSpec::Volume(azure_premium_v2())),
        "a Premium SSD v2 of 3,000 IOPS and 125 MB/s",
        "Microsoft Azure: learn.microsoft.com/azure/virtual-machines/disks-types, 2026-11: the \
         base performance, sub-millisecond";
    SataSsd, "sata-ssd", Spec::single(MemberSpec::Volume(sata_ssd())),
        "a data-centre SATA flash drive, by its rates for 8 KiB",
        "product specification of the Intel SSD DC S4500, 2017: 48,000 reads and 21,000 writes, \
         110 and 52 us, 500 and 490 MB/s";
    Nvme, "nvme", Spec::single(MemberSpec::Volume(nvme())),
        "a data-centre NVMe drive, without garbage collection", "data sheet of the Samsung PM9A3";
    ConsumerSata, "consumer-sata", flash(consumer_sata()).with_write_cache(),
        "a consumer SATA flash drive of 2012, worn in, with a volatile write cache",
        "data sheet of the Samsung 840 Pro; its flash as MQSim has it";
    DcNvme, "dc-nvme", flash(dc_nvme()),
        "a data-centre NVMe flash drive, worn in, whose buffer survives a power cut",
        "data sheet of the Samsung PM9A3; its flash: see the code";
    IoDriveGeometry, "iodrive-geometry", flash(geometry::iodrive()),
        "the SLC Fusion ioDrive by its inside: 160 domains, chunks striped over them",
        "[S4] Table 1; its maker's 160 pipelines; its flash: see geometry.rs";
    P300, "p300", flash(geometry::p300()),
        "the 100 GB SLC Micron P300 by its inside: 64 domains, chunks striped over them",
        "data sheet of the Micron P300 (rev. K), steady state; its flash: see geometry.rs";
    SsdS, "ssd-s", flash(geometry::ssd_s()),
        "the 32 GB SLC drive of Fan et al.: 20 domains, chunks of 4 KiB striped over them",
        "Fan, Lai, Meng, \"Optimizing database operators by exploiting internal parallelism of \
         solid state drives\" (IEEE Data Eng. Bull., June 2014), Table 1; data sheet of the Intel \
         X25-E; its flash: see geometry.rs";
    SsdM, "ssd-m", flash(geometry::ssd_m()),
        "the 160 GB MLC drive of Fan et al.: 20 domains, chunks of 16 KiB striped over them",
        "the same, Table 1; data sheet of the Intel X25-M; its flash: see geometry.rs";
    Ram, "ram", Spec::single(MemberSpec::Ram),
        "memory, which takes no time", "none: for tests";
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct PresetRow {
    /// The preset.
    pub preset: Preset,
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Where its figures come from.
    pub source: &'static str,
}

/// There is no preset of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPreset {
    /// What was asked for.
    pub name: String,
}

impl fmt::Display for UnknownPreset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no device {:?}; known: {}", self.name, Preset::NAMES.join(", "))
    }
}

impl std::error::Error for UnknownPreset {}

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Preset, UnknownPreset> {
        let row = Preset::TABLE.iter().find(|row| row.name == name);
        row.map(|row| row.preset).ok_or_else(|| UnknownPreset { name: name.to_string() })
    }
}

impl Preset {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let row = Preset::TABLE.iter().find(|row| row.preset == self);
        row.expect("every preset is in the table").name
    }
}

/// A device as `preset` says, with the bytes of `store`, in `world`.
#[must_use]
pub fn build(preset: Preset, world: World, store: Store) -> Arc<SimDevice> {
    SimDevice::new(preset.spec(), world, store)
}

/// Bytes that one disk of the arrays holds before the next one's turn.
const STRIPE: u64 = 256 << 10;

/// A second of waiting outweighs the longest positioning.
const AGED: Scheduling = Scheduling::ShortestPositioning { aging: 0.01 };

/// Mean error of a move as the trace of a measured disk shows it, an upper bound: `docs/DISKS.md`.
const ARRIVAL_ERROR_MS: f64 = 0.3;

fn flash(nand: NandSpec) -> Spec {
    Spec::single(MemberSpec::Nand(nand))
}

fn array(members: u32, disk: DiskSpec) -> Spec {
    Spec {
        members,
        stripe: STRIPE,
        member: MemberSpec::Disk(disk),
        write_cache: WriteReporting::OnMedium,
        upper: None,
    }
}

/// Buffers are scaled with the database: two segments, as long as a stream of reads needs them to
/// outlast a turn.
const SCALED_BUFFER: Buffering =
    Buffering { segments: 2, segment_sectors: 2_048, read_ahead: ReadAhead::Stream(1_536) };

fn sata_2011() -> DiskSpec {
    DiskSpec {
        rpm: 7_200.0,
        sectors_per_track: (1_084, 1_084),
        cylinders: 300_000,
        seek_ms: (0.8, 8.5, 17.0),
        head_switch_ms: 0.8,
        write_settle_ms: 1.087,
        arrival_error_ms: ARRIVAL_ERROR_MS,
        surfaces: 1,
        overhead_ms: 0.276,
        bus_bytes_per_s: 300e6,
        buffering: SCALED_BUFFER,
        queue_depth: 32,
        scheduling: AGED,
        span: 0.1205,
    }
}

fn sas_2013() -> DiskSpec {
    DiskSpec {
        rpm: 10_000.0,
        sectors_per_track: (1_584, 1_584),
        cylinders: 90_000,
        seek_ms: (0.3, 3.54, 8.0),
        head_switch_ms: 0.3,
        write_settle_ms: 0.256,
        arrival_error_ms: ARRIVAL_ERROR_MS,
        surfaces: 1,
        overhead_ms: 0.082,
        bus_bytes_per_s: 600e6,
        buffering: SCALED_BUFFER,
        queue_depth: 32,
        scheduling: AGED,
        span: 1.0,
    }
}

/// Average seek and turn as published; a track is four fifths of what passes at the published media
/// rate of 1,070 Mbit/s, the rest being taken for what is not data. The database of 15 GB takes
/// 1.1% of the stroke, so nothing of the disk is scaled, and its buffer has segments for many
/// streams.
fn sata_2010() -> DiskSpec {
    DiskSpec {
        rpm: 7_200.0,
        sectors_per_track: (1_741, 1_741),
        cylinders: 187_000,
        seek_ms: (0.8, 8.2, 17.0),
        head_switch_ms: 0.8,
        write_settle_ms: 0.8,
        arrival_error_ms: ARRIVAL_ERROR_MS,
        surfaces: 8,
        overhead_ms: 0.1,
        bus_bytes_per_s: 300e6,
        buffering: Buffering {
            segments: 16,
            segment_sectors: 2_048,
            read_ahead: ReadAhead::Stream(1_536),
        },
        queue_depth: 32,
        scheduling: AGED,
        span: 0.0113,
    }
}

fn sata_today() -> DiskSpec {
    DiskSpec {
        rpm: 7_200.0,
        sectors_per_track: (3_580, 1_760),
        cylinders: 300_000,
        seek_ms: (0.8, 8.5, 17.0),
        head_switch_ms: 0.8,
        write_settle_ms: 0.8,
        arrival_error_ms: ARRIVAL_ERROR_MS,
        surfaces: 1,
        overhead_ms: 0.1,
        bus_bytes_per_s: 600e6,
        buffering: SCALED_BUFFER,
        queue_depth: 32,
        scheduling: AGED,
        span: 1.0,
    }
}

/// Requests of 8 KiB as measured; within a larger one, 700 MB/s read and 550 written [S4 4.1].
fn iodrive() -> MeasuredSpec {
    let times = |random, sequential, further| MeasuredTimes {
        random: Nanos(random),
        sequential: Nanos(sequential),
        further: Nanos(further),
    };
    MeasuredSpec { read: times(82_088, 62_578, 11_703), write: times(80_815, 66_823, 14_895) }
}

/// Its table names a latency of reads only, which is taken for writes too, and rates of each
/// direction alone; what 70% reads and 30% writes of 4 KiB make, 370 MB/s, is not modelled.
fn fusion_card() -> VolumeSpec {
    let limits =
        |bytes_per_s: f64| Limits { latency: Nanos::from_micros(50), iops: 88e3, bytes_per_s };
    VolumeSpec { read: limits(700e6), write: Some(limits(550e6)), request_bytes_max: 16 << 10 }
}

/// 50 us, and 700 MB/s read and 550 written, of 16 KiB: the latency of writes, which is not
/// published, is taken to be that of reads.
fn iodrive_2010() -> MeasuredSpec {
    let times = |first, further| MeasuredTimes {
        random: Nanos(first),
        sequential: Nanos(first),
        further: Nanos(further),
    };
    MeasuredSpec { read: times(61_703, 11_703), write: times(64_895, 14_895) }
}

fn gp3() -> VolumeSpec {
    let both = Limits {
        latency: Nanos::from_micros(700),
        iops: 3_000.0,
        bytes_per_s: 125.0 * 1024.0 * 1024.0,
    };
    VolumeSpec { read: both, write: None, request_bytes_max: 256 << 10 }
}

fn io2() -> VolumeSpec {
    let both = Limits { latency: Nanos::from_micros(500), iops: 64_000.0, bytes_per_s: 1_000e6 };
    VolumeSpec { read: both, write: None, request_bytes_max: 256 << 10 }
}

/// Of 1,000 GiB, by what each adds. Latency is published as below a millisecond.
fn persistent_disk(iops_per_gib: f64, mib_per_s_per_gib: f64) -> VolumeSpec {
    let both = Limits {
        latency: Nanos::from_micros(1_000),
        iops: iops_per_gib * 1_000.0,
        bytes_per_s: mib_per_s_per_gib * 1_000.0 * 1024.0 * 1024.0,
    };
    VolumeSpec { read: both, write: None, request_bytes_max: 256 << 10 }
}

/// Latency is published as below a millisecond.
fn azure_premium_v2() -> VolumeSpec {
    let both = Limits { latency: Nanos::from_micros(1_000), iops: 3_000.0, bytes_per_s: 125e6 };
    VolumeSpec { read: both, write: None, request_bytes_max: 256 << 10 }
}

/// Its rates of requests are those of 8 KiB; larger ones are bound by bytes.
fn sata_ssd() -> VolumeSpec {
    let limits = |latency_us, iops, bytes_per_s| Limits {
        latency: Nanos::from_micros(latency_us),
        iops,
        bytes_per_s,
    };
    VolumeSpec {
        read: limits(110, 48e3, 500e6),
        write: Some(limits(52, 21e3, 490e6)),
        request_bytes_max: 16 << 10,
    }
}

fn nvme() -> VolumeSpec {
    VolumeSpec {
        read: Limits { latency: Nanos::from_micros(80), iops: 900e3, bytes_per_s: 6.5e9 },
        write: Some(Limits { latency: Nanos::from_micros(18), iops: 200e3, bytes_per_s: 3.5e9 }),
        request_bytes_max: 4 << 10,
    }
}

/// MQSim's flash (Tavakkol et al., "MQSim: a framework for enabling realistic studies of modern
/// multi-queue SSD devices", FAST 2018, default configuration) behind the data sheet's host side:
/// the controller's time for a command is what 100,000 reads and 90,000 writes a second leave it,
/// latencies are what is missing to 10,000 reads and 31,000 writes a second one at a time.
fn consumer_sata() -> NandSpec {
    NandSpec {
        channels: 8,
        dies_per_channel: 8,
        planes: 2,
        page_bytes: 8 << 10,
        unit_bytes: 4 << 10,
        pages_per_block: 256,
        read: Nanos::from_micros(75),
        program: Nanos::from_micros(750),
        erase: Nanos::from_micros(3_800),
        channel_bytes_per_s: 333e6,
        over_provisioning: 0.07,
        buffer_bytes: 2 << 20,
        host_read: Side { command: Nanos(10_000), latency: Nanos::ZERO, bytes_per_s: 540e6 },
        host_write: Side { command: Nanos(11_111), latency: Nanos(13_300), bytes_per_s: 520e6 },
        half_duplex: true,
        queue_depth: 32,
        content: Content::Worn,
        placement: Placement::Mapped,
    }
}

/// Assumed, since its maker does not say: triple-level cells with 16 KiB pages, 50 us to read, 700
/// us to program and 1.2 GT/s; sixteen channels of eight dies, which 6.5 GB/s of reads need. The
/// host side as above: 900,000 reads a second, 80 us for a read and 18 us for a write. What writes
/// at random are bound by, garbage collection, is a result.
fn dc_nvme() -> NandSpec {
    NandSpec {
        channels: 16,
        dies_per_channel: 8,
        planes: 2,
        page_bytes: 16 << 10,
        unit_bytes: 4 << 10,
        pages_per_block: 1_024,
        read: Nanos::from_micros(50),
        program: Nanos::from_micros(700),
        erase: Nanos::from_micros(3_500),
        channel_bytes_per_s: 1_200e6,
        over_provisioning: 0.07,
        buffer_bytes: 16 << 20,
        host_read: Side { command: Nanos(1_111), latency: Nanos(25_000), bytes_per_s: 6.5e9 },
        host_write: Side { command: Nanos(1_000), latency: Nanos(15_800), bytes_per_s: 3.5e9 },
        half_duplex: false,
        queue_depth: 1_024,
        content: Content::Worn,
        placement: Placement::Mapped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_unknown_ones_list_the_known() {
        for (row, name) in Preset::TABLE.iter().zip(Preset::NAMES) {
            assert_eq!(name.parse(), Ok(row.preset));
            assert_eq!(row.preset.name(), *name);
        }
        let error = "floppy".parse::<Preset>().expect_err("there is none").to_string();
        assert!(Preset::NAMES.iter().all(|name| error.contains(name)), "{error}");
    }
}
