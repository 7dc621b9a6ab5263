//! 2Q, the full version: newcomers wait in a queue, and only those that come back after they left
//! it join the LRU list (Johnson and Shasha, VLDB 1994).
//!
//! ```text
//!   miss ---> A1in (first in, first out) ---> A1out (ghosts) ---> forgotten
//!                                               | miss
//!                                               v
//!                                             Am (LRU) ---> forgotten
//! ```
//!
//! - Q1: A1in gives up a page as long as it has more than a quarter of the cache; else Am does.
//! - Q2: A1out remembers half as many pages as the cache holds.
//! - Cost: a hit in A1in stores nothing, one in Am moves a node to the front.
//! - Not for: pages used a few times soon after they come and never again: they are not told from
//!   one use, which is the point, nor from the valuable if they come back.

use super::arena::Arena;
use super::replace::{Forgotten, Key, Look, NoneMayLeave, Replace, Setup, share};
use terrace_page::PageId;

const IN: u8 = 0;
const OUT: u8 = 1;
const MAIN: u8 = 2;

/// Share of the cache for newcomers, in percent: Kin.
const IN_PERCENT: u32 = 25;
/// Ghosts for 100 pages: Kout.
const OUT_PERCENT: u32 = 50;

/// The state of 2Q.
pub struct TwoQ {
    keys: Arena<3>,
    in_max: u32,
    out_max: u32,
    capacity: u32,
    forgotten: Forgotten,
}

impl TwoQ {
    pub(super) fn new(setup: Setup) -> TwoQ {
        assert!(setup.capacity > 0, "a cache holds a page");
        TwoQ {
            keys: Arena::new(setup.keys_count),
            in_max: share(setup.capacity, IN_PERCENT),
            out_max: share(setup.capacity, OUT_PERCENT),
            capacity: setup.capacity,
            forgotten: Forgotten::new(setup.forgetting),
        }
    }

    pub(super) fn ghosts_max(capacity: u32) -> u32 {
        share(capacity, OUT_PERCENT)
    }

    /// The paper's `reclaimfor`, but for the bound of A1out.
    fn reclaim(&mut self, mut may_leave: impl FnMut(Key) -> bool) -> Option<u32> {
        let lists = if self.keys.len(IN) > self.in_max { [IN, MAIN] } else { [MAIN, IN] };
        for list in lists {
            if let Some(victim) = self.keys.oldest_that(list, |key| may_leave(Key(key))) {
                if list == IN {
                    self.keys.renew(OUT, victim);
                } else {
                    self.keys.remove(victim);
                    self.forgotten.push(victim);
                }
                return Some(victim);
            }
        }
        None
    }

    fn trim(&mut self) {
        while self.keys.len(OUT) > self.out_max {
            let ghost = self.keys.oldest(OUT).expect("there are ghosts");
            self.keys.remove(ghost);
            self.forgotten.push(ghost);
        }
    }
}

impl Replace for TwoQ {
    #[inline]
    fn hit(&mut self, key: Key) -> bool {
        match self.keys.list(key.0) {
            Some(MAIN) => {
                self.keys.renew(MAIN, key.0);
                true
            }
            Some(IN) => true,
            _ => false,
        }
    }

    fn insert(
        &mut self,
        key: Key,
        _page: PageId,
        may_leave: impl FnMut(Key) -> bool,
    ) -> Result<Option<Key>, NoneMayLeave> {
        let mut victim = None;
        if self.keys.len(IN) + self.keys.len(MAIN) >= self.capacity {
            victim = Some(Key(self.reclaim(may_leave).ok_or(NoneMayLeave)?));
        }
        if self.keys.is_in(OUT, key.0) {
            self.keys.renew(MAIN, key.0);
        } else {
            self.keys.push(IN, key.0);
        }
        self.trim();
        Ok(victim)
    }

    fn evict(&mut self, may_leave: impl FnMut(Key) -> bool) -> Option<Key> {
        let victim = self.reclaim(may_leave)?;
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

impl Look for TwoQ {
    #[inline]
    fn is_cached(&self, key: Key) -> bool {
        matches!(self.keys.list(key.0), Some(IN | MAIN))
    }

    fn bytes(&self) -> usize {
        self.keys.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::{self, Model};

    #[test]
    fn two_q_agrees_with_its_model() {
        models::compare("2q", |capacity, _| TwoQModel { capacity, ..TwoQModel::default() });
    }

    /// Each list oldest first.
    #[derive(Default)]
    struct TwoQModel {
        capacity: usize,
        a1in: Vec<u32>,
        a1out: Vec<u32>,
        am: Vec<u32>,
    }

    impl TwoQModel {
        fn trim(&mut self) {
            if self.a1out.len() > (self.capacity / 2).max(1) {
                self.a1out.remove(0);
            }
        }
    }

    impl Model for TwoQModel {
        fn hit(&mut self, key: u32) -> bool {
            if let Some(at) = self.am.iter().position(|&other| other == key) {
                self.am.remove(at);
                self.am.push(key);
                return true;
            }
            self.a1in.contains(&key)
        }

        fn is_full(&self) -> bool {
            self.a1in.len() + self.am.len() == self.capacity
        }

        fn victim(&mut self, key: Option<u32>, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
            let of_in = self.a1in.iter().position(|&key| may_leave(key));
            let of_main = self.am.iter().position(|&key| may_leave(key));
            let over = self.a1in.len() > (self.capacity / 4).max(1);
            let victim = match (of_in, of_main) {
                (Some(at), None) => self.a1in.remove(at),
                (Some(at), Some(_)) if over => self.a1in.remove(at),
                (_, Some(at)) => return Some(self.am.remove(at)),
                (None, None) => return None,
            };
            self.a1out.push(victim);
            if key.is_none() {
                self.trim();
            }
            Some(victim)
        }

        fn enter(&mut self, key: u32) {
            if self.a1out.contains(&key) {
                self.a1out.retain(|&other| other != key);
                self.am.push(key);
            } else {
                self.a1in.push(key);
            }
            self.trim();
        }

        fn remove(&mut self, key: u32) {
            for list in [&mut self.a1in, &mut self.a1out, &mut self.am] {
                list.retain(|&other| other != key);
            }
        }

        fn known(&self) -> Vec<u32> {
            [&self.a1in[..], &self.a1out, &self.am].concat()
        }
    }
}
