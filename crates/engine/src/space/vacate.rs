//! Extents that are being vacated: values leave them for fuller ones (`btree::rewrite`).
//!
//! - V1: their free pages are taken last, before home grows: what moves, and what others put
//!   meanwhile, goes elsewhere.
//! - V2: a search that passes them by moves no hint up: there is something to find below.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use terrace_page::PageId;

use super::{EXTENT_PAGES, Extent, Space, extent_of};
use crate::TreeId;

/// Extents with at least this many used pages keep them.
pub(crate) const KEPT_FROM: u32 = EXTENT_PAGES as u32 / 4 * 3;

/// Extents of an owner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vacated(Arc<BTreeSet<u64>>);

impl Vacated {
    /// Those of `extents` whose pages find room in the others: the emptiest, but none that `stays`.
    pub(crate) fn of(mut extents: Vec<Extent>, stays: impl Fn(&Extent) -> bool) -> Vacated {
        extents.sort_by_key(|extent| (Reverse(extent.used.count_ones()), extent.first));
        let mut free: u32 = extents.iter().map(|extent| extent.used.count_zeros()).sum();
        let (mut moving, mut vacated) = (0, BTreeSet::new());
        for extent in extents.iter().rev() {
            let used = extent.used.count_ones();
            let left = free - extent.used.count_zeros();
            if used >= KEPT_FROM || moving + used > left {
                break;
            }
            if !stays(extent) {
                (free, moving) = (left, moving + used);
                vacated.insert(extent_of(extent.first));
            }
        }
        Vacated(Arc::new(vacated))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `page` is to go.
    pub(crate) fn has(&self, page: PageId) -> bool {
        self.has_extent(extent_of(page))
    }

    pub(super) fn has_extent(&self, extent: u64) -> bool {
        self.0.contains(&extent)
    }
}

/// Extents are being vacated until this is dropped.
#[must_use]
pub(crate) struct Vacating<'s> {
    space: &'s Space,
    owner: TreeId,
}

impl Drop for Vacating<'_> {
    fn drop(&mut self) {
        self.space.hints.lock().vacated.remove(&self.owner);
    }
}

impl Space {
    /// Vacates extents of `owner`: one compaction at a time.
    pub(crate) fn vacate(&self, owner: TreeId, extents: &Vacated) -> Vacating<'_> {
        self.hints.lock().vacated.insert(owner, extents.clone());
        Vacating { space: self, owner }
    }

    /// The extents of `owner` that are being vacated.
    pub(super) fn vacated(&self, owner: TreeId) -> Option<Vacated> {
        self.hints.lock().vacated.get(&owner).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(number: u64, used: u32) -> Extent {
        let used = if used == 32 { u32::MAX } else { (1 << used) - 1 };
        Extent { first: PageId(number * EXTENT_PAGES), used }
    }

    #[test]
    fn the_emptiest_go_as_far_as_the_others_have_room() {
        let of = |used: &[u32], stays: u64| {
            let extents = used.iter().zip(0..).map(|(&used, number)| extent(number, used));
            let vacated = Vacated::of(extents.collect(), |extent| extent_of(extent.first) == stays);
            vacated.0.iter().copied().collect::<Vec<_>>()
        };
        let nobody = u64::MAX;
        assert_eq!(of(&[], nobody), [0; 0]);
        assert_eq!(of(&[3], nobody), [0; 0], "nowhere to go");
        assert_eq!(of(&[3, 30], nobody), [0; 0], "two free pages for three");
        assert_eq!(of(&[3, 29], nobody), [0]);
        assert_eq!(of(&[3, 3, 3, 3], nobody), [1, 2, 3]);
        assert_eq!(of(&[3, 3, 3, 3], 2), [0, 1, 3], "what stays takes them in");
        assert_eq!(of(&[24, 24, 24, 24], nobody), [0; 0], "full enough");
        assert_eq!(of(&[32, 16, 16, 32, 1], nobody), [4]);
        assert_eq!(of(&[20, 20, 20], nobody), [2], "twenty for twelve and twelve");
    }
}
