//! The flash drives of the Bulletin of June 2014, by their inside: domains, chunks, static striping.
//!
//! Roh et al. ("MPSearch", S1a) measured an ioDrive and a P300, Fan et al. ("ParaScan", S1b) SSD-S
//! and SSD-M, whose domains and chunks they detected. What a request costs the host comes from
//! data sheets; what flash costs comes from the figures below; what a queue gains is a result, as
//! far as a sheet does not give both of its ends.
//!
//! Cells of single-level drives, unless said otherwise: 25 us to read, 200 us to program, 1.5 ms to
//! erase, pages of 4 KiB, 64 of them in a block, a bus of 40 MB/s (25 ns a byte): Agrawal et al.,
//! "Design tradeoffs for SSD performance" (USENIX ATC 2008), Table 1, of Samsung's K9XXG08UXM.
//! Drives are worn, queues have 32 places, and a write is over when it is on flash, unless said
//! otherwise. What is assumed says so. `docs/DISKS.md` has the table.

use terrace_rt::Nanos;

use crate::nand::{Content, NandSpec, Placement, Side};

const KIB: u32 = 1 << 10;

/// 20 domains of 4 KiB chunks, 32 commands, single-level cells: Fan et al., Table 1. They name an
/// Intel drive of 32 GB, which is the X25-E: ten channels, 35,000 reads and 3,300 writes of 4 KiB a
/// second with 32 outstanding, 250 and 170 MB/s. Its latencies, 75 and 85 us, are of requests in
/// order: a page that is read from flash takes 125 us at least, so a random one is not given any
/// further time here. A fifth of the flash is spare, assumed.
pub(super) fn ssd_s() -> NandSpec {
    NandSpec {
        channels: 10,
        dies_per_channel: 2,
        planes: 1,
        page_bytes: 4 * KIB,
        unit_bytes: 4 * KIB,
        pages_per_block: 64,
        read: Nanos::from_micros(25),
        program: Nanos::from_micros(200),
        erase: Nanos::from_micros(1_500),
        channel_bytes_per_s: 40e6,
        over_provisioning: 0.2,
        buffer_bytes: 0,
        host_read: Side { command: Nanos(28_571), latency: Nanos::ZERO, bytes_per_s: 250e6 },
        host_write: Side { command: Nanos(303_030), latency: Nanos::ZERO, bytes_per_s: 170e6 },
        half_duplex: true,
        queue_depth: 32,
        content: Content::Worn,
        placement: Placement::Striped { chunk_bytes: 4 * KIB },
    }
}

/// 20 domains of 16 KiB chunks, 32 commands, multi-level cells: Fan et al., Table 1. They name an
/// Intel drive of 160 GB, which is the X25-M: ten channels, 35,000 reads and 8,600 writes of 4 KiB
/// a second with 32 outstanding, 250 and 100 MB/s; latencies as of SSD-S. Cells: 50 us to read, 900
/// us to program, 3.5 ms to erase, pages of 4 KiB, 128 of them in a block, 25 ns a byte (Micron
/// MT29F16G08MAA, its partner's part). 7.5% of the flash is spare.
pub(super) fn ssd_m() -> NandSpec {
    NandSpec {
        pages_per_block: 128,
        read: Nanos::from_micros(50),
        program: Nanos::from_micros(900),
        erase: Nanos::from_micros(3_500),
        over_provisioning: 0.075,
        host_read: Side { command: Nanos(28_571), latency: Nanos::ZERO, bytes_per_s: 250e6 },
        host_write: Side { command: Nanos(116_279), latency: Nanos::ZERO, bytes_per_s: 100e6 },
        placement: Placement::Striped { chunk_bytes: 16 * KIB },
        ..ssd_s()
    }
}

/// Data sheet of the Micron P300 (rev. K, 5/12), 100 GB, in its steady state, write cache off: .154
/// ms and 44,000 reads, .424 ms and 16,000 writes a second, of 4 KiB and with 32 outstanding; 360
/// and 255 MB/s. Its 64 dies of 16 Gbit on eight channels of 200 MB/s (ONFI 2.1) are assumed from
/// the capacity, the class of its controller and Micron's flash of that year; 100 GB of 128 GiB
/// leave 27% spare. Chunks of a page are assumed. The latencies are what is missing to the sheet's.
pub(super) fn p300() -> NandSpec {
    NandSpec {
        channels: 8,
        dies_per_channel: 8,
        channel_bytes_per_s: 200e6,
        over_provisioning: 0.27,
        host_read: Side { command: Nanos(22_727), latency: Nanos(74_415), bytes_per_s: 360e6 },
        host_write: Side { command: Nanos(62_500), latency: Nanos(124_957), bytes_per_s: 255e6 },
        ..ssd_s()
    }
}

/// The SLC Fusion ioDrive by the figures of Canim et al. (VLDB 2010), Table 1: 50 us, 88,000
/// requests a second, 700 MB/s read and 550 written. 160 domains: its maker's "up to 160 separate
/// and parallel I/O pipelines" (techworld.com, 2007), taken as twenty channels of eight. Assumed: a
/// page crosses a channel at the whole card's rate, since the card spreads it; chunks of a page; a
/// fifth spare; a buffer of 2 MiB that survives a power cut, and for writes the latency of reads.
/// The latencies are what is missing to 50 us.
pub(super) fn iodrive() -> NandSpec {
    NandSpec {
        channels: 20,
        dies_per_channel: 8,
        channel_bytes_per_s: 700e6,
        buffer_bytes: 2 << 20,
        host_read: Side { command: Nanos(11_364), latency: Nanos(1_934), bytes_per_s: 700e6 },
        host_write: Side { command: Nanos(11_364), latency: Nanos(31_189), bytes_per_s: 550e6 },
        half_duplex: false,
        ..ssd_s()
    }
}
