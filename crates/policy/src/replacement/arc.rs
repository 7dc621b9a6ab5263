//! ARC: a list of pages used once and one of pages used more often share the cache, and the ghosts
//! of each say how (Megiddo and Modha, FAST 2003).
//!
//! ```text
//!   miss ---> T1 (used once) ---> B1 (its ghosts)      a miss in B1: T1 should be longer
//!              | hit                |                  a miss in B2: T2 should be longer
//!              v       miss         |
//!             T2 <------------------+
//!             T2 (used again) ---> B2 (its ghosts) ---> T2 on a miss
//! ```
//!
//! - P1: `target`, the paper's p, is what T1 should hold: between 0 and the capacity c.
//! - P2: T1 and B1 together are at most c, all four lists at most 2c.
//! - Cost: a hit moves a node; a miss moves two or three.
//! - Not for: caches with no room for the numbers of as many ghosts as pages.

use super::arena::Arena;
use super::replace::{Forgotten, Key, Look, NoneMayLeave, Replace, Setup};
use terrace_page::PageId;

const T1: u8 = 0;
const T2: u8 = 1;
const B1: u8 = 2;
const B2: u8 = 3;

/// The state of ARC.
pub struct Arc {
    keys: Arena<4>,
    target: f64,
    capacity: u32,
    forgotten: Forgotten,
}

impl Arc {
    pub(super) fn new(setup: Setup) -> Arc {
        assert!(setup.capacity > 0, "a cache holds a page");
        Arc {
            keys: Arena::new(setup.keys_count),
            target: 0.0,
            capacity: setup.capacity,
            forgotten: Forgotten::new(setup.forgetting),
        }
    }

    pub(super) fn ghosts_max(capacity: u32) -> u32 {
        capacity
    }

    fn is_full(&self) -> bool {
        self.keys.len(T1) + self.keys.len(T2) >= self.capacity
    }

    /// Learns from a miss on a ghost: cases II and III.
    fn adapt(&mut self, ghosts: u8) {
        let (b1, b2) = (f64::from(self.keys.len(B1)), f64::from(self.keys.len(B2)));
        if ghosts == B1 {
            self.target = (self.target + (b2 / b1).max(1.0)).min(f64::from(self.capacity));
        } else {
            self.target = (self.target - (b1 / b2).max(1.0)).max(0.0);
        }
    }

    /// The paper's REPLACE, for a key that is in the list `of`.
    fn replace(&mut self, of: Option<u8>, mut may_leave: impl FnMut(Key) -> bool) -> Option<u32> {
        let t1 = f64::from(self.keys.len(T1));
        let from_t1 = t1 >= 1.0 && (t1 > self.target || (of == Some(B2) && t1 == self.target));
        let lists = if from_t1 { [T1, T2] } else { [T2, T1] };
        for list in lists {
            if let Some(victim) = self.keys.oldest_that(list, |key| may_leave(Key(key))) {
                self.keys.renew(if list == T1 { B1 } else { B2 }, victim);
                return Some(victim);
            }
        }
        None
    }

    fn drop_oldest(&mut self, ghosts: u8) {
        if let Some(ghost) = self.keys.oldest(ghosts) {
            self.keys.remove(ghost);
            self.forgotten.push(ghost);
        }
    }

    /// Case IV: makes room for a key that was unknown, among the pages and among the ghosts.
    fn make_room(
        &mut self,
        mut may_leave: impl FnMut(Key) -> bool,
    ) -> Result<Option<u32>, NoneMayLeave> {
        let l1 = self.keys.len(T1) + self.keys.len(B1);
        let all = l1 + self.keys.len(T2) + self.keys.len(B2);
        if self.keys.len(T1) >= self.capacity {
            // No ghost: a page used once, of c such pages, tells nothing.
            let oldest = self.keys.oldest_that(T1, |key| may_leave(Key(key)));
            let victim = oldest.ok_or(NoneMayLeave)?;
            self.keys.remove(victim);
            self.forgotten.push(victim);
            return Ok(Some(victim));
        }
        let mut victim = None;
        if self.is_full() {
            victim = Some(self.replace(None, may_leave).ok_or(NoneMayLeave)?);
        }
        if l1 >= self.capacity {
            self.drop_oldest(B1);
        } else if all >= 2 * self.capacity {
            self.drop_oldest(B2);
        }
        Ok(victim)
    }
}

impl Replace for Arc {
    #[inline]
    fn hit(&mut self, key: Key) -> bool {
        let cached = self.is_cached(key);
        if cached {
            self.keys.renew(T2, key.0);
        }
        cached
    }

