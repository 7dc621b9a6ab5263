//! The pages in use, group by group: for a copy of the database that is made while it is used.

use std::ops::Range;

use terrace_page::{Lsn, PageId, PageKind, kind};

use super::blocks::{blocks_of, tree_of};
use super::{
    EXTENT_PAGES, EXTENTS_PER_MAP, GROUP_PAGES, MAPS, NOBODY, Space, entry, extent_of, extent_page,
    group_of, map_page,
};
use crate::{Error, Part, TreeId};

/// To whom a page belongs that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A node, or another page of a tree.
    Tree(TreeId),
    /// A page among the blocks of a tree.
    Blocks(TreeId),
}

/// The pages of a group that are in use.
pub(crate) struct InUse {
    /// In ascending order, the map's own among them.
    pub(crate) runs: Vec<Range<u64>>,
    /// Where the log ended while the map was latched.
    pub(crate) at: Lsn,
}

/// The number of the group of a page.
pub(crate) fn group_number(page: PageId) -> u64 {
    page.0 / GROUP_PAGES
}

impl Space {
    /// How many groups have a map.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub(crate) fn groups_mapped(&self) -> Result<u64, Error> {
        self.groups()
    }

    /// The pages of `group` that are in use; `end` tells where the log ends.
    ///
    /// # Errors
    ///
    /// Those of the pool, `Corrupt`.
    pub(crate) fn in_use(&self, group: u64, end: impl FnOnce() -> Lsn) -> Result<InUse, Error> {
        let id = map_page(group);
        let map = self.pool.read(id)?;
        if kind(&map) != Some(PageKind::Map) {
            return Err(Error::corrupt(Part::Home, id, "it should be an allocation map"));
        }
        let mut runs: Vec<Range<u64>> = Vec::new();
        runs.push(id.0..id.0 + 1);
        let mut add = |page: u64| match runs.last_mut() {
            Some(last) if last.end == page => last.end = page + 1,
            _ => runs.push(page..page + 1),
        };
        for extent in group * EXTENTS_PER_MAP..(group + 1) * EXTENTS_PER_MAP {
            let (owned_by, used) = entry(&map, extent);
            if matches!(owned_by, NOBODY | MAPS) {
                continue;
            }
            let first = extent_page(extent).0;
            (0..EXTENT_PAGES).filter(|bit| used & 1 << bit != 0).for_each(|bit| add(first + bit));
        }
        Ok(InUse { runs, at: end() })
    }

    /// To whom `page` belongs, if it is in use, and where the log ends meanwhile, as `end` tells.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub(crate) fn holder(
        &self,
        page: PageId,
        end: impl FnOnce() -> Lsn,
    ) -> Result<(Option<Holder>, Lsn), Error> {
        let map = self.pool.read(map_page(group_of(page)))?;
        let (owned_by, used) = entry(&map, extent_of(page));
        if matches!(owned_by, NOBODY | MAPS) || used & 1 << (page.0 % EXTENT_PAGES) == 0 {
            return Ok((None, end()));
        }
        let (owner, tree) = (TreeId(owned_by - 1), tree_of(TreeId(owned_by - 1)));
        let is_of_blocks = owner == blocks_of(tree);
        let holder = if is_of_blocks { Holder::Blocks(tree) } else { Holder::Tree(tree) };
        Ok((Some(holder), end()))
    }
}
