//! The options with which benches record their page references: one place for all of them.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Args)]
#[command(next_help_heading = "Recording")]
pub struct RecordOptions {
    /// Record the page references of the run as a trace for `replay` and `advise`; compressed if
    /// the name ends in `.gz`. Needs exactly one design, restart, seed and number of streams
    #[arg(long, value_name = "FILE", global = true)]
    pub record: Option<PathBuf>,
    /// Where they are recorded
    #[arg(long, value_enum, default_value_t = RecordAt::References, requires = "record",
          global = true)]
    pub record_at: RecordAt,
}

/// Where page references are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RecordAt {
    /// Above memory: every page request; a request that changes the page is a write
    References,
    /// Below memory: every miss, and every dirty page that memory writes out
    Misses,
}
