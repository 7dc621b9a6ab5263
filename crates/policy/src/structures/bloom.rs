//! A set of numbers that may have more than was put in (Bloom, "Space/time trade-offs in hash
//! coding with allowable errors", CACM 1970).
//!
//! - Idea: a number sets three bits, by three hashes; it may be in the set if all three are set.
//! - M1: what was put in since the set was emptied is in it.
//! - M2: with no more numbers than it was made for, one in 25 that were not put in seems to be.
//! - Cost: 8 to 16 bits for each number that it is made for.

/// Bits for each number that is expected.
const BITS_PER_NUMBER: u64 = 8;
const HASHES: u32 = 3;

/// The set.
pub struct BloomFilter {
    words: Box<[u64]>,
}

impl BloomFilter {
    /// An empty set, for `numbers` numbers.
    #[must_use]
    pub fn new(numbers: u32) -> BloomFilter {
        let bits = (u64::from(numbers) * BITS_PER_NUMBER).next_power_of_two().max(64);
        BloomFilter { words: vec![0; (bits / u64::from(u64::BITS)) as usize].into() }
    }

    /// Puts `number` in.
    pub fn insert(&mut self, number: u32) {
        for (word, bit) in places(number, self.words.len()) {
            self.words[word] |= bit;
        }
    }

    /// Whether `number` may have been put in.
    #[must_use]
    pub fn may_hold(&self, number: u32) -> bool {
        places(number, self.words.len()).all(|(word, bit)| self.words[word] & bit != 0)
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Bytes allocated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

/// Words and bits of `number` among `words` words, a power of two: two hashes make all (Kirsch and
/// Mitzenmacher, 2006).
fn places(number: u32, words: usize) -> impl Iterator<Item = (usize, u64)> {
    let mixed = (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let (first, step) = (mixed as u32, (mixed >> 32) as u32 | 1);
    let mask = (words as u64 * u64::from(u64::BITS) - 1) as u32;
    (0..HASHES).map(move |at| {
        let bit = first.wrapping_add(step.wrapping_mul(at)) & mask;
        ((bit / u64::BITS) as usize, 1 << (bit % u64::BITS))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn nothing_that_was_put_in_is_missed_and_little_else_is_seen() {
        let (mut seen, mut looks) = (0, 0);
        for seed in 0..100 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let expected = 1 << prng.u32(..12);
            let (mut filter, mut model) = (BloomFilter::new(expected), BTreeSet::new());
            for _round in 0..3 {
                while model.len() < expected as usize {
                    let number = prng.u32(..1 << 20);
                    filter.insert(number);
                    model.insert(number);
                }
                assert!(model.iter().all(|&number| filter.may_hold(number)), "seed {seed}");
                let others = (1 << 20)..(1 << 20) + 10_000;
                looks += others.len();
                seen += others.filter(|&number| filter.may_hold(number)).count();
                filter.clear();
                model.clear();
                assert!(!filter.may_hold(7));
            }
        }
        assert!(seen * 25 < looks, "{seen} of {looks}");
    }
}
