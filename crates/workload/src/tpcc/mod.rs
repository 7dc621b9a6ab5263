//! TPC-C, whole: nine tables, five transactions, twelve consistency conditions.
//!
//! Clauses are those of the TPC Benchmark C Standard Specification, revision 5.11. Modules in
//! reading order:
//!
//! - `config`, `results`: what a run assumes and what it found.
//! - `schema`, `rows`: tables, keys, columns. `random`, `population`: the rows of a new database.
//! - `input`: what terminals ask for. `transactions`: how it is done. `terminal`: what sends the
//!   requests.
//! - `consistency`: the twelve conditions.
//! - `loading`, `measure`, `driver`: loads a database once and runs designs on it.
//!
//! What differs from the specification, beside the mix of the papers (45/43/4/4/4):
//!
//! - There are no screens, and by default no keying and think times: a closed loop keeps the
//!   devices busy. So `tpmC` is New-Orders per minute, not a figure that the TPC would accept.
//! - By default each transaction draws its warehouse, and Stock-Level its district.
//! - HISTORY has a key (its date and its terminal), since an ordered table must have one.
//! - A Delivery is ten transactions, one for each district (clause 2.7.4.2 allows it); its result
//!   is counted, not written to a file.

pub mod config;
pub mod consistency;
pub mod driver;
pub mod input;
mod loading;
mod measure;
pub mod population;
pub mod random;
pub mod results;
pub mod rows;
pub mod schema;
mod terminal;
pub mod transactions;

pub use config::{Checks, Config, CpuCosts, Pacing, Start, StockLevelScope, WarehouseChoice};
pub use driver::{Loaded, load, run};
pub use input::{Kind, Mix};
pub use loading::{estimated_bytes, populate};
pub use measure::measure;
pub use population::Scale;
pub use results::{KindCounts, Progress, RunResult};
