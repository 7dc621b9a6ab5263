//! Numbers of which the k-th is drawn in proportion to `1 / k^s`: Zipf's law.
//!
//! - Idea: rejection-inversion. The sum of the weights lies below an integral whose inverse is
//!   known; a point below the integral is drawn, inverted and rounded, and drawn again if it is not
//!   below the weight of its number, which happens to less than one in five.
//! - Cost: no memory, and the same time for any number of numbers and any exponent.
//! - Z1: every number is in `1..=count`.
//!
//! Source: Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone discrete
//! distributions", ACM TOMACS 6(3), 1996.

use fastrand::Rng;

/// Zipf's law over `1..=count`.
#[derive(Clone, Debug)]
pub struct Zipf {
    exponent: f64,
    count: f64,
    /// The integral up to the first number, less the weight of that.
    first: f64,
    /// The integral up to the last number.
    last: f64,
    /// How far left of its number a point needs no second look.
    sure: f64,
}

impl Zipf {
    /// Of `count` numbers, with `exponent`; none unless there is one and the exponent is finite and
    /// not negative.
    pub fn new(count: u64, exponent: f64) -> Option<Zipf> {
        if count == 0 || !exponent.is_finite() || exponent < 0.0 {
            return None;
        }
        let mut zipf = Zipf { exponent, count: count as f64, first: 0.0, last: 0.0, sure: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(zipf.count + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        Some(zipf)
    }

    /// Draws a number.
    pub fn sample(&self, random: &mut Rng) -> u64 {
        loop {
            let area = self.last + random.f64() * (self.first - self.last);
            let point = self.inverse(area);
            let number = point.round().clamp(1.0, self.count);
            let is_sure = number - point <= self.sure;
            if is_sure || area >= self.integral(number + 0.5) - self.weight(number) {
                return number as u64;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Of the weight, from 1 to `x`: `(x^(1-s) - 1) / (1-s)`, or the logarithm where `s` is 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_over((1.0 - self.exponent) * log) * log
    }

    fn inverse(&self, area: f64) -> f64 {
        // Rounding may lead past the point where the inverse ends.
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        (ln_1p_over(scaled) * area).exp()
    }
}

/// Below this a series of four terms is exact.
const SMALL: f64 = 1e-8;

/// `(e^x - 1) / x`.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > SMALL { x.exp_m1() / x } else { 1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0)) }
}

/// `ln(1 + x) / x`.
fn ln_1p_over(x: f64) -> f64 {
    if x.abs() > SMALL { x.ln_1p() / x } else { 1.0 - x * (1.0 / 2.0 - x * (1.0 / 3.0 - x / 4.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's statistic of `draws` over bins of equal ranks, against the law itself.
    fn misfit(count: u64, exponent: f64, draws: u32) -> (f64, usize) {
        let zipf = Zipf::new(count, exponent).expect("a law");
        let weights: Vec<f64> = (1..=count).map(|k| (k as f64).powf(-exponent)).collect();
        let total: f64 = weights.iter().sum();
        let mut random = Rng::with_seed(11);
        let mut seen = vec![0_u32; count as usize];
        for _ in 0..draws {
            seen[zipf.sample(&mut random) as usize - 1] += 1;
        }
        // Bins with at least a few expected draws each.
        let (mut statistic, mut bins) = (0.0, 0);
        let (mut expected, mut found) = (0.0, 0.0);
        for (weight, seen) in weights.iter().zip(seen) {
            expected += weight / total * f64::from(draws);
            found += f64::from(seen);
            if expected >= 20.0 {
                statistic += (found - expected) * (found - expected) / expected;
                (expected, found) = (0.0, 0.0);
                bins += 1;
            }
        }
        (statistic, bins)
    }

    #[test]
    fn the_draws_follow_the_law() {
        for exponent in [0.0, 0.5, 0.99, 1.0, 1.01, 2.0] {
            for count in [1, 2, 10, 1_000] {
                let (statistic, bins) = misfit(count, exponent, 200_000);
                // With `bins` degrees of freedom: the mean, and five standard deviations.
                let most = bins as f64 + 5.0 * (2.0 * bins as f64).sqrt();
                assert!(statistic < most, "{count} {exponent}: {statistic} of {bins}");
            }
        }
    }

    #[test]
    fn numbers_stay_in_range_for_any_count() {
        let mut random = Rng::with_seed(5);
        for count in [1, 2, u64::from(u32::MAX), 1 << 53] {
            for exponent in [0.0, 1e-9, 1.0, 1.0 + 1e-9, 30.0] {
                let zipf = Zipf::new(count, exponent).expect("a law");
                for _ in 0..1_000 {
                    assert!((1..=count).contains(&zipf.sample(&mut random)));
                }
            }
        }
    }

    #[test]
    fn what_is_no_law_is_refused() {
        for (count, exponent) in [(0, 1.0), (1, -0.1), (1, f64::NAN), (1, f64::INFINITY)] {
            assert!(Zipf::new(count, exponent).is_none());
        }
    }
}
