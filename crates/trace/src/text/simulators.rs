//! The traces of two simulators of devices: five fields between blanks.
//!
//! ```text
//! mqsim     arrival in ns, device, first sector, sectors, 1 for a read or 0 for a write
//! disksim   arrival in ms with a fraction, device, first block, blocks, flags in hexadecimal
//! ```
//!
//! Sectors and blocks have 512 bytes. Of DiskSim's flags the lowest bit says that it is a read.
//! Sources: MQSim's `traces/README.md`; the DiskSim 4.0 manual, on its ASCII trace format.

use crate::error::{BadField, Problem};
use crate::fields::Blanks;
use crate::lines::ParseLine;
use crate::request::{Kind, Request, sectors_address, sectors_length};

const MILLISECOND_NS: u64 = 1_000_000;

/// Lines of MQSim.
#[derive(Default)]
pub struct Mqsim;

impl ParseLine for Mqsim {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        let mut fields = Blanks::new(line);
        let time_ns = fields.number("arrival")?;
        let file = fields.small("device")?;
        let address = sectors_address(fields.number("address")?)?;
        let length = sectors_length(fields.number("sectors")?)?;
        let kind = match fields.number("type")? {
            0 => Kind::Write,
            1 => Kind::Read,
            _ => return Err(BadField { field: "type", problem: Problem::UnknownWord }),
        };
        fields.end("type")?;
        Request { time_ns, address, length, file, kind }.checked().map(Some)
    }
}

/// Lines of DiskSim's ASCII format.
#[derive(Default)]
pub struct Disksim;

impl ParseLine for Disksim {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        let mut fields = Blanks::new(line);
        let time_ns = fields.time_ns("arrival", MILLISECOND_NS)?;
        let file = fields.small("device")?;
        let address = sectors_address(fields.number("block")?)?;
        let length = sectors_length(fields.number("blocks")?)?;
        let kind =
            if hexadecimal(fields.word("flags")?)? & 1 == 1 { Kind::Read } else { Kind::Write };
        fields.end("flags")?;
        Request { time_ns, address, length, file, kind }.checked().map(Some)
    }
}

fn hexadecimal(word: &[u8]) -> Result<u32, BadField> {
    let digits = word.strip_prefix(b"0x").unwrap_or(word);
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'));
    let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    number.ok_or(BadField { field: "flags", problem: Problem::NotANumber })
}
