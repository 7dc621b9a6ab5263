//! Memory at work: the pool's policies over frames and touch words, in one partition, or any
//! replacement policy over pages.
//!
//! - M1: pages that wait for their group are in memory and are named no more, unless they are used.
//!   A replacement policy has forgotten them: it gets fewer pages than memory has by a group, and
//!   what is used while it waits comes back to it with the group.
//! - M2: before a policy of the pool is asked for a victim, all frames are taken.
//! - M3: a reference is known when it is served. By then the pages that other clients wait for, and
//!   that come later in the trace, have frames. They take half of the frames at most.

use super::residents::{Frame, Residents, View};
use super::{FlashTier, MemoryRule};
use terrace_page::{FrameId, PageId};
use terrace_policy::replacement::{Forgetting, Key, Look, Replace, ReplacementPolicy, Setup};
use terrace_policy::{Costs, FramePolicy, QueueRules, Tick};

/// What chooses victims.
enum Chooser {
    Pool(FramePolicy),
    Policy(ReplacementPolicy),
    /// There is no memory: nothing stays.
    Nobody,
}

/// Memory.
pub struct PageMemory {
    pub residents: Residents,
    chooser: Chooser,
    frames_count: u32,
    /// Frames beside, of pages that are on their way home.
    homeward_max: u32,
    /// Frames of pages that other clients wait for (M3).
    in_flight: u32,
    /// The last victim.
    victims: Vec<FrameId>,
}

impl PageMemory {
    /// `frames` empty frames under `rule` for pages below `pages_count`, of which up to `group`
    /// wait at a time; or none. Beside them up to `homeward_max` pages may be on their way home.
    pub fn new(
        policy: Option<(MemoryRule, u32)>,
        (group, homeward_max): (u32, u32),
        pages_count: u32,
        (costs, seed): (&Costs, u64),
    ) -> PageMemory {
        let chooser = match policy {
            None => Chooser::Nobody,
            Some((MemoryRule::Pool(policy), frames)) => {
                let rules = QueueRules::default();
                let all = frames.saturating_add(homeward_max);
                Chooser::Pool(FramePolicy::new(policy, all, costs, &rules))
            }
            Some((MemoryRule::Policy(row), frames)) => {
                let capacity = frames.saturating_sub(group.saturating_sub(1)).max(1);
                let forgetting = Forgetting::Silent;
                let setup = Setup { capacity, keys_count: pages_count, forgetting, seed };
                Chooser::Policy(ReplacementPolicy::new(row.kind, setup))
            }
        };
        let frames_count = policy.map_or(0, |(_, frames)| frames);
        let residents = Residents::new(pages_count);
        PageMemory {
            residents,
            chooser,
            frames_count,
            homeward_max,
            in_flight: 0,
            victims: Vec::new(),
        }
    }

    /// Bytes allocated. A policy of the pool has a batch of frames at most.
    pub fn bytes(&self) -> usize {
        let policy = match &self.chooser {
            Chooser::Policy(policy) => policy.bytes(),
            Chooser::Pool(_) | Chooser::Nobody => 0,
        };
        policy + self.residents.bytes()
    }

    /// `page` is used at `now`. Whether memory has it.
    #[inline]
    pub fn hit(&mut self, page: u32, now: Tick) -> bool {
        let Some(frame) = self.residents.get_mut(page) else { return false };
        frame.touch.set(frame.touch.get().hit(now));
        frame.hits = frame.hits.saturating_add(1);
        frame.waits = false;
        if let Chooser::Policy(policy) = &mut self.chooser {
            policy.hit(Key(page));
        }
        true
    }

    /// Whether the pool's frames are at work, so that a page is found in its own while it is
    /// written home.
    pub fn is_of_pool(&self) -> bool {
        matches!(self.chooser, Chooser::Pool(_))
    }

    /// Whether a page must leave before another one comes (M2), when `homeward` pages are on their
    /// way home.
    pub fn is_full(&self, homeward: u32) -> bool {
        !self.has_room(1, homeward)
    }

    /// Whether `pages` pages may come without one that leaves, when `homeward` pages are on their
    /// way home. A replacement policy tells with each page which one leaves for it.
    pub fn has_room(&self, pages: u32, homeward: u32) -> bool {
        match &self.chooser {
            Chooser::Pool(_) => {
                let others = self.in_flight.min(self.frames_count / 2);
                self.residents.count() + pages + others <= self.frames_count + homeward
            }
            Chooser::Policy(_) | Chooser::Nobody => true,
        }
    }

    /// Other clients wait for `pages` pages (M3).
    pub fn wait_for(&mut self, pages: u32) {
        self.in_flight = pages;
    }

    /// The page that leaves next a full memory of the pool. `None` if all wait.
    pub fn victim(&mut self, flash: &impl FlashTier, now: Tick) -> Option<u32> {
        let Chooser::Pool(policy) = &mut self.chooser else { return None };
        if let Some(ratio) = self.residents.price_ratio.take() {
            policy.set_price_ratio(ratio);
        }
        let (residents, frames_count) = (&self.residents, self.frames_count + self.homeward_max);
        self.victims.clear();
        policy.victims(&View::new(residents, flash, frames_count), now, 1, &mut self.victims);
        self.victims.first().map(|&frame| residents.page_in(frame))
    }

    /// Frames.
    pub fn frames_count(&self) -> u32 {
        self.frames_count
    }

    /// `page` comes. Returns the page that leaves for it, if that was not asked before.
    pub fn put(&mut self, page: u32, frame: Frame) -> Option<u32> {
        self.residents.put(page, frame);
        match &mut self.chooser {
            Chooser::Pool(_) => None,
            Chooser::Policy(_) => self.know(page),
            Chooser::Nobody => Some(page),
        }
    }

    /// A page that was named, and then used, is one like any other again (M1). Returns the page
    /// that leaves for it.
    pub fn come_back(&mut self, page: u32) -> Option<u32> {
        if matches!(self.chooser, Chooser::Policy(_)) { self.know(page) } else { None }
    }

    fn know(&mut self, page: u32) -> Option<u32> {
        let Chooser::Policy(policy) = &mut self.chooser else { return None };
        let left = policy.insert(Key(page), PageId(u64::from(page)), |_| true);
        left.expect("any page may leave").map(|key| key.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_policy::MemoryPolicy;

    /// Memory missed 2 to 3% less than that of an engine whose 50 clients had their pages in
    /// flight, in 50 of its 500 frames.
    #[test]
    fn pages_that_other_clients_wait_for_have_frames() {
        let rule = Some((MemoryRule::Pool(MemoryPolicy::Lru2), 10));
        let mut memory = PageMemory::new(rule, (0, 4), 100, (&Costs::PUBLISHED, 0));
        (0..6).for_each(|page| assert_eq!(memory.put(page, Frame::default()), None));
        assert!(memory.has_room(4, 0) && !memory.has_room(5, 0));
        memory.wait_for(3);
        assert!(memory.has_room(1, 0) && !memory.has_room(2, 0));
        assert!(!memory.is_full(0));
        assert!(memory.has_room(2, 1), "of pages that go home, frames come beside");
        memory.wait_for(100);
        assert!(memory.is_full(0) && memory.has_room(1, 2), "half of the frames at most");
    }
}
