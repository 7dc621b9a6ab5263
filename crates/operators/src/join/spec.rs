//! What is joined, and what came of it.

use std::sync::Arc;

use super::record::Carry;
use crate::Error;
use crate::cpu::Cpu;
use crate::fetch::{Freshness, Projection};
use crate::plan::Plan;
use crate::spill::Spill;
use crate::table::Input;

/// A table of a join.
#[derive(Clone)]
pub struct Side {
    /// Its rows, and what they are joined on.
    pub input: Input,
    /// What the caller wants of each row.
    pub projection: Arc<dyn Projection>,
}

/// Who gets the rows of a join.
pub trait Consumer: Send + Sync {
    /// Takes a pair: the value that both rows have, and what is wanted of each. Several tasks may
    /// call at once.
    ///
    /// # Errors
    ///
    /// Any: it ends the join.
    fn take(&self, value: i64, build: &[u8], probe: &[u8]) -> Result<(), Error>;
}

impl<F: Fn(i64, &[u8], &[u8]) -> Result<(), Error> + Send + Sync> Consumer for F {
    fn take(&self, value: i64, build: &[u8], probe: &[u8]) -> Result<(), Error> {
        self(value, build, probe)
    }
}

/// A join.
#[derive(Clone)]
pub struct Join {
    /// The table that is hashed: the smaller one.
    pub build: Side,
    /// The table that is probed with.
    pub probe: Side,
    /// What is kept of a row.
    pub carry: Carry,
    /// How the tables are scanned.
    pub plan: Plan,
    /// The processor.
    pub cpu: Cpu,
    /// Memory in bytes.
    pub memory: u64,
    /// Buckets, a power of two; `None` for as many as suit the first table.
    pub buckets: Option<u64>,
    /// Where goes what does not fit in memory.
    pub spill: Spill,
}

/// What a join has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// Pairs that the caller got.
    pub rows: u64,
    /// Partitions that did not fit in memory, of all.
    pub spilled: u64,
    /// All partitions.
    pub partitions: u64,
    /// How often a partition was loaded, in whole or in part.
    pub loads: u64,
    /// Bytes that were written.
    pub spilled_bytes: u64,
    /// The most memory that was in use.
    pub peak_bytes: u64,
    /// How rows were found.
    pub freshness: Freshness,
}
