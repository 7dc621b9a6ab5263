//! Changes of pages, as the log records them: encoded, decoded, applied.

use terrace_page::PageBuf;

/// A change of one page, redone by `apply` alone. Borrowed from the caller, or from a log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum Change<'a> {
    /// Bytes put at an offset.
    Bytes {
        /// Offset in the page.
        at: u16,
        /// What stands there afterwards.
        bytes: &'a [u8],
    },
}

/// Bytes that are no change, or a change that does not fit its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadChange;

impl<'a> Change<'a> {
    /// Appends the encoded change.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Change::Bytes { at, bytes } => {
                out.push(1);
                out.extend_from_slice(&at.to_le_bytes());
                out.extend_from_slice(bytes);
            }
        }
    }

    /// The change that `bytes` (all of them) encode. Never panics.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Change<'a>, BadChange> {
        match bytes {
            [1, low, high, bytes @ ..] => {
                Ok(Change::Bytes { at: u16::from_le_bytes([*low, *high]), bytes })
            }
            _ => Err(BadChange),
        }
    }

    /// Whether it gives every byte of the page (but header LSN and checksum) a value, whatever
    /// stood there before: such a change is redone without reading the page.
    pub(crate) fn formats(&self) -> bool {
        false
    }

    /// Changes `page`. Never panics; on an error the page is unchanged.
    pub(crate) fn apply(&self, page: &mut PageBuf) -> Result<(), BadChange> {
        match self {
            Change::Bytes { at, bytes } => {
                let at = usize::from(*at);
                let target = page.get_mut(at..at + bytes.len()).ok_or(BadChange)?;
                target.copy_from_slice(bytes);
                Ok(())
            }
        }
    }
}
