//! The whole tree, checked: btree.T1 and btree.T2, and every node by itself.
//!
//! No other task may change the tree meanwhile.

use std::collections::BTreeSet;

use terrace_page::{PageBuf, PageId};

use super::Tree;
use super::node::{self, GHOST, Node, OVERFLOW};
use super::overflow::DATA_MAX;
use super::reference::{Form, Parts, Reference};
use super::runs::runs_in;
use crate::space::{Unreferenced, blocks_of};
use crate::{Error, TreeId};

/// What a tree consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeStats {
    /// Levels, the root's and the leaves' included.
    pub(crate) levels: u32,
    /// Keys.
    pub(crate) keys: u64,
    /// Keys that were removed, and not purged yet.
    pub(crate) ghosts: u64,
    /// Leaves.
    pub(crate) leaves: u64,
    /// Inner nodes.
    pub(crate) inner_nodes: u64,
    /// Pages of large values that are there.
    pub(crate) overflow_pages: u64,
    /// Pages of large values that wait to be freed.
    pub(crate) pending_pages: u64,
    /// Bytes of keys and records in leaves, slots included.
    pub(crate) leaf_bytes: u64,
    /// Extents that belong to the tree.
    pub(crate) extents: u64,
}

/// A walk through a tree.
struct Walk<'t> {
    tree: &'t Tree,
    stats: TreeStats,
    pages: BTreeSet<PageId>,
    /// Pages of blocks that records refer to.
    blocks: BTreeSet<PageId>,
    /// For each level, the right neighbour of the last node seen there.
    rights: Vec<PageId>,
}

/// What a parent says of a child.
struct Expected {
    page: PageId,
    level: u8,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl Tree {
    /// Checks the whole tree and its space.
    ///
    /// # Errors
    ///
    /// `Corrupt` with the first page found wrong; those of the pool.
    pub(crate) fn check(&self) -> Result<TreeStats, Error> {
        let pages = BTreeSet::from([self.header, self.root()]);
        let (stats, blocks, rights) = (TreeStats::default(), BTreeSet::new(), Vec::new());
        let mut walk = Walk { tree: self, stats, pages, blocks, rights };
        walk.pending()?;
        walk.nodes()?;
        walk.space()?;
        walk.space_of_blocks()?;
        Ok(walk.stats)
    }
}

impl Walk<'_> {
    fn see(&mut self, page: PageId) -> Result<(), Error> {
        if self.pages.insert(page) {
            return Ok(());
        }
        Err(Tree::corrupt(page, "it is in two places of a tree"))
    }

    fn nodes(&mut self) -> Result<(), Error> {
        let root = self.tree.root();
        let level = {
            let page = self.tree.pool.read(root)?;
            self.tree.node(root, &page)?.level()
        };
        self.stats.levels = u32::from(level) + 1;
        self.rights = vec![PageId(0); usize::from(level) + 1];
        // Depth first, left to right: the rightmost waits at the bottom.
        let mut stack = vec![Expected { page: root, level, lower: Vec::new(), upper: None }];
        while let Some(expected) = stack.pop() {
            self.node(&expected, &mut stack)?;
        }
        match self.rights.iter().find(|right| **right != PageId(0)) {
            Some(right) => Err(Tree::corrupt(*right, "a level goes on behind its last node")),
            None => Ok(()),
        }
    }

