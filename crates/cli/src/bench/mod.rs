//! `terrace bench`: measures.

mod points;
mod probe;
pub mod restart;
mod run_of;
mod settings;
mod system;
mod tpcc;

pub use points::points;
pub use restart::restart;
pub use tpcc::tpcc;
