//! The operation queue (OPQ): operations wait in memory until a batch of them is applied.
//!
//! - Q1: `sorted` is in the order of keys, one operation a key; `recent` is in that of time, and
//!   newer. Every `speriod` operations the recent ones are sorted in, and replace older ones.
//! - Q2: a batch is the next `bcnt` operations in the order of keys, behind the last batch's, and
//!   from the front again after the last.

use crate::entry::{Key, OP_BYTES, Op};

/// The queue.
pub(super) struct Queue {
    sorted: Vec<Op>,
    recent: Vec<Op>,
    capacity: usize,
    sort_every: usize,
    /// Where the next batch begins.
    next: Key,
}

impl Queue {
    /// Room for the operations that `bytes` hold.
    pub(super) fn new(bytes: usize, sort_every: usize) -> Queue {
        let capacity = (bytes / OP_BYTES).max(1);
        Queue { sorted: Vec::new(), recent: Vec::new(), capacity, sort_every, next: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.sorted.len() + self.recent.len() >= self.capacity
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty() && self.recent.is_empty()
    }

    pub(super) fn capacity_bytes(&self) -> u64 {
        (self.capacity * OP_BYTES) as u64
    }

    pub(super) fn push(&mut self, op: Op) {
        self.recent.push(op);
        if self.recent.len() >= self.sort_every {
            self.sort();
        }
    }

    /// The newest operation on `key`.
    pub(super) fn find(&self, key: Key) -> Option<Op> {
        let recent = self.recent.iter().rev().find(|op| op.key == key).copied();
        recent.or_else(|| {
            let at = self.sorted.binary_search_by_key(&key, |op| op.key).ok()?;
            Some(self.sorted[at])
        })
    }

    /// The operations on keys from `start` to below `end`, in the order of keys.
    pub(super) fn range(&mut self, start: Key, end: Key) -> &[Op] {
        self.sort();
        let place = |key| self.sorted.partition_point(|op| op.key < key);
        &self.sorted[place(start)..place(end)]
    }

    /// The next batch of at most `bcnt`; it stays until `done`.
    pub(super) fn batch(&mut self, bcnt: usize) -> Vec<Op> {
        self.sort();
        let mut start = self.sorted.partition_point(|op| op.key < self.next);
        if start == self.sorted.len() {
            start = 0;
        }
        let end = self.sorted.len().min(start + bcnt);
        self.sorted[start..end].to_vec()
    }

    /// `batch` has been applied.
    pub(super) fn done(&mut self, batch: &[Op]) {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return };
        let start = self.sorted.partition_point(|op| op.key < first.key);
        let end = self.sorted.partition_point(|op| op.key <= last.key);
        assert!(self.sorted[start..end] == *batch, "a batch is a part of the queue");
        self.sorted.drain(start..end);
        self.next = last.key.saturating_add(1);
    }

    fn sort(&mut self) {
        if self.recent.is_empty() {
            return;
        }
        let mut newer = std::mem::take(&mut self.recent);
        // Stable, so the last of equal keys is the newest.
        newer.sort_by_key(|op| op.key);
        let older = std::mem::take(&mut self.sorted);
        self.sorted.reserve(older.len() + newer.len());
        let mut older = older.into_iter().peekable();
        let mut newer = newer.into_iter().peekable();
        while let Some(op) = newer.next() {
            if newer.peek().is_some_and(|next| next.key == op.key) {
                continue;
            }
            while let Some(before) = older.next_if(|older| older.key <= op.key) {
                if before.key < op.key {
                    self.sorted.push(before);
                }
            }
            self.sorted.push(op);
        }
        self.sorted.extend(older);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use terrace_rt::Prng;

    #[test]
    fn the_queue_agrees_with_a_map() {
        for seed in 0..100 {
            let mut prng = Prng::from_seed(seed);
            let mut queue = Queue::new(9 * 60, 1 + prng.below(20) as usize);
            let mut model: BTreeMap<Key, Op> = BTreeMap::new();
            for step in 0..500 {
                let key = prng.below(100) as Key;
                assert_eq!(queue.find(key), model.get(&key).copied(), "seed {seed} step {step}");
                if prng.chance(30) {
                    let wanted: Vec<Op> = model.range(20..70).map(|(_, op)| *op).collect();
                    assert_eq!(queue.range(20, 70), wanted, "seed {seed} step {step}");
                }
                if queue.is_full() {
                    let batch = queue.batch(7);
                    assert!(!batch.is_empty() && batch.len() <= 7);
                    assert!(batch.is_sorted_by_key(|op| op.key));
                    batch.iter().for_each(|op| assert_eq!(model.remove(&op.key), Some(*op)));
                    queue.done(&batch);
                }
                let op = Op::insert(key, step);
                queue.push(op);
                model.insert(key, op);
            }
        }
    }
}