    fn node(&mut self, expected: &Expected, stack: &mut Vec<Expected>) -> Result<(), Error> {
        let id = expected.page;
        let page = self.tree.pool.read(id)?;
        node::check(&page).map_err(|what| Tree::corrupt(id, what))?;
        let node = self.tree.node(id, &page)?;
        let fences = (node.lower(), node.upper()) == (&expected.lower, expected.upper.as_deref());
        if node.level() != expected.level || !fences {
            return Err(Tree::corrupt(id, "it is not the node that its parent says"));
        }
        let right = &mut self.rights[usize::from(node.level())];
        if *right != id && !expected.lower.is_empty() {
            return Err(Tree::corrupt(id, "its left neighbour does not lead to it"));
        }
        *right = node.right();
        if id != self.tree.root() {
            self.see(id)?;
        }
        if node.is_leaf() {
            return self.leaf(id, &node);
        }
        self.stats.inner_nodes += 1;
        let mut upper = expected.upper.clone();
        for index in (0..=node.len()).rev() {
            let lower = match index.checked_sub(1) {
                Some(separator) => node.key(separator).to_vec(),
                None => expected.lower.clone(),
            };
            let below = upper.replace(lower.clone());
            let (page, level) = (node.child(index), node.level() - 1);
            stack.push(Expected { page, level, lower, upper: below });
        }
        Ok(())
    }

    fn leaf(&mut self, id: PageId, node: &Node<'_>) -> Result<(), Error> {
        self.stats.leaves += 1;
        self.stats.keys += (node.len() - node.ghosts()) as u64;
        self.stats.ghosts += node.ghosts() as u64;
        self.stats.leaf_bytes += node.used() as u64;
        for slot in 0..node.len() {
            let (flags, value) = node.record(slot);
            if flags & !(OVERFLOW | GHOST) != 0 {
                return Err(Tree::corrupt(id, "a record has unknown flags"));
            }
            // What a ghost refers to waits to be freed, or is freed.
            if flags & (OVERFLOW | GHOST) == OVERFLOW {
                let (large, Parts { chain_len, .. }) = Reference::with_parts(id, value)?;
                match large.form {
                    Form::Lists => {
                        self.listed(id, &large)?;
                        continue;
                    }
                    Form::Block => {
                        self.block(&large)?;
                        continue;
                    }
                    Form::Chain => {}
                }
                let (pages, bytes) = self.chain(large.first, large.stamp)?;
                if bytes != chain_len || pages != chain_len.div_ceil(DATA_MAX as u64) {
                    return Err(Tree::corrupt(id, "a large value has another length"));
                }
                self.stats.overflow_pages += pages;
            }
        }
        Ok(())
    }

    /// A block: its page is there, and is that of the record.
    fn block(&mut self, large: &Reference) -> Result<(), Error> {
        let page = large.first;
        if !self.blocks.insert(page) {
            return Err(Tree::corrupt(page, "it is in two places of a tree"));
        }
        self.stats.overflow_pages += 1;
        self.tree.check_raw(page, &*self.tree.pool.read(page)?, large.stamp)
    }

    /// A value whose pages are listed: each is there, and is a part of it.
    fn listed(&mut self, leaf: PageId, large: &Reference) -> Result<(), Error> {
        let (pages, _) = self.chain(large.first, large.stamp)?;
        self.stats.overflow_pages += pages;
        let located = self.tree.located(leaf, large)?;
        located.pages().try_for_each(|page| {
            let bytes = self.tree.pool.read(page)?;
            self.tree.check_raw(page, &bytes, large.stamp)
        })
    }

    /// The pages of a chain, those that it lists among them, and the bytes in it.
    fn chain(&mut self, first: PageId, stamp: u64) -> Result<(u64, u64), Error> {
        let (mut pages, mut bytes) = (0, 0);
        let mut next = first;
        while next != PageId(0) {
            self.see(next)?;
            let page = self.tree.pool.read(next)?;
            let link = self.tree.link_of(next, &page, stamp)?;
            if link.pending && self.stats.levels > 0 {
                return Err(Tree::corrupt(next, "a value that is there waits to be freed"));
            }
            pages += 1;
            bytes += link.len as u64;
            next = link.next;
            for run in runs_in(&page, &link) {
                pages += u64::from(run.pages);
                (0..u64::from(run.pages)).try_for_each(|at| self.see(run.first.plus(at)))?;
            }
        }
        Ok((pages, bytes))
    }

