//! First in, first out for flash slots that are written in order: the multi-version FIFO of FaCE
//! with its groups and their second chance, and the rotating tier [S2 2; S0 5].
//!
//! - Idea: the slots are a ring. Pages are taken in at the rear, several next to each other, and
//!   leave at the front in groups; what the device sees is one long sequential write. A page that
//!   changes gets a new slot, and its old one is a hole until the front has passed it.
//! - State: where the rear is, how many slots are free from there on, the groups that are leaving
//!   in their order, and a bit for each slot that was hit.
//! - Q1: slots are taken in order, each when the front has passed it and its group has left.
//! - Q2: a group leaves in order, too: it may be over early, but its slots are free only when all
//!   before it are. So nothing is overwritten while a page of it is on its way elsewhere.
//! - Q3: of a group the holes and what home has too are dropped, the rest is written home; but with
//!   second chance, what was hit since it was taken in is to be taken in again, its bit cleared.
//! - Q4: a group never goes whole to the rear: if every page was hit, the front one is forced out.
//!   So each group frees a slot at least [sources.U1].
//! - Q5: a slot in use, or that is read, ends the group before it. So does a base for which there
//!   is no room at the rear: it can neither be dropped nor be written home.
//! - Cost: one bit per slot; a hit sets it.
//! - Not for: slots that can be written in any order, which lose hits to this order.
//!
//! ```text
//!        taken again <-------------- second chance --------------------+
//!             |                                                        |
//!  rear ->  new pages      older and older            front -> [ group leaving ] -> home, dropped
//!        +--------------+------------------------------+-----------------+--------------+
//!        | free         | newest                oldest | leaving         | free ...     |
//!        +--------------+------------------------------+-----------------+--------------+
//! ```
//! (drawn with the rear at the left; slot numbers rise towards the rear)

use std::collections::VecDeque;
use terrace_page::SlotId;

/// What a slot at the front holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fronted {
    /// Nothing that is still valid.
    Hole,
    /// A page that home has too.
    Clean,
    /// A page that is newer than at home.
    Dirty,
    /// A page that a task reads.
    Read,
    /// A copy on which changes were made that are nowhere else yet: it is taken in again, whatever
    /// else gives way.
    Base,
    /// Something that cannot leave now.
    InUse,
}

/// What becomes of a slot that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Its content is forgotten.
    Dropped,
    /// Its page is written home.
    Home,
    /// Its page is taken in again, at the rear.
    Again,
}

/// Slots that leave together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    first: u32,
    slots: u32,
    is_over: bool,
}

/// The ring of slots of one partition.
pub struct SlotFifo {
    slots: u32,
    /// The next slot to be taken.
    rear: u32,
    /// Slots that may be taken, from the rear on.
    free: u32,
    /// Behind the free ones, the slots that are leaving, oldest first.
    groups: VecDeque<Group>,
    leaving: u32,
    hit: Box<[u64]>,
    second_chance: bool,
}

impl SlotFifo {
    /// A ring of `slots_count` free slots, numbered from zero, taken in that order.
    ///
    /// # Panics
    ///
    /// If there are no slots, or more than 2^31.
    #[must_use]
    pub fn new(slots_count: u32, second_chance: bool) -> SlotFifo {
        assert!(slots_count > 0);
        assert!(slots_count <= 1 << 31);
        SlotFifo {
            slots: slots_count,
            rear: 0,
            free: slots_count,
            groups: VecDeque::new(),
            leaving: 0,
            hit: vec![0; slots_count.div_ceil(u64::BITS) as usize].into(),
            second_chance,
        }
    }

    /// Slots that can be taken now.
    #[must_use]
    #[inline]
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Slots of groups that are leaving.
    #[must_use]
    #[inline]
    pub fn leaving(&self) -> u32 {
        self.leaving
    }

