//! Where the log's endless stream of bytes lies on a device of fixed size, and its header.
//!
//! ```text
//! device   0        BLOCK     area         segment                    segment + capacity
//!          +--------+---------+------------+-----------------------------+
//!          | copy 0 | copy 1  | doublewrite|  byte `lsn` at lsn % capacity|
//!          +--------+---------+------------+-----------------------------+
//!
//! offset size field       of each copy, one block
//!      0    8 magic      "TERRALOG"
//!      8    4 version    2
//!     12    4 checksum   CRC-32C of the block with this field zero
//!     16   16 database   random id, the same in home, log and flash
//!     32    8 sequence   of two whole copies the one with the higher sequence counts
//!     40    8 area       first byte of the doublewrite area
//!     48    8 half       bytes of each of its halves
//!     56    4 halves     2
//!     60    4 segments   how many entries follow; 1
//!     64      entries    first byte 8, bytes 8; repeated: the stream's pieces, in their order
//! ```
//!
//! - G1: a change of the header goes over the older copy and is synced before it counts, so one of
//!   the two is whole at any time. A copy that went bad is written anew once an opening for writing
//!   is through.
//! - G2: segments are multiples of `BLOCK`, so a block never wraps.
//! - G3: area and segments lie on the device behind the copies, and apart from each other.

use terrace_device::{Device, read, write};
use terrace_page::Lsn;
use terrace_pool::{DoublewritePlace, HALF_BYTES_MIN};

use super::buffer::Aligned;
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
const VERSION: u32 = 2;
const CHECKSUM_AT: usize = 12;
const DATABASE_AT: usize = 16;
const SEQUENCE_AT: usize = 32;
const AREA_AT: usize = 40;
const HALF_AT: usize = 48;
const HALVES_AT: usize = 56;
const SEGMENTS_AT: usize = 60;
const SEGMENT_AT: usize = 64;
const _: () = assert!(SEQUENCE_AT == DATABASE_AT + 16 && HALVES_AT == HALF_AT + 8);
const _: () = assert!(SEGMENT_AT == SEGMENTS_AT + 4);
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

/// The map from the stream to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    /// Bytes of the stream that the device holds at once.
    pub(crate) capacity: u64,
    /// Where the first of them lies.
    pub(crate) at: u64,
    /// The doublewrite area.
    pub(crate) area: DoublewritePlace,
    /// Part of each record's checksum, different for each database.
    pub(crate) salt: u64,
}

impl Ring {
    /// The ring that a device of `len` bytes holds.
    fn on(len: u64, database: u128) -> Result<Ring, Error> {
        if len < MIN_LOG_BYTES {
            let what = "the log must have at least 1 MiB";
            return Err(Error::InvalidOption { option: "log_size", what });
        }
        let half = (len / HALF_ONE_IN)
            .clamp(HALF_BYTES_MIN, HALF_BYTES_MAX)
            .max((len / LARGE_HALF_ONE_IN).min(LARGE_HALF_BYTES_MAX));
        let half_bytes = 1 << half.ilog2();
        let area = DoublewritePlace { at: COPIES * BLOCK as u64, half_bytes };
        let at = area.at + u64::from(HALVES) * half_bytes;
        let capacity = (len - at) / BLOCK as u64 * BLOCK as u64;
        Ok(Ring { capacity, at, area, salt: salt(database) })
    }

    /// Whether it lies on a device of `len` bytes as G2 and G3 say.
    fn is_sound(&self, len: u64) -> bool {
        let block = BLOCK as u64;
        let area_end = self
            .area
            .half_bytes
            .checked_mul(u64::from(HALVES))
            .and_then(|bytes| self.area.at.checked_add(bytes));
        let end = self.at.checked_add(self.capacity);
        let whole = [self.capacity, self.at, self.area.at, self.area.half_bytes];
        whole.iter().all(|number| number.is_multiple_of(block))
            && self.capacity >= MIN_CAPACITY
            && self.area.half_bytes >= HALF_BYTES_MIN
            && self.area.at >= COPIES * block
            && area_end.is_some_and(|area_end| area_end <= self.at)
            && end.is_some_and(|end| end <= len)
    }

    /// Where byte `position` of the stream lies on the device.
    pub(crate) fn offset(self, position: u64) -> u64 {
        self.at + position % self.capacity
    }

    /// Bytes from `position` to where the ring turns over.
    pub(crate) fn until_wrap(self, position: u64) -> u64 {
        self.capacity - position % self.capacity
    }
}

fn salt(database: u128) -> u64 {
    (database ^ (database >> 64)) as u64
}

