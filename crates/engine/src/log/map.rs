//! Where the log's endless stream of bytes lies on its device: a ring of fixed size, or a line of
//! segments that grows at its end and shrinks at its front.
//!
//! ```text
//! line:  first                                                  end
//!        | segment 0 |    segment 1    |        segment 2        |      of the stream
//!          at 7 MiB     at 1 MiB          at 3 MiB                      on the device
//!
//! ring:  byte `position` of the stream is at `position % capacity` behind the ring's first byte
//! ```
//!
//! - M1: pieces are whole blocks, so that a block never lies in two places.
//! - M2: pieces are apart from each other on the device.
//! - M3: a map does not change: growth makes another one, and what both have lies in the same
//!   place in both.

use std::ops::Range;
use std::sync::Arc;

use terrace_page::{LSN_MAX, Lsn};

use super::BLOCK;

/// The unit of segments: lines are cut at multiples of it behind their first byte.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// A log begins with a line of this many bytes, and none is cut to less, so that small transactions
/// go on although the device has no room for more.
pub(crate) const LINE_BYTES_MIN: u64 = 4 * SEGMENT_BYTES_MIN;

/// A range of the device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Segment {
    /// Its first byte on the device.
    pub(crate) at: u64,
    pub(crate) bytes: u64,
}

impl Segment {
    /// The byte of the device behind it.
    pub(crate) fn end(self) -> Option<u64> {
        self.at.checked_add(self.bytes)
    }

    /// Whether it is whole blocks, and ends within a device of `len` bytes.
    pub(crate) fn is_sound(self, len: u64) -> bool {
        let block = BLOCK as u64;
        self.bytes > 0
            && self.at.is_multiple_of(block)
            && self.bytes.is_multiple_of(block)
            && self.end().is_some_and(|end| end <= len)
    }
}

/// Whether none of the ranges overlaps another one. They are sorted by it.
pub(crate) fn are_apart(ranges: &mut [Segment]) -> bool {
    ranges.sort_unstable();
    ranges.array_windows().all(|[one, next]| one.end().is_some_and(|end| end <= next.at))
}

/// Consecutive segments of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The position of the first byte, a multiple of `BLOCK`.
    first: u64,
    segments: Vec<Segment>,
    /// The position behind each of them.
    ends: Vec<u64>,
}

impl Line {
    /// The line of these segments, if they are sound on a device of `len` bytes.
    pub(crate) fn new(first: u64, segments: Vec<Segment>, len: u64) -> Option<Line> {
        let mut line = Line { first, segments: Vec::new(), ends: Vec::new() };
        let is_sound = first.is_multiple_of(BLOCK as u64)
            && first <= LSN_MAX.0
            && !segments.is_empty()
            && segments.iter().all(|segment| segment.is_sound(len))
            && are_apart(&mut segments.clone());
        if !is_sound {
            return None;
        }
        segments.into_iter().for_each(|segment| line.push(segment));
        Some(line)
    }

    /// The position of its first byte.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The position behind its last byte.
    pub(crate) fn end(&self) -> u64 {
        self.ends.last().copied().unwrap_or(self.first)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.end() - self.first
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Makes it longer by a segment that is apart from the others.
    pub(crate) fn push(&mut self, segment: Segment) {
        self.ends.push(self.end() + segment.bytes);
        self.segments.push(segment);
    }

    /// Makes one segment of neighbours that are neighbours on the device too.
    pub(crate) fn join(&mut self) {
        let mut joined = Line { first: self.first, segments: Vec::new(), ends: Vec::new() };
        for &segment in &self.segments {
            match joined.segments.last_mut() {
                Some(last) if last.end() == Some(segment.at) => {
                    last.bytes += segment.bytes;
                    *joined.ends.last_mut().expect("as long") += segment.bytes;
                }
                _ => joined.push(segment),
            }
        }
        *self = joined;
    }

    /// Takes the segments that lie before `position` as a whole, but not the last one.
    pub(crate) fn take_before(&mut self, position: u64) -> Vec<Segment> {
        let count = self.ends.partition_point(|&end| end <= position);
        let count = count.min(self.segments.len() - 1);
        if count > 0 {
            self.first = self.ends[count - 1];
        }
        self.ends.drain(..count);
        self.segments.drain(..count).collect()
    }

    /// Cuts off what lies before `position`, in units of `SEGMENT_BYTES_MIN`, and leaves one unit
    /// at least.
    pub(crate) fn cut_before(&mut self, position: u64) -> Vec<Segment> {
        let mut cut = self.take_before(position);
        let front = &mut self.segments[0];
        let whole = position.saturating_sub(self.first) / SEGMENT_BYTES_MIN * SEGMENT_BYTES_MIN;
        let bytes = whole.min(front.bytes.saturating_sub(SEGMENT_BYTES_MIN));
        if bytes > 0 {
            cut.push(Segment { at: front.at, bytes });
            front.at += bytes;
            front.bytes -= bytes;
            self.first += bytes;
        }
        cut
    }

    /// Cuts off what lies behind `position`, in units of `SEGMENT_BYTES_MIN` of each segment, and
    /// leaves one unit at least.
    pub(crate) fn cut_after(&mut self, position: u64) -> Vec<Segment> {
        let mut cut = Vec::new();
        while let (Some(last), Some(&end)) = (self.segments.last_mut(), self.ends.last()) {
            let start = end - last.bytes;
            let kept = position.saturating_sub(start).next_multiple_of(SEGMENT_BYTES_MIN);
            if kept >= last.bytes {
                break;
            }
            let is_only = self.ends.len() == 1;
            if kept == 0 && !is_only {
                cut.extend(self.segments.pop());
                self.ends.pop();
                continue;
            }
            let kept = kept.max(SEGMENT_BYTES_MIN);
            if kept < last.bytes {
                cut.push(Segment { at: last.at + kept, bytes: last.bytes - kept });
                last.bytes = kept;
                *self.ends.last_mut().expect("as long") = start + kept;
            }
            break;
        }
        cut
    }

    /// Where a byte lies, and how many follow it there.
    fn place(&self, position: u64) -> Option<(u64, u64)> {
        let index = self.ends.partition_point(|&end| end <= position);
        let segment = self.segments.get(index)?;
        let start = self.ends[index] - segment.bytes;
        let within = position.checked_sub(start)?;
        Some((segment.at + within, segment.bytes - within))
    }
}

/// How a log is laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One piece that is used round and round.
    Ring(Segment),
    /// Segments that come and go.
    Line(Arc<Line>),
}

