//! Formats of one line per request.
//!
//! - L1: lines end with a line feed, with or without a carriage return before it, or with the file.
//! - L2: empty lines, lines that begin with `#`, and what `bpftrace` says when it begins are no
//!   requests in any format, and no errors.
//! - L3: a line has at most [`LINE_BYTES_MAX`] bytes; what is longer is one bad line.

use crate::error::{BadField, Place, Problem, TraceError};
use crate::files::FileNames;
use crate::pages::{PageBytes, Paging};
use crate::reader::{BATCH_REQUESTS, Decode, More};
use crate::request::{Clock, Request};
use crate::tally::Tally;
use crate::window::Window;
use memchr::memchr;

/// Bytes of the longest line.
pub const LINE_BYTES_MAX: usize = 1 << 16;

/// A format of lines.
pub trait ParseLine {
    /// How its requests are best split into pages.
    const PAGING: Paging = Paging::Split(PageBytes::DEFAULT);
    /// What the times are.
    const CLOCK: Clock = Clock::Kept;

    /// The request on `line`, or none if the line is not about one: a header, a comment, an event
    /// of another kind.
    ///
    /// # Errors
    ///
    /// The field that breaks the format.
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField>;

    /// A further request of the line parsed last, until there is none.
    fn further(&mut self) -> Option<Request> {
        None
    }

    /// How often the request of the line parsed last was made.
    fn times(&self) -> usize {
        1
    }

    /// The names of the files, if they are paths.
    fn paths(&self) -> Option<&FileNames> {
        None
    }
}

/// Whether `line` is about no request, whatever the format (L2).
pub fn is_remark(line: &[u8]) -> bool {
    matches!(line.first(), None | Some(b'#')) || is_preamble(line)
}

/// Whether `line` is what `bpftrace` says of its probes, on standard output, before all else.
pub fn is_preamble(line: &[u8]) -> bool {
    let count = line.strip_prefix(b"Attaching ").or_else(|| line.strip_prefix(b"Attached "));
    let digits = |text: &&[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    count.is_some_and(|text| digits(&text) > 0 && text[digits(&text)..].starts_with(b" probe"))
}

/// Decodes lines with a parser.
pub struct LineDecoder<P> {
    window: Window,
    parser: P,
    /// Lines begun.
    line: u64,
}

impl<P: ParseLine> LineDecoder<P> {
    /// A decoder of the lines in `window`.
    pub fn new(window: Window, parser: P) -> LineDecoder<P> {
        LineDecoder { window, parser, line: 0 }
    }

    /// Reads on until a whole line is there. Returns its bytes and those to consume for it, or
    /// none at the end of the file.
    fn whole_line(&mut self) -> Result<Option<Line>, TraceError> {
        let mut searched = 0;
        loop {
            let available = self.window.available();
            if let Some(at) = memchr(b'\n', &available[searched..]) {
                let bytes = searched + at;
                return Ok(Some(Line { bytes, with_end: bytes + 1 }));
            }
            searched = available.len();
            if searched > LINE_BYTES_MAX {
                return Ok(Some(Line { bytes: searched, with_end: searched }));
            }
            if self.window.fill(searched + 1)? == searched {
                let last = Line { bytes: searched, with_end: searched };
                return Ok((searched > 0).then_some(last));
            }
        }
    }

    /// Consumes the rest of a line that is too long.
    fn skip_line(&mut self) -> Result<(), TraceError> {
        while self.window.fill(1)? > 0 {
            let available = self.window.available();
            match memchr(b'\n', available) {
                Some(at) => {
                    self.window.consume(at + 1);
                    return Ok(());
                }
                None => self.window.consume(available.len()),
            }
        }
        Ok(())
    }
}

/// A line at the start of the window.
struct Line {
    /// Its bytes, without its end.
    bytes: usize,
    /// Its bytes with its end.
    with_end: usize,
}

impl<P: ParseLine> Decode for LineDecoder<P> {
    fn decode(&mut self, batch: &mut Vec<Request>, tally: &mut Tally) -> Result<More, TraceError> {
        while batch.len() < BATCH_REQUESTS {
            let Some(line) = self.whole_line()? else { return Ok(More::No) };
            self.line += 1;
            if line.bytes > LINE_BYTES_MAX {
                let what = BadField { field: "line", problem: Problem::TooLong };
                tally.bad(self.window.bad(Place::Line(self.line), what))?;
                self.skip_line()?;
                continue;
            }
            let text = &self.window.available()[..line.bytes];
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            if !is_remark(text) {
                match self.parser.parse(text) {
                    Ok(Some(request)) => {
                        batch.extend(std::iter::repeat_n(request, self.parser.times()));
                        batch.extend(std::iter::from_fn(|| self.parser.further()));
                    }
                    Ok(None) => tally.other_events += 1,
                    Err(what) => tally.bad(self.window.bad(Place::Line(self.line), what))?,
                }
            }
            self.window.consume(line.with_end);
        }
        Ok(More::Yes)
    }

    fn paths(&self) -> Option<&FileNames> {
        self.parser.paths()
    }
}
