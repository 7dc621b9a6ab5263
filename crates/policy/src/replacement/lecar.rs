//! LeCaR: LRU or LFU, picked by chance, chooses the victim, and the chances follow regret (Vietri
//! et al., HotStorage 2018).
//!
//! - Idea: two experts. A miss on a page that one of them chose is its mistake: the other gains
//!   weight, the more the sooner the page is missed.
//! - State: the list of LRU, a heap by uses, and the ghosts of each expert, half as many as pages.
//! - E1: weights are shares, each at least 1%.
//! - E2: a page that both experts choose becomes no ghost. Equal uses count as LFU's by the last
//!   use.
//! - Cost: a hit is a move and two stores; a victim takes O(log n) for each page that was hit since
//!   it was last looked at, and a miss on a ghost an exponential or two.
//! - Not for: callers that want no chance: its seed must be given.

use super::arena::Arena;
use super::replace::{Forgotten, Key, Look, NoneMayLeave, Replace, Setup};
use crate::structures::lazy_heap::LazyHeap;
use fastrand::Rng;
use terrace_page::PageId;

const CACHED: u8 = 0;
const LRU_GHOSTS: u8 = 1;
const LFU_GHOSTS: u8 = 2;

const LEARNING_RATE: f64 = 0.45;
/// What a mistake counts after a number of requests equal to the capacity in pages.
const DISCOUNT_PER_CAPACITY: f64 = 0.005;
const WEIGHT_MAX: f64 = 0.99;

/// The experts' weights.
struct Weights {
    lru: f64,
    discount: f64,
}

impl Weights {
    fn new(capacity: u32) -> Weights {
        Weights { lru: 0.5, discount: DISCOUNT_PER_CAPACITY.powf(1.0 / f64::from(capacity)) }
    }

    /// A page of these `ghosts` is missed, `age` requests after it left.
    fn regret(&mut self, ghosts: u8, age: u64) {
        let factor = (-LEARNING_RATE * self.discount.powf(age as f64)).exp();
        let (mut lru, mut lfu) = (self.lru, 1.0 - self.lru);
        if ghosts == LRU_GHOSTS {
            lru *= factor;
        } else {
            lfu *= factor;
        }
        self.lru = (lru / (lru + lfu)).clamp(1.0 - WEIGHT_MAX, WEIGHT_MAX);
    }
}

/// The state of LeCaR.
pub struct LeCar {
    /// In the order of the last use; the word of a key counts its uses.
    keys: Arena<3>,
    /// When a cached key was last used; when a ghost left.
    times: Vec<u64>,
    by_uses: LazyHeap<(u32, u64)>,
    weights: Weights,
    chance: Rng,
    /// Requests so far.
    now: u64,
    capacity: u32,
    forgotten: Forgotten,
}

impl LeCar {
    pub(super) fn new(setup: Setup) -> LeCar {
        assert!(setup.capacity > 0, "a cache holds a page");
        LeCar {
            keys: Arena::new(setup.keys_count),
            times: vec![0; setup.keys_count as usize],
            by_uses: LazyHeap::new(setup.keys_count),
            weights: Weights::new(setup.capacity),
            chance: Rng::with_seed(setup.seed),
            now: 0,
            capacity: setup.capacity,
            forgotten: Forgotten::new(setup.forgetting),
        }
    }

    pub(super) fn ghosts_max(capacity: u32) -> u32 {
        2 * ghosts_per_expert(capacity)
    }

    fn retire(&mut self, mut may_leave: impl FnMut(Key) -> bool) -> Option<u32> {
        let mut may_leave = |key: u32| may_leave(Key(key));
        let by_lru = self.keys.oldest_that(CACHED, &mut may_leave)?;
        let (keys, times) = (&self.keys, &self.times);
        let uses = |key: u32| (keys.word(key), times[key as usize]);
        let by_lfu = self.by_uses.least(uses, &mut may_leave)?;
        let choice = if self.chance.f64() < self.weights.lru { LRU_GHOSTS } else { LFU_GHOSTS };
        let victim = if choice == LRU_GHOSTS { by_lru } else { by_lfu };
        self.by_uses.remove(victim);
        self.times[victim as usize] = self.now;
        if by_lru == by_lfu {
            self.keys.remove(victim);
            self.forgotten.push(victim);
        } else {
            self.keys.renew(choice, victim);
        }
        Some(victim)
    }

    fn trim(&mut self) {
        for list in [LRU_GHOSTS, LFU_GHOSTS] {
            while self.keys.len(list) > ghosts_per_expert(self.capacity) {
                let ghost = self.keys.oldest(list).expect("there are ghosts");
                self.keys.remove(ghost);
                self.forgotten.push(ghost);
            }
        }
    }
}

fn ghosts_per_expert(capacity: u32) -> u32 {
    capacity / 2
}

impl Replace for LeCar {
    #[inline]
    fn hit(&mut self, key: Key) -> bool {
        let cached = self.is_cached(key);
        if cached {
            self.now += 1;
            self.times[key.0 as usize] = self.now;
            self.keys.set_word(key.0, self.keys.word(key.0).saturating_add(1));
            self.keys.renew(CACHED, key.0);
        }
        cached
    }