    /// The list of chains that wait to be freed; before the nodes.
    fn pending(&mut self) -> Result<(), Error> {
        let fields = self.tree.header_fields()?;
        if fields.loading {
            return Err(Tree::corrupt(self.tree.header, "the tree was not loaded to its end"));
        }
        let mut last = PageId(0);
        let mut next = fields.pending_first;
        while next != PageId(0) {
            let link = {
                let page = self.tree.pool.read(next)?;
                self.tree.link(next, &page)?
            };
            if !link.pending || link.before != last {
                return Err(Tree::corrupt(next, "the list of values to be freed is broken"));
            }
            self.stats.pending_pages += self.chain(next, link.stamp)?.0;
            last = next;
            next = link.after;
        }
        if last != fields.pending_last {
            return Err(Tree::corrupt(last, "the list of values to be freed ends early"));
        }
        Ok(())
    }

    /// btree.T1: used pages and reachable pages are the same.
    fn space(&mut self) -> Result<(), Error> {
        let used = self.used_by(self.tree.id)?;
        if let Some(page) = used.difference(&self.pages).next() {
            return Err(Tree::corrupt(*page, "it is in use, and no node leads to it"));
        }
        if let Some(page) = self.pages.difference(&used).next() {
            return Err(Tree::corrupt(*page, "it is part of a tree, and its map says it is not"));
        }
        Ok(())
    }
}

impl Walk<'_> {
    /// The pages of an owner that are in use.
    fn used_by(&mut self, owner: TreeId) -> Result<BTreeSet<PageId>, Error> {
        let extents = self.tree.space.extents_of(owner)?;
        self.stats.extents += extents.len() as u64;
        let mut used = BTreeSet::new();
        for extent in extents {
            let bits = (0..32).filter(|bit| extent.used & 1 << bit != 0);
            used.extend(bits.map(|bit| extent.first.plus(bit)));
        }
        Ok(used)
    }

    /// Pages of blocks are in use if a record refers to them, or they are left over.
    fn space_of_blocks(&mut self) -> Result<(), Error> {
        let used = self.used_by(blocks_of(self.tree.id))?;
        if let Some(page) = self.blocks.difference(&used).next() {
            return Err(Tree::corrupt(*page, "it is a block, and its map says it is not"));
        }
        let left_over = self.tree.header_fields()?.left_over;
        let unreferenced = self.tree.space.unreferenced_blocks(self.tree.id);
        let unreferenced = unreferenced
            .unwrap_or_else(|| Unreferenced { may_be_more: left_over, ..Unreferenced::default() });
        if let Some(page) = self.blocks.intersection(&unreferenced.pages).next() {
            return Err(Tree::corrupt(*page, "a block that is there is to be used again"));
        }
        let is_known = |page: &&PageId| unreferenced.pages.contains(*page);
        let rest = used.difference(&self.blocks);
        self.stats.pending_pages += rest.clone().count() as u64;
        let mut unknown = rest.filter(|page| !is_known(page));
        match unknown.next() {
            Some(page) if !unreferenced.may_be_more => {
                Err(Tree::corrupt(*page, "it is in use, and no record leads to it"))
            }
            _ => Ok(()),
        }
    }
}

/// Looks at a page as a node, and at what the records of a leaf refer to, whatever its bytes.
pub(crate) fn fuzz(page: &PageBuf) {
    if node::check(page).is_err() {
        return;
    }
    let leaf = Node::again(page);
    if !leaf.is_leaf() {
        return;
    }
    for slot in 0..leaf.len() {
        let (flags, value) = leaf.record(slot);
        if let Some((large, parts)) = Reference::decode(value)
            && flags & OVERFLOW != 0
        {
            assert_eq!(large.len, parts.chain_len + parts.tail.len() as u64);
            assert_eq!(large.encode(parts.tail), value);
        }
    }
}
