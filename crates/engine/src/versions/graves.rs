//! Graves: keys of purged ghosts of which snapshots may see versions.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use terrace_pool::Mutation;

use super::{Record, Row, Versions, grave_bytes};
use crate::TreeId;

impl Versions {
    /// Nothing is kept of a row in memory.
    pub(super) fn forget_grave(&self, tree: TreeId, key: &[u8]) {
        let mut graves = self.graves.lock();
        if let Some(of_tree) = graves.get_mut(&tree) {
            if of_tree.remove(key) {
                self.bytes.fetch_sub(grave_bytes(key), Ordering::Relaxed);
            }
            if of_tree.is_empty() {
                graves.remove(&tree);
            }
        }
    }

    /// The row's ghost, which is `current` and not locked, is about to be purged (versions.V5).
    pub(crate) fn bury(&self, row: &Row<'_>, current: Record<'_>) {
        let keeping = self.keeping.load(Ordering::SeqCst);
        if self.number.load(Ordering::SeqCst) == 0 {
            // A snapshot that is opened from now on sees what has removed the row.
            return;
        }
        self.sort_in();
        let mut part = self.part(row).lock();
        // Once versions are being turned off, what is kept of the row may be of an older one.
        if keeping == 0 || self.keeping.load(Ordering::SeqCst) != keeping {
            return;
        }
        if self.change(&mut part, |part| part.bury(row, current))
            && !self.mutations.has(Mutation::PurgeWithoutGrave)
        {
            let mut graves = self.graves.lock();
            if graves.entry(row.tree).or_default().insert(row.key.into()) {
                self.bytes.fetch_add(grave_bytes(row.key), Ordering::Relaxed);
            }
        }
    }

    /// Keys of `tree` between the bounds whose ghosts were purged, in order.
    pub(super) fn graves(
        &self,
        tree: TreeId,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Vec<Box<[u8]>> {
        let graves = self.graves.lock();
        match graves.get(&tree) {
            Some(of_tree) => of_tree.range::<[u8], _>(bounds).cloned().collect(),
            None => Vec::new(),
        }
    }
}
