//! How trees see through a snapshot.

use std::ops::Bound;
use std::sync::Arc;

use terrace_page::{Lsn, PageBuf, lsn};
use terrace_pool::Mutation;
use terrace_rt::{Nanos, maybe_switch, sleep};

use super::part::{Record, Row, Seen};
use super::spill::{Chunk, Order};
use super::{Snapshot, Versions};
use crate::{Error, TreeId};

/// A snapshot, and the versions that it needs.
#[derive(Clone, Copy)]
pub(crate) struct View<'v> {
    versions: &'v Versions,
    snapshot: &'v Snapshot,
}

impl<'v> View<'v> {
    pub(crate) fn new(versions: &'v Versions, snapshot: &'v Snapshot) -> View<'v> {
        View { versions, snapshot }
    }

    /// Whether the snapshot sees all rows of a latched leaf as they are there, and no others
    /// (versions.V3). If not, they are looked up with `see` and `graves`, under the same latch.
    #[inline]
    pub(crate) fn is_current(&self, leaf: &PageBuf) -> bool {
        if self.is_old(leaf) {
            return true;
        }
        self.versions.sort_in_for(lsn(leaf));
        false
    }

    /// Whether all changes of a latched leaf ended before the snapshot began, by its LSN alone:
    /// then it sees the leaf's rows as they are there, and no others.
    #[inline]
    pub(crate) fn is_old(&self, leaf: &PageBuf) -> bool {
        lsn(leaf) < self.snapshot.low
    }

    /// Whether the snapshot was ended: what was seen since then is nothing.
    pub(crate) fn is_ended(&self) -> bool {
        self.snapshot.is_ended()
    }

    /// Why it was ended.
    pub(crate) fn why_ended(&self) -> Error {
        self.snapshot.why_ended()
    }

    /// What it sees of a row, of which a latched leaf has `current`; an older record, flags first,
    /// goes to `out`. What is spilled goes before it, if that is of a change that ended before what
    /// comes with it.
    #[inline]
    pub(crate) fn see(
        &self,
        tree: TreeId,
        key: &[u8],
        current: Option<Record<'_>>,
        out: &mut Vec<u8>,
    ) -> (Seen, Lsn) {
        let row = Row::new(tree, key);
        let part = self.versions.part(&row).lock();
        part.see(self.snapshot.at, &row, current, out).unwrap_or_else(|| {
            // The snapshot was ended: its reads get nothing, and an error before the caller sees
            // that.
            assert!(self.is_ended(), "what a snapshot may see is kept");
            (Seen::Absent, Lsn::MAX)
        })
    }

    /// Whether versions are spilled that it may see: asked after what is in memory was looked at
    /// (spill.T1).
    #[inline]
    pub(crate) fn has_spilled(&self) -> bool {
        self.versions.spill.as_ref().is_some_and(|spill| spill.may_have(self.snapshot.at))
    }

    /// For tests that turn rules off: what is spilled is looked at before what is in memory.
    #[inline]
    pub(crate) fn look_early(
        &self,
        row: (TreeId, &[u8]),
    ) -> Option<Result<Option<Option<Vec<u8>>>, Error>> {
        if !self.versions.mutations.has(Mutation::LookAtSpilledFirst) {
            return None;
        }
        let spilled = self.spilled(row, Lsn::MAX);
        (0..8).for_each(|_| maybe_switch());
        Some(spilled)
    }

    /// For tests that turn rules off: a page is latched while runs are read.
    #[inline]
    pub(crate) fn reads_latched(&self) -> bool {
        self.versions.mutations.has(Mutation::ReadRunsLatched)
    }

    /// What it sees of a row that is spilled: `None`, if nothing counts that is. `bound` is what
    /// `see` has returned. Called without latches (spill.T2).
    ///
    /// # Errors
    ///
    /// `SnapshotLost`.
    pub(crate) fn spilled(
        &self,
        (tree, key): (TreeId, &[u8]),
        bound: Lsn,
    ) -> Result<Option<Option<Vec<u8>>>, Error> {
        let Some(spill) = &self.versions.spill else { return Ok(None) };
        self.pause_between_looks();
        let row = Row::new(tree, key);
        let found = spill.find(self.snapshot.at, self.versions.number_of_part(&row), &row);
        let found = found.map_err(|error| self.lost(error))?;
        Ok(found.filter(|(ended, _)| self.counts((tree, key), bound, *ended)).map(|(_, row)| row))
    }

    /// Whether what is spilled of a row counts, of a change that ended at `ended`, where a look at
    /// what is in memory gave `bound` before runs were looked at (spill.T6).
    pub(crate) fn counts(&self, (tree, key): (TreeId, &[u8]), bound: Lsn, ended: Lsn) -> bool {
        let keeps_first = self.versions.mutations.has(Mutation::KeepFirstBound);
        ended < bound && (keeps_first || ended < self.bound(tree, key))
    }

    /// The memory was looked at, and runs are about to be: other tasks may change both.
    fn pause_between_looks(&self) {
        const LONG: Nanos = Nanos::from_millis(50);
        if self.versions.mutations.has(Mutation::KeepFirstBound) {
            sleep(LONG);
        }
        maybe_switch();
    }

    /// What it sees of rows that are spilled, of a range of keys, from one end of it on. Called
    /// without latches.
    ///
    /// # Errors
    ///
    /// `SnapshotLost`.
    pub(crate) fn spilled_in(
        &self,
        tree: TreeId,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
    ) -> Result<Chunk, Error> {
        let Some(spill) = &self.versions.spill else { return Ok(Chunk::new()) };
        self.pause_between_looks();
        spill.range(self.snapshot.at, tree, bounds, order).map_err(|error| self.lost(error))
    }

    /// The bound that `see` returns, of a row that is in no leaf.
    pub(crate) fn bound(&self, tree: TreeId, key: &[u8]) -> Lsn {
        let row = Row::new(tree, key);
        self.versions.part(&row).lock().bound(self.snapshot.at, &row)
    }

    /// What is spilled cannot be read (spill.T5).
    #[cold]
    fn lost(&self, error: std::io::Error) -> Error {
        if self.versions.spill.as_ref().is_some_and(|spill| spill.is_released()) {
            return Error::Closed;
        }
        self.versions.snapshots.lose(self.snapshot, Arc::new(error));
        self.why_ended()
    }

    /// Keys of `tree` between the bounds whose ghosts were purged, in order.
    pub(crate) fn graves(
        &self,
        tree: TreeId,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Vec<Box<[u8]>> {
        self.versions.graves(tree, bounds)
    }
}
