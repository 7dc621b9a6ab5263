//! Reading what many keys will need, before they are looked up: MPSearch (Roh et al., "B+-tree
//! Index Optimization by Exploiting Internal Parallelism of Flash-based Solid State Drives", VLDB
//! 2012), over the buffer pool.
//!
//! ```text
//!   keys, ascending      a b c | d e | f g h i
//!   root                    \     |     /             in memory, or one read
//!   level 1                  n1   n2   n3             those that are away: one batch
//!   leaves                 l1 l2  l3  l4 l5           one batch
//!   values                 v1     v2     v3           first pages of large ones: one batch
//! ```
//!
//! - F1: it locks nothing and decides nothing: what it finds may have changed when the keys are
//!   looked up, and what cannot be read is met again then. So it returns no errors.

use std::ops::Range;

use terrace_page::PageId;

use super::Tree;
use super::descend::Seek;
use super::node::{GHOST, Node, OVERFLOW};
use super::reference::Reference;

/// Keys for which pages are read at once, at most: the pool reads as many together.
pub(crate) const FETCHED_MAX: usize = 64;
/// Keys that are looked at to know whether the values of a group are large.
const SAMPLED: usize = 4;

impl Tree {
    /// Brings the leaves of `keys`, which ascend, into memory, and the first pages of their values
    /// if those are large: one batch of reads for each level.
    pub(crate) fn fetch<K: AsRef<[u8]>>(&self, keys: &[K]) {
        let mut nodes = vec![(self.root(), 0..keys.len())];
        while !nodes.is_empty() {
            let mut below = Vec::new();
            for (id, range) in nodes {
                self.children_of(id, range, keys, &mut below);
            }
            let pages: Vec<PageId> = below.iter().map(|(page, _)| *page).collect();
            self.pool.prefetch(&pages);
            nodes = below;
        }
        let step = keys.len().div_ceil(SAMPLED).max(1);
        if keys.iter().step_by(step).any(|key| self.value_page(key.as_ref()).is_some()) {
            let pages: Vec<_> =
                keys.iter().filter_map(|key| self.value_page(key.as_ref())).collect();
            self.pool.prefetch(&pages);
        }
    }

    /// The children of an inner node that cover the keys of a range, each with its keys.
    fn children_of<K: AsRef<[u8]>>(
        &self,
        id: PageId,
        range: Range<usize>,
        keys: &[K],
        below: &mut Vec<(PageId, Range<usize>)>,
    ) {
        let Ok(page) = self.pool.read(id) else { return };
        let Some(node) = Node::open(&page).filter(|node| node.tree() == self.id.0) else { return };
        if node.is_leaf() {
            return;
        }
        page.let_peek();
        for at in range {
            let child = node.child(node.child_of(keys[at].as_ref()));
            match below.last_mut() {
                Some((last, range)) if *last == child => range.end = at + 1,
                _ => below.push((child, at..at + 1)),
            }
        }
    }

    /// The first page of the value of `key`, if that is a large one.
    fn value_page(&self, key: &[u8]) -> Option<PageId> {
        let leaf = self.leaf_shared(Seek::Key(key)).ok()?;
        let node = Node::open(&leaf)?;
        let (flags, value) = node.record(node.search(key).ok()?);
        if flags & (OVERFLOW | GHOST) != OVERFLOW {
            return None;
        }
        let reference = Reference::of(leaf.id(), value).ok()?;
        (reference.first != PageId(0)).then_some(reference.first)
    }
}
