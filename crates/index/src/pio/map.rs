//! LSMap: which segments of each leaf are in use, and which of them a key can be in.
//!
//! ```text
//!   for each leaf, in bytes:   used 1 | filled 1 | operations 1 | shift 1 | base 4 | steps L - 2
//!                              all      with LeafRead::Segment only
//!
//!   first key of segment 1: base            of segment s > 1: base + (step << shift), rounded down
//! ```
//!
//! - S1: `used` is 0 where nothing is known: after an opening, until the leaf has been read.
//! - S2: a step is rounded, so a key whose step a segment begins with may be in it or in the one
//!   before; all segments that a key may be in lie side by side, and are one request.
//! - Memory is counted as it is allocated, by the place of a leaf's first page.

use std::ops::Range;

use crate::entry::{Key, number};
use crate::page::PageNo;

const FILLED_AT: usize = 0;
const OPERATIONS_AT: usize = FILLED_AT + 1;
const SHIFT_AT: usize = OPERATIONS_AT + 1;
const BASE_AT: usize = SHIFT_AT + 1;
const STEPS_AT: usize = BASE_AT + 4;
const _: () = assert!(STEPS_AT == 7);

/// Pages of a leaf, at most.
pub(crate) const SEGMENTS_MAX: u32 = 255;

/// Whether the map has the first keys of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directory {
    Kept,
    Not,
}

/// What a leaf is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Segments in use, one at least.
    pub(super) used: u32,
    /// The first that has operations, or `used`.
    pub(super) operations: u32,
    /// The first keys of the segments with entries, but for the first of all.
    pub(super) firsts: Vec<Key>,
}

/// LSMap.
pub(super) struct SegmentMap {
    segments: u32,
    used: Vec<u8>,
    /// Bytes of a leaf in `directory`.
    stride: usize,
    directory: Vec<u8>,
}

impl SegmentMap {
    pub(super) fn new(segments: u32, directory: Directory) -> SegmentMap {
        let stride = match directory {
            Directory::Kept => STEPS_AT + (segments as usize).saturating_sub(2),
            Directory::Not => 0,
        };
        SegmentMap { segments, used: Vec::new(), stride, directory: Vec::new() }
    }

    pub(super) fn set(&mut self, leaf: PageNo, shape: &Shape) {
        let at = (leaf / self.segments) as usize;
        if at >= self.used.len() {
            self.used.resize(at + 1, 0);
            self.directory.resize((at + 1) * self.stride, 0);
        }
        self.used[at] = shape.used as u8;
        if self.stride == 0 {
            return;
        }
        let record = &mut self.directory[at * self.stride..(at + 1) * self.stride];
        record[FILLED_AT] = shape.firsts.len() as u8 + 1;
        record[OPERATIONS_AT] = shape.operations as u8;
        let base = shape.firsts.first().copied().unwrap_or(0);
        let span = shape.firsts.last().map_or(0, |last| last - base);
        let shift = (Key::BITS - span.leading_zeros()).saturating_sub(u8::BITS);
        record[SHIFT_AT] = shift as u8;
        record[BASE_AT..STEPS_AT].copy_from_slice(&base.to_le_bytes());
        for (step, first) in record[STEPS_AT..].iter_mut().zip(shape.firsts.iter().skip(1)) {
            *step = ((first - base) >> shift) as u8;
        }
    }

    /// `appended` segments more are in use; operations begin in `operations` at the latest.
    pub(super) fn append(&mut self, leaf: PageNo, appended: u32, operations: u32) {
        let at = (leaf / self.segments) as usize;
        self.used[at] = self.used[at].saturating_add(appended as u8);
        if self.stride > 0 {
            let begin = &mut self.directory[at * self.stride + OPERATIONS_AT];
            *begin = (*begin).min(operations as u8);
        }
    }

    /// Segments in use, if they are known (S1).
    pub(super) fn used(&self, leaf: PageNo) -> Option<u32> {
        let used = self.used.get((leaf / self.segments) as usize).copied().unwrap_or(0);
        (used > 0).then_some(u32::from(used))
    }

