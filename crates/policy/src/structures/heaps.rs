//! Two indexed binary heaps that share one array [S0 3.1]: one grows from the left end, the other
//! from the right. A slot is in at most one of them, so an array as long as there are slots is
//! enough.
//!
//! ```text
//! entries: | left heap > |      gap      | < right heap |
//!          0        left_count      len - right_count    len
//! places:  where each slot stands in `entries`
//! ```
//!
//! - P1: the root of a heap is its least slot, by the keys that the caller passes to each call. A
//!   key may be dear to compute: on its way through a heap a slot's own is asked for once.
//! - P2: `entries[places[slot]] == slot` for each slot in a heap.
//! - P3: a slot in neither heap has any place: it is told by P2 failing or the gap.
//! - Cost: 8 bytes per slot; a change is O(log n).

/// Which of the two heaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Grows from the left end of the array.
    Left,
    /// Grows from the right end.
    Right,
}

/// Slots that a search below the root looks at, when the root is not eligible.
const SEARCH_MAX: usize = 64;

/// The ways through a heap are compiled for each side by itself, as a constant: at each step they
/// would ask for it.
const LEFT: bool = false;
const RIGHT: bool = true;

const fn side_of(is_right: bool) -> Side {
    if is_right { Side::Right } else { Side::Left }
}

pub struct Heaps {
    entries: Vec<u32>,
    places: Vec<u32>,
    left_count: u32,
    right_count: u32,
}

impl Heaps {
    pub fn new(slots_count: u32) -> Heaps {
        Heaps {
            entries: vec![0; slots_count as usize],
            places: vec![0; slots_count as usize],
            left_count: 0,
            right_count: 0,
        }
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        (self.entries.capacity() + self.places.capacity()) * size_of::<u32>()
    }

    pub fn count(&self, side: Side) -> u32 {
        match side {
            Side::Left => self.left_count,
            Side::Right => self.right_count,
        }
    }

    /// The heap that `slot` is in.
    #[inline]
    pub fn side(&self, slot: u32) -> Option<Side> {
        let place = self.places[slot as usize];
        if self.entries[place as usize] != slot {
            return None;
        }
        if place < self.left_count {
            Some(Side::Left)
        } else if place >= self.entries.len() as u32 - self.right_count {
            Some(Side::Right)
        } else {
            None
        }
    }

    pub fn insert<K: PartialOrd>(&mut self, side: Side, slot: u32, key: impl Fn(u32) -> K) {
        assert!(self.side(slot).is_none(), "slot {slot} is in a heap already");
        let index = self.count(side);
        match side {
            Side::Left => self.left_count += 1,
            Side::Right => self.right_count += 1,
        }
        self.put(side, index, slot);
        self.sift_up(side, index, &key);
    }

    /// Adds `slot` without order: `rebuild` must follow.
    pub fn append(&mut self, side: Side, slot: u32) {
        let index = self.count(side);
        match side {
            Side::Left => self.left_count += 1,
            Side::Right => self.right_count += 1,
        }
        self.put(side, index, slot);
    }

    /// Takes `slot` out of its heap, and says which it was.
    pub fn remove<K: PartialOrd>(&mut self, slot: u32, key: impl Fn(u32) -> K) -> Side {
        let side = self.side(slot).expect("the slot is in a heap");
        let index = self.index_of(side, slot);
        let last = self.count(side) - 1;
        let moved = self.at(side, last);
        match side {
            Side::Left => self.left_count -= 1,
            Side::Right => self.right_count -= 1,
        }
        if index != last {
            self.put(side, index, moved);
            self.restore(side, index, &key);
        }
        side
    }

    /// Restores the order after the key of `slot` has changed.
    pub fn changed<K: PartialOrd>(&mut self, slot: u32, key: impl Fn(u32) -> K) {
        let side = self.side(slot).expect("the slot is in a heap");
        let index = self.index_of(side, slot);
        self.restore(side, index, &key);
    }

    /// Restores the order after the key of `slot` has grown.
    pub fn grown<K: PartialOrd>(&mut self, slot: u32, key: impl Fn(u32) -> K) {
        let side = self.side(slot).expect("the slot is in a heap");
        self.sift_down(side, self.index_of(side, slot), &key);
    }

    /// Restores the order after the key of `slot` has shrunk.
    pub fn shrunk<K: PartialOrd>(&mut self, slot: u32, key: impl Fn(u32) -> K) {
        let side = self.side(slot).expect("the slot is in a heap");
        self.sift_up(side, self.index_of(side, slot), &key);
    }

    /// Restores the order after keys of many slots have changed, or slots were appended.
    pub fn rebuild<K: PartialOrd>(&mut self, side: Side, key: impl Fn(u32) -> K) {
        for index in (0..self.count(side) / 2).rev() {
            self.sift_down(side, index, &key);
        }
    }

