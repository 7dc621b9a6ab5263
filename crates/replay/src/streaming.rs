//! A trace that is read twice, so that none of its references is kept: once to number its pages,
//! once to replay them.
//!
//! - S1: the second reading finds every page of the first: a trace that has changed meanwhile is an
//!   error.
//! - S2: the misses are those of a replay that keeps the references, for every policy that knows
//!   the past alone (a test).
//! - Cost: at most 27 bytes for each page (`terrace_trace::Interner`), beside the policies' own and
//!   a chunk of references; a trace that is read by a pipe cannot be read twice.
//! - Not for: OPT, which needs to know of each reference when its page is used next. That would be
//!   a file as large as the references that are not kept, written in no order: what is known at a
//!   reference is that it is the next of its page's last. Nor for curves of samples, which go over
//!   the references several times.

use crate::places::Places;
use crate::single_tier::AHEAD_REQUESTS;
use std::fmt;
use std::hint::black_box;
use std::sync::Arc;
use terrace_page::PageId;
use terrace_policy::replacement::{Forgetting, Key, Look, Replace, ReplacementRow, Setup, Visitor};
use terrace_trace::{Interner, Kind, PageRequest, Pages, Paging, Request, TraceError};

/// References that are handed on together.
const CHUNK: usize = 1 << 14;

/// A reference, as a tier hears of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The number of its page.
    pub page: u32,
    /// Whether it writes.
    pub is_write: bool,
    /// Whether time passed between the reference before and this one.
    pub has_waited: bool,
    /// Whether it is none, but announces one.
    pub is_ahead: bool,
}

/// The pages of a trace, numbered, and what was counted on the way.
pub struct Numbered {
    names: Arc<Interner>,
    references: u64,
    writes: u64,
    span_ns: Option<(u64, u64)>,
}

/// Why a second reading failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum StreamError {
    /// What the reader met.
    Trace(TraceError),
    /// The trace has other references than at the first reading (S1).
    Changed,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Trace(error) => error.fmt(f),
            StreamError::Changed => f.write_str(
                "the trace has other references than at the first reading; keep it as it is until \
                 the replay is over",
            ),
        }
    }
}

impl std::error::Error for StreamError {}

impl From<TraceError> for StreamError {
    fn from(error: TraceError) -> StreamError {
        StreamError::Trace(error)
    }
}

impl Numbered {
    /// Reads `requests` to their end, split into pages as `paging` says.
    ///
    /// # Errors
    ///
    /// What the reader met.
    pub fn read(
        requests: impl Iterator<Item = Result<Request, TraceError>>,
        paging: Paging,
    ) -> Result<Numbered, TraceError> {
        let (mut names, mut references, mut writes) = (Interner::new(), 0, 0);
        let mut span_ns: Option<(u64, u64)> = None;
        for request in Pages::new(requests, paging) {
            let request = request?;
            names.intern(request.page);
            references += u64::from(request.kind != Kind::Ahead);
            writes += u64::from(request.kind == Kind::Write);
            let time = request.time_ns;
            let (first, last) = span_ns.unwrap_or((time, time));
            span_ns = Some((first.min(time), last.max(time)));
        }
        Ok(Numbered { names: Arc::new(names), references, writes, span_ns })
    }

    /// Distinct pages.
    #[must_use]
    pub fn pages_count(&self) -> u32 {
        self.names.len() as u32
    }

