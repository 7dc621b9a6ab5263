//! Binary formats of one record of fixed size per request.
//!
//! - R1: a record that the file breaks off in is one bad record.

use crate::error::{BadField, Place, Problem, TraceError};
use crate::reader::{BATCH_REQUESTS, Decode, More};
use crate::request::Request;
use crate::tally::Tally;
use crate::window::Window;

/// A format of records.
pub trait ParseRecord {
    /// Bytes of a record.
    fn record_bytes(&self) -> usize;

    /// Bytes that follow `record` and belong to it, at most 64 KiB.
    fn trailing_bytes(&self, record: &[u8]) -> usize {
        let _ = record;
        0
    }

    /// The request in `record`, which has the given number of bytes, or none if it is about
    /// something else.
    ///
    /// # Errors
    ///
    /// The field that breaks the format.
    fn parse(&mut self, record: &[u8]) -> Result<Option<Request>, BadField>;
}

/// Decodes records with a parser.
pub struct RecordDecoder<P> {
    window: Window,
    parser: P,
    /// Records begun.
    record: u64,
}

impl<P: ParseRecord> RecordDecoder<P> {
    /// A decoder of the records in `window`.
    pub fn new(window: Window, parser: P) -> RecordDecoder<P> {
        RecordDecoder { window, parser, record: 0 }
    }

    fn bad(&self, what: BadField) -> TraceError {
        let place = Place::Record { number: self.record, offset: self.window.offset() };
        self.window.bad(place, what)
    }
}

impl<P: ParseRecord> Decode for RecordDecoder<P> {
    fn decode(&mut self, batch: &mut Vec<Request>, tally: &mut Tally) -> Result<More, TraceError> {
        let bytes = self.parser.record_bytes();
        while batch.len() < BATCH_REQUESTS {
            let available = match self.window.available().len() {
                enough if enough >= bytes => enough,
                // A stream that breaks off does so behind what is left of it.
                _ => self.window.fill(bytes)?,
            };
            if available == 0 {
                return Ok(More::No);
            }
            self.record += 1;
            if available < bytes {
                tally.bad(self.bad(BadField { field: "record", problem: Problem::Missing }))?;
                self.window.consume(available);
                return Ok(More::No);
            }
            let trailing = self.parser.trailing_bytes(&self.window.available()[..bytes]);
            if trailing > 0 && self.window.fill(bytes + trailing)? < bytes + trailing {
                tally.bad(self.bad(BadField { field: "record", problem: Problem::Missing }))?;
                self.window.consume(self.window.available().len());
                return Ok(More::No);
            }
            match self.parser.parse(&self.window.available()[..bytes]) {
                Ok(Some(request)) => batch.push(request),
                Ok(None) => tally.other_events += 1,
                Err(what) => tally.bad(self.bad(what))?,
            }
            self.window.consume(bytes + trailing);
        }
        Ok(More::Yes)
    }
}

/// The number of two bytes at `at`.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

/// The number of four bytes at `at`.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The number of eight bytes at `at`.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
