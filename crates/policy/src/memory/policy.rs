//! The memory policies: one enum, made from one list, dispatched statically.
//!
//! The pool keeps a [`Touch`] for each frame and stores a new one on a hit. Victims are asked for
//! in batches, under the lock of the caller.
//!
//! - F1: a victim is evictable when it is named, and is not named twice unless it is touched or the
//!   frames are looked through again.
//! - F2: fewer victims than wanted means that no other frame is evictable.

use crate::Tick;
use crate::designs::{self, UnknownName};
use crate::memory::clock::Clock;
use crate::memory::coldest::Coldest;
use crate::memory::frames::Frames;
use crate::memory::gd2l::Gd2l;
use crate::memory::priced::Priced;
use crate::memory::sieve::Sieve;
use crate::memory::two_queues::{QueueRules, TwoQueues};
use crate::memory::{lru, lru_2};
use crate::placement::Costs;
use terrace_page::FrameId;

/// How memory chooses what leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// LRU-2: the oldest use before the last.
    Lru2,
    /// CLOCK: first in, first out, with a second chance.
    Clock,
    /// LRU: the oldest last use.
    Lru,
    /// SIEVE: first in, first out, but for what was used since.
    Sieve,
    /// GD2L: the oldest last use, but what flash can give back sooner.
    Gd2l,
    /// FASC: the oldest last use, of what is on flash or of what is not, by what each costs.
    Fasc,
    /// LRU-2 by prices: the oldest use before the last, sooner for what flash can give back.
    Priced,
}

/// The memory policies by name: the list that command, tests and docs read.
pub const MEMORY_POLICIES: [(&str, MemoryPolicy); 7] = [
    ("lru-2", MemoryPolicy::Lru2),
    ("clock", MemoryPolicy::Clock),
    ("lru", MemoryPolicy::Lru),
    ("sieve", MemoryPolicy::Sieve),
    ("gd2l", MemoryPolicy::Gd2l),
    ("fasc", MemoryPolicy::Fasc),
    ("priced", MemoryPolicy::Priced),
];

impl MemoryPolicy {
    /// The policy called `name`.
    ///
    /// # Errors
    ///
    /// An unknown name; the message lists the known.
    pub fn find(name: &str) -> Result<MemoryPolicy, UnknownName> {
        designs::find_in("memory policy", &MEMORY_POLICIES, |row| row.0, name).map(|row| row.1)
    }

    /// The policy's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let row = MEMORY_POLICIES.iter().find(|row| row.1 == self);
        row.expect("every policy has a row").0
    }

    /// Whether the policy wants to know what requests cost.
    #[must_use]
    pub fn weighs_costs(self) -> bool {
        matches!(self, MemoryPolicy::Gd2l | MemoryPolicy::Fasc | MemoryPolicy::Priced)
    }
}

/// The state of a memory policy. A hit is `Touch::hit`, the same for all.
pub enum FramePolicy {
    /// LRU-2.
    Lru2(Coldest),
    /// CLOCK.
    Clock(Clock),
    /// LRU.
    Lru(Coldest),
    /// SIEVE.
    Sieve(Sieve),
    /// GD2L.
    Gd2l(Gd2l),
    /// FASC.
    Fasc(TwoQueues),
    /// LRU-2 by prices.
    Priced(Priced),
}

impl FramePolicy {
    /// The policy `memory` for `frames_count` frames, where requests cost `costs`, by `rules` if it
    /// is FASC's.
    ///
    /// # Panics
    ///
    /// If there are no frames, reads cost nothing, or the rules have a flaw.
    #[must_use]
    pub fn new(
        memory: MemoryPolicy,
        frames_count: u32,
        costs: &Costs,
        rules: &QueueRules,
    ) -> FramePolicy {
        assert!(frames_count > 0, "a pool has frames");
        match memory {
            MemoryPolicy::Lru2 => FramePolicy::Lru2(Coldest::new(frames_count)),
            MemoryPolicy::Clock => FramePolicy::Clock(Clock::default()),
            MemoryPolicy::Lru => FramePolicy::Lru(Coldest::new(frames_count)),
            MemoryPolicy::Sieve => FramePolicy::Sieve(Sieve::new(frames_count)),
            MemoryPolicy::Gd2l => FramePolicy::Gd2l(Gd2l::new(frames_count, costs)),
            MemoryPolicy::Fasc => FramePolicy::Fasc(TwoQueues::new(frames_count, costs, *rules)),
            MemoryPolicy::Priced => {
                let ratio = costs.home_read / costs.flash_read;
                FramePolicy::Priced(Priced::new(frames_count, ratio))
            }
        }
    }

