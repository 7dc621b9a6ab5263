//! CLOCK: first in, first out, with a second chance (Corbato, 1968).
//!
//! - Idea: a hit marks a page. A marked page whose turn it is to leave loses its mark and is the
//!   newest again.
//! - State: one node per key, with the mark in it. The list is the dial, and its oldest end the
//!   hand.
//! - Cost: a hit is one store; a victim takes two laps at most, since the first unmarks every page.
//! - Not for: scans longer than the cache, which push all else out.

use super::arena::Arena;
use super::replace::{Forgotten, Key, Look, NoneMayLeave, Replace, Setup};
use terrace_page::PageId;

const CACHED: u8 = 0;
/// Marks.
const UNUSED: u8 = 0;
const USED: u8 = 1;

/// The state of CLOCK.
pub struct Clock {
    keys: Arena<1>,
    capacity: u32,
    forgotten: Forgotten,
}

impl Clock {
    pub(super) fn new(setup: Setup) -> Clock {
        assert!(setup.capacity > 0, "a cache holds a page");
        Clock {
            keys: Arena::new(setup.keys_count),
            capacity: setup.capacity,
            forgotten: Forgotten::new(setup.forgetting),
        }
    }

    pub(super) fn ghosts_max(_capacity: u32) -> u32 {
        0
    }
}

impl Replace for Clock {
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
        let mut hand = self.keys.oldest(CACHED)?;
        loop {
            if !may_leave(Key(hand)) {
                hand = self.keys.newer(hand)?;
            } else if self.keys.mark(hand) == USED {
                self.keys.set_mark(hand, UNUSED);
                // The newest, renewed, is the newest still, and its turn comes at once.
                let next = self.keys.newer(hand).unwrap_or(hand);
                self.keys.renew(CACHED, hand);
                hand = next;
            } else {
                self.keys.remove(hand);
                self.forgotten.push(hand);
                return Some(Key(hand));
            }
        }
    }

    fn remove(&mut self, key: Key) {
        self.keys.remove(key.0);
    }

    fn forgotten(&mut self) -> &mut Vec<Key> {
        &mut self.forgotten.keys
    }
}

impl Look for Clock {
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
    fn clock_agrees_with_its_model() {
        models::compare("clock", |capacity, _| ClockModel { capacity, order: Vec::new() });
    }

    /// Keys and whether they were used, first come first.
    struct ClockModel {
        capacity: usize,
        order: Vec<(u32, bool)>,
    }

    impl Model for ClockModel {
        fn hit(&mut self, key: u32) -> bool {
            let found = self.order.iter_mut().find(|row| row.0 == key);
            found.map(|row| row.1 = true).is_some()
        }

        fn is_full(&self) -> bool {
            self.order.len() == self.capacity
        }

        fn victim(&mut self, _key: Option<u32>, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
            loop {
                let at = self.order.iter().position(|row| may_leave(row.0))?;
                match self.order.remove(at) {
                    (key, true) => self.order.push((key, false)),
                    (key, false) => return Some(key),
                }
            }
        }

        fn enter(&mut self, key: u32) {
            self.order.push((key, false));
        }

        fn remove(&mut self, key: u32) {
            self.order.retain(|row| row.0 != key);
        }

        fn known(&self) -> Vec<u32> {
            self.order.iter().map(|row| row.0).collect()
        }
    }
}
