//! S3-FIFO: three queues, first in, first out (Yang et al., "FIFO queues are all you need for cache
//! eviction", SOSP 2023).
//!
//! ```text
//!   miss ---> small (10%) --- used twice or more ---> main (90%) --- unused ---> forgotten
//!               | else                                  ^  ^  | used: again, a use less
//!               v              miss                     |  +--+
//!             ghosts (as many as main) -----------------+
//! ```
//!
//! - Q1: a page is a mark, its uses since it came, up to 3; it starts anew in main.
//! - Q2: main gives up a page if it is longer than 90% of the cache, else small does.
//! - Q3: until something leaves for the first time, what does not fit small goes to main: the way
//!   of the authors' present code; their paper does not say.
//! - Cost: a hit is one store; a page passes small once, and main once for each use that it counts.
//! - Not for: pages whose second use comes just after they have left small and are forgotten.

use super::arena::Arena;
use super::replace::{Forgotten, Key, Look, NoneMayLeave, Replace, Setup, share};
use terrace_page::PageId;

const SMALL: u8 = 0;
const MAIN: u8 = 1;
const GHOSTS: u8 = 2;

/// Share of the cache for newcomers, in percent.
const SMALL_PERCENT: u32 = 10;
/// Uses that are counted at most.
const USES_MAX: u8 = 3;
/// Uses in small that are worth a place in main.
const USES_FOR_MAIN: u8 = 2;

/// The state of S3-FIFO.
pub struct S3Fifo {
    keys: Arena<3>,
    small_max: u32,
    main_max: u32,
    has_evicted: bool,
    forgotten: Forgotten,
}

impl S3Fifo {
    pub(super) fn new(setup: Setup) -> S3Fifo {
        assert!(setup.capacity > 0, "a cache holds a page");
        let small_max = share(setup.capacity, SMALL_PERCENT);
        S3Fifo {
            keys: Arena::new(setup.keys_count),
            small_max,
            main_max: setup.capacity - small_max,
            has_evicted: false,
            forgotten: Forgotten::new(setup.forgetting),
        }
    }

    pub(super) fn ghosts_max(capacity: u32) -> u32 {
        capacity - share(capacity, SMALL_PERCENT)
    }

    fn retire(&mut self, mut may_leave: impl FnMut(Key) -> bool) -> Option<u32> {
        self.has_evicted = true;
        if self.keys.len(MAIN) > self.main_max || self.keys.len(SMALL) == 0 {
            self.retire_from_main(&mut may_leave).or_else(|| self.retire_from_small(&mut may_leave))
        } else {
            self.retire_from_small(&mut may_leave).or_else(|| self.retire_from_main(&mut may_leave))
        }
    }

    fn retire_from_small(&mut self, may_leave: &mut impl FnMut(Key) -> bool) -> Option<u32> {
        let mut next = self.keys.oldest(SMALL);
        while let Some(key) = next {
            next = self.keys.newer(key);
            if !may_leave(Key(key)) {
                continue;
            }
            if self.keys.mark(key) < USES_FOR_MAIN {
                self.keys.renew(GHOSTS, key);
                return Some(key);
            }
            self.keys.set_mark(key, 0);
            self.keys.renew(MAIN, key);
        }
        None
    }

    fn retire_from_main(&mut self, may_leave: &mut impl FnMut(Key) -> bool) -> Option<u32> {
        let mut key = self.keys.oldest(MAIN)?;
        loop {
            if !may_leave(Key(key)) {
                key = self.keys.newer(key)?;
            } else if self.keys.mark(key) > 0 {
                self.keys.set_mark(key, self.keys.mark(key) - 1);
                // The newest, renewed, is the newest still, and its turn comes at once.
                let next = self.keys.newer(key).unwrap_or(key);
                self.keys.renew(MAIN, key);
                key = next;
            } else {
                self.keys.remove(key);
                self.forgotten.push(key);
                return Some(key);
            }
        }
    }

    fn trim(&mut self) {
        while self.keys.len(GHOSTS) > self.main_max {
            let ghost = self.keys.oldest(GHOSTS).expect("there are ghosts");
            self.keys.remove(ghost);
            self.forgotten.push(ghost);
        }
    }
}

impl Replace for S3Fifo {
    #[inline]
    fn hit(&mut self, key: Key) -> bool {
        let cached = self.is_cached(key);
        if cached {
            self.keys.set_mark(key.0, (self.keys.mark(key.0) + 1).min(USES_MAX));
        }
        cached
    }

