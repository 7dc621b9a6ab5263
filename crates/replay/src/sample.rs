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
//! - M3: a read follows on from another only if little came between them in the whole trace.
//! - Not for: traces of fewer pages than some thousands, which are replayed whole.

use crate::curve::hash;
use crate::tiers::{DeviceRates, FlashSetup, Memory, TierCounts, replay};
use crate::{Places, References};
use terrace_policy::EXTENT_PAGES;
use terrace_trace::{Kind, PageKey, PageRequest};

/// References that may come between a page and the next, for a read to follow on.
const BETWEEN_MAX: usize = 16;

/// Requests, for each reference of the whole trace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TierRates {
    /// References that memory missed.
    pub memory_misses: f64,
    /// Of them, those that flash served.
    pub flash_hits: f64,
    /// To home.
    pub home: DeviceRates,
    /// To flash.
    pub flash: DeviceRates,
}

impl TierRates {
    fn of(counts: &TierCounts, expected: f64) -> TierRates {
        let missed = counts.requests - counts.memory_hits;
        TierRates {
            memory_misses: missed as f64 / expected,
            flash_hits: counts.flash_hits as f64 / expected,
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

/// A trace, or a part of it.
pub struct Sample {
    references: References,
    places: Places,
    /// Share of the extents.
    rate: f64,
    /// References before are there to fill the tiers.
    counted_from: usize,
    /// References that such a share of the counted ones is.
    expected: f64,
}

impl Sample {
    /// All of `references`, of which the first share `warm_up` fills the tiers.
    #[must_use]
    pub fn whole(references: References, warm_up: f64) -> Sample {
        let all = references.pages().len();
        let counted_from = first_counted(all, warm_up);
        let places = Places::new(&references);
        let expected = (all - counted_from) as f64;
        Sample { references, places, rate: 1.0, counted_from, expected }
    }

    /// Sample `number` of `references`: a share `rate` of the extents.
    ///
    /// # Panics
    ///
    /// If there is not this number of samples without extents in common.
    #[must_use]
    pub fn of_extents(
        references: &References,
        (rate, number): (f64, u32),
        warm_up: f64,
        seed: u64,
    ) -> Sample {
        assert!(rate > 0.0 && rate * f64::from(number + 1) <= 1.0, "a share of the extents");
        let taken = extents_taken(references, rate, number, seed);
        let all = references.pages().len();
        let first = first_counted(all, warm_up);
        let mut sample = References::default();
        let (mut counted_from, mut previous) = (None, None);
        // Times are of no matter, but when they pass is.
        let mut time_ns = 0;
        for (at, &page) in references.pages().iter().enumerate() {
            time_ns += u64::from(references.has_waited(at));
            if !taken[page as usize] {
                continue;
            }
            if at >= first {
                counted_from.get_or_insert(sample.pages().len());
            }
            if previous.is_some_and(|previous| at - previous > BETWEEN_MAX) {
                sample.cut();
            }
            previous = Some(at);
            let kind = if references.is_write(at) { Kind::Write } else { Kind::Read };
            sample.push(PageRequest { time_ns, page: references.name(page), kind });
        }
        let counted_from = counted_from.unwrap_or(sample.pages().len());
        let expected = ((all - first) as f64 * rate).max(1.0);
        let places = Places::new(&sample);
        Sample { references: sample, places, rate, counted_from, expected }
    }

    /// Its references.
    #[must_use]
    pub fn references(&self) -> &References {
        &self.references
    }

    /// What `memory` above `setup` would be asked for; from where it is counted is the sample's to
    /// say.
    #[must_use]
    pub fn rates(&self, memory: Memory, setup: &FlashSetup) -> TierRates {
        let scaled = |pages: u32| ((f64::from(pages) * self.rate).round() as u32).max(1);
        let memory = Memory {
            policy: memory.policy.map(|(row, frames)| (row, scaled(frames))),
            outstanding: (f64::from(memory.outstanding) * self.rate).round() as u32,
            counted_from: self.counted_from,
            ..memory
        };
        let setup = setup.scaled(self.rate);
        let counts = replay(&self.references, &self.places, memory, &setup);
        TierRates::of(&counts, self.expected)
    }
}

fn first_counted(all: usize, warm_up: f64) -> usize {
    ((all as f64 * warm_up) as usize).min(all.saturating_sub(1))
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
            (0..4).map(|number| Sample::of_extents(&references, (0.25, number), 0.5, 3)).collect();
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
        let sample = Sample::of_extents(&references, (1.0, 0), 0.4, 3);
        let whole = Sample::whole(references, 0.4);
        let memory = memory(300);
        for design in ["no-ssd", "dw", "lc", "tac", "face", "fasc", "cac", "auto"] {
            let setup = setup(design, 1_500);
            assert_eq!(sample.rates(memory, &setup), whole.rates(memory, &setup), "{design}");
        }
    }

    #[test]
    fn samples_are_near_the_whole() {
        let references = trace();
        let samples: Vec<Sample> =
            (0..4).map(|number| Sample::of_extents(&references, (0.2, number), 0.5, 3)).collect();
        let whole = Sample::whole(references, 0.5);
        let memory = memory(500);
        for (design, slots) in [("no-ssd", 1), ("dw", 800), ("dw", 3_000), ("lc", 2_000)] {
            let setup = setup(design, slots);
            let truth = whole.rates(memory, &setup);
            let mean = |of: fn(&TierRates) -> f64| {
                samples.iter().map(|sample| of(&sample.rates(memory, &setup))).sum::<f64>() / 4.0
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
}
