//! Why a file or a block device was not opened.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use super::held::Holder;

/// Why the file or the block device at a path was not opened. Nothing there was changed.
#[derive(Debug)]
pub struct OpenError {
    /// The path.
    pub path: PathBuf,
    /// Why.
    pub why: Refusal,
}

/// What stands in the way of opening a file or a block device.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// There is nothing of that name.
    Missing,
    /// It is neither a file nor a block device.
    Kind {
        /// What it is, with its article: "a folder".
        found: &'static str,
    },
    /// Another process has it open.
    InUse {
        /// That process, if known.
        holder: Holder,
    },
    /// The file system has no direct I/O.
    NoDirectIo,
    /// This process may not use io_uring.
    NoUring {
        /// What the kernel said.
        source: io::Error,
    },
    /// The length is no whole number of sectors, or zero.
    Length {
        /// Bytes.
        len: u64,
    },
    /// It is shorter than asked for, and must not or cannot grow.
    TooShort {
        /// Bytes that it has.
        found: u64,
        /// Bytes that were asked for.
        wanted: u64,
    },
    /// The file system has no room for it, or the user's share of it has not.
    NoRoom {
        /// Bytes that it was to have.
        wanted: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// A system call failed.
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Missing => f.write_str("there is no such file or device"),
            Refusal::Kind { found } => {
                write!(f, "it is {found}, neither a file nor a block device")
            }
            Refusal::InUse { holder } => {
                write!(f, "{holder} has it in use, close the other database first")
            }
            Refusal::NoDirectIo => {
                f.write_str("its file system refuses direct I/O, choose one that has it")
            }
            Refusal::NoUring { source } => write!(
                f,
                "this process may not use io_uring, choose the positioned method: {source}"
            ),
            Refusal::Length { len } => write!(
                f,
                "its length, {len} bytes, must be whole sectors of 512 bytes, at least one"
            ),
            Refusal::TooShort { found, wanted } => {
                write!(f, "it is too short: {found} bytes, and {wanted} are asked for")
            }
            Refusal::NoRoom { wanted, source } => {
                write!(f, "no room for its {wanted} bytes, free some or ask for fewer: {source}")
            }
            Refusal::System { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.why {
            Refusal::NoUring { source }
            | Refusal::NoRoom { source, .. }
            | Refusal::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl OpenError {
    /// The kind of error that the standard library has for it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match &self.why {
            Refusal::Missing => ErrorKind::NotFound,
            Refusal::InUse { .. } => ErrorKind::ResourceBusy,
            Refusal::Kind { .. }
            | Refusal::NoDirectIo
            | Refusal::Length { .. }
            | Refusal::TooShort { .. } => ErrorKind::InvalidInput,
            Refusal::NoUring { source }
            | Refusal::NoRoom { source, .. }
            | Refusal::System { source, .. } => source.kind(),
        }
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}