    /// References.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.references
    }

    /// References that write.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Seconds from the earliest request to the latest.
    #[must_use]
    pub fn span_s(&self) -> f64 {
        self.span_ns.map_or(0.0, |(first, last)| (last - first) as f64 / 1e9)
    }

    /// Bytes allocated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.names.allocated_bytes()
    }

    /// Where the pages lie, by their names.
    #[must_use]
    pub fn places(&self) -> Places {
        Places::of_names(Arc::clone(&self.names))
    }

    /// Reads the trace again, and hands on the numbers of its pages, chunk by chunk.
    ///
    /// # Errors
    ///
    /// What the reader met; a trace that has changed.
    pub fn replay(
        &self,
        requests: impl Iterator<Item = Result<Request, TraceError>>,
        paging: Paging,
        chunk: impl FnMut(&[u32]),
    ) -> Result<(), StreamError> {
        let asked = |page, request: &PageRequest| (request.kind != Kind::Ahead).then_some(page);
        self.again(Pages::new(requests, paging), asked, chunk)
    }

    /// The same, with all that a tier hears of a reference.
    ///
    /// # Errors
    ///
    /// As [`Numbered::replay`].
    pub fn replay_references(
        &self,
        requests: impl Iterator<Item = Result<Request, TraceError>>,
        paging: Paging,
        chunk: impl FnMut(&[Reference]),
    ) -> Result<(), StreamError> {
        let mut last_ns = 0;
        let reference = |page, request: &PageRequest| {
            let has_waited = request.time_ns > last_ns;
            let is_ahead = request.kind == Kind::Ahead;
            let has_waited = has_waited && !is_ahead;
            if !is_ahead {
                last_ns = last_ns.max(request.time_ns);
            }
            let is_write = request.kind == Kind::Write;
            Some(Reference { page, is_write, has_waited, is_ahead })
        };
        self.again(Pages::new(requests, paging), reference, chunk)
    }

    fn again<T>(
        &self,
        requests: impl Iterator<Item = Result<PageRequest, TraceError>>,
        mut of: impl FnMut(u32, &PageRequest) -> Option<T>,
        mut chunk: impl FnMut(&[T]),
    ) -> Result<(), StreamError> {
        let mut references = Vec::with_capacity(CHUNK);
        let mut seen = 0;
        for request in requests {
            let request = request?;
            let page = self.names.get(request.page).ok_or(StreamError::Changed)?;
            seen += u64::from(request.kind != Kind::Ahead);
            references.extend(of(page, &request));
            if references.len() == CHUNK {
                chunk(&references);
                references.clear();
            }
        }
        chunk(&references);
        if seen == self.references { Ok(()) } else { Err(StreamError::Changed) }
    }
}

/// A policy that is told of chunks of references.
pub struct Following(Box<dyn Feed>);

trait Feed {
    fn feed(&mut self, pages: &[u32]);
    fn misses(&self) -> u64;
    fn bytes(&self) -> usize;
}

impl Following {
    /// The policy `row` with room for `capacity` pages, of pages below `pages_count`.
    ///
    /// # Panics
    ///
    /// If the capacity is zero.
    #[must_use]
    pub fn new(row: ReplacementRow, capacity: u32, pages_count: u32, seed: u64) -> Following {
        let forgetting = Forgetting::Silent;
        let setup = Setup { capacity, keys_count: pages_count, forgetting, seed };
        row.visit(setup, Boxed)
    }

    /// The next references, by the numbers of their pages.
    pub fn feed(&mut self, pages: &[u32]) {
        self.0.feed(pages);
    }

    /// Misses so far.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.0.misses()
    }

    /// Bytes that the policy has allocated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// Puts a policy of whichever type behind one.
struct Boxed;

struct Counted<P> {
    policy: P,
    misses: u64,
}

impl Visitor for Boxed {
    type Output = Following;

    fn visit<P: Replace + Look + 'static>(self, policy: P) -> Following {
        Following(Box::new(Counted { policy, misses: 0 }))
    }
}

impl<P: Replace + Look> Feed for Counted<P> {
    fn feed(&mut self, pages: &[u32]) {
        for batch in pages.chunks(AHEAD_REQUESTS) {
            // The sum is of no use, but the loads are.
            black_box(batch.iter().filter(|&&page| self.policy.is_cached(Key(page))).count());
            for &page in batch {
                if !self.policy.hit(Key(page)) {
                    self.misses += 1;
                    let left = self.policy.insert(Key(page), PageId(u64::from(page)), |_| true);
                    debug_assert!(left.is_ok(), "any page may leave");
                }
            }
        }
    }

