//! The header of a log: where its segments and its doublewrite area are on the device.
//!
//! ```text
//! device   0        BLOCK     in any order
//!          +--------+---------+-------------+-----------+-----------+---
//!          | copy 0 | copy 1  | doublewrite | segment   | segment   | ...
//!          +--------+---------+-------------+-----------+-----------+---
//!
//! offset size field       of each copy, one block
//!      0    8 magic      "TERRALOG"
//!      8    4 version    2: the log is a ring of fixed size; 3: a line of segments
//!     12    4 checksum   CRC-32C of the block with this field zero
//!     16   16 database   random id, the same in home, log and flash
//!     32    8 sequence   of two whole copies the one with the higher sequence counts
//!     40    8 area       first byte of the doublewrite area
//!     48    8 half       bytes of each of its halves
//!     56    4 halves     2
//!     60    4 segments   how many entries follow; of a ring 1
//!     64    8 first      version 3: position of the stream where the first segment begins
//!     72    8 limit      version 3: how long the log may get, as the last opening had it
//!  64/80      entries    first byte 8, bytes 8; repeated: the stream's pieces, in their order
//! ```
//!
//! - G1: a change of the header goes over the older copy and is synced, then over the other one and
//!   is synced, and only then is used. So one of the two is whole at any time; and where one goes
//!   bad later, the other one says the same. A copy that is bad or says something older is written
//!   anew once an opening for writing is through.
//! - G2: segments are multiples of `BLOCK`, so a block never wraps.
//! - G3: area and segments lie on the device behind the copies, and apart from each other.

use std::sync::Arc;

use terrace_device::{Device, read, write};
use terrace_page::Lsn;
use terrace_pool::{DoublewritePlace, HALF_BYTES_MIN};

use super::buffer::Aligned;
use super::map::{LINE_BYTES_MIN, Layout, Line, LogMap, Segment, are_apart};
use crate::copies::{BadCopy, CopyFlaw, read_copy};
use crate::{Action, Error, Part};

/// The unit of writing, in bytes.
pub(crate) const BLOCK: usize = 4096;
/// The first record's LSN: zero means "before all records".
pub(crate) const FIRST_LSN: Lsn = Lsn(BLOCK as u64);
/// The smallest ring, in bytes.
const MIN_CAPACITY: u64 = 512 << 10;
/// The smallest log, in bytes, header included.
pub(crate) const MIN_LOG_BYTES: u64 = 1 << 20;

const MAGIC: [u8; 8] = *b"TERRALOG";
const RING_VERSION: u32 = 2;
const LINE_VERSION: u32 = 3;
const CHECKSUM_AT: usize = 12;
const DATABASE_AT: usize = 16;
const SEQUENCE_AT: usize = 32;
const AREA_AT: usize = 40;
const HALF_AT: usize = 48;
const HALVES_AT: usize = 56;
const SEGMENTS_AT: usize = 60;
/// Of a ring.
const SEGMENT_AT: usize = 64;
const FIRST_AT: usize = 64;
const LIMIT_AT: usize = 72;
/// Of a line.
const ENTRIES_AT: usize = 80;
const ENTRY_BYTES: usize = 16;
/// The most segments of a line.
pub(crate) const SEGMENTS_MAX: usize = (BLOCK - ENTRIES_AT) / ENTRY_BYTES;
const _: () = assert!(SEQUENCE_AT == DATABASE_AT + 16 && HALVES_AT == HALF_AT + 8);
const _: () = assert!(SEGMENT_AT == SEGMENTS_AT + 4);
const _: () = assert!(LIMIT_AT == FIRST_AT + 8 && ENTRIES_AT == LIMIT_AT + 8);
/// Copies of the header.
const COPIES: u64 = 2;
/// Bytes of all of them.
pub(crate) const HEADERS_BYTES: u64 = COPIES * BLOCK as u64;
/// Halves of the doublewrite area.
const HALVES: u32 = 2;
/// A half of the doublewrite area is the log's size divided by this, within bounds: a large log
/// spares a smaller part, which still takes many batches.
const HALF_ONE_IN: u64 = 32;
const HALF_BYTES_MAX: u64 = 1 << 20;
const LARGE_HALF_ONE_IN: u64 = 64;
const LARGE_HALF_BYTES_MAX: u64 = 4 << 20;

/// What a log is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogShape {
    /// A ring that is as large as its device.
    Fixed,
    /// It begins with one segment, whatever the device has, and grows.
    Growing,
}

