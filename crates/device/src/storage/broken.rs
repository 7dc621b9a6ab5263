//! Which rule of storages is broken, and where that was seen.

use std::fmt;
use std::io;

use terrace_rt::Nanos;

/// What [`conformance`](super::conformance) found. The rules, storage.S1 to storage.S7, stand in
/// the module's description.
#[derive(Debug)]
#[non_exhaustive]
pub enum Broken {
    /// A call failed.
    Failed {
        /// The call.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// A call panicked.
    Panicked {
        /// The call.
        call: &'static str,
    },
    /// storage.S7: a call did not come to an end.
    Silent {
        /// The call.
        call: &'static str,
        /// How long it was waited for.
        limit: Nanos,
    },
    /// It is too short for the test, and does not grow. Test a longer one.
    TooShort {
        /// Bytes that it has.
        len: u64,
        /// Bytes that the test needs.
        needed: u64,
    },
    /// storage.S1: a call says that it has moved no byte of a range within the length, or more
    /// bytes than it was asked for.
    Count {
        /// The call.
        call: &'static str,
        /// Bytes that it was asked for.
        asked: usize,
        /// Bytes that it says it has moved.
        told: usize,
    },
    /// storage.S1: a read at the end, or past it, says that it has read bytes that are not there.
    PastEnd {
        /// Where it was to begin.
        offset: u64,
        /// Bytes that it says it has read.
        told: usize,
        /// Bytes that there are.
        len: u64,
    },
    /// Its length is not what it must be: storage.S5, or storage.S6 after a punch.
    Length {
        /// What was done before.
        after: &'static str,
        /// Bytes that it must have.
        expected: u64,
        /// Bytes that it says it has.
        found: u64,
    },
    /// A byte is not what it must be: storage.S2, storage.S4 after it was opened again, storage.S5
    /// after it has grown, storage.S6 after a punch.
    Contents {
        /// What was done before.
        after: &'static str,
        /// The first byte that is wrong.
        offset: u64,
    },
    /// storage.S3: a read beside a write has returned a part of a sector old, and a part new.
    TornSector {
        /// The sector's first byte.
        offset: u64,
    },
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Failed { call, source } => write!(f, "{call} failed: {source}"),
            Broken::Panicked { call } => write!(f, "{call} panicked"),
            Broken::Silent { call, limit } => {
                write!(f, "S7: {call} has not returned in {} s", limit.as_secs_f64())
            }
            Broken::TooShort { len, needed } => write!(
                f,
                "it has {len} bytes and does not grow, and the test needs {needed}: give it a \
                 longer one"
            ),
            Broken::Count { call, asked, told } => {
                write!(f, "S1: {call} was asked for {asked} bytes, and says it has moved {told}")
            }
            Broken::PastEnd { offset, told, len } => write!(
                f,
                "S1: a read at {offset} says it has read {told} bytes, of a storage of {len} bytes"
            ),
            Broken::Length { after, expected, found } => write!(
                f,
                "S5, S6: after {after} it must have {expected} bytes, and says it has {found}"
            ),
            Broken::Contents { after, offset } => {
                write!(f, "after {after} the byte at {offset} is not what it must be")
            }
            Broken::TornSector { offset } => write!(
                f,
                "S3: a read beside a write has returned a part of the sector at {offset} old, and \
                 a part new"
            ),
        }
    }
}

impl std::error::Error for Broken {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Broken::Failed { source, .. } => Some(source),
            _ => None,
        }
    }
}
