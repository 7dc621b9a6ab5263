//! Stretches of tables that a transaction has emptied by taking first entries out, so that it does
//! not look through all that it removed there each time.
//!
//! - P1: every key of a stretch is a ghost and every gap of it is locked, by the transaction that
//!   remembers it: no other transaction puts a key there, and this one forgets the stretch when it
//!   puts a key there itself, goes back to a savepoint, or takes tables away.

use std::ops::Bound;

use crate::TreeId;

/// The stretch of a table from a bound up to a key that was taken out.
struct Stretch {
    tree: TreeId,
    lower: Bound<Vec<u8>>,
    last: Vec<u8>,
}

/// The stretches that a transaction remembers.
#[derive(Default)]
pub(super) struct Emptied {
    stretches: Vec<Stretch>,
}

/// Remembering more would not pay: transactions seldom empty more tables at a time.
const STRETCHES_MAX: usize = 8;

impl Emptied {
    /// The bound from which a range of `tree` is to be looked through that begins at `lower`.
    pub(super) fn skip(&self, tree: TreeId, lower: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
        let of_tree = self.stretches.iter().find(|stretch| stretch.tree == tree);
        match of_tree.filter(|stretch| stretch.has(&lower)) {
            Some(stretch) => Bound::Excluded(stretch.last.clone()),
            None => lower,
        }
    }

    /// The first entry of a range of `tree` from `lower` on was taken out: that of `key`.
    pub(super) fn took(&mut self, tree: TreeId, lower: Bound<Vec<u8>>, key: &[u8]) {
        match self.stretches.iter_mut().find(|stretch| stretch.tree == tree) {
            Some(stretch) if stretch.has(&lower) => {
                // As the search begins behind the last one, the key is beyond it.
                stretch.last.clear();
                stretch.last.extend_from_slice(key);
            }
            Some(stretch) => *stretch = Stretch { tree, lower, last: key.to_vec() },
            None => {
                if self.stretches.len() == STRETCHES_MAX {
                    self.stretches.remove(0);
                }
                self.stretches.push(Stretch { tree, lower, last: key.to_vec() });
            }
        }
    }

    /// `key` is put into `tree`.
    #[inline]
    pub(super) fn put(&mut self, tree: TreeId, key: &[u8]) {
        if !self.stretches.is_empty() {
            self.stretches.retain(|stretch| stretch.tree != tree || *key > *stretch.last);
        }
    }

    /// Rows come back, or tables go.
    pub(super) fn forget(&mut self) {
        self.stretches.clear();
    }
}

impl Stretch {
    /// Whether a range that begins at `lower` begins within the stretch.
    fn has(&self, lower: &Bound<Vec<u8>>) -> bool {
        let begins_below = match (&self.lower, lower) {
            (Bound::Unbounded, _) => true,
            (_, Bound::Unbounded) => false,
            (Bound::Included(own), Bound::Included(key) | Bound::Excluded(key))
            | (Bound::Excluded(own), Bound::Excluded(key)) => own <= key,
            (Bound::Excluded(own), Bound::Included(key)) => own < key,
        };
        let ends_beyond = match lower {
            Bound::Unbounded => true,
            Bound::Included(key) | Bound::Excluded(key) => *key <= self.last,
        };
        begins_below && ends_beyond
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use terrace_rt::Prng;

    use super::*;

    const TREE: TreeId = TreeId(5);

    fn bound(prng: &mut Prng) -> Bound<Vec<u8>> {
        let key = vec![prng.below(30) as u8];
        match prng.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(key),
            _ => Bound::Excluded(key),
        }
    }

    /// A set of keys, from which first ones are taken as by `pop_first`, and which others join.
    #[test]
    fn a_search_that_skips_finds_what_one_that_does_not_finds() {
        let mut skipped = 0;
        for seed in 0..300 {
            let mut prng = Prng::from_seed(seed);
            let mut keys: BTreeSet<Vec<u8>> = (0..20).map(|key| vec![key]).collect();
            let mut emptied = Emptied::default();
            for _ in 0..60 {
                let lower = bound(&mut prng);
                if prng.chance(4) {
                    let key = vec![prng.below(30) as u8];
                    emptied.put(TREE, &key);
                    keys.insert(key);
                } else {
                    let from = emptied.skip(TREE, lower.clone());
                    skipped += u64::from(from != lower);
                    let first = keys.range((lower.clone(), Bound::Unbounded)).next().cloned();
                    assert_eq!(keys.range((from, Bound::Unbounded)).next().cloned(), first);
                    if let Some(first) = first.filter(|_| prng.chance(2)) {
                        emptied.took(TREE, lower, &first);
                        keys.remove(&first);
                    }
                }
            }
        }
        assert!(skipped > 1_000, "{skipped}");
    }
}
