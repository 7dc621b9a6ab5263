//! Where the log's endless stream of bytes lies on a device of fixed size, and its first block.
//!
//! ```text
//! device   0        BLOCK                                   BLOCK + capacity
//!          +--------+------------------------------------------+
//!          | header |  byte `lsn` at BLOCK + lsn % capacity    |
//!          +--------+------------------------------------------+
//!
//! offset size field
//!      0    8 magic      "TERRALOG"
//!      8    4 version    1
//!     12    4 checksum   CRC-32C of the block with this field zero
//!     16   16 database   random id, the same in home, log and flash
//!     32    8 capacity   bytes of the ring
//!     40      reserved   zero
//! ```
//!
//! - G1: the header is written once, when the log is created.
//! - G2: `capacity` is a multiple of `BLOCK`, so a block never wraps.

use terrace_device::{Device, read, write};
use terrace_page::Lsn;

use super::buffer::Aligned;
use crate::{Action, Error, Part};

/// The unit of writing, in bytes.
pub(crate) const BLOCK: usize = 4096;
/// The first record's LSN: zero means "before all records".
pub(crate) const FIRST_LSN: Lsn = Lsn(BLOCK as u64);
/// The smallest log, in bytes, header included.
pub(crate) const MIN_LOG_BYTES: u64 = 1 << 20;

const MAGIC: [u8; 8] = *b"TERRALOG";
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = 12;
const DATABASE_AT: usize = 16;
const CAPACITY_AT: usize = 32;
const _: () = assert!(CAPACITY_AT == DATABASE_AT + 16);

/// The map from the stream to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    /// Bytes of the stream that the device holds at once.
    pub(crate) capacity: u64,
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
        let capacity = (len / BLOCK as u64 - 1) * BLOCK as u64;
        Ok(Ring { capacity, salt: salt(database) })
    }

    /// Where byte `position` of the stream lies on the device.
    pub(crate) fn offset(self, position: u64) -> u64 {
        BLOCK as u64 + position % self.capacity
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
    let mut block = Aligned::zeroed(BLOCK);
    block[..8].copy_from_slice(&MAGIC);
    block[8..12].copy_from_slice(&VERSION.to_le_bytes());
    block[DATABASE_AT..DATABASE_AT + 16].copy_from_slice(&database.to_le_bytes());
    block[CAPACITY_AT..CAPACITY_AT + 8].copy_from_slice(&ring.capacity.to_le_bytes());
    let checksum = header_checksum(&block);
    block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    write(device, 0, &block).map_err(Error::device(Part::Log, Action::Write))?;
    Ok(ring)
}

/// Whether a new log may be made here: the device is blank, or holds a log already, which can only
/// be what a creation that was cut short has left, since its home is blank.
///
/// # Errors
///
/// `Device`.
pub(crate) fn is_free(device: &dyn Device) -> Result<bool, Error> {
    if device.len() < BLOCK as u64 {
        return Ok(true);
    }
    let mut block = Aligned::zeroed(BLOCK);
    read(device, 0, &mut block).map_err(Error::device(Part::Log, Action::Read))?;
    Ok(block.iter().all(|&byte| byte == 0) || block[..8] == MAGIC)
}

/// The ring of the log of `database`.
///
/// # Errors
///
/// `NotADatabase` if the device holds no log, or another database's; `NewerFormat`, `Device`.
pub(crate) fn open(device: &dyn Device, database: u128) -> Result<Ring, Error> {
    let not_one = |what| Error::NotADatabase { part: Part::Log, path: None, what };
    if device.len() < MIN_LOG_BYTES {
        return Err(not_one("it is too short to be a log"));
    }
    let mut block = Aligned::zeroed(BLOCK);
    read(device, 0, &mut block).map_err(Error::device(Part::Log, Action::Read))?;
    if block.iter().all(|&byte| byte == 0) {
        return Err(Error::Missing { part: Part::Log, path: None });
    }
    if block[..8] != MAGIC {
        return Err(not_one("it does not begin like a log"));
    }
    let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four"));
    if u32_at(8) > VERSION {
        let (part, path, found) = (Part::Log, None, u32_at(8));
        return Err(Error::NewerFormat { part, path, found, supported: VERSION });
    }
    if u32_at(CHECKSUM_AT) != header_checksum(&block) {
        return Err(not_one("its header is corrupt"));
    }
    if block[DATABASE_AT..DATABASE_AT + 16] != database.to_le_bytes() {
        return Err(not_one("it is the log of another database"));
    }
    let capacity = &block[CAPACITY_AT..CAPACITY_AT + 8];
    let capacity = u64::from_le_bytes(capacity.try_into().expect("eight"));
    let ring = Ring { capacity, salt: salt(database) };
    let whole = ring.capacity.is_multiple_of(BLOCK as u64);
    if !whole || ring.capacity == 0 || ring.capacity > device.len() - BLOCK as u64 {
        return Err(not_one("it is shorter than it was"));
    }
    Ok(ring)
}
