//! How often a second tier of any size would have had what memory missed, from a sample that an
//! engine can keep while it runs: SHARDS with a fixed size (Waldspurger et al., FAST 2015).
//!
//! - Idea: of a sample of the pages, chosen by hash, the LRU stack distances are kept; a distance
//!   is scaled up by the rate of the sample. When there are too many pages, the bound on their
//!   hashes falls, and those above it are forgotten.
//! - C1: a page is in the sample exactly if its hash is below the bound.
//! - C2: at most `pages_max` pages are in the sample.
//! - C3: what the sample has too few or too many misses, the shortest distance gets (SHARDS-adj).
//! - Cost: about 120 bytes for each page of the sample; for a miss of another page a hash.
//! - Not for: tiers that are no LRU of all that memory missed, of which it is an estimate.

use crate::distances::{Distances, FIRST_USE};
use std::collections::{BTreeMap, BTreeSet};
use terrace_page::PageId;

/// How many hashes there are.
const HASHES: u64 = 1 << 32;
/// Steps of distance for each doubling.
const STEPS_PER_DOUBLING: f64 = 16.0;
/// Enough for 2^40 pages.
const STEPS: usize = 40 * 16;
/// Of a larger database a smaller part is sampled from the beginning.
const FIRST_BOUND: u64 = HASHES / 4;

/// The hash by which pages are chosen.
#[must_use]
#[inline]
pub fn sample_hash(page: PageId) -> u64 {
    let value = page.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (value ^ (value >> 31)) >> 32
}

/// A sample of misses, and their distances.
pub struct MissSampler {
    bound: u64,
    pages_max: u32,
    numbers: BTreeMap<PageId, u32>,
    by_hash: BTreeSet<(u64, PageId)>,
    free: Vec<u32>,
    distances: Distances,
    /// Misses by step of distance, as many as the sample stands for.
    hits: Vec<f64>,
    first_uses: f64,
    sampled: u64,
}

impl MissSampler {
    /// An empty sample of at most `pages_max` pages.
    ///
    /// # Panics
    ///
    /// If there may be no page.
    #[must_use]
    pub fn new(pages_max: u32) -> MissSampler {
        MissSampler::with_bound(pages_max, FIRST_BOUND)
    }

    fn with_bound(pages_max: u32, bound: u64) -> MissSampler {
        assert!(pages_max > 0, "a sample has pages");
        MissSampler {
            bound,
            pages_max,
            numbers: BTreeMap::new(),
            by_hash: BTreeSet::new(),
            free: (0..=pages_max).rev().collect(),
            distances: Distances::new(pages_max + 1),
            hits: vec![0.0; STEPS],
            first_uses: 0.0,
            sampled: 0,
        }
    }

    /// Pages whose [`sample_hash`] is below are in the sample.
    #[must_use]
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// Memory missed `page`.
    pub fn miss(&mut self, page: PageId) {
        let hash = sample_hash(page);
        if hash >= self.bound {
            return;
        }
        let weight = HASHES as f64 / self.bound as f64;
        self.sampled += 1;
        let number = match self.numbers.get(&page) {
            Some(&number) => number,
            None => {
                let number = self.free.pop().expect("one more than pages");
                self.numbers.insert(page, number);
                self.by_hash.insert((hash, page));
                number
            }
        };
        match self.distances.use_page(number) {
            FIRST_USE => {
                self.first_uses += weight;
                self.shrink();
            }
            distance => self.hits[step(f64::from(distance) * weight)] += weight,
        }
    }

    /// C2.
    fn shrink(&mut self) {
        if self.numbers.len() as u64 <= u64::from(self.pages_max) {
            return;
        }
        self.bound = self.by_hash.last().expect("there are pages").0.max(1);
        while let Some(&(hash, page)) = self.by_hash.last()
            && hash >= self.bound
        {
            self.by_hash.pop_last();
            let number = self.numbers.remove(&page).expect("both have the same pages");
            self.distances.forget(number);
            self.free.push(number);
        }
    }

    /// The curve of the `misses` so far, sampled or not.
    #[must_use]
    pub fn curve(&self, misses: u64) -> MissCurve {
        let mut hits = self.hits.clone();
        let sum = hits.iter().sum::<f64>() + self.first_uses;
        if self.sampled > 0 {
            hits[0] += misses as f64 - sum;
        }
        MissCurve { misses, sampled: self.sampled, hits }
    }
}

/// Misses that an LRU of any size would have had.
#[derive(Clone, Debug, PartialEq)]
pub struct MissCurve {
    misses: u64,
    sampled: u64,
    hits: Vec<f64>,
}

impl MissCurve {
    /// Misses of memory.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// Of them, those of the sample.
    #[must_use]
    pub fn sampled(&self) -> u64 {
        self.sampled
    }

