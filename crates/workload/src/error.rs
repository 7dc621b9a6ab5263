//! Why a workload could not go on.

use std::fmt;

/// One variant for each thing a caller can do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A stored row has not the length of its table's rows: the database is of another workload.
    MalformedRow {
        /// The table.
        table: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::MalformedRow { table } => {
                write!(f, "a row of {table} has the wrong length: is this a TPC-C database?")
            }
        }
    }
}

impl std::error::Error for Error {}
