//! The text that `blkparse` prints by default of what `blktrace` recorded.
//!
//! ```text
//!   8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
//! device  cpu sequence       seconds    pid action kind sector + sectors [process]
//! ```
//!
//! A request is where it was queued, action `Q`. Up to the first of these, requests are where they
//! were issued to the driver, `D`: some traces have nothing else. Other actions, discards and
//! flushes without data are no requests, nor is the summary at the end. Sectors have 512 bytes; the
//! number of a device is its major number times 2^20 plus its minor.
//! Source: the manual page blkparse(1).

use crate::error::{BadField, Problem};
use crate::fields::{Blanks, decimal, whole};
use crate::lines::ParseLine;
use crate::request::{Kind, Request, sectors_address, sectors_length};

const SECOND_NS: u64 = 1_000_000_000;
const MINOR_BITS: u32 = 20;

/// Lines of such a file.
#[derive(Default)]
pub struct Blkparse {
    /// A request was queued.
    queued: bool,
    /// The summary has begun.
    summary: bool,
}

impl ParseLine for Blkparse {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        self.summary |= line.starts_with(b"CPU") || line.starts_with(b"Total (");
        if self.summary {
            return Ok(None);
        }
        let mut fields = Blanks::new(line);
        let file = device(fields.word("device")?)?;
        fields.number("cpu")?;
        fields.number("sequence")?;
        let time = fields.word("time")?;
        let time_ns =
            decimal(time, SECOND_NS).map_err(|problem| BadField { field: "time", problem })?;
        fields.number("pid")?;
        let is_queued = match fields.word("action")? {
            b"Q" => true,
            b"D" if !self.queued => false,
            _ => return Ok(None),
        };
        let Some(kind) = kind(fields.word("kind")?) else { return Ok(None) };
        let sector = match fields.word("sector")? {
            // A flush without data: the process follows.
            process if process.starts_with(b"[") => return Ok(None),
            sector => whole(sector).map_err(|problem| BadField { field: "sector", problem })?,
        };
        if fields.word("+")? != b"+" {
            return Err(BadField { field: "+", problem: Problem::UnknownWord });
        }
        let length = sectors_length(fields.number("sectors")?)?;
        let address = sectors_address(sector)?;
        let request = Request { time_ns, address, length, file, kind }.checked()?;
        self.queued |= is_queued;
        Ok(Some(request))
    }
}

/// What the letters of a kind say: none of a discard, or of a flush without data.
pub(super) fn kind(letters: &[u8]) -> Option<Kind> {
    match letters {
        discard if discard.contains(&b'D') => None,
        read if read.contains(&b'R') => Some(Kind::Read),
        write if write.contains(&b'W') => Some(Kind::Write),
        _ => None,
    }
}

/// The number of a device that is called `major,minor`.
pub(super) fn device(word: &[u8]) -> Result<u32, BadField> {
    let bad = |problem| BadField { field: "device", problem };
    let comma = word.iter().position(|byte| *byte == b',').ok_or(bad(Problem::NotANumber))?;
    let major = whole(&word[..comma]).map_err(bad)?;
    let minor = whole(&word[comma + 1..]).map_err(bad)?;
    if major >= 1 << (32 - MINOR_BITS) || minor >= 1 << MINOR_BITS {
        return Err(bad(Problem::TooLarge));
    }
    Ok((major as u32) << MINOR_BITS | minor as u32)
}
