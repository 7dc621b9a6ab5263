//! OPT: the page whose next use is farthest leaves (Belady 1966); no policy misses less often.
//!
//! - Idea: a cached page is its next use, a number that no other page has. So the cache is a set of
//!   times; a request hits if its own time is in the set, and what leaves is the largest. Pages
//!   that are never used again are only counted.
//! - State: a bit for each request, in words, in words of words and so on: the largest is found
//!   from the top, one word a level.
//! - O1: every bit before the present request is of no matter.
//! - Cost: one pass back over the trace for the next uses, one forward; 4 bytes and a bit per
//!   request.
//! - Not for: pages of different sizes or costs, where the farthest use is not the best to lose.

/// No further use.
pub const NEVER: u32 = u32::MAX;

/// Whether a page that is missed must be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bypass {
    /// It must: demand paging.
    Never,
    /// It need not: a page whose next use is farthest of all stays out.
    Allowed,
}

/// For each request the place of the next request for the same page, or [`NEVER`].
///
/// # Panics
///
/// If there are 2^32 - 1 requests or more.
#[must_use]
pub fn next_uses(pages: &[u32], pages_count: u32) -> Vec<u32> {
    assert!(pages.len() < NEVER as usize, "requests are numbered by 32 bits");
    let mut seen = vec![NEVER; pages_count as usize];
    let mut next = vec![NEVER; pages.len()];
    for at in (0..pages.len()).rev() {
        next[at] = std::mem::replace(&mut seen[pages[at] as usize], at as u32);
    }
    next
}

/// Misses of the best choice of `capacity` pages, for requests with these next uses; `on_miss`
/// hears of each.
///
/// # Panics
///
/// If the capacity is zero.
pub fn opt(
    next_uses: &[u32],
    capacity: u32,
    bypass: Bypass,
    mut on_miss: impl FnMut(usize),
) -> u64 {
    assert!(capacity > 0, "a cache holds a page");
    let mut times = Times::new(next_uses.len());
    // Cached pages that are used again, and those that are not.
    let (mut live, mut dead) = (0u32, 0u32);
    let mut misses = 0;
    for (now, &next) in next_uses.iter().enumerate() {
        if times.holds(now as u32) {
            // Its bit is of no matter any more (O1).
            live -= 1;
        } else {
            misses += 1;
            on_miss(now);
            if next == NEVER && bypass == Bypass::Allowed {
                continue;
            }
            if live + dead == capacity && dead > 0 {
                dead -= 1;
            } else if live == capacity {
                let farthest = times.largest().expect("the cache is full");
                if bypass == Bypass::Allowed && farthest < next {
                    continue;
                }
                times.remove(farthest);
                live -= 1;
            }
        }
        if next == NEVER {
            dead += 1;
        } else {
            times.insert(next);
            live += 1;
        }
    }
    misses
}

/// A set of times.
struct Times {
    /// The first has a bit per time, each other a bit per word of the one before; the last is one
    /// word.
    levels: Vec<Vec<u64>>,
}

impl Times {
    fn new(count: usize) -> Times {
        let mut levels = vec![vec![0; count.div_ceil(64).max(1)]];
        while let Some(level) = levels.last()
            && level.len() > 1
        {
            levels.push(vec![0; level.len().div_ceil(64)]);
        }
        Times { levels }
    }

    #[inline]
    fn holds(&self, time: u32) -> bool {
        self.levels[0][time as usize / 64] & (1 << (time % 64)) != 0
    }

    #[inline]
    fn insert(&mut self, time: u32) {
        let mut at = time as usize;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            let was_empty = *word == 0;
            *word |= 1 << (at % 64);
            if !was_empty {
                return;
            }
            at /= 64;
        }
    }

    #[inline]
    fn remove(&mut self, time: u32) {
        let mut at = time as usize;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    #[inline]
    fn largest(&self) -> Option<u32> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let word = level[at];
            if word == 0 {
                return None;
            }
            at = at * 64 + (63 - word.leading_zeros() as usize);
        }
        Some(at as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: among the cached, and the newcomer if it may stay out, the one whose next
    /// use is farthest leaves.
    fn by_definition(pages: &[u32], capacity: usize, bypass: Bypass) -> u64 {
        let mut cached: Vec<u32> = Vec::new();
        let mut misses = 0;
        for (at, page) in pages.iter().enumerate() {
            if cached.contains(page) {
                continue;
            }
            misses += 1;
            let next_use = |page: &u32| {
                let later = pages[at + 1..].iter().position(|other| other == page);
                later.unwrap_or(usize::MAX)
            };
            if bypass == Bypass::Allowed {
                cached.push(*page);
            }
            if cached.len() > capacity || (cached.len() == capacity && !cached.contains(page)) {
                let farthest = cached.iter().copied().max_by_key(next_use).expect("it is full");
                cached.retain(|other| *other != farthest);
            }
            if bypass == Bypass::Never {
                cached.push(*page);
            }
        }
        misses
    }

    #[test]
    fn opt_agrees_with_its_definition() {
        for seed in 0..300 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let ids = prng.u32(1..24);
            let pages: Vec<u32> = (0..prng.usize(..300)).map(|_| prng.u32(..ids)).collect();
            let next = next_uses(&pages, ids);
            let capacity = prng.u32(1..12);
            for bypass in [Bypass::Never, Bypass::Allowed] {
                let expected = by_definition(&pages, capacity as usize, bypass);
                let mut heard = 0;
                let got = opt(&next, capacity, bypass, |_| heard += 1);
                assert_eq!((got, heard), (expected, expected), "seed {seed} {bypass:?}");
            }
        }
    }

    #[test]
    fn times_agree_with_a_set() {
        let mut prng = fastrand::Rng::with_seed(9);
        for count in [1, 64, 65, 300_000] {
            let mut times = Times::new(count);
            let mut model = std::collections::BTreeSet::new();
            for _ in 0..3_000 {
                let time = prng.u32(..count as u32);
                if model.insert(time) {
                    times.insert(time);
                } else {
                    model.remove(&time);
                    times.remove(time);
                }
                assert_eq!(times.largest(), model.last().copied());
                assert_eq!(times.holds(time), model.contains(&time));
            }
        }
    }
}
