//! The FD-tree (Li, He, Yang, Luo and Yi, VLDB 2010): a small tree in memory over sorted runs, each
//! several times as large as the one above, joined by fences.
//!
//! ```text
//!   head (memory): operations, and the fences of level 1
//!     |  full: merged into the first level that has room for all above it
//!   level 1   [fence op op fence op ...]   at most ratio times the head
//!   level 2   [ ...                    ]   at most ratio times level 1
//!   last      entries only: here a filter entry has removed its key, and goes
//! ```
//!
//! `run` has the entries of a page, `merge` makes runs, `load` has the layout of a load.
//!
//! - D1: of a key, the entry of the highest level counts.
//! - D2: a search reads at most one page of each level: fences lead to it.
//! - D3: a merge ends with a settling, since the head is empty then.
//! - Beside the paper: `get_many` goes down by MPSearch, as Roh et al. say it could.
//! - Memory: the head, whose fences are counted, and the buffer pool.

mod load;
mod merge;
mod run;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

pub use self::load::FdLayout;
use self::merge::Level;
use self::run::{Item, Said};
use crate::Error;
use crate::entry::{Key, OP_BYTES, Op, Pointer, Source, long, number, overlay};
use crate::index::{Index, Memory};
use crate::page::{Page, PageNo};
use crate::pages::{Devices, Keep, Pages, Room, Run, Traffic};
use crate::search::{Added, Span, Visit, Wanted, in_order, search, sorted};
use crate::superblock::{Kind, first_page};

/// Bytes of a fence in the head.
const FENCE_BYTES: usize = 8;
/// Bytes of a level in the state.
const LEVEL_BYTES: usize = 16;

/// Parameters of an FD-tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FdOptions {
    /// Pages, memory and groups.
    pub room: Room,
    /// Pages of memory for the head.
    pub head_pages: usize,
    /// How many times as large each level may be as the one above.
    pub ratio: u64,
    /// Whether pages of the last level stay in memory, beside those of the levels above.
    pub keep_leaves: Keep,
}

impl FdOptions {
    /// Operations that the head holds without fences.
    fn head_ops(&self) -> u64 {
        (self.head_pages * self.room.page_bytes / OP_BYTES) as u64
    }

    /// Entries that `level` may have, 1 being the first.
    fn level_items(&self, level: usize) -> u64 {
        self.ratio.saturating_pow(level as u32).saturating_mul(self.head_ops())
    }

    /// Levels for `count` entries, so that fences take no more than half of the head.
    fn depth(&self, count: u64) -> usize {
        let per_page = run::capacity(self.room.page_bytes) as u64;
        let head = (self.head_pages * self.room.page_bytes) as u64;
        let mut depth = 1;
        let mut pages = count.div_ceil(per_page);
        while self.level_items(depth) < count || pages * FENCE_BYTES as u64 > head / 2 {
            depth += 1;
            pages = pages.div_ceil(per_page);
        }
        depth
    }
}

/// The FD-tree.
pub struct FdTree {
    pages: Pages,
    options: FdOptions,
    head: BTreeMap<Key, Op>,
    /// Of level 1.
    fences: Vec<(Key, PageNo)>,
    /// Level 1 first.
    levels: Vec<Level>,
    first_page: PageNo,
}

impl FdTree {
    /// The layout of a load.
    #[must_use]
    pub fn layout(source: Arc<dyn Source>, options: &FdOptions) -> FdLayout {
        let depth = options.depth(source.len());
        FdLayout::new(source, options.room.page_bytes, depth)
    }

    /// Loads `source`, and settles.
    ///
    /// # Errors
    ///
    /// Keys out of order; too little memory for a search; a device that failed or has no room.
    pub fn load(
        devices: Devices,
        source: Arc<dyn Source>,
        options: FdOptions,
    ) -> Result<FdTree, Error> {
        let layout = FdTree::layout(source, &options);
        let mut pages = Pages::create(devices, Kind::Fd, options.room)?;
        layout.write(&mut pages)?;
        FdTree::loaded(pages, &layout, options)
    }

    /// As `load`, on a device that holds the pages of `layout` already.
    ///
    /// # Errors
    ///
    /// As `load`.
    pub fn adopt(devices: Devices, layout: &FdLayout, options: FdOptions) -> Result<FdTree, Error> {
        let mut pages = Pages::create(devices, Kind::Fd, options.room)?;
        pages.claim(layout.end())?;
        FdTree::loaded(pages, layout, options)
    }

    fn loaded(pages: Pages, layout: &FdLayout, options: FdOptions) -> Result<FdTree, Error> {
        let mut tree = FdTree::with(pages, options, layout.levels())?;
        tree.pages.settle(tree.state())?;
        Ok(tree)
    }

    fn with(mut pages: Pages, options: FdOptions, levels: Vec<Level>) -> Result<FdTree, Error> {
        pages.check_search(levels.len())?;
        let page_bytes = pages.room().page_bytes;
        pages.share_memory((options.head_pages * page_bytes) as u64, 1)?;
        let fences = merge::fences_of(&mut pages, levels[0])?;
        let (head, first_page) = (BTreeMap::new(), first_page(page_bytes));
        Ok(FdTree { pages, options, head, fences, levels, first_page })
    }

