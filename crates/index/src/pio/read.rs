//! How leaves are read: whole, or the segments that a key can be in.
//!
//! - R1: all requests of a group of leaves go to the device together, PioMax at a time.
//! - R2: what is read of a leaf has all of its operations, and the entries of the keys that were
//!   asked for.

use std::ops::Range;
use std::sync::Arc;

use super::leaf;
use super::map::SegmentMap;
use crate::Error;
use crate::entry::{Key, Pointer};
use crate::page::{Page, PageNo};
use crate::pages::{Keep, Pages, Run};
use crate::search::{Added, Span, Visit, Wanted, child_for_keys, child_for_range};

/// What a search reads of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafRead {
    /// All segments in use, by one request, as published. LSMap has a byte for each leaf.
    Whole,
    /// The segment that a key is in and those with operations, by a group of two requests: leaves
    /// can be large, so that many operations of a batch meet in one. LSMap has a byte for each
    /// segment beside.
    Segment {
        /// Segments with operations, at most, before the leaf shrinks.
        operations: u32,
    },
}

/// Leaves, and what is known of them.
pub(super) struct Leaves<'a> {
    pub(super) map: &'a mut SegmentMap,
    pub(super) segments: u32,
    pub(super) read: LeafRead,
    pub(super) keep: Keep,
}

impl Leaves<'_> {
    /// Of each leaf of a group, the segments that are needed for keys from its `low` to its `high`,
    /// one pair or several ones in order.
    fn read<K: IntoIterator<Item = (Key, Key)>>(
        &mut self,
        pages: &mut Pages,
        group: &[Wanted],
        keys: impl Fn(&Span) -> K,
    ) -> Result<Vec<Vec<Arc<Page>>>, Error> {
        let mut runs = Vec::with_capacity(group.len());
        let mut counts = Vec::with_capacity(group.len());
        for (leaf, span) in group {
            let used = segments_in_use(pages, self.map, self.segments, *leaf)?;
            let before = runs.len();
            match self.read {
                LeafRead::Whole => runs.push(Run { first: *leaf, pages: used }),
                LeafRead::Segment { .. } => {
                    let parts = keys(span).into_iter();
                    let parts = parts.map(|(low, high)| self.map.segments_of(*leaf, low, high));
                    let parts = joined(parts.chain([self.map.operations(*leaf)]));
                    let run = |part: Range<u32>| Run {
                        first: *leaf + part.start,
                        pages: part.end - part.start,
                    };
                    runs.extend(parts.into_iter().map(run));
                }
            }
            counts.push(runs.len() - before);
        }
        let mut read = pages.get_runs(&runs, self.keep)?.into_iter();
        Ok(counts.into_iter().map(|count| read.by_ref().take(count).flatten().collect()).collect())
    }
}

/// Ranges that begin in order, those that touch as one.
fn joined(ranges: impl Iterator<Item = Range<u32>>) -> Vec<Range<u32>> {
    let mut joined: Vec<Range<u32>> = Vec::new();
    for range in ranges.filter(|range| !range.is_empty()) {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// The segments in use of a leaf, read where LSMap does not know them.
pub(super) fn segments_in_use(
    pages: &mut Pages,
    map: &mut SegmentMap,
    segments: u32,
    leaf: PageNo,
) -> Result<u32, Error> {
    let is_taken = u64::from(leaf) + u64::from(segments) <= u64::from(pages.next());
    if !is_taken || !leaf.is_multiple_of(segments) {
        return Err(Error::Corrupt { page: leaf });
    }
    if let Some(used) = map.used(leaf) {
        return Ok(used);
    }
    let numbers: Vec<PageNo> = (leaf..leaf + segments).collect();
    let shape = leaf::shape(&pages.survey(&numbers)?).ok_or(Error::Corrupt { page: leaf })?;
    map.set(leaf, &shape);
    Ok(shape.used)
}

/// Lookups of sorted keys.
pub(super) struct Lookup<'a> {
    pub(super) keys: &'a [Key],
    pub(super) answers: &'a mut [Option<Pointer>],
    pub(super) leaves: Leaves<'a>,
}

impl Visit for Lookup<'_> {
    fn child(&self, node: &Page, span: &mut Span) -> Option<Wanted> {
        child_for_keys(node, |at| self.keys[at], span)
    }

    fn leaves(&mut self, pages: &mut Pages, group: &[Wanted]) -> Result<Vec<Added>, Error> {
        let keys = self.keys;
        let asked = |span: &Span| keys[span.clone()].iter().map(|key| (*key, *key));
        let leaves = self.leaves.read(pages, group, asked)?;
        for ((_, span), segments) in group.iter().zip(leaves) {
            for at in span.clone() {
                self.answers[at] = leaf::find(&segments, keys[at]);
            }
        }
        Ok(Vec::new())
    }
}

/// A range, its leaves group by group (prange).
pub(super) struct Scan<'a> {
    pub(super) keys: Range<Key>,
    pub(super) found: Vec<(Key, Pointer)>,
    pub(super) leaves: Leaves<'a>,
}

impl Visit for Scan<'_> {
    fn child(&self, node: &Page, span: &mut Span) -> Option<Wanted> {
        child_for_range(node, &self.keys, span)
    }

    fn leaves(&mut self, pages: &mut Pages, group: &[Wanted]) -> Result<Vec<Added>, Error> {
        let ends = (self.keys.start, self.keys.end - 1);
        for segments in self.leaves.read(pages, group, |_| [ends])? {
            let entries = leaf::entries(segments.iter().map(Arc::as_ref), &[]);
            self.found.extend(entries.into_iter().filter(|(key, _)| self.keys.contains(key)));
        }
        Ok(Vec::new())
    }
}
