//! libCacheSim's `oracleGeneral`: packed records of 24 bytes, little-endian.
//!
//! ```text
//! offset size field
//!      0    4 time         seconds
//!      4    8 object       any number
//!     12    4 size         bytes
//!     16    8 next         number of the next request of the object, or -1, or 2^63 - 1
//! ```
//!
//! Requests are to objects, and all are reads; objects of no size touch no page, as libCacheSim
//! leaves them out, too. The next request is not used: a caller that needs it computes it. Source:
//! libCacheSim, `traceReader/customizedReader/oracle/oracleGeneralBin.h`.

use crate::error::BadField;
use crate::records::{ParseRecord, u32_at, u64_at};
use crate::request::{Kind, Request};

const RECORD_BYTES: usize = 24;
const TIME_AT: usize = 0;
const OBJECT_AT: usize = 4;
const SIZE_AT: usize = 12;
const NEXT_AT: usize = 16;
const _: () = assert!(NEXT_AT + 8 == RECORD_BYTES);

const SECOND_NS: u64 = 1_000_000_000;
/// The least records that the format is recognized by, if the file has that many.
const HEAD_RECORDS: usize = 64;

/// Records of such a file.
#[derive(Default)]
pub struct OracleGeneral;

impl OracleGeneral {
    /// Whether `head` looks like the beginning of such a file: times do not go back, the next
    /// request of an object comes later, and some byte is zero. Sizes have such a byte below 16
    /// MiB; text has none.
    pub fn looks_like(head: &[u8]) -> bool {
        let mut time = 0;
        let mut records = head.chunks_exact(RECORD_BYTES).take(HEAD_RECORDS).enumerate().peekable();
        records.peek().is_some()
            && head.contains(&0)
            && records.all(|(at, record)| {
                let before = std::mem::replace(&mut time, u32_at(record, TIME_AT));
                let next = u64_at(record, NEXT_AT) as i64;
                before <= time && (next == -1 || next > at as i64)
            })
    }
}

impl ParseRecord for OracleGeneral {
    fn record_bytes(&self) -> usize {
        RECORD_BYTES
    }

    fn parse(&mut self, record: &[u8]) -> Result<Option<Request>, BadField> {
        Ok(Some(Request {
            time_ns: u64::from(u32_at(record, TIME_AT)) * SECOND_NS,
            address: u64_at(record, OBJECT_AT),
            length: u32_at(record, SIZE_AT),
            file: 0,
            kind: Kind::Read,
        }))
    }
}
