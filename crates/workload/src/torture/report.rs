//! What tortures found.

use super::ledger::Failure;
use super::mishaps::MishapCounts;

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
    /// While it was held against the ledger.
    pub in_verification: u64,
    /// While clients ran.
    pub in_run: u64,
    /// Of `in_run`, those while a checkpoint ran as well.
    pub in_checkpoint: u64,
    /// While it was closed.
    pub in_close: u64,
    /// After which the flash came back blank, or as of an earlier day.
    pub with_flash_wiped: u64,
    /// Pages, or parts of one, that were written and not synced, and are gone.
    pub pages_dropped: u64,
    /// Those of which some sectors are gone.
    pub pages_torn: u64,
}

impl Cuts {
    /// All that befell the devices: cuts, what each page lost, and flashes that were wiped.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.total + self.pages_dropped + self.pages_torn + self.with_flash_wiped
    }
}

/// What a torture found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// When the power was cut.
    pub cuts: Cuts,
    /// What else went wrong.
    pub mishaps: MishapCounts,
    /// Transactions that were acknowledged.
    pub commits: u64,
    /// Transactions that were lost as their commit allows: buffered, or in flight.
    pub losses_allowed: u64,
    /// Restarts whose database was held against the ledger.
    pub verified: u64,
    /// Openings that were refused, since the flash that was needed was not there.
    pub refused: u64,
    /// What was wrong, with the seed that repeats it.
    pub failures: Vec<(u64, Failure)>,
}

impl Report {
    /// Adds what another seed found.
    pub fn add(&mut self, other: Report) {
        let Cuts {
            total,
            with_dirty_pages,
            with_dirty_flash,
            with_io_in_flight,
            in_creation,
            in_recovery,
            in_verification,
            in_run,
            in_checkpoint,
            in_close,
            with_flash_wiped,
            pages_dropped,
            pages_torn,
        } = other.cuts;
        let cuts = &mut self.cuts;
        cuts.total += total;
        cuts.with_dirty_pages += with_dirty_pages;
        cuts.with_dirty_flash += with_dirty_flash;
        cuts.with_io_in_flight += with_io_in_flight;
        cuts.in_creation += in_creation;
        cuts.in_recovery += in_recovery;
        cuts.in_verification += in_verification;
        cuts.in_run += in_run;
        cuts.in_checkpoint += in_checkpoint;
        cuts.in_close += in_close;
        cuts.with_flash_wiped += with_flash_wiped;
        cuts.pages_dropped += pages_dropped;
        cuts.pages_torn += pages_torn;
        self.mishaps.add(other.mishaps);
        self.commits += other.commits;
        self.losses_allowed += other.losses_allowed;
        self.verified += other.verified;
        self.refused += other.refused;
        self.failures.extend(other.failures);
    }

    /// The command that repeats the torture of `seed`.
    pub fn command(seed: u64) -> String {
        format!("terrace torture --seed {seed}")
    }
}
