//! The ERP star of VLDB 2010, section 5.1: a fact table, seven dimensions, twelve queries, and
//! streams that run each of them once [S4 5.1].
//!
//! ```text
//!   stream 1   q7 q3 q12 ...  -------->|           each in an order of its own, all at once,
//!   stream 2   q1 q9 q5 ...   ------------>|       from a cold start
//!   stream 8   q4 q12 q2 ...  ---------->|
//!                                          elapsed: the slowest
//! ```
//!
//! The paper gives sizes: rows of 176 bytes in 24 columns, 7 dimensions and 16 measures, seven
//! single indexes and a unique one of many parts, 3 GB of data and 2 of indexes, twelve queries,
//! two of them long, that touch 30% of it. It gives neither the schema nor the queries. What is
//! filled in here:
//!
//! - The rows of three years in the order of time; a tenth was posted up to a month late. Other
//!   dimensions are uniform and independent. The 24th column is the document's number.
//! - The queries ask for months of the last of the three years, so a third of the fact table, and
//!   for members of two other dimensions. Each is a star join by index: read the dimensions, take
//!   the rows' numbers from the indexes for each member chosen, intersect them, fetch the rows, sum
//!   a measure by an attribute of a dimension. Rows are fetched as the index of one of the
//!   dimensions has them, which are random reads; or, as an option, in the order of their numbers.
//! - Numbers of rows are kept outside of the pool, as the paper's temporary tables were kept on
//!   another disk and out of the tier.
//! - A stream has one read outstanding but for scans of indexes, which read ahead. Its CPU time is
//!   not charged.
//! - The numbers of customers and materials follow that of the rows, the other dimensions have
//!   fixed sizes; so a smaller database has queries of the same shares.
//!
//! Modules in reading order: `rows`, what is stored; `loading`; `queries`; `naive`, the same
//! answers without a database; `touched`, which pages are asked for; `run`.

mod loading;
mod naive;
mod queries;
mod rows;
mod run;
mod touched;

pub use queries::{Answer, Fetch, QUERIES, Query};
pub use rows::Dimension;
pub use run::{ErpResult, Fetches, Indexes, Loaded, Plan, StreamResult, load, run};

/// All that decides the database.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Decides the rows.
    pub seed: u64,
    /// Rows of the fact table: 1,600,000, a tenth of the paper's.
    pub facts: u32,
}

impl Config {
    /// Fewest rows of the fact table: one for a few days.
    pub const FACTS_MIN: u32 = 400;
    /// Most rows of the fact table, for which customers can be numbered.
    pub const FACTS_MAX: u32 = 50_000_000;
}

impl Default for Config {
    fn default() -> Config {
        Config { seed: 1, facts: 1_600_000 }
    }
}