    /// Appends up to `wanted` victims to `out`, coldest first, as of `now`.
    pub fn victims(
        &mut self,
        frames: &impl Frames,
        now: Tick,
        wanted: usize,
        out: &mut Vec<FrameId>,
    ) {
        match self {
            FramePolicy::Lru2(coldest) => {
                coldest.victims(frames, |_, touch| lru_2::cold(touch, now), wanted, out);
            }
            FramePolicy::Clock(clock) => clock.victims(frames, wanted, out),
            FramePolicy::Lru(coldest) => {
                coldest.victims(frames, |_, touch| lru::cold(touch, now), wanted, out);
            }
            FramePolicy::Sieve(sieve) => sieve.victims(frames, wanted, out),
            FramePolicy::Gd2l(gd2l) => gd2l.victims(frames, now, wanted, out),
            FramePolicy::Fasc(queues) => queues.victims(frames, now, wanted, out),
            FramePolicy::Priced(priced) => priced.victims(frames, now, wanted, out),
        }
    }

    /// A read from home is worth `ratio` reads from flash now, for a policy that goes by prices.
    pub fn set_price_ratio(&mut self, ratio: f64) {
        if let FramePolicy::Priced(priced) = self {
            priced.set_ratio(ratio);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Touch;
    use crate::memory::frames::Standing;
    use crate::memory::priced::RATIO_MAX;
    use std::cell::Cell;
    use std::collections::BTreeSet;

    const COSTS: Costs = Costs::PUBLISHED;

    struct Pool {
        words: Vec<Cell<Touch>>,
        pinned: BTreeSet<u32>,
        on_flash: BTreeSet<u32>,
    }

    impl Frames for Pool {
        fn count(&self) -> u32 {
            self.words.len() as u32
        }
        fn touch(&self, frame: FrameId) -> Touch {
            self.words[frame.0 as usize].get()
        }
        fn set_touch(&self, frame: FrameId, touch: Touch) {
            self.words[frame.0 as usize].set(touch);
        }
        fn evictable(&self, frame: FrameId) -> bool {
            !self.pinned.contains(&frame.0)
        }
        fn standing(&self, frame: FrameId) -> Option<Standing> {
            let is_on_flash = self.on_flash.contains(&frame.0);
            Some(Standing { is_on_flash, is_ahead_of_home: false })
        }
    }

    /// Names one victim the slow way: histories in full, a scan for each.
    struct Model {
        histories: Vec<(Option<u64>, u64)>,
        marks: Vec<bool>,
        hand: usize,
        /// Oldest first, for SIEVE; `hand` is then a position in it.
        order: Vec<u32>,
        /// For GD2L: `L`, and `L` when each frame was used last.
        inflation: f64,
        levels: Vec<f64>,
    }

    impl Model {
        /// Used once or twice, and the times since the use before the last and the last, as prices
        /// count them: the frame with the greater key leaves first.
        fn priced(&self, frame: u32, pool: &Pool, now: u64) -> (bool, f64, f64) {
            let ratio = (COSTS.home_read / COSTS.flash_read).min(RATIO_MAX);
            let price = if pool.on_flash.contains(&frame) { ratio } else { 1.0 };
            let (previous, last) = self.histories[frame as usize];
            let time = |since: u64| (now - since) as f64 * price;
            (previous.is_none(), time(previous.unwrap_or(last)), time(last))
        }

        fn victim(&mut self, policy: MemoryPolicy, pool: &Pool, now: u64) -> Option<u32> {
            let free = |frame: &u32| !pool.pinned.contains(frame);
            let frames = 0..self.histories.len() as u32;
            match policy {
                MemoryPolicy::Lru2 => {
                    frames.filter(free).min_by_key(|&frame| self.histories[frame as usize])
                }
                MemoryPolicy::Lru => {
                    frames.filter(free).min_by_key(|&frame| self.histories[frame as usize].1)
                }
                MemoryPolicy::Clock => {
                    for _ in 0..2 * self.marks.len() {
                        let frame = self.hand;
                        self.hand = (self.hand + 1) % self.marks.len();
                        if free(&(frame as u32)) && !std::mem::take(&mut self.marks[frame]) {
                            return Some(frame as u32);
                        }
                    }
                    None
                }
                MemoryPolicy::Gd2l => {
                    let h = |frame: u32| {
                        let on_flash = pool.on_flash.contains(&frame);
                        let cost = if on_flash { COSTS.flash_read } else { COSTS.home_read };
                        self.levels[frame as usize] + cost
                    };
                    let least = frames.filter(free).min_by(|&a, &b| {
                        let rest = |frame: u32| {
                            (!pool.on_flash.contains(&frame), self.histories[frame as usize].1)
                        };
                        h(a).total_cmp(&h(b)).then(rest(a).cmp(&rest(b)))
                    })?;
                    self.inflation = self.inflation.max(h(least));
                    Some(least)
                }
                MemoryPolicy::Priced => frames.filter(free).max_by(|&a, &b| {
                    let (of_a, of_b) = (self.priced(a, pool, now), self.priced(b, pool, now));
                    let times = of_a.1.total_cmp(&of_b.1).then(of_a.2.total_cmp(&of_b.2));
                    of_a.0.cmp(&of_b.0).then(times).then(b.cmp(&a))
                }),
                MemoryPolicy::Fasc => unreachable!("its model is its own"),
                MemoryPolicy::Sieve => {
                    for _ in 0..2 * self.order.len() + 2 {
                        // Past the newest the hand begins again with the oldest.
                        self.hand = if self.hand >= self.order.len() { 0 } else { self.hand };
                        let frame = self.order[self.hand];
                        if free(&frame) && !std::mem::take(&mut self.marks[frame as usize]) {
                            self.order.remove(self.hand);
                            // The hand stands before what followed, or past all.
                            let was_newest = self.hand == self.order.len();
                            self.hand += usize::from(was_newest);
                            self.order.push(frame);
                            return Some(frame);
                        }
                        self.hand += 1;
                    }
                    None
                }
            }
        }
    }

    #[test]
    fn memory_policies_agree_with_their_models() {
        // That of FASC is beside it: it knows which pages are changed.
        let others = MEMORY_POLICIES.into_iter().filter(|row| row.1 != MemoryPolicy::Fasc);
        for (name, memory) in others {
            for seed in 0..200 {
                against_the_model(name, memory, seed);
            }
        }
    }

    /// Frames are few, so that a batch is one victim and the order exact.
    fn against_the_model(name: &str, memory: MemoryPolicy, seed: u64) {
        const FRAMES: u32 = 12;
        let mut prng = fastrand::Rng::with_seed(seed);
        let mut policy = FramePolicy::new(memory, FRAMES, &COSTS, &QueueRules::default());
        let mut now = Tick(1);
        let words = vec![Cell::default(); FRAMES as usize];
        let (pinned, on_flash) = (BTreeSet::new(), BTreeSet::new());
        let mut pool = Pool { words, pinned, on_flash };
        let mut model = Model {
            histories: Vec::new(),
            marks: vec![true; FRAMES as usize],
            hand: 0,
            order: (0..FRAMES).collect(),
            inflation: 0.0,
            levels: vec![0.0; FRAMES as usize],
        };
        for frame in 0..FRAMES {
            pool.set_touch(FrameId(frame), Touch::first(now));
            model.histories.push((None, now.0));
            now.0 += 1;
        }
        for step in 0..300 {
            let frame = prng.u32(..FRAMES);
            // A page that was pinned is used when it is unpinned.
            match prng.u8(..8) {
                op @ (0..=3 | 5) => {
                    if op == 5 {
                        pool.pinned.remove(&frame);
                    }
                    let touch = pool.touch(FrameId(frame)).hit(now);
                    pool.set_touch(FrameId(frame), touch);
                    model.histories[frame as usize] =
                        (Some(model.histories[frame as usize].1), now.0);
                    model.marks[frame as usize] = true;
                    model.levels[frame as usize] = model.inflation;
                }
                4 => _ = pool.pinned.insert(frame),
                _ => {
                    let mut out = Vec::new();
                    policy.victims(&pool, now, 1, &mut out);
                    let expected = model.victim(memory, &pool, now.0);
                    let got = out.first().map(|frame| frame.0);
                    assert_eq!(got, expected, "{name} seed {seed} step {step}");
                    if let Some(frame) = got {
                        pool.set_touch(FrameId(frame), Touch::first(now));
                        model.histories[frame as usize] = (None, now.0);
                        model.marks[frame as usize] = true;
                        model.levels[frame as usize] = model.inflation;
                        pool.on_flash.remove(&frame);
                        if prng.bool() {
                            pool.on_flash.insert(frame);
                        }
                    }
                }
            }
            now.0 += 1;
        }
    }

    #[test]
    fn a_batch_has_no_frame_twice_and_none_that_is_pinned() {
        for (name, memory) in MEMORY_POLICIES {
            let mut policy = FramePolicy::new(memory, 1_000, &COSTS, &QueueRules::default());
            let words = (0..1_000).map(|at| Cell::new(Touch::first(Tick(1 + at)))).collect();
            let pool =
                Pool { words, pinned: (0..1_000).step_by(3).collect(), on_flash: BTreeSet::new() };
            let mut out = Vec::new();
            policy.victims(&pool, Tick(2_000), 500, &mut out);
            assert_eq!(out.len(), 500, "{name}");
            assert_eq!(out.iter().collect::<BTreeSet<_>>().len(), 500, "{name}");
            assert!(out.iter().all(|&frame| pool.evictable(frame)), "{name}");
        }
    }

    #[test]
    fn a_pool_of_pinned_frames_has_no_victim() {
        for (name, memory) in MEMORY_POLICIES {
            let mut policy = FramePolicy::new(memory, 3, &COSTS, &QueueRules::default());
            let words = vec![Cell::new(Touch::first(Tick(1))); 3];
            let pool = Pool { words, pinned: (0..3).collect(), on_flash: BTreeSet::new() };
            let mut out = Vec::new();
            policy.victims(&pool, Tick(2), 1, &mut out);
            assert!(out.is_empty(), "{name}");
        }
    }

    #[test]
    fn names_lead_back_to_their_policies() {
        for (name, memory) in MEMORY_POLICIES {
            assert_eq!(MemoryPolicy::find(name), Ok(memory));
            assert_eq!(memory.name(), name);
        }
        let error = MemoryPolicy::find("mru").unwrap_err();
        assert_eq!(error.known, MEMORY_POLICIES.map(|(name, _)| name));
    }
}
