//! Why an operator failed.

use std::fmt;
use std::io;

use crate::table::PageNo;

/// One variant for each thing that a caller can do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A device failed. Run the operator again once it works.
    Device(io::Error),
    /// A page is not what was written there. Restore it from a backup.
    Corrupt {
        /// Which page of its table.
        page: PageNo,
    },
    /// The bytes of a page, or of a chunk, are not whole sectors: correct the layout.
    Sectors {
        /// What was given.
        bytes: u64,
    },
    /// The table ends behind its device: correct its place.
    PastEnd {
        /// Where it would end, in bytes.
        end: u64,
        /// Bytes of the device.
        len: u64,
    },
    /// The drive has one domain: take the ordinary scan.
    OneDomain,
    /// The number of buckets is no power of two: take one.
    Buckets {
        /// What was given.
        buckets: u64,
    },
    /// A value does not fit in the bytes of its attribute: give it more.
    Attribute {
        /// The value.
        value: i64,
        /// The bytes.
        bytes: u8,
    },
    /// The memory is too small: give more, or scan with fewer tasks.
    Memory {
        /// Bytes that are needed at least.
        needed: u64,
        /// Bytes that were given.
        given: u64,
    },
    /// There is no room for what does not fit in memory: give more of either.
    SpillFull {
        /// Bytes of the room.
        bytes: u64,
    },
    /// What did not fit in memory came back as something else. Run the operator again, elsewhere.
    SpillCorrupt {
        /// The first byte of the block on its device.
        byte: u64,
    },
    /// There is no task to scan with: give the queue a place and the machine a thread.
    NoTask,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Device(source) => write!(f, "{source}"),
            Error::Corrupt { page } => {
                write!(f, "page {page} is not what was written there: restore it from a backup")
            }
            Error::Sectors { bytes } => {
                write!(f, "{bytes} bytes are not whole sectors of 512: give a multiple of them")
            }
            Error::PastEnd { end, len } => write!(
                f,
                "the table ends at byte {end}, its device at {len}: correct the table's place"
            ),
            Error::OneDomain => {
                f.write_str("the drive has one domain, nothing to scan in parallel: scan as usual")
            }
            Error::Buckets { buckets } => write!(
                f,
                "{buckets} buckets are no power of two: take {} or {}",
                (buckets / 2).next_power_of_two(),
                buckets.checked_next_power_of_two().unwrap_or(1 << 63)
            ),
            Error::Attribute { value, bytes } => {
                write!(f, "{value} does not fit in the {bytes} bytes of its attribute: give more")
            }
            Error::Memory { needed, given } => write!(
                f,
                "{given} bytes of memory are too few, {needed} are needed: give as many, or take \
                 fewer tasks"
            ),
            Error::SpillFull { bytes } => write!(
                f,
                "{bytes} bytes are too few for what does not fit in memory: give more of either"
            ),
            Error::SpillCorrupt { byte } => write!(
                f,
                "the block at byte {byte} is not what was spilled there: give another place"
            ),
            Error::NoTask => {
                f.write_str("a queue or a machine of 0: give a scan a place and a thread at least")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Device(source) => Some(source),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Error {
        Error::Device(source)
    }
}
