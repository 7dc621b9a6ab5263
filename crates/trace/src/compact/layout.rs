//! The three headers, of 32 bytes each; numbers are little-endian.
//!
//! ```text
//! file header                    block header                    trailer
//! offset size                    offset size                     offset size
//!      0    8 magic                   0    4 magic                    0    8 magic
//!      8    2 version                 4    4 record bytes             8    8 requests
//!     10    1 addressing              8    4 requests                16    8 blocks
//!     11    1 clock                  12    4 crc of the records      24    4 zero
//!     12    4 page bytes             16    8 first request           28    4 crc
//!     16   12 zero                   24    4 zero
//!     28    4 crc                    28    4 crc
//! ```
//!
//! Addressing is 0 for bytes and 1 for objects. Clock is 0 if times are in nanoseconds, and 1 if
//! they only order the requests; versions that know no such byte take every file to have a clock.
//! Page bytes are how requests are best split, or 0 if each is one page. The first request is the
//! number of the block's first, from 0. The CRC-32C of a header covers its first 28 bytes.

use crate::error::{BadField, Problem};
use crate::pages::{PageBytes, Paging};
use crate::request::{Addressing, Clock};

pub const HEADER_BYTES: usize = 32;
/// The first byte is in no text, and a line feed that a program "corrected" is noticed.
pub const FILE_MAGIC: [u8; 8] = *b"\x89TRACE\r\n";
pub const BLOCK_MAGIC: [u8; 4] = *b"TRb\x01";
pub const TRAILER_MAGIC: [u8; 8] = *b"TRend\r\n\x00";
const VERSION: u16 = 1;

const VERSION_AT: usize = 8;
const ADDRESSING_AT: usize = 10;
const CLOCK_AT: usize = 11;
const PAGE_BYTES_AT: usize = 12;
const CRC_AT: usize = 28;
const _: () = assert!(CRC_AT + 4 == HEADER_BYTES && PAGE_BYTES_AT + 4 + 12 == CRC_AT);

const RECORD_BYTES_AT: usize = 4;
const BLOCK_REQUESTS_AT: usize = 8;
const RECORD_CRC_AT: usize = 12;
const FIRST_AT: usize = 16;
const _: () = assert!(FIRST_AT + 8 + 4 == CRC_AT);

const REQUESTS_AT: usize = 8;
const BLOCKS_AT: usize = 16;
const _: () = assert!(BLOCKS_AT + 8 + 4 == CRC_AT);

/// Requests of the largest block, and of all but the last that are written.
pub const BLOCK_REQUESTS_MAX: u32 = 8192;
/// Bytes of the largest block's records.
pub const RECORD_BYTES_MAX: u32 = 1 << 18;

/// What a file says of all its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactHeader {
    /// What their addresses are.
    pub addressing: Addressing,
    /// How they are best split into pages.
    pub paging: Paging,
    /// What their times are.
    pub clock: Clock,
}

/// What precedes the records of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    pub record_bytes: u32,
    pub requests: u32,
    pub record_crc: u32,
    pub first: u64,
}

/// What stands at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    pub requests: u64,
    pub blocks: u64,
}

pub type HeaderBytes = [u8; HEADER_BYTES];

