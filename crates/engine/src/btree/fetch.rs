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
//! - F2: a snapshot needs no lock: what it sees in a leaf that is latched, and whose fences hold
//!   the key, is what a lookup would find, whatever happens to the leaf later. So values are taken
//!   from the leaves as those come, while the device reads the others.

use std::ops::Range;

use terrace_page::{PageBuf, PageId};

use super::Tree;
use super::descend::Seek;
use super::node::{GHOST, Node, OVERFLOW};
use super::reference::Reference;
use crate::versions::View;

/// Keys for which pages are read at once, at most: the pool reads as many together.
pub(crate) const FETCHED_MAX: usize = 64;
/// Keys that are looked at to know whether the values of a group are large.
const SAMPLED: usize = 4;

impl Tree {
    /// Brings the leaves of `keys`, which ascend, into memory, and the first pages of their values
    /// if those are large: one batch of reads for each level. Of what `view` sees, if there is one,
    /// it shows each value, and what is absent, to `found` as its leaf comes, with the key's place;
    /// the other keys are to be looked up.
    pub(crate) fn fetch<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        view: Option<View<'_>>,
        mut found: impl FnMut(usize, Option<&[u8]>),
    ) {
        let mut is_found = vec![false; keys.len()];
        let mut nodes = vec![(self.root(), 0..keys.len())];
        while !nodes.is_empty() {
            let mut below = Vec::new();
            for (id, range) in nodes {
                self.children_of(id, range, keys, &mut below);
            }
            let pages: Vec<PageId> = below.iter().map(|(page, _)| *page).collect();
            match &view {
                Some(view) => self.pool.read_once(&pages, |at, leaf| {
                    for key in below[at].1.clone() {
                        let mut show = |value: Option<&[u8]>| {
                            is_found[key] = true;
                            found(key, value);
                        };
                        self.see_at_once(view, &leaf, keys[key].as_ref(), &mut show);
                    }
                }),
                None => self.pool.prefetch_once(&pages),
            }
            nodes = below;
        }
        let left: Vec<&[u8]> =
            (0..keys.len()).filter(|at| !is_found[*at]).map(|at| keys[at].as_ref()).collect();
        let step = left.len().div_ceil(SAMPLED).max(1);
        if left.iter().step_by(step).any(|key| self.value_page(key).is_some()) {
            let pages: Vec<_> = left.iter().filter_map(|key| self.value_page(key)).collect();
            self.pool.prefetch_once(&pages);
        }
    }

    /// Shows what `view` sees of `key` in a latched page, if that is the key's leaf and tells it
    /// without more ado. Waits for nothing.
    fn see_at_once(
        &self,
        view: &View<'_>,
        page: &PageBuf,
        key: &[u8],
        show: &mut dyn FnMut(Option<&[u8]>),
    ) {
        let is_leaf = |node: &Node<'_>| node.tree() == self.id.0 && node.is_leaf();
        let Some(node) = Node::open(page).filter(|node| is_leaf(node) && node.covers(key)) else {
            return;
        };
        if !view.is_old(page) || view.is_ended() {
            return;
        }
        match node.search(key).map(|slot| node.record(slot)) {
            Ok((flags, _)) if flags & (OVERFLOW | GHOST) == OVERFLOW => (),
            Ok((flags, value)) => show((flags & GHOST == 0).then_some(value)),
            Err(_) => show(None),
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
