//! `terrace bench`: measures.

mod points;
mod probe;
mod run_of;
mod settings;
mod tpcc;

pub use points::points;
pub use tpcc::tpcc;
