//! The traces captured for this project: CSV with the header `ts_us,op,lba_bytes,size,file`.
//!
//! Time is in microseconds, `op` is `R` or `W`, address and size are in bytes. The header
//! may be missing, as in a part of a file.

use crate::error::{BadField, Problem};
use crate::fields::Commas;
use crate::lines::ParseLine;
use crate::request::Request;

const NANOSECONDS: u64 = 1_000;

/// Lines of such a file.
#[derive(Default)]
pub struct Pg15;

impl ParseLine for Pg15 {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        let mut fields = Commas::new(line);
        if line == b"ts_us,op,lba_bytes,size,file" {
            return Ok(None);
        }
        let too_large = BadField { field: "ts_us", problem: Problem::TooLarge };
        let time_us = fields.number("ts_us")?;
        let time_ns = time_us.checked_mul(NANOSECONDS).ok_or(too_large)?;
        let kind = fields.kind("op")?;
        let address = fields.number("lba_bytes")?;
        let length = fields.small("size")?;
        let file = fields.small("file")?;
        fields.end("file")?;
        Request { time_ns, address, length, file, kind }.checked().map(Some)
    }
}
