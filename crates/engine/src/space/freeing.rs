//! Freeing: pages of a tree, and extents of which it uses none.

use terrace_page::PageId;
use terrace_pool::PageMut;

use super::{
    EXTENT_PAGES, EXTENTS_PER_MAP, FREED_MAX, NOBODY, Space, entry, extent_of, owner, put_entries,
};
use crate::writer::Writer;
use crate::{Error, Part, TreeId};

/// Pages of one extent that will be freed: their map is latched, nothing has changed yet.
pub(crate) struct Freeing<'s> {
    space: &'s Space,
    map: PageMut<'s>,
    extent: u64,
    tree: TreeId,
    entry: (u32, u32),
}

impl Freeing<'_> {
    /// Marks them free, within the nested action that unlinks them. Keep it until that has ended.
    ///
    /// # Errors
    ///
    /// As `Writer::change`.
    pub(crate) fn free<W: Writer>(&mut self, w: &mut W) -> Result<(), Error> {
        put_entries(w, &mut self.map, self.extent, &[self.entry])
    }

    /// Says that the nested action has ended: others may find the pages.
    pub(crate) fn done(self) {
        let mut hints = self.space.hints.lock();
        hints.frees += 1;
        if self.entry.0 == NOBODY {
            hints.free = hints.free.min(self.extent);
        }
        let hint = hints.trees.entry(self.tree).or_default();
        hint.cursor = hint.cursor.min(self.extent);
    }
}

impl Space {
    /// Latches the map of `pages`, which belong to `tree` and lie in one extent. Nothing has
    /// changed until `Freeing::free`.
    ///
    /// # Errors
    ///
    /// Those of the pool; `Corrupt` if a page is not in use, or another tree's.
    pub(crate) fn freeing(&self, tree: TreeId, pages: &[PageId]) -> Result<Freeing<'_>, Error> {
        let extent = extent_of(pages[0]);
        let map = self.open_map(extent / EXTENTS_PER_MAP)?;
        let (owned_by, mut used) = entry(&map, extent);
        for page in pages {
            assert_eq!(extent_of(*page), extent, "pages of one extent");
            let bit = 1 << (page.0 % EXTENT_PAGES);
            if owned_by != owner(tree) || used & bit == 0 {
                let what = "its map says that it is not in use";
                return Err(Error::corrupt(Part::Home, *page, what));
            }
            used &= !bit;
        }
        let entry = if used == 0 { (NOBODY, 0) } else { (owned_by, used) };
        Ok(Freeing { space: self, map, extent, tree, entry })
    }

    /// Frees extents of `tree` from the extent `from` on, at most what one nested action may free:
    /// no task may be in the tree, and no undo may come. Returns where to go on, if anywhere.
    ///
    /// # Errors
    ///
    /// Those of the pool and of `Writer::change`.
    pub(crate) fn free_some<W: Writer>(
        &self,
        w: &mut W,
        tree: TreeId,
        from: u64,
    ) -> Result<Option<u64>, Error> {
        self.free_extents(w, tree, from, |_| true)
    }

    /// As `free_some`, of extents that `tree` was given ahead, and of which no page is used. Others
    /// may be in the tree, which gets shorter runs again.
    ///
    /// # Errors
    ///
    /// As `free_some`.
    pub(crate) fn free_unused<W: Writer>(
        &self,
        w: &mut W,
        tree: TreeId,
        from: u64,
    ) -> Result<Option<u64>, Error> {
        if let Some(hint) = self.hints.lock().trees.get_mut(&tree) {
            hint.taken = 0;
        }
        self.free_extents(w, tree, from, |used| used == 0)
    }

    fn free_extents<W: Writer>(
        &self,
        w: &mut W,
        tree: TreeId,
        from: u64,
        is_free: impl Fn(u32) -> bool,
    ) -> Result<Option<u64>, Error> {
        let groups = self.groups()?;
        for group in from / EXTENTS_PER_MAP..groups {
            let mut map = self.open_map(group)?;
            let end = (group + 1) * EXTENTS_PER_MAP;
            let first = from.max(group * EXTENTS_PER_MAP);
            let goes = |extent: &u64| {
                let (owned_by, used) = entry(&map, *extent);
                owned_by == owner(tree) && is_free(used)
            };
            let found: Vec<u64> = (first..end).filter(goes).take(FREED_MAX).collect();
            let Some(&last) = found.last() else { continue };
            let nested = w.begin_nested();
            for extent in &found {
                put_entries(w, &mut map, *extent, &[(NOBODY, 0)])?;
            }
            w.end_nested(nested)?;
            drop(map);
            let mut hints = self.hints.lock();
            hints.frees += 1;
            hints.free = hints.free.min(found[0]);
            return Ok(Some(last + 1));
        }
        Ok(None)
    }
}
