//! Power cuts at random moments, and the ledger that knows what must survive them.

pub mod ledger;

use ledger::Failure;

/// When the power was cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    /// All.
    pub total: u64,
    /// While pages in memory were newer than at home.
    pub with_dirty_pages: u64,
    /// While pages on flash were newer than at home.
    pub with_dirty_flash: u64,
    /// While a device had requests in flight.
    pub with_io_in_flight: u64,
    /// While the database was created.
    pub in_creation: u64,
    /// While it recovered from a cut before.
    pub in_recovery: u64,
    /// While clients ran.
    pub in_run: u64,
    /// While a checkpoint ran as well.
    pub in_checkpoint: u64,
    /// After which the flash was wiped.
    pub with_flash_wiped: u64,
}

/// What a torture found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// When the power was cut.
    pub cuts: Cuts,
    /// Transactions that were acknowledged.
    pub commits: u64,
    /// Transactions that were lost as their commit allows: buffered, or in flight.
    pub losses_allowed: u64,
    /// Restarts whose database was held against the ledger.
    pub verified: u64,
    /// What was wrong, each with the seed that repeats it: `terrace torture --seed S`.
    pub failures: Vec<(u64, Failure)>,
}

/// The torture that `seed` decides: its design, clients, devices and cuts.
pub fn run(seed: u64) -> Report {
    let _ = seed;
    unimplemented!()
}
