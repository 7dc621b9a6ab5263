//! Whether the log ends where a scan came to its end, or has lost something in its middle.
//!
//! ```text
//!   scan ------------> end              later record: "all before m was durable when I was made"
//!   ...| record | record |x|  ...  | record m | record m' |
//!                        '-- torn tail: m <= end;  damage: m > end
//! ```
//!
//! - Each record says how far the log was durable when it was appended (`Draft::close`). A power
//!   cut takes nothing that was durable. So a record past the end, whole and of this log, that says
//!   more than the end was durable tells that the end is damage.
//! - T1: a record that never became durable was made when nothing past the true end was durable.
//!   So a torn tail is never taken for damage, whichever of its sectors arrived, nor is what an
//!   earlier opening had left behind the end at which the next one went on.
//! - T2: what was durable behind the end lies there without gaps but those of the damage. So the
//!   search goes from record to record. After `GAP_BYTES` without one it looks at samples, ever
//!   farther apart: it finds what is a sixteenth as long as the damage, and reads little.
//! - T3: a sector arrives whole or not at all, and a force fills its last block with zeroes. So
//!   where a record lies wholly within a sector, what follows it there was written with it or is
//!   zero: a record that lies wholly in the sector and is not valid was damaged. Of a record that
//!   began in a sector before, the last bytes may be there by chance, from the ring's lap before.
//! - T4: a record is appended only where the header says that a line goes on, and `EDGE_BYTES` of
//!   it are always left (room.N1). So if the scan comes closer to the line's end, or meets a record
//!   that would go past it, the line was longer: both copies of the header are of an earlier day.
//! - What is left: damage to what was forced last before a crash looks like a torn tail, if nothing
//!   was written after it. An idle log writes a record that says so (`Log::witness`).

use terrace_device::SECTOR_SIZE;
use terrace_page::Lsn;

use super::LogReader;
use super::record::{self, DURABLE_UNIT, HEADER_BYTES, RECORD_MAX};
use super::room::EDGE_BYTES;
use crate::Error;

/// Bytes looked through at once.
const WINDOW_BYTES: usize = 128 << 10;
/// Looked through as a whole.
const GAP_BYTES: u64 = 4 << 20;
/// A sample: among records it has a whole one.
const SAMPLE_BYTES: u64 = 2 * RECORD_MAX as u64;
/// What a record calls durable is not farther behind it, or it is taken for other bytes (T4).
const DURABLE_BEHIND_MAX: u64 = 64 << 20;
/// The distance between samples, as a fraction of the bytes without a record.
const SAMPLES_ONE_IN: u64 = 16;

impl LogReader<'_> {
    /// Refuses an end that is damage. Call it once `next` has returned `None`; the last opening of
    /// the database was number `epoch`.
    ///
    /// # Errors
    ///
    /// `CorruptLog`, `Device`.
    pub(crate) fn check_end(&mut self, epoch: u32) -> Result<(), Error> {
        let end = self.end().position;
        if self.breaks_within_its_sector(end)? {
            return Err(Error::corrupt_log(end, "a record is damaged that was written whole"));
        }
        if self.goes_on_past_its_line(end, epoch)? {
            let what = "the log goes on past what its header names: the header is an older copy";
            return Err(Error::corrupt_log(end, what));
        }
        if self.was_durable_past(end, epoch)? {
            let what = "a record is damaged, and later ones say that it was durable";
            return Err(Error::corrupt_log(end, what));
        }
        Ok(())
    }

    /// T3.
    fn breaks_within_its_sector(&mut self, end: Lsn) -> Result<bool, Error> {
        let sector = SECTOR_SIZE as u64;
        if self.end().last.0 < end.0 / sector * sector {
            return Ok(false);
        }
        let to = end.0.next_multiple_of(sector).min(self.limit());
        let rest = self.bytes(end.0, (to - end.0) as usize)?;
        if rest.len() < size_of::<u32>() || rest.iter().all(|&byte| byte == 0) {
            return Ok(false);
        }
        let is_here = record::claimed_len(rest).is_none_or(|len| len <= rest.len());
        // A whole one may be of an earlier opening.
        Ok(is_here && self.check(end.0)?.is_none())
    }

    /// T4. The header at the end cannot be verified, since its record's end is not in the line. But
    /// what was appended after the header was written says that all before its start was durable.
    /// What a piece of the line has from before it served again is older than that start, and was
    /// appended when less was durable.
    fn goes_on_past_its_line(&mut self, end: Lsn, epoch: u32) -> Result<bool, Error> {
        let (left, from) = (self.limit() - end.0, self.from);
        if !self.is_line() || left >= RECORD_MAX as u64 {
            return Ok(false);
        }
        if left < EDGE_BYTES {
            return Ok(true);
        }
        let header = self.bytes(end.0, HEADER_BYTES)?;
        let is_longer = record::claimed_len(header).is_some_and(|len| len as u64 > left);
        let said = record::durable_before(header, end);
        let is_since_start = |it: Lsn| it.0 + DURABLE_UNIT > from && it <= end;
        let follows =
            said.is_some_and(|it| is_since_start(it) && end.0 - it.0 <= DURABLE_BEHIND_MAX);
        Ok(is_longer && follows && record::may_begin(header, epoch))
    }

    /// T2.
    fn was_durable_past(&mut self, end: Lsn, epoch: u32) -> Result<bool, Error> {
        let (mut at, mut met) = (end.0 + 1, end.0);
        let mut until = end.0 + GAP_BYTES;
        loop {
            if at >= until {
                self.read_less();
                at += (at - met) / SAMPLES_ONE_IN;
                until = at + SAMPLE_BYTES;
            }
            if at + (HEADER_BYTES as u64) >= self.limit() {
                return Ok(false);
            }
            let left = (self.limit() - at).min(until - at + HEADER_BYTES as u64);
            let window = left.min(WINDOW_BYTES as u64) as usize;
            let bytes = self.bytes(at, window)?;
            let headers = bytes.windows(HEADER_BYTES);
            let Some(skipped) = headers.into_iter().position(|h| record::may_begin(h, epoch))
            else {
                at += (window - HEADER_BYTES + 1) as u64;
                continue;
            };
            at += skipped as u64;
            let Some((len, _)) = self.check(at)? else {
                at += 1;
                continue;
            };
            let header = self.bytes(at, HEADER_BYTES)?;
            if record::durable_before(header, Lsn(at)).is_some_and(|durable| durable > end) {
                return Ok(true);
            }
            at += len as u64;
            (met, until) = (at, at + GAP_BYTES);
        }
    }
}
