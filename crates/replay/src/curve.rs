//! Miss-ratio curves: misses against capacity, from one pass, or from a sample of the pages.
//!
//! - Exact, for LRU: a cache of c pages misses what has a stack distance of c or more
//!   (`distances`).
//! - SHARDS, for LRU: the same for pages whose hash is below a bound (Waldspurger et al., FAST
//!   2015). Distances are scaled up by the rate. With a fixed size, the bound falls whenever there
//!   are too many pages. The correction of the paper's SHARDS-adj: what the sample has too few or
//!   too many requests is added to the shortest distance.
//! - Miniature simulation, for every policy: the sample is replayed through a cache that is as much
//!   smaller (Waldspurger et al., ATC 2017), with the same correction.
//! - C1: whether a page is in a sample depends on its name and the seed alone.
//! - C2: samples of a lower rate are part of those of a higher.

use crate::References;
use crate::single_tier::Policy;
use std::collections::BTreeSet;
use terrace_policy::{Distances, FIRST_USE};
use terrace_trace::PageKey;

/// Misses by capacity.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Requests by stack distance, of which the sample may count parts.
    hits: Vec<f64>,
    requests: f64,
}

impl Curve {
    fn new(pages_count: u32) -> Curve {
        Curve { hits: vec![0.0; pages_count as usize], requests: 0.0 }
    }

    fn add(&mut self, distance: f64, weight: f64) {
        let last = self.hits.len() - 1;
        self.hits[(distance as usize).min(last)] += weight;
    }

    /// Miss ratios at these capacities, in pages, ascending.
    ///
    /// # Panics
    ///
    /// If the capacities descend.
    #[must_use]
    pub fn miss_ratios(&self, capacities: &[u32]) -> Vec<f64> {
        assert!(capacities.is_sorted(), "capacities ascend");
        let (mut hits, mut from) = (0.0, 0);
        let mut ratios = Vec::with_capacity(capacities.len());
        for &capacity in capacities {
            let to = (capacity as usize).clamp(from, self.hits.len().max(from));
            hits += self.hits[from..to].iter().sum::<f64>();
            from = to;
            let ratio = 1.0 - hits / self.requests.max(1.0);
            ratios.push(ratio.clamp(0.0, 1.0));
        }
        ratios
    }
}

/// The curve of LRU, exactly.
#[must_use]
pub fn exact(references: &References) -> Curve {
    let mut curve = ExactCurve::new(references.pages_count());
    curve.feed(references.pages());
    curve.curve()
}

/// The curve of LRU, exactly, while it is drawn: of each reference nothing is kept.
pub struct ExactCurve {
    distances: Distances,
    /// Requests by stack distance.
    counts: Vec<u64>,
    requests: u64,
}

impl ExactCurve {
    /// Of pages below `pages_count`.
    #[must_use]
    pub fn new(pages_count: u32) -> ExactCurve {
        let counts = vec![0; pages_count as usize];
        ExactCurve { distances: Distances::new(pages_count), counts, requests: 0 }
    }

    /// The next references, by the numbers of their pages.
    pub fn feed(&mut self, pages: &[u32]) {
        self.requests += pages.len() as u64;
        for &page in pages {
            let distance = self.distances.use_page(page);
            if distance != FIRST_USE {
                self.counts[distance as usize] += 1;
            }
        }
    }

    /// The curve of the references so far.
    #[must_use]
    pub fn curve(&self) -> Curve {
        let hits = self.counts.iter().map(|&count| count as f64).collect();
        Curve { hits, requests: self.requests as f64 }
    }

    /// Bytes allocated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.distances.bytes() + self.counts.capacity() * size_of::<u64>()
    }
}

/// How SHARDS samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// This share of the pages.
    Rate(f64),
    /// At most this number of pages.
    Pages(u32),
}

/// The curve of LRU from a sample.
///
/// # Panics
///
/// If the sample is nothing.
#[must_use]
pub fn shards(references: &References, sampling: Sampling, seed: u64) -> Curve {
    let mut sample = Sample::new(references, sampling, seed);
    let mut distances = Distances::new(references.pages_count());
    let mut curve = Curve::new(references.pages_count());
    let mut weight_sum = 0.0;
    for &page in references.pages() {
        if !sample.holds(page) {
            continue;
        }
        // One request of the sample stands for this number.
        let weight = 1.0 / sample.rate();
        weight_sum += weight;
        let distance = distances.use_page(page);
        if distance == FIRST_USE {
            sample.add(page, |gone| distances.forget(gone));
        } else {
            curve.add(f64::from(distance) * weight, weight);
        }
    }
    let all = references.pages().len() as f64;
    curve.requests = all;
    // SHARDS-adj.
    if let Some(shortest) = curve.hits.first_mut() {
        *shortest += all - weight_sum;
    }
    curve
}

/// Pages whose hash is below a bound.
struct Sample {
    hashes: Vec<u32>,
    bound: u64,
    pages_max: u32,
    /// By hash, if their number has a bound.
    pages: BTreeSet<(u32, u32)>,
}

impl Sample {
    fn new(references: &References, sampling: Sampling, seed: u64) -> Sample {
        let (rate, pages_max) = match sampling {
            Sampling::Rate(rate) => (rate, u32::MAX),
            Sampling::Pages(pages) => (1.0, pages),
        };
        assert!(rate > 0.0 && rate <= 1.0, "rate {rate} is no share of pages");
        assert!(pages_max > 0, "a sample has pages");
        let bound = bound(rate);
        Sample { hashes: hashes(references, seed), bound, pages_max, pages: BTreeSet::new() }
    }

    #[inline]
    fn holds(&self, page: u32) -> bool {
        u64::from(self.hashes[page as usize]) < self.bound
    }

