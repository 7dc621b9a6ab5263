//! BFTL (Wu, Kuo and Chang, 2007): a B-tree whose nodes are scattered over a log of small changes,
//! for flash that must not be written in place.
//!
//! ```text
//!   insert, update, remove --> reservation buffer --full--> a page of units, of many nodes
//!   node 7: base page 12, units in 40, 55, 61       (the node translation table, in memory)
//!           a fifth part? compacted: base page 70
//! ```
//!
//! `unit` has the units, `table` the table, `compact` what is written.
//!
//! - W1: a node is its base page, then the units for it in the listed pages, then those in the
//!   reservation buffer; the newest of a key counts.
//! - W2: pages are written in new places, and freed ones are used again only after a settling: so a
//!   crash finds the nodes as they were then, by the numbers of the writes (links).
//! - Kinder than the original: a compacted node has entries of 8 bytes, not units of 25, so that as
//!   many as of a B+-tree fit; and new pages go through the buffer pool.
//! - Memory: the buffer, the table, and what they leave of it for the pool, though an eighth at
//!   least; `memory` tells what they take beyond.

mod compact;
mod table;
mod unit;

use std::ops::Range;
use std::sync::Arc;

use self::table::NodeTable;
use self::unit::{NodeId, UNIT_BYTES, Unit};
use crate::Error;
use crate::entry::{Key, Op, Pointer, Source, number, overlay};
use crate::index::{Index, Memory};
use crate::load::{Fill, Naming, TreeLayout};
use crate::page::{Page, PageKind, PageNo};
use crate::pages::{Devices, Keep, Pages, Room, Traffic};
use crate::superblock::{Kind, first_page};

const STATE_BYTES: usize = 16;
/// The table leaves the pool this share of memory.
const POOL_SHARE: usize = 8;
/// Pages that are read together when an index is opened.
const SURVEY_PAGES: PageNo = 256;

/// Parameters of BFTL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BftlOptions {
    /// Pages and memory.
    pub room: Room,
    /// Units in the reservation buffer; 60 in the original.
    pub buffer_units: usize,
    /// Pages that a node may be in, its base included; 4 in the original.
    pub list_max: usize,
    /// How full a load makes nodes.
    pub fill: Fill,
}

/// BFTL.
pub struct Bftl {
    pages: Pages,
    options: BftlOptions,
    buffer: Vec<Unit>,
    table: NodeTable,
    root: NodeId,
    height: usize,
    /// Number of the last write.
    written: u32,
    free: Vec<PageNo>,
    /// Freed since the last settling.
    freed: Vec<PageNo>,
}

/// The parts of a node.
struct View {
    node: NodeId,
    base: Arc<Page>,
    units: Vec<Arc<Page>>,
}

impl View {
    fn level(&self) -> u8 {
        self.base.level()
    }

    fn is_leaf(&self) -> bool {
        self.level() == 0
    }

    /// Its changes, oldest first; `buffer` has what waits.
    fn ops<'a>(&'a self, buffer: &'a [Unit]) -> impl DoubleEndedIterator<Item = Op> + 'a {
        let written =
            self.units.iter().flat_map(|page| unit::ops_of(page, self.node, self.is_leaf()));
        let waiting = buffer.iter().filter(|unit| unit.node == self.node).map(|unit| unit.op);
        written.chain(waiting)
    }

    fn entries(&self, buffer: &[Unit]) -> Vec<(Key, Pointer)> {
        let mut ops: Vec<Op> = self.ops(buffer).collect();
        ops.sort_by_key(|op| op.key);
        overlay(self.base.iter(), &ops)
    }

    fn find(&self, buffer: &[Unit], key: Key) -> Option<Pointer> {
        match self.ops(buffer).rev().find(|op| op.key == key) {
            Some(op) => op.answer(),
            None => self.base.find(key).ok().map(|at| self.base.pointer(at)),
        }
    }

    /// The child for `key`, and the lowest key of the next child.
    fn child(&self, buffer: &[Unit], key: Key) -> (NodeId, Option<Key>) {
        let at = self.base.child_of(key);
        let mut best = self.base.entry(at);
        let mut bound = (at + 1 < self.base.entries()).then(|| self.base.key(at + 1));
        for op in self.ops(buffer) {
            if op.key <= key && op.key >= best.0 {
                best = (op.key, op.pointer);
            }
            if op.key > key && bound.is_none_or(|bound| op.key < bound) {
                bound = Some(op.key);
            }
        }
        (best.1, bound)
    }
}

impl Bftl {
    /// The layout of a load.
    #[must_use]
    pub fn layout(source: Arc<dyn Source>, options: &BftlOptions) -> TreeLayout {
        TreeLayout::new(source, options.room.page_bytes, 1, options.fill, Naming::Nodes)
    }

