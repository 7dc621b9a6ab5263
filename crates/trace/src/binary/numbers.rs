//! Arrays of ids: numbers of 32 or 64 bits, little-endian, without a header.
//!
//! Nothing tells them from other bytes: they have to be named.

use crate::error::BadField;
use crate::records::{ParseRecord, u32_at, u64_at};
use crate::request::{Kind, Request};

/// Numbers of so many bytes.
pub struct Numbers<const BYTES: usize>;

impl<const BYTES: usize> ParseRecord for Numbers<BYTES> {
    fn record_bytes(&self) -> usize {
        BYTES
    }

    fn parse(&mut self, record: &[u8]) -> Result<Option<Request>, BadField> {
        let address = if BYTES == 4 { u64::from(u32_at(record, 0)) } else { u64_at(record, 0) };
        Ok(Some(Request { time_ns: 0, address, length: 1, file: 0, kind: Kind::Read }))
    }
}
