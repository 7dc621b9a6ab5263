//! SIEVE: first in, first out, from which a hand takes what was not used since it last came by
//! (Zhang et al., "SIEVE is simpler than LRU", NSDI 2024).
//!
//! - Idea: a hit marks a frame. The hand goes from the oldest to the newest: it unmarks the marked,
//!   which stay where they are, and takes the first unmarked. What comes in goes to the newest end,
//!   so that the hand meets it last, and what is used once leaves soon.
//! - State: the marks, which are a bit of the touch words; the order of arrival; the hand.
//! - S1: every frame is in the order once.
//! - S2: a frame that may not be evicted keeps its mark and its place.
//! - S3: a victim goes to the newest end when it is named, since what fills it comes now.
//! - Cost: a hit is one store; a batch takes at most two laps, since the first unmarks every frame
//!   that it passes.
//! - Not for: patterns whose reuse comes later than a lap, which it never sees.

use crate::Frames;
use terrace_page::FrameId;

/// Laps of the hand for one batch.
const LAPS_MAX: u64 = 2;

/// A frame's neighbours in the order of arrival.
#[derive(Clone, Copy)]
struct Link {
    older: u32,
    newer: u32,
}

pub struct Sieve {
    /// A ring through all frames and an end mark, which stands between the newest and the oldest.
    links: Vec<Link>,
    hand: u32,
}

impl Sieve {
    /// `count` frames that came in the order of their numbers.
    pub fn new(count: u32) -> Sieve {
        let ring = count + 1;
        let links = (0..ring)
            .map(|at| Link { older: (at + ring - 1) % ring, newer: (at + 1) % ring })
            .collect();
        Sieve { links, hand: 0 }
    }

    pub fn victims(&mut self, frames: &impl Frames, wanted: usize, out: &mut Vec<FrameId>) {
        let end = self.links.len() as u32 - 1;
        let enough = out.len() + wanted.min(end as usize);
        let first = out.len();
        for _ in 0..LAPS_MAX * self.links.len() as u64 {
            if out.len() >= enough {
                return;
            }
            let at = self.hand;
            self.hand = self.links[at as usize].newer;
            let frame = FrameId(at);
            if at == end || !frames.evictable(frame) || out[first..].contains(&frame) {
                continue;
            }
            let touch = frames.touch(frame);
            if touch.is_marked() {
                frames.set_touch(frame, touch.unmarked());
            } else {
                self.renew(at, end);
                out.push(frame);
            }
        }
    }

    /// Moves a frame to the newest end.
    fn renew(&mut self, at: u32, end: u32) {
        let Link { older, newer } = self.links[at as usize];
        self.links[older as usize].newer = newer;
        self.links[newer as usize].older = older;
        let newest = self.links[end as usize].older;
        self.links[newest as usize].newer = at;
        self.links[end as usize].older = at;
        self.links[at as usize] = Link { older: newest, newer: end };
    }
}