    /// Loads `source`, and settles.
    ///
    /// # Errors
    ///
    /// Keys out of order; a device that failed or has no room.
    pub fn load(
        devices: Devices,
        source: Arc<dyn Source>,
        options: BftlOptions,
    ) -> Result<Bftl, Error> {
        let layout = Bftl::layout(source, &options);
        let mut pages = Pages::create(devices, Kind::Bftl, options.room)?;
        layout.write(&mut pages)?;
        Bftl::loaded(pages, &layout, options)
    }

    /// As `load`, on a device that holds the pages of `layout` already.
    ///
    /// # Errors
    ///
    /// As `load`.
    pub fn adopt(
        devices: Devices,
        layout: &TreeLayout,
        options: BftlOptions,
    ) -> Result<Bftl, Error> {
        let mut pages = Pages::create(devices, Kind::Bftl, options.room)?;
        pages.claim(layout.end())?;
        Bftl::loaded(pages, layout, options)
    }

    fn loaded(pages: Pages, layout: &TreeLayout, options: BftlOptions) -> Result<Bftl, Error> {
        let mut tree = Bftl {
            pages,
            options,
            buffer: Vec::new(),
            table: NodeTable::loaded(layout.first_leaf(), layout.nodes()),
            root: layout.nodes() as NodeId - 1,
            height: layout.height(),
            written: 1,
            free: Vec::new(),
            freed: Vec::new(),
        };
        tree.share_memory()?;
        tree.flush()?;
        Ok(tree)
    }

    /// Opens an index: reads all its pages to make the table, and does again what a crash had
    /// interrupted.
    ///
    /// # Errors
    ///
    /// A device that failed, or that holds no index, or one of another structure.
    pub fn open(devices: Devices, options: BftlOptions) -> Result<Bftl, Error> {
        let (pages, state, ops) = Pages::open(devices, Kind::Bftl, options.room)?;
        if state.len() != STATE_BYTES {
            return Err(Error::NotAnIndex);
        }
        let nodes = number(&state, 8);
        if nodes > pages.next() {
            return Err(Error::NotAnIndex);
        }
        let mut tree = Bftl {
            pages,
            options,
            buffer: Vec::new(),
            table: NodeTable::unknown(nodes, 0),
            root: number(&state, 0),
            height: Pages::check_height(number(&state, 4) as usize)?,
            written: number(&state, 12),
            free: Vec::new(),
            freed: Vec::new(),
        };
        tree.survey()?;
        tree.share_memory()?;
        for op in ops {
            tree.change(op)?;
        }
        tree.flush()?;
        Ok(tree)
    }

    fn state(&self) -> Vec<u8> {
        let fields = [self.root, self.height as u32, self.table.nodes(), self.written];
        fields.iter().flat_map(|field| field.to_le_bytes()).collect()
    }

    /// Makes the table from the pages (W2).
    fn survey(&mut self) -> Result<(), Error> {
        let first = first_page(self.pages.room().page_bytes);
        let mut newest = vec![0; self.table.nodes() as usize];
        let mut units: Vec<(u32, PageNo, Vec<NodeId>)> = Vec::new();
        let end = self.pages.next();
        let mut no = first;
        while no < end {
            let numbers: Vec<PageNo> = (no..end.min(no + SURVEY_PAGES)).collect();
            for (no, page) in numbers.iter().zip(self.pages.survey(&numbers)?) {
                let Some(page) = page else { continue };
                let (write, node) = ((page.link() >> 32) as u32, page.link() as NodeId);
                if write > self.written {
                    continue;
                }
                if page.is_of(PageKind::Units) {
                    let mut nodes: Vec<NodeId> =
                        (0..page.entries()).map(|at| unit::node(&page, at)).collect();
                    nodes.dedup();
                    units.push((write, *no, nodes));
                } else if newest.get(node as usize).is_some_and(|known| *known < write) {
                    newest[node as usize] = write;
                    self.table.set_base(node, *no);
                }
            }
            no += numbers.len() as PageNo;
        }
        if newest.contains(&0) {
            let node = newest.iter().position(|write| *write == 0).unwrap_or_default();
            return Err(Error::Corrupt { page: first + node as PageNo });
        }
        units.sort_unstable();
        for (write, no, mut nodes) in units {
            nodes.retain(|node| newest.get(*node as usize).is_some_and(|base| *base < write));
            if !nodes.is_empty() {
                self.table.append(no, &nodes);
            }
        }
        let mut is_base = vec![false; end as usize];
        (0..self.table.nodes()).for_each(|node| is_base[self.table.base(node) as usize] = true);
        let is_free = |no: &PageNo| !is_base[*no as usize] && !self.table.needs(*no);
        self.free = (first..end).filter(is_free).collect();
        Ok(())
    }

