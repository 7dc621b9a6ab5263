//! The layout of a loaded FD-tree: the last level has all entries, the levels above it fences only.

use std::sync::Arc;

use super::merge::Level;
use super::run::{self, Item};
use crate::Error;
use crate::entry::{Op, Source};
use crate::load::check_order;
use crate::page::{Page, PageNo};
use crate::pages::{Keep, Pages, Undo};
use crate::superblock::first_page;

/// Pages that a load writes together.
const LOAD_PAGES: PageNo = 256;

/// A loaded FD-tree.
#[derive(Clone, Debug)]
pub struct FdLayout {
    source: Arc<dyn Source>,
    page_bytes: usize,
    /// The last level first.
    levels: Vec<Level>,
}

impl FdLayout {
    pub(super) fn new(source: Arc<dyn Source>, page_bytes: usize, depth: usize) -> FdLayout {
        let per_page = run::capacity(page_bytes) as u64;
        let mut levels = Vec::new();
        let mut first = first_page(page_bytes);
        let mut items = source.len();
        for _ in 0..depth {
            let pages = items.div_ceil(per_page) as u32;
            levels.push(Level { first, pages, items });
            first += pages;
            items = u64::from(pages);
        }
        FdLayout { source, page_bytes, levels }
    }

    /// The page behind the last.
    #[must_use]
    pub fn end(&self) -> PageNo {
        let last = self.levels.last().expect("a level at least");
        last.first + last.pages
    }

    /// Level 1 first.
    pub(super) fn levels(&self) -> Vec<Level> {
        self.levels.iter().rev().copied().collect()
    }

    /// What page `no` holds after the load.
    #[must_use]
    pub fn page(&self, no: PageNo) -> Option<Page> {
        let level =
            self.levels.iter().position(|run| no >= run.first && no < run.first + run.pages);
        let level = level?;
        let run = self.levels[level];
        let per_page = run::capacity(self.page_bytes) as u64;
        let start = u64::from(no - run.first) * per_page;
        let items: Vec<Item> =
            (start..run.items.min(start + per_page)).map(|at| self.item(level, at)).collect();
        let depth = (self.levels.len() - level) as u8;
        let mut page = run::build(self.page_bytes, depth, &items);
        page.seal(no);
        Some(page)
    }

    fn item(&self, level: usize, at: u64) -> Item {
        if level == 0 {
            let (key, pointer) = self.source.entry(at);
            return Item::Op(Op::insert(key, pointer));
        }
        let per_page = run::capacity(self.page_bytes) as u64;
        let lowest = per_page.pow(level as u32) * at;
        let key = if at == 0 { 0 } else { self.source.entry(lowest).0 };
        Item::Fence(key, self.levels[level - 1].first + at as PageNo)
    }

    pub(super) fn write(&self, pages: &mut Pages) -> Result<(), Error> {
        check_order(&*self.source)?;
        pages.claim(self.end())?;
        let mut no = first_page(self.page_bytes);
        while no < self.end() {
            let end = self.end().min(no + LOAD_PAGES);
            let page = |no| (no, self.page(no).expect("a page of the layout"));
            pages.write((no..end).map(page).collect(), Undo::Unwanted, Keep::Not)?;
            no = end;
        }
        Ok(())
    }
}
