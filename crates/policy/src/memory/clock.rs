//! CLOCK: first in, first out, with a second chance (Corbato, 1968).
//!
//! - Idea: a hit marks a frame. The hand unmarks frames until it meets an unmarked one, the victim.
//! - State: the marks, which are a bit of the touch words, and the hand.
//! - C1: a frame that may not be evicted keeps its mark.
//! - Cost: a hit is one store; a batch takes at most two laps, since the first unmarks every frame
//!   that it passes.
//! - Not for: scans longer than memory, which push all else out.

use crate::Frames;
use terrace_page::FrameId;

/// Laps of the hand for one batch.
const LAPS_MAX: u64 = 2;

#[derive(Default)]
pub struct Clock {
    hand: u32,
}

impl Clock {
    pub fn victims(&mut self, frames: &impl Frames, wanted: usize, out: &mut Vec<FrameId>) {
        let count = frames.count();
        let first = out.len();
        let enough = first + wanted.min(count as usize);
        for passed in 0..LAPS_MAX * u64::from(count) {
            if out.len() >= enough {
                return;
            }
            let frame = FrameId(self.hand);
            self.hand = (self.hand + 1) % count;
            if !frames.evictable(frame) {
                continue;
            }
            let touch = frames.touch(frame);
            if touch.is_marked() {
                frames.set_touch(frame, touch.unmarked());
            } else if passed < u64::from(count) || !out[first..].contains(&frame) {
                out.push(frame);
            }
        }
    }
}
