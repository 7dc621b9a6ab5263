//! What `blktrace` writes, of one processor or piped: `blktrace -d DEVICE -o -`, little-endian.
//!
//! ```text
//! offset size field
//!      0    4 magic        0x65617400 and the version, 7
//!      4    4 sequence
//!      8    8 time         ns
//!     16    8 sector       512 bytes
//!     24    4 bytes
//!     28    4 action       lower half: what was done; upper half: kinds
//!     32    4 process
//!     36    4 device       major * 2^20 + minor
//!     40    4 processor
//!     44    2 error
//!     46    2 more         bytes that follow
//! ```
//!
//! As in the text of `blkparse`, a request is where it was queued; up to the first of these, where
//! it was issued. The files of several processors are each in order of time: `blkparse` merges
//! them. Source: Linux, `include/uapi/linux/blktrace_api.h`.

use crate::error::{BadField, Problem};
use crate::records::{ParseRecord, u16_at, u32_at, u64_at};
use crate::request::{Kind, Request, sectors_address};

const RECORD_BYTES: usize = 48;
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const TIME_AT: usize = 8;
const SECTOR_AT: usize = 16;
const BYTES_AT: usize = 24;
const ACTION_AT: usize = 28;
const DEVICE_AT: usize = 36;
const MORE_AT: usize = 46;
const _: () = assert!(MORE_AT + 2 == RECORD_BYTES);

/// Lower half of an action.
const QUEUED: u32 = 1;
const ISSUED: u32 = 7;
/// Bits of its upper half.
const READS: u32 = 1 << 16;
const WRITES: u32 = 1 << 17;
const NOTES: u32 = 1 << 26;
const DISCARDS: u32 = 1 << 29;

/// Records of such a file.
#[derive(Default)]
pub struct Blktrace {
    /// A request was queued.
    queued: bool,
}

impl Blktrace {
    /// Whether `head` begins such a file.
    pub fn looks_like(head: &[u8]) -> bool {
        head.len() >= RECORD_BYTES && u32_at(head, 0) == MAGIC | VERSION
    }
}

impl ParseRecord for Blktrace {
    fn record_bytes(&self) -> usize {
        RECORD_BYTES
    }

    fn trailing_bytes(&self, record: &[u8]) -> usize {
        if u32_at(record, 0) == MAGIC | VERSION { usize::from(u16_at(record, MORE_AT)) } else { 0 }
    }

    fn parse(&mut self, record: &[u8]) -> Result<Option<Request>, BadField> {
        if u32_at(record, 0) != MAGIC | VERSION {
            return Err(BadField { field: "magic", problem: Problem::UnknownWord });
        }
        let action = u32_at(record, ACTION_AT);
        let is_queued = match action & 0xFFFF {
            QUEUED => true,
            ISSUED if !self.queued => false,
            _ => return Ok(None),
        };
        let kind = match action {
            other if other & (DISCARDS | NOTES) != 0 => return Ok(None),
            write if write & WRITES != 0 => Kind::Write,
            read if read & READS != 0 => Kind::Read,
            _ => return Ok(None),
        };
        let length = u32_at(record, BYTES_AT);
        if length == 0 {
            return Ok(None);
        }
        let (time_ns, file) = (u64_at(record, TIME_AT), u32_at(record, DEVICE_AT));
        let address = sectors_address(u64_at(record, SECTOR_AT))?;
        let request = Request { time_ns, address, length, file, kind }.checked()?;
        self.queued |= is_queued;
        Ok(Some(request))
    }
}
