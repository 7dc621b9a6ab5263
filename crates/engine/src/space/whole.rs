//! Runs of whole extents for large values: taken, made shorter, freed. What a run is of is listed
//! in a page of its tree, which the caller changes in the same nested action.

use std::ops::Range;

use terrace_page::PageId;
use terrace_pool::PageMut;

use super::{
    EXTENT_PAGES, EXTENTS_PER_MAP, FREED_MAX, FULL, NOBODY, Purpose, SEARCHES_MAX, Space, entry,
    extent_of, extent_page, owner, put_entries,
};
use crate::writer::Writer;
use crate::{Error, Part, TreeId};

/// Extents that will be a tree's, all their pages used: their map is latched, nothing has changed
/// yet.
pub(crate) struct Taking<'s> {
    space: &'s Space,
    map: PageMut<'s>,
    tree: TreeId,
    run: Range<u64>,
}

/// Pages next to each other that will be free: their map is latched, nothing has changed yet.
pub(crate) struct Giving<'s> {
    space: &'s Space,
    map: PageMut<'s>,
    tree: TreeId,
    first_extent: u64,
    entries: Vec<(u32, u32)>,
    pages: u32,
}

impl Space {
    /// Finds a run of at most `length` free extents for `tree`.
    ///
    /// # Errors
    ///
    /// `HomeFull`, those of the pool and of `Writer::change`.
    pub(crate) fn taking<W: Writer>(
        &self,
        w: &mut W,
        tree: TreeId,
        length: u64,
    ) -> Result<Taking<'_>, Error> {
        let length = length.clamp(1, EXTENTS_PER_MAP / 2);
        for _ in 0..SEARCHES_MAX {
            if let Some((map, run)) = self.promised_run(length, Purpose::Forward)? {
                return Ok(Taking { space: self, map, tree, run });
            }
            self.add_group(w, Purpose::Forward)?;
        }
        Err(Error::HOME_FULL)
    }

    /// Latches the map of the last of `count` pages from `first` on, which are `tree`'s, next to
    /// each other: of as many of them, from the end, as one nested action may free.
    ///
    /// # Errors
    ///
    /// Those of the pool; `Corrupt` if a page is not in use, or another tree's.
    pub(crate) fn giving(
        &self,
        tree: TreeId,
        first: PageId,
        count: u32,
    ) -> Result<Giving<'_>, Error> {
        let last = first.plus(u64::from(count) - 1);
        let last_extent = extent_of(last);
        let group = last_extent / EXTENTS_PER_MAP;
        let map = self.open_map(group)?;
        let first_extent = extent_of(first)
            .max(group * EXTENTS_PER_MAP)
            .max((last_extent + 1).saturating_sub(FREED_MAX as u64));
        let (mut entries, mut pages) = (Vec::new(), 0);
        for extent in first_extent..=last_extent {
            let from = first.0.max(extent_page(extent).0) - extent_page(extent).0;
            let to = last.0.min(extent_page(extent).0 + EXTENT_PAGES - 1) - extent_page(extent).0;
            let mask = (FULL << from) & (FULL >> (EXTENT_PAGES - 1 - to));
            let (owned_by, used) = entry(&map, extent);
            if owned_by != owner(tree) || used & mask != mask {
                let page = extent_page(extent).plus(from);
                let what = "its map says that it is not in use";
                return Err(Error::corrupt(Part::Home, page, what));
            }
            let left = used & !mask;
            entries.push(if left == 0 { (NOBODY, 0) } else { (owned_by, left) });
            pages += mask.count_ones();
        }
        Ok(Giving { space: self, map, tree, first_extent, entries, pages })
    }
}

impl Taking<'_> {
    /// The first page, and how many there are.
    pub(crate) fn pages(&self) -> (PageId, u32) {
        let count = (self.run.end - self.run.start) * EXTENT_PAGES;
        (extent_page(self.run.start), count as u32)
    }

    /// Marks them used, within the nested action that lists them. Keep it until that has ended.
    ///
    /// # Errors
    ///
    /// As `Writer::change`.
    pub(crate) fn take<W: Writer>(&mut self, w: &mut W) -> Result<(), Error> {
        let entries = vec![(owner(self.tree), FULL); (self.run.end - self.run.start) as usize];
        put_entries(w, &mut self.map, self.run.start, &entries)
    }

    /// Says that the nested action has ended.
    pub(crate) fn done(self) {
        self.space.give(self.tree, &self.run);
    }
}

impl Giving<'_> {
    /// How many pages they are.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Marks them free, within the nested action that lists them no more. Keep it until that has
    /// ended.
    ///
    /// # Errors
    ///
    /// As `Writer::change`.
    pub(crate) fn free<W: Writer>(&mut self, w: &mut W) -> Result<(), Error> {
        put_entries(w, &mut self.map, self.first_extent, &self.entries)
    }

    /// Says that the nested action has ended: others may find the pages.
    pub(crate) fn done(self) {
        let mut hints = self.space.hints.lock();
        hints.frees += 1;
        hints.free = hints.free.min(self.first_extent);
        let hint = hints.trees.entry(self.tree).or_default();
        hint.cursor = hint.cursor.min(self.first_extent);
    }
}
