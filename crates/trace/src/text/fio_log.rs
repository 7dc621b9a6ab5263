//! What fio writes for `--write_lat_log` and its kin with `--log_offset=1`: a line per request.
//!
//! ```text
//! 12, 84210, 0, 4096, 1048576, 0x0000
//! time in ms, value, direction (0 read, 1 write, 2 trim), bytes, address, priority, perhaps more
//! ```
//!
//! Logs that are averages, and those without addresses, have fewer fields and are no traces.
//! Source: fio's HOWTO, "Log File Formats".

use crate::error::{BadField, Problem};
use crate::fields::Commas;
use crate::lines::ParseLine;
use crate::request::{Kind, Request, bytes_length};

const MILLISECOND_NS: u64 = 1_000_000;

/// Lines of such a log.
#[derive(Default)]
pub struct FioLog;

impl ParseLine for FioLog {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        let mut fields = Commas::new(line);
        let too_large = BadField { field: "time", problem: Problem::TooLarge };
        let time_ns = fields.number("time")?.checked_mul(MILLISECOND_NS).ok_or(too_large)?;
        fields.word("value")?;
        let direction = fields.number("direction")?;
        let length = bytes_length(fields.number("bytes")?)?;
        let address = fields.number("address")?;
        // Without addresses the priority is the last field, in the place of the address.
        let no_address = BadField { field: "address", problem: Problem::Missing };
        let priority = fields.word("priority").map_err(|_| no_address)?;
        if !priority.starts_with(b"0x") && priority.iter().any(|byte| !byte.is_ascii_digit()) {
            return Err(BadField { field: "priority", problem: Problem::NotANumber });
        }
        let kind = match direction {
            0 => Kind::Read,
            1 => Kind::Write,
            2 => return Ok(None),
            _ => return Err(BadField { field: "direction", problem: Problem::UnknownWord }),
        };
        Request { time_ns, address, length, file: 0, kind }.checked().map(Some)
    }
}
