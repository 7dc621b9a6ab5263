//! A part of a trace that stands for all of it: the references to some of its extents, for tiers
//! that are smaller by as much (after Waldspurger et al., "Cache modeling and optimization using
//! miniature simulations", ATC 2017).
//!
//! - Extents of 32 pages are taken whole, so that neighbours stay neighbours: temperatures, and
//!   what the cleaner gathers, are of extents.
//! - M1: whether an extent is taken depends on its name and the seed alone; samples of other
//!   numbers have none in common.
//! - M2: what a sample has too many references, or too few, are taken to be hits in memory: it is
//!   hot pages that make the difference (as SHARDS-adj has it).
//! - M3: stretches of time begin and end at references of the whole trace, so that those of all
//!   samples are the same stretches.
//! - M4: a read follows on from another only if little came between them in the whole trace.
//! - Not for: traces of fewer pages than some thousands, which are replayed whole.

use crate::curve::hash;
use crate::tiers::{DeviceRates, FlashSetup, Memory, TierCounts, replay_marked};
use crate::{Places, References};
use std::ops::Range;
use terrace_policy::EXTENT_PAGES;
use terrace_trace::{Kind, PageKey, PageRequest};

/// References that may come between a page and the next, for a read to follow on.
const BETWEEN_MAX: usize = 16;

/// Requests, for each reference of the whole trace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TierRates {
    /// References that memory missed.
    pub memory_misses: f64,
    /// Of them, pages that were read ahead of need.
    pub ahead: f64,
    /// Of them, those that flash served.
    pub flash_hits: f64,
    /// Of them, those to pages that had been changed in memory when they left it last.
    pub after_change: f64,
    /// Of the references, those to a page for the first time: no tier can have it.
    pub first_uses: f64,
    /// Pages that flash took changed, and whose write home is still to come at the end.
    pub deferred: f64,
    /// To home.
    pub home: DeviceRates,
    /// To flash.
    pub flash: DeviceRates,
}

impl TierRates {
    fn of(counts: &TierCounts, first_uses: u64, expected: f64) -> TierRates {
        let missed = counts.requests - counts.memory_hits;
        TierRates {
            memory_misses: missed as f64 / expected,
            ahead: counts.ahead as f64 / expected,
            flash_hits: counts.flash_hits as f64 / expected,
            after_change: counts.after_change as f64 / expected,
            first_uses: first_uses as f64 / expected,
            deferred: counts.dirty_slots as f64 / expected,
            home: counts.home.per(expected),
            flash: counts.flash.per(expected),
        }
    }

    /// Share of memory's misses that flash served.
    #[must_use]
    pub fn flash_hit_ratio(&self) -> f64 {
        if self.memory_misses > 0.0 { self.flash_hits / self.memory_misses } else { 0.0 }
    }
}

/// A trace, or a part of it, in stretches of time.
pub struct Sample {
    references: References,
    places: Places,
    /// Share of the extents.
    rate: f64,
    /// Where each stretch begins; what comes before the first fills the tiers. The last ends with
    /// the trace.
    marks: Vec<usize>,
    /// References that such a share of each stretch is.
    expected: Vec<f64>,
    /// Pages that are used first in each stretch.
    first_uses: Vec<u64>,
}

/// What memory and a flash tier did in each stretch of a sample.
pub struct Stretches {
    /// Before each stretch, and at the end.
    counts: Vec<TierCounts>,
    expected: Vec<f64>,
    first_uses: Vec<u64>,
}

impl Stretches {
    /// What was asked for in these stretches.
    ///
    /// # Panics
    ///
    /// If there are no such stretches.
    #[must_use]
    pub fn rates(&self, stretches: Range<usize>) -> TierRates {
        let expected = self.expected[stretches.clone()].iter().sum::<f64>().max(1.0);
        let first_uses = self.first_uses(stretches.clone());
        TierRates::of(&self.counts(stretches), first_uses, expected)
    }

    /// The same as it was counted.
    ///
    /// # Panics
    ///
    /// If there are no such stretches.
    #[must_use]
    pub fn counts(&self, stretches: Range<usize>) -> TierCounts {
        self.counts[stretches.end].since(&self.counts[stretches.start])
    }

    /// Pages that are used first in these stretches.
    ///
    /// # Panics
    ///
    /// If there are no such stretches.
    #[must_use]
    pub fn first_uses(&self, stretches: Range<usize>) -> u64 {
        self.first_uses[stretches].iter().sum()
    }