    fn record(&self, leaf: PageNo) -> &[u8] {
        let at = (leaf / self.segments) as usize * self.stride;
        &self.directory[at..at + self.stride]
    }

    /// The segments with operations of a leaf that is known.
    pub(super) fn operations(&self, leaf: PageNo) -> Range<u32> {
        let used = self.used(leaf).expect("a leaf that is known");
        u32::from(self.record(leaf)[OPERATIONS_AT])..used
    }

    /// The segments, of a leaf that is known, in which entries with keys from `low` to `high` can
    /// be (S2).
    pub(super) fn segments_of(&self, leaf: PageNo, low: Key, high: Key) -> Range<u32> {
        let record = self.record(leaf);
        let filled = usize::from(record[FILLED_AT]);
        if filled < 2 {
            return 0..filled as u32;
        }
        let base = number(record, BASE_AT);
        let steps = &record[STEPS_AT..STEPS_AT + filled - 2];
        let step = |key: Key| (key - base) >> record[SHIFT_AT];
        let begins_before = |key: Key| steps.partition_point(|begin| Key::from(*begin) < step(key));
        let begins_at = |key: Key| steps.partition_point(|begin| Key::from(*begin) <= step(key));
        let first = if low < base { 0 } else { 1 + begins_before(low) };
        let last = if high < base { 0 } else { 1 + begins_at(high) };
        first as u32..last as u32 + 1
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.used.len() + self.directory.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_rt::Prng;

    /// The segment that a key is in must be among those that the map names, and there are few.
    #[test]
    fn the_segment_of_a_key_is_always_named() {
        let mut prng = Prng::from_seed(7);
        let (mut asked, mut named) = (0, 0);
        for round in 0..2_000 {
            let filled = 1 + prng.below(40) as usize;
            let bits = 1 + prng.below(31);
            let width = 1 + prng.below(1 << bits);
            let lowest = prng.below(u64::from(Key::MAX) - width) as Key;
            let mut firsts: Vec<Key> =
                (1..filled).map(|_| lowest + prng.below(width) as Key).collect();
            firsts.sort_unstable();
            firsts.dedup();
            let mut map = SegmentMap::new(64, Directory::Kept);
            let used = firsts.len() as u32 + 2;
            map.set(128, &Shape { used, operations: used - 1, firsts: firsts.clone() });
            assert_eq!((map.used(128), map.used(64)), (Some(used), None));
            assert_eq!(map.operations(128), used - 1..used);
            for _ in 0..20 {
                let low = lowest.saturating_sub(5).saturating_add(prng.below(width + 10) as Key);
                let high = low.saturating_add(prng.below(width) as Key / 4);
                let place = |key| firsts.partition_point(|first| *first <= key) as u32;
                let found = map.segments_of(128, low, high);
                assert!(found.start <= place(low), "round {round}: {low} of {firsts:?}");
                assert!(found.end > place(high), "round {round}: {high} of {firsts:?}");
                assert!(found.end < used, "round {round}: {found:?}");
                asked += place(high) + 1 - place(low);
                named += found.end - found.start;
            }
        }
        assert!(f64::from(named) < 1.3 * f64::from(asked), "{named} named for {asked}");
    }

    #[test]
    fn appended_segments_have_operations() {
        let mut map = SegmentMap::new(8, Directory::Kept);
        map.set(16, &Shape { used: 3, operations: 3, firsts: vec![10, 20] });
        assert!(map.operations(16).is_empty());
        map.append(16, 1, 3);
        assert_eq!((map.used(16), map.operations(16)), (Some(4), 3..4));
        map.append(16, 2, 3);
        assert_eq!(map.operations(16), 3..6);
        assert_eq!(map.segments_of(16, 15, 15), 1..2);
    }

    #[test]
    fn without_a_directory_a_leaf_has_a_byte() {
        let mut map = SegmentMap::new(8, Directory::Not);
        map.set(80, &Shape { used: 3, operations: 3, firsts: vec![10, 20] });
        assert_eq!((map.used(80), map.used(72), map.bytes()), (Some(3), None, 11));
    }
}
