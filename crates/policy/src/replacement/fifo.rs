//! FIFO: the page that came first leaves first, used or not.
//!
//! - Idea: a list in the order of arrival.
//! - State: one node per key.
//! - Cost: a hit stores nothing.
//! - Not for: pages that are used for longer than the cache takes to turn over.

use super::arena::Arena;
use super::replace::{Forgotten, Key, Look, NoneMayLeave, Replace, Setup};
use terrace_page::PageId;

const CACHED: u8 = 0;

/// The state of FIFO.
pub struct Fifo {
    keys: Arena<1>,
    capacity: u32,
    forgotten: Forgotten,
}

impl Fifo {
    pub(super) fn new(setup: Setup) -> Fifo {
        assert!(setup.capacity > 0, "a cache holds a page");
        Fifo {
            keys: Arena::new(setup.keys_count),
            capacity: setup.capacity,
            forgotten: Forgotten::new(setup.forgetting),
        }
    }

    pub(super) fn ghosts_max(_capacity: u32) -> u32 {
        0
    }
}

impl Replace for Fifo {
    #[inline]
    fn hit(&mut self, key: Key) -> bool {
        self.keys.is_in(CACHED, key.0)
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
        Ok(victim)
    }

    #[inline]
    fn evict(&mut self, mut may_leave: impl FnMut(Key) -> bool) -> Option<Key> {
        let victim = self.keys.oldest_that(CACHED, |key| may_leave(Key(key)))?;
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

impl Look for Fifo {
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
    fn fifo_agrees_with_its_model() {
        models::compare("fifo", |capacity, _| FifoModel { capacity, order: Vec::new() });
    }

    /// Keys, first come first.
    struct FifoModel {
        capacity: usize,
        order: Vec<u32>,
    }

    impl Model for FifoModel {
        fn hit(&mut self, key: u32) -> bool {
            self.order.contains(&key)
        }

        fn is_full(&self) -> bool {
            self.order.len() == self.capacity
        }

        fn victim(&mut self, _key: Option<u32>, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
            let at = self.order.iter().position(|&key| may_leave(key))?;
            Some(self.order.remove(at))
        }

        fn enter(&mut self, key: u32) {
            self.order.push(key);
        }

        fn remove(&mut self, key: u32) {
            self.order.retain(|&other| other != key);
        }

        fn known(&self) -> Vec<u32> {
            self.order.clone()
        }
    }
}
