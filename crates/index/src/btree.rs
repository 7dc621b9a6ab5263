//! The B+-tree with chained leaves: what the flash-aware structures are compared with.
//!
//! One node at a time is read and written: a search reads a node of each level that memory lacks,
//! an insert changes its leaf in memory, which is written when it leaves, and a range follows the
//! chain of leaves. Nodes are never merged: leaves that removals have emptied stay in the chain.
//!
//! - B1: the first key of the first node of a level is 0; every other key of an inner node bounds
//!   the keys below it.
//! - B2: the chain of leaves is in the order of keys, and ends with link 0.
//! - Memory: the buffer pool, and nothing else.
//! - Not for: many operations at a time; see `pio`.

use std::ops::Range;
use std::sync::Arc;

use crate::Error;
use crate::entry::{Key, Op, Pointer, Source, number};
use crate::index::{Index, Memory};
use crate::load::{Fill, Naming, TreeLayout};
use crate::page::{Page, PageKind, PageNo};
use crate::pages::{Devices, Keep, Pages, Room, Traffic};
use crate::superblock::Kind;

/// The B+-tree.
pub struct BTree {
    pages: Pages,
    keep_leaves: Keep,
    root: PageNo,
    height: usize,
}

/// Parameters of a B+-tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BTreeOptions {
    /// Pages, memory and groups.
    pub room: Room,
    /// Whether leaves stay in memory, beside the inner nodes.
    pub keep_leaves: Keep,
    /// How full a load makes nodes.
    pub fill: Fill,
}

const STATE_BYTES: usize = 8;

impl BTree {
    /// The layout of a load.
    #[must_use]
    pub fn layout(source: Arc<dyn Source>, options: &BTreeOptions) -> TreeLayout {
        TreeLayout::new(source, options.room.page_bytes, 1, options.fill, Naming::Chained)
    }

    /// Loads `source`, and settles.
    ///
    /// # Errors
    ///
    /// Keys out of order; a device that failed or has no room.
    pub fn load(
        devices: Devices,
        source: Arc<dyn Source>,
        options: BTreeOptions,
    ) -> Result<BTree, Error> {
        let layout = BTree::layout(source, &options);
        let mut pages = Pages::create(devices, Kind::BTree, options.room)?;
        layout.write(&mut pages)?;
        BTree::loaded(pages, &layout, options)
    }

    /// As `load`, on a device that holds the pages of `layout` already.
    ///
    /// # Errors
    ///
    /// As `load`.
    pub fn adopt(
        devices: Devices,
        layout: &TreeLayout,
        options: BTreeOptions,
    ) -> Result<BTree, Error> {
        let mut pages = Pages::create(devices, Kind::BTree, options.room)?;
        pages.claim(layout.end())?;
        BTree::loaded(pages, layout, options)
    }

    fn loaded(pages: Pages, layout: &TreeLayout, options: BTreeOptions) -> Result<BTree, Error> {
        let (root, height, keep_leaves) = (layout.root(), layout.height(), options.keep_leaves);
        let mut tree = BTree { pages, keep_leaves, root, height };
        tree.flush()?;
        Ok(tree)
    }

    /// Opens an index, and does again what a crash had interrupted.
    ///
    /// # Errors
    ///
    /// A device that failed, or that holds no index, or one of another structure.
    pub fn open(devices: Devices, options: BTreeOptions) -> Result<BTree, Error> {
        let (pages, state, ops) = Pages::open(devices, Kind::BTree, options.room)?;
        if state.len() != STATE_BYTES {
            return Err(Error::NotAnIndex);
        }
        let (root, height) = (number(&state, 0), Pages::check_height(number(&state, 4) as usize)?);
        let mut tree = BTree { pages, keep_leaves: options.keep_leaves, root, height };
        for op in ops {
            tree.change(op)?;
        }
        tree.flush()?;
        Ok(tree)
    }

    fn state(&self) -> Vec<u8> {
        let mut state = self.root.to_le_bytes().to_vec();
        state.extend_from_slice(&(self.height as u32).to_le_bytes());
        state
    }

    fn keep(&self, level: usize) -> Keep {
        if level == 0 { self.keep_leaves } else { Keep::Lru }
    }

    /// The leaf of `key`, and the inner nodes on the way with the child taken of each.
    fn descend(&mut self, key: Key) -> Result<(PageNo, Arc<Page>, Vec<Step>), Error> {
        let mut no = self.root;
        let mut steps = Vec::with_capacity(self.height);
        for level in (1..self.height).rev() {
            let node = self.pages.get(no, self.keep(level))?;
            if !node.is_inner(level) {
                return Err(Error::Corrupt { page: no });
            }
            let child = node.child_of(key);
            let below = node.pointer(child);
            steps.push(Step { no, child });
            no = below;
        }
        let leaf = self.leaf(no)?;
        Ok((no, leaf, steps))
    }

    fn leaf(&mut self, no: PageNo) -> Result<Arc<Page>, Error> {
        let leaf = self.pages.get(no, self.keep(0))?;
        if leaf.level() == 0 { Ok(leaf) } else { Err(Error::Corrupt { page: no }) }
    }

