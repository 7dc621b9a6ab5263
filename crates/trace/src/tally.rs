//! What a reader met besides requests, and what becomes of bad input.

use crate::error::TraceError;

/// What becomes of a line, record or block that breaks its format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadInput {
    /// It is an error.
    #[default]
    Refuse,
    /// It is an error, but compressed bytes that are damaged or cut off end the trace: the requests
    /// before them are whole, and what breaks off is counted.
    Shorten,
    /// It is counted and left out.
    Skip,
}

/// What a reader met besides requests.
#[derive(Debug)]
pub struct Tally {
    bad_input: BadInput,
    /// Requests so far.
    pub requests: u64,
    /// Bad lines, records or blocks that were left out.
    pub skipped: u64,
    /// The first of them.
    pub first_skipped: Option<TraceError>,
    /// Lines or records about something else than a read or a write.
    pub other_events: u64,
    /// Where compressed bytes are damaged or cut off, and the trace ends.
    pub broken_off: Option<TraceError>,
}

impl Tally {
    pub(crate) fn new(bad_input: BadInput) -> Tally {
        Tally {
            bad_input,
            requests: 0,
            skipped: 0,
            first_skipped: None,
            other_events: 0,
            broken_off: None,
        }
    }

    /// Counts bad input, or makes it an error.
    pub(crate) fn bad(&mut self, error: TraceError) -> Result<(), TraceError> {
        let breaks_off = matches!(error, TraceError::Packed { .. });
        match self.bad_input {
            BadInput::Skip if error.is_bad_input() => {}
            BadInput::Shorten if breaks_off => {}
            _ => return Err(error),
        }
        self.skipped += 1;
        if breaks_off {
            self.broken_off.get_or_insert(error);
            return Ok(());
        }
        self.first_skipped.get_or_insert(error);
        Ok(())
    }
}
