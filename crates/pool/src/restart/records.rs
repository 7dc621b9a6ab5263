//! Log records of the restarts: payloads of `Journal::log_flash`.
//!
//! ```text
//! offset size field
//!      0    1 kind
//!      1      by kind
//!
//! UNLOGGED  page 4: the page changes, or has changed, without a record of its own
//! ```

use terrace_page::PageId;

const UNLOGGED: u8 = 1;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A page changes without a record of its own: every copy made before is old.
    Unlogged { page: PageId },
}

impl Record {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Record::Unlogged { page } => {
                bytes.push(UNLOGGED);
                bytes.extend_from_slice(&(page.0 as u32).to_le_bytes());
            }
        }
        bytes
    }

    /// The record in `bytes`, if it is one.
    pub fn decode(bytes: &[u8]) -> Option<Record> {
        let (&kind, rest) = bytes.split_first()?;
        match kind {
            UNLOGGED => {
                let page = u32::from_le_bytes(rest.try_into().ok()?);
                Some(Record::Unlogged { page: PageId(u64::from(page)) })
            }
            _ => None,
        }
    }
}
