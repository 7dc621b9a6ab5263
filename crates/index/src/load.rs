//! The layout of a loaded tree: where each node is, and what it holds, as a function of its number.
//!
//! ```text
//!  superblock | leaf leaf ... leaf | level 1 ... | level 2 | root
//!               each of L segments   one page each
//! ```
//!
//! So a load writes pages in their order, and a device that computes what was never written needs
//! no memory for a loaded tree.

use std::sync::Arc;

use crate::Error;
use crate::entry::{Key, Pointer, Source};
use crate::page::{Page, PageKind, PageNo};
use crate::pages::{Keep, Pages, Undo};
use crate::superblock::first_page;

/// Pages that a load writes together.
const LOAD_PAGES: usize = 256;

/// In the upper half of a link: the first write of a node (`Naming::Nodes`).
const LOADED: u64 = 1 << 32;

/// How full a load makes leaves and inner nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fill(pub f64);

impl Default for Fill {
    fn default() -> Fill {
        Fill(0.7)
    }
}

/// The nodes of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    first: PageNo,
    nodes: u64,
}

/// How a parent names its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// By the number of the first page; leaves name the next.
    Chained,
    /// By the number of the first page.
    Pages,
    /// By the number of the node, leaves first, then level by level; links have that, too.
    Nodes,
}

/// A loaded tree.
#[derive(Clone, Debug)]
pub struct TreeLayout {
    source: Arc<dyn Source>,
    page_bytes: usize,
    /// Pages of a leaf.
    segments: u32,
    per_leaf: u64,
    per_inner: u64,
    naming: Naming,
    levels: Vec<Level>,
}

impl TreeLayout {
    pub(crate) fn new(
        source: Arc<dyn Source>,
        page_bytes: usize,
        segments: u32,
        fill: Fill,
        naming: Naming,
    ) -> TreeLayout {
        let capacity = Page::capacity(page_bytes);
        let share = |entries: usize| ((entries as f64 * fill.0) as u64).max(2);
        let per_leaf = share(capacity * segments as usize);
        let per_inner = share(capacity);
        let mut levels = Vec::new();
        let mut first = first_page(page_bytes).next_multiple_of(segments);
        let mut nodes = source.len().div_ceil(per_leaf).max(1);
        loop {
            levels.push(Level { first, nodes });
            let pages = if levels.len() == 1 { u64::from(segments) } else { 1 };
            first += (nodes * pages) as PageNo;
            if nodes == 1 {
                break;
            }
            nodes = nodes.div_ceil(per_inner);
        }
        TreeLayout { source, page_bytes, segments, per_leaf, per_inner, naming, levels }
    }

    /// Levels, the leaves' included.
    pub(crate) fn height(&self) -> usize {
        self.levels.len()
    }

    /// Nodes of all levels.
    pub(crate) fn nodes(&self) -> u64 {
        self.levels.iter().map(|level| level.nodes).sum()
    }

    /// Leaves.
    pub(crate) fn leaves(&self) -> u64 {
        self.levels[0].nodes
    }

    /// First page of the root.
    pub(crate) fn root(&self) -> PageNo {
        self.levels[self.height() - 1].first
    }

    /// First page of the first leaf.
    pub(crate) fn first_leaf(&self) -> PageNo {
        self.levels[0].first
    }

    /// The page behind the last.
    pub fn end(&self) -> PageNo {
        let last = self.levels[self.height() - 1];
        last.first + if self.height() == 1 { self.segments } else { 1 }
    }

    /// The first keys of the segments that a loaded leaf uses, but for its first segment.
    pub(crate) fn segment_keys(&self, leaf: u64) -> Vec<Key> {
        let entries = self.entries_of(0, leaf);
        let capacity = Page::capacity(self.page_bytes);
        entries.step_by(capacity).skip(1).map(|at| self.source.entry(at).0).collect()
    }

    /// The entries of the source below node `node` of `level`, as their numbers.
    fn entries_of(&self, level: usize, node: u64) -> std::ops::Range<u64> {
        let mut span = self.per_leaf;
        for _ in 0..level {
            span *= self.per_inner;
        }
        let count = self.source.len();
        (node * span).min(count)..((node + 1) * span).min(count)
    }

    /// What page `no` holds after the load; `None` where no node is.
    #[must_use]
    pub fn page(&self, no: PageNo) -> Option<Page> {
        let level = self.levels.iter().rposition(|level| level.first <= no)?;
        if no >= self.end() {
            return None;
        }
        let offset = u64::from(no - self.levels[level].first);
        let mut page = Page::new(self.page_bytes, PageKind::Node, level as u8);
        if level == 0 {
            self.fill_segment(&mut page, offset);
        } else {
            self.fill_inner(&mut page, level, offset);
        }
        page.seal(no);
        Some(page)
    }

    fn fill_segment(&self, page: &mut Page, offset: u64) {
        let (leaf, segment) =
            (offset / u64::from(self.segments), offset % u64::from(self.segments));
        let entries = self.entries_of(0, leaf);
        let capacity = Page::capacity(self.page_bytes) as u64;
        let start = (entries.start + segment * capacity).min(entries.end);
        for at in start..(start + capacity).min(entries.end) {
            page.push_entry(self.source.entry(at));
        }
        match self.naming {
            Naming::Chained if leaf + 1 < self.leaves() => {
                let next = u64::from(self.first_leaf()) + (leaf + 1) * u64::from(self.segments);
                page.set_link(next);
            }
            Naming::Chained | Naming::Pages => {}
            Naming::Nodes => page.set_link(LOADED | leaf),
        }
    }

    fn fill_inner(&self, page: &mut Page, level: usize, node: u64) {
        let below = self.levels[level - 1];
        let children = node * self.per_inner..((node + 1) * self.per_inner).min(below.nodes);
        let pages = if level == 1 { u64::from(self.segments) } else { 1 };
        let base: u64 = self.levels[..level - 1].iter().map(|level| level.nodes).sum();
        for child in children {
            let lowest = self.entries_of(level - 1, child).start;
            // Keys below the first of all belong to the first leaf, too.
            let key = if child == 0 { 0 } else { self.source.entry(lowest).0 };
            let name = match self.naming {
                Naming::Chained | Naming::Pages => u64::from(below.first) + child * pages,
                Naming::Nodes => base + child,
            };
            page.push_entry((key, name as Pointer));
        }
        if self.naming == Naming::Nodes {
            page.set_link(LOADED | (base + below.nodes + node));
        }
    }

    /// Writes all pages.
    pub(crate) fn write(&self, pages: &mut Pages) -> Result<(), Error> {
        check_order(&*self.source)?;
        pages.claim(self.end())?;
        let mut no = self.first_leaf();
        while no < self.end() {
            let end = self.end().min(no + LOAD_PAGES as PageNo);
            let page = |no| (no, self.page(no).expect("a page of the layout"));
            pages.write((no..end).map(page).collect(), Undo::Unwanted, Keep::Not)?;
            no = end;
        }
        Ok(())
    }
}

/// Checks that the keys ascend.
pub(crate) fn check_order(source: &dyn Source) -> Result<(), Error> {
    let mut before: Option<Key> = None;
    for at in 0..source.len() {
        let (key, _) = source.entry(at);
        match before {
            Some(before) if before >= key => return Err(Error::OutOfOrder { at, key, before }),
            _ => before = Some(key),
        }
    }
    Ok(())
}