    fn insert(
        &mut self,
        key: Key,
        _page: PageId,
        may_leave: impl FnMut(Key) -> bool,
    ) -> Result<Option<Key>, NoneMayLeave> {
        let mut victim = None;
        if self.keys.len(SMALL) + self.keys.len(MAIN) >= self.small_max + self.main_max {
            victim = Some(Key(self.retire(may_leave).ok_or(NoneMayLeave)?));
        }
        self.keys.set_mark(key.0, 0);
        if self.keys.is_in(GHOSTS, key.0) {
            self.keys.renew(MAIN, key.0);
        } else if !self.has_evicted && self.keys.len(SMALL) >= self.small_max {
            self.keys.push(MAIN, key.0);
        } else {
            self.keys.push(SMALL, key.0);
        }
        self.trim();
        Ok(victim)
    }

    fn evict(&mut self, may_leave: impl FnMut(Key) -> bool) -> Option<Key> {
        let victim = self.retire(may_leave)?;
        self.trim();
        Some(Key(victim))
    }

    fn remove(&mut self, key: Key) {
        self.keys.remove(key.0);
    }

    fn forgotten(&mut self) -> &mut Vec<Key> {
        &mut self.forgotten.keys
    }
}

impl Look for S3Fifo {
    #[inline]
    fn is_cached(&self, key: Key) -> bool {
        matches!(self.keys.list(key.0), Some(SMALL | MAIN))
    }

    fn bytes(&self) -> usize {
        self.keys.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::{self, Model};

    #[test]
    fn s3_fifo_agrees_with_its_model() {
        models::compare("s3-fifo", |capacity, _| {
            let small_max = (capacity / 10).max(1);
            let main_max = capacity - small_max;
            S3FifoModel { small_max, main_max, ..S3FifoModel::default() }
        });
    }

    /// Keys with their uses, first come first.
    #[derive(Default)]
    struct S3FifoModel {
        small_max: usize,
        main_max: usize,
        has_evicted: bool,
        small: Vec<(u32, u8)>,
        main: Vec<(u32, u8)>,
        ghosts: Vec<u32>,
    }

    impl S3FifoModel {
        fn of_small(&mut self, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
            loop {
                let at = self.small.iter().position(|row| may_leave(row.0))?;
                let (key, uses) = self.small.remove(at);
                if uses < 2 {
                    self.ghosts.push(key);
                    return Some(key);
                }
                self.main.push((key, 0));
            }
        }

        fn of_main(&mut self, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
            loop {
                let at = self.main.iter().position(|row| may_leave(row.0))?;
                let (key, uses) = self.main.remove(at);
                if uses == 0 {
                    return Some(key);
                }
                self.main.push((key, uses - 1));
            }
        }

        fn trim(&mut self) {
            if self.ghosts.len() > self.main_max {
                self.ghosts.remove(0);
            }
        }
    }

    impl Model for S3FifoModel {
        fn hit(&mut self, key: u32) -> bool {
            let mut all = self.small.iter_mut().chain(&mut self.main);
            let found = all.find(|row| row.0 == key);
            found.map(|row| row.1 = (row.1 + 1).min(3)).is_some()
        }

        fn is_full(&self) -> bool {
            self.small.len() + self.main.len() == self.small_max + self.main_max
        }

        fn victim(&mut self, key: Option<u32>, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
            self.has_evicted = true;
            let victim = if self.main.len() > self.main_max || self.small.is_empty() {
                self.of_main(may_leave).or_else(|| self.of_small(may_leave))
            } else {
                self.of_small(may_leave).or_else(|| self.of_main(may_leave))
            };
            if key.is_none() {
                self.trim();
            }
            victim
        }

        fn enter(&mut self, key: u32) {
            let ghost = self.ghosts.iter().position(|&other| other == key);
            if let Some(at) = ghost {
                self.ghosts.remove(at);
                self.main.push((key, 0));
            } else if !self.has_evicted && self.small.len() >= self.small_max {
                self.main.push((key, 0));
            } else {
                self.small.push((key, 0));
            }
            self.trim();
        }

        fn remove(&mut self, key: u32) {
            self.small.retain(|row| row.0 != key);
            self.main.retain(|row| row.0 != key);
            self.ghosts.retain(|&other| other != key);
        }

        fn known(&self) -> Vec<u32> {
            let cached = self.small.iter().chain(&self.main).map(|row| row.0);
            cached.chain(self.ghosts.iter().copied()).collect()
        }
    }
}
