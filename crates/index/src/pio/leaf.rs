//! An asymmetric leaf: several pages, its segments, where inner nodes have one.
//!
//! ```text
//!   segment 0        1                  2                 3
//!   | entries, full | entries, ops >   | ops >           | not used yet |
//!                                        ^ LSMap: the last segment in use
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

use crate::entry::{Key, Op, Pointer, overlay};
use crate::page::{Page, PageKind, PageNo};

/// LSMap: the segments in use of each leaf, by the place of its first page. A byte each.
#[derive(Default)]
pub(super) struct SegmentMap {
    used: Vec<u8>,
    segments: u32,
}

impl SegmentMap {
    pub(super) fn new(segments: u32) -> SegmentMap {
        SegmentMap { used: Vec::new(), segments }
    }

    pub(super) fn set(&mut self, leaf: PageNo, used: u32) {
        let at = (leaf / self.segments) as usize;
        if at >= self.used.len() {
            self.used.resize(at + 1, 0);
        }
        self.used[at] = used as u8;
    }

    /// `None` after an opening, until the leaf has been read.
    pub(super) fn get(&self, leaf: PageNo) -> Option<u32> {
        let used = self.used.get((leaf / self.segments) as usize).copied().unwrap_or(0);
        (used > 0).then_some(u32::from(used))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.used.len() as u64
    }
}

/// The segments in use among all `read` of a leaf (F3).
pub(super) fn used(read: &[Option<Page>]) -> u32 {
    let generation = read.first().and_then(Option::as_ref).map(Page::link);
    let is_used = |page: &&Option<Page>| {
        page.as_ref().is_some_and(|page| Some(page.link()) == generation && page.level() == 0)
    };
    read.iter().take_while(is_used).count() as u32
}

/// What `segments` say of `key`.
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
