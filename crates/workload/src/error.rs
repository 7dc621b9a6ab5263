//! Why a workload could not go on.

use std::fmt;

use terrace_device::model::UnknownPreset;
use terrace_policy::UnknownName;
use terrace_rt::Stopped;

/// One variant for each thing a caller can do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The engine failed.
    Engine(terrace::Error),
    /// A file or device that the workload itself uses failed.
    Device(std::io::Error),
    /// The virtual world stopped before the run was over.
    Stopped(Stopped),
    /// There is no design of this name.
    UnknownName(UnknownName),
    /// There is no modelled device of this name.
    UnknownPreset(UnknownPreset),
    /// There is a database already, of another number of warehouses or rows. Give that number, or
    /// another path.
    OtherScale,
    /// A row that every database of the workload holds is not there.
    MissingRow {
        /// The table.
        table: &'static str,
    },
    /// A transaction met a conflict each time that it was run.
    AlwaysConflicts {
        /// How often it was run.
        attempts: u32,
    },
    /// A stored row has not the length of its table's rows: the database is of another workload.
    MalformedRow {
        /// The table.
        table: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Engine(error) => error.fmt(f),
            Error::Device(error) => error.fmt(f),
            Error::Stopped(stopped) => stopped.fmt(f),
            Error::UnknownName(unknown) => unknown.fmt(f),
            Error::UnknownPreset(unknown) => unknown.fmt(f),
            Error::OtherScale => f.write_str(
                "the path holds a database of another size, or half of one: give that size, or \
                 another path",
            ),
            Error::MissingRow { table } => {
                write!(f, "a row of {table} is missing: is this a whole database of this workload?")
            }
            Error::AlwaysConflicts { attempts } => {
                write!(f, "a transaction met a conflict {attempts} times: use fewer clients")
            }
            Error::MalformedRow { table } => {
                write!(
                    f,
                    "a row of {table} has the wrong length: is this a database of this workload?"
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Engine(error) => Some(error),
            Error::Stopped(stopped) => Some(stopped),
            _ => None,
        }
    }
}

impl From<terrace::Error> for Error {
    fn from(error: terrace::Error) -> Error {
        Error::Engine(error)
    }
}

impl From<Stopped> for Error {
    fn from(stopped: Stopped) -> Error {
        Error::Stopped(stopped)
    }
}

impl From<UnknownName> for Error {
    fn from(unknown: UnknownName) -> Error {
        Error::UnknownName(unknown)
    }
}

impl From<UnknownPreset> for Error {
    fn from(unknown: UnknownPreset) -> Error {
        Error::UnknownPreset(unknown)
    }
}
