//! A bit for each slot, and the next that is set from a place on, round and round.

/// The bits of `count` slots, all clear at first. Costs an eighth of a byte per slot.
pub struct SlotBits {
    words: Box<[u64]>,
    count: u32,
}

impl SlotBits {
    /// All clear.
    #[must_use]
    pub fn new(count: u32) -> SlotBits {
        SlotBits { words: vec![0; count.div_ceil(u64::BITS) as usize].into(), count }
    }

    /// Sets or clears the bit of `slot`.
    pub fn set(&mut self, slot: u32, to: bool) {
        let (word, bit) = (&mut self.words[(slot / u64::BITS) as usize], 1 << (slot % u64::BITS));
        if to { *word |= bit } else { *word &= !bit }
    }

    /// Whether the bit of `slot` is set.
    #[must_use]
    pub fn has(&self, slot: u32) -> bool {
        self.words[(slot / u64::BITS) as usize] >> (slot % u64::BITS) & 1 == 1
    }

    /// The slots that are set: from `from` on, then those before it.
    pub fn from(&self, from: u32) -> impl Iterator<Item = u32> + '_ {
        self.within(from, self.count).chain(self.within(0, from))
    }

    /// The slots that are set in none of `bits`, which have equal numbers of slots: from `from` on,
    /// then those before it.
    pub(crate) fn in_none<'a>(
        bits: [&'a SlotBits; 3],
        from: u32,
    ) -> impl Iterator<Item = u32> + 'a {
        let [a, b, c] = bits;
        assert!(a.count == b.count && b.count == c.count, "bits of the same slots");
        let word = move |at: usize| !(a.words[at] | b.words[at] | c.words[at]);
        ones(word, from, a.count).chain(ones(word, 0, from))
    }

    fn within(&self, first: u32, end: u32) -> impl Iterator<Item = u32> + '_ {
        ones(|at| self.words[at], first, end)
    }

    /// Bytes allocated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

/// The slots from `first` to `end` whose bits are one in the words that `word` gives.
fn ones(word: impl Fn(usize) -> u64, first: u32, end: u32) -> impl Iterator<Item = u32> {
    let mut at = first;
    std::iter::from_fn(move || {
        while at < end {
            let rest = word((at / u64::BITS) as usize) >> (at % u64::BITS);
            if rest == 0 {
                at = (at / u64::BITS + 1) * u64::BITS;
                continue;
            }
            let slot = at + rest.trailing_zeros();
            at = slot + 1;
            return (slot < end).then_some(slot);
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_agree_with_a_list_of_booleans() {
        for seed in 0..200 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let count = prng.u32(1..200);
            let (mut bits, mut model) = (SlotBits::new(count), vec![false; count as usize]);
            let (none, mut others) = (SlotBits::new(count), SlotBits::new(count));
            for _ in 0..300 {
                let (slot, to, from) = (prng.u32(..count), prng.bool(), prng.u32(..count));
                bits.set(slot, to);
                model[slot as usize] = to;
                others.set(prng.u32(..count), prng.bool());
                let round = (from..count).chain(0..from);
                let clear = round.filter(|&slot| !model[slot as usize] && !others.has(slot));
                assert!(SlotBits::in_none([&bits, &none, &others], from).eq(clear), "seed {seed}");
                let round = (from..count).chain(0..from);
                let expected: Vec<u32> = round.filter(|&slot| model[slot as usize]).collect();
                assert_eq!(bits.from(from).collect::<Vec<_>>(), expected, "seed {seed}");
                assert_eq!(bits.has(from), model[from as usize], "seed {seed}");
            }
        }
    }
}
