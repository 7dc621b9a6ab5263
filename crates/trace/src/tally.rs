//! What a reader met besides requests, and what becomes of bad input.

use crate::error::TraceError;

/// What becomes of a line, record or block that breaks its format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadInput {
    /// It is an error.
    #[default]
    Refuse,
    /// It is counted and left out.
    Skip,
}

/// What a reader met besides requests.
#[derive(Debug)]
pub struct Tally {
    bad_input: BadInput,
    /// Bad lines, records or blocks that were left out.
    pub skipped: u64,
    /// The first of them.
    pub first_skipped: Option<TraceError>,
    /// Lines or records about something else than a read or a write.
    pub other_events: u64,
}

impl Tally {
    pub(crate) fn new(bad_input: BadInput) -> Tally {
        Tally { bad_input, skipped: 0, first_skipped: None, other_events: 0 }
    }

    /// Counts bad input, or makes it an error.
    pub(crate) fn bad(&mut self, error: TraceError) -> Result<(), TraceError> {
        if self.bad_input == BadInput::Refuse || !error.is_bad_input() {
            return Err(error);
        }
        self.skipped += 1;
        self.first_skipped.get_or_insert(error);
        Ok(())
    }
}
