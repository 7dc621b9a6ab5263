//! Power cuts at random moments, and the ledger that knows what must survive them.
//!
//! Modules in reading order:
//!
//! - `ledger`: the oracle. `scenario`: what a seed does. `mishaps`: what goes wrong beside power
//!   cuts. `client`: random transactions.
//! - `rig`: the devices. `round`: opens the database, holds it against the ledger, lets clients
//!   run until the power is cut. `space`: what is left of it all takes little.
//! - `matrix`: scripted paths, cut at every event at which a device changes.
//!
//! ```text
//!            +--> opening --> verifying --> running --> closing --+
//!            |       |            |            |           |      | no cut
//!            |       +------------+------+-----+-----------+      |
//!            |                           v power cut              |
//!            +---- the fault model decides what the devices keep <+
//! ```

pub mod ledger;
pub mod matrix;

mod client;
mod mishaps;
mod report;
mod rig;
mod round;
mod scenario;
mod space;

pub use mishaps::MishapCounts;
pub use report::{Cuts, Report};
pub use round::{run, run_fixed};
pub use scenario::{Fixed, OPEN_RESTARTS, Scenario};

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace::{ColdStart, Database, Error, Stats};
use terrace_rt::{LeafGuard, LeafMutex};

use ledger::{Failure, Ledger};

/// Where a round is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Opening,
    Verifying,
    Running,
    Closing,
}

/// The opening did without a cache that home and log contradict, and would have failed with it. A
/// cut and what befalls the flash meanwhile never come to that.
pub(crate) fn contradiction(db: &Database) -> Option<Failure> {
    let why = db.cold_start()?;
    let is_broken = matches!(why, ColdStart::Contradicted | ColdStart::LogLost);
    is_broken.then(|| Failure::Error(format!("an opening did without the flash: {why}")))
}

/// What clients and harness share; it outlives every world.
pub(crate) struct Shared {
    ledger: LeafMutex<Ledger>,
    failure: LeafMutex<Option<Failure>>,
    phase: LeafMutex<Phase>,
    mishaps: LeafMutex<MishapCounts>,
    /// Whether the engine may stop in this round (mishaps.I3), and whether it has.
    may_stop: AtomicBool,
    has_stopped: AtomicBool,
    checkpoints: AtomicU64,
    frames_dirty: AtomicU64,
    slots_dirty: AtomicU64,
}

impl Shared {
    fn new() -> Shared {
        Shared::with(Ledger::default())
    }

    /// Goes on with `ledger`.
    fn with(ledger: Ledger) -> Shared {
        Shared {
            ledger: LeafMutex::new(ledger),
            failure: LeafMutex::new(None),
            phase: LeafMutex::new(Phase::Opening),
            mishaps: LeafMutex::default(),
            may_stop: AtomicBool::new(false),
            has_stopped: AtomicBool::new(false),
            checkpoints: AtomicU64::new(0),
            frames_dirty: AtomicU64::new(0),
            slots_dirty: AtomicU64::new(0),
        }
    }

    fn ledger(&self) -> LeafGuard<'_, Ledger> {
        self.ledger.lock()
    }

    /// Notes what is wrong; the first finding counts.
    fn fail(&self, failure: Failure) {
        self.failure.lock().get_or_insert(failure);
    }

    fn has_failed(&self) -> bool {
        self.failure.lock().is_some()
    }

    /// Notes that a device has stopped the engine, or that it must not have.
    fn stopped_by(&self, error: &Error) {
        if !self.may_stop.load(Ordering::Relaxed) {
            return self.fail(Failure::Error(error.to_string()));
        }
        self.has_stopped.store(true, Ordering::Relaxed);
    }

    fn has_stopped(&self) -> bool {
        self.has_stopped.load(Ordering::Relaxed)
    }

    fn count(&self, add: impl FnOnce(&mut MishapCounts)) {
        add(&mut self.mishaps.lock());
    }

    /// The first finding, if there was one.
    fn found_nothing(&self) -> Result<(), Failure> {
        self.failure.lock().clone().map_or(Ok(()), Err)
    }

    /// The ledger as it is now, unless something was found.
    fn outcome(&self) -> Result<Ledger, Failure> {
        self.found_nothing().map(|()| self.ledger().clone())
    }

    fn enter(&self, phase: Phase) {
        *self.phase.lock() = phase;
    }

    fn enter_checkpoint(&self) {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
    }

    fn leave_checkpoint(&self) {
        self.checkpoints.fetch_sub(1, Ordering::Relaxed);
    }

    /// Remembers how much was dirty, for the count of cuts.
    fn note_stats(&self, stats: &Stats) {
        self.frames_dirty.store(stats.pool.frames_dirty, Ordering::Relaxed);
        self.slots_dirty.store(stats.pool.slots_dirty, Ordering::Relaxed);
    }

    /// Forgets what belongs to a world that is gone.
    fn reset(&self, may_stop: bool) {
        self.may_stop.store(may_stop, Ordering::Relaxed);
        self.has_stopped.store(false, Ordering::Relaxed);
        self.checkpoints.store(0, Ordering::Relaxed);
        self.note_stats(&Stats::default());
        self.enter(Phase::Opening);
    }
}
