//! Random point reads, updates and scans: the engine's own speed.

use std::path::PathBuf;

use hdrhistogram::Histogram;
use terrace_rt::Nanos;

use crate::Error;

/// What the tasks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads one random row.
    Read,
    /// Replaces the value of one random row, and commits.
    Update,
    /// Reads `Config::scan_rows` rows from a random one on.
    Scan,
}

/// All that decides a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Decides the rows drawn.
    pub seed: u64,
    /// What the tasks do.
    pub operation: Operation,
    /// Rows: 5 million.
    pub rows: u64,
    /// Bytes of a value: 100. Keys have 8.
    pub value_bytes: usize,
    /// Rows of one scan: 100.
    pub scan_rows: u64,
    /// Pages in memory.
    pub memory_pages: u32,
    /// Where the database is; it is created if it is not there.
    pub path: PathBuf,
    /// Threads.
    pub threads: usize,
    /// Tasks, spread over the threads.
    pub tasks: usize,
    /// Measured time.
    pub duration: Nanos,
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Operations done in the measured time.
    pub operations: u64,
    /// Operations per second.
    pub operations_per_s: f64,
    /// Time of an operation in nanoseconds, one in 64 measured.
    pub latency_ns: Histogram<u64>,
    /// Times that an update was run again after a conflict.
    pub conflicts: u64,
    /// Share of page requests that memory served.
    pub memory_hit_ratio: f64,
    /// Pages read from home per second.
    pub home_reads_per_s: f64,
}

/// Loads the rows if they are not there, then runs the operation.
///
/// # Errors
///
/// Whatever the engine says of the path or of a device.
pub fn run(config: &Config) -> Result<RunResult, Error> {
    let _ = config;
    unimplemented!()
}
