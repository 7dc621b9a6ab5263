//! An asymmetric leaf: several pages, its segments, where inner nodes have one.
//!
//! ```text
//!   segment 0        1                  2                 3
//!   | entries, full | entries, ops >   | ops >           | not used yet |
//!                                        ^ LSMap: the last segment in use
//! ```
//!
//! With `LeafRead::Segment`, operations begin a segment of their own:
//!
//! ```text
//!   segment 0        1         ... 9             10      11
//!   | entries, full | entries | ... | entries > | ops > | not used yet |
//!      LSMap: first keys of these                 a search reads one of those, and these
//! ```
//!
//! - F1: entries fill the segments in their order; operations stand behind the last entry in that
//!   of time, and are newer.
//! - F2: an update appends to the last segment in use, and to those behind it. When the last one is
//!   full the leaf *shrinks*: the operations are applied, and entries fill the segments anew; a
//!   leaf that is then too full is split.
//! - F3: all segments in use carry the number of shrinkings so far (the link), which tells them
//!   from what an earlier, longer state has left behind.

use std::sync::Arc;

use super::map::Shape;
use crate::entry::{Key, Op, Pointer, overlay};
use crate::page::{Page, PageKind};

/// What is known of a leaf when all its segments were read, `None` where no page was whole (F3);
/// `None` if it is no leaf.
pub(super) fn shape(read: &[Option<Page>]) -> Option<Shape> {
    let generation = read.first()?.as_ref()?.link();
    let in_use: Vec<&Page> = read
        .iter()
        .map_while(Option::as_ref)
        .take_while(|page| page.link() == generation && page.level() == 0)
        .take_while(|page| page.is_of(PageKind::Node))
        .collect();
    shape_of(&in_use)
}

/// The same of the segments in use.
pub(super) fn shape_of(in_use: &[&Page]) -> Option<Shape> {
    let used = in_use.len() as u32;
    let operations = in_use.iter().position(|page| page.ops() > 0).map_or(used, |at| at as u32);
    let filled = in_use.iter().skip(1).take_while(|page| page.entries() > 0);
    let firsts = filled.map(|page| page.key(0)).collect();
    (used > 0).then_some(Shape { used, operations, firsts })
}

/// What `segments` say of `key`: those of a leaf in their order, at least the one that it is in
/// and all with operations.
pub(super) fn find(segments: &[Arc<Page>], key: Key) -> Option<Pointer> {
    if let Some(op) = segments.iter().rev().find_map(|segment| segment.last_op(key)) {
        return op.answer();
    }
    let filled = |segment: &&Arc<Page>| segment.entries() > 0;
    let begins = |segment: &&Arc<Page>| segment.key(0) <= key;
    let segment = segments.iter().take_while(filled).take_while(begins).last()?;
    segment.find(key).ok().map(|at| segment.pointer(at))
}

/// The entries of a leaf after all its operations and then `newer`, which are in order of keys.
pub(super) fn entries<'a>(
    segments: impl Iterator<Item = &'a Page> + Clone,
    newer: &[Op],
) -> Vec<(Key, Pointer)> {
    let mut ops: Vec<Op> = segments
        .clone()
        .flat_map(|segment| (0..segment.ops()).map(|at| segment.op(at)))
        .chain(newer.iter().copied())
        .collect();
    // Stable: the last of equal keys is the newest.
    ops.sort_by_key(|op| op.key);
    overlay(segments.flat_map(Page::iter), &ops)
}

/// The pages of a leaf with `entries`, at least one, of generation `link`.
pub(super) fn build(entries: &[(Key, Pointer)], page_bytes: usize, link: u64) -> Vec<Page> {
    let page = |entries: &[(Key, Pointer)]| {
        let mut page = Page::new(page_bytes, PageKind::Node, 0);
        page.set_link(link);
        entries.iter().for_each(|entry| page.push_entry(*entry));
        page
    };
    if entries.is_empty() {
        return vec![page(&[])];
    }
    entries.chunks(Page::capacity(page_bytes)).map(page).collect()
}
