//! Binary formats, one file each.

mod blktrace;
mod numbers;
mod oracle_general;
mod vscsi;

pub use blktrace::Blktrace;
pub use numbers::Numbers;
pub use oracle_general::OracleGeneral;
pub use vscsi::Vscsi;
