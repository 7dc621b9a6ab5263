//! Why a trace cannot be read: which file, where in it, which field, and what is wrong with it.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Why a trace cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened.
    Open {
        /// The file.
        path: Arc<Path>,
        /// What the system says.
        source: io::Error,
    },
    /// The file cannot be read on.
    Read {
        /// The file.
        path: Arc<Path>,
        /// Bytes that could be read, unpacked.
        offset: u64,
        /// What the system says.
        source: io::Error,
    },
    /// The file is compressed, and the compressed bytes are damaged or cut off.
    Packed {
        /// The file.
        path: Arc<Path>,
        /// Bytes that could be unpacked.
        offset: u64,
        /// What the decoder says.
        source: io::Error,
    },
    /// The file has no bytes by which to tell its format.
    Empty {
        /// The file.
        path: Arc<Path>,
        /// The names of the formats that are known.
        known: String,
    },
    /// The file is in no format that is known.
    UnknownFormat {
        /// The file.
        path: Arc<Path>,
        /// What it begins with.
        begins: String,
        /// The format that this looks most like, and a line of it.
        nearest: Option<(&'static str, &'static str)>,
        /// The names of those that are known.
        known: String,
    },
    /// A line, record or block breaks its format.
    Bad {
        /// The file.
        path: Arc<Path>,
        /// Where in it.
        place: Place,
        /// Which field, and what is wrong with it.
        what: BadField,
    },
}

/// Where in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of text, from 1.
    Line(u64),
    /// A record of a binary format, from 1, and its first byte in the unpacked file.
    Record {
        /// Its number.
        number: u64,
        /// Its first byte.
        offset: u64,
    },
    /// A block of our own format, from 1, and its first byte in the unpacked file; block 0 is the
    /// header of the file.
    Block {
        /// Its number.
        number: u64,
        /// Its first byte.
        offset: u64,
    },
}

/// A field, and what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadField {
    /// The name of the field.
    pub field: &'static str,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The line or record ends before it.
    Missing,
    /// Something follows that should not.
    Extra,
    /// It is no number.
    NotANumber,
    /// It is less than zero.
    Negative,
    /// It is more than its field can hold.
    TooLarge,
    /// It reaches past 2^63.
    PastEnd,
    /// It is none of the words that may stand there.
    UnknownWord,
    /// The line is longer than any line of a trace.
    TooLong,
    /// It names a file that was not introduced.
    UnknownFile,
    /// There are more files than a trace may have.
    TooManyFiles,
    /// The stored bytes do not have their checksum.
    Checksum,
    /// It is of a later version than this program.
    Version,
    /// The stored numbers contradict each other.
    Contradiction,
}

impl TraceError {
    /// Whether reading can go on behind it: one bad line, record or block.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, TraceError::Bad { .. } | TraceError::Packed { .. })
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Open { path, source } => {
                write!(f, "cannot open {}: {source}", path.display())
            }
            TraceError::Read { path, offset, source } => {
                write!(f, "cannot read {} at byte {offset}: {source}", path.display())
            }
            TraceError::Packed { path, offset, source } => write!(
                f,
                "{}: compressed data is damaged or cut off after {offset} unpacked bytes: {source}",
                path.display()
            ),
            TraceError::Empty { path, known } => write!(
                f,
                "{} is empty, so its format cannot be told; known: {known}",
                path.display()
            ),
            TraceError::UnknownFormat { path, begins, nearest, known } => {
                write!(f, "{} is in no known format; it begins with {begins}", path.display())?;
                if let Some((name, example)) = nearest {
                    write!(f, "; nearest is {name}: `{example}`")?;
                }
                write!(f, "; known: {known}")
            }
            TraceError::Bad { path, place, what } => {
                write!(f, "{}, {place}: {what}", path.display())
            }
        }
    }
}

impl Error for TraceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            TraceError::Open { source, .. }
            | TraceError::Read { source, .. }
            | TraceError::Packed { source, .. } => Some(source),
            TraceError::Empty { .. }
            | TraceError::UnknownFormat { .. }
            | TraceError::Bad { .. } => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(f, "line {line}"),
            Place::Record { number, offset } => write!(f, "record {number} at byte {offset}"),
            Place::Block { number, offset } => write!(f, "block {number} at byte {offset}"),
        }
    }
}

impl fmt::Display for BadField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "field `{}` {}", self.field, self.problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Problem::Missing => "is missing",
            Problem::Extra => "is followed by more than the format has",
            Problem::NotANumber => "is no number",
            Problem::Negative => "is negative",
            Problem::TooLarge => "is too large",
            Problem::PastEnd => "reaches past 2^63",
            Problem::UnknownWord => "is none of the known words",
            Problem::TooLong => "is longer than any line of a trace",
            Problem::UnknownFile => "names a file that was not introduced",
            Problem::TooManyFiles => "is one file more than a trace may have",
            Problem::Checksum => "does not have its checksum",
            Problem::Version => "is of a version that this program does not know",
            Problem::Contradiction => "contradicts the bytes around it",
        })
    }
}