    /// Opens an index, and does again what is in the journal.
    ///
    /// # Errors
    ///
    /// A device that failed, or that holds no index, or one of another structure; too little memory
    /// for a search.
    pub fn open(devices: Devices, options: FdOptions) -> Result<FdTree, Error> {
        let (pages, state, ops) = Pages::open(devices, Kind::Fd, options.room)?;
        if state.is_empty() || !state.len().is_multiple_of(LEVEL_BYTES) {
            return Err(Error::NotAnIndex);
        }
        let level = |bytes: &[u8]| Level {
            first: number(bytes, 0),
            pages: number(bytes, 4),
            items: long(bytes, 8),
        };
        let levels: Vec<Level> = state.chunks(LEVEL_BYTES).map(level).collect();
        let per_page = run::capacity(pages.room().page_bytes) as u64;
        let fits = |level: &Level| {
            u64::from(level.first) + u64::from(level.pages) <= u64::from(pages.next())
                && level.items <= u64::from(level.pages) * per_page
        };
        if !levels.iter().all(fits) {
            return Err(Error::NotAnIndex);
        }
        let mut tree = FdTree::with(pages, options, levels)?;
        // All of them before a merge, whose settling covers the whole journal.
        tree.head.extend(ops.into_iter().map(|op| (op.key, op)));
        tree.flush()?;
        Ok(tree)
    }

    fn state(&self) -> Vec<u8> {
        let mut state = Vec::with_capacity(self.levels.len() * LEVEL_BYTES);
        for level in &self.levels {
            state.extend_from_slice(&level.first.to_le_bytes());
            state.extend_from_slice(&level.pages.to_le_bytes());
            state.extend_from_slice(&level.items.to_le_bytes());
        }
        state
    }

    fn is_full(&self) -> bool {
        let used = self.head.len() * OP_BYTES + self.fences.len() * FENCE_BYTES;
        used >= self.options.head_pages * self.options.room.page_bytes
    }

    /// Merges the head into the first level with room for it and all above.
    fn merge_head(&mut self) -> Result<(), Error> {
        let mut items = self.head.len() as u64;
        let mut depth = 0;
        loop {
            depth += 1;
            items += self.levels.get(depth - 1).map_or(0, |level| level.items);
            let below = self.levels.get(depth).map_or(0, |level| u64::from(level.pages));
            let grows_last = depth > self.levels.len();
            if grows_last || items + below <= self.options.level_items(depth) {
                break;
            }
        }
        merge::merge(self, depth)?;
        self.pages.check_search(self.levels.len())
    }

    /// The page of level 1 that `key` belongs to.
    fn first_of(&self, key: Key) -> Option<PageNo> {
        let at = self.fences.partition_point(|(first, _)| *first <= key);
        Some(self.fences.get(at.checked_sub(1)?)?.1)
    }

    fn keep(&self, level: usize) -> Keep {
        if level + 1 == self.levels.len() { self.options.keep_leaves } else { Keep::Lru }
    }

    /// What each level says of `keys`, the last first.
    fn slices(&mut self, keys: &Range<Key>) -> Result<Vec<Vec<Op>>, Error> {
        let mut slices = Vec::with_capacity(self.levels.len());
        let mut no = self.first_of(keys.start);
        for level in 0..self.levels.len() {
            let Some(first) = no else { break };
            let page = self.pages.get(first, self.keep(level))?;
            no = below(&page, keys.start);
            slices.push(self.slice(level, first, keys)?);
        }
        slices.reverse();
        Ok(slices)
    }

    /// The entries of `keys` in a level, from page `no` on.
    fn slice(&mut self, level: usize, no: PageNo, keys: &Range<Key>) -> Result<Vec<Op>, Error> {
        let mut found = Vec::new();
        let end = self.levels[level].first + self.levels[level].pages;
        let group = self.options.room.pio_max as PageNo;
        let mut next = no;
        // The first group is one page: most ranges end in it.
        let mut count = 1;
        while next < end {
            let runs: Vec<Run> =
                (next..end.min(next + count)).map(|first| Run { first, pages: 1 }).collect();
            let read = self.pages.get_runs(&runs, self.keep(level))?;
            for page in read.iter().flatten() {
                for item in run::items(page) {
                    match item {
                        Item::Op(op) if keys.contains(&op.key) => found.push(op),
                        item if item.key() >= keys.end => return Ok(found),
                        _ => {}
                    }
                }
            }
            next += runs.len() as PageNo;
            count = group;
        }
        Ok(found)
    }
}

/// The page of the next level that `key` belongs to, whatever this page says of it.
fn below(page: &Page, key: Key) -> Option<PageNo> {
    let before = (0..run::place_above(page, key)).rev();
    before.map(|at| run::item(page, at)).find_map(|item| match item {
        Item::Fence(_, no) => Some(no),
        Item::Op(_) => None,
    })
}

/// Lookups of sorted keys through the levels.
struct Lookup<'a> {
    keys: &'a [Key],
    /// `None` as long as no level has said anything.
    answers: Vec<Option<Option<Pointer>>>,
    keep_last: Keep,
}

