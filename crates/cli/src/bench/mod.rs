//! `terrace bench`: measures.

mod erp;
mod flash_table;
mod page_rates;
mod points;
mod probe;
pub mod restart;
mod run_of;
mod settings;
mod steady;
mod system;
mod tpcc;

pub use erp::erp;
pub use flash_table::flash_table;
pub use points::points;
pub use restart::restart;
pub use steady::steady;
pub use system::{flash_role, word};
pub use tpcc::tpcc;
