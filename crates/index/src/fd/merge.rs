//! Merges: the head and the first levels become one run, and the levels above it fences of it.
//!
//! ```text
//!   head ----+
//!   level 1 -+--> newest of each key --> run of level i --first keys of pages--> run of level i-1
//!   level i -+                           (its fences to level i+1 stay)           ... --> head
//! ```
//!
//! - M1: runs are written where no live run is, so a crash finds the old ones.
//! - M2: reads and writes go by PioMax pages at a time: that many for each level are in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use super::FdTree;
use super::run::{self, Item};
use crate::Error;
use crate::entry::{Change, Key, Op};
use crate::page::{Page, PageNo};
use crate::pages::{Keep, Pages, Run, Undo};

/// The first keys of pages.
type FenceKeys = Vec<(Key, PageNo)>;

/// A run of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) first: PageNo,
    pub(super) pages: u32,
    /// Entries, fences included.
    pub(super) items: u64,
}

/// Merges the head with the first `depth` levels into level `depth`; there may be one less yet.
pub(super) fn merge(tree: &mut FdTree, depth: usize) -> Result<(), Error> {
    let is_last = depth >= tree.levels.len();
    let mut streams: Vec<Stream> =
        tree.levels.iter().take(depth).map(|level| Stream::new(*level)).collect();
    let keeps_fences = streams.len() == depth && !is_last;
    let head: Vec<Op> = std::mem::take(&mut tree.head).into_values().collect();
    let mut builders = builders(tree, depth, head.len() as u64)?;
    let mut head = head.into_iter().peekable();
    loop {
        let mut lowest = head.peek().map(|op| op.key);
        for (at, stream) in streams.iter_mut().enumerate() {
            let fences = if keeps_fences && at + 1 == depth { Fences::Kept } else { Fences::Gone };
            let key = stream.peek(&mut tree.pages, fences)?.map(Item::key);
            lowest = [lowest, key].into_iter().flatten().min();
        }
        let Some(key) = lowest else { break };
        if let Some(fence) = streams.last_mut().and_then(|stream| stream.next_fence(key)) {
            builders.push(&mut tree.pages, depth, fence)?;
            continue;
        }
        let mut newest = head.next_if(|op| op.key == key);
        for stream in &mut streams {
            newest = newest.or(stream.next_op(key));
        }
        let newest = newest.expect("one of them has the lowest key");
        if !(is_last && newest.change == Change::Remove) {
            builders.push(&mut tree.pages, depth, Item::Op(newest))?;
        }
    }
    let (levels, fences) = builders.finish(&mut tree.pages)?;
    tree.fences = fences;
    tree.levels.splice(..depth.min(tree.levels.len()), levels);
    Ok(())
}

/// Builders for levels 1 to `depth`, with room for all that they can get.
fn builders(tree: &mut FdTree, depth: usize, head: u64) -> Result<Builders, Error> {
    let page_bytes = tree.pages.room().page_bytes;
    let merged: u64 = tree.levels.iter().take(depth).map(|level| level.items).sum();
    // A page may begin with a fence that no level had.
    let per_page = run::capacity(page_bytes) as u64 - 1;
    let mut taken: Vec<(PageNo, u32)> =
        tree.levels.iter().map(|level| (level.first, level.pages)).collect();
    let mut levels = Vec::new();
    let mut most = (merged + head).div_ceil(per_page).max(1);
    let bottom = depth >= tree.levels.len();
    for level in (1..=depth).rev() {
        let first = place(&mut tree.pages, &taken, most as u32, tree.first_page)?;
        taken.push((first, most as u32));
        let has_fences = level < depth || !bottom;
        let mut builder = Builder::new(first, level as u8, page_bytes, has_fences);
        builder.room = most as u32;
        levels.push(builder);
        most = most.div_ceil(per_page).max(1);
    }
    levels.reverse();
    Ok(Builders { levels, fences: Vec::new() })
}

/// Where `pages` pages in a row are free.
fn place(
    all: &mut Pages,
    taken: &[(PageNo, u32)],
    pages: u32,
    first_page: PageNo,
) -> Result<PageNo, Error> {
    let mut taken: Vec<(PageNo, u32)> = taken.iter().copied().filter(|run| run.1 > 0).collect();
    taken.sort_unstable();
    let mut first = first_page;
    for (begins, len) in taken {
        if begins >= first + pages {
            break;
        }
        first = first.max(begins + len);
    }
    all.claim(first + pages)?;
    Ok(first)
}

/// Whether a stream gives its fences.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fences {
    Kept,
    Gone,
}

/// The entries of a run in their order, read by PioMax pages.
struct Stream {
    level: Level,
    read: u32,
    items: VecDeque<Item>,
}

impl Stream {
    fn new(level: Level) -> Stream {
        Stream { level, read: 0, items: VecDeque::new() }
    }

    /// The next entry.
    fn peek(&mut self, pages: &mut Pages, fences: Fences) -> Result<Option<Item>, Error> {
        while self.items.is_empty() && self.read < self.level.pages {
            let count = (pages.room().pio_max as u32).min(self.level.pages - self.read);
            let wanted = Run { first: self.level.first + self.read, pages: count };
            let read = pages.get_runs(&[wanted], Keep::Not)?.pop().expect("one run");
            let kept = |item: &Item| fences == Fences::Kept || matches!(item, Item::Op(_));
            self.items.extend(read.iter().flat_map(|page| run::items(page)).filter(kept));
            self.read += count;
        }
        Ok(self.items.front().copied())
    }