    /// All that was counted before a stretch.
    ///
    /// # Panics
    ///
    /// If there is no such stretch.
    #[must_use]
    pub fn before(&self, stretch: usize) -> TierCounts {
        self.counts[stretch]
    }
}

impl Sample {
    /// All of `references`, in stretches that begin at the references `marks`, which ascend.
    ///
    /// # Panics
    ///
    /// If there is no mark.
    #[must_use]
    pub fn whole(references: References, marks: &[usize]) -> Sample {
        let places = Places::new(&references);
        let expected = lengths(marks, references.pages().len());
        let expected = expected.map(|length| length as f64).collect();
        Sample::new(references, places, 1.0, marks.to_vec(), expected)
    }

    /// Sample `number` of `references`: a share `rate` of the extents.
    ///
    /// # Panics
    ///
    /// If there is not this number of samples without extents in common; if there is no mark.
    #[must_use]
    pub fn of_extents(
        references: &References,
        (rate, number): (f64, u32),
        marks: &[usize],
        seed: u64,
    ) -> Sample {
        assert!(rate > 0.0 && rate * f64::from(number + 1) <= 1.0, "a share of the extents");
        let taken = extents_taken(references, rate, number, seed);
        let mut sample = References::default();
        let mut own_marks = Vec::with_capacity(marks.len());
        let mut previous = None;
        let mut aheads = references.aheads().iter().peekable();
        // Times are of no matter, but when they pass is.
        let mut time_ns = 0;
        for (at, &page) in references.pages().iter().enumerate() {
            while let Some(&(_, page)) = aheads.next_if(|ahead| ahead.0 as usize <= at) {
                if taken[page as usize] {
                    let page = references.name(page);
                    sample.push(PageRequest { time_ns, page, kind: Kind::Ahead });
                }
            }
            time_ns += u64::from(references.has_waited(at));
            if !taken[page as usize] {
                continue;
            }
            while marks.get(own_marks.len()).is_some_and(|&mark| mark <= at) {
                own_marks.push(sample.pages().len());
            }
            if previous.is_some_and(|previous| at - previous > BETWEEN_MAX) {
                sample.cut();
            }
            previous = Some(at);
            let kind = if references.is_write(at) { Kind::Write } else { Kind::Read };
            sample.push(PageRequest { time_ns, page: references.name(page), kind });
        }
        own_marks.resize(marks.len(), sample.pages().len());
        let expected = lengths(marks, references.pages().len());
        let expected = expected.map(|length| length as f64 * rate).collect();
        let places = Places::new(&sample);
        Sample::new(sample, places, rate, own_marks, expected)
    }

    fn new(
        references: References,
        places: Places,
        rate: f64,
        marks: Vec<usize>,
        expected: Vec<f64>,
    ) -> Sample {
        assert!(!marks.is_empty(), "a stretch is counted");
        let first_uses = first_uses(&references, &marks);
        Sample { references, places, rate, marks, expected, first_uses }
    }

    /// Its references.
    #[must_use]
    pub fn references(&self) -> &References {
        &self.references
    }

    /// How many references of the whole trace go by, from the stretch `first` on, until as many
    /// pages were used as tiers of `pages` pages hold: after that, nothing need be in them that
    /// was at its beginning. None if the trace ends before.
    ///
    /// # Panics
    ///
    /// If there is no such stretch.
    #[must_use]
    pub fn turnover(&self, pages: u64, first: usize) -> Option<f64> {
        let counted = &self.references.pages()[self.marks[first]..];
        let expected = self.expected[first..].iter().sum::<f64>() / self.rate;
        let mut is_used = vec![false; self.references.pages_count() as usize];
        let mut left = ((pages as f64 * self.rate).round() as u64).max(1);
        let at = counted.iter().position(|&page| {
            left -= u64::from(!std::mem::replace(&mut is_used[page as usize], true));
            left == 0
        });
        at.map(|at| (at + 1) as f64 / counted.len() as f64 * expected)
    }

    /// What `memory` above `setup` does; from where it is counted is the sample's to say.
    #[must_use]
    pub fn replay(&self, memory: Memory, setup: &FlashSetup) -> Stretches {
        let scaled = |pages: u32| ((f64::from(pages) * self.rate).round() as u32).max(1);
        let memory = Memory {
            policy: memory.policy.map(|(row, frames)| (row, scaled(frames))),
            outstanding: (f64::from(memory.outstanding) * self.rate).round() as u32,
            ..memory
        };
        let setup = setup.scaled(self.rate);
        let counts = replay_marked(&self.references, &self.places, memory, &setup, &self.marks);
        let (expected, first_uses) = (self.expected.clone(), self.first_uses.clone());
        Stretches { counts, expected, first_uses }
    }
}

