//! Moves: a page of a tree gets another place, in an extent that is the tree's already.

use terrace_page::PageId;
use terrace_pool::PageMut;

use super::{
    EXTENT_PAGES, EXTENTS_PER_MAP, FULL, NOBODY, Space, entry, extent_of, owner, put_entries,
};
use crate::writer::Writer;
use crate::{Error, Part, TreeId};

/// A page that will be used in place of another one: their maps are latched, nothing has changed
/// yet.
pub(crate) struct Moving<'s> {
    space: &'s Space,
    tree: TreeId,
    /// The lower one first, and one only if both pages have the same.
    maps: Vec<PageMut<'s>>,
    /// Extent, and its entry afterwards.
    from: (u64, (u32, u32)),
    to: (u64, (u32, u32)),
    page: PageId,
}

impl Space {
    /// Finds a place for `page` of `tree` in the extent of `place`: none if that has no free page,
    /// or is not the tree's any more.
    ///
    /// # Errors
    ///
    /// Those of the pool; `Corrupt` if the page is not in use.
    pub(crate) fn moving(
        &self,
        tree: TreeId,
        page: PageId,
        place: PageId,
    ) -> Result<Option<Moving<'_>>, Error> {
        let (from, to) = (extent_of(page), extent_of(place));
        assert_ne!(from, to, "a move to the same extent");
        let group = |extent: u64| extent / EXTENTS_PER_MAP;
        let (low, high) = (group(from).min(group(to)), group(from).max(group(to)));
        let mut maps = vec![self.open_map(low)?];
        if high != low {
            maps.push(self.open_map(high)?);
        }
        let find = |extent: u64| entry(&maps[usize::from(group(extent) != low)], extent);
        let (from_entry, to_entry) = (find(from), find(to));
        let bit = 1 << (page.0 % EXTENT_PAGES);
        if from_entry.0 != owner(tree) || from_entry.1 & bit == 0 {
            let what = "its map says that it is not in use";
            return Err(Error::corrupt(Part::Home, page, what));
        }
        if to_entry.0 != owner(tree) || to_entry.1 == FULL {
            return Ok(None);
        }
        let left = from_entry.1 & !bit;
        let from = (from, if left == 0 { (NOBODY, 0) } else { (from_entry.0, left) });
        let free = (!to_entry.1).trailing_zeros();
        let page = PageId(to * EXTENT_PAGES + u64::from(free));
        let to = (to, (to_entry.0, to_entry.1 | 1 << free));
        Ok(Some(Moving { space: self, tree, maps, from, to, page }))
    }
}

impl Moving<'_> {
    /// The new place.
    pub(crate) fn page(&self) -> PageId {
        self.page
    }

    /// Marks the new page used and the old one free, within the nested action that moves it. Keep
    /// it until that has ended.
    ///
    /// # Errors
    ///
    /// As `Writer::change`.
    pub(crate) fn put<W: Writer>(&mut self, w: &mut W) -> Result<(), Error> {
        let is_one = self.maps.len() == 1;
        for (extent, entry) in [self.from, self.to] {
            let is_low = extent == self.from.0.min(self.to.0);
            let map = &mut self.maps[usize::from(!is_one && !is_low)];
            put_entries(w, map, extent, &[entry])?;
        }
        Ok(())
    }

    /// Says that the nested action has ended: others may find the old page.
    pub(crate) fn done(self) {
        let is_free = self.from.1.0 == NOBODY;
        let mut hints = self.space.hints.lock();
        hints.frees += 1;
        if is_free {
            hints.free = hints.free.min(self.from.0);
        } else {
            let hint = hints.trees.entry(self.tree).or_default();
            hint.cursor = hint.cursor.min(self.from.0);
        }
    }
}