    /// The least slot.
    pub fn root(&self, side: Side) -> Option<u32> {
        (self.count(side) > 0).then(|| self.at(side, 0))
    }

    /// The least slot that is `eligible`, or `None` if it is not among the least `SEARCH_MAX`.
    pub fn least<K: PartialOrd>(
        &self,
        side: Side,
        eligible: impl Fn(u32) -> bool,
        key: impl Fn(u32) -> K,
    ) -> Option<u32> {
        let root = self.root(side)?;
        if eligible(root) {
            return Some(root);
        }
        let mut frontier: Vec<u32> = self.children(side, 0).collect();
        for _ in 1..SEARCH_MAX {
            let mut best = 0;
            for at in 1..frontier.len() {
                if key(self.at(side, frontier[at])) < key(self.at(side, frontier[best])) {
                    best = at;
                }
            }
            if frontier.is_empty() {
                return None;
            }
            let index = frontier.swap_remove(best);
            if eligible(self.at(side, index)) {
                return Some(self.at(side, index));
            }
            frontier.extend(self.children(side, index));
        }
        None
    }

    /// The slots of a heap, in no useful order.
    pub fn slots(&self, side: Side) -> impl Iterator<Item = u32> + '_ {
        (0..self.count(side)).map(move |index| self.at(side, index))
    }

    /// Asserts P1 and P2.
    pub fn check<K: PartialOrd>(&self, side: Side, key: impl Fn(u32) -> K) {
        for index in 0..self.count(side) {
            let slot = self.at(side, index);
            assert_eq!(self.side(slot), Some(side), "P2: slot {slot}");
            assert_eq!(self.index_of(side, slot), index, "P2: slot {slot}");
            let parent = self.at(side, index.saturating_sub(1) / 2);
            assert!(index == 0 || key(slot) >= key(parent), "P1: slot {slot} below {parent}");
        }
    }

    fn children(&self, side: Side, index: u32) -> impl Iterator<Item = u32> {
        let count = self.count(side);
        [2 * index + 1, 2 * index + 2].into_iter().filter(move |&child| child < count)
    }

    fn restore<K: PartialOrd>(&mut self, side: Side, index: u32, key: &impl Fn(u32) -> K) {
        let index = self.sift_up(side, index, key);
        self.sift_down(side, index, key);
    }

    fn sift_up<K: PartialOrd>(&mut self, side: Side, index: u32, key: &impl Fn(u32) -> K) -> u32 {
        match side {
            Side::Left => self.sift_up_in::<LEFT, K>(index, key),
            Side::Right => self.sift_up_in::<RIGHT, K>(index, key),
        }
    }

    fn sift_down<K: PartialOrd>(&mut self, side: Side, index: u32, key: &impl Fn(u32) -> K) {
        match side {
            Side::Left => self.sift_down_in::<LEFT, K>(index, key),
            Side::Right => self.sift_down_in::<RIGHT, K>(index, key),
        }
    }

    #[inline]
    fn sift_up_in<const IS_RIGHT: bool, K: PartialOrd>(
        &mut self,
        mut index: u32,
        key: &impl Fn(u32) -> K,
    ) -> u32 {
        let side = side_of(IS_RIGHT);
        let slot = self.at(side, index);
        let own = key(slot);
        while index > 0 {
            let parent = (index - 1) / 2;
            let above = self.at(side, parent);
            if own >= key(above) {
                break;
            }
            self.put(side, index, above);
            index = parent;
        }
        self.put(side, index, slot);
        index
    }

    #[inline]
    fn sift_down_in<const IS_RIGHT: bool, K: PartialOrd>(
        &mut self,
        mut index: u32,
        key: &impl Fn(u32) -> K,
    ) {
        let side = side_of(IS_RIGHT);
        let slot = self.at(side, index);
        let own = key(slot);
        let count = self.count(side);
        loop {
            let mut child = 2 * index + 1;
            if child >= count {
                break;
            }
            let (left, right) = (self.at(side, child), self.at(side, (child + 1).min(count - 1)));
            let (left_key, right_key) = (key(left), key(right));
            // Which child is the lesser cannot be predicted: no branch depends on it.
            let is_right = right_key < left_key;
            child += u32::from(is_right);
            let (below, least) = if is_right { (right, right_key) } else { (left, left_key) };
            if least >= own {
                break;
            }
            self.put(side, index, below);
            index = child;
        }
        self.put(side, index, slot);
    }

    #[inline]
    fn place(&self, side: Side, index: u32) -> usize {
        match side {
            Side::Left => index as usize,
            Side::Right => self.entries.len() - 1 - index as usize,
        }
    }

    fn index_of(&self, side: Side, slot: u32) -> u32 {
        let place = self.places[slot as usize];
        match side {
            Side::Left => place,
            Side::Right => self.entries.len() as u32 - 1 - place,
        }
    }

    #[inline]
    fn at(&self, side: Side, index: u32) -> u32 {
        self.entries[self.place(side, index)]
    }

    #[inline]
    fn put(&mut self, side: Side, index: u32, slot: u32) {
        let place = self.place(side, index);
        self.entries[place] = slot;
        self.places[slot as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Ordering;
    use std::collections::BTreeMap;

    const SLOTS: u32 = 40;

    #[test]
    fn two_heaps_in_one_array_agree_with_sorted_lists() {
        for seed in 0..300 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let mut heaps = Heaps::new(SLOTS);
            let mut keys = vec![0u32; SLOTS as usize];
            let mut model: BTreeMap<u32, Side> = BTreeMap::new();
            for step in 0..400 {
                let slot = prng.u32(..SLOTS);
                let key = prng.u32(..30);
                match (prng.u8(..4), model.get(&slot).copied()) {
                    (0 | 1, None) => {
                        let side = if prng.bool() { Side::Left } else { Side::Right };
                        keys[slot as usize] = key;
                        heaps.insert(side, slot, |slot| by(&keys, slot));
                        model.insert(slot, side);
                    }
                    (0, Some(side)) => {
                        let from = heaps.remove(slot, |slot| by(&keys, slot));
                        assert_eq!(from, side, "seed {seed} step {step}");
                        model.remove(&slot);
                    }
                    (1, Some(_)) => {
                        let before = std::mem::replace(&mut keys[slot as usize], key);
                        let key_of = |slot| by(&keys, slot);
                        match key.cmp(&before) {
                            _ if prng.bool() => heaps.changed(slot, key_of),
                            Ordering::Less => heaps.shrunk(slot, key_of),
                            Ordering::Equal => {}
                            Ordering::Greater => heaps.grown(slot, key_of),
                        }
                    }
                    _ => {}
                }
                let banned = prng.u32(..SLOTS);
                for side in [Side::Left, Side::Right] {
                    heaps.check(side, |slot| by(&keys, slot));
                    let least = |eligible: &dyn Fn(u32) -> bool| {
                        let of_side = model.iter().filter(|row| *row.1 == side).map(|row| *row.0);
                        of_side.filter(|&slot| eligible(slot)).min_by_key(|&slot| by(&keys, slot))
                    };
                    let found = heaps.least(side, |slot| slot != banned, |slot| by(&keys, slot));
                    assert_eq!(heaps.root(side), least(&|_| true), "seed {seed} step {step}");
                    assert_eq!(found, least(&|slot| slot != banned), "seed {seed} step {step}");
                }
            }
        }
    }

    fn by(keys: &[u32], slot: u32) -> (u32, u32) {
        (keys[slot as usize], slot)
    }

    /// Pages that redo makes dirty come from flash with recLSNs of any age [S3 III-A]. In a list
    /// that is kept sorted, each walks past half of the others; in a heap, past a few.
    #[test]
    fn a_redo_in_any_order_takes_a_heap_few_steps_each() {
        // Keys that the heap asks for, and entries that a list would walk past from its end.
        let steps = |count: u32| {
            let mut keys: Vec<u32> = (0..count).collect();
            fastrand::Rng::with_seed(7).shuffle(&mut keys);
            let mut heaps = Heaps::new(count);
            let asked = std::cell::Cell::new(0u64);
            let key_of = |slot: u32| {
                asked.set(asked.get() + 1);
                keys[slot as usize]
            };
            let mut walked = 0;
            let mut sorted = Vec::new();
            for slot in 0..count {
                heaps.insert(Side::Right, slot, key_of);
                let key = keys[slot as usize];
                let place = sorted.partition_point(|&other| other < key);
                walked += (sorted.len() - place) as u64;
                sorted.insert(place, key);
            }
            for _ in 0..count {
                let least = heaps.root(Side::Right).expect("one is left");
                heaps.remove(least, key_of);
            }
            (asked.get(), walked)
        };
        let (small, large) = (steps(2_000), steps(32_000));
        let per_entry = |steps: u64, count: u64| steps / count;
        assert!(per_entry(large.0, 32_000) <= per_entry(small.0, 2_000) + 2 * 4 + 1, "{large:?}");
        assert!(per_entry(large.0, 32_000) <= 3 * 15, "{large:?}");
        let growth = per_entry(large.1, 32_000) as f64 / per_entry(small.1, 2_000) as f64;
        assert!((14.0..18.0).contains(&growth), "the list is quadratic: {growth}");
        assert!(large.1 > 100 * large.0, "{large:?}");
    }
}
