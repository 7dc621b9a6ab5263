//! Memory as the pool has it: its policies over frames and touch words, in one partition.
//!
//! - F1: a page is in one frame at most, and `places` says in which.
//! - F2: a frame without a page has none of them; frames fill up before anything leaves.

use std::cell::Cell;
use terrace_page::FrameId;
use terrace_policy::{Costs, FramePolicy, Frames, MemoryPolicy, QueueRules, Standing, Tick, Touch};

/// No frame.
const NONE: u32 = u32::MAX;

/// The frames.
pub struct PoolMemory {
    policy: FramePolicy,
    frames: Words,
    /// The frame of each page, or `NONE`.
    places: Vec<u32>,
}

/// What the policy looks at.
struct Words {
    touches: Vec<Cell<Touch>>,
    pages: Vec<u32>,
    frames_count: u32,
}

impl PoolMemory {
    /// Empty frames for pages below `pages_count`.
    pub fn new(policy: MemoryPolicy, frames_count: u32, pages_count: u32) -> PoolMemory {
        let frames = Words { touches: Vec::new(), pages: Vec::new(), frames_count };
        let policy =
            FramePolicy::new(policy, frames_count, &Costs::PUBLISHED, &QueueRules::default());
        PoolMemory { policy, frames, places: vec![NONE; pages_count as usize] }
    }

    /// `page` is used at `now`. Whether memory has it.
    pub fn hit(&mut self, page: u32, now: Tick) -> bool {
        let place = self.places[page as usize];
        if place == NONE {
            return false;
        }
        let word = &self.frames.touches[place as usize];
        word.set(word.get().hit(now));
        true
    }

    /// `page` comes to memory. The page that leaves for it, and when that was used.
    pub fn insert(&mut self, page: u32, touch: Touch, now: Tick) -> Option<(u32, Touch)> {
        if (self.frames.pages.len() as u32) < self.frames.frames_count {
            self.places[page as usize] = self.frames.pages.len() as u32;
            self.frames.pages.push(page);
            self.frames.touches.push(Cell::new(touch));
            return None;
        }
        let mut victims = Vec::with_capacity(1);
        self.policy.victims(&self.frames, now, 1, &mut victims);
        let frame = victims.first().expect("any page may leave").0 as usize;
        let left = std::mem::replace(&mut self.frames.pages[frame], page);
        let word = self.frames.touches[frame].replace(touch);
        self.places[left as usize] = NONE;
        self.places[page as usize] = frame as u32;
        Some((left, word))
    }
}

impl Frames for Words {
    fn count(&self) -> u32 {
        self.frames_count
    }

    fn touch(&self, frame: FrameId) -> Touch {
        self.touches[frame.0 as usize].get()
    }

    fn set_touch(&self, frame: FrameId, touch: Touch) {
        self.touches[frame.0 as usize].set(touch);
    }

    fn evictable(&self, frame: FrameId) -> bool {
        (frame.0 as usize) < self.pages.len()
    }

    fn standing(&self, frame: FrameId) -> Option<Standing> {
        let nowhere_else = Standing { is_on_flash: false, is_ahead_of_home: false };
        ((frame.0 as usize) < self.pages.len()).then_some(nowhere_else)
    }
}
