//! Requests for ids whose popularity falls as a power of their rank (Zipf).
//!
//! - Z1: the id of rank r, from 1 on, is drawn with a chance in proportion to r to the minus alpha.
//! - Z2: ids are in no order of popularity.
//! - Cost: 12 bytes per id; a request is a binary search.

use fastrand::Rng;

/// Draws ids.
pub struct Zipf {
    /// The chances of all ranks up to each, unscaled.
    cumulative: Vec<f64>,
    ids: Vec<u32>,
    chance: Rng,
}

impl Zipf {
    /// Ids below `ids_count`.
    ///
    /// # Panics
    ///
    /// If there are none, or `alpha` is no number.
    #[must_use]
    pub fn new(ids_count: u32, alpha: f64, seed: u64) -> Zipf {
        assert!(ids_count > 0);
        assert!(alpha.is_finite());
        let mut chance = Rng::with_seed(seed);
        let mut sum = 0.0;
        let chances = (1..=ids_count).map(|rank| {
            sum += f64::from(rank).powf(-alpha);
            sum
        });
        let cumulative = chances.collect();
        let mut ids: Vec<u32> = (0..ids_count).collect();
        chance.shuffle(&mut ids);
        Zipf { cumulative, ids, chance }
    }
}

impl Iterator for Zipf {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let all = self.cumulative.last().copied()?;
        let drawn = self.chance.f64() * all;
        let rank = self.cumulative.partition_point(|&sum| sum <= drawn);
        self.ids.get(rank.min(self.ids.len() - 1)).map(|&id| u64::from(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_twice_as_popular_as_the_second() {
        let mut counts = [0u32; 50];
        for id in Zipf::new(50, 1.0, 3).take(200_000) {
            counts[id as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let harmonic: f64 = (1..=50).map(|rank| 1.0 / f64::from(rank)).sum();
        for rank in [1, 2, 5, 20] {
            let expected = 200_000.0 / harmonic / f64::from(rank);
            let got = f64::from(counts[rank as usize - 1]);
            assert!((got - expected).abs() < 5.0 * expected.sqrt(), "{rank}: {got}, {expected}");
        }
    }
}
