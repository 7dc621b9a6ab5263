//! Operators over tables in pages that keep all parallel units of a flash drive busy: ParaScan and
//! its family, after Fan, Lai, Meng, "Optimizing database operators by exploiting internal
//! parallelism of solid state drives" (IEEE Data Engineering Bulletin, June 2014).
//!
//! Modules in reading order:
//!
//! - `table`: what the operators ask of a table: pages, columns, predicates, as small traits.
//!   `row_page`: pages of rows of one length.
//! - `plan`: domains, tasks and ScanBuffers of a scan. `choice`: the plan that suits a device.
//!   `race`: which of two ways is faster.
//! - `scan`: ParaScan. `feed`: which task reads which unit next. `team`: tasks that end together.
//! - `aggregate`: ParaAggr. `sort`: ParaSort. `join`: ParaHashJoin, NewHashJoin, TradHashJoin.
//!   `fetch`: rows of RIDs.
//! - `budget`: memory, counted. `spill`: blocks on a device, for what does not fit in it.
//! - `cpu`: the cost of each step, by name. `error`.
//! - `trials`: the measurements of the paper.
//!
//! Everything runs on `rt` tasks, in the virtual and the real world.

#![forbid(unsafe_code)]

mod table;

mod row_page;

mod choice;
mod plan;
mod race;

mod scan;

mod aggregate;
mod join;
mod sort;

mod fetch;

mod budget;
mod spill;

mod feed;
mod team;

mod cpu;
mod error;

pub mod trials;

#[cfg(test)]
mod tests;

pub use aggregate::{Aggregated, Function, aggregate};
pub use choice::{Choice, Found, choose};
pub use cpu::{COSTS, Cost, Cpu, Step, Work};
pub use error::Error;
pub use fetch::{Fields, Freshness, Projection};
pub use join::{Carry, Consumer, Join, Joined, Side, hash_join};
pub use plan::{Plan, degree};
pub use row_page::RowPages;
pub use scan::{PageRows, scan};
pub use sort::{Sort, Sorted, sort};
pub use spill::Spill;
pub use table::{Attribute, Checked, Column, Input, PageNo, Pages, Predicate, Rid, Table, Version};
