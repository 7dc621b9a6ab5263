//! The ends of two queues of frames, each in LRU order: the pages that are on flash, and the
//! others. GD2L and FASC take their victims there.
//!
//! - Idea: nothing is kept on a hit but the touch word, which tells when the page was used. The
//!   ends of the queues come from a look at all frames, a batch at a time.
//! - T1: a candidate counts only while its word and its queue are the same, and it may leave.
//! - T2: between two looks the order is exact for pages that do not move: what is used or enters
//!   since is younger than all candidates.
//! - T3: a page that moved, came unused, or could not leave when frames were looked at, is found
//!   at the next look.
//! - T4: a page read along, and not used yet, is older than all others (scan resistance).
//! - Cost: a look reads a word of each frame.

use crate::{Frames, Tick};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use terrace_page::FrameId;

/// A frame near the end of its queue. Of frames of one age the one with the lower number is nearer
/// to it, so that the order is total.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// Whether the page was not used yet (T4).
    pub is_unused: bool,
    /// Ticks since the last use, at the look.
    pub age: u64,
    number: Reverse<u32>,
    word: u64,
}

impl Candidate {
    pub fn frame(&self) -> FrameId {
        FrameId(self.number.0)
    }
}

/// The end of a queue, the oldest last.
#[derive(Default)]
struct Tail {
    batch: Vec<Candidate>,
    /// Whether the whole queue was in the batch when it was chosen.
    is_whole: bool,
}

/// The queues, in the order of their numbers: on flash, or not.
pub const QUEUES: [bool; 2] = [true, false];

/// The ends of both queues.
pub struct Tails {
    tails: [Tail; 2],
    batch_max: usize,
    /// The tick of the last look.
    looked_at: u64,
}

/// Whether the end of a queue is as long as was wanted, or whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    Known,
    /// Only a look can tell.
    Unknown,
}

/// What a look saw.
pub struct Looked {
    /// The tick of the oldest last use.
    pub oldest: u64,
    /// Pages of both queues.
    pub counts: [u64; 2],
    /// Pages that are newer than at home.
    pub ahead: u64,
}

impl Tails {
    /// Batches of `batch_max` frames from each queue.
    pub fn new(batch_max: usize) -> Tails {
        assert!(batch_max > 0);
        Tails { tails: Default::default(), batch_max, looked_at: 0 }
    }

    /// The tick of the last look.
    pub fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// The oldest `wanted` of `queue` that can leave and are not `named`, the oldest last; and
    /// whether there may be more, which only a look can tell.
    pub fn oldest(
        &mut self,
        queue: usize,
        wanted: usize,
        frames: &impl Frames,
        named: &[FrameId],
    ) -> (&[Candidate], Rest) {
        let tail = &mut self.tails[queue];
        let is_there = |candidate: &Candidate| {
            let frame = candidate.frame();
            frames.touch(frame).0 == candidate.word
                && queue_of(frames, frame) == Some(queue)
                && frames.evictable(frame)
                && !named.contains(&frame)
        };
        let (mut at, mut found) = (tail.batch.len(), 0);
        while at > 0 && found < wanted {
            at -= 1;
            if is_there(&tail.batch[at]) {
                found += 1;
            } else {
                tail.batch.remove(at);
            }
        }
        let is_enough = found == wanted || tail.is_whole;
        let rest = if is_enough { Rest::Known } else { Rest::Unknown };
        (&tail.batch[tail.batch.len() - found..], rest)
    }

    /// The candidate of `queue` that is `nth` from the end is a victim.
    pub fn take(&mut self, queue: usize, nth: usize) -> Candidate {
        let batch = &mut self.tails[queue].batch;
        batch.remove(batch.len() - 1 - nth)
    }

    /// Looks at all frames for the ends of both queues.
    pub fn look(&mut self, frames: &impl Frames, now: Tick, named: &[FrameId]) -> Looked {
        // The root is the warmest of the coldest so far.
        let mut heaps: [BinaryHeap<Reverse<Candidate>>; 2] = Default::default();
        let mut could_leave = [0_usize; 2];
        let mut looked = Looked { oldest: now.0, counts: [0; 2], ahead: 0 };
        for number in 0..frames.count() {
            let frame = FrameId(number);
            let Some(standing) = frames.standing(frame) else { continue };
            let queue = usize::from(!standing.is_on_flash);
            looked.counts[queue] += 1;
            looked.ahead += u64::from(standing.is_ahead_of_home);
            let touch = frames.touch(frame);
            let (is_unused, age) = (touch.is_unused(), u64::from(touch.age(now)));
            if !is_unused {
                looked.oldest = looked.oldest.min(now.0.saturating_sub(age));
            }
            let candidate =
                Reverse(Candidate { is_unused, age, number: Reverse(number), word: touch.0 });
            let heap = &mut heaps[queue];
            let is_full = heap.len() == self.batch_max;
            if is_full && heap.peek().is_some_and(|warmest| candidate >= *warmest) {
                could_leave[queue] += 1;
                continue;
            }
            if !frames.evictable(frame) || named.contains(&frame) {
                continue;
            }
            could_leave[queue] += 1;
            if is_full {
                heap.pop();
            }
            heap.push(candidate);
        }
        for ((tail, heap), count) in self.tails.iter_mut().zip(heaps).zip(could_leave) {
            tail.batch = heap.into_iter().map(|Reverse(candidate)| candidate).collect();
            tail.batch.sort_unstable();
            tail.is_whole = tail.batch.len() == count;
        }
        self.looked_at = now.0;
        looked
    }

    /// Forgets what was seen: the next victim is a look.
    #[cfg(test)]
    pub fn forget(&mut self) {
        self.tails = Default::default();
    }
}

/// The queue of a frame's page, if it has one.
fn queue_of(frames: &impl Frames, frame: FrameId) -> Option<usize> {
    frames.standing(frame).map(|standing| usize::from(!standing.is_on_flash))
}
