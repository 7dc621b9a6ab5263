//! A batch update: the operations of a batch go down the tree by MPSearch; leaves are appended to,
//! shrunk or split by groups; inner nodes take what was split on the way back.

use std::sync::Arc;

use super::leaf;
use super::map::SegmentMap;
use super::read::{LeafRead, segments_in_use};
use super::{PioOptions, PioTree};
use crate::Error;
use crate::entry::{Key, Op, Pointer};
use crate::page::{Page, PageKind, PageNo};
use crate::pages::{Keep, Pages, Run, Undo};
use crate::search::{Added, Span, Visit, Wanted, child_for_keys, search};

/// A leaf that has more entries after a shrinking than this share of its segments holds is split:
/// else it would shrink again soon.
const SPLIT_SHARE: f64 = 0.85;
/// A split inner node is filled so far.
const INNER_SHARE: f64 = 0.7;

/// Applies `ops`, in order of keys and one a key.
pub(super) fn update(tree: &mut PioTree, ops: &[Op]) -> Result<(), Error> {
    if ops.is_empty() {
        return Ok(());
    }
    let options = tree.options;
    let mut batch = Batch { ops, options, map: &mut tree.map };
    let root = [(tree.root, 0..ops.len())];
    let mut added = search(&mut tree.pages, &mut batch, tree.height - 1, &root)?;
    while !added.is_empty() {
        added = grow_root(tree, &added)?;
    }
    Ok(())
}

/// Puts a root over the old one and what was added beside it.
fn grow_root(tree: &mut PioTree, added: &[Added]) -> Result<Vec<Added>, Error> {
    let mut entries = vec![(0, tree.root)];
    entries.extend(added.iter().map(|new| (new.key, new.page)));
    let no = tree.pages.allocate(1, 1)?;
    let level = tree.height as u8;
    (tree.root, tree.height) = (no, tree.height + 1);
    let mut written = Vec::new();
    let more = write_node(&mut tree.pages, (no, level, 0), &entries, &mut written)?;
    tree.pages.write(written, Undo::Wanted, Keep::Lru)?;
    Ok(more)
}

/// Makes the pages of an inner node with `entries`: `no`, and new ones for what does not fit.
fn write_node(
    pages: &mut Pages,
    (no, level, after): (PageNo, u8, usize),
    entries: &[(Key, Pointer)],
    written: &mut Vec<(PageNo, Page)>,
) -> Result<Vec<Added>, Error> {
    let page_bytes = pages.room().page_bytes;
    let capacity = Page::capacity(page_bytes);
    let nodes = match entries.len() {
        count if count <= capacity => 1,
        count => count.div_ceil((capacity as f64 * INNER_SHARE) as usize),
    };
    let mut added = Vec::new();
    for (at, part) in entries.chunks(entries.len().div_ceil(nodes)).enumerate() {
        let mut page = Page::new(page_bytes, PageKind::Node, level);
        part.iter().for_each(|entry| page.push_entry(*entry));
        let place = if at == 0 { no } else { pages.allocate(1, 1)? };
        if at > 0 {
            added.push(Added { after, key: part[0].0, page: place });
        }
        written.push((place, page));
    }
    Ok(added)
}

/// A batch on its way.
struct Batch<'a> {
    ops: &'a [Op],
    options: PioOptions,
    map: &'a mut SegmentMap,
}

/// A leaf that must shrink: its place in the group, its first page, its last segment in use.
struct Shrinking {
    at: usize,
    first: PageNo,
    last: Arc<Page>,
    used: u32,
}

impl Visit for Batch<'_> {
    fn child(&self, node: &Page, span: &mut Span) -> Option<Wanted> {
        child_for_keys(node, |at| self.ops[at].key, span)
    }

    fn leaves(&mut self, pages: &mut Pages, group: &[Wanted]) -> Result<Vec<Added>, Error> {
        let known =
            |(first, _): &Wanted| segments_in_use(pages, self.map, self.options.segments, *first);
        let used: Vec<u32> = group.iter().map(known).collect::<Result<_, Error>>()?;
        let last_of =
            |((first, _), used): (&Wanted, &u32)| Run { first: first + used - 1, pages: 1 };
        let runs: Vec<Run> = group.iter().zip(&used).map(last_of).collect();
        let lasts = pages.get_runs(&runs, self.options.keep_leaves)?;
        let mut written = Vec::new();
        let mut shrinking = Vec::new();
        for (at, ((first, span), mut last)) in group.iter().zip(lasts).enumerate() {
            let last = last.pop().expect("one page");
            match self.append(*first, used[at], &last, &self.ops[span.clone()]) {
                Some((from, appended)) => {
                    let more = from + appended.len() as u32 - used[at];
                    self.map.append(*first, more, from);
                    written.extend((first + from..).zip(appended));
                }
                None => shrinking.push(Shrinking { at, first: *first, last, used: used[at] }),
            }
        }
        let at_once = (pages.room().search_pages / self.options.segments as usize).max(1);
        let mut added = Vec::new();
        for (at, some) in shrinking.chunks(at_once).enumerate() {
            if at > 0 {
                let written = std::mem::take(&mut written);
                pages.write(written, Undo::Wanted, self.options.keep_leaves)?;
            }
            added.extend(self.shrink(pages, group, some, &mut written)?);
        }
        pages.write(written, Undo::Wanted, self.options.keep_leaves)?;
        Ok(added)
    }

    fn grow(
        &mut self,
        pages: &mut Pages,
        nodes: Vec<(PageNo, Arc<Page>)>,
        added: Vec<Added>,
    ) -> Result<Vec<Added>, Error> {
        let mut written = Vec::new();
        let mut beside = Vec::new();
        for (at, (no, node)) in nodes.iter().enumerate() {
            let new = added.iter().filter(|new| new.after == at);
            let before = node.entries();
            let mut entries: Vec<(Key, Pointer)> = node.iter().collect();
            entries.extend(new.map(|new| (new.key, new.page)));
            if entries.len() > before {
                entries.sort_unstable_by_key(|(key, _)| *key);
                let place = (*no, node.level(), at);
                beside.extend(write_node(pages, place, &entries, &mut written)?);
            }
        }
        pages.write(written, Undo::Wanted, Keep::Lru)?;
        Ok(beside)
    }
}