    fn insert(
        &mut self,
        key: Key,
        _page: PageId,
        may_leave: impl FnMut(Key) -> bool,
    ) -> Result<Option<Key>, NoneMayLeave> {
        let Some(ghosts) = self.keys.list(key.0) else {
            let victim = self.make_room(may_leave)?;
            self.keys.push(T1, key.0);
            return Ok(victim.map(Key));
        };
        self.adapt(ghosts);
        let mut victim = None;
        if self.is_full() {
            victim = Some(self.replace(Some(ghosts), may_leave).ok_or(NoneMayLeave)?);
        }
        self.keys.renew(T2, key.0);
        Ok(victim.map(Key))
    }

    fn evict(&mut self, may_leave: impl FnMut(Key) -> bool) -> Option<Key> {
        self.replace(None, may_leave).map(Key)
    }

    fn remove(&mut self, key: Key) {
        self.keys.remove(key.0);
    }

    fn forgotten(&mut self) -> &mut Vec<Key> {
        &mut self.forgotten.keys
    }
}

impl Look for Arc {
    #[inline]
    fn is_cached(&self, key: Key) -> bool {
        matches!(self.keys.list(key.0), Some(T1 | T2))
    }

    fn bytes(&self) -> usize {
        self.keys.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::{self, Model};

    #[test]
    fn arc_agrees_with_its_model() {
        models::compare("arc", |c, _| ArcModel { c, ..ArcModel::default() });
    }

    /// The paper's four lists, oldest first.
    #[derive(Default)]
    struct ArcModel {
        c: usize,
        p: f64,
        t1: Vec<u32>,
        t2: Vec<u32>,
        b1: Vec<u32>,
        b2: Vec<u32>,
    }

    impl ArcModel {
        fn replace(&mut self, in_b2: bool, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
            let t1 = self.t1.len() as f64;
            let first = !self.t1.is_empty() && ((in_b2 && t1 == self.p) || t1 > self.p);
            let of_t1 = self.t1.iter().position(|&key| may_leave(key));
            let of_t2 = self.t2.iter().position(|&key| may_leave(key));
            match (of_t1, of_t2) {
                (Some(at), None) => self.b1.push(self.t1.remove(at)),
                (Some(at), Some(_)) if first => self.b1.push(self.t1.remove(at)),
                (None, None) => return None,
                (_, Some(at)) => {
                    self.b2.push(self.t2.remove(at));
                    return self.b2.last().copied();
                }
            }
            self.b1.last().copied()
        }
    }

    impl Model for ArcModel {
        fn hit(&mut self, key: u32) -> bool {
            let cached = self.t1.contains(&key) || self.t2.contains(&key);
            if cached {
                self.t1.retain(|&other| other != key);
                self.t2.retain(|&other| other != key);
                self.t2.push(key);
            }
            cached
        }

        fn is_full(&self) -> bool {
            self.t1.len() + self.t2.len() == self.c
        }

        fn miss(&mut self, key: u32) {
            let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
            if self.b1.contains(&key) {
                let delta = if b1 >= b2 { 1.0 } else { b2 / b1 };
                self.p = (self.p + delta).min(self.c as f64);
            } else if self.b2.contains(&key) {
                let delta = if b2 >= b1 { 1.0 } else { b1 / b2 };
                self.p = (self.p - delta).max(0.0);
            }
        }

        fn victim(&mut self, key: Option<u32>, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
            let Some(key) = key else { return self.replace(false, may_leave) };
            let ghost = self.b1.contains(&key) || self.b2.contains(&key);
            if !ghost && self.t1.len() == self.c {
                let at = self.t1.iter().position(|&key| may_leave(key))?;
                return Some(self.t1.remove(at));
            }
            let in_b2 = self.b2.contains(&key);
            self.replace(in_b2, may_leave)
        }

        fn enter(&mut self, key: u32) {
            if self.b1.contains(&key) || self.b2.contains(&key) {
                self.b1.retain(|&other| other != key);
                self.b2.retain(|&other| other != key);
                self.t2.push(key);
                return;
            }
            self.t1.push(key);
            if self.t1.len() + self.b1.len() > self.c {
                self.b1.remove(0);
            } else if self.t1.len() + self.b1.len() + self.t2.len() + self.b2.len() > 2 * self.c {
                self.b2.remove(0);
            }
        }

        fn remove(&mut self, key: u32) {
            for list in [&mut self.t1, &mut self.t2, &mut self.b1, &mut self.b2] {
                list.retain(|&other| other != key);
            }
        }

        fn known(&self) -> Vec<u32> {
            [&self.t1[..], &self.t2, &self.b1, &self.b2].concat()
        }
    }
}
