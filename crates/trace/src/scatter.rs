//! Permutations of `0..count` that a seed decides, which can be run forwards and backwards: a
//! Feistel network over the next power of four, walked until it is back in range.
//!
//! - F1: `back(of(number)) == number` for every number below the count.
//! - Cost: no memory; fewer than four rounds of the network on average.

use fastrand::Rng;

/// A permutation.
#[derive(Clone, Debug)]
pub struct Scatter {
    count: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Scatter {
    /// One of `0..count`, which is not empty.
    pub fn new(count: u64, random: &mut Rng) -> Scatter {
        let bits = 64 - (count - 1).leading_zeros();
        let keys = [(); 4].map(|()| random.u64(..));
        Scatter { count, half_bits: bits.div_ceil(2).max(1), keys }
    }

    /// Where `number` goes. Ends: a permutation leads back into the range, after at most one step
    /// for each number outside.
    pub fn of(&self, number: u64) -> u64 {
        let mut at = self.forward(number);
        while at >= self.count {
            at = self.forward(at);
        }
        at
    }

    /// Which number goes to `place`. Ends as [`Scatter::of`] does.
    pub fn back(&self, place: u64) -> u64 {
        let mut at = self.backward(place);
        while at >= self.count {
            at = self.backward(at);
        }
        at
    }

    fn forward(&self, number: u64) -> u64 {
        let (mut left, mut right) = (number >> self.half_bits, number & self.mask());
        for key in self.keys {
            (left, right) = (right, left ^ self.mixed(right, key));
        }
        left << self.half_bits | right
    }

    fn backward(&self, number: u64) -> u64 {
        let (mut left, mut right) = (number >> self.half_bits, number & self.mask());
        for key in self.keys.into_iter().rev() {
            (left, right) = (right ^ self.mixed(left, key), left);
        }
        left << self.half_bits | right
    }

    fn mixed(&self, half: u64, key: u64) -> u64 {
        (half ^ key).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & self.mask()
    }

    fn mask(&self) -> u64 {
        (1 << self.half_bits) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn scattering_is_a_permutation_and_goes_back() {
        for count in [1, 2, 3, 4, 5, 255, 256, 257, 1_000] {
            let scatter = Scatter::new(count, &mut Rng::with_seed(count));
            let seen: BTreeSet<u64> = (0..count).map(|number| scatter.of(number)).collect();
            assert_eq!(seen, (0..count).collect(), "{count}");
            for number in 0..count {
                assert_eq!(scatter.back(scatter.of(number)), number, "{count}");
            }
        }
    }
}