    /// Takes the next entry if it is a fence of `key`, peeked before.
    fn next_fence(&mut self, key: Key) -> Option<Item> {
        let item = *self.items.front()?;
        let is_wanted = matches!(item, Item::Fence(..)) && item.key() == key;
        if is_wanted { self.items.pop_front() } else { None }
    }

    /// Takes the next entry if it is of `key`, peeked before.
    fn next_op(&mut self, key: Key) -> Option<Op> {
        match *self.items.front()? {
            Item::Op(op) if op.key == key => {
                self.items.pop_front();
                Some(op)
            }
            _ => None,
        }
    }
}

/// A run being written.
struct Builder {
    first: PageNo,
    /// Pages that it may have.
    room: u32,
    level: u8,
    page_bytes: usize,
    has_fences: bool,
    last_fence: Option<PageNo>,
    items: Vec<Item>,
    count: u64,
    full: Vec<Page>,
    written: u32,
}

impl Builder {
    fn new(first: PageNo, level: u8, page_bytes: usize, has_fences: bool) -> Builder {
        Builder {
            first,
            room: 0,
            level,
            page_bytes,
            has_fences,
            last_fence: None,
            items: Vec::new(),
            count: 0,
            full: Vec::new(),
            written: 0,
        }
    }

    /// The page that the next entry goes to.
    fn current(&self) -> PageNo {
        self.first + self.written + self.full.len() as u32
    }

    /// Adds an entry; gives the fence of the page that it begins, if it begins one.
    fn push(&mut self, pages: &mut Pages, item: Item) -> Result<Option<Item>, Error> {
        if self.items.len() == run::capacity(self.page_bytes) {
            self.close(pages)?;
        }
        let mut fence = None;
        if self.items.is_empty() {
            let is_first = self.count == 0;
            let key = if is_first { 0 } else { item.key() };
            fence = Some(Item::Fence(key, self.current()));
            // run.R2. The first entry of a level with fences is one, of key 0.
            if self.has_fences
                && let (Item::Op(op), Some(no)) = (item, self.last_fence)
            {
                self.items.push(Item::Fence(op.key, no));
                self.count += 1;
            }
        }
        if let Item::Fence(_, no) = item {
            self.last_fence = Some(no);
        }
        self.items.push(item);
        self.count += 1;
        Ok(fence)
    }

    fn close(&mut self, pages: &mut Pages) -> Result<(), Error> {
        self.full.push(run::build(self.page_bytes, self.level, &self.items));
        self.items.clear();
        if self.full.len() == pages.room().pio_max {
            self.write(pages)?;
        }
        Ok(())
    }

    fn write(&mut self, pages: &mut Pages) -> Result<(), Error> {
        let full: Vec<(PageNo, Page)> =
            (self.first + self.written..).zip(std::mem::take(&mut self.full)).collect();
        self.written += full.len() as u32;
        // More entries than the levels are said to have.
        if self.written > self.room {
            return Err(Error::Corrupt { page: self.first });
        }
        pages.write(full, Undo::Unwanted, Keep::Not)
    }
}

/// Runs being written, level 1 first.
struct Builders {
    levels: Vec<Builder>,
    fences: FenceKeys,
}

impl Builders {
    /// Adds an entry to `level`, and fences to those above.
    fn push(&mut self, pages: &mut Pages, level: usize, item: Item) -> Result<(), Error> {
        let mut item = item;
        for level in (1..=level).rev() {
            match self.levels[level - 1].push(pages, item)? {
                Some(fence) => item = fence,
                None => return Ok(()),
            }
        }
        if let Item::Fence(key, no) = item {
            self.fences.push((key, no));
        }
        Ok(())
    }

    fn finish(mut self, pages: &mut Pages) -> Result<(Vec<Level>, FenceKeys), Error> {
        let mut levels = Vec::new();
        for builder in &mut self.levels {
            if !builder.items.is_empty() {
                builder.close(pages)?;
            }
            if !builder.full.is_empty() {
                builder.write(pages)?;
            }
            let (first, count) = (builder.first, builder.written);
            levels.push(Level { first, pages: count, items: builder.count });
        }
        Ok((levels, self.fences))
    }
}

/// The keys of the first entries of a level's pages, for the head.
pub(super) fn fences_of(pages: &mut Pages, level: Level) -> Result<FenceKeys, Error> {
    let mut fences = Vec::with_capacity(level.pages as usize);
    let end = level.first + level.pages;
    while level.first + (fences.len() as u32) < end {
        let first = level.first + fences.len() as u32;
        let count = (pages.room().pio_max as u32).min(end - first);
        let read: Vec<Arc<Page>> =
            pages.get_runs(&[Run { first, pages: count }], Keep::Not)?.pop().expect("one run");
        for (no, page) in (first..).zip(read) {
            let key = if no == level.first { 0 } else { run::item(&page, 0).key() };
            fences.push((key, no));
        }
    }
    Ok(fences)
}
