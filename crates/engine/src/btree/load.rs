//! Bulk load: a tree built from entries in key order, bottom up, much faster than insertion.
//!
//! ```text
//! push -> leaf being filled -- full --> page          a node knows its number when its successor
//!              | fence, page of the next one          begins, so that neighbours can be linked;
//!              v                                      the topmost one never gets any: it is
//!         parent being filled -- full --> page        the root
//! ```
//!
//! Leaves take whole extents, in runs, so that they lie on disk in key order; inner nodes take
//! extents of their own.
//!
//! **Crash safety without logging the pages.** The extents are taken by logged changes, in the
//! tree's name; the pages are not logged. First the tree's header is marked as loading, at the end
//! [`Loaded::install`] flushes the pool, and then one nested action writes the root and takes the
//! mark away. Until then the root is an empty leaf, and no page goes to flash alone, since nothing
//! could make it good ([`BulkLoad`]). So an interrupted load shows an empty, marked
//! tree, which is freed as a whole: `Space::free_some`.
//!
//! Only the loader may use the tree, from `begin` to `install`. Rolling back a transaction does not
//! undo a load: load a tree that the same transaction has made.

use terrace_page::{PAGE_SIZE, PageId, PageKind};
use terrace_pool::BulkLoad;

use super::Tree;
use super::blocks::{block_tail, page_of};
use super::cells::Cells;
use super::edit::Shape;
use super::header::Header;
use super::node::{self, INNER_CELL, LEAF_CELL, NODE_HEADER, OVERFLOW, SLOT};
use super::overflow::{DATA_MAX, format};
use super::reference::{Form, Reference, tail_len};
use super::write::is_large;
use crate::change::Change;
use crate::space::{EXTENT_PAGES, blocks_of};
use crate::writer::{Undo, Writer};
use crate::{Error, TreeId};

/// The longest run of extents that leaves take at once: 16 MiB.
const RUN_MAX: u64 = 64;
const ALL_USED: u32 = u32::MAX;

/// Pages in key order: a run of extents, all marked as used.
struct Run {
    /// On whose account.
    owner: TreeId,
    /// Numbers of extents not begun, last one first.
    extents: Vec<PageId>,
    next: Option<PageId>,
    taken: u64,
}

impl Run {
    fn new(owner: TreeId) -> Run {
        Run { owner, extents: Vec::new(), next: None, taken: 0 }
    }

    fn page<W: Writer>(&mut self, tree: &Tree, w: &mut W) -> Result<PageId, Error> {
        let page = match self.next {
            Some(page) => page,
            None => {
                if self.extents.is_empty() {
                    let length = (self.taken / 2).clamp(1, RUN_MAX);
                    self.extents = tree.space.take_run(w, self.owner, length, ALL_USED)?;
                    self.taken += self.extents.len() as u64;
                    self.extents.reverse();
                }
                self.extents.pop().expect("a run has an extent")
            }
        };
        let next = page.plus(1);
        self.next = (!next.0.is_multiple_of(EXTENT_PAGES)).then_some(next);
        Ok(page)
    }

    /// Marks what is left as unused: the tree keeps it, to grow.
    fn finish<W: Writer>(&mut self, tree: &Tree, w: &mut W) -> Result<(), Error> {
        if let Some(next) = self.next.take() {
            let used = (next.0 % EXTENT_PAGES) as u32;
            let first = PageId(next.0 - u64::from(used));
            tree.space.set_used(w, self.owner, first, (1 << used) - 1)?;
        }
        for extent in self.extents.drain(..) {
            tree.space.set_used(w, self.owner, extent, 0)?;
        }
        Ok(())
    }
}

/// A node being filled.
struct Filling {
    /// Its page, once it has one: all but the first of its level get it when they begin.
    page: Option<PageId>,
    lower: Vec<u8>,
    first_child: PageId,
    cells: Vec<u8>,
    /// Where the last cell begins.
    last_at: usize,
    count: usize,
    /// Bytes of cells and slots, prefixes included.
    bytes: usize,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
}