    fn insert(
        &mut self,
        key: Key,
        _page: PageId,
        may_leave: impl FnMut(Key) -> bool,
    ) -> Result<Option<Key>, NoneMayLeave> {
        self.now += 1;
        let ghosts = self.keys.list(key.0);
        if let Some(ghosts) = ghosts {
            self.weights.regret(ghosts, self.now - self.times[key.0 as usize]);
        }
        let mut victim = None;
        if self.keys.len(CACHED) >= self.capacity {
            victim = Some(Key(self.retire(may_leave).ok_or(NoneMayLeave)?));
        }
        if ghosts.is_some() {
            self.keys.set_word(key.0, self.keys.word(key.0).saturating_add(1));
            self.keys.renew(CACHED, key.0);
        } else {
            self.keys.set_word(key.0, 1);
            self.keys.push(CACHED, key.0);
        }
        self.times[key.0 as usize] = self.now;
        self.by_uses.insert(key.0, (self.keys.word(key.0), self.now));
        self.trim();
        Ok(victim)
    }

    fn evict(&mut self, may_leave: impl FnMut(Key) -> bool) -> Option<Key> {
        let victim = self.retire(may_leave)?;
        self.trim();
        Some(Key(victim))
    }

    fn remove(&mut self, key: Key) {
        if self.is_cached(key) {
            self.by_uses.remove(key.0);
        }
        self.keys.remove(key.0);
    }

    fn forgotten(&mut self) -> &mut Vec<Key> {
        &mut self.forgotten.keys
    }
}

impl Look for LeCar {
    #[inline]
    fn is_cached(&self, key: Key) -> bool {
        self.keys.is_in(CACHED, key.0)
    }

    fn bytes(&self) -> usize {
        self.keys.bytes() + self.times.capacity() * size_of::<u64>() + self.by_uses.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::{self, Model};
    use super::*;

    #[test]
    fn lecar_agrees_with_its_model() {
        models::compare("lecar", |capacity, seed| LeCarModel {
            capacity,
            now: 0,
            lru_weight: 0.5,
            lfu_weight: 0.5,
            chance: Rng::with_seed(seed),
            cached: Vec::new(),
            ghosts: Default::default(),
        });
    }

    #[derive(Clone, Copy, PartialEq)]
    struct Row {
        key: u32,
        uses: u32,
        time: u64,
    }

    struct LeCarModel {
        capacity: usize,
        now: u64,
        lru_weight: f64,
        lfu_weight: f64,
        chance: Rng,
        cached: Vec<Row>,
        /// Of LRU and of LFU, oldest first.
        ghosts: [Vec<Row>; 2],
    }

    impl LeCarModel {
        fn trim(&mut self) {
            for ghosts in &mut self.ghosts {
                if ghosts.len() > self.capacity / 2 {
                    ghosts.remove(0);
                }
            }
        }
    }

    impl Model for LeCarModel {
        fn hit(&mut self, key: u32) -> bool {
            let Some(row) = self.cached.iter_mut().find(|row| row.key == key) else { return false };
            self.now += 1;
            *row = Row { key, uses: row.uses + 1, time: self.now };
            true
        }

        fn is_full(&self) -> bool {
            self.cached.len() == self.capacity
        }

        fn miss(&mut self, key: u32) {
            self.now += 1;
            for of in 0..2 {
                let Some(row) = self.ghosts[of].iter().find(|row| row.key == key) else { continue };
                let d = 0.005f64.powf(1.0 / self.capacity as f64);
                let reward = -d.powf((self.now - row.time) as f64);
                let weight = if of == 0 { &mut self.lru_weight } else { &mut self.lfu_weight };
                *weight *= (0.45 * reward).exp();
                let lru = self.lru_weight / (self.lru_weight + self.lfu_weight);
                self.lru_weight = lru.clamp(1.0 - 0.99, 0.99);
                self.lfu_weight = 1.0 - self.lru_weight;
            }
        }

        fn victim(&mut self, key: Option<u32>, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
            let may: Vec<Row> =
                self.cached.iter().copied().filter(|row| may_leave(row.key)).collect();
            let by_lru = *may.iter().min_by_key(|row| row.time)?;
            let by_lfu = *may.iter().min_by_key(|row| (row.uses, row.time))?;
            let of = if self.chance.f64() < self.lru_weight { 0 } else { 1 };
            let mut victim = [by_lru, by_lfu][of];
            self.cached.retain(|row| *row != victim);
            victim.time = self.now;
            if by_lru != by_lfu {
                self.ghosts[of].push(victim);
            }
            if key.is_none() {
                self.trim();
            }
            Some(victim.key)
        }

        fn enter(&mut self, key: u32) {
            let mut uses = 1;
            for ghosts in &mut self.ghosts {
                if let Some(at) = ghosts.iter().position(|row| row.key == key) {
                    uses = ghosts.remove(at).uses + 1;
                }
            }
            self.cached.push(Row { key, uses, time: self.now });
            self.trim();
        }

        fn remove(&mut self, key: u32) {
            for list in self.ghosts.iter_mut().chain([&mut self.cached]) {
                list.retain(|row| row.key != key);
            }
        }

        fn known(&self) -> Vec<u32> {
            let [lru, lfu] = &self.ghosts;
            self.cached.iter().chain(lru).chain(lfu).map(|row| row.key).collect()
        }
    }
}