fn put(bytes: &mut HeaderBytes, at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn sealed(mut bytes: HeaderBytes) -> HeaderBytes {
    let crc = crc32c::crc32c(&bytes[..CRC_AT]);
    put(&mut bytes, CRC_AT, &crc.to_le_bytes());
    bytes
}

fn u32_at(bytes: &HeaderBytes, at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &HeaderBytes, at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn is_whole(bytes: &HeaderBytes) -> bool {
    crc32c::crc32c(&bytes[..CRC_AT]) == u32_at(bytes, CRC_AT)
}

impl CompactHeader {
    pub(super) fn encode(self) -> HeaderBytes {
        let mut bytes = [0; HEADER_BYTES];
        put(&mut bytes, 0, &FILE_MAGIC);
        put(&mut bytes, VERSION_AT, &VERSION.to_le_bytes());
        bytes[ADDRESSING_AT] = u8::from(self.addressing == Addressing::Objects);
        bytes[CLOCK_AT] = u8::from(self.clock == Clock::Absent);
        let page_bytes = match self.paging {
            Paging::Split(bytes) => bytes.get() as u32,
            Paging::Whole => 0,
        };
        put(&mut bytes, PAGE_BYTES_AT, &page_bytes.to_le_bytes());
        sealed(bytes)
    }

    /// # Errors
    ///
    /// The field that is wrong.
    pub(super) fn decode(bytes: &HeaderBytes) -> Result<CompactHeader, BadField> {
        let bad = |field, problem| Err(BadField { field, problem });
        if bytes[..8] != FILE_MAGIC {
            return bad("magic", Problem::UnknownWord);
        }
        if !is_whole(bytes) {
            return bad("file header", Problem::Checksum);
        }
        if bytes[VERSION_AT..VERSION_AT + 2] != VERSION.to_le_bytes() {
            return bad("version", Problem::Version);
        }
        let addressing = match bytes[ADDRESSING_AT] {
            0 => Addressing::Bytes,
            1 => Addressing::Objects,
            _ => return bad("addressing", Problem::UnknownWord),
        };
        let clock = match bytes[CLOCK_AT] {
            0 => Clock::Kept,
            1 => Clock::Absent,
            _ => return bad("clock", Problem::UnknownWord),
        };
        let paging = match u64::from(u32_at(bytes, PAGE_BYTES_AT)) {
            0 => Paging::Whole,
            size => match PageBytes::new(size) {
                Some(size) => Paging::Split(size),
                None => return bad("page bytes", Problem::TooLarge),
            },
        };
        Ok(CompactHeader { addressing, paging, clock })
    }
}

impl BlockHeader {
    pub fn encode(self) -> HeaderBytes {
        let mut bytes = [0; HEADER_BYTES];
        put(&mut bytes, 0, &BLOCK_MAGIC);
        put(&mut bytes, RECORD_BYTES_AT, &self.record_bytes.to_le_bytes());
        put(&mut bytes, BLOCK_REQUESTS_AT, &self.requests.to_le_bytes());
        put(&mut bytes, RECORD_CRC_AT, &self.record_crc.to_le_bytes());
        put(&mut bytes, FIRST_AT, &self.first.to_le_bytes());
        sealed(bytes)
    }

    /// The header in `bytes`, if they are one.
    pub fn decode(bytes: &HeaderBytes) -> Option<BlockHeader> {
        let header = BlockHeader {
            record_bytes: u32_at(bytes, RECORD_BYTES_AT),
            requests: u32_at(bytes, BLOCK_REQUESTS_AT),
            record_crc: u32_at(bytes, RECORD_CRC_AT),
            first: u64_at(bytes, FIRST_AT),
        };
        let fits = header.requests <= BLOCK_REQUESTS_MAX && header.record_bytes <= RECORD_BYTES_MAX;
        (bytes[..4] == BLOCK_MAGIC && is_whole(bytes) && fits).then_some(header)
    }
}

impl Trailer {
    pub fn encode(self) -> HeaderBytes {
        let mut bytes = [0; HEADER_BYTES];
        put(&mut bytes, 0, &TRAILER_MAGIC);
        put(&mut bytes, REQUESTS_AT, &self.requests.to_le_bytes());
        put(&mut bytes, BLOCKS_AT, &self.blocks.to_le_bytes());
        sealed(bytes)
    }

    /// The trailer in `bytes`, if they are one.
    pub fn decode(bytes: &HeaderBytes) -> Option<Trailer> {
        let trailer =
            Trailer { requests: u64_at(bytes, REQUESTS_AT), blocks: u64_at(bytes, BLOCKS_AT) };
        (bytes[..8] == TRAILER_MAGIC && is_whole(bytes)).then_some(trailer)
    }
}