impl Lookup<'_> {
    fn look(&mut self, page: &Page, span: Span) {
        for at in span {
            if let (None, Said::Answer(answer)) = (self.answers[at], run::look(page, self.keys[at]))
            {
                self.answers[at] = Some(answer);
            }
        }
    }
}

impl Visit for Lookup<'_> {
    fn child(&self, node: &Page, span: &mut Span) -> Option<Wanted> {
        while span.start < span.end && self.answers[span.start].is_some() {
            span.start += 1;
        }
        if span.start >= span.end {
            return None;
        }
        let first = self.keys[span.start];
        // Without a fence the next level is empty.
        let no = below(node, first)?;
        let end = match run::next_fence(node, first) {
            Some(bound) => span.start + self.keys[span.clone()].partition_point(|key| *key < bound),
            None => span.end,
        };
        assert!(end > span.start, "a page that was verified has its fences in order");
        let taken = span.start..end;
        span.start = end;
        Some((no, taken))
    }

    /// A level of a run refers to the next by its place in the list of levels.
    fn check(&self, _: &Page, _: usize) -> bool {
        true
    }

    fn nodes(&mut self, nodes: &[Arc<Page>], group: &[Wanted]) {
        for (page, (_, span)) in nodes.iter().zip(group) {
            self.look(page, span.clone());
        }
    }

    fn leaves(&mut self, pages: &mut Pages, group: &[Wanted]) -> Result<Vec<Added>, Error> {
        let runs: Vec<Run> = group.iter().map(|(no, _)| Run { first: *no, pages: 1 }).collect();
        let read = pages.get_runs(&runs, self.keep_last)?;
        let read: Vec<Arc<Page>> = read.into_iter().flatten().collect();
        self.nodes(&read, group);
        Ok(Vec::new())
    }
}

impl Index for FdTree {
    fn get(&mut self, key: Key) -> Result<Option<Pointer>, Error> {
        if let Some(op) = self.head.get(&key) {
            return Ok(op.answer());
        }
        let mut no = self.first_of(key);
        for level in 0..self.levels.len() {
            let Some(wanted) = no else { break };
            let page = self.pages.get(wanted, self.keep(level))?;
            match run::look(&page, key) {
                Said::Answer(answer) => return Ok(answer),
                Said::Below(next) => no = next,
            }
        }
        Ok(None)
    }

    fn get_many(&mut self, keys: &[Key]) -> Result<Vec<Option<Pointer>>, Error> {
        let (order, places) = sorted(keys);
        let answers = order.iter().map(|key| self.head.get(key).map(|op| op.answer())).collect();
        let keep_last = self.options.keep_leaves;
        let mut lookup = Lookup { keys: &order, answers, keep_last };
        let (mut group, mut at) = (Vec::new(), 0);
        while at < order.len() {
            let place = self.fences.partition_point(|(first, _)| *first <= order[at]);
            let bound = self.fences.get(place).map(|(key, _)| *key);
            let end = bound.map_or(order.len(), |b| order.partition_point(|key| *key < b));
            if end <= at {
                return Err(Error::Corrupt { page: self.levels[0].first });
            }
            let unanswered = lookup.answers[at..end].iter().any(Option::is_none);
            if let (true, Some(first)) = (unanswered, place.checked_sub(1)) {
                group.push((self.fences[first].1, at..end));
            }
            at = end;
        }
        for group in group.chunks(self.options.room.pio_max) {
            search(&mut self.pages, &mut lookup, self.levels.len() - 1, group)?;
        }
        let answers: Vec<Option<Pointer>> =
            lookup.answers.into_iter().map(Option::flatten).collect();
        Ok(in_order(&answers, &places))
    }

    fn apply(&mut self, op: Op) -> Result<(), Error> {
        if self.pages.wants_settling() {
            self.flush()?;
        }
        self.pages.log(op)?;
        self.head.insert(op.key, op);
        if self.is_full() { self.flush() } else { Ok(()) }
    }

    fn range(&mut self, keys: Range<Key>) -> Result<Vec<(Key, Pointer)>, Error> {
        if keys.start >= keys.end {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for ops in self.slices(&keys)? {
            found = overlay(found.into_iter(), &ops);
        }
        let head: Vec<Op> = self.head.range(keys).map(|(_, op)| *op).collect();
        Ok(overlay(found.into_iter(), &head))
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.pages.commit()
    }

    fn flush(&mut self) -> Result<(), Error> {
        if !self.head.is_empty() {
            self.merge_head()?;
        }
        self.pages.settle(self.state())
    }

    fn traffic(&self) -> Traffic {
        self.pages.traffic()
    }

    fn memory(&self) -> Memory {
        let room = self.pages.room();
        let tables = (self.fences.len() * FENCE_BYTES) as u64;
        Memory {
            pool: self.pages.pool_bytes(),
            queue: ((self.options.head_pages * room.page_bytes) as u64).saturating_sub(tables),
            tables,
            search: (room.pio_max * self.levels.len() * room.page_bytes) as u64,
        }
    }
}
