//! Why an operation on an index failed.

use std::fmt;
use std::io;

use crate::entry::Key;
use crate::page::PageNo;
use crate::superblock::Kind;

/// One variant for each thing that a caller can do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A device failed. Open the index again, to recover.
    Device(io::Error),
    /// An earlier write failed, so nothing more is written. Open the index again, to recover.
    Failed,
    /// A page is not what was written there. Load the index anew.
    Corrupt {
        /// Which.
        page: PageNo,
    },
    /// The device holds no index, or none that is whole.
    NotAnIndex,
    /// The device holds an index of another structure: open it as that.
    OtherStructure {
        /// What it holds.
        found: Kind,
        /// What was asked for.
        wanted: Kind,
    },
    /// The entries of a bulk load are not in ascending order of their keys: sort them.
    OutOfOrder {
        /// Number of the entry, from 0.
        at: u64,
        /// Its key.
        key: Key,
        /// The key before it.
        before: Key,
    },
    /// The memory for a search is too small: give it more pages, or lower PioMax.
    SearchMemory {
        /// What it is, in pages.
        pages: usize,
        /// Nodes that are read together.
        pio_max: usize,
        /// Levels of the index.
        height: usize,
    },
    /// A leaf of the PIO B-tree has no such number of pages.
    Segments {
        /// What was asked for.
        segments: u32,
        /// The most.
        most: u32,
    },
    /// BFTL has no numbers left for its writes: load the index anew.
    WritesUsedUp,
    /// The device has no room: grow it.
    Full {
        /// Bytes that were needed.
        needed: u64,
    },
    /// The journal's device has no room for what one flush must undo: take a larger one.
    JournalFull {
        /// Bytes that were needed.
        needed: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Device(source) => write!(f, "{source}"),
            Error::Failed => f.write_str("an earlier write failed: open the index again"),
            Error::Corrupt { page } => {
                write!(f, "page {page} is not what was written there: load the index anew")
            }
            Error::NotAnIndex => f.write_str("the device holds no index: load one first"),
            Error::OtherStructure { found, wanted } => {
                write!(f, "the device holds a {found}, not a {wanted}: open it as that")
            }
            Error::OutOfOrder { at, key, before } => {
                write!(f, "bulk load: key {key} of entry {at} comes after key {before}: sort them")
            }
            Error::SearchMemory { pages, pio_max, height } => write!(
                f,
                "{pages} pages for a search are fewer than PioMax times height, {pio_max} times \
                 {height}: give it more, or lower PioMax"
            ),
            Error::Segments { segments, most } => {
                write!(f, "a leaf of {segments} pages: give it 1 to {most}")
            }
            Error::WritesUsedUp => {
                f.write_str("2^32 pages were written, and BFTL counts no further: load it anew")
            }
            Error::Full { needed } => {
                write!(f, "the index needs {needed} bytes, more than its device has: grow it")
            }
            Error::JournalFull { needed } => {
                write!(f, "the journal needs {needed} bytes, more than its device has: grow it")
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
