//! The free slots of a partition as a stack: the slot that became free last is taken first. A slot
//! that is free has no other content, so the stack is threaded through what its owner keeps of each
//! slot: the owner stores and reads the link of a slot, the stack knows only its head.

/// End of the stack: owners have 31 bits for a link.
pub(crate) const END: u32 = (1 << 31) - 1;

/// The stack.
pub(crate) struct FreeStack {
    head: u32,
    count: u32,
}

impl FreeStack {
    /// A stack of no slots.
    pub const EMPTY: FreeStack = FreeStack { head: END, count: 0 };

    /// The slots below `count`, which are taken in that order.
    ///
    /// # Panics
    ///
    /// If there are none, or 2^31 - 1 or more.
    pub fn full(count: u32) -> FreeStack {
        assert!(count > 0, "a partition has slots");
        assert!(count < END, "links have 31 bits");
        FreeStack { head: 0, count }
    }

    /// The links of a stack of all slots below `count`.
    pub fn links(count: u32) -> impl Iterator<Item = u32> {
        (1..count).chain([END])
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// Takes the slot on top; `link_of` tells its link.
    pub fn pop(&mut self, link_of: impl FnOnce(u32) -> u32) -> Option<u32> {
        if self.head == END {
            return None;
        }
        let slot = self.head;
        self.head = link_of(slot);
        self.count -= 1;
        Some(slot)
    }

    /// Puts `slot` on top. Returns the link to store for it.
    #[must_use]
    pub fn push(&mut self, slot: u32) -> u32 {
        self.count += 1;
        std::mem::replace(&mut self.head, slot)
    }

    /// All of them, from the top.
    pub fn iter(&self, link_of: impl Fn(u32) -> u32) -> impl Iterator<Item = u32> {
        let some = |slot| (slot != END).then_some(slot);
        std::iter::successors(some(self.head), move |&slot| some(link_of(slot)))
    }

    /// Asserts that it ends where its count says, and that all of its slots are free.
    pub fn check(&self, link_of: impl Fn(u32) -> u32, is_free: impl Fn(u32) -> bool) {
        let mut count = 0;
        for slot in self.iter(link_of).take(self.count as usize + 1) {
            assert!(is_free(slot), "slot {slot} is on the free stack");
            count += 1;
        }
        assert_eq!(count, self.count, "the free stack ends where its count says");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_slots_are_a_stack() {
        const SLOTS: u32 = 9;
        for seed in 0..100 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let mut links: Vec<u32> = FreeStack::links(SLOTS).collect();
            let (mut stack, mut model) = (FreeStack::full(SLOTS), Vec::from_iter((0..SLOTS).rev()));
            let mut taken = Vec::new();
            for _ in 0..100 {
                if prng.bool() {
                    let slot = stack.pop(|slot| links[slot as usize]);
                    assert_eq!(slot, model.pop(), "seed {seed}");
                    taken.extend(slot);
                } else if !taken.is_empty() {
                    let slot = taken.swap_remove(prng.usize(..taken.len()));
                    links[slot as usize] = stack.push(slot);
                    model.push(slot);
                }
                assert_eq!(stack.count() as usize, model.len(), "seed {seed}");
                let slots: Vec<u32> = stack.iter(|slot| links[slot as usize]).collect();
                assert!(slots.iter().eq(model.iter().rev()), "seed {seed}");
                stack.check(|slot| links[slot as usize], |slot| !taken.contains(&slot));
            }
        }
    }
}
