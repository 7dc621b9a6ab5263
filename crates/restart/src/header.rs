//! The header of the flash device: which database its tier belongs to.
//!
//! ```text
//! offset size field
//!      0    4 checksum    CRC-32C of bytes 4..HEADER_BYTES
//!      4    4 version     format of the flash device
//!      8    8 magic       "TERRFLSH"
//!     16   16 database    random id, the same in home, log and flash
//!     32    8 stamp       drawn at each open; home names the stamps that it accepts
//!     40    8 table       the stamp of the cold start at which the table was begun
//!     48    4 slots
//!     52    4 partitions
//!     56    1 restart     RestartKind, as `code_of` numbers them
//!     57    1 part        1: the database does not open without it
//!     58    6 reserved    zero
//! ```
//!
//! - H1: the header is one sector, so a power cut leaves the old one or the new one.
//! - H2: home names a stamp as the next one before the device gets it, and none at all once the
//!   database ran without the device: so a device from an older day, or one that was used with
//!   another copy of home, has a stamp that home does not name.

use terrace_policy::RestartKind;

/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 64;
/// Bytes written for it: a sector.
pub(super) const SECTOR_BYTES: usize = 512;

const VERSION: u32 = 2;
const MAGIC: [u8; 8] = *b"TERRFLSH";
const CHECKSUM_AT: usize = 0;
const VERSION_AT: usize = 4;
const MAGIC_AT: usize = 8;
const DATABASE_AT: usize = 16;
const STAMP_AT: usize = 32;
const TABLE_AT: usize = 40;
const SLOTS_AT: usize = 48;
const PARTITIONS_AT: usize = 52;
const RESTART_AT: usize = 56;
const PART_AT: usize = 57;

const _: () = assert!(CHECKSUM_AT + 4 == VERSION_AT);
const _: () = assert!(MAGIC_AT + MAGIC.len() == DATABASE_AT);
const _: () = assert!(RESTART_AT + 8 == HEADER_BYTES);

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub database: u128,
    pub stamp: u64,
    pub table: u64,
    pub slots: u32,
    pub partitions: u32,
    pub restart: RestartKind,
    /// Whether its database does not open without it.
    pub is_part: bool,
}

/// The database that the flash device that begins with `sector` is a part of, if it is more than a
/// cache to one.
#[must_use]
pub fn flash_part_of(sector: &[u8; SECTOR_BYTES]) -> Option<u128> {
    match Header::look(sector) {
        Looked::Header(header) => header.is_part.then_some(header.database),
        Looked::Blank | Looked::Version | Looked::Damaged => None,
    }
}

/// What stands where a header should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    Header(Header),
    /// Zeroes.
    Blank,
    /// Another format.
    Version,
    /// Anything else.
    Damaged,
}

impl Header {
    pub fn encode(&self) -> [u8; SECTOR_BYTES] {
        let mut bytes = [0; SECTOR_BYTES];
        bytes[VERSION_AT..MAGIC_AT].copy_from_slice(&VERSION.to_le_bytes());
        bytes[MAGIC_AT..DATABASE_AT].copy_from_slice(&MAGIC);
        bytes[DATABASE_AT..STAMP_AT].copy_from_slice(&self.database.to_le_bytes());
        bytes[STAMP_AT..TABLE_AT].copy_from_slice(&self.stamp.to_le_bytes());
        bytes[TABLE_AT..SLOTS_AT].copy_from_slice(&self.table.to_le_bytes());
        bytes[SLOTS_AT..PARTITIONS_AT].copy_from_slice(&self.slots.to_le_bytes());
        bytes[PARTITIONS_AT..RESTART_AT].copy_from_slice(&self.partitions.to_le_bytes());
        bytes[RESTART_AT] = code_of(self.restart);
        bytes[PART_AT] = u8::from(self.is_part);
        let checksum = crc32c::crc32c(&bytes[VERSION_AT..HEADER_BYTES]);
        bytes[CHECKSUM_AT..VERSION_AT].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Looks at any bytes.
    pub fn look(bytes: &[u8; SECTOR_BYTES]) -> Looked {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        if bytes.iter().all(|&byte| byte == 0) {
            return Looked::Blank;
        }
        if u32_at(CHECKSUM_AT) != crc32c::crc32c(&bytes[VERSION_AT..HEADER_BYTES])
            || bytes[MAGIC_AT..DATABASE_AT] != MAGIC
        {
            return Looked::Damaged;
        }
        let database = bytes[DATABASE_AT..STAMP_AT].try_into().expect("sixteen");
        match (u32_at(VERSION_AT), kind_of(bytes[RESTART_AT])) {
            (VERSION, Some(restart)) => Looked::Header(Header {
                database: u128::from_le_bytes(database),
                stamp: u64_at(STAMP_AT),
                table: u64_at(TABLE_AT),
                slots: u32_at(SLOTS_AT),
                partitions: u32_at(PARTITIONS_AT),
                restart,
                is_part: bytes[PART_AT] == 1,
            }),
            _ => Looked::Version,
        }
    }
}

/// For fuzzing: any bytes, and the same with the right checksum and magic.
pub(super) fn fuzz(bytes: &[u8]) {
    let mut sector = [0; SECTOR_BYTES];
    let len = bytes.len().min(SECTOR_BYTES);
    sector[..len].copy_from_slice(&bytes[..len]);
    let _as_it_is = Header::look(&sector);
    sector[MAGIC_AT..DATABASE_AT].copy_from_slice(&MAGIC);
    let checksum = crc32c::crc32c(&sector[VERSION_AT..HEADER_BYTES]);
    sector[CHECKSUM_AT..VERSION_AT].copy_from_slice(&checksum.to_le_bytes());
    if let Looked::Header(header) = Header::look(&sector) {
        assert_eq!(Header::look(&header.encode()), Looked::Header(header));
    }
}

/// The kinds by their code. The sixth was `map-through` over a journal.
const KINDS: [Option<RestartKind>; 11] = [
    Some(RestartKind::Forget),
    Some(RestartKind::MemoryMapped),
    Some(RestartKind::LogBased),
    Some(RestartKind::LazyVerification),
    Some(RestartKind::Warm),
    Some(RestartKind::MapLog),
    None,
    Some(RestartKind::MapThrough),
    Some(RestartKind::MapChunks),
    Some(RestartKind::MapSegments),
    Some(RestartKind::MapZone),
];

fn code_of(kind: RestartKind) -> u8 {
    KINDS.iter().position(|&other| other == Some(kind)).expect("all kinds are listed") as u8
}

fn kind_of(code: u8) -> Option<RestartKind> {
    *KINDS.get(usize::from(code))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_and_a_flipped_bit_does_not() {
        for restart in KINDS.into_iter().flatten() {
            let (database, is_part) = (7 << 90, restart == RestartKind::Warm);
            let header =
                Header { database, stamp: 3, table: 2, slots: 9, partitions: 4, restart, is_part };
            let bytes = header.encode();
            assert_eq!(Header::look(&bytes), Looked::Header(header));
            assert_eq!(flash_part_of(&bytes), is_part.then_some(database));
            for bit in 0..HEADER_BYTES * 8 {
                let mut flipped = bytes;
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Header::look(&flipped), Looked::Damaged, "bit {bit}");
            }
        }
        assert_eq!(Header::look(&[0; SECTOR_BYTES]), Looked::Blank);
    }
}
