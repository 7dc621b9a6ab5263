//! W-TinyLFU: a small window in front of a cache into which only the more frequently used come
//! (Einziger, Friedman and Manes, ACM Transactions on Storage 2017).
//!
//! ```text
//!   miss ---> window (1%, LRU) --- candidate: used more often than the oldest on probation? --->
//!      yes: probation (LRU), and that one leaves         no: the candidate leaves
//!      a hit on probation: protected (LRU, 80% of the rest), whose oldest goes on probation again
//! ```
//!
//! - F1: the window holds at most 1% of the cache, the protected at most 80% of the rest.
//! - F2: uses are counted for pages, not keys: a key that was taken back tells nothing of its next
//!   page. The count is of the sketch's sample (`sketch`).
//! - Cost: a hit moves a node and counts a use; a miss reads two more counts.
//! - Not for: sudden changes of what is used: the new must first be counted above the old.

use super::arena::Arena;
use super::replace::{Forgotten, Key, Look, NoneMayLeave, Replace, Setup, share};
use super::sketch::{FrequencySketch, page_hash};
use terrace_page::PageId;

const WINDOW: u8 = 0;
const PROBATION: u8 = 1;
const PROTECTED: u8 = 2;

/// Share of the cache for newcomers, in percent.
const WINDOW_PERCENT: u32 = 1;
/// Share of the rest for pages used again, in percent.
const PROTECTED_PERCENT: u32 = 80;

/// The state of W-TinyLFU.
pub struct WTinyLfu {
    /// The word of a key is the hash of its page.
    keys: Arena<3>,
    uses: FrequencySketch,
    window_max: u32,
    protected_max: u32,
    capacity: u32,
    forgotten: Forgotten,
}

impl WTinyLfu {
    pub(super) fn new(setup: Setup) -> WTinyLfu {
        assert!(setup.capacity > 0, "a cache holds a page");
        let window_max = share(setup.capacity, WINDOW_PERCENT);
        let main = u64::from(setup.capacity - window_max);
        WTinyLfu {
            keys: Arena::new(setup.keys_count),
            uses: FrequencySketch::new(setup.capacity),
            window_max,
            protected_max: (main * u64::from(PROTECTED_PERCENT) / 100) as u32,
            capacity: setup.capacity,
            forgotten: Forgotten::new(setup.forgetting),
        }
    }

    pub(super) fn ghosts_max(_capacity: u32) -> u32 {
        0
    }

    /// Names what leaves, and moves the candidate to its place if it stays.
    fn choose(&mut self, mut may_leave: impl FnMut(Key) -> bool) -> Option<u32> {
        let mut may_leave = |key: u32| may_leave(Key(key));
        let of_main = [PROBATION, PROTECTED]
            .into_iter()
            .find_map(|list| self.keys.oldest_that(list, &mut may_leave));
        if self.keys.len(WINDOW) < self.window_max {
            return of_main.or_else(|| self.keys.oldest_that(WINDOW, &mut may_leave));
        }
        let candidate = self.keys.oldest(WINDOW).expect("the window holds a page");
        let Some(victim) = of_main else {
            return self.keys.oldest_that(WINDOW, &mut may_leave);
        };
        if may_leave(candidate) {
            let uses = |key: u32| self.uses.estimate(self.keys.word(key));
            if uses(candidate) <= uses(victim) {
                return Some(candidate);
            }
        }
        self.keys.renew(PROBATION, candidate);
        Some(victim)
    }
}

impl Replace for WTinyLfu {
    #[inline]
    fn hit(&mut self, key: Key) -> bool {
        let Some(list) = self.keys.list(key.0) else { return false };
        self.uses.count(self.keys.word(key.0));
        if list == PROBATION && self.protected_max > 0 {
            self.keys.renew(PROTECTED, key.0);
            if self.keys.len(PROTECTED) > self.protected_max {
                let oldest = self.keys.oldest(PROTECTED).expect("it is not empty");
                self.keys.renew(PROBATION, oldest);
            }
        } else {
            self.keys.renew(list, key.0);
        }
        true
    }

