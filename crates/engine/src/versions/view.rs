//! How trees see through a snapshot.

use std::ops::Bound;

use terrace_page::{PageBuf, lsn};

use super::part::{Record, Row, Seen};
use super::{Snapshot, Versions};
use crate::TreeId;

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
        let lsn = lsn(leaf);
        if lsn < self.snapshot.low {
            return true;
        }
        self.versions.sort_in_for(lsn);
        false
    }

    /// Whether the snapshot was ended: what was seen since then is nothing.
    pub(crate) fn is_ended(&self) -> bool {
        self.snapshot.is_ended()
    }

    /// What it sees of a row, of which a latched leaf has `current`; an older record, flags first,
    /// goes to `out`.
    #[inline]
    pub(crate) fn see(
        &self,
        tree: TreeId,
        key: &[u8],
        current: Option<Record<'_>>,
        out: &mut Vec<u8>,
    ) -> Seen {
        let row = Row::new(tree, key);
        let part = self.versions.part(&row).lock();
        part.see(self.snapshot.at, &row, current, out).unwrap_or_else(|| {
            // The snapshot was ended: its reads get nothing, and an error before the caller sees
            // that.
            assert!(self.is_ended(), "what a snapshot may see is kept");
            Seen::Absent
        })
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
