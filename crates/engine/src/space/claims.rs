//! Which tree owns each page, as far as maps can still be read: for what is saved of a damaged
//! database.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use terrace_page::{Damage, PageBuf, PageId, PageKind, kind};
use terrace_pool::Recovered;

use super::blocks::tree_of;
use super::{
    EXTENT_PAGES, EXTENTS_PER_MAP, GROUP_PAGES, MAPS, NOBODY, Space, entry, extent_page, map_page,
    maps_told, owner,
};
use crate::TreeId;

/// Why a page may belong to a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// Its map cannot be read.
    Unknown,
    /// A whole map says that the tree uses it.
    Used,
}

/// A map, as far as it is there.
enum Map {
    Whole(Box<PageBuf>),
    Damaged,
    Blank,
}

impl Space {
    fn map(&self, group: u64) -> Map {
        match self.pool.read_damaged_ok(map_page(group)) {
            Ok(Recovered::Whole(page)) if kind(&page) == Some(PageKind::Map) => {
                Map::Whole(Box::new(*page))
            }
            Ok(Recovered::Damaged(_, _, Damage::Blank)) => Map::Blank,
            _ => Map::Damaged,
        }
    }

    /// The maps that there are or should be, by group. If the first one is lost, those that are
    /// not blank.
    fn maps(&self) -> impl Iterator<Item = (u64, Option<Box<PageBuf>>)> {
        let most = self.capacity.load(Ordering::Relaxed).div_ceil(GROUP_PAGES).max(1);
        let first = self.map(0);
        let count = match &first {
            Map::Whole(map) => Some(maps_told(map).clamp(1, most)),
            _ => None,
        };
        (0..count.unwrap_or(most)).filter_map(move |group| match self.map(group) {
            Map::Whole(map) => Some((group, Some(map))),
            Map::Blank if group > 0 && count.is_none() => None,
            Map::Damaged | Map::Blank => Some((group, None)),
        })
    }

    /// Shows `visit` all pages that may belong to `tree`.
    pub(crate) fn claims_of(&self, tree: TreeId, mut visit: impl FnMut(PageId, Claim)) {
        let end = self.capacity.load(Ordering::Relaxed);
        for (group, map) in self.maps() {
            for extent in group * EXTENTS_PER_MAP..(group + 1) * EXTENTS_PER_MAP {
                let first = extent_page(extent);
                if first.0 >= end {
                    break;
                }
                let (claim, used) = match &map {
                    None => (Claim::Unknown, u32::MAX),
                    Some(map) => match entry(map, extent) {
                        (owned_by, used) if owned_by == owner(tree) => (Claim::Used, used),
                        _ => continue,
                    },
                };
                (0..EXTENT_PAGES).filter(|bit| used & 1 << bit != 0).for_each(|bit| {
                    visit(first.plus(bit), claim);
                });
            }
        }
    }

    /// Shows `visit` the maps, and all pages that are in use by those that are whole.
    ///
    /// # Errors
    ///
    /// The first of `visit`.
    pub(crate) fn pages_in_use<E>(
        &self,
        mut visit: impl FnMut(PageId) -> Result<(), E>,
    ) -> Result<(), E> {
        for (group, map) in self.maps() {
            visit(map_page(group))?;
            let Some(map) = map else { continue };
            for extent in group * EXTENTS_PER_MAP..(group + 1) * EXTENTS_PER_MAP {
                let (owned_by, used) = entry(&map, extent);
                let is_used = |bit: &u64| used & 1 << bit != 0;
                if matches!(owned_by, NOBODY | MAPS) {
                    continue;
                }
                (0..EXTENT_PAGES)
                    .filter(is_used)
                    .try_for_each(|bit| visit(extent_page(extent).plus(bit)))?;
            }
        }
        Ok(())
    }

    /// Maps that cannot be read.
    pub(crate) fn damaged_maps(&self) -> Vec<PageId> {
        let damaged = self.maps().filter(|(_, map)| map.is_none());
        damaged.map(|(group, _)| map_page(group)).collect()
    }

    /// All trees that own an extent, by the maps that are whole.
    pub(crate) fn owners(&self) -> BTreeSet<TreeId> {
        let mut owners = BTreeSet::new();
        for (group, map) in self.maps() {
            let Some(map) = map else { continue };
            for extent in group * EXTENTS_PER_MAP..(group + 1) * EXTENTS_PER_MAP {
                let (owned_by, used) = entry(&map, extent);
                if !matches!(owned_by, NOBODY | MAPS) && used != 0 {
                    owners.insert(tree_of(TreeId(owned_by - 1)));
                }
            }
        }
        owners
    }
}
