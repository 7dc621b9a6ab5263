//! How often a second tier of any size would have had what memory missed, from a sample that an
//! engine can keep while it runs: SHARDS with a fixed size (Waldspurger et al., FAST 2015).
//!
//! - Idea: of a sample of the pages, chosen by hash, the LRU stack distances are kept; a distance
//!   is scaled up by the rate of the sample. When there are too many pages, the bound on their
//!   hashes falls, and those above it are forgotten.
//! - C1: a page is in the sample exactly if its hash is below the bound.
//! - C2: at most `pages_max` pages are in the sample.
//! - C3: what the sample has too few or too many misses, the shortest distance gets (SHARDS-adj).
//! - Cost: about 60 bytes for each page of the sample; for a miss of another page a hash.
//! - Not for: tiers that are no LRU of all that memory missed, of which it is an estimate.

use crate::curves::distances::{Distances, FIRST_USE};
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use terrace_page::PageId;

/// How many hashes there are.
const HASHES: u64 = 1 << 32;
/// Steps of distance for each doubling: a power of two.
const STEPS_PER_DOUBLING: usize = 16;
/// Enough for 2^40 pages.
const STEPS: usize = 40 * STEPS_PER_DOUBLING;
/// Of a larger database a smaller part is sampled from the beginning.
const FIRST_BOUND: u64 = HASHES / 4;

/// The hash by which pages are chosen.
#[must_use]
#[inline]
pub fn sample_hash(page: PageId) -> u64 {
    mixed(page) >> 32
}

/// A number in which every bit depends on every bit of the page's: no two pages have the same.
#[inline]
fn mixed(page: PageId) -> u64 {
    let value = page.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Hands on a number that is mixed already. Of that of a sampled page the highest bits are zero:
/// they go where a table looks least.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are one number");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.rotate_left(u64::BITS / 2);
    }
}

