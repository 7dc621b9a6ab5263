//! A NAND drive in figures, and how a small one is cut from a large one's geometry.

use terrace_rt::Nanos;

/// What a drive holds when it is new to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing: the first writes find erased blocks.
    Erased,
    /// Every unit, overwritten at random until garbage collection was steady, as drives are
    /// prepared for a measurement (SNIA Solid State Storage Performance Test Specification).
    Worn,
}

/// Which die holds a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Any: one map of all dies says which, and each write may change it.
    Mapped,
    /// Static: chunk c is on die c modulo their number, each of which is a domain and maps its own.
    Striped {
        /// Bytes of a chunk, whole units.
        chunk_bytes: u32,
    },
}

/// What one direction of the host's side costs.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// Time of the controller for each command, one command after the other.
    pub command: Nanos,
    /// Time of a command that delays no other: firmware and host.
    pub latency: Nanos,
    /// Bytes per second over the host link.
    pub bytes_per_s: f64,
}

/// A NAND drive.
#[derive(Clone, Debug)]
pub struct NandSpec {
    /// Channels, each of which moves the data of one die at a time.
    pub channels: u32,
    /// Dies on each channel: chips times dies in a chip.
    pub dies_per_channel: u32,
    /// Planes of a die, which are read, programmed and erased together.
    pub planes: u32,
    /// Bytes of a page, the unit of programming.
    pub page_bytes: u32,
    /// Bytes of a unit, of which the map knows the place; a page holds a whole number of them.
    pub unit_bytes: u32,
    /// Pages of a block, the unit of erasure.
    pub pages_per_block: u32,
    /// Array to register, for a page.
    pub read: Nanos,
    /// Register to array, for a page.
    pub program: Nanos,
    /// A block.
    pub erase: Nanos,
    /// Bytes per second of a channel.
    pub channel_bytes_per_s: f64,
    /// Share of the flash beyond the bytes that the host sees.
    pub over_provisioning: f64,
    /// Bytes of the buffer from which a write is acknowledged; with none, it is when programmed.
    pub buffer_bytes: u64,
    /// Reads, as the host sees them.
    pub host_read: Side,
    /// Writes, as the host sees them.
    pub host_write: Side,
    /// Whether reads and writes share the link's time (SATA), or have it each (PCIe).
    pub half_duplex: bool,
    /// Commands that the drive sees at once.
    pub queue_depth: usize,
    /// What it holds at the start.
    pub content: Content,
    /// Which die holds what.
    pub placement: Placement,
}

/// Blocks side by side on all dies, of which a small drive is given at least this many: garbage
/// collection that chooses among few blocks is another one.
const SUPERBLOCKS_MIN: u64 = 128;
/// Superblocks for the two frontiers and for what collection must not run out of, beside the
/// over-provisioning: a large drive has thousands, of which these are none to speak of.
pub(super) const RESERVE: u32 = 4;

/// The layout of the flash of a drive of the given number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NandLayout {
    /// Dies.
    pub(super) dies: u32,
    /// Units that one program of a die takes: a page of each plane.
    pub(super) units_per_program: u32,
    /// Units of a block of each plane of each die.
    pub(super) units_per_superblock: u32,
    /// Such superblocks.
    pub(super) superblocks: u32,
    /// Units that the host sees.
    pub(super) host_units: u32,
    /// Units of the map itself, which are kept as the host's are.
    pub(super) map_units: u32,
    /// Pages of a block.
    pub(super) pages_per_block: u32,
}

/// Bytes of an entry of the map.
const MAP_ENTRY_BYTES: u32 = 4;

impl NandSpec {
    /// Units whose places one unit of the map holds.
    pub(super) fn units_per_map_unit(&self) -> u32 {
        self.unit_bytes / MAP_ENTRY_BYTES
    }

    /// How many domains it has and the bytes of a chunk, if places are static: chunk c of the host's
    /// bytes is in domain c modulo their number.
    #[must_use]
    pub fn domains(&self) -> Option<(u32, u64)> {
        match self.placement {
            Placement::Mapped => None,
            Placement::Striped { chunk_bytes } => Some((self.dies(), u64::from(chunk_bytes))),
        }
    }

    pub(super) fn dies(&self) -> u32 {
        self.channels * self.dies_per_channel
    }

    /// The layout of all dies for `bytes`.
    ///
    /// # Panics
    ///
    /// As `layout_of`.
    pub(super) fn layout(&self, bytes: u64) -> NandLayout {
        self.layout_of(self.dies(), bytes)
    }

    /// The layout of `dies` dies for `bytes`. Blocks shrink with the drive, down to four pages, so
    /// that there are enough of them; all dies stay.
    ///
    /// # Panics
    ///
    /// If the figures make no sense, or for more than 2^31 units.
    pub(super) fn layout_of(&self, dies: u32, bytes: u64) -> NandLayout {
        assert!(self.page_bytes.is_multiple_of(self.unit_bytes), "pages hold whole units");
        assert!(self.queue_depth > 0, "a drive that accepts no command");
        let spare = self.over_provisioning;
        assert!(spare > 0.0 && spare < 1.0, "over-provisioning of {spare}");
        if let Placement::Striped { chunk_bytes } = self.placement {
            assert!(chunk_bytes > 0, "chunks without bytes");
            assert!(chunk_bytes.is_multiple_of(self.unit_bytes), "chunks hold whole units");
        }
        let units_per_program = self.planes * self.page_bytes / self.unit_bytes;
        let host_units = bytes.div_ceil(u64::from(self.unit_bytes));
        let map_units = host_units.div_ceil(u64::from(self.units_per_map_unit()));
        let units = ((host_units + map_units) as f64 / (1.0 - spare)).ceil() as u64;
        assert!(units < 1 << 31, "a modelled drive of {bytes} bytes is too large");
        let row = u64::from(dies * units_per_program);
        let pages = (units / row / SUPERBLOCKS_MIN).clamp(4, u64::from(self.pages_per_block));
        let units_per_superblock = row * pages;
        NandLayout {
            dies,
            units_per_program,
            units_per_superblock: units_per_superblock as u32,
            superblocks: units.div_ceil(units_per_superblock) as u32 + RESERVE,
            host_units: host_units as u32,
            map_units: map_units as u32,
            pages_per_block: pages as u32,
        }
    }

    /// Time to erase a block that was shrunk to `pages`: each page costs what it does in a whole.
    pub(super) fn erase_time(&self, pages: u32) -> Nanos {
        Nanos(self.erase.0 * u64::from(pages) / u64::from(self.pages_per_block))
    }
}