    fn insert(
        &mut self,
        key: Key,
        page: PageId,
        may_leave: impl FnMut(Key) -> bool,
    ) -> Result<Option<Key>, NoneMayLeave> {
        let hash = page_hash(page);
        self.uses.count(hash);
        let cached = [WINDOW, PROBATION, PROTECTED].map(|list| self.keys.len(list)).iter().sum();
        let mut victim = None;
        if self.capacity <= cached {
            victim = Some(self.evict(may_leave).ok_or(NoneMayLeave)?);
        }
        self.keys.set_word(key.0, hash);
        self.keys.push(WINDOW, key.0);
        if self.keys.len(WINDOW) > self.window_max {
            let oldest = self.keys.oldest(WINDOW).expect("it is not empty");
            self.keys.renew(PROBATION, oldest);
        }
        Ok(victim)
    }

    fn evict(&mut self, may_leave: impl FnMut(Key) -> bool) -> Option<Key> {
        let victim = self.choose(may_leave)?;
        self.keys.remove(victim);
        self.forgotten.push(victim);
        Some(Key(victim))
    }

    fn remove(&mut self, key: Key) {
        self.keys.remove(key.0);
    }

    fn forgotten(&mut self) -> &mut Vec<Key> {
        &mut self.forgotten.keys
    }
}

impl Look for WTinyLfu {
    #[inline]
    fn is_cached(&self, key: Key) -> bool {
        self.keys.list(key.0).is_some()
    }

    fn bytes(&self) -> usize {
        self.keys.bytes() + self.uses.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::{self, Model};
    use super::*;

    #[test]
    fn w_tinylfu_agrees_with_its_model() {
        models::compare("w-tinylfu", |capacity, _| {
            let window_max = (capacity / 100).max(1);
            WTinyLfuModel {
                capacity,
                window_max,
                protected_max: (capacity - window_max) * 80 / 100,
                // The sketch has a test of its own.
                uses: FrequencySketch::new(capacity as u32),
                lists: Default::default(),
            }
        });
    }

    struct WTinyLfuModel {
        capacity: usize,
        window_max: usize,
        protected_max: usize,
        uses: FrequencySketch,
        /// The window, probation, protected; each oldest first.
        lists: [Vec<u32>; 3],
    }

    impl WTinyLfuModel {
        fn estimate(&self, key: u32) -> u32 {
            self.uses.estimate(page_hash(PageId(u64::from(key))))
        }

        fn drop(&mut self, key: u32) -> Option<usize> {
            let at = self.lists.iter().position(|list| list.contains(&key))?;
            self.lists[at].retain(|&other| other != key);
            Some(at)
        }
    }

    impl Model for WTinyLfuModel {
        fn hit(&mut self, key: u32) -> bool {
            let Some(at) = self.drop(key) else { return false };
            self.uses.count(page_hash(PageId(u64::from(key))));
            self.lists[if at == 0 { 0 } else { 2 }].push(key);
            if self.lists[2].len() > self.protected_max {
                let oldest = self.lists[2].remove(0);
                self.lists[1].push(oldest);
            }
            true
        }

        fn is_full(&self) -> bool {
            self.lists.concat().len() == self.capacity
        }

        fn miss(&mut self, key: u32) {
            self.uses.count(page_hash(PageId(u64::from(key))));
        }

        fn victim(&mut self, _key: Option<u32>, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
            let first = |list: &[u32]| list.iter().copied().find(|&key| may_leave(key));
            let of_main = first(&[&self.lists[1][..], &self.lists[2]].concat());
            let of_window = first(&self.lists[0]);
            let mut victim = of_main.or(of_window)?;
            if self.lists[0].len() >= self.window_max && of_main.is_some() {
                let candidate = self.lists[0][0];
                let loses = self.estimate(candidate) <= self.estimate(victim);
                if loses && may_leave(candidate) {
                    victim = candidate;
                } else {
                    self.lists[0].remove(0);
                    self.lists[1].push(candidate);
                }
            }
            self.drop(victim);
            Some(victim)
        }

        fn enter(&mut self, key: u32) {
            self.lists[0].push(key);
            if self.lists[0].len() > self.window_max {
                let oldest = self.lists[0].remove(0);
                self.lists[1].push(oldest);
            }
        }

        fn remove(&mut self, key: u32) {
            self.drop(key);
        }

        fn known(&self) -> Vec<u32> {
            self.lists.concat()
        }
    }
}
