//! What the maps say as a whole: which trees own extents, and whether each map makes sense.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use terrace_page::{PageBuf, PageId, PageKind, kind};

use super::blocks::tree_of;
use super::{
    EXTENTS_PER_MAP, Extent, GROUP_PAGES, MAP_BITS, MAPS, NOBODY, Space, entry, extent_of,
    extent_page, group_of, map_page, maps_told, owner,
};
use crate::{Error, Part, TreeId};

impl Space {
    /// Checks every map by itself.
    ///
    /// # Errors
    ///
    /// `Corrupt` with the first map found wrong; those of the pool.
    pub(crate) fn check_maps(&self) -> Result<(), Error> {
        let capacity = self.capacity.load(Ordering::Relaxed);
        let groups = self.groups()?;
        if groups > capacity.div_ceil(GROUP_PAGES) {
            let what = "the first allocation map tells of more maps than home has pages for";
            return Err(Error::corrupt(Part::Home, map_page(0), what));
        }
        for group in 0..groups {
            let page = map_page(group);
            let map = self.pool.read(page)?;
            check_map(&map, group).map_err(|what| Error::corrupt(Part::Home, page, what))?;
        }
        Ok(())
    }

    /// The trees that own extents, in ascending order, and how many pages are in use.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub(crate) fn used(&self) -> Result<(BTreeSet<TreeId>, u64), Error> {
        let owners = self.used_by_owner()?;
        Ok((owners.keys().copied().collect(), owners.values().sum()))
    }

    /// The trees that own extents, and how many pages of each are used, its blocks included.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub(crate) fn used_by_owner(&self) -> Result<BTreeMap<TreeId, u64>, Error> {
        let mut owners = BTreeMap::new();
        for group in 0..self.groups()? {
            let map = self.pool.read(map_page(group))?;
            for extent in group * EXTENTS_PER_MAP..(group + 1) * EXTENTS_PER_MAP {
                let (owned_by, bits) = entry(&map, extent);
                if owned_by != NOBODY && owned_by != MAPS {
                    *owners.entry(tree_of(TreeId(owned_by - 1))).or_default() +=
                        u64::from(bits.count_ones());
                }
            }
        }
        Ok(owners)
    }

    /// The extents of `tree`, in order.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub(crate) fn extents_of(&self, tree: TreeId) -> Result<Vec<Extent>, Error> {
        let mut found = Vec::new();
        for group in 0..self.groups()? {
            found.extend(self.extents_in(tree, group, 0)?);
        }
        Ok(found)
    }

    /// Extents of `tree`, from that of the page `from` on, in order: those of the first group that
    /// has any.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub(crate) fn some_extents_of(&self, tree: TreeId, from: PageId) -> Result<Vec<Extent>, Error> {
        for group in group_of(from)..self.groups()? {
            let found = self.extents_in(tree, group, extent_of(from))?;
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    fn extents_in(&self, tree: TreeId, group: u64, from: u64) -> Result<Vec<Extent>, Error> {
        let map = self.open_map(group)?;
        let first = from.max(group * EXTENTS_PER_MAP);
        let extents = (first..(group + 1) * EXTENTS_PER_MAP).filter_map(|extent| {
            let (owned_by, used) = entry(&map, extent);
            (owned_by == owner(tree)).then_some(Extent { first: extent_page(extent), used })
        });
        Ok(extents.collect())
    }
}

/// What is wrong with the map of `group`.
pub(crate) fn check_map(map: &PageBuf, group: u64) -> Result<(), &'static str> {
    if kind(map) != Some(PageKind::Map) {
        return Err("it should be an allocation map");
    }
    let first = group * EXTENTS_PER_MAP;
    if (maps_told(map) == 0) != (group > 0) {
        return Err("an allocation map has the count of maps that another should have");
    }
    if entry(map, first) != (MAPS, MAP_BITS) {
        return Err("an allocation map does not hold its own page");
    }
    let mut others = first + 1..first + EXTENTS_PER_MAP;
    if others.any(|extent| matches!(entry(map, extent), (NOBODY, 1..) | (MAPS, _))) {
        return Err("an allocation map has pages in use that are nobody's");
    }
    Ok(())
}