fn header_checksum(block: &[u8]) -> u32 {
    let head = crc32c::crc32c(&block[..CHECKSUM_AT]);
    crc32c::crc32c_append(crc32c::crc32c_append(head, &[0; 4]), &block[CHECKSUM_AT + 4..])
}

/// Writes the header of a new log for `database`. The caller syncs.
///
/// # Errors
///
/// `Device`.
pub(crate) fn create(device: &dyn Device, database: u128) -> Result<Ring, Error> {
    let ring = Ring::on(device.len(), database)?;
    for sequence in 1..=COPIES {
        let block = encode(&ring, database, sequence);
        let at = sequence % COPIES * BLOCK as u64;
        write(device, at, &block).map_err(Error::device(Part::Log, Action::Write))?;
    }
    Ok(ring)
}

fn encode(ring: &Ring, database: u128, sequence: u64) -> Aligned {
    let mut block = Aligned::zeroed(BLOCK);
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &MAGIC);
    put(8, &VERSION.to_le_bytes());
    put(DATABASE_AT, &database.to_le_bytes());
    put(SEQUENCE_AT, &sequence.to_le_bytes());
    put(AREA_AT, &ring.area.at.to_le_bytes());
    put(HALF_AT, &ring.area.half_bytes.to_le_bytes());
    put(HALVES_AT, &HALVES.to_le_bytes());
    put(SEGMENTS_AT, &1_u32.to_le_bytes());
    put(SEGMENT_AT, &ring.at.to_le_bytes());
    put(SEGMENT_AT + 8, &ring.capacity.to_le_bytes());
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) ring: Ring,
    sequence: u64,
    /// The copy that the other one stands in for.
    pub(crate) bad: Option<BadCopy>,
}

impl Header {
    /// Writes the copy that is bad anew, if one is, and syncs. The other one stays as it is (G1).
    ///
    /// # Errors
    ///
    /// `Device`; then it may still be bad.
    pub(crate) fn repair(&self, device: &dyn Device, database: u128) -> Result<(), Error> {
        let Some(bad) = self.bad else { return Ok(()) };
        let block = encode(&self.ring, database, self.sequence.saturating_add(1));
        write(device, bad.offset, &block).map_err(Error::device(Part::Log, Action::Write))?;
        device.sync().map_err(Error::device(Part::Log, Action::Sync))
    }
}

/// The header of the log of `database`. Both copies are judged before one is taken.
///
/// # Errors
///
/// `NotADatabase` if the device holds no log, or another database's; `NewerFormat`, `Device`.
pub(crate) fn open(device: &dyn Device, database: u128) -> Result<Header, Error> {
    if device.len() < MIN_LOG_BYTES {
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
    let whole = copies.iter().filter_map(|(_, judged)| judged.as_ref().ok().copied());
    if let Some((sequence, ring)) = whole.max_by_key(|(sequence, _)| *sequence) {
        let bad = |(offset, judged): (u64, Result<_, Error>)| {
            let flaw = match judged.err()? {
                Error::Missing { .. } => CopyFlaw::Blank,
                Error::Device { .. } => CopyFlaw::Unreadable,
                _ => CopyFlaw::Damaged,
            };
            Some(BadCopy { part: Part::Log, offset, flaw })
        };
        return Ok(Header { ring, sequence, bad: copies.into_iter().find_map(bad) });
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

/// What a copy of the header says.
fn decode(block: &[u8], database: u128, device_len: u64) -> Result<(u64, Ring), Error> {
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
    if u32_at(8) > VERSION {
        let (part, path, found) = (Part::Log, None, u32_at(8));
        return Err(Error::NewerFormat { part, path, found, supported: VERSION });
    }
    if u32_at(8) < VERSION {
        return Err(not_one("it has an older format"));
    }
    if block[DATABASE_AT..DATABASE_AT + 16] != database.to_le_bytes() {
        return Err(not_one("it is the log of another database"));
    }
    let area = DoublewritePlace { at: u64_at(AREA_AT), half_bytes: u64_at(HALF_AT) };
    let (at, capacity) = (u64_at(SEGMENT_AT), u64_at(SEGMENT_AT + 8));
    let ring = Ring { capacity, at, area, salt: salt(database) };
    if u32_at(HALVES_AT) != HALVES || u32_at(SEGMENTS_AT) != 1 {
        return Err(not_one("it has another shape than this version makes"));
    }
    if !ring.is_sound(device_len) {
        return Err(not_one("it is shorter than it was"));
    }
    Ok((u64_at(SEQUENCE_AT), ring))
}
