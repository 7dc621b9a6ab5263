//! The block tracepoints of Linux as text: what `trace_pipe`, `trace-cmd report` and `perf script`
//! print.
//!
//! ```text
//! fio-812 [001] d..1. 1234.567890: block_bio_queue: 259,0 RS 1024 + 8 [fio]
//! fio-812 [001] d..1. 1234.567891: block_rq_issue: 259,0 RS 4096 () 1024 + 8 be,0,4 [fio]
//! fio 812 [001] 1234.567891:       block:block_rq_issue: 259,0 RS 4096 () 1024 + 8 [fio]
//! fio-812 [001] d..1. 1234.567890: 259,0 Q RS 1024 + 8 [fio]
//! ```
//!
//! A request is where it was queued (`block_bio_queue`); up to the first of these, where it was
//! issued to the driver (`block_rq_issue`). Other events, discards and flushes without data are no
//! requests. The last of the lines is of the tracer `blk`, with the actions of `blktrace`: `Q` and
//! `D`. Sectors have 512 bytes. Source: Linux, `include/trace/events/block.h` and
//! `kernel/trace/blktrace.c`.

use super::blkparse::{device, kind};
use crate::error::{BadField, Problem};
use crate::fields::{Blanks, decimal, whole};
use crate::lines::ParseLine;
use crate::request::{Kind, Request, sectors_address, sectors_length};

const SECOND_NS: u64 = 1_000_000_000;

/// Lines of such a text.
#[derive(Default)]
pub struct Ftrace {
    /// A request was queued.
    queued: bool,
}

impl ParseLine for Ftrace {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        let bad = |field, problem| BadField { field, problem };
        let Some(at) = memchr::memmem::find(line, b" block") else { return self.of_tracer(line) };
        let (before, event) = (&line[..at], &line[at + 1..]);
        let event = event.strip_prefix(b"block:").unwrap_or(event);
        let end = memchr::memchr(b':', event).ok_or(bad("event", Problem::UnknownWord))?;
        let stamp = before.trim_ascii_end().rsplit(u8::is_ascii_whitespace).next();
        let stamp = stamp.and_then(|word| word.strip_suffix(b":"));
        let time = stamp.ok_or(bad("time", Problem::Missing))?;
        let time_ns = decimal(time, SECOND_NS).map_err(|problem| bad("time", problem))?;
        let is_queued = match &event[..end] {
            b"block_bio_queue" => true,
            b"block_rq_issue" if !self.queued => false,
            _ => return Ok(None),
        };
        let mut fields = Blanks::new(&event[end + 1..]);
        let file = device(fields.word("device")?)?;
        let Some(kind) = kind(fields.word("kind")?) else { return Ok(None) };
        if !is_queued {
            fields.number("bytes")?;
            // The command of a request that is none of the block layer's.
            fields.word("command")?;
        }
        self.request((time_ns, file, kind, is_queued), &mut fields)
    }
}

impl Ftrace {
    /// A line of the tracer `blk`.
    fn of_tracer(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        let bad = |field, problem| BadField { field, problem };
        let event = bad("event", Problem::Missing);
        let at = memchr::memmem::find(line, b"] ").ok_or(event)?;
        let mut fields = Blanks::new(&line[at + 1..]);
        let first = fields.word("time")?;
        // The flags of the processor may come first.
        let time = if first.ends_with(b":") { first } else { fields.word("time")? };
        let time = time.strip_suffix(b":").ok_or(bad("time", Problem::NotANumber))?;
        let time_ns = decimal(time, SECOND_NS).map_err(|problem| bad("time", problem))?;
        let file = device(fields.word("device")?)?;
        let is_queued = match fields.word("action")? {
            b"Q" => true,
            b"D" if !self.queued => false,
            _ => return Ok(None),
        };
        let Some(kind) = kind(fields.word("kind")?) else { return Ok(None) };
        self.request((time_ns, file, kind, is_queued), &mut fields)
    }

    /// The request of what is known already, and of `1024 + 8`, which is next.
    fn request(
        &mut self,
        (time_ns, file, kind, is_queued): (u64, u32, Kind, bool),
        fields: &mut Blanks<'_>,
    ) -> Result<Option<Request>, BadField> {
        let bad = |field, problem| BadField { field, problem };
        let sector = match fields.word("sector")? {
            // A flush without data: the process follows.
            process if process.starts_with(b"[") => return Ok(None),
            sector => whole(sector).map_err(|problem| bad("sector", problem))?,
        };
        if fields.word("+")? != b"+" {
            return Err(bad("+", Problem::UnknownWord));
        }
        let length = sectors_length(fields.number("sectors")?)?;
        if length == 0 {
            return Ok(None);
        }
        let address = sectors_address(sector)?;
        let request = Request { time_ns, address, length, file, kind }.checked()?;
        self.queued |= is_queued;
        Ok(Some(request))
    }
}
