//! SIEVE: first in, first out, from which a hand takes what was not used since it last came by
//! (Zhang et al., "SIEVE is simpler than LRU", NSDI 2024).
//!
//! - Idea: a hit marks a page. The hand goes from the oldest to the newest: it unmarks the marked,
//!   which stay where they are, and takes the first unmarked. The hand meets what comes in last.
//! - State: one node per key, with the mark in it, and the hand.
//! - V1: the hand is a cached key, or past the newest: then it starts from the oldest.
//! - Cost: a hit is one store; a victim takes two laps at most, since the first unmarks every page.
//! - Not for: patterns whose reuse comes later than a lap, which it never sees.

use super::arena::Arena;
use super::replace::{Forgotten, Key, Look, NoneMayLeave, Replace, Setup};
use terrace_page::PageId;

const CACHED: u8 = 0;
/// Marks.
const UNUSED: u8 = 0;
const USED: u8 = 1;
/// Laps of the hand for one victim.
const LAPS_MAX: u64 = 2;

/// The state of SIEVE.
pub struct Sieve {
    keys: Arena<1>,
    /// Where it stands (V1).
    hand: Option<u32>,
    capacity: u32,
    forgotten: Forgotten,
}

impl Sieve {
    pub(super) fn new(setup: Setup) -> Sieve {
        assert!(setup.capacity > 0, "a cache holds a page");
        Sieve {
            keys: Arena::new(setup.keys_count),
            hand: None,
            capacity: setup.capacity,
            forgotten: Forgotten::new(setup.forgetting),
        }
    }

    pub(super) fn ghosts_max(_capacity: u32) -> u32 {
        0
    }
}

impl Replace for Sieve {
    #[inline]
    fn hit(&mut self, key: Key) -> bool {
        let cached = self.keys.is_in(CACHED, key.0);
        if cached {
            self.keys.set_mark(key.0, USED);
        }
        cached
    }

    #[inline]
    fn insert(
        &mut self,
        key: Key,
        _page: PageId,
        may_leave: impl FnMut(Key) -> bool,
    ) -> Result<Option<Key>, NoneMayLeave> {
        let victim = if self.keys.len(CACHED) >= self.capacity {
            Some(self.evict(may_leave).ok_or(NoneMayLeave)?)
        } else {
            None
        };
        self.keys.push(CACHED, key.0);
        self.keys.set_mark(key.0, UNUSED);
        Ok(victim)
    }

    #[inline]
    fn evict(&mut self, mut may_leave: impl FnMut(Key) -> bool) -> Option<Key> {
        for _ in 0..LAPS_MAX * u64::from(self.keys.len(CACHED)) {
            let key = match self.hand {
                Some(key) => key,
                None => self.keys.oldest(CACHED)?,
            };
            self.hand = self.keys.newer(key);
            if !may_leave(Key(key)) {
                continue;
            }
            if self.keys.mark(key) == USED {
                self.keys.set_mark(key, UNUSED);
            } else {
                self.keys.remove(key);
                self.forgotten.push(key);
                return Some(Key(key));
            }
        }
        None
    }

    fn remove(&mut self, key: Key) {
        if self.hand == Some(key.0) {
            self.hand = self.keys.newer(key.0);
        }
        self.keys.remove(key.0);
    }

    fn forgotten(&mut self) -> &mut Vec<Key> {
        &mut self.forgotten.keys
    }
}

impl Look for Sieve {
    #[inline]
    fn is_cached(&self, key: Key) -> bool {
        self.keys.is_in(CACHED, key.0)
    }

    fn bytes(&self) -> usize {
        self.keys.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::{self, Model};

    #[test]
    fn sieve_agrees_with_its_model() {
        models::compare("sieve", |capacity, _| SieveModel { capacity, order: Vec::new(), hand: 0 });
    }

    /// Keys and whether they were used, first come first.
    struct SieveModel {
        capacity: usize,
        order: Vec<(u32, bool)>,
        /// A place in `order`.
        hand: usize,
    }

    impl SieveModel {
        /// Past the newest is the oldest: what comes in next is not met before.
        fn wrap(&mut self) {
            if self.hand == self.order.len() {
                self.hand = 0;
            }
        }
    }

    impl Model for SieveModel {
        fn hit(&mut self, key: u32) -> bool {
            let found = self.order.iter_mut().find(|row| row.0 == key);
            found.map(|row| row.1 = true).is_some()
        }

        fn is_full(&self) -> bool {
            self.order.len() == self.capacity
        }

        fn victim(&mut self, _key: Option<u32>, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
            for _ in 0..2 * self.order.len() {
                let row = &mut self.order[self.hand];
                if may_leave(row.0) && !row.1 {
                    let victim = self.order.remove(self.hand).0;
                    self.wrap();
                    return Some(victim);
                }
                row.1 &= !may_leave(row.0);
                self.hand += 1;
                self.wrap();
            }
            None
        }

        fn enter(&mut self, key: u32) {
            self.order.push((key, false));
        }

        fn remove(&mut self, key: u32) {
            let at = self.order.iter().position(|row| row.0 == key).unwrap();
            self.order.remove(at);
            if at < self.hand {
                self.hand -= 1;
            }
            self.wrap();
        }

        fn known(&self) -> Vec<u32> {
            self.order.iter().map(|row| row.0).collect()
        }
    }
}