/// References of each stretch of `all`.
fn lengths(marks: &[usize], all: usize) -> impl Iterator<Item = usize> + '_ {
    let ends = marks.iter().skip(1).copied().chain([all]);
    marks.iter().zip(ends).map(|(&mark, end)| end - mark)
}

/// Pages that are used first in each stretch.
fn first_uses(references: &References, marks: &[usize]) -> Vec<u64> {
    let mut counts = vec![0; marks.len()];
    let mut known = vec![false; references.pages_count() as usize];
    let mut stretch = 0;
    for (at, &page) in references.pages().iter().enumerate() {
        while marks.get(stretch).is_some_and(|&mark| mark <= at) {
            stretch += 1;
        }
        if !std::mem::replace(&mut known[page as usize], true)
            && let Some(last) = stretch.checked_sub(1)
        {
            counts[last] += 1;
        }
    }
    counts
}

/// Which pages lie in extents of the sample.
fn extents_taken(references: &References, rate: f64, number: u32, seed: u64) -> Vec<bool> {
    let all = 2.0f64.powi(32);
    let bounds = [number, number + 1].map(|number| (rate * f64::from(number) * all) as u64);
    let is_taken = |page: u32| {
        let PageKey { file, number } = references.name(page);
        let extent = PageKey { file, number: number / EXTENT_PAGES };
        (bounds[0]..bounds[1]).contains(&u64::from(hash(extent, seed)))
    };
    (0..references.pages_count()).map(is_taken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiers::{Flash, MemoryRule};
    use terrace_policy::{MemoryPolicy, designs};

    /// Requests to objects of some pages each, scattered, a third of which are changed.
    fn trace() -> References {
        let mut prng = fastrand::Rng::with_seed(4);
        let mut references = References::default();
        for time in 0..250_000u64 {
            let object = prng.u64(..4_000).min(prng.u64(..4_000)).min(prng.u64(..4_000));
            let place = object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
            for page in 0..prng.u64(1..4) {
                let kind = if prng.u8(..3) == 0 { Kind::Write } else { Kind::Read };
                let page = PageKey { file: 0, number: 4 * place + page };
                references.push(PageRequest { time_ns: time, page, kind });
            }
        }
        references
    }

    fn memory(frames: u32) -> Memory {
        let policy = Some((MemoryRule::Pool(MemoryPolicy::Lru), frames));
        Memory { policy, near_is_sequential: false, outstanding: 20, counted_from: 0 }
    }

    fn setup(design: &str, slots: u32) -> FlashSetup {
        FlashSetup::new(Flash::Design(designs::find(design).expect("a design")), slots, 1)
    }

    #[test]
    fn samples_have_nothing_in_common_and_together_are_all() {
        let references = trace();
        let samples: Vec<Sample> =
            (0..4).map(|number| Sample::of_extents(&references, (0.25, number), &[0], 3)).collect();
        let sum = |of: fn(&References) -> u64| {
            samples.iter().map(|sample| of(sample.references())).sum::<u64>()
        };
        assert_eq!(sum(|some| some.pages().len() as u64), references.pages().len() as u64);
        assert_eq!(sum(|some| u64::from(some.pages_count())), u64::from(references.pages_count()));
        assert_eq!(sum(References::writes_count), references.writes_count());
    }

    #[test]
    fn a_sample_of_everything_is_the_whole() {
        let references = trace();
        let marks = [100_000, 200_000, 300_000];
        let sample = Sample::of_extents(&references, (1.0, 0), &marks, 3);
        let whole = Sample::whole(references, &marks);
        let memory = memory(300);
        for design in ["no-ssd", "dw", "lc", "tac", "face", "fasc", "cac", "auto"] {
            let setup = setup(design, 1_500);
            let (sample, whole) = (sample.replay(memory, &setup), whole.replay(memory, &setup));
            for stretches in [0..1, 1..3, 0..3] {
                let (part, all) = (sample.rates(stretches.clone()), whole.rates(stretches));
                assert_eq!(part, all, "{design}");
            }
        }
    }

    #[test]
    fn samples_are_near_the_whole() {
        let references = trace();
        let half = references.pages().len() / 2;
        let sample = |number| Sample::of_extents(&references, (0.2, number), &[half], 3);
        let samples: Vec<Sample> = (0..4).map(sample).collect();
        let whole = Sample::whole(references, &[half]);
        let memory = memory(500);
        for (design, slots) in [("no-ssd", 1), ("dw", 800), ("dw", 3_000), ("lc", 2_000)] {
            let setup = setup(design, slots);
            let truth = whole.replay(memory, &setup).rates(0..1);
            let mean = |of: fn(&TierRates) -> f64| {
                let rates = samples.iter().map(|sample| sample.replay(memory, &setup).rates(0..1));
                rates.map(|rates| of(&rates)).sum::<f64>() / 4.0
            };
            let hits = mean(TierRates::flash_hit_ratio);
            assert!((hits - truth.flash_hit_ratio()).abs() < 0.02, "{design} {slots}: {hits}");
            for (what, of) in [
                ("misses", (|r| r.memory_misses) as fn(&TierRates) -> f64),
                ("home reads", |r| r.home.reads),
                ("home writes", |r| r.home.writes),
                ("flash writes", |r| r.flash.writes),
            ] {
                let (got, truth) = (mean(of), of(&truth));
                assert!(
                    (got - truth).abs() <= 0.05 * truth,
                    "{design} {slots} {what}: {got} {truth}"
                );
            }
        }
    }

    /// The same replay counted from a mark on, as an ordinary replay counts it, and cut off at
    /// another.
    #[test]
    fn a_stretch_is_what_a_replay_to_its_end_counts_from_its_beginning() {
        let references = trace();
        let places = Places::new(&references);
        let (memory, marks) = (memory(300), [60_001, 123_456, 200_000]);
        let part = |end: usize| {
            let (mut part, mut time_ns) = (References::default(), 0);
            for (at, &page) in references.pages()[..end].iter().enumerate() {
                time_ns += u64::from(references.has_waited(at));
                let kind = if references.is_write(at) { Kind::Write } else { Kind::Read };
                part.push(PageRequest { time_ns, page: references.name(page), kind });
            }
            part
        };
        for design in ["no-ssd", "lc", "tac", "face", "exclusive"] {
            let setup = setup(design, 1_500);
            let counts = replay_marked(&references, &places, memory, &setup, &marks);
            for (from, to) in [(0, 1), (1, 3), (0, 2)] {
                let end = marks.get(to).copied().unwrap_or(references.pages().len());
                let part = part(end);
                let (places, memory) =
                    (Places::new(&part), Memory { counted_from: marks[from], ..memory });
                let expected = crate::tiers::replay(&part, &places, memory, &setup);
                // A replay tells of all dirty slots, a stretch of those that came.
                let dirty_slots = expected.dirty_slots.saturating_sub(counts[from].dirty_slots);
                let expected = TierCounts { dirty_slots, ..expected };
                assert_eq!(counts[to].since(&counts[from]), expected, "{design} {from} to {to}");
            }
        }
    }

    #[test]
    fn tiers_are_turned_over_when_as_many_pages_were_used() {
        let references = trace();
        let (length, half) = (references.pages().len(), references.pages().len() / 2);
        let sample = Sample::of_extents(&references, (0.25, 1), &[0, half], 3);
        let whole = Sample::whole(references, &[0, half]);
        for (pages, first) in [(1, 0), (700, 0), (2_000, 1)] {
            let from = [0, half][first];
            let mut seen = std::collections::HashSet::new();
            let mut all = whole.references().pages()[from..].iter();
            let expected = 1 + all
                .position(|&page| {
                    seen.insert(page);
                    seen.len() == pages
                })
                .expect("enough pages");
            let turnover = whole.turnover(pages as u64, first).expect("enough pages");
            assert!((turnover - expected as f64).abs() < 1e-6, "{pages}: {turnover} {expected}");
            let sampled = sample.turnover(pages as u64, first).expect("enough pages");
            let is_near = (sampled / turnover - 1.0).abs() < 0.1 || pages == 1;
            assert!(is_near, "{pages}: {sampled} {turnover}");
        }
        assert_eq!(whole.turnover(length as u64, 0), None);
    }

    #[test]
    fn first_uses_are_those_of_a_set() {
        let references = trace();
        let marks = [0, 1, 777, 150_000];
        let counts = first_uses(&references, &marks);
        let mut seen = std::collections::HashSet::new();
        let mut expected = vec![0; marks.len()];
        for (at, &page) in references.pages().iter().enumerate() {
            let stretch = marks.iter().filter(|&&mark| mark <= at).count() - 1;
            expected[stretch] += u64::from(seen.insert(page));
        }
        assert_eq!(counts, expected);
    }
}
