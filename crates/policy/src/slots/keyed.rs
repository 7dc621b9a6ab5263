//! A replacement policy over the slots of a flash tier: the numbers that the policy works on are
//! given to the pages in clean slots and to its ghosts.
//!
//! ```text
//!   slot:  free ----> taken ----> clean, with a key ----> free
//!                       ^              |  ^
//!                       |   taken out  v  | filled again: a newcomer, or one that was just used
//!                       +---------- without a key: newer than home, or its I/O in flight
//!   key:   unused ----> of a slot ----> of a ghost's page ----> unused
//! ```
//!
//! - K1: each key that the policy knows has one owner: a slot, if the key is cached, else the page
//!   of a ghost. No two keys have one owner.
//! - K2: a page that is newer than home has no key: it may not leave, and a policy that had to pass
//!   over half of its pages would search for long.
//! - K3: the policy's capacity is the number of slots, so that what fills a slot always has room.
//! - K4: where admission compares a page with the one that would give way, that one, the contender,
//!   has left the policy already, but not its slot. It stays the contender until a page takes its
//!   slot; if it is used, may not leave any more, or is gone, another is named.
//! - Cost: the policy's, 4 bytes per slot and 4 per key, and an entry of a hash table per ghost.
//! - Not for: rows whose order needs more than uses (temperatures, benefits).

use std::collections::HashMap;

use terrace_page::{PageId, SlotId};

use crate::replacement::{
    Forgetting, Key, Look, NoneMayLeave, Replace, ReplacementKind, ReplacementPolicy, Setup,
};

/// The slot has no key.
const NO_KEY: u32 = u32::MAX;
/// Nor has this one; its page was used since it was taken out.
const USED: u32 = u32::MAX - 1;

/// Why no slot gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// None of them may.
    Busy,
    /// The policy would rather keep all it has than take the new page.
    Preferred,
}

/// The slots of one partition, in the order of a replacement policy.
pub struct KeyedSlots {
    policy: ReplacementPolicy,
    /// The key of each slot, `NO_KEY` or `USED`.
    keys: Box<[u32]>,
    /// The owner of each key: a slot or, of a ghost, the number of its page.
    owners: Box<[u32]>,
    ghosts: HashMap<u32, Key>,
    /// The slot of the contender (K4).
    contender: Option<SlotId>,
    free_slots: Vec<u32>,
    free_keys: Vec<u32>,
    /// What opening found: last use, slot, page.
    found: Vec<(u64, u32, u32)>,
}

fn number_of(page: PageId) -> u32 {
    u32::try_from(page.0).expect("pages are numbered in 32 bits")
}

impl KeyedSlots {
    /// `slots_count` free slots, numbered from zero and taken in that order.
    ///
    /// # Panics
    ///
    /// If there are none, or too many for 32 bits with the policy's ghosts.
    #[must_use]
    pub fn new(kind: ReplacementKind, slots_count: u32) -> KeyedSlots {
        let keys_count = kind.row().keys_count(slots_count);
        assert!(keys_count < USED, "{keys_count} keys");
        let setup =
            Setup { capacity: slots_count, keys_count, forgetting: Forgetting::Told, seed: 1 };
        KeyedSlots {
            policy: ReplacementPolicy::new(kind, setup),
            keys: vec![NO_KEY; slots_count as usize].into(),
            owners: vec![0; keys_count as usize].into(),
            ghosts: HashMap::new(),
            contender: None,
            free_slots: (0..slots_count).rev().collect(),
            free_keys: (0..keys_count).rev().collect(),
            found: Vec::new(),
        }
    }

    /// Takes a free slot.
    pub fn take_free(&mut self) -> Option<SlotId> {
        self.free_slots.pop().map(SlotId)
    }

    /// The slot that gives way to `page`, and is its from now on. `page_of` tells which page a slot
    /// had.
    ///
    /// # Errors
    ///
    /// If none may, or the policy would have none.
    pub fn victim(
        &mut self,
        page: PageId,
        page_of: impl Fn(SlotId) -> PageId,
        evictable: impl Fn(SlotId) -> bool,
    ) -> Result<SlotId, Kept> {
        let (key, was_ghost) = self.key_for(page);
        let owners = &self.owners;
        let may_leave = |other: Key| evictable(SlotId(owners[other.0 as usize]));
        let inserted = self.policy.insert(key, page, |other| other == key || may_leave(other));
        let left = match inserted {
            Ok(None) => self.policy.evict(|other| other != key && may_leave(other)),
            Ok(left) => left,
            Err(NoneMayLeave) if was_ghost => {
                self.ghosts.insert(number_of(page), key);
                return Err(Kept::Busy);
            }
            Err(NoneMayLeave) => {
                self.free_keys.push(key.0);
                return Err(Kept::Busy);
            }
        };
        let Some(left) = left else {
            self.policy.remove(key);
            self.free_keys.push(key.0);
            self.forget();
            return Err(Kept::Busy);
        };
        if left == key {
            self.becomes_ghost(key, page);
            return Err(Kept::Preferred);
        }
        let slot = SlotId(self.owners[left.0 as usize]);
        self.keys[slot.0 as usize] = key.0;
        self.owners[key.0 as usize] = slot.0;
        self.becomes_ghost(left, page_of(slot));
        Ok(slot)
    }

