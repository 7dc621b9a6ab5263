//! Binary formats, one file each.

mod oracle_general;
mod vscsi;

pub use oracle_general::OracleGeneral;
pub use vscsi::Vscsi;
