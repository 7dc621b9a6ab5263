//! Workloads that drive the engine through its public API: they measure it, break it, and judge it.
//!
//! Modules in reading order:
//!
//! - `system`: what a workload runs on. `clients`: what workloads have in common. `sampling`:
//!   counters over time.
//! - `tpcc`: the benchmark of the papers, whole, with its consistency conditions.
//! - `brokerage`: read-intensive and synthetic, a stand-in for TPC-E.
//! - `erp`: a star schema and streams of queries, as in VLDB 2010.
//! - `tpch`: queries of TPC-H with ranges, one after the other, as in VLDB 2010.
//! - `steady`: one run of any workload.
//! - `restart`: runs a workload to its peak, stops it, and times the way back.
//! - `torture`: power cuts in the virtual world, and the ledger that knows what must survive them.
//! - `points`: random reads, updates and scans of single rows.
//! - `flash_table`: how long opening takes over the table of a large flash tier.
//! - `page_rates`: how often pages are missed and written while on flash, and while not.
//! - `page_trace`: the references of a trace through the buffer pool, on real files.
//! - `history`: random transactions, and the checker that says whether they were serializable.
//!
//! Nothing here reads a clock, starts a thread or prints; a seed decides every result.

#![forbid(unsafe_code)]

pub mod brokerage;
mod clients;
pub mod erp;
mod error;
pub mod flash_table;
pub mod history;
mod page_rates;
pub mod page_trace;
pub mod points;
pub mod restart;
pub mod sampling;
pub mod steady;
pub mod system;
pub mod torture;
pub mod tpcc;
pub mod tpch;

pub use clients::{Clients, Consistency, Part, Workload};
pub use error::Error;
pub use page_rates::{Compared, PageRates, Rates};
pub use system::{FLASH_BYTES_MIN, LogKept, PageRecording, Place, System};
