//! TPC-H as VLDB 2010 ran it: queries with ranges, as an operational data store, or over dates in a
//! warehouse, one after the other [S4 4.2].
//!
//! What stands in the tables, what the queries do and which ranges they get is that of
//! [`terrace_trace::tpch`], which makes traces of the same queries without a database; here they
//! run, and their answers are held against those that are computed there. What is simplified there
//! is so here: what columns no query reads are padding, and correlated subqueries are not repeated.
//!
//! What is this engine's own:
//!
//! - A table is the B+-tree of its key: rows stand in the leaves, there is no index beside. Keys
//!   have eight bytes. Pages have 8 KiB, and are loaded nine tenths full, in the order of keys.
//! - Beside the eight tables there is the one secondary index that a query uses, of lines by part,
//!   unless lines lie by date.
//! - A scan reads ahead, by up to 32 leaves; a lookup waits for its page. One client has one read
//!   outstanding but for that. CPU time is not charged. Intermediate results are kept outside of
//!   the pool, as the paper kept temporary tables on another disk.
//! - Which of lookups and a scan costs less is decided by the same two figures, for the pages that
//!   the trees have here.
//!
//! Modules in reading order: `loading`; `steps`, how a query reads its tables; `run`.

mod loading;
mod run;
mod steps;

pub use run::{Answered, Loaded, TpchResult, load, run};

use terrace_trace::BadOption;
use terrace_trace::tpch::{Queries, Query, Rows, TpchWorkload};

/// All that decides the database and the queries.
#[derive(Clone, Debug)]
pub struct Config {
    seed: u64,
    workload: TpchWorkload,
    rows: Rows,
    queries: Vec<Query>,
}

impl Config {
    /// A database of `scale` GB of rows, the benchmark's scale factor, and a number of queries. The
    /// seed decides rows and queries as it does in a trace of the same workload.
    ///
    /// # Errors
    ///
    /// An option makes no sense.
    pub fn new(
        workload: TpchWorkload,
        scale: f64,
        queries: u32,
        seed: u64,
    ) -> Result<Config, BadOption> {
        let (rows, drawn) = Queries::new(workload, scale, seed)?;
        Ok(Config { seed, workload, rows, queries: drawn.take(queries as usize).collect() })
    }

    /// Bytes of the home that is kept in memory.
    #[must_use]
    pub fn home_bytes(&self) -> u64 {
        loading::home_bytes(&self.rows.sizes)
    }
}
