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

/// A frame found cold. The lower number is colder among equals, so that the order is total.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    cold: Cold,
    tie: Reverse<u32>,
    word: u64,
}

pub struct Coldest {
    /// Coldest last.
    batch: Vec<Reverse<Candidate>>,
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
        self.batch.retain(|Reverse(candidate)| !out[first..].contains(&FrameId(candidate.tie.0)));
        self.take(frames, first + wanted, out);
    }

    /// Moves unchanged candidates to `out` until it is `enough` long.
    fn take(&mut self, frames: &impl Frames, enough: usize, out: &mut Vec<FrameId>) {
        while out.len() < enough {
            let Some(Reverse(candidate)) = self.batch.pop() else { return };
            let frame = FrameId(candidate.tie.0);
            if frames.touch(frame).0 == candidate.word && frames.evictable(frame) {
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
        // The root is the warmest of the coldest so far.
        let mut heap = BinaryHeap::from(std::mem::take(&mut self.batch));
        for frame in 0..frames.count() {
            let touch = frames.touch(FrameId(frame));
            let candidate = Reverse(Candidate {
                cold: cold(FrameId(frame), touch),
                tie: Reverse(frame),
                word: touch.0,
            });
            let full = heap.len() == count;
            if full && heap.peek().is_some_and(|warmest| candidate >= *warmest) {
                continue;
            }
            if !frames.evictable(FrameId(frame)) {
                continue;
            }
            if full {
                heap.pop();
            }
            heap.push(candidate);
        }
        self.batch = heap.into_vec();
        self.batch.sort_unstable_by(|a, b| b.cmp(a));
    }
}