/// A sample of misses, and their distances.
pub struct MissSampler {
    bound: u64,
    /// Pages that one of the sample stands for.
    weight: f64,
    pages_max: u32,
    /// By what `mixed` gives for a page.
    numbers: HashMap<u64, u32, BuildHasherDefault<Mixed>>,
    /// The same numbers, the highest on top: the first that leave the sample.
    highest: BinaryHeap<u64>,
    free: Vec<u32>,
    distances: Distances,
    steps: Steps,
    /// Misses by step of distance, scaled up from the sample.
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
            weight: HASHES as f64 / bound as f64,
            pages_max,
            numbers: HashMap::default(),
            highest: BinaryHeap::new(),
            free: (0..=pages_max).rev().collect(),
            distances: Distances::new(pages_max + 1),
            steps: Steps::new(),
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
        let mixed = mixed(page);
        if mixed >> 32 >= self.bound {
            return;
        }
        self.sampled += 1;
        let Some(&number) = self.numbers.get(&mixed) else { return self.first_use(mixed) };
        let distance = self.distances.use_page(number);
        let step = self.steps.of(f64::from(distance) * self.weight);
        self.hits[step] += self.weight;
    }

    #[cold]
    fn first_use(&mut self, mixed: u64) {
        let number = self.free.pop().expect("one more than pages");
        self.numbers.insert(mixed, number);
        self.highest.push(mixed);
        let distance = self.distances.use_page(number);
        assert_eq!(distance, FIRST_USE, "who has no number was not used");
        self.first_uses += self.weight;
        self.shrink();
    }

    /// C2.
    fn shrink(&mut self) {
        if self.numbers.len() as u64 <= u64::from(self.pages_max) {
            return;
        }
        self.bound = (self.highest.peek().expect("there are pages") >> 32).max(1);
        self.weight = HASHES as f64 / self.bound as f64;
        while let Some(&mixed) = self.highest.peek()
            && mixed >> 32 >= self.bound
        {
            self.highest.pop();
            let number = self.numbers.remove(&mixed).expect("both have the same pages");
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

/// In which step a distance is, without a logarithm.
///
/// A floating-point number has its power of two in its upper bits. Within a doubling, from 1 to 2,
/// x is above 1 by at least as much as log2(x) is above 0, and by 0.0861 more at most: by fewer
/// than two steps. So the first bits of x - 1 and two comparisons tell the step.
struct Steps {
    /// Where each step of a doubling begins, as the bits of a number from 1 to 2 below its power.
    starts: [u64; STEPS_PER_DOUBLING + 2],
}

impl Steps {
    const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;
    const FIRST_BITS: u32 = STEPS_PER_DOUBLING.trailing_zeros();

    fn new() -> Steps {
        let start = |step: usize| match step {
            0..STEPS_PER_DOUBLING => {
                Steps::mantissa((step as f64 / STEPS_PER_DOUBLING as f64).exp2().to_bits())
            }
            _ => u64::MAX,
        };
        Steps { starts: std::array::from_fn(start) }
    }

    fn mantissa(bits: u64) -> u64 {
        bits & ((1 << Steps::MANTISSA_BITS) - 1)
    }

    #[inline]
    fn of(&self, distance: f64) -> usize {
        let bits = (distance + 1.0).to_bits();
        let doublings = (bits >> Steps::MANTISSA_BITS) as usize - (f64::MAX_EXP - 1) as usize;
        let mantissa = Steps::mantissa(bits);
        let first = (mantissa >> (Steps::MANTISSA_BITS - Steps::FIRST_BITS)) as usize;
        let [one, two] = [1, 2].map(|more| usize::from(mantissa >= self.starts[first + more]));
        (doublings * STEPS_PER_DOUBLING + first + one + two).min(STEPS - 1)
    }
}

/// The least distance of a step.
fn step_start(step: usize) -> f64 {
    (step as f64 / STEPS_PER_DOUBLING as f64).exp2() - 1.0
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
            assert_eq!(sampler.numbers.len(), sampler.highest.len());
        }
        assert!(sampler.highest.iter().all(|&mixed| mixed >> 32 < sampler.bound()));
        let curve = sampler.curve(pages.len() as u64);
        assert!(curve.sampled() < 20_000, "{}", curve.sampled());
        let slots = [1_000, 3_000, 8_000, 15_000];
        for (slots, exact) in slots.into_iter().zip(exact(&pages, &slots)) {
            let got = curve.hit_ratio(slots);
            assert!((got - exact).abs() < 0.03, "{slots}: {got} for {exact}");
        }
    }

    /// SHARDS as its paper has it, from lists: each page of the sample with its hash, the last use
    /// at the end.
    fn naive(pages: &[u64], pages_max: usize) -> (u64, f64, Vec<f64>) {
        let (mut stack, mut bound) = (Vec::new(), FIRST_BOUND);
        let (mut sampled, mut first_uses, mut hits) = (0, 0.0, vec![0.0; STEPS]);
        for &page in pages {
            let hash = sample_hash(PageId(page));
            if hash >= bound {
                continue;
            }
            let weight = HASHES as f64 / bound as f64;
            sampled += 1;
            let at = stack.iter().rposition(|other| *other == (hash, page));
            match at {
                Some(at) => {
                    let distance = (stack.len() - 1 - at) as f64 * weight;
                    let step = (0..STEPS).rfind(|&step| step_start(step) <= distance);
                    hits[step.expect("the first begins at 0")] += weight;
                    stack.remove(at);
                }
                None => first_uses += weight,
            }
            stack.push((hash, page));
            if stack.len() > pages_max {
                bound = stack.iter().map(|row| row.0).max().expect("pages").max(1);
                stack.retain(|row| row.0 < bound);
            }
        }
        (sampled, first_uses, hits)
    }

    #[test]
    fn a_sampler_agrees_with_a_naive_one() {
        for seed in 0..20 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let (all, pages_max) = (prng.u64(20..4_000), prng.u32(1..200));
            let pages = skewed(seed, all, 4_000);
            let mut sampler = MissSampler::new(pages_max);
            pages.iter().for_each(|&page| sampler.miss(PageId(page)));
            let (sampled, first_uses, hits) = naive(&pages, pages_max as usize);
            assert_eq!(sampler.sampled, sampled, "seed {seed}");
            assert!((sampler.first_uses - first_uses).abs() < 1e-6, "seed {seed}");
            for (step, (got, expected)) in sampler.hits.iter().zip(&hits).enumerate() {
                assert!((got - expected).abs() < 1e-6, "seed {seed} step {step}");
            }
        }
    }

    #[test]
    fn a_distance_is_in_the_step_that_begins_below_it() {
        let steps = Steps::new();
        let mut prng = fastrand::Rng::with_seed(4);
        let scaled = |prng: &mut fastrand::Rng| f64::from(prng.u32(..1 << 24)) * prng.f64() * 99.0;
        let some = (0..100_000).map(|_| scaled(&mut prng)).chain((0..5_000).map(f64::from));
        for distance in some {
            let step = steps.of(distance);
            // The ends are rounded.
            let slack = (distance + 1.0) * 1e-12;
            assert!(step_start(step) <= distance + slack, "{distance}: {step}");
            assert!(distance < step_start(step + 1) + slack, "{distance}: {step}");
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