/// Bytes of a log that grows, when it is made.
pub(crate) const GROWING_BYTES_MIN: u64 =
    HEADERS_BYTES + HALVES as u64 * HALF_BYTES_MIN + LINE_BYTES_MIN;

/// What a header says, beside the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) layout: Layout,
    /// The doublewrite area.
    pub(crate) area: DoublewritePlace,
    /// How long a line may get; of a ring zero.
    pub(crate) limit: u64,
}

impl Table {
    /// The ring that fills a device of `len` bytes.
    pub(super) fn ring(len: u64) -> Result<Table, Error> {
        if len < MIN_LOG_BYTES {
            let what = "the log must have at least 1 MiB";
            return Err(Error::InvalidOption { option: "log_size", what });
        }
        let area = DoublewritePlace { at: HEADERS_BYTES, half_bytes: half_bytes_max(len) };
        let at = area.at + u64::from(HALVES) * area.half_bytes;
        let bytes = (len - at) / BLOCK as u64 * BLOCK as u64;
        Ok(Table { layout: Layout::Ring(Segment { at, bytes }), area, limit: 0 })
    }

    /// The line of one segment, for a stream that begins at `first`.
    pub(super) fn line(first: Lsn) -> Table {
        let area = DoublewritePlace { at: HEADERS_BYTES, half_bytes: HALF_BYTES_MIN };
        let at = area.at + u64::from(HALVES) * area.half_bytes;
        let segments = vec![Segment { at, bytes: LINE_BYTES_MIN }];
        let first = first.0 / BLOCK as u64 * BLOCK as u64;
        let line = Line::new(first, segments, GROWING_BYTES_MIN).expect("a sound line");
        Table { layout: Layout::Line(Arc::new(line)), area, limit: 0 }
    }

    /// The ranges of the device that it names.
    pub(crate) fn ranges(&self) -> Vec<Segment> {
        let segments = match &self.layout {
            Layout::Ring(ring) => std::slice::from_ref(ring),
            Layout::Line(line) => line.segments(),
        };
        [area_range(&self.area)].into_iter().chain(segments.iter().copied()).collect()
    }

    /// Whether it lies on a device of `len` bytes as G2 and G3 say.
    fn is_sound(&self, len: u64) -> bool {
        let mut ranges = self.ranges();
        let is_large = match &self.layout {
            Layout::Ring(ring) => ring.bytes >= MIN_CAPACITY,
            Layout::Line(_) => true,
        };
        is_large
            && self.area.half_bytes >= HALF_BYTES_MIN
            && self.area.half_bytes.is_multiple_of(BLOCK as u64)
            && ranges.iter().all(|range| range.at >= HEADERS_BYTES && range.is_sound(len))
            && are_apart(&mut ranges)
    }
}

/// How large a half of the doublewrite area of a log of `bytes` is, or may become.
pub(crate) fn half_bytes_max(len: u64) -> u64 {
    let half = (len / HALF_ONE_IN)
        .clamp(HALF_BYTES_MIN, HALF_BYTES_MAX)
        .max((len / LARGE_HALF_ONE_IN).min(LARGE_HALF_BYTES_MAX));
    1 << half.ilog2()
}

/// The range of the device that a doublewrite area takes.
pub(crate) fn area_range(area: &DoublewritePlace) -> Segment {
    // One that is too long for a device is not sound.
    let bytes = area.half_bytes.saturating_mul(u64::from(HALVES));
    Segment { at: area.at, bytes: bytes / BLOCK as u64 * BLOCK as u64 }
}

fn header_checksum(block: &[u8]) -> u32 {
    let head = crc32c::crc32c(&block[..CHECKSUM_AT]);
    crc32c::crc32c_append(crc32c::crc32c_append(head, &[0; 4]), &block[CHECKSUM_AT + 4..])
}

/// Writes the header of a new log for `database`, whose stream begins at `first`. The caller syncs.
///
/// # Errors
///
/// `InvalidOption`, `Device`.
pub(crate) fn create(
    device: &dyn Device,
    database: u128,
    first: Lsn,
    shape: LogShape,
) -> Result<Table, Error> {
    let table = match shape {
        LogShape::Fixed => Table::ring(device.len())?,
        LogShape::Growing => {
            let missing = GROWING_BYTES_MIN.saturating_sub(device.len());
            if missing > 0 {
                let grown = device.grow(GROWING_BYTES_MIN);
                grown.map_err(Error::device(Part::Log, Action::Grow))?;
            }
            let reserved = device.reserve(0, GROWING_BYTES_MIN);
            reserved.map_err(Error::device(Part::Log, Action::Reserve))?;
            Table::line(first)
        }
    };
    write_new(device, &table, database)?;
    Ok(table)
}

