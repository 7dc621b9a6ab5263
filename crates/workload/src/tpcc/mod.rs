//! TPC-C, whole: nine tables, five transactions, twelve consistency conditions.
//!
//! Clauses are those of the TPC Benchmark C Standard Specification, revision 5.11.
//!
//! Modules in reading order:
//!
//! - `config`, `results`: what a run assumes and what it found.
//! - `schema`, `rows`: tables, keys, columns. `random`, `population`: the rows of a new database.
//! - `input`: what terminals ask for.
//! - `driver`: loads a database once and runs designs on it.

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

pub use config::{
    Checks, Config, CpuCosts, Durability, Pacing, Place, StockLevelScope, WarehouseChoice,
};
pub use driver::{Loaded, load, run};
pub use input::{Kind, Mix};
pub use loading::populate;
pub use measure::measure;
pub use population::Scale;
pub use results::{Consistency, DeviceSample, DeviceUse, KindCounts, Progress, RunResult, Window};