    /// The slot that would give way next, for an admission that compares (K4). It is named again
    /// until `fill_clean`, `take_out` or `free` says that it holds something else.
    pub fn contender(
        &mut self,
        page_of: impl Fn(SlotId) -> PageId,
        evictable: impl Fn(SlotId) -> bool,
    ) -> Option<SlotId> {
        if let Some(slot) = self.contender {
            if evictable(slot) && self.keys[slot.0 as usize] == NO_KEY {
                return Some(slot);
            }
            self.contender = None;
            self.fill_clean(slot, page_of(slot));
        }
        let owners = &self.owners;
        let left = self.policy.evict(|key| evictable(SlotId(owners[key.0 as usize])))?;
        let slot = SlotId(self.owners[left.0 as usize]);
        self.keys[slot.0 as usize] = NO_KEY;
        self.becomes_ghost(left, page_of(slot));
        self.contender = Some(slot);
        Some(slot)
    }

    /// `slot` holds `page` as home does: it may leave when its turn comes.
    pub fn fill_clean(&mut self, slot: SlotId, page: PageId) {
        let before = self.keys[slot.0 as usize];
        if before < USED {
            return;
        }
        self.is_no_contender(slot);
        let (key, _) = self.key_for(page);
        let inserted = self.policy.insert(key, page, |_| false);
        assert_eq!(inserted, Ok(None), "room for {slot}");
        self.keys[slot.0 as usize] = key.0;
        self.owners[key.0 as usize] = slot.0;
        self.forget();
        if before == USED {
            self.hit(slot);
        }
    }

    /// `slot` holds a page newer than home (K2).
    pub fn take_out(&mut self, slot: SlotId) {
        self.is_no_contender(slot);
        let key = std::mem::replace(&mut self.keys[slot.0 as usize], NO_KEY);
        if key < USED {
            self.policy.remove(Key(key));
            self.free_keys.push(key);
            self.forget();
        }
    }

    /// `slot`, if it is the contender's, is about to hold something else (K4).
    pub fn is_no_contender(&mut self, slot: SlotId) {
        if self.contender == Some(slot) {
            self.contender = None;
        }
    }

    /// The page in `slot` is used.
    pub fn hit(&mut self, slot: SlotId) {
        match &mut self.keys[slot.0 as usize] {
            key if *key < USED => {
                self.policy.hit(Key(*key));
                self.forget();
            }
            key => *key = USED,
        }
    }

    /// The content of `slot` is gone.
    pub fn free(&mut self, slot: SlotId) {
        self.take_out(slot);
        self.free_slots.push(slot.0);
    }

    /// A new table is filled: `slot` holds `page`, last used at `last`.
    pub fn found(&mut self, slot: SlotId, page: PageId, last: crate::Tick) {
        self.found.push((last.0, slot.0, number_of(page)));
    }

    /// All was found. `is_dirty` tells of each slot that is filled whether it is newer than home.
    pub fn settle(&mut self, is_dirty: impl Fn(SlotId) -> Option<bool>) {
        self.free_slots = (0..self.keys.len() as u32)
            .rev()
            .filter(|&slot| is_dirty(SlotId(slot)).is_none())
            .collect();
        let mut found = std::mem::take(&mut self.found);
        found.sort_unstable();
        for (_, slot, page) in found {
            if is_dirty(SlotId(slot)) == Some(false) {
                self.fill_clean(SlotId(slot), PageId(u64::from(page)));
            }
        }
    }