/// Writes both copies of the header of a new log. The caller syncs.
///
/// # Errors
///
/// `Device`.
pub(super) fn write_new(device: &dyn Device, table: &Table, database: u128) -> Result<(), Error> {
    for sequence in 1..=COPIES {
        let block = encode(table, database, sequence);
        let at = copy_at(sequence);
        write(device, at, &block).map_err(Error::device(Part::Log, Action::Write))?;
    }
    Ok(())
}

/// Where the copy with this number belongs.
pub(crate) fn copy_at(sequence: u64) -> u64 {
    sequence % COPIES * BLOCK as u64
}

/// The block of a copy.
pub(crate) fn encode(table: &Table, database: u128, sequence: u64) -> Aligned {
    let mut block = Aligned::zeroed(BLOCK);
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    let (version, segments, entries_at) = match &table.layout {
        Layout::Ring(ring) => (RING_VERSION, std::slice::from_ref(ring), SEGMENT_AT),
        Layout::Line(line) => {
            put(FIRST_AT, &line.first().to_le_bytes());
            put(LIMIT_AT, &table.limit.to_le_bytes());
            (LINE_VERSION, line.segments(), ENTRIES_AT)
        }
    };
    assert!(segments.len() <= SEGMENTS_MAX, "{} segments in a header", segments.len());
    put(0, &MAGIC);
    put(8, &version.to_le_bytes());
    put(DATABASE_AT, &database.to_le_bytes());
    put(SEQUENCE_AT, &sequence.to_le_bytes());
    put(AREA_AT, &table.area.at.to_le_bytes());
    put(HALF_AT, &table.area.half_bytes.to_le_bytes());
    put(HALVES_AT, &HALVES.to_le_bytes());
    put(SEGMENTS_AT, &(segments.len() as u32).to_le_bytes());
    for (index, segment) in segments.iter().enumerate() {
        let at = entries_at + index * ENTRY_BYTES;
        put(at, &segment.at.to_le_bytes());
        put(at + 8, &segment.bytes.to_le_bytes());
    }
    let checksum = header_checksum(&block);
    block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    block
}

