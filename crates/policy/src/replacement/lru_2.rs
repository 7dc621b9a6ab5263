//! LRU-2: the page whose use before the last is oldest leaves (O'Neil, O'Neil and Weikum, SIGMOD
//! 1993).
//!
//! - Idea: two uses tell how often a page is used; one does not. A page used once goes before all
//!   that were used twice, the least recently used first.
//! - State: the last two uses per key, in requests; a list of the pages used once; a heap of the
//!   others. As many ghosts as pages keep their last use: the paper's retained information, which
//!   it bounds by time.
//! - K1: the list of pages used once is in the order of that use.
//! - Cost: a hit is two stores; a victim takes O(log n) for each page that was hit since it was
//!   last looked at.
//! - Not for: bursts of uses that belong together, which count one by one here: the paper's period
//!   of correlated references is zero.

use super::arena::Arena;
use super::replace::{Forgotten, Key, Look, NoneMayLeave, Replace, Setup};
use crate::structures::lazy_heap::LazyHeap;
use terrace_page::PageId;

const ONCE: u8 = 0;
const TWICE: u8 = 1;
const GHOSTS: u8 = 2;

#[derive(Clone, Copy, Default)]
struct Uses {
    last: u64,
    /// The use before the last.
    previous: u64,
}

/// The state of LRU-2.
pub struct Lru2 {
    keys: Arena<3>,
    uses: Vec<Uses>,
    by_previous: LazyHeap<u64>,
    /// Requests so far.
    now: u64,
    capacity: u32,
    forgotten: Forgotten,
}

impl Lru2 {
    pub(super) fn new(setup: Setup) -> Lru2 {
        assert!(setup.capacity > 0, "a cache holds a page");
        Lru2 {
            keys: Arena::new(setup.keys_count),
            uses: vec![Uses::default(); setup.keys_count as usize],
            by_previous: LazyHeap::new(setup.keys_count),
            now: 0,
            capacity: setup.capacity,
            forgotten: Forgotten::new(setup.forgetting),
        }
    }

    pub(super) fn ghosts_max(capacity: u32) -> u32 {
        capacity
    }

    /// Makes the page that leaves a ghost.
    fn retire(&mut self, mut may_leave: impl FnMut(Key) -> bool) -> Option<u32> {
        if let Some(victim) = self.keys.oldest_that(ONCE, |key| may_leave(Key(key))) {
            self.keys.renew(GHOSTS, victim);
            return Some(victim);
        }
        let uses = &self.uses;
        let previous = |key: u32| uses[key as usize].previous;
        let victim = self.by_previous.least(previous, |key| may_leave(Key(key)))?;
        self.by_previous.remove(victim);
        self.keys.renew(GHOSTS, victim);
        Some(victim)
    }

    fn trim(&mut self) {
        while self.keys.len(GHOSTS) > self.capacity {
            let ghost = self.keys.oldest(GHOSTS).expect("there are ghosts");
            self.keys.remove(ghost);
            self.forgotten.push(ghost);
        }
    }

    fn use_again(&mut self, key: u32) {
        let uses = &mut self.uses[key as usize];
        *uses = Uses { last: self.now, previous: uses.last };
    }
}

impl Replace for Lru2 {
    #[inline]
    fn hit(&mut self, key: Key) -> bool {
        if !self.is_cached(key) {
            return false;
        }
        self.now += 1;
        self.use_again(key.0);
        if self.keys.is_in(ONCE, key.0) {
            self.keys.renew(TWICE, key.0);
            self.by_previous.insert(key.0, self.uses[key.0 as usize].previous);
        }
        true
    }

    fn insert(
        &mut self,
        key: Key,
        _page: PageId,
        may_leave: impl FnMut(Key) -> bool,
    ) -> Result<Option<Key>, NoneMayLeave> {
        self.now += 1;
        let mut victim = None;
        if self.keys.len(ONCE) + self.keys.len(TWICE) >= self.capacity {
            victim = Some(Key(self.retire(may_leave).ok_or(NoneMayLeave)?));
        }
        if self.keys.is_in(GHOSTS, key.0) {
            self.use_again(key.0);
            self.keys.renew(TWICE, key.0);
            self.by_previous.insert(key.0, self.uses[key.0 as usize].previous);
        } else {
            self.uses[key.0 as usize] = Uses { last: self.now, previous: 0 };
            self.keys.push(ONCE, key.0);
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
        if self.keys.is_in(TWICE, key.0) {
            self.by_previous.remove(key.0);
        }
        self.keys.remove(key.0);
    }

    fn forgotten(&mut self) -> &mut Vec<Key> {
        &mut self.forgotten.keys
    }
}

impl Look for Lru2 {
    #[inline]
    fn is_cached(&self, key: Key) -> bool {
        matches!(self.keys.list(key.0), Some(ONCE | TWICE))
    }

    fn bytes(&self) -> usize {
        let uses = self.uses.capacity() * size_of::<Uses>();
        self.keys.bytes() + uses + self.by_previous.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::{self, Model};

    #[test]
    fn lru_2_agrees_with_its_model() {
        models::compare("lru-2", |capacity, _| Lru2Model {
            capacity,
            now: 0,
            cached: Vec::new(),
            ghosts: Vec::new(),
        });
    }

    /// Keys with the use before the last, if there was one, and the last.
    struct Lru2Model {
        capacity: usize,
        now: u64,
        cached: Vec<(Option<u64>, u64, u32)>,
        /// Oldest first.
        ghosts: Vec<(u64, u32)>,
    }

    impl Model for Lru2Model {
        fn hit(&mut self, key: u32) -> bool {
            let Some(row) = self.cached.iter_mut().find(|row| row.2 == key) else { return false };
            self.now += 1;
            *row = (Some(row.1), self.now, key);
            true
        }

        fn is_full(&self) -> bool {
            self.cached.len() == self.capacity
        }

        fn miss(&mut self, _key: u32) {
            self.now += 1;
        }

        fn victim(&mut self, key: Option<u32>, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
            let victim = *self.cached.iter().filter(|row| may_leave(row.2)).min()?;
            self.cached.retain(|row| *row != victim);
            self.ghosts.push((victim.1, victim.2));
            if key.is_none() && self.ghosts.len() > self.capacity {
                self.ghosts.remove(0);
            }
            Some(victim.2)
        }

        fn enter(&mut self, key: u32) {
            let ghost = self.ghosts.iter().position(|row| row.1 == key);
            let previous = ghost.map(|at| self.ghosts.remove(at).0);
            self.cached.push((previous, self.now, key));
            if self.ghosts.len() > self.capacity {
                self.ghosts.remove(0);
            }
        }

        fn remove(&mut self, key: u32) {
            self.cached.retain(|row| row.2 != key);
            self.ghosts.retain(|row| row.1 != key);
        }

        fn known(&self) -> Vec<u32> {
            let ghosts = self.ghosts.iter().map(|row| row.1);
            self.cached.iter().map(|row| row.2).chain(ghosts).collect()
        }
    }
}
