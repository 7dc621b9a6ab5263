//! Which snapshots are open: what versions may go.

use terrace_page::Lsn;

/// The snapshots that were open at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Horizon {
    /// The log ended here before any of them was looked at: one that was opened since is not below.
    pub(super) as_of: Lsn,
    /// Where each is, ascending.
    pub(super) open: Vec<Lsn>,
}

impl Horizon {
    /// The oldest snapshot.
    pub(crate) fn oldest(&self) -> Option<Lsn> {
        self.open.first().copied()
    }

    /// One more position, as if a snapshot were there.
    pub(crate) fn keep(&mut self, at: Lsn) {
        self.open.push(at);
        self.open.sort_unstable();
    }

    /// Snapshots at `open`, in ascending order, where the log has ended at `as_of`.
    pub(crate) fn new(as_of: Lsn, open: Vec<Lsn>) -> Horizon {
        Horizon { as_of, open }
    }

    /// Each snapshot, of now or later, sees what ended before this.
    pub(crate) fn first(&self) -> Lsn {
        self.open.first().map_or(self.as_of, |&first| first.min(self.as_of))
    }

    /// Whether a snapshot, of now or later, may see the end of what ended at `older` and not that
    /// of what ended at `newer`: then it sees the row as it was in between.
    pub(crate) fn may_see(&self, older: Lsn, newer: Lsn) -> bool {
        if newer >= self.as_of {
            return true;
        }
        let first = self.open.partition_point(|&at| at <= older);
        self.open.get(first).is_some_and(|&at| at <= newer)
    }

    /// The newest snapshot that is not behind `at`.
    pub(super) fn last_up_to(&self, at: Lsn) -> Option<Lsn> {
        let count = self.open.partition_point(|&open| open <= at);
        count.checked_sub(1).map(|last| self.open[last])
    }
}