    /// Share of memory's misses that an LRU of `slots` pages would have had.
    #[must_use]
    pub fn hit_ratio(&self, slots: u32) -> f64 {
        let slots = f64::from(slots);
        let mut hits = 0.0;
        for (at, count) in self.hits.iter().enumerate() {
            let (from, to) = (step_start(at), step_start(at + 1));
            // Within a step distances are taken to be spread evenly.
            hits += count * ((slots - from) / (to - from)).clamp(0.0, 1.0);
        }
        (hits / self.misses.max(1) as f64).clamp(0.0, 1.0)
    }

    /// Numbers of misses by step of distance, with the first of each; empty steps are left out.
    pub fn steps(&self) -> impl Iterator<Item = (u32, f64)> {
        let filled = self.hits.iter().enumerate().filter(|row| *row.1 != 0.0);
        filled.map(|(at, &hits)| (at as u32, hits))
    }

    /// A curve of these steps.
    ///
    /// # Errors
    ///
    /// A step that is none.
    pub fn from_steps(
        misses: u64,
        sampled: u64,
        steps: impl IntoIterator<Item = (u32, f64)>,
    ) -> Result<MissCurve, NoStep> {
        let mut curve = MissCurve { misses, sampled, hits: vec![0.0; STEPS] };
        for (step, hits) in steps {
            *curve.hits.get_mut(step as usize).ok_or(NoStep { step })? = hits;
        }
        Ok(curve)
    }
}

/// No step of distance has this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoStep {
    /// The number.
    pub step: u32,
}

fn step(distance: f64) -> usize {
    (((distance + 1.0).log2() * STEPS_PER_DOUBLING) as usize).min(STEPS - 1)
}

/// The least distance of a step.
fn step_start(step: usize) -> f64 {
    (step as f64 / STEPS_PER_DOUBLING).exp2() - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hit ratios of LRUs, from a list.
    fn exact(pages: &[u64], slots: &[u32]) -> Vec<f64> {
        let mut stack: Vec<u64> = Vec::new();
        let mut distances = Vec::new();
        for page in pages {
            if let Some(at) = stack.iter().rposition(|other| other == page) {
                distances.push((stack.len() - 1 - at) as u32);
                stack.remove(at);
            }
            stack.push(*page);
        }
        let hits = |slots: u32| distances.iter().filter(|&&distance| distance < slots).count();
        slots.iter().map(|&slots| hits(slots) as f64 / pages.len() as f64).collect()
    }

    fn skewed(seed: u64, pages: u64, misses: usize) -> Vec<u64> {
        let mut prng = fastrand::Rng::with_seed(seed);
        (0..misses).map(|_| prng.u64(..pages).min(prng.u64(..pages))).collect()
    }

    #[test]
    fn a_sample_of_all_pages_is_exact_but_for_its_steps() {
        let pages = skewed(1, 900, 20_000);
        let mut sampler = MissSampler::with_bound(1_000, HASHES);
        pages.iter().for_each(|&page| sampler.miss(PageId(page)));
        let curve = sampler.curve(pages.len() as u64);
        assert_eq!(curve.sampled(), curve.misses());
        let slots = [1, 10, 100, 300, 700, 900];
        for (slots, exact) in slots.into_iter().zip(exact(&pages, &slots)) {
            let got = curve.hit_ratio(slots);
            assert!((got - exact).abs() < 0.006, "{slots}: {got} for {exact}");
        }
    }

    #[test]
    fn a_small_sample_comes_near_and_stays_small() {
        let pages = skewed(2, 20_000, 150_000);
        let mut sampler = MissSampler::new(1_000);
        for &page in &pages {
            sampler.miss(PageId(page));
            assert!(sampler.numbers.len() <= 1_000);
            assert_eq!(sampler.numbers.len(), sampler.by_hash.len());
        }
        assert!(sampler.by_hash.iter().all(|&(hash, _)| hash < sampler.bound()));
        let curve = sampler.curve(pages.len() as u64);
        assert!(curve.sampled() < 20_000, "{}", curve.sampled());
        let slots = [1_000, 3_000, 8_000, 15_000];
        for (slots, exact) in slots.into_iter().zip(exact(&pages, &slots)) {
            let got = curve.hit_ratio(slots);
            assert!((got - exact).abs() < 0.03, "{slots}: {got} for {exact}");
        }
    }

    #[test]
    fn steps_lead_back_to_the_curve() {
        let mut sampler = MissSampler::new(100);
        skewed(3, 500, 3_000).into_iter().for_each(|page| sampler.miss(PageId(page)));
        let curve = sampler.curve(3_000);
        let again = MissCurve::from_steps(curve.misses(), curve.sampled(), curve.steps());
        assert_eq!(again, Ok(curve));
        assert_eq!(MissCurve::from_steps(1, 1, [(9_999, 1.0)]), Err(NoStep { step: 9_999 }));
    }

    #[test]
    fn nothing_missed_is_no_hit() {
        assert_eq!(MissSampler::new(10).curve(0).hit_ratio(100), 0.0);
    }
}