    fn misses(&self) -> u64 {
        self.misses
    }

    fn bytes(&self) -> usize {
        self.policy.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::{ExactCurve, exact};
    use crate::{Policy, References};
    use terrace_policy::replacement::REPLACEMENTS;
    use terrace_trace::PageBytes;

    fn requests(seed: u64, count: usize) -> Vec<Result<Request, TraceError>> {
        let mut prng = fastrand::Rng::with_seed(seed);
        let one = |at: usize| {
            let address = 512 * prng.u64(..4_000).min(prng.u64(..4_000));
            let kind = if prng.bool() { Kind::Read } else { Kind::Write };
            let (file, length) = (prng.u32(..3), prng.u32(1..20_000));
            Ok(Request { time_ns: at as u64, file, address, length, kind })
        };
        (0..count).map(one).collect()
    }

    const PAGING: Paging = Paging::Split(PageBytes::SECTOR);

    #[test]
    fn every_policy_misses_as_it_does_when_references_are_kept() {
        for seed in 0..4 {
            let kept = References::read(requests(seed, 6_000).into_iter(), PAGING).unwrap();
            let numbered = Numbered::read(requests(seed, 6_000).into_iter(), PAGING).unwrap();
            assert_eq!(numbered.references(), kept.pages().len() as u64);
            assert_eq!(numbered.pages_count(), kept.pages_count());
            assert_eq!(numbered.writes(), kept.writes_count());
            assert_eq!(numbered.span_s(), kept.span_s());
            let count = numbered.pages_count();
            let capacity = count / 7 + 1;
            let mut all: Vec<Following> = REPLACEMENTS
                .iter()
                .map(|&row| Following::new(row, capacity, count, seed))
                .collect();
            let feed = |pages: &[u32]| all.iter_mut().for_each(|one| one.feed(pages));
            numbered.replay(requests(seed, 6_000).into_iter(), PAGING, feed).unwrap();
            for (one, &row) in all.iter().zip(REPLACEMENTS) {
                let expected = Policy::Online(row).misses(&kept, capacity, seed);
                assert_eq!(one.misses(), expected, "{} seed {seed}", row.name);
                assert!(one.bytes() > 0);
            }
        }
    }

    #[test]
    fn the_exact_curve_is_the_same_when_no_reference_is_kept() {
        for seed in 0..4 {
            let kept = References::read(requests(seed, 6_000).into_iter(), PAGING).unwrap();
            let numbered = Numbered::read(requests(seed, 6_000).into_iter(), PAGING).unwrap();
            let mut curve = ExactCurve::new(numbered.pages_count());
            let feed = |pages: &[u32]| curve.feed(pages);
            numbered.replay(requests(seed, 6_000).into_iter(), PAGING, feed).unwrap();
            assert!(curve.bytes() > 0);
            let capacities: Vec<u32> = (1..numbered.pages_count()).step_by(37).collect();
            let expected = exact(&kept).miss_ratios(&capacities);
            assert_eq!(curve.curve().miss_ratios(&capacities), expected, "seed {seed}");
        }
    }

    #[test]
    fn a_trace_that_changes_meanwhile_is_noticed() {
        let numbered = Numbered::read(requests(1, 500).into_iter(), PAGING).unwrap();
        for (seed, count) in [(1, 499), (1, 501), (2, 500)] {
            let again = numbered.replay(requests(seed, count).into_iter(), PAGING, |_| {});
            assert!(matches!(again, Err(StreamError::Changed)), "{seed} {count}");
        }
    }

    #[test]
    fn a_page_takes_less_than_32_bytes() {
        let sparse = (0..300_000u64).map(|at| {
            let address = (at * 0x9e37_79b9) % (1 << 40);
            Ok(Request { time_ns: 0, file: 0, address, length: 1, kind: Kind::Read })
        });
        let numbered = Numbered::read(sparse, PAGING).unwrap();
        let each = numbered.bytes() as f64 / f64::from(numbered.pages_count());
        assert!(each < 32.0, "{each} bytes a page");
    }
}
