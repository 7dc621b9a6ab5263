//! The coldest frames, in batches: how LRU and LRU-2 find victims without a list to keep on a hit.
//!
//! - Idea: look through all touch words once for a batch of the coldest; name them one by one,
//!   as long as their words have not changed since.
//! - State: the rest of the batch, coldest last.
//! - B1: a frame touched after the batch was chosen is passed over.
//! - B2: a batch is a 128th of the frames, so the order is exact to that.
//! - Cost: a hit is one store; a victim is 128 words read on average, and a few comparisons.
//! - Not for: many millions of frames in one partition, where a pass over the words stalls its
//!   lock.

use crate::{Frames, Touch};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use terrace_page::FrameId;

/// Frames looked through for each victim, on average.
const FRAMES_PER_VICTIM: u32 = 128;

/// How cold a frame is; more is colder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cold {
    pub age: u64,
    pub tie: u32,
}

impl Cold {
    /// The order of frames in one number, the coldest highest. The lower number is colder among
    /// equals, so that the order is total.
    #[inline]
    fn order(self, frame: FrameId) -> u128 {
        u128::from(self.age) << 64 | u128::from(self.tie) << 32 | u128::from(!frame.0)
    }
}

/// A frame found cold, and its word.
struct ColdFrame {
    frame: FrameId,
    word: u64,
}

pub struct Coldest {
    /// Coldest last.
    batch: Vec<ColdFrame>,
    batch_max: usize,
}

impl Coldest {
    pub fn new(frames_count: u32) -> Coldest {
        let batch_max = (frames_count / FRAMES_PER_VICTIM).max(1) as usize;
        Coldest { batch: Vec::with_capacity(batch_max), batch_max }
    }

    pub fn victims(
        &mut self,
        frames: &impl Frames,
        cold: impl Fn(FrameId, Touch) -> Cold,
        wanted: usize,
        out: &mut Vec<FrameId>,
    ) {
        let first = out.len();
        self.take(frames, first + wanted, out);
        if out.len() == first + wanted {
            return;
        }
        // The batch ran out. What it named already is still in place: ask for that much more.
        let named = out.len() - first;
        self.choose(frames, cold, self.batch_max.max(wanted) + named);
        self.batch.retain(|candidate| !out[first..].contains(&candidate.frame));
        self.take(frames, first + wanted, out);
    }

    /// Moves unchanged candidates to `out` until it is `enough` long.
    fn take(&mut self, frames: &impl Frames, enough: usize, out: &mut Vec<FrameId>) {
        while out.len() < enough {
            let Some(ColdFrame { frame, word }) = self.batch.pop() else { return };
            if frames.touch(frame).0 == word && frames.evictable(frame) {
                out.push(frame);
            }
        }
    }

    /// Fills the batch with the `count` coldest frames that are evictable.
    fn choose(
        &mut self,
        frames: &impl Frames,
        cold: impl Fn(FrameId, Touch) -> Cold,
        count: usize,
    ) {
        assert!(self.batch.is_empty());
        let mut found = Found { heap: BinaryHeap::new(), count, floor: 0 };
        for frame in 0..frames.count() {
            let frame = FrameId(frame);
            let order = cold(frame, frames.touch(frame)).order(frame);
            if order >= found.floor && frames.evictable(frame) {
                found.add(order);
            }
        }
        let mut coldest = found.heap.into_vec();
        coldest.sort_unstable_by(|a, b| b.cmp(a));
        self.batch.extend(coldest.into_iter().map(|Reverse(order)| {
            let frame = FrameId(!(order as u32));
            ColdFrame { frame, word: frames.touch(frame).0 }
        }));
    }
}

/// The coldest of the frames that were looked at.
struct Found {
    /// The root is the warmest of them.
    heap: BinaryHeap<Reverse<u128>>,
    count: usize,
    /// What is less is none of them.
    floor: u128,
}

impl Found {
    /// Out of the loop that has nothing to do for most frames.
    #[inline(never)]
    fn add(&mut self, order: u128) {
        if self.heap.len() < self.count {
            self.heap.push(Reverse(order));
        } else if let Some(mut warmest) = self.heap.peek_mut() {
            *warmest = Reverse(order);
        }
        if self.heap.len() == self.count {
            self.floor = self.heap.peek().map_or(0, |warmest| warmest.0);
        }
    }
}
