//! Loads a database once and runs designs on it.

use terrace_policy::Design;

use super::config::Config;
use super::results::{Consistency, Progress, RunResult};
use crate::Error;

/// A loaded database: cheap to clone, and sent to other threads, so that each run starts from its own copy.
/// In the real world each run loads its devices anew.
#[derive(Clone)]
pub struct Loaded {
    /// What it was loaded with.
    pub config: Config,
    /// Pages in use at home.
    pub home_pages: u64,
    /// Of `home_pages`, those of ITEM, whose size does not follow the number of warehouses.
    pub item_pages: u64,
    /// The twelve conditions after the load.
    pub consistency: Consistency,
}

/// Loads the database of `config`. `progress` is called with the rows loaded and their number.
///
/// # Errors
///
/// Presets that are not known, devices that cannot be opened or are too small.
pub fn load(config: &Config, progress: &mut dyn FnMut(u64, u64)) -> Result<Loaded, Error> {
    let _ = (config, progress);
    unimplemented!()
}

/// Runs `design` on a copy of `loaded`, for the time and with the clients of `config`, which may differ from
/// that of the load in all but scale and seed of the database. Blocks; a virtual run uses this thread only.
///
/// # Errors
///
/// Whatever stops the engine; a run whose database breaks a condition is no error but a result.
pub fn run(
    loaded: &Loaded,
    config: &Config,
    design: Design,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<RunResult, Error> {
    let _ = (loaded, config, design, progress);
    unimplemented!()
}
