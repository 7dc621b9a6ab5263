//! The traces of the ARC paper, `.lis`: `first-block blocks ignored number`, between blanks.
//!
//! Blocks have 512 bytes; every block is one page of those traces, whatever its size was. There is
//! no time: the number of the request stands for it, in nanoseconds. All requests are reads.
//! Source: Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003, and
//! the notes that the traces are published with.

use crate::error::BadField;
use crate::fields::Blanks;
use crate::lines::ParseLine;
use crate::pages::{PageBytes, Paging};
use crate::request::{Clock, Kind, Request, sectors_address, sectors_length};

/// Lines of a `.lis` file.
#[derive(Default)]
pub struct Arc;

impl ParseLine for Arc {
    const PAGING: Paging = Paging::Split(PageBytes::SECTOR);
    const CLOCK: Clock = Clock::Absent;

    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        let mut fields = Blanks::new(line);
        let address = sectors_address(fields.number("first block")?)?;
        let length = sectors_length(fields.number("blocks")?)?;
        fields.word("ignored")?;
        let time_ns = fields.number("number")?;
        fields.end("number")?;
        Request { time_ns, address, length, file: 0, kind: Kind::Read }.checked().map(Some)
    }
}