impl Batch<'_> {
    /// The pages of a leaf, and the segment they begin with, when `ops` are appended; `None` if
    /// there is no room.
    fn append(&self, leaf: PageNo, used: u32, last: &Page, ops: &[Op]) -> Option<(u32, Vec<Page>)> {
        // Two parents of one leaf, which no index has, append to it twice.
        let spare = self.options.segments.saturating_sub(used);
        let LeafRead::Segment { operations } = self.options.leaf_read else {
            return Some((used - 1, append(last, ops, spare)?));
        };
        let begun = self.map.operations(leaf).len() as u32;
        let spare = spare.min(operations.saturating_sub(begun));
        if begun > 0 {
            return Some((used - 1, append(last, ops, spare)?));
        }
        // Operations begin a segment of their own.
        let fresh = append(&blank(last), ops, spare.checked_sub(1)?)?;
        Some((used, fresh))
    }

    /// Reads the rest of the leaves, applies their operations, and splits what is too full.
    fn shrink(
        &mut self,
        pages: &mut Pages,
        group: &[Wanted],
        shrinking: &[Shrinking],
        written: &mut Vec<(PageNo, Page)>,
    ) -> Result<Vec<Added>, Error> {
        let longer = shrinking.iter().filter(|leaf| leaf.used > 1);
        let runs: Vec<Run> =
            longer.map(|leaf| Run { first: leaf.first, pages: leaf.used - 1 }).collect();
        let PioOptions { segments: leaf_pages, keep_leaves, .. } = self.options;
        let mut rest = pages.get_runs(&runs, keep_leaves)?.into_iter();
        let page_bytes = pages.room().page_bytes;
        let most = (Page::capacity(page_bytes) * leaf_pages as usize) as f64 * SPLIT_SHARE;
        let mut added = Vec::new();
        for leaf in shrinking {
            let front = if leaf.used > 1 { rest.next().expect("a run each") } else { Vec::new() };
            let segments = front.iter().map(Arc::as_ref).chain([&*leaf.last]);
            let ops = &self.ops[group[leaf.at].1.clone()];
            let entries = leaf::entries(segments, ops);
            let leaves = entries.len().div_ceil(most.max(1.0) as usize).max(1);
            let share = entries.len().div_ceil(leaves).max(1);
            let mut parts = entries.chunks(share);
            let kept = parts.next().unwrap_or_default();
            let shrunk = leaf::build(kept, page_bytes, leaf.last.link() + 1);
            self.place(leaf.first, shrunk, written);
            for part in parts {
                let first = pages.allocate(leaf_pages, leaf_pages)?;
                self.place(first, leaf::build(part, page_bytes, 0), written);
                added.push(Added { after: leaf.at, key: part[0].0, page: first });
            }
        }
        Ok(added)
    }

    fn place(&mut self, first: PageNo, leaf: Vec<Page>, written: &mut Vec<(PageNo, Page)>) {
        let in_use: Vec<&Page> = leaf.iter().collect();
        self.map.set(first, &leaf::shape_of(&in_use).expect("a leaf has a page"));
        written.extend((first..).zip(leaf));
    }
}

/// A segment without anything, of the same leaf.
fn blank(last: &Page) -> Page {
    let mut page = Page::new(last.bytes().len(), PageKind::Node, 0);
    page.set_link(last.link());
    page
}

/// `last` with `ops` behind what it has, and further segments for those that do not fit; `None` if
/// more than `spare` further ones are needed.
fn append(last: &Page, ops: &[Op], spare: u32) -> Option<Vec<Page>> {
    let mut pages = vec![last.clone()];
    for op in ops {
        if pages.last_mut().is_some_and(|page| page.push_op(*op)) {
            continue;
        }
        if pages.len() > spare as usize {
            return None;
        }
        let mut page = blank(last);
        assert!(page.push_op(*op), "an empty segment has room");
        pages.push(page);
    }
    Some(pages)
}
