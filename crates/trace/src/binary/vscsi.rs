//! The virtual-SCSI traces of CloudPhysics: records in two versions, little-endian.
//!
//! ```text
//! version 1, 32 bytes                 version 2, 40 bytes
//! offset size field                   offset size field
//!      0    4 serial number                0    2 command
//!      4    4 length       bytes           2    2 version
//!      8    4 scatter-gather entries       4    4 serial number
//!     12    2 command                      8    4 length       bytes
//!     14    2 version                     12    4 scatter-gather entries
//!     16    8 block        512 bytes      16    8 block        512 bytes
//!     24    8 time         us             24    8 time         us
//!                                         32    8 response time
//! ```
//!
//! The upper byte of the version field is the version. Commands are SCSI operation codes: reads and
//! writes of 6, 10, 12 and 16 bytes, and writes with verification; others are no requests.
//! Source: libCacheSim, `traceReader/customizedReader/vscsi.h`; SBC-3 for the codes.

use crate::error::{BadField, Problem};
use crate::records::{ParseRecord, u16_at, u32_at, u64_at};
use crate::request::{Kind, Request, sectors_address};

const MICROSECOND_NS: u64 = 1_000;
/// Records that the version is recognized by, if the file has that many.
const HEAD_RECORDS: usize = 2;

/// Where the fields of a version are.
#[derive(Clone, Copy)]
struct Layout {
    version: u16,
    bytes: usize,
    length_at: usize,
    command_at: usize,
    version_at: usize,
}

/// Version 2 first, as libCacheSim looks for it first.
const LAYOUTS: [Layout; 2] = [
    Layout { version: 2, bytes: 40, length_at: 8, command_at: 0, version_at: 2 },
    Layout { version: 1, bytes: 32, length_at: 4, command_at: 12, version_at: 14 },
];
/// In both versions.
const BLOCK_AT: usize = 16;
const TIME_AT: usize = 24;

/// Records of such a file.
pub struct Vscsi {
    layout: Layout,
}

impl Vscsi {
    /// The version that the first records in `head` are of.
    fn layout_of(head: &[u8]) -> Option<Layout> {
        LAYOUTS.into_iter().find(|layout| {
            let mut records = head.chunks_exact(layout.bytes).take(HEAD_RECORDS).peekable();
            records.peek().is_some()
                && records.all(|record| {
                    let known = command(u16_at(record, layout.command_at)).is_some();
                    known && u16_at(record, layout.version_at) >> 8 == layout.version
                })
        })
    }

    /// Whether `head` begins such a file.
    pub fn looks_like(head: &[u8]) -> bool {
        Vscsi::layout_of(head).is_some()
    }

    /// A parser of the version that `head` begins with, or of version 1 if that is not clear.
    pub fn of(head: &[u8]) -> Vscsi {
        Vscsi { layout: Vscsi::layout_of(head).unwrap_or(LAYOUTS[1]) }
    }
}

impl ParseRecord for Vscsi {
    fn record_bytes(&self) -> usize {
        self.layout.bytes
    }

    fn parse(&mut self, record: &[u8]) -> Result<Option<Request>, BadField> {
        if u16_at(record, self.layout.version_at) >> 8 != self.layout.version {
            return Err(BadField { field: "version", problem: Problem::UnknownWord });
        }
        let Some(kind) = command(u16_at(record, self.layout.command_at)) else { return Ok(None) };
        let too_large = BadField { field: "time", problem: Problem::TooLarge };
        let time_us = u64_at(record, TIME_AT);
        let time_ns = time_us.checked_mul(MICROSECOND_NS).ok_or(too_large)?;
        let address = sectors_address(u64_at(record, BLOCK_AT))?;
        let length = u32_at(record, self.layout.length_at);
        Request { time_ns, address, length, file: 0, kind }.checked().map(Some)
    }
}

/// What a SCSI command does, if it reads or writes.
fn command(code: u16) -> Option<Kind> {
    match code {
        0x08 | 0x28 | 0xA8 | 0x88 => Some(Kind::Read),
        0x0A | 0x2A | 0xAA | 0x8A | 0x2E | 0xAE | 0x8E => Some(Kind::Write),
        _ => None,
    }
}