    /// Slots between front and rear, holes among them.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.slots - self.free - self.leaving
    }

    /// Takes the slot at the rear, if it is free (Q1).
    #[inline]
    pub fn take(&mut self) -> Option<SlotId> {
        if self.free == 0 {
            return None;
        }
        let slot = self.rear;
        self.rear = self.after(slot, 1);
        self.free -= 1;
        self.set_hit(slot, false);
        Some(SlotId(slot))
    }

    /// The page in `slot` was asked for.
    #[inline]
    pub fn hit(&mut self, slot: SlotId) {
        self.set_hit(slot.0, true);
    }

    /// Whether `slot` is in a group that is leaving.
    #[must_use]
    #[inline]
    pub fn is_leaving(&self, slot: SlotId) -> bool {
        let behind_rear = self.distance(self.rear, slot.0);
        (self.free..self.free + self.leaving).contains(&behind_rear)
    }

    /// The slots that are held, from the front on.
    pub fn in_order(&self) -> impl Iterator<Item = SlotId> + '_ {
        let front = self.front();
        (0..self.held()).map(move |at| SlotId(self.after(front, at)))
    }

    /// Begins to let a group leave: up to `group` slots from the front on, of which `held` tells
    /// what they hold. At most `room` of them are to be taken in again. Appends them to `out`, in
    /// order; `left` must be told when they are done with. Says how many they are.
    pub fn leave(
        &mut self,
        group: u32,
        room: u32,
        held: impl Fn(SlotId) -> Fronted,
        out: &mut Vec<(SlotId, Leave)>,
    ) -> u32 {
        let (first, begin) = (self.front(), out.len());
        let mut bases = 0;
        for at in 0..group.min(self.held()) {
            let slot = SlotId(self.after(first, at));
            let was_hit = self.second_chance && self.was_hit(slot.0);
            out.push(match held(slot) {
                Fronted::InUse | Fronted::Read => break,
                Fronted::Base if bases == room => break,
                Fronted::Base => {
                    bases += 1;
                    (slot, Leave::Again)
                }
                Fronted::Hole => (slot, Leave::Dropped),
                Fronted::Clean | Fronted::Dirty if was_hit => (slot, Leave::Again),
                Fronted::Clean => (slot, Leave::Dropped),
                Fronted::Dirty => (slot, Leave::Home),
            });
        }
        let slots = (out.len() - begin) as u32;
        if slots == 0 {
            return 0;
        }
        let again = out[begin..].iter().filter(|(_, leave)| *leave == Leave::Again).count() as u32;
        // Q4.
        let forced = again - bases.max(again.min(room.min(slots - 1)));
        let second = out[begin..]
            .iter_mut()
            .filter(|(slot, leave)| *leave == Leave::Again && held(*slot) != Fronted::Base);
        for (slot, leave) in second.take(forced as usize) {
            *leave = if held(*slot) == Fronted::Dirty { Leave::Home } else { Leave::Dropped };
        }
        self.groups.push_back(Group { first, slots, is_over: false });
        self.leaving += slots;
        slots
    }

    /// The group that began with slot `first` is done with: its slots are free as soon as those
    /// of the groups before it are (Q2).
    ///
    /// # Panics
    ///
    /// If no such group is leaving.
    pub fn left(&mut self, first: SlotId) {
        let group = self.groups.iter_mut().find(|group| group.first == first.0 && !group.is_over);
        group.expect("a group that is leaving").is_over = true;
        while let Some(group) = self.groups.front().filter(|group| group.is_over) {
            self.free += group.slots;
            self.leaving -= group.slots;
            self.groups.pop_front();
        }
    }

    /// A new ring is filled with what was found. Which slot was the rear is not told: it is where
    /// the longest run without a page begins, since the ring keeps some slots free ahead of it.
    ///
    /// # Panics
    ///
    /// If a slot was taken before.
    pub fn restore(&mut self, is_filled: impl Fn(SlotId) -> bool) {
        assert_eq!(self.free, self.slots, "a new ring");
        let (mut best, mut run) = ((0, 0), 0);
        // Twice round, so that a run across the end is seen whole.
        for at in 0..2 * self.slots {
            run = if is_filled(SlotId(at % self.slots)) { 0 } else { run + 1 };
            if run > best.1 && run <= self.slots {
                best = (at + 1 - run, run);
            }
        }
        self.rear = best.0 % self.slots;
        self.free = best.1;
    }

    /// Bytes allocated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.hit) + self.groups.capacity() * size_of::<Group>()
    }

    /// Asserts that groups lie next to each other, behind the free slots.
    pub fn check(&self) {
        let mut first = self.after(self.rear, self.free);
        for group in &self.groups {
            assert_eq!(group.first, first, "groups leave in order");
            first = self.after(first, group.slots);
        }
        let leaving: u32 = self.groups.iter().map(|group| group.slots).sum();
        assert_eq!(leaving, self.leaving);
        assert!(self.free + self.leaving <= self.slots);
        assert!(self.groups.front().is_none_or(|group| !group.is_over), "it would be free");
    }

    fn front(&self) -> u32 {
        self.after(self.rear, self.free + self.leaving)
    }

    fn after(&self, slot: u32, more: u32) -> u32 {
        (slot + more) % self.slots
    }

    fn distance(&self, from: u32, to: u32) -> u32 {
        (to + self.slots - from) % self.slots
    }

    fn was_hit(&self, slot: u32) -> bool {
        self.hit[(slot / u64::BITS) as usize] >> (slot % u64::BITS) & 1 == 1
    }

    #[inline]
    fn set_hit(&mut self, slot: u32, hit: bool) {
        let (word, bit) = (&mut self.hit[(slot / u64::BITS) as usize], 1 << (slot % u64::BITS));
        if hit {
            *word |= bit;
        } else {
            *word &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    const SLOTS: u32 = 12;

    /// Slots in queues, one object each.
    struct Model {
        free: VecDeque<u32>,
        held: VecDeque<u32>,
        leaving: VecDeque<(Vec<u32>, bool)>,
        content: [Fronted; SLOTS as usize],
        hit: [bool; SLOTS as usize],
        second_chance: bool,
    }

    impl Model {
        fn new(second_chance: bool) -> Model {
            Model {
                free: (0..SLOTS).collect(),
                held: VecDeque::new(),
                leaving: VecDeque::new(),
                content: [Fronted::Hole; SLOTS as usize],
                hit: [false; SLOTS as usize],
                second_chance,
            }
        }

        fn take(&mut self, content: Fronted) -> Option<u32> {
            let slot = self.free.pop_front()?;
            self.held.push_back(slot);
            self.content[slot as usize] = content;
            self.hit[slot as usize] = false;
            Some(slot)
        }

        fn leave(&mut self, group: u32, room: u32) -> Vec<(SlotId, Leave)> {
            let (mut slots, mut bases) = (Vec::new(), Vec::new());
            while let Some(&slot) = self.held.front().filter(|_| slots.len() < group as usize) {
                match self.content_of(slot) {
                    Fronted::InUse => break,
                    Fronted::Base if bases.len() == room as usize => break,
                    Fronted::Base => bases.push(slot),
                    _ => {}
                }
                slots.extend(self.held.pop_front());
            }
            let forced = |slot: u32| match self.content_of(slot) {
                Fronted::Dirty => Leave::Home,
                _ => Leave::Dropped,
            };
            let qualifies = |slot: u32| {
                let is_valid = matches!(self.content_of(slot), Fronted::Clean | Fronted::Dirty);
                is_valid && self.second_chance && self.hit[slot as usize]
            };
            let mut again: Vec<u32> = slots.iter().copied().filter(|&it| qualifies(it)).collect();
            if !again.is_empty() && again.len() + bases.len() == slots.len() {
                again.remove(0);
            }
            while !again.is_empty() && again.len() + bases.len() > room as usize {
                again.remove(0);
            }
            let answer = |slot: u32| match again.contains(&slot) || bases.contains(&slot) {
                true => Leave::Again,
                false => forced(slot),
            };
            let answers = slots.iter().map(|&slot| (SlotId(slot), answer(slot))).collect();
            if !slots.is_empty() {
                self.leaving.push_back((slots, false));
            }
            answers
        }

        fn content_of(&self, slot: u32) -> Fronted {
            self.content[slot as usize]
        }

        fn left(&mut self, first: u32) {
            let group = self.leaving.iter_mut().find(|(slots, over)| slots[0] == first && !over);
            group.unwrap().1 = true;
            while let Some((slots, true)) = self.leaving.front() {
                self.free.extend(slots);
                self.leaving.pop_front();
            }
        }
    }

    fn some_content(prng: &mut Rng) -> Fronted {
        match prng.u32(..9) {
            0 => Fronted::Hole,
            1 => Fronted::InUse,
            2 => Fronted::Base,
            3..6 => Fronted::Clean,
            _ => Fronted::Dirty,
        }
    }

    #[test]
    fn the_ring_agrees_with_its_model() {
        for seed in 0..2_000 {
            let mut prng = Rng::with_seed(seed);
            let second_chance = seed % 2 == 0;
            let mut fifo = SlotFifo::new(SLOTS, second_chance);
            let mut model = Model::new(second_chance);
            for step in 0..120 {
                let context = format!("seed {seed} step {step}");
                match prng.u32(..8) {
                    0..3 => {
                        let taken = model.take(some_content(&mut prng));
                        assert_eq!(fifo.take(), taken.map(SlotId), "{context}");
                    }
                    3 => {
                        let slot = prng.u32(..SLOTS);
                        fifo.hit(SlotId(slot));
                        model.hit[slot as usize] = true;
                    }
                    4 => {
                        let slot = prng.usize(..SLOTS as usize);
                        model.content[slot] = some_content(&mut prng);
                    }
                    5 => {
                        let (group, room) = (prng.u32(1..7), prng.u32(..6));
                        let mut out = Vec::new();
                        let content = model.content;
                        let held = |slot: SlotId| content[slot.0 as usize];
                        let count = fifo.leave(group, room, held, &mut out);
                        assert_eq!(out, model.leave(group, room), "{context}");
                        assert_eq!(count as usize, out.len());
                    }
                    _ if !model.leaving.is_empty() => {
                        let at = prng.usize(..model.leaving.len());
                        if let (slots, false) = &model.leaving[at] {
                            let first = slots[0];
                            fifo.left(SlotId(first));
                            model.left(first);
                        }
                    }
                    _ => {}
                }
                fifo.check();
                let leaving: Vec<u32> =
                    model.leaving.iter().flat_map(|(slots, _)| slots.iter().copied()).collect();
                assert_eq!(fifo.free() as usize, model.free.len(), "{context}");
                assert_eq!(fifo.leaving() as usize, leaving.len(), "{context}");
                assert!(fifo.in_order().map(|slot| slot.0).eq(model.held.iter().copied()));
                for slot in 0..SLOTS {
                    let is_leaving = leaving.contains(&slot);
                    assert_eq!(fifo.is_leaving(SlotId(slot)), is_leaving, "{context}");
                }
            }
        }
    }

    /// Progress: however pages are hit, a full ring takes in new ones for ever.
    #[test]
    fn a_ring_of_pages_that_are_all_hit_goes_on() {
        let mut fifo = SlotFifo::new(8, true);
        while fifo.take().is_some() {}
        for round in 0..50 {
            (0..8).for_each(|slot| fifo.hit(SlotId(slot)));
            let mut out = Vec::new();
            assert_eq!(fifo.leave(4, fifo.free(), |_| Fronted::Clean, &mut out), 4);
            let again = out.iter().filter(|(_, leave)| *leave == Leave::Again).count();
            assert!(again <= 3, "round {round}: {out:?}");
            assert_ne!(out[0].1, Leave::Again, "the front one is forced out");
            fifo.left(out[0].0);
            for _ in 0..=again {
                assert!(fifo.take().is_some(), "room for the second chances, and a new page");
            }
        }
    }

    #[test]
    fn a_found_ring_goes_on_where_most_slots_are_free() {
        // Free: 2, 3; 5; 9, 10, 11, 0.
        let filled = [1, 4, 6, 7, 8];
        let mut fifo = SlotFifo::new(12, true);
        fifo.restore(|slot| filled.contains(&slot.0));
        fifo.check();
        assert_eq!((fifo.free(), fifo.held()), (4, 8));
        assert_eq!(fifo.take(), Some(SlotId(9)));
        assert_eq!(fifo.in_order().next(), Some(SlotId(1)));
        let mut full = SlotFifo::new(3, true);
        full.restore(|_| true);
        assert_eq!((full.free(), full.held()), (0, 3));
        let mut empty = SlotFifo::new(3, true);
        empty.restore(|_| false);
        assert_eq!((empty.free(), empty.take()), (3, Some(SlotId(0))));
    }

    #[test]
    fn a_bit_holds_a_slot() {
        assert_eq!(SlotFifo::new(6_400, true).bytes(), 800);
    }
}
