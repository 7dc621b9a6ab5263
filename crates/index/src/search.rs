//! MPSearch (Roh et al., 2014): many requests go down a tree together, depth first by groups of
//! PioMax nodes, so that one task keeps the device's queue full with little memory.
//!
//! ```text
//!   root -----> [n n n n] a group: one psync read
//!                 |  their children, PioMax at a time, before the next group of this level
//!                 v
//!              [n n n n] ...             at most PioMax nodes of each level in memory
//! ```

use std::ops::Range;
use std::sync::Arc;

use crate::Error;
use crate::entry::{Key, Pointer};
use crate::page::{Page, PageNo};
use crate::pages::{Keep, Pages, Run};

/// The requests for a node: a part of the sorted keys.
pub(crate) type Span = Range<usize>;
/// A node and its requests.
pub(crate) type Wanted = (PageNo, Span);

/// A node that was added behind the node at place `after` of its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Added {
    pub(crate) after: usize,
    pub(crate) key: Key,
    pub(crate) page: PageNo,
}

/// What is done at the nodes.
pub(crate) trait Visit {
    /// The next child that a request of `span` leads to, with its requests; what is left stays in
    /// `span`.
    fn child(&self, node: &Page, span: &mut Span) -> Option<Wanted>;

    /// Whether a page can be a node above the leaves, of `level`.
    fn check(&self, node: &Page, level: usize) -> bool {
        node.is_inner(level)
    }

    /// A group of inner nodes was read.
    fn nodes(&mut self, nodes: &[Arc<Page>], group: &[Wanted]) {
        let _ = (nodes, group);
    }

    /// A group of leaves is reached; gives those that were added.
    fn leaves(&mut self, pages: &mut Pages, group: &[Wanted]) -> Result<Vec<Added>, Error>;

    /// Children were added to a group of inner nodes; gives nodes that were added beside these.
    fn grow(
        &mut self,
        _pages: &mut Pages,
        _nodes: Vec<(PageNo, Arc<Page>)>,
        _added: Vec<Added>,
    ) -> Result<Vec<Added>, Error> {
        unreachable!("a search adds no leaf")
    }
}

/// Takes the requests of a `group` of nodes of `level` down; level 0 has the leaves.
pub(crate) fn search(
    pages: &mut Pages,
    visit: &mut impl Visit,
    level: usize,
    group: &[Wanted],
) -> Result<Vec<Added>, Error> {
    assert!(group.len() <= pages.room().pio_max, "a group has PioMax nodes at most");
    if level == 0 {
        return visit.leaves(pages, group);
    }
    let runs: Vec<Run> = group.iter().map(|(no, _)| Run { first: *no, pages: 1 }).collect();
    let nodes: Vec<Arc<Page>> = pages.get_runs(&runs, Keep::Lru)?.into_iter().flatten().collect();
    for (node, (page, _)) in nodes.iter().zip(group) {
        visit.check(node, level).then_some(()).ok_or(Error::Corrupt { page: *page })?;
    }
    visit.nodes(&nodes, group);
    let mut added = Vec::new();
    let mut below: Vec<Wanted> = Vec::with_capacity(pages.room().pio_max);
    let mut owners: Vec<usize> = Vec::with_capacity(pages.room().pio_max);
    for (owner, (node, (_, span))) in nodes.iter().zip(group).enumerate() {
        let mut span = span.clone();
        while let Some(child) = visit.child(node, &mut span) {
            below.push(child);
            owners.push(owner);
            if below.len() == pages.room().pio_max {
                descend(pages, visit, level, (&mut below, &mut owners), &mut added)?;
            }
        }
    }
    descend(pages, visit, level, (&mut below, &mut owners), &mut added)?;
    if added.is_empty() {
        return Ok(added);
    }
    let nodes = group.iter().map(|(no, _)| *no).zip(nodes).collect();
    visit.grow(pages, nodes, added)
}

fn descend(
    pages: &mut Pages,
    visit: &mut impl Visit,
    level: usize,
    (below, owners): (&mut Vec<Wanted>, &mut Vec<usize>),
    added: &mut Vec<Added>,
) -> Result<(), Error> {
    if below.is_empty() {
        return Ok(());
    }
    let found = search(pages, visit, level - 1, below)?;
    added.extend(found.into_iter().map(|new| Added { after: owners[new.after], ..new }));
    below.clear();
    owners.clear();
    Ok(())
}

/// The next child of `node` for sorted `keys[span]`, with its part of them.
pub(crate) fn child_for_keys(
    node: &Page,
    keys: impl Fn(usize) -> Key,
    span: &mut Span,
) -> Option<Wanted> {
    if span.start >= span.end {
        return None;
    }
    let child = node.child_of(keys(span.start));
    let mut end = span.start + 1;
    if child + 1 < node.entries() {
        let bound = node.key(child + 1);
        while end < span.end && keys(end) < bound {
            end += 1;
        }
    } else {
        end = span.end;
    }
    let taken = span.start..end;
    span.start = end;
    Some((node.pointer(child), taken))
}

/// The next child of `node` that has keys of `range`: a span counts children here, and begins as
/// all numbers.
pub(crate) fn child_for_range(node: &Page, range: &Range<Key>, span: &mut Span) -> Option<Wanted> {
    let first = node.child_of(range.start);
    let child = span.start.max(first);
    let begins_in = |child: usize| child == first || node.key(child) < range.end;
    if child >= node.entries() || !begins_in(child) {
        return None;
    }
    span.start = child + 1;
    Some((node.pointer(child), 0..usize::MAX))
}

/// The order of `keys`, without duplicates, and for each key its place in that.
pub(crate) fn sorted(keys: &[Key]) -> (Vec<Key>, Vec<usize>) {
    let mut order = keys.to_vec();
    order.sort_unstable();
    order.dedup();
    let place = |key: &Key| order.binary_search(key).expect("it was sorted in");
    let places = keys.iter().map(place).collect();
    (order, places)
}

/// The answers to sorted keys in the order in which they were asked.
pub(crate) fn in_order(answers: &[Option<Pointer>], places: &[usize]) -> Vec<Option<Pointer>> {
    places.iter().map(|place| answers[*place]).collect()
}