    /// Bytes allocated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let words = self.keys.len()
            + self.owners.len()
            + self.free_slots.capacity()
            + self.free_keys.capacity();
        let ghost = size_of::<(u32, Key)>() + 1;
        self.policy.bytes() + 4 * words + self.ghosts.capacity() * ghost
    }

    /// A key for `page`: that of its ghost, if it has one.
    fn key_for(&mut self, page: PageId) -> (Key, bool) {
        match self.ghosts.remove(&number_of(page)) {
            Some(key) => (key, true),
            None => (Key(self.free_keys.pop().expect("as many keys as are known at once")), false),
        }
    }

    /// The page of `key` has left the cache; the policy may remember it.
    fn becomes_ghost(&mut self, key: Key, page: PageId) {
        self.owners[key.0 as usize] = number_of(page);
        self.ghosts.insert(number_of(page), key);
        self.forget();
    }

    /// Takes back the keys of which the policy knows nothing any more: they were ghosts'.
    fn forget(&mut self) {
        for Key(key) in self.policy.forgotten().drain(..) {
            let former = self.ghosts.remove(&self.owners[key as usize]);
            assert_eq!(former, Some(Key(key)), "only a ghost is forgotten");
            self.free_keys.push(key);
        }
    }

    /// Asserts K1.
    ///
    /// # Panics
    ///
    /// If it does not hold.
    pub fn check(&self) {
        let mut owned = 0;
        for (slot, &key) in (0..).zip(&self.keys) {
            if key < USED {
                assert_eq!(self.owners[key as usize], slot, "the owner of key {key}");
                assert!(self.policy.is_cached(Key(key)), "slot {slot} is not cached");
                owned += 1;
            }
        }
        for (&page, &Key(key)) in &self.ghosts {
            assert_eq!(self.owners[key as usize], page, "the owner of ghost {key}");
            assert!(!self.policy.is_cached(Key(key)), "ghost {key} is cached");
        }
        let unused = self.owners.len() - owned - self.ghosts.len();
        assert_eq!(self.free_keys.len(), unused, "a key is lost");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replacement::REPLACEMENTS;
    use std::collections::BTreeMap;

    const SLOTS: u32 = 12;
    const PAGES: u32 = 40;

    /// The same policy with a key for each page of the world, and slots in a map.
    struct Model {
        policy: ReplacementPolicy,
        slots: BTreeMap<u32, State>,
        free: Vec<u32>,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct State {
        page: u32,
        clean: bool,
        used: bool,
    }

    impl Model {
        fn new(kind: ReplacementKind) -> Model {
            let setup = Setup {
                capacity: SLOTS,
                keys_count: PAGES,
                forgetting: Forgetting::Silent,
                seed: 1,
            };
            let policy = ReplacementPolicy::new(kind, setup);
            Model { policy, slots: BTreeMap::new(), free: (0..SLOTS).rev().collect() }
        }

        fn slot_of(&self, page: u32) -> Option<u32> {
            self.slots.iter().find(|(_, state)| state.page == page).map(|(&slot, _)| slot)
        }

        fn victim(&mut self, page: u32, pinned: &[bool]) -> Result<u32, Kept> {
            let slots = &self.slots;
            let evictable = |key: Key| {
                let holder = slots.iter().find(|(_, state)| state.page == key.0);
                holder.is_some_and(|(&slot, state)| state.clean && !pinned[slot as usize])
            };
            let key = Key(page);
            let new = |other: Key| other == key || evictable(other);
            let left = match self.policy.insert(key, PageId(u64::from(page)), new) {
                Ok(None) => self.policy.evict(|other| other != key && evictable(other)),
                Ok(left) => left,
                Err(NoneMayLeave) => return Err(Kept::Busy),
            };
            match left {
                None => {
                    self.policy.remove(key);
                    Err(Kept::Busy)
                }
                Some(left) if left == key => Err(Kept::Preferred),
                Some(left) => Ok(self.slot_of(left.0).expect("a cached page has a slot")),
            }
        }

        fn fill(&mut self, slot: u32, page: u32, clean: bool) {
            let used = self.slots.get(&slot).is_some_and(|state| state.used);
            if clean && !self.policy.is_cached(Key(page)) {
                let inserted = self.policy.insert(Key(page), PageId(u64::from(page)), |_| false);
                assert_eq!(inserted, Ok(None));
                if used {
                    self.policy.hit(Key(page));
                }
            } else if !clean && self.policy.is_cached(Key(page)) {
                self.policy.remove(Key(page));
            }
            self.slots.insert(slot, State { page, clean, used: false });
        }
    }

    /// Every slot is filled; pages are used, freed, cleaned and pinned at random, and newcomers
    /// contend.
    #[test]
    fn a_contender_may_leave_and_stays_until_something_changes() {
        for row in REPLACEMENTS {
            for seed in 0..60 {
                contend(row.kind, seed);
            }
        }
    }

    fn contend(kind: ReplacementKind, seed: u64) {
        let mut prng = fastrand::Rng::with_seed(seed);
        let mut slots = KeyedSlots::new(kind, SLOTS);
        let mut pages: Vec<u32> = (0..SLOTS).collect();
        let mut pinned = vec![false; SLOTS as usize];
        for slot in 0..SLOTS {
            assert_eq!(slots.take_free(), Some(SlotId(slot)));
            slots.fill_clean(SlotId(slot), PageId(u64::from(slot)));
        }
        let mut last = None;
        for step in 0..400 {
            let at = format!("{kind:?} seed {seed} step {step}");
            let slot = SlotId(prng.u32(..SLOTS));
            match prng.u8(..5) {
                0 => slots.hit(slot),
                1 => pinned[slot.0 as usize] ^= true,
                2 => {
                    slots.free(slot);
                    assert_eq!(slots.take_free(), Some(slot), "{at}");
                    slots.fill_clean(slot, PageId(u64::from(pages[slot.0 as usize])));
                }
                _ => {}
            }
            let was_changed = last == Some(slot);
            let page_of = |slot: SlotId| PageId(u64::from(pages[slot.0 as usize]));
            let named = slots.contender(page_of, |slot| !pinned[slot.0 as usize]);
            let is_any = pinned.contains(&false);
            assert_eq!(named.is_some(), is_any, "{at}");
            assert!(named.is_none_or(|slot| !pinned[slot.0 as usize]), "{at}");
            if let Some(before) = last
                && !was_changed
                && !pinned[before.0 as usize]
            {
                assert_eq!(named, last, "K4, {at}");
            }
            last = named;
            if let Some(slot) = named.filter(|_| prng.u8(..3) == 0) {
                slots.is_no_contender(slot);
                let page = (100..).find(|page| !pages.contains(page) && prng.bool());
                pages[slot.0 as usize] = page.expect("there are others");
                slots.fill_clean(slot, PageId(u64::from(pages[slot.0 as usize])));
                last = None;
            }
            slots.check();
        }
    }

    #[test]
    fn slots_agree_with_a_policy_that_numbers_all_pages() {
        for row in REPLACEMENTS {
            for seed in 0..60 {
                against_the_model(row.kind, seed);
            }
        }
    }

    fn against_the_model(kind: ReplacementKind, seed: u64) {
        let mut prng = fastrand::Rng::with_seed(seed);
        let (mut model, mut slots) = (Model::new(kind), KeyedSlots::new(kind, SLOTS));
        let mut pinned = vec![false; SLOTS as usize];
        for step in 0..600 {
            let at = format!("{kind:?} seed {seed} step {step}");
            let page = prng.u32(..PAGES);
            match (model.slot_of(page), prng.u8(..8)) {
                (Some(slot), 0..=2) => {
                    let state = model.slots.get_mut(&slot).expect("it is there");
                    state.used |= !state.clean;
                    if state.clean {
                        model.policy.hit(Key(page));
                    }
                    slots.hit(SlotId(slot));
                }
                (Some(slot), 3) => {
                    if model.slots[&slot].clean {
                        model.policy.remove(Key(page));
                    }
                    model.slots.remove(&slot);
                    model.free.push(slot);
                    slots.free(SlotId(slot));
                }
                (Some(slot), 4) => {
                    // The cleaner wrote it, or a rewrite made it newer than home.
                    let clean = !model.slots[&slot].clean;
                    model.fill(slot, page, clean);
                    if clean {
                        slots.fill_clean(SlotId(slot), PageId(u64::from(page)));
                    } else {
                        slots.take_out(SlotId(slot));
                    }
                }
                (Some(slot), _) => pinned[slot as usize] ^= true,
                (None, choice) => {
                    let slot = match model.free.pop() {
                        Some(slot) => {
                            assert_eq!(slots.take_free(), Some(SlotId(slot)), "{at}");
                            Ok(slot)
                        }
                        None => {
                            assert_eq!(slots.take_free(), None, "{at}");
                            let got = slots.victim(
                                PageId(u64::from(page)),
                                |slot| PageId(u64::from(model.slots[&slot.0].page)),
                                |slot| model.slots[&slot.0].clean && !pinned[slot.0 as usize],
                            );
                            let expected = model.victim(page, &pinned);
                            assert_eq!(got.map(|slot| slot.0), expected, "{at}");
                            expected
                        }
                    };
                    if let Ok(slot) = slot {
                        model.slots.remove(&slot);
                        let clean = choice < 6;
                        model.fill(slot, page, clean);
                        if clean {
                            slots.fill_clean(SlotId(slot), PageId(u64::from(page)));
                        } else {
                            slots.take_out(SlotId(slot));
                        }
                    }
                }
            }
            slots.check();
        }
    }

    #[test]
    fn what_is_found_leaves_in_the_order_of_its_uses() {
        let lru = crate::replacement::find("lru").expect("a row").kind;
        let mut slots = KeyedSlots::new(lru, 4);
        for (slot, last) in [(0, 30), (2, 10), (3, 20)] {
            slots.found(SlotId(slot), PageId(100 + u64::from(slot)), crate::Tick(last));
        }
        slots.settle(|slot| (slot.0 != 1).then_some(slot.0 == 3));
        slots.check();
        assert_eq!(slots.take_free(), Some(SlotId(1)));
        let mut next =
            |page| slots.victim(PageId(page), |slot| PageId(u64::from(slot.0)), |slot| slot.0 != 3);
        assert_eq!(next(7), Ok(SlotId(2)));
        assert_eq!(next(8), Ok(SlotId(0)));
    }
}
