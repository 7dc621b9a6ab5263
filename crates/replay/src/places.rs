//! Where pages lie at home: one line of addresses for all files, to tell runs and neighbours.
//!
//! - L1: pages of one file are as far apart as their numbers; files follow one another, with a gap
//!   wider than any neighbourhood.
//! - L2: what lies where is listed, or read off the pages' names where memory is short; it is the
//!   same (a test).
//! - Cost: 16 bytes per page if it is listed, and none if not.
//! - Not for: objects, whose names are no addresses; then neighbours are chance.

use crate::References;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_page::PageId;
use terrace_policy::EXTENT_PAGES;
use terrace_trace::{Interner, PageKey};

/// Pages between two files.
const GAP_PAGES: u64 = 1 << 10;

/// No page.
const NONE: u32 = u32::MAX;

/// The places of all pages.
pub struct Places(Lines);

enum Lines {
    Listed {
        places: Vec<u64>,
        /// The pages just before and after each, or `NONE`.
        neighbours: Vec<[u32; 2]>,
        end: u64,
    },
    Named {
        names: Arc<Interner>,
        bases: Bases,
        end: u64,
    },
}

/// The files and where each begins, ascending.
struct Bases(Vec<(u32, u64)>);

impl Bases {
    /// Of pages with these names.
    fn new(names: impl Iterator<Item = PageKey>) -> Bases {
        let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
        for name in names {
            let end = ends.entry(name.file).or_default();
            *end = (*end).max(name.number.wrapping_add(1));
        }
        let mut base = 0u64;
        let mut bases = Vec::with_capacity(ends.len());
        for (file, end) in ends {
            bases.push((file, base));
            base = base.wrapping_add(end).wrapping_add(GAP_PAGES);
        }
        Bases(bases)
    }

    fn place(&self, name: PageKey) -> u64 {
        let file = match &self.0[..] {
            [_] => 0,
            all => all.partition_point(|&(file, _)| file < name.file),
        };
        self.0[file].1.wrapping_add(name.number)
    }
}

impl Places {
    /// The places of the pages of `references`.
    #[must_use]
    pub fn new(references: &References) -> Places {
        let names = (0..references.pages_count()).map(|page| references.name(page));
        let bases = Bases::new(names.clone());
        let places: Vec<u64> = names.map(|name| bases.place(name)).collect();
        let order = by_place(&places);
        let mut neighbours = vec![[NONE; 2]; order.len()];
        for pair in order.windows(2) {
            let [page, next] = [pair[0] as usize, pair[1] as usize];
            if places[next] == places[page].wrapping_add(1) {
                (neighbours[page][1], neighbours[next][0]) = (pair[1], pair[0]);
            }
        }
        let end = order.last().map_or(0, |&page| places[page as usize].wrapping_add(1));
        Places(Lines::Listed { places, neighbours, end })
    }

    /// The places of pages with these names, which takes no memory for each.
    #[must_use]
    pub fn of_names(names: Arc<Interner>) -> Places {
        let all = || (0..names.len() as u32).map(|page| names.page(page));
        let bases = Bases::new(all());
        let end = all().map(|name| bases.place(name).wrapping_add(1)).max().unwrap_or(0);
        Places(Lines::Named { names, bases, end })
    }

    /// Where `page` lies, in pages.
    #[must_use]
    #[inline]
    pub fn of(&self, page: u32) -> PageId {
        PageId(match &self.0 {
            Lines::Listed { places, .. } => places[page as usize],
            Lines::Named { names, bases, .. } => bases.place(names.page(page)),
        })
    }

    /// The place behind the last page.
    #[must_use]
    pub fn end(&self) -> u64 {
        match &self.0 {
            Lines::Listed { end, .. } | Lines::Named { end, .. } => *end,
        }
    }

    /// The page just after `page`, if the trace has it.
    #[must_use]
    pub fn after(&self, page: u32) -> Option<u32> {
        match &self.0 {
            Lines::Listed { neighbours, .. } => {
                let next = neighbours[page as usize][1];
                (next != NONE).then_some(next)
            }
            Lines::Named { names, .. } => {
                let PageKey { file, number } = names.page(page);
                names.get(PageKey { file, number: number.checked_add(1)? })
            }
        }
    }

    /// The page just before `page`, if the trace has it.
    #[must_use]
    pub fn before(&self, page: u32) -> Option<u32> {
        match &self.0 {
            Lines::Listed { neighbours, .. } => {
                let previous = neighbours[page as usize][0];
                (previous != NONE).then_some(previous)
            }
            Lines::Named { names, .. } => {
                let PageKey { file, number } = names.page(page);
                names.get(PageKey { file, number: number.checked_sub(1)? })
            }
        }
    }

    fn pages_count(&self) -> u32 {
        match &self.0 {
            Lines::Listed { places, .. } => places.len() as u32,
            Lines::Named { names, .. } => names.len() as u32,
        }
    }

    /// Page ids in which each extent keeps its pages together, but extents are numbered without
    /// gaps: for tables of extents.
    #[must_use]
    pub fn by_extents(&self) -> Vec<PageId> {
        // The places become the ids, one after the other.
        let mut ids: Vec<u64> = (0..self.pages_count()).map(|page| self.of(page).0).collect();
        let order = by_place(&ids);
        let (mut extent, mut last) = (0, None);
        for page in order {
            let place = ids[page as usize];
            let own = place / EXTENT_PAGES;
            extent += u64::from(last.is_some_and(|last| last != own));
            last = Some(own);
            ids[page as usize] = extent * EXTENT_PAGES + place % EXTENT_PAGES;
        }
        ids.into_iter().map(PageId).collect()
    }
}

/// The pages in the order of their places.
fn by_place(places: &[u64]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..places.len() as u32).collect();
    order.sort_unstable_by_key(|&page| places[page as usize]);
    order
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

    #[test]
    fn pages_lie_where_their_names_say() {
        for seed in 0..20 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let files = prng.u32(1..5);
            let mut references = References::default();
            let mut names = Interner::new();
            for _ in 0..300 {
                let page = PageKey { file: 3 * prng.u32(..files), number: prng.u64(..200) };
                references.push(PageRequest { time_ns: 0, page, kind: Kind::Read });
                names.intern(page);
            }
            let (listed, named) = (Places::new(&references), Places::of_names(Arc::new(names)));
            for page in 0..references.pages_count() {
                assert_eq!(named.of(page), listed.of(page), "seed {seed}");
                assert_eq!(named.after(page), listed.after(page), "seed {seed}");
                assert_eq!(named.before(page), listed.before(page), "seed {seed}");
            }
            assert_eq!((named.end(), named.by_extents()), (listed.end(), listed.by_extents()));
        }
    }
}
