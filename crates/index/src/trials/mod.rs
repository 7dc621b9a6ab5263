//! The measurements of Roh et al. (2014), on modelled drives in virtual time.
//!
//! `drives`: what they run on. `setup`: a structure with its parameters, loaded. `workload`: what
//! is asked of it. `tuning`: the search for parameters. `papers`: the figures of the paper.
//!
//! - M1: sizes keep the papers' ratios: entries to memory, operations to entries.
//! - M2: no structure has a journal here, as in the papers; what waits in memory at the end is
//!   flushed within the time.
//! - M3: the same seed gives the same times.

mod drives;
pub mod papers;
mod setup;
mod tuning;
mod workload;

#[cfg(test)]
mod tests;

pub use self::drives::Drive;
pub use self::setup::{KEPT_ENTRIES_MAX, Loaded, Scale, Setup};
pub use self::tuning::{Tuned, tune};
pub use self::workload::{Measured, Workload, measure};
