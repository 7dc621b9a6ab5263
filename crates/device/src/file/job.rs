//! What one request asks of a file.

use crate::{Op, Operation};

/// What a transfer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    Read,
    Write,
    Sync,
    /// Gets room for this many bytes, which do not change.
    Reserve {
        len: u64,
    },
    /// Makes a file this long, durably.
    Grow {
        len: u64,
    },
    /// Gives the room of this many bytes back.
    Punch {
        len: u64,
    },
}

impl Job {
    pub(crate) fn of(op: Op) -> Job {
        match op {
            Op::Read => Job::Read,
            Op::Write => Job::Write,
        }
    }

    /// What errors call it.
    pub(crate) fn operation(self) -> Operation {
        match self {
            Job::Read => Op::Read.operation(),
            Job::Write => Op::Write.operation(),
            Job::Sync => Operation::Sync,
            Job::Reserve { .. } => Operation::Reserve,
            Job::Grow { .. } => Operation::Grow,
            Job::Punch { .. } => Operation::Punch,
        }
    }
}
