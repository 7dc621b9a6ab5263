//! Where a trace is cut in time: what fills the tiers, what is counted, and in how many parts, so
//! that the parts tell how far the whole can be believed.
//!
//! ```text
//! references  0        w/2 n/2      n/2                                n
//!             | fills  | learnt     | counted: WINDOWS parts           |    warm-up w = 1/2
//! ```
//!
//! - The counted part is cut in windows: how much they differ says how far off their mean is.
//! - The first half of the trace by itself, of which the same share fills the tiers, gives the
//!   advice of somebody who had no more; the second half is what that advice meets. A replay knows
//!   nothing of what comes, so that the replay of the whole trace has both.

use std::ops::Range;

/// Parts of what is counted: eight give a t-interval that one outlier does not decide.
const WINDOWS: usize = 8;

/// Where a trace is cut.
#[derive(Debug, PartialEq)]
pub struct Cuts {
    /// The references at which stretches begin, ascending.
    pub marks: Vec<usize>,
    /// The stretches that are counted.
    pub counted: Range<usize>,
    /// The stretches of each window of them.
    pub windows: Vec<Range<usize>>,
    /// The stretches that the first half of the trace counts, if it has any.
    pub learnt: Option<Range<usize>>,
    /// Those of the second half that are counted.
    pub tried: Range<usize>,
}

impl Cuts {
    /// Of a trace of `references`, of which the share `warm_up` fills the tiers.
    pub fn new(references: usize, warm_up: f64) -> Cuts {
        let first = |all: usize| ((all as f64 * warm_up) as usize).min(all.saturating_sub(1));
        let (from, half) = (first(references), references / 2);
        let bounds: Vec<usize> =
            (0..WINDOWS).map(|window| from + window * (references - from) / WINDOWS).collect();
        let learns_from = first(half);
        let mut marks = bounds.clone();
        marks.extend([learns_from, half]);
        marks.sort_unstable();
        marks.dedup();
        let stretch = |at: usize| marks.binary_search(&at).unwrap_or(marks.len());
        let ends = bounds.iter().skip(1).copied().chain([references]);
        let windows = bounds.iter().zip(ends).map(|(&bound, end)| stretch(bound)..stretch(end));
        let windows = windows.filter(|window| !window.is_empty()).collect();
        let learnt = stretch(learns_from)..stretch(half);
        let (counted, tried) = (stretch(from)..marks.len(), stretch(half.max(from))..marks.len());
        let learnt = (!learnt.is_empty() && half > 0).then_some(learnt);
        Cuts { counted, windows, learnt, tried, marks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_and_windows_are_stretches() {
        let cuts = Cuts::new(1_600, 0.5);
        assert_eq!(cuts.marks, [400, 800, 900, 1_000, 1_100, 1_200, 1_300, 1_400, 1_500]);
        assert_eq!((cuts.counted, cuts.tried), (1..9, 1..9));
        assert_eq!(cuts.learnt, Some(0..1));
        assert_eq!(cuts.windows, (1..9).map(|at| at..at + 1).collect::<Vec<_>>());
        // Half of the trace lies within the sixth window.
        let cuts = Cuts::new(1_600, 0.2);
        assert_eq!(cuts.marks, [160, 320, 480, 640, 800, 960, 1_120, 1_280, 1_440]);
        assert_eq!((cuts.counted, cuts.tried, cuts.learnt), (1..9, 4..9, Some(0..4)));
    }

    #[test]
    fn every_trace_is_cut_without_gaps() {
        for references in (1..40).chain([999, 100_003]) {
            for warm_up in [0.0, 0.1, 0.5, 0.77, 0.999] {
                let cuts = Cuts::new(references, warm_up);
                let marks = &cuts.marks;
                assert!(marks.is_sorted() && marks.last().is_some_and(|&last| last < references));
                assert_eq!(cuts.counted.end, marks.len());
                assert_eq!(cuts.windows.first().map(|first| first.start), Some(cuts.counted.start));
                assert_eq!(cuts.windows.last().map(|last| last.end), Some(marks.len()));
                let joined = cuts.windows.windows(2).all(|pair| pair[0].end == pair[1].start);
                assert!(joined && !cuts.tried.is_empty(), "{references} {warm_up} {cuts:?}");
            }
        }
    }
}
