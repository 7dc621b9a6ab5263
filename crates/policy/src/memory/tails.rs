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

use crate::{Frames, Standing, Tick};
use terrace_page::FrameId;

/// In the rank of a page that was not used yet: it is older than all others (T4).
const UNUSED: u64 = 1 << u32::BITS;
/// This number of batches are found before all but the oldest are dropped.
const BATCHES_MAX: usize = 4;

/// A frame near the end of its queue.
#[derive(Clone, Copy)]
pub struct TailFrame {
    /// Whether the page was not used yet (T4).
    pub is_unused: bool,
    /// Ticks since the last use, at the look.
    pub age: u64,
    pub frame: FrameId,
    word: u64,
}

/// The order of a queue in one number, the oldest highest. Of frames of one age the one with the
/// lower number is nearer to the end, so that the order is total.
fn order(rank: u64, number: u32) -> u128 {
    u128::from(rank) << u32::BITS | u128::from(!number)
}

/// The age in an order, above all others if the page is unused.
fn rank_of(order: u128) -> u64 {
    (order >> u32::BITS) as u64
}

/// The frame in its order.
fn frame_of(order: u128) -> FrameId {
    FrameId(!(order as u32))
}

/// The end of a queue, the oldest last.
#[derive(Default)]
struct Tail {
    batch: Vec<TailFrame>,
    /// Whether the whole queue was in the batch when it was chosen.
    is_whole: bool,
    /// The age of the youngest then.
    youngest: u64,
}