impl Filling {
    fn new(page: Option<PageId>, lower: Vec<u8>, first_child: PageId) -> Filling {
        Filling {
            page,
            lower,
            first_child,
            cells: Vec::with_capacity(PAGE_SIZE + PAGE_SIZE / 4),
            last_at: 0,
            count: 0,
            bytes: 0,
            first_key: Vec::new(),
            last_key: Vec::new(),
        }
    }

    /// At least the bytes of the page with one more cell. A leaf's upper fence, which separates
    /// that key from the next, is at most one byte longer than it; an inner node's is no longer.
    fn len_with(&self, key: &[u8], cell_len: usize) -> usize {
        let shared = match self.count {
            0 => 0,
            _ => node::common_prefix(&self.first_key, key),
        };
        let fences = self.lower.len() + key.len() + 1 + shared + SLOT;
        NODE_HEADER + fences + self.bytes + cell_len - self.count * shared
    }

    fn push(&mut self, key: &[u8], body: &[&[u8]], cell_len: usize) {
        self.last_at = self.cells.len();
        Cells::push(&mut self.cells, key, body);
        self.count += 1;
        self.bytes += cell_len;
        if self.count == 1 {
            self.first_key.clear();
            self.first_key.extend_from_slice(key);
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
    }

    /// Takes the last child off an inner node, and the separator before it.
    fn pop(&mut self) -> (Vec<u8>, PageId) {
        let child = self.cells.last_chunk::<8>().map_or(0, |child| u64::from_le_bytes(*child));
        self.cells.truncate(self.last_at);
        self.count -= 1;
        (self.last_key.clone(), PageId(child))
    }

    /// The next node of the level takes over the memory.
    fn begin(&mut self, page: PageId, lower: &[u8], first_child: PageId) {
        self.page = Some(page);
        self.lower.clear();
        self.lower.extend_from_slice(lower);
        self.first_child = first_child;
        self.cells.clear();
        (self.count, self.bytes) = (0, 0);
    }
}

/// A load under way. Dropped before [`Loader::finish`], it leaves a marked tree.
pub(crate) struct Loader {
    tree: Tree,
    /// Bytes of a page to fill.
    target: usize,
    levels: Vec<Filling>,
    leaves: Run,
    inner: Run,
    blocks: Run,
    keys: u64,
    under_way: BulkLoad,
}

/// A tree whose pages are all written, but for the root.
#[must_use]
pub(crate) struct Loaded {
    tree: Tree,
    under_way: BulkLoad,
    root: Filling,
    level: u8,
}

impl Tree {
    /// Begins to load this tree, which must be empty, filling pages to `fill` percent, 20 to 100.
    ///
    /// # Errors
    ///
    /// `NotAscending` if the tree is not empty; those of the pool and of `Writer::change`.
    pub(crate) fn load<W: Writer>(&self, w: &mut W, fill: usize) -> Result<Loader, Error> {
        {
            let root = self.pool.read(self.root())?;
            let node = self.node(self.root(), &root)?;
            if !node.is_leaf() || node.len() > 0 {
                return Err(Error::NotEmpty { table: self.id().into() });
            }
        }
        let under_way = self.pool.begin_load();
        self.set_loading(w, true)?;
        Ok(Loader {
            under_way,
            tree: self.clone(),
            target: PAGE_SIZE * fill.clamp(20, 100) / 100,
            levels: vec![Filling::new(None, Vec::new(), PageId(0))],
            leaves: Run::new(self.id),
            inner: Run::new(self.id),
            blocks: Run::new(blocks_of(self.id)),
            keys: 0,
        })
    }

    fn set_loading<W: Writer>(&self, w: &mut W, loading: bool) -> Result<(), Error> {
        let (mut header, fields) = self.header_exclusive()?;
        let nested = w.begin_nested();
        self.set_header(w, &mut header, &Header { loading, ..fields })?;
        w.end_nested(nested)
    }

    /// Whether a load of this tree has begun and was not installed.
    ///
    /// # Errors
    ///
    /// `Corrupt`, those of the pool.
    #[cfg(test)]
    pub(crate) fn is_loading(&self) -> Result<bool, Error> {
        Ok(self.header_fields()?.loading)
    }