/// Whether a new log may be made here: the device is blank, or holds a log already, which can only
/// be what a creation that was cut short has left, since its home is blank.
///
/// # Errors
///
/// `Device`.
pub(crate) fn is_free(device: &dyn Device) -> Result<bool, Error> {
    let mut copy = Aligned::zeroed(BLOCK);
    for at in (0..HEADERS_BYTES.min(device.len() / BLOCK as u64 * BLOCK as u64)).step_by(BLOCK) {
        read(device, at, &mut copy).map_err(Error::device(Part::Log, Action::Read))?;
        if !is_header_or_blank(&copy) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a block where a copy of the header belongs holds one, or nothing: either copy may have
/// come alone.
pub(crate) fn is_header_or_blank(block: &[u8]) -> bool {
    block[..8] == MAGIC || block.iter().all(|&byte| byte == 0)
}

/// What the copies of the header say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) table: Table,
    pub(crate) sequence: u64,
    /// The copy that the other one stands in for.
    pub(crate) bad: Option<BadCopy>,
    /// The copy that is bad, or whole and does not say the same.
    pub(crate) stale: Option<u64>,
}

impl Header {
    /// The map from the stream to the device.
    pub(crate) fn map(&self, database: u128) -> LogMap {
        LogMap::new(self.table.layout.clone(), database)
    }
}

/// The header of the log of `database`. Both copies are judged before one is taken.
///
/// # Errors
///
/// `NotADatabase` if the device holds no log, or another database's; `Truncated`, `NewerFormat`,
/// `Device`.
pub(crate) fn open(device: &dyn Device, database: u128) -> Result<Header, Error> {
    if device.len() < HEADERS_BYTES {
        return Err(not_one("it is too short to be a log"));
    }
    let mut copies = Vec::new();
    for copy in 0..COPIES {
        let (mut block, offset) = (Aligned::zeroed(BLOCK), copy * BLOCK as u64);
        let judged = match read_copy(device, (Part::Log, offset), &mut block)? {
            Ok(()) => decode(&block, database, device.len()),
            Err(error) => Err(error),
        };
        copies.push((offset, judged));
    }
    // What a newer version wrote as a whole is not for this one.
    let is_newer = |(_, judged): &(u64, _)| matches!(judged, Err(Error::NewerFormat { .. }));
    let newer = copies.iter().position(is_newer);
    if let Some((_, Err(error))) = newer.map(|at| copies.swap_remove(at)) {
        return Err(error);
    }
    let whole = copies.iter().filter_map(|(_, judged)| judged.as_ref().ok());
    if let Some((sequence, table)) = whole.max_by_key(|(sequence, _)| *sequence).cloned() {
        let differs = |(_, judged): &&(u64, Result<(u64, Table), Error>)| {
            judged.as_ref().map_or(true, |(_, other)| *other != table)
        };
        let stale = copies.iter().find(differs).map(|(offset, _)| *offset);
        let bad = |(offset, judged): (u64, Result<_, Error>)| {
            let flaw = match judged.err()? {
                Error::Missing { .. } => CopyFlaw::Blank,
                Error::Device { .. } => CopyFlaw::Unreadable,
                _ => CopyFlaw::Damaged,
            };
            Some(BadCopy { part: Part::Log, offset, flaw })
        };
        let bad = copies.into_iter().find_map(bad);
        return Ok(Header { table, sequence, bad, stale });
    }
    // A copy that could not be read might have been the log; then one that says something tells
    // more than a blank one.
    let rank = |error: &Error| match error {
        Error::Device { .. } => 0,
        Error::Missing { .. } => 2,
        _ => 1,
    };
    let refused = copies.into_iter().filter_map(|(_, judged)| judged.err());
    Err(refused.min_by_key(rank).expect("no copy was taken"))
}

fn not_one(what: &'static str) -> Error {
    Error::NotADatabase { part: Part::Log, path: None, what }
}

/// Why a log is refused if its header names bytes beyond the end of its device of `found` bytes.
fn unsound(table: &Table, found: u64) -> Error {
    if !table.is_sound(u64::MAX) {
        return not_one("it has another shape than this version makes");
    }
    let needed = table.ranges().into_iter().filter_map(Segment::end).max().unwrap_or(0);
    Error::Truncated { part: Part::Log, path: None, needed, found }
}

/// What a copy of the header says.
fn decode(block: &[u8], database: u128, device_len: u64) -> Result<(u64, Table), Error> {
    if block.iter().all(|&byte| byte == 0) {
        return Err(Error::Missing { part: Part::Log, path: None });
    }
    if block[..8] != MAGIC {
        return Err(not_one("it does not begin like a log"));
    }
    let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four"));
    let u64_at = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight"));
    if u32_at(CHECKSUM_AT) != header_checksum(block) {
        return Err(not_one("its header is corrupt"));
    }
    if u32_at(8) > LINE_VERSION {
        let (part, path, found) = (Part::Log, None, u32_at(8));
        return Err(Error::NewerFormat { part, path, found, supported: LINE_VERSION });
    }
    if u32_at(8) < RING_VERSION {
        return Err(not_one("it has an older format"));
    }
    if block[DATABASE_AT..DATABASE_AT + 16] != database.to_le_bytes() {
        return Err(not_one("it is the log of another database"));
    }
    let segment = |at: usize| Segment { at: u64_at(at), bytes: u64_at(at + 8) };
    let count = u32_at(SEGMENTS_AT) as usize;
    let layout = match u32_at(8) {
        RING_VERSION if count == 1 => Some(Layout::Ring(segment(SEGMENT_AT))),
        LINE_VERSION if count <= SEGMENTS_MAX => {
            let entries = (0..count).map(|index| segment(ENTRIES_AT + index * ENTRY_BYTES));
            // That it ends on the device is looked at below.
            let line = Line::new(u64_at(FIRST_AT), entries.collect(), u64::MAX);
            line.map(|line| Layout::Line(Arc::new(line)))
        }
        _ => None,
    };
    let layout = layout.filter(|_| u32_at(HALVES_AT) == HALVES);
    let Some(layout) = layout else {
        return Err(not_one("it has another shape than this version makes"));
    };
    let area = DoublewritePlace { at: u64_at(AREA_AT), half_bytes: u64_at(HALF_AT) };
    let limit = match &layout {
        Layout::Ring(_) => 0,
        Layout::Line(_) => u64_at(LIMIT_AT),
    };
    let table = Table { layout, area, limit };
    if !table.is_sound(device_len) {
        return Err(unsound(&table, device_len));
    }
    Ok((u64_at(SEQUENCE_AT), table))
}
