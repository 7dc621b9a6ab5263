//! The peak-to-peak interval [S3 I, IV]: a workload at its peak, a shutdown or a power cut,
//! recovery, and the way back to the peak.
//!
//! ```text
//!  part 0                  event                          part 1
//!  |-- clients ----------->|-- close --|   |-- open ----->|-- clients ---------------------->|
//!  cold              peak  | shutdown  | / |   recovery   |  ramp-up   | peak again     steady
//!                          | or a power cut: nothing      |
//!  virtual world 0                       world 1
//! ```
//!
//! - P1: the devices outlive the first world: home, log and flash hold in the second what they held
//!   at the end of the first, as the fault model leaves it. The second begins with an empty memory.
//! - P2: the clients of both parts draw from the same distributions, with the same hot set.
//! - P3: a run depends on nothing but what was loaded, its plan and its design.
//!
//! Images of whole pages are not logged here (see `System::builder`), so a cut ends writes between
//! pages only. The time at which the power is cut is measured from the end of a checkpoint, since
//! the age of the last one decides how much there is to redo.

mod result;
mod run;

pub use result::{Phase, Progress, RestartResult};
pub use run::{Loaded, load, run};

use terrace_rt::Nanos;

use crate::system::System;

/// What ends the first part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The clients finish, and the database is closed.
    Shutdown,
    /// The power is cut.
    Crash {
        /// So long after the end of a checkpoint, the first since the peak.
        after_checkpoint: Nanos,
    },
}

/// All that decides a run but its workload and its design.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it runs on, the restart included.
    pub system: System,
    /// Decides the order of events, and what the power cut leaves.
    pub seed: u64,
    /// What ends the first part.
    pub event: Event,
    /// Length of the first part, as far as it does not wait for a checkpoint.
    pub peak: Nanos,
    /// Length of the second part.
    pub after: Nanos,
    /// Throughput is sampled in windows of this length.
    pub window: Nanos,
    /// The last part of both that is averaged.
    pub averaged: Nanos,
    /// Share of the steady level before the event at which the throughput is back at its peak.
    pub peak_share: f64,
}
