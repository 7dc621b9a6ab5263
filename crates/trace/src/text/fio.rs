//! fio's I/O logs of versions 2 and 3: words between blanks, behind a line with the version.
//!
//! ```text
//! fio version 2 iolog                       fio version 3 iolog
//! FILE add | open | close                   TIME FILE add | open | close
//! FILE read | write | ... OFFSET LENGTH     TIME FILE read | write | ... OFFSET LENGTH
//! FILE wait MICROSECONDS LENGTH
//! ```
//!
//! Times of version 3 are in microseconds from the start; those of version 2 are what `wait` adds
//! up. Offsets and lengths are in bytes. `trim`, `sync` and `datasync` are no requests.
//! Source: fio's HOWTO, "Trace file format v2" and "v3", and `iolog.c` for the unit of time.

use crate::error::{BadField, Problem};
use crate::fields::Blanks;
use crate::files::FileNames;
use crate::lines::ParseLine;
use crate::request::{Kind, Request, bytes_length};

const MICROSECOND_NS: u64 = 1_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Two,
    Three,
}

/// Lines of such a file.
#[derive(Default)]
pub struct Fio {
    version: Option<Version>,
    files: FileNames,
    /// What the waits of version 2 add up to.
    waited_ns: u64,
}

impl ParseLine for Fio {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        let Some(version) = self.version else {
            self.version = Some(match line {
                b"fio version 2 iolog" => Version::Two,
                b"fio version 3 iolog" => Version::Three,
                _ => return Err(BadField { field: "header", problem: Problem::UnknownWord }),
            });
            return Ok(None);
        };
        let mut fields = Blanks::new(line);
        let time_ns = match version {
            Version::Two => self.waited_ns,
            Version::Three => micros(fields.number("timestamp")?, "timestamp")?,
        };
        let name = fields.word("filename")?;
        let action = fields.word("action")?;
        let kind = match action {
            b"add" => {
                self.files.number(&[name])?;
                return Ok(None);
            }
            b"open" | b"close" => return self.known(name).map(|_| None),
            b"sync" | b"datasync" | b"trim" | b"sync_file_range" => return Ok(None),
            b"wait" if version == Version::Two => {
                let wait_ns = micros(fields.number("offset")?, "offset")?;
                let too_large = BadField { field: "offset", problem: Problem::TooLarge };
                self.waited_ns = self.waited_ns.checked_add(wait_ns).ok_or(too_large)?;
                return Ok(None);
            }
            b"read" => Kind::Read,
            b"write" => Kind::Write,
            _ => return Err(BadField { field: "action", problem: Problem::UnknownWord }),
        };
        let address = fields.number("offset")?;
        let length = bytes_length(fields.number("length")?)?;
        fields.end("length")?;
        let file = self.known(name)?;
        Request { time_ns, address, length, file, kind }.checked().map(Some)
    }
}

impl Fio {
    /// The number of a file that was added.
    fn known(&mut self, name: &[u8]) -> Result<u32, BadField> {
        let unknown = BadField { field: "filename", problem: Problem::UnknownFile };
        self.files.get(&[name]).ok_or(unknown)
    }
}

fn micros(number: u64, field: &'static str) -> Result<u64, BadField> {
    number.checked_mul(MICROSECOND_NS).ok_or(BadField { field, problem: Problem::TooLarge })
}