    /// Reserves room for the tree to grow by `pages`, as far as possible next to each other.
    ///
    /// # Errors
    ///
    /// `HomeFull`, those of the pool and of `Writer::change`.
    pub(crate) fn reserve<W: Writer>(&self, w: &mut W, pages: u64) -> Result<(), Error> {
        let mut left = pages.div_ceil(EXTENT_PAGES);
        while left > 0 {
            left = left.saturating_sub(self.space.take_run(w, self.id, left, 0)?.len() as u64);
        }
        Ok(())
    }
}

impl Loader {
    /// How many entries came.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> u64 {
        self.keys
    }

    /// Adds the next entry.
    ///
    /// # Errors
    ///
    /// `NotAscending`, `KeyTooLong`, `ValueTooLong`, `HomeFull`, those of the pool and of
    /// `Writer::change`. Nothing but those of sizes and order can be gone on after.
    pub(crate) fn push<W: Writer>(
        &mut self,
        w: &mut W,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Error> {
        self.tree.check_sizes(key, value)?;
        if self.keys > 0 && *self.levels[0].last_key >= *key {
            return Err(Error::NotAscending { table: self.tree.id().into() });
        }
        let reference;
        let (flags, value) = if is_large(key, value) {
            reference = match block_tail(key, value) {
                Some(tail) => self.write_block(w, value, tail)?,
                None => self.write_large(w, key, value)?,
            };
            (OVERFLOW, &reference[..])
        } else {
            (0, value)
        };
        let cell_len = SLOT + LEAF_CELL + key.len() + value.len();
        let leaf = &self.levels[0];
        if leaf.count > 0 && leaf.len_with(key, cell_len) > self.target {
            let fence = node::separator(&leaf.last_key, key).to_vec();
            self.next_node(w, 0, &fence, PageId(0))?;
        }
        self.levels[0].push(key, &[&[flags], value], cell_len);
        self.keys += 1;
        Ok(())
    }

    /// Writes the node being filled, and begins the next one of its level at `fence`.
    fn next_node<W: Writer>(
        &mut self,
        w: &mut W,
        level: usize,
        fence: &[u8],
        first_child: PageId,
    ) -> Result<(), Error> {
        let page = match self.levels[level].page {
            Some(page) => page,
            None => self.page(w, level)?,
        };
        let next = self.page(w, level)?;
        self.write(w, level, page, Some(fence), next)?;
        if self.levels.len() == level + 1 {
            self.levels.push(Filling::new(None, Vec::new(), page));
        }
        self.levels[level].begin(next, fence, first_child);
        self.push_child(w, level + 1, fence, next)
    }

    fn page<W: Writer>(&mut self, w: &mut W, level: usize) -> Result<PageId, Error> {
        let run = if level == 0 { &mut self.leaves } else { &mut self.inner };
        run.page(&self.tree, w)
    }

    fn push_child<W: Writer>(
        &mut self,
        w: &mut W,
        level: usize,
        fence: &[u8],
        child: PageId,
    ) -> Result<(), Error> {
        let cell_len = SLOT + INNER_CELL + fence.len();
        let node = &self.levels[level];
        if node.count > 0 && node.len_with(fence, cell_len) > self.target {
            if node.count == 1 {
                return self.next_node(w, level, fence, child);
            }
            // The last separator goes up instead of the new one, which may be too long for a fence.
            let (last, last_child) = self.levels[level].pop();
            self.next_node(w, level, &last, last_child)?;
        }
        self.levels[level].push(fence, &[&child.0.to_le_bytes()], cell_len);
        Ok(())
    }

    fn write<W: Writer>(
        &self,
        w: &mut W,
        level: usize,
        page: PageId,
        upper: Option<&[u8]>,
        right: PageId,
    ) -> Result<(), Error> {
        let node = &self.levels[level];
        let mut page = self.tree.pool.create(page)?;
        let shape = node.shape(&self.tree, level as u8, upper, right);
        w.unlogged(&mut page, &Change::Node { shape, cells: Cells(&node.cells) })
    }

    /// Writes the page of a block with a tail; returns what its record holds.
    fn write_block<W: Writer>(
        &mut self,
        w: &mut W,
        value: &[u8],
        tail: usize,
    ) -> Result<Vec<u8>, Error> {
        let first = self.blocks.page(&self.tree, w)?;
        let (len, stamp) = (value.len() as u64, w.stamp());
        let mut page = self.tree.pool.create(first)?;
        let bytes = page_of(stamp, value);
        w.unlogged(&mut page, &Change::Page { kind: PageKind::Raw, bytes: &bytes })?;
        let reference = Reference { len, stamp, first, form: Form::Block };
        Ok(reference.encode(&value[value.len() - tail..]))
    }

    /// Writes the pages of a large value; returns what its record holds.
    fn write_large<W: Writer>(
        &mut self,
        w: &mut W,
        key: &[u8],
        value: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let mut page = self.leaves.page(&self.tree, w)?;
        let reference =
            Reference { len: value.len() as u64, stamp: w.stamp(), first: page, form: Form::Chain };
        let (chain, tail) = value.split_at(value.len() - tail_len(key, value));
        let mut chunks = chain.chunks(DATA_MAX).peekable();
        while let Some(chunk) = chunks.next() {
            let next = match chunks.peek() {
                Some(_) => self.leaves.page(&self.tree, w)?,
                None => PageId(0),
            };
            let bytes = format(self.tree.id, reference.stamp, chunk, next);
            let mut latched = self.tree.pool.create(page)?;
            w.unlogged(&mut latched, &Change::Page { kind: PageKind::Overflow, bytes: &bytes })?;
            page = next;
        }
        Ok(reference.encode(tail))
    }

    /// Writes the last nodes. The tree is still empty: see [`Loaded::install`].
    ///
    /// # Errors
    ///
    /// Those of the pool and of `Writer::change`.
    pub(crate) fn finish<W: Writer>(mut self, w: &mut W) -> Result<Loaded, Error> {
        let top = self.levels.len() - 1;
        for level in 0..top {
            let page = self.levels[level].page.expect("below the top there are two");
            self.write(w, level, page, None, PageId(0))?;
        }
        self.leaves.finish(&self.tree, w)?;
        self.inner.finish(&self.tree, w)?;
        self.blocks.finish(&self.tree, w)?;
        let root = self.levels.pop().expect("there is a leaf");
        let level = top as u8;
        Ok(Loaded { tree: self.tree, root, level, under_way: self.under_way })
    }
}

impl Filling {
    fn shape<'a>(
        &'a self,
        tree: &Tree,
        level: u8,
        upper: Option<&'a [u8]>,
        right: PageId,
    ) -> Shape<'a> {
        let (lower, first_child) = (&self.lower[..], self.first_child);
        Shape { level, tree: tree.id.0, lower, upper, right, first_child }
    }
}

impl Loaded {
    /// Makes all pages durable, then the tree visible: what was loaded is there for good.
    ///
    /// # Errors
    ///
    /// `NotEmpty` if its transaction has put entries there meanwhile; those of the pool and of
    /// `Writer::change`.
    pub(crate) fn install<W: Writer>(mut self, w: &mut W) -> Result<(), Error> {
        self.under_way.flush()?;
        let tree = &self.tree;
        let (mut header, fields) = tree.header_exclusive()?;
        let mut root = tree.pool.write(tree.root())?;
        let node = tree.node(root.id(), &root)?;
        if !node.is_leaf() || node.len() > 0 {
            return Err(Error::NotEmpty { table: tree.id().into() });
        }
        let shape = self.root.shape(tree, self.level, None, PageId(0));
        w.refers_to_unlogged();
        let nested = w.begin_nested();
        w.change(&mut root, &Change::Node { shape, cells: Cells(&self.root.cells) }, Undo::None)?;
        tree.set_header(w, &mut header, &Header { loading: false, ..fields })?;
        w.end_nested(nested)
    }
}
