//! Published traces of block devices: fields between commas, without a header.
//!
//! ```text
//! msr       time in 100 ns since 1601, host, disk, Read or Write, address, bytes, response time
//! spc       unit, first block, bytes, R or W, time in s with a fraction, and perhaps more
//! alibaba   device, R or W, address, bytes, time in us
//! tencent   time in s, first sector, sectors, 0 for a read or 1 for a write, volume
//! ```
//!
//! Blocks and sectors have 512 bytes. Of `msr`, each pair of host and disk is a file, numbered in
//! the order of appearance.
//!
//! Sources: Narayanan, Donnelly, Rowstron, "Write Off-Loading", FAST 2008, and the notes with its
//! traces; SPC Trace File Format Specification 1.0.1 (Financial, WebSearch of UMass); the notes
//! with the Alibaba block traces (IISWC 2020); those with the Tencent block traces (ATC 2020).

use crate::error::{BadField, Problem};
use crate::fields::Commas;
use crate::files::FileNames;
use crate::lines::ParseLine;
use crate::request::{Kind, Request, bytes_length, sectors_address, sectors_length};

const SECOND_NS: u64 = 1_000_000_000;
const MICROSECOND_NS: u64 = 1_000;
const FILETIME_NS: u64 = 100;

/// Lines of the MSR Cambridge traces.
#[derive(Default)]
pub struct Msr {
    disks: FileNames,
}

impl ParseLine for Msr {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        let mut fields = Commas::new(line);
        let time_ns = scaled(fields.number("timestamp")?, FILETIME_NS, "timestamp")?;
        let host = fields.word("host")?;
        let disk = fields.word("disk")?;
        let kind = fields.kind("type")?;
        let address = fields.number("offset")?;
        let length = bytes_length(fields.number("size")?)?;
        fields.word("response time")?;
        fields.end("response time")?;
        let file = self.disks.number(&[host, disk])?;
        Request { time_ns, address, length, file, kind }.checked().map(Some)
    }
}

/// Lines of the Storage Performance Council's format.
#[derive(Default)]
pub struct Spc;

impl ParseLine for Spc {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        let mut fields = Commas::new(line);
        let file = fields.small("unit")?;
        let address = sectors_address(fields.number("address")?)?;
        let length = bytes_length(fields.number("size")?)?;
        let kind = fields.kind("opcode")?;
        let time_ns = fields.time_ns("timestamp", SECOND_NS)?;
        Request { time_ns, address, length, file, kind }.checked().map(Some)
    }
}

/// Lines of the Alibaba block traces.
#[derive(Default)]
pub struct Alibaba;

impl ParseLine for Alibaba {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        let mut fields = Commas::new(line);
        let file = fields.small("device")?;
        let kind = fields.kind("opcode")?;
        let address = fields.number("offset")?;
        let length = bytes_length(fields.number("length")?)?;
        let time_ns = scaled(fields.number("timestamp")?, MICROSECOND_NS, "timestamp")?;
        fields.end("timestamp")?;
        Request { time_ns, address, length, file, kind }.checked().map(Some)
    }
}

/// Lines of the Tencent block traces.
#[derive(Default)]
pub struct Tencent;

impl ParseLine for Tencent {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        let mut fields = Commas::new(line);
        let time_ns = scaled(fields.number("timestamp")?, SECOND_NS, "timestamp")?;
        let address = sectors_address(fields.number("offset")?)?;
        let length = sectors_length(fields.number("size")?)?;
        let kind = match fields.number("type")? {
            0 => Kind::Read,
            1 => Kind::Write,
            _ => return Err(BadField { field: "type", problem: Problem::UnknownWord }),
        };
        let file = fields.small("volume")?;
        fields.end("volume")?;
        Request { time_ns, address, length, file, kind }.checked().map(Some)
    }
}

fn scaled(number: u64, unit_ns: u64, field: &'static str) -> Result<u64, BadField> {
    number.checked_mul(unit_ns).ok_or(BadField { field, problem: Problem::TooLarge })
}