    fn change(&mut self, op: Op) -> Result<(), Error> {
        let (no, leaf, steps) = self.descend(op.key)?;
        let place = leaf.find(op.key);
        match (op.answer(), place) {
            (None, Err(_)) => Ok(()),
            (None, Ok(at)) => {
                let mut leaf = (*leaf).clone();
                leaf.remove_entry(at);
                self.store(no, leaf, 0)
            }
            (Some(pointer), Ok(at)) => {
                let mut leaf = (*leaf).clone();
                leaf.set_pointer(at, pointer);
                self.store(no, leaf, 0)
            }
            (Some(pointer), Err(_)) => self.insert_into(no, leaf, (op.key, pointer), steps),
        }
    }

    /// A node of a level that does not stay in memory is written at once.
    fn store(&mut self, no: PageNo, page: Page, level: usize) -> Result<(), Error> {
        match self.keep(level) {
            Keep::Lru => self.pages.put(no, page),
            Keep::Not => self.pages.write(vec![(no, page)], crate::pages::Undo::Wanted, Keep::Not),
        }
    }

    /// Inserts into a node, and into those above it as far as nodes split.
    fn insert_into(
        &mut self,
        mut no: PageNo,
        node: Arc<Page>,
        mut entry: (Key, Pointer),
        mut steps: Vec<Step>,
    ) -> Result<(), Error> {
        let mut node = (*node).clone();
        let mut level = 0;
        let mut at = node.find(entry.0).expect_err("the key is new");
        loop {
            if node.entries() < Page::capacity(node.bytes().len()) {
                node.insert_entry(at, entry);
                return self.store(no, node, level);
            }
            entry = self.split(no, node, (at, entry), level)?;
            let Some(step) = steps.pop() else { return self.grow(entry) };
            level += 1;
            (no, at) = (step.no, step.child + 1);
            node = (*self.pages.get(no, Keep::Lru)?).clone();
        }
    }

    /// Moves the upper half of a full node to a new one on its right, whose entry for the parent
    /// it gives.
    fn split(
        &mut self,
        no: PageNo,
        mut left: Page,
        (at, entry): (usize, (Key, Pointer)),
        level: usize,
    ) -> Result<(Key, PageNo), Error> {
        let half = left.entries() / 2;
        let right_no = self.pages.allocate(1, 1)?;
        let mut right = Page::new(left.bytes().len(), PageKind::Node, level as u8);
        left.split_off(half).into_iter().for_each(|entry| right.push_entry(entry));
        right.set_link(left.link());
        if level == 0 {
            left.set_link(u64::from(right_no));
        }
        if at <= half {
            left.insert_entry(at, entry);
        } else {
            right.insert_entry(at - half, entry);
        }
        let key = right.key(0);
        self.store(right_no, right, level)?;
        self.store(no, left, level)?;
        Ok((key, right_no))
    }

    /// A new root over the old one and the node that it was split into.
    fn grow(&mut self, right: (Key, PageNo)) -> Result<(), Error> {
        let no = self.pages.allocate(1, 1)?;
        let mut root = Page::new(self.pages.room().page_bytes, PageKind::Node, self.height as u8);
        root.push_entry((0, self.root));
        root.push_entry(right);
        self.store(no, root, self.height)?;
        self.root = no;
        self.height += 1;
        Ok(())
    }
}

/// An inner node on the way down, and which child was taken.
struct Step {
    no: PageNo,
    child: usize,
}

impl Index for BTree {
    fn get(&mut self, key: Key) -> Result<Option<Pointer>, Error> {
        let (_, leaf, _) = self.descend(key)?;
        Ok(leaf.find(key).ok().map(|at| leaf.pointer(at)))
    }

    /// One search after the other: this is the structure without MPSearch.
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
        if keys.is_empty() {
            return Ok(found);
        }
        let (_, mut leaf, _) = self.descend(keys.start)?;
        let (mut above, mut empty) = (keys.start, 0);
        loop {
            let first = leaf.find(keys.start).unwrap_or_else(|at| at);
            let end = leaf.find(keys.end).unwrap_or_else(|at| at);
            found.extend((first..end).map(|at| leaf.entry(at)));
            if end < leaf.entries() || leaf.link() == 0 {
                return Ok(found);
            }
            let no = PageNo::try_from(leaf.link()).unwrap_or(PageNo::MAX);
            leaf = self.leaf(no)?;
            // Leaves whose keys ascend are no circle; those without keys are met once each.
            let ascends = leaf.entries() == 0 || leaf.key(0) >= above;
            empty += u32::from(leaf.entries() == 0);
            if !ascends || empty > self.pages.next() {
                return Err(Error::Corrupt { page: no });
            }
            above = leaf
                .entries()
                .checked_sub(1)
                .map_or(above, |last| leaf.key(last).saturating_add(1));
        }
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.pages.commit()
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.pages.settle(self.state())
    }

    fn traffic(&self) -> Traffic {
        self.pages.traffic()
    }

    fn memory(&self) -> Memory {
        Memory { pool: self.pages.pool_bytes(), ..Memory::default() }
    }
}