/// The map from the stream to the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogMap {
    pub(crate) layout: Layout,
    /// Part of each record's checksum, different for each database.
    pub(crate) salt: u64,
}

impl LogMap {
    pub(crate) fn new(layout: Layout, database: u128) -> LogMap {
        LogMap { layout, salt: LogMap::salt_of(database) }
    }

    /// The salt of the log of `database`.
    pub(crate) fn salt_of(database: u128) -> u64 {
        (database ^ (database >> 64)) as u64
    }

    /// Where byte `position` of the stream lies on the device, and how many bytes follow it there,
    /// if the map has it. A ring has every byte, of its lap or of another one.
    pub(crate) fn place(&self, position: u64) -> Option<(u64, u64)> {
        match &self.layout {
            Layout::Ring(ring) => {
                let within = position % ring.bytes;
                Some((ring.at + within, ring.bytes - within))
            }
            Layout::Line(line) => line.place(position),
        }
    }

    /// The pieces of `len` bytes from `position` on: which of the bytes, and where they lie. They
    /// end early where the map does.
    pub(crate) fn pieces(
        &self,
        position: u64,
        len: usize,
    ) -> impl Iterator<Item = (Range<usize>, u64)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let (at, follow) = self.place(position + done as u64).filter(|_| done < len)?;
            let from = done;
            done += follow.min((len - done) as u64) as usize;
            Some((from..done, at))
        })
    }

    /// Where the stream ends at the latest if it begins at `start`.
    pub(crate) fn end(&self, start: Lsn) -> Lsn {
        match &self.layout {
            Layout::Ring(ring) => Lsn(start.0.saturating_add(ring.bytes)),
            Layout::Line(line) => Lsn(line.end()),
        }
    }

    /// Bytes of the device that hold the stream.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.layout {
            Layout::Ring(ring) => ring.bytes,
            Layout::Line(line) => line.bytes(),
        }
    }
}