    fn share_memory(&mut self) -> Result<(), Error> {
        let buffer = (self.options.buffer_units * UNIT_BYTES) as u64;
        let least = self.options.room.memory_pages / POOL_SHARE;
        self.pages.share_memory(self.table.bytes() + buffer, least)
    }

    /// The link of the next write.
    fn next_link(&mut self, node: NodeId) -> Result<u64, Error> {
        self.written = self.written.checked_add(1).ok_or(Error::WritesUsedUp)?;
        Ok(u64::from(self.written) << 32 | u64::from(node))
    }

    /// Pages that nothing needs any more: to be used again once no crash can want them.
    fn release(&mut self, pages: Vec<PageNo>) {
        pages.iter().for_each(|no| self.pages.forget(*no));
        if self.pages.has_journal() { self.freed.extend(pages) } else { self.free.extend(pages) }
    }

    fn page_of(&mut self, no: PageNo, kind: PageKind) -> Result<Arc<Page>, Error> {
        let page = self.pages.get(no, Keep::Lru)?;
        if page.is_of(kind) { Ok(page) } else { Err(Error::Corrupt { page: no }) }
    }

    /// Reads the parts of a node, one after the other.
    fn view(&mut self, node: NodeId) -> Result<View, Error> {
        if node >= self.table.nodes() {
            return Err(Error::Corrupt { page: node });
        }
        let base = self.page_of(self.table.base(node), PageKind::Node)?;
        let mut units = Vec::new();
        for at in 0..self.table.list(node).len() {
            let no = self.table.list(node)[at];
            units.push(self.page_of(no, PageKind::Units)?);
        }
        Ok(View { node, base, units })
    }

    /// The node of level `wanted` for `key`, its parent (0 of the root), and the lowest key of the
    /// next node of that level.
    fn descend(&mut self, key: Key, wanted: usize) -> Result<(NodeId, NodeId, Option<Key>), Error> {
        let (mut node, mut parent, mut bound) = (self.root, 0, None);
        for level in (wanted + 1..self.height).rev() {
            let view = self.view(node)?;
            if !view.base.is_inner(level) {
                return Err(Error::Corrupt { page: self.table.base(node) });
            }
            let (child, next) = view.child(&self.buffer, key);
            (parent, node) = (node, child);
            bound = next.or(bound);
        }
        Ok((node, parent, bound))
    }

    /// The node above `level` for `key`, and its parent.
    fn node_above(&mut self, key: Key, level: usize) -> Result<(NodeId, NodeId), Error> {
        let (node, parent, _) = self.descend(key, level + 1)?;
        Ok((node, parent))
    }

    fn change(&mut self, op: Op) -> Result<(), Error> {
        let (node, parent, _) = self.descend(op.key, 0)?;
        self.buffer.push(Unit { node, parent, op, is_leaf: true });
        if self.buffer.len() >= self.options.buffer_units {
            compact::write_units(self)?;
        }
        Ok(())
    }
}

impl Index for Bftl {
    fn get(&mut self, key: Key) -> Result<Option<Pointer>, Error> {
        let (leaf, _, _) = self.descend(key, 0)?;
        Ok(self.view(leaf)?.find(&self.buffer, key))
    }

    /// One search after the other, as the original has it.
    fn get_many(&mut self, keys: &[Key]) -> Result<Vec<Option<Pointer>>, Error> {
        keys.iter().map(|key| self.get(*key)).collect()
    }

    fn apply(&mut self, op: Op) -> Result<(), Error> {
        if self.pages.wants_settling() {
            self.flush()?;
        }
        self.pages.log(op)?;
        self.change(op)
    }

    fn range(&mut self, keys: Range<Key>) -> Result<Vec<(Key, Pointer)>, Error> {
        let mut found = Vec::new();
        let mut next = (keys.start < keys.end).then_some(keys.start);
        while let Some(key) = next {
            let (leaf, _, bound) = self.descend(key, 0)?;
            let entries = self.view(leaf)?.entries(&self.buffer);
            found.extend(entries.into_iter().filter(|(key, _)| keys.contains(key)));
            next = bound.filter(|bound| *bound < keys.end);
        }
        Ok(found)
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.pages.commit()
    }

    fn flush(&mut self) -> Result<(), Error> {
        while !self.buffer.is_empty() {
            compact::write_units(self)?;
        }
        self.pages.settle(self.state())?;
        self.free.append(&mut self.freed);
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        self.pages.traffic()
    }

    fn memory(&self) -> Memory {
        Memory {
            pool: self.pages.pool_bytes(),
            queue: (self.options.buffer_units * UNIT_BYTES) as u64,
            tables: self.table.bytes(),
            search: 0,
        }
    }
}
