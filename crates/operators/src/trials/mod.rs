//! The measurements of Fan et al. (2014), on modelled drives in virtual time.
//!
//! `tables`: what is scanned and joined. `figures`: scans, joins and aggregates of the paper.
//! `steps`: what the steps of the operators cost on this machine.
//!
//! - M1: sizes keep the paper's ratios: rows to memory, one table to the other.
//! - M2: the same seed gives the same times.

pub mod figures;
pub mod steps;
pub mod tables;
