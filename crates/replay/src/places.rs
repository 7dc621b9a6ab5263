//! Where pages lie at home: one line of addresses for all files, to tell runs and neighbours.
//!
//! - L1: pages of one file are as far apart as their numbers; files follow one another, with a gap
//!   wider than any neighbourhood.
//! - Cost: 16 bytes per page.
//! - Not for: objects, whose names are no addresses; then neighbours are chance.

use crate::References;
use std::collections::BTreeMap;
use terrace_page::PageId;
use terrace_policy::EXTENT_PAGES;

/// Pages between two files.
const GAP_PAGES: u64 = 1 << 10;

/// The places of all pages.
pub struct Places {
    places: Vec<u64>,
    /// Pages by place.
    order: Vec<u32>,
    ranks: Vec<u32>,
}

impl Places {
    /// The places of the pages of `references`.
    #[must_use]
    pub fn new(references: &References) -> Places {
        let pages = 0..references.pages_count();
        let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
        for name in pages.clone().map(|page| references.name(page)) {
            let end = ends.entry(name.file).or_default();
            *end = (*end).max(name.number.wrapping_add(1));
        }
        let mut base = 0u64;
        let mut bases = BTreeMap::new();
        for (file, end) in ends {
            bases.insert(file, base);
            base = base.wrapping_add(end).wrapping_add(GAP_PAGES);
        }
        let place = |page: u32| {
            let name = references.name(page);
            bases[&name.file].wrapping_add(name.number)
        };
        let places: Vec<u64> = pages.clone().map(place).collect();
        let mut order: Vec<u32> = pages.collect();
        order.sort_unstable_by_key(|&page| places[page as usize]);
        let mut ranks = vec![0; order.len()];
        for (rank, &page) in order.iter().enumerate() {
            ranks[page as usize] = rank as u32;
        }
        Places { places, order, ranks }
    }

    /// Where `page` lies, in pages.
    #[must_use]
    #[inline]
    pub fn of(&self, page: u32) -> PageId {
        PageId(self.places[page as usize])
    }

    /// The place behind the last page.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.order.last().map_or(0, |&page| self.of(page).0 + 1)
    }

    /// The page just after `page`, if the trace has it.
    #[must_use]
    pub fn after(&self, page: u32) -> Option<u32> {
        let next = *self.order.get(self.ranks[page as usize] as usize + 1)?;
        (self.of(next).0 == self.of(page).0.wrapping_add(1)).then_some(next)
    }

    /// The page just before `page`, if the trace has it.
    #[must_use]
    pub fn before(&self, page: u32) -> Option<u32> {
        let rank = self.ranks[page as usize] as usize;
        let previous = self.order[rank.checked_sub(1)?];
        (self.of(previous).0.wrapping_add(1) == self.of(page).0).then_some(previous)
    }

    /// Page ids in which each extent keeps its pages together, but extents are numbered without
    /// gaps: for tables of extents.
    #[must_use]
    pub fn by_extents(&self) -> Vec<PageId> {
        let mut ids = vec![PageId(0); self.places.len()];
        let (mut extent, mut last) = (0, None);
        for &page in &self.order {
            let place = self.of(page).0;
            let own = place / EXTENT_PAGES;
            extent += u64::from(last.is_some_and(|last| last != own));
            last = Some(own);
            ids[page as usize] = PageId(extent * EXTENT_PAGES + place % EXTENT_PAGES);
        }
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_trace::{Kind, PageKey, PageRequest};

    #[test]
    fn neighbours_are_of_one_file() {
        let mut references = References::default();
        for (file, number) in [(1, 7), (0, 9), (1, 8), (0, 500), (2, 0), (1, 6)] {
            let page = PageKey { file, number };
            references.push(PageRequest { time_ns: 0, page, kind: Kind::Read });
        }
        let places = Places::new(&references);
        assert_eq!((places.after(0), places.before(0)), (Some(2), Some(5)));
        assert_eq!((places.after(2), places.before(5)), (None, None));
        assert_eq!((places.after(3), places.before(4)), (None, None));
        assert_eq!(places.of(3).0 - places.of(1).0, 491);
        let ids = places.by_extents();
        assert_eq!(ids.iter().map(|id| id.0 / 32).max(), Some(3), "four extents");
        assert_eq!(ids[0].0 + 1, ids[2].0);
    }
}
