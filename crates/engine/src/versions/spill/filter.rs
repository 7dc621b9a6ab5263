//! Which rows a run may have: a Bloom filter (Bloom, CACM 1970).

/// Bits that a row sets.
const PROBES: u32 = 5;
/// Bits for a row: about one row in 40 that is not there seems to be.
const ROW_BITS: u64 = 8;
/// Below this a filter is of no use.
const ROW_BITS_MIN: u64 = 3;

/// Rows of a run, by their hashes. Without bits it may have all.
#[derive(Debug, Default)]
pub(super) struct Filter {
    words: Vec<u64>,
}

impl Filter {
    /// For `rows` rows, in at most `bytes` of memory: without bits, if that is too little.
    pub(super) fn new(rows: u64, bytes: u64) -> Filter {
        let bits = (rows * ROW_BITS).min(bytes * 8);
        if rows == 0 || bits < rows * ROW_BITS_MIN {
            return Filter::default();
        }
        Filter { words: vec![0; bits.div_ceil(64) as usize] }
    }

    pub(super) fn memory(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    fn places(&self, hash: u64) -> impl Iterator<Item = (usize, u64)> + use<> {
        let bits = self.words.len() as u64 * 64;
        let step = (hash >> 32 | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..PROBES).map(move |probe| {
            let mixed = hash.wrapping_add(step.wrapping_mul(u64::from(probe)));
            let bit = ((u128::from(mixed) * u128::from(bits)) >> 64) as u64;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    pub(super) fn add(&mut self, hash: u64) {
        if self.words.is_empty() {
            return;
        }
        for (word, bit) in self.places(hash) {
            self.words[word] |= bit;
        }
    }

    pub(super) fn may_have(&self, hash: u64) -> bool {
        self.words.is_empty() || self.places(hash).all(|(word, bit)| self.words[word] & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

    use super::*;

    #[test]
    fn a_filter_has_all_that_was_added_and_little_else() {
        let mut prng = Prng::from_seed(1);
        for (rows, bytes) in [(10_000, 1 << 20), (10_000, 5_000), (10_000, 100), (0, 100)] {
            let mut filter = Filter::new(rows, bytes);
            let hashes: Vec<u64> = (0..rows).map(|_| prng.next_u64()).collect();
            hashes.iter().for_each(|&hash| filter.add(hash));
            assert!(hashes.iter().all(|&hash| filter.may_have(hash)));
            assert!(filter.memory() as u64 <= bytes + 8);
            let seems = (0..10_000).filter(|_| filter.may_have(prng.next_u64())).count();
            assert_eq!(seems < 1_000, bytes == 1 << 20, "{seems} of 10,000 with {bytes} bytes");
        }
    }
}