/// The lowest place behind `from` for `bytes` that is apart from `used`, which it sorts.
pub(crate) fn free_place(from: u64, used: &mut [Segment], bytes: u64) -> u64 {
    used.sort_unstable();
    let mut at = from;
    for range in used {
        if range.at >= at + bytes {
            break;
        }
        at = at.max(range.at + range.bytes);
    }
    at
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use terrace_rt::Prng;

    use super::*;

    const UNIT: u64 = SEGMENT_BYTES_MIN;
    const LEN: u64 = 400 * UNIT;

    /// Unit of the stream to unit of the device.
    #[derive(Default)]
    struct Model {
        first: u64,
        units: BTreeMap<u64, u64>,
        free: BTreeSet<u64>,
    }

    impl Model {
        fn check(&self, line: &Line, case: &str) {
            let map = LogMap::new(Layout::Line(Arc::new(line.clone())), 5);
            assert_eq!(line.first(), self.first * UNIT, "{case}");
            assert_eq!(line.bytes(), self.units.len() as u64 * UNIT, "{case}");
            for (unit, place) in &self.units {
                let (at, follow) = map.place(unit * UNIT + 4096).expect("it is there");
                assert_eq!(at, place * UNIT + 4096, "{case}: unit {unit}");
                assert!(follow >= UNIT - 4096, "{case}: unit {unit}");
            }
            assert_eq!(map.place(line.end()), None, "{case}");
            assert_eq!(map.place(line.first().wrapping_sub(1)), None, "{case}");
            let again = Line::new(line.first(), line.segments().to_vec(), LEN);
            assert_eq!(again.as_ref(), Some(line), "{case}: it is sound");
        }

        fn give_back(&mut self, cut: &[Segment], case: &str) {
            for segment in cut {
                for unit in segment.at / UNIT..(segment.at + segment.bytes) / UNIT {
                    assert!(self.free.insert(unit), "{case}: unit {unit} is cut twice");
                }
            }
        }
    }

    #[test]
    fn a_line_agrees_with_a_map_of_its_units() {
        for seed in 0..300 {
            let mut prng = Prng::from_seed(seed);
            let mut model = Model { free: (1..LEN / UNIT).collect(), ..Model::default() };
            let mut line = Line::new(0, vec![Segment { at: 0, bytes: UNIT }], LEN).expect("sound");
            model.units.insert(0, 0);
            for step in 0..120 {
                let case = format!("seed {seed}, step {step}");
                let end = model.first + model.units.len() as u64;
                let inside = prng.range(model.first..end) * UNIT + prng.below(UNIT);
                match prng.below(6) {
                    0..3 if model.free.len() > 20 => {
                        let bytes = (1 + prng.below(8)) * UNIT;
                        let mut used = line.segments().to_vec();
                        let at = free_place(0, &mut used, bytes);
                        if at + bytes > LEN {
                            continue;
                        }
                        for unit in 0..bytes / UNIT {
                            assert!(model.free.remove(&(at / UNIT + unit)), "{case}: in use");
                            model.units.insert(end + unit, at / UNIT + unit);
                        }
                        line.push(Segment { at, bytes });
                    }
                    3 => {
                        let cut = line.cut_before(inside);
                        let first = (inside / UNIT).min(end - 1);
                        assert!(line.first() / UNIT <= first, "{case}");
                        model.units = model.units.split_off(&(line.first() / UNIT));
                        model.first = line.first() / UNIT;
                        model.give_back(&cut, &case);
                    }
                    4 => {
                        let cut = line.cut_after(inside);
                        assert!(line.end() >= inside, "{case}");
                        let gone = model.units.split_off(&(line.end() / UNIT));
                        assert_eq!(
                            cut.iter().map(|it| it.bytes).sum::<u64>(),
                            gone.len() as u64 * UNIT
                        );
                        model.give_back(&cut, &case);
                    }
                    _ => line.join(),
                }
                model.check(&line, &case);
                assert_eq!(model.free.len() + model.units.len(), (LEN / UNIT) as usize, "{case}");
            }
        }
    }

    #[test]
    fn what_is_cut_is_as_much_as_may_go() {
        let bytes = 4 * UNIT;
        let segments = vec![Segment { at: 0, bytes }, Segment { at: 8 * UNIT, bytes }];
        let whole = Line::new(0, segments, LEN).expect("sound");
        let front = |position| {
            let mut line = whole.clone();
            let cut: u64 = line.cut_before(position).iter().map(|it| it.bytes).sum();
            (cut / UNIT, line.first() / UNIT)
        };
        assert_eq!(front(UNIT - 1), (0, 0));
        assert_eq!(front(3 * UNIT), (3, 3));
        assert_eq!(front(6 * UNIT + 1), (6, 6));
        assert_eq!(front(8 * UNIT), (7, 7), "one unit is left");
        let back = |position| {
            let mut line = whole.clone();
            let cut: u64 = line.cut_after(position).iter().map(|it| it.bytes).sum();
            (cut / UNIT, line.end() / UNIT)
        };
        assert_eq!(back(8 * UNIT), (0, 8));
        assert_eq!(back(5 * UNIT + 1), (2, 6));
        assert_eq!(back(4 * UNIT), (4, 4));
        assert_eq!(back(0), (7, 1), "one unit is left");
    }

    #[test]
    fn lines_that_make_no_sense_are_refused() {
        let one = Segment { at: UNIT, bytes: UNIT };
        let sound =
            |first, segments: &[Segment]| Line::new(first, segments.to_vec(), LEN).is_some();
        assert!(sound(4096, &[one]));
        assert!(!sound(100, &[one]));
        assert!(!sound(u64::MAX / 4096 * 4096, &[one]));
        assert!(!sound(0, &[]));
        assert!(!sound(0, &[Segment { at: UNIT + 512, ..one }]));
        assert!(!sound(0, &[Segment { bytes: 0, ..one }]));
        assert!(!sound(0, &[Segment { at: LEN, ..one }]));
        assert!(!sound(0, &[Segment { at: u64::MAX - 4095, ..one }]));
        assert!(!sound(0, &[one, Segment { at: UNIT + 4096, ..one }]));
    }
}