    fn rate(&self) -> f64 {
        self.bound as f64 / HASHES as f64
    }

    /// `page` is new. If there are too many, those with the largest hash go.
    fn add(&mut self, page: u32, mut gone: impl FnMut(u32)) {
        if self.pages_max == u32::MAX {
            return;
        }
        self.pages.insert((self.hashes[page as usize], page));
        if self.pages.len() as u64 <= u64::from(self.pages_max) {
            return;
        }
        self.bound = self.pages.last().map_or(0, |last| u64::from(last.0)).max(1);
        while let Some(&(hash, page)) = self.pages.last()
            && u64::from(hash) >= self.bound
        {
            self.pages.pop_last();
            gone(page);
        }
    }
}

/// How many hashes there are.
const HASHES: u64 = 1 << 32;

fn bound(rate: f64) -> u64 {
    ((rate * HASHES as f64) as u64).max(1)
}

fn hashes(references: &References, seed: u64) -> Vec<u32> {
    (0..references.pages_count()).map(|page| hash(references.name(page), seed)).collect()
}

/// A hash of a page's name, all of whose bits are as good as random.
#[must_use]
pub fn hash(page: PageKey, seed: u64) -> u32 {
    let mix = |value: u64| {
        let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    };
    let file = mix(u64::from(page.file) ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (mix(page.number ^ file) >> 32) as u32
}

/// A sample of a trace, to be replayed through smaller caches.
pub struct Miniature {
    references: References,
    rate: f64,
    /// Requests of the whole trace.
    requests: f64,
}

impl Miniature {
    /// The requests for a share `rate` of the pages.
    ///
    /// # Panics
    ///
    /// If `rate` is no share.
    #[must_use]
    pub fn new(references: &References, rate: f64, seed: u64) -> Miniature {
        assert!(rate > 0.0 && rate <= 1.0, "rate {rate} is no share of pages");
        let hashes = hashes(references, seed);
        let bound = bound(rate);
        let mut sample = References::default();
        for &page in references.pages() {
            if u64::from(hashes[page as usize]) < bound {
                sample.push(terrace_trace::PageRequest {
                    time_ns: 0,
                    page: references.name(page),
                    kind: terrace_trace::Kind::Read,
                });
            }
        }
        let requests = references.pages().len() as f64;
        Miniature { references: sample, rate, requests }
    }

    /// The miss ratio of `policy` with `capacity` pages, about. None if the sample is empty.
    #[must_use]
    pub fn miss_ratio(&self, policy: Policy, capacity: u32, seed: u64) -> Option<f64> {
        if self.references.pages().is_empty() {
            return None;
        }
        let capacity = (f64::from(capacity) * self.rate).round().max(1.0) as u32;
        let misses = policy.misses(&self.references, capacity, seed) as f64;
        // What the sample has too many requests, or too few, hits: it is of the most popular.
        Some((misses / (self.requests * self.rate)).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_trace::{PageBytes, Popularity, Synthetic, SyntheticOptions};

    fn trace() -> References {
        let options = SyntheticOptions {
            popularity: Popularity::Zipf(0.9),
            ids: 40_000,
            requests: 400_000,
            seed: 5,
            writes: 0.0,
            working_set: None,
            scans: None,
            page_bytes: PageBytes::DEFAULT,
            interval_ns: 0,
        };
        let made = Synthetic::new(options).expect("options that make sense");
        References::of_reads(made.map(|request| request.address / 8192))
    }

    fn lru() -> Policy {
        Policy::find("lru").unwrap()
    }

    const CAPACITIES: [u32; 6] = [1, 50, 1_000, 4_000, 12_000, 30_000];

    #[test]
    fn the_exact_curve_is_what_lru_misses() {
        let references = trace();
        let curve = exact(&references).miss_ratios(&CAPACITIES);
        for (capacity, ratio) in CAPACITIES.into_iter().zip(curve) {
            let misses = lru().misses(&references, capacity, 0);
            let expected = misses as f64 / references.pages().len() as f64;
            assert!((ratio - expected).abs() < 1e-9, "{capacity}: {ratio} for {expected}");
        }
    }

    #[test]
    fn a_sample_of_everything_is_exact() {
        let references = trace();
        let expected = exact(&references).miss_ratios(&CAPACITIES);
        for sampling in [Sampling::Rate(1.0), Sampling::Pages(1 << 20)] {
            let got = shards(&references, sampling, 1).miss_ratios(&CAPACITIES);
            for (got, expected) in got.iter().zip(&expected) {
                assert!((got - expected).abs() < 1e-6, "{sampling:?}: {got} for {expected}");
            }
        }
        let whole = Miniature::new(&references, 1.0, 1);
        let sieve = Policy::find("sieve").unwrap();
        let misses = sieve.misses(&references, 4_000, 0) as f64;
        assert_eq!(whole.miss_ratio(sieve, 4_000, 0), Some(misses / 400_000.0));
    }

    #[test]
    fn samples_are_near_the_curve() {
        let references = trace();
        let expected = exact(&references).miss_ratios(&CAPACITIES);
        let near = |what: &str, got: &[f64]| {
            for (at, (got, expected)) in got.iter().zip(&expected).enumerate().skip(2) {
                assert!((got - expected).abs() < 0.03, "{what} {at}: {got} for {expected}");
            }
        };
        for sampling in [Sampling::Rate(0.1), Sampling::Pages(3_000)] {
            near("shards", &shards(&references, sampling, 1).miss_ratios(&CAPACITIES));
        }
        let miniature = Miniature::new(&references, 0.1, 1);
        let ratios = CAPACITIES.map(|capacity| miniature.miss_ratio(lru(), capacity, 0).unwrap());
        near("miniature", &ratios);
    }
}
