//! Workloads that drive the engine through its public API: they measure it, break it, and judge it.
//!
//! Modules in reading order:
//!
//! - `tpcc`: the benchmark of the papers, whole, with its consistency conditions.
//! - `torture`: power cuts in the virtual world, and the ledger that knows what must survive them.
//! - `points`: random reads, updates and scans of single rows.
//! - `history`: random transactions, and the checker that says whether they were serializable.
//!
//! Nothing here reads a clock, starts a thread or prints; a seed decides every result.

#![forbid(unsafe_code)]

mod error;
pub mod history;
pub mod points;
pub mod torture;
pub mod tpcc;

pub use error::Error;