impl Tail {
    /// A rank that is likely below those of the next batch, or zero.
    fn guess(&self) -> u64 {
        if self.is_whole { 0 } else { self.youngest / 2 }
    }
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
    ) -> (&[TailFrame], Rest) {
        let tail = &mut self.tails[queue];
        let is_there = |candidate: &TailFrame| {
            let frame = candidate.frame;
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
    pub fn take(&mut self, queue: usize, nth: usize) -> TailFrame {
        let batch = &mut self.tails[queue].batch;
        batch.remove(batch.len() - 1 - nth)
    }

    /// Looks at all frames for the ends of both queues, and shows each page's standing to `see`.
    /// The tick of the oldest last use.
    pub fn look(
        &mut self,
        frames: &impl Frames,
        now: Tick,
        named: &[FrameId],
        mut see: impl FnMut(Standing),
    ) -> u64 {
        let guesses = [0, 1].map(|queue| self.tails[queue].guess());
        let (mut ends, oldest) = self.pass(frames, now, named, guesses, &mut see);
        // A guess was too high: what is younger is among the oldest.
        if ends.iter().any(|end| end.is_short(self.batch_max)) {
            (ends, _) = self.pass(frames, now, named, [0; 2], |_| {});
        }
        for (tail, end) in self.tails.iter_mut().zip(ends) {
            let (oldest, is_whole) = end.oldest_last(self.batch_max);
            tail.is_whole = is_whole;
            tail.batch.clear();
            tail.batch.extend(oldest.into_iter().map(|order| {
                let touch = frames.touch(frame_of(order));
                let (is_unused, age) = (touch.is_unused(), u64::from(touch.age(now)));
                TailFrame { is_unused, age, frame: frame_of(order), word: touch.0 }
            }));
            tail.youngest = tail.batch.first().map_or(0, |youngest| youngest.age);
        }
        self.looked_at = now.0;
        oldest
    }

    /// Looks at all frames that are as old as `floors`, at least.
    fn pass(
        &self,
        frames: &impl Frames,
        now: Tick,
        named: &[FrameId],
        floors: [u64; 2],
        mut see: impl FnMut(Standing),
    ) -> ([End; 2], u64) {
        let mut ends = floors.map(End::new);
        let mut age_max = 0;
        for number in 0..frames.count() {
            let frame = FrameId(number);
            let Some(standing) = frames.standing(frame) else { continue };
            see(standing);
            let end = &mut ends[usize::from(!standing.is_on_flash)];
            let touch = frames.touch(frame);
            let age = u64::from(touch.age(now));
            let mut rank = age;
            if touch.is_unused() {
                rank |= UNUSED;
            } else {
                age_max = age_max.max(age);
            }
            if rank >= end.floor {
                let may_leave = frames.evictable(frame) && !named.contains(&frame);
                end.add(may_leave, order(rank, number), self.batch_max);
            }
        }
        (ends, now.0.saturating_sub(age_max))
    }

    /// Forgets what was seen: the next victim is a look.
    #[cfg(test)]
    pub fn forget(&mut self) {
        self.tails = Default::default();
    }
}

/// The oldest of a queue, while it is looked through.
struct End {
    /// Those that can leave and are as old as the floor; now and then but the oldest.
    found: Vec<u128>,
    /// A rank below is looked at no more.
    floor: u64,
    /// Whether the floor was so high from the beginning.
    is_guess: bool,
    /// Whether none that counts was left out.
    is_whole: bool,
}

impl End {
    fn new(floor: u64) -> End {
        End { found: Vec::new(), floor, is_guess: floor > 0, is_whole: true }
    }

    /// Out of the loop that has nothing to do for most frames.
    #[inline(never)]
    fn add(&mut self, may_leave: bool, order: u128, batch_max: usize) {
        if !may_leave {
            // One that is no candidate now, but younger than a whole batch, is for the next look.
            let is_full = self.found.len() == batch_max;
            self.is_whole &= !(is_full && self.found.iter().all(|&other| order < other));
            return;
        }
        self.found.push(order);
        if self.found.len() >= BATCHES_MAX * batch_max {
            self.cut(batch_max);
            // Frames come by their numbers: of two as old the one that was there stays.
            self.floor = rank_of(self.found[batch_max - 1]) + 1;
        }
    }

    /// Keeps the oldest.
    fn cut(&mut self, batch_max: usize) {
        if self.found.len() > batch_max {
            self.found.select_nth_unstable_by(batch_max - 1, |a, b| b.cmp(a));
            self.found.truncate(batch_max);
            self.is_whole = false;
        }
    }

    /// Whether what a guess left out may be among the oldest, or all that is left.
    fn is_short(&self, batch_max: usize) -> bool {
        self.is_guess && self.is_whole && self.found.len() <= batch_max
    }

    /// The oldest, and whether these are all.
    fn oldest_last(mut self, batch_max: usize) -> (Vec<u128>, bool) {
        self.cut(batch_max);
        self.found.sort_unstable();
        (self.found, self.is_whole)
    }
}

/// The queue of a frame's page, if it has one.
fn queue_of(frames: &impl Frames, frame: FrameId) -> Option<usize> {
    frames.standing(frame).map(|standing| usize::from(!standing.is_on_flash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Touch;
    use std::cell::Cell;

    const FRAMES: u32 = 150;

    struct Pool {
        words: Vec<Cell<Touch>>,
        on_flash: Vec<bool>,
        pinned: Vec<bool>,
    }

    impl Frames for Pool {
        fn count(&self) -> u32 {
            FRAMES
        }
        fn touch(&self, frame: FrameId) -> Touch {
            self.words[frame.0 as usize].get()
        }
        fn set_touch(&self, frame: FrameId, touch: Touch) {
            self.words[frame.0 as usize].set(touch);
        }
        fn evictable(&self, frame: FrameId) -> bool {
            !self.pinned[frame.0 as usize]
        }
        fn standing(&self, frame: FrameId) -> Option<Standing> {
            let is_on_flash = self.on_flash[frame.0 as usize];
            Some(Standing { is_on_flash, is_ahead_of_home: false })
        }
    }

    /// A frame after the other into a list as long as a batch, youngest first; and whether nothing
    /// younger than a whole batch was passed over.
    fn model(pool: &Pool, queue: usize, batch_max: usize, now: Tick) -> (Vec<u32>, bool) {
        let key = |frame: u32| {
            let touch = pool.words[frame as usize].get();
            (touch.is_unused(), touch.age(now), std::cmp::Reverse(frame))
        };
        let (mut batch, mut is_whole) = (Vec::new(), true);
        for frame in (0..FRAMES).filter(|&at| pool.on_flash[at as usize] == QUEUES[queue]) {
            let is_full = batch.len() == batch_max;
            if is_full && key(frame) < key(batch[0]) {
                is_whole = false;
            } else if !pool.pinned[frame as usize] {
                batch.push(frame);
                batch.sort_by_key(|&frame| key(frame));
                if is_full {
                    batch.remove(0);
                    is_whole = false;
                }
            }
        }
        (batch, is_whole)
    }

    #[test]
    fn a_look_finds_the_oldest_whatever_was_guessed() {
        let mut guesses = [0; 2];
        for seed in 0..150 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let batch_max = prng.usize(1..20);
            // Queues of all lengths, and pages of all ages.
            let flash_percent = prng.u32(..100);
            let is_on_flash = |prng: &mut fastrand::Rng| prng.u32(..100) < flash_percent;
            let mut pool = Pool {
                words: (0..FRAMES).map(|_| Cell::new(Touch::first(Tick(1)))).collect(),
                on_flash: (0..FRAMES).map(|_| is_on_flash(&mut prng)).collect(),
                pinned: (0..FRAMES).map(|_| prng.u8(..8) == 0).collect(),
            };
            let mut tails = Tails::new(batch_max);
            let mut now = Tick(1);
            for look in 0..40 {
                for _ in 0..prng.u32(..60) {
                    now.0 += prng.u64(..3);
                    let frame = prng.u32(..FRAMES);
                    let at = frame as usize;
                    match prng.u8(..20) {
                        0 => pool.on_flash[at] = is_on_flash(&mut prng),
                        1 => pool.pinned[at] = prng.u8(..8) == 0,
                        2 => pool.words[at].set(Touch::cold(now)),
                        _ => pool.words[at].set(pool.words[at].get().hit(now)),
                    }
                }
                for (tail, guesses) in tails.tails.iter().zip(&mut guesses) {
                    *guesses += u32::from(tail.guess() > 0);
                }
                tails.look(&pool, now, &[], |_| {});
                for queue in 0..QUEUES.len() {
                    let tail = &tails.tails[queue];
                    let found: Vec<u32> = tail.batch.iter().map(|it| it.frame.0).collect();
                    let expected = model(&pool, queue, batch_max, now);
                    assert_eq!((found, tail.is_whole), expected, "seed {seed} look {look}");
                }
            }
        }
        assert!(guesses.iter().all(|&guesses| guesses > 1_000), "{guesses:?}");
    }
}
