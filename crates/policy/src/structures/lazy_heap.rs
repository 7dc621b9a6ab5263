//! A heap whose ranks only grow, and which is told of it only when it is asked for the least.
//!
//! - Idea: a rank as it was is at most the rank as it is. So if the least of the old ranks is up to
//!   date, it is the least of all; if not, it is brought up to date and sinks.
//! - H1: no rank in the heap is above the present one.
//! - Cost: growing costs nothing; the least takes O(log n) for each rank found old, and each is
//!   found so once for all that it grew.
//! - Not for: ranks that shrink.

use crate::structures::heaps::{Heaps, Side};

pub struct LazyHeap<Rank> {
    heap: Heaps,
    ranks: Vec<Rank>,
}

impl<Rank: Copy + Ord + Default> LazyHeap<Rank> {
    pub fn new(keys_count: u32) -> LazyHeap<Rank> {
        LazyHeap { heap: Heaps::new(keys_count), ranks: vec![Rank::default(); keys_count as usize] }
    }

    pub fn insert(&mut self, key: u32, rank: Rank) {
        self.ranks[key as usize] = rank;
        let ranks = &self.ranks;
        self.heap.insert(Side::Left, key, |key| ranks[key as usize]);
    }

    pub fn remove(&mut self, key: u32) {
        let ranks = &self.ranks;
        self.heap.remove(key, |key| ranks[key as usize]);
    }

    /// The key of least `rank` among those that are `wanted`, which stays in the heap.
    pub fn least(
        &mut self,
        rank: impl Fn(u32) -> Rank,
        mut wanted: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        let mut passed = Vec::new();
        let found = loop {
            let Some(key) = self.heap.root(Side::Left) else { break None };
            let present = rank(key);
            if self.ranks[key as usize] != present {
                debug_assert!(self.ranks[key as usize] < present, "H1: key {key}");
                self.ranks[key as usize] = present;
                let ranks = &self.ranks;
                self.heap.changed(key, |key| ranks[key as usize]);
            } else if wanted(key) {
                break Some(key);
            } else {
                self.remove(key);
                passed.push(key);
            }
        };
        for key in passed {
            let present = self.ranks[key as usize];
            self.insert(key, present);
        }
        found
    }

    pub fn bytes(&self) -> usize {
        self.heap.bytes() + self.ranks.capacity() * size_of::<Rank>()
    }
}
