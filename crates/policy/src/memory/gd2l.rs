//! GD2L: GreedyDual with two retrieval costs (Liu and Salem, "Hybrid storage management for
//! database systems", PVLDB 6(8), 2013) [S1e 4].
//!
//! - Idea: a page that flash would give back costs little to lose. `H(p) = L + R` is set when `p`
//!   is used, where `R` is what reading it again costs; the least `H` leaves, and `L` rises to it.
//! - There are two values of `R`, so two queues in LRU order do: the pages that are on flash, and
//!   the others. The victim is the tail with the smaller `H`.
//! - State: none on a hit but the touch word, which tells when the page was used; `Inflation` tells
//!   what `L` was then. So `H` is derived, and a page that moves to or from flash keeps its age and
//!   changes its `R` [sources.R6]. The tails come from a look at all frames (`tails`).
//! - G1: `L` never falls.
//! - G2: between two looks at the frames the order is exact for pages that do not move: what is
//!   used or enters since has `H` of at least `L + R`, and a batch is good no further than that.
//! - Cost: a hit is one store; a victim is the comparison of two tails, and about a hundred words
//!   read on average.
//! - Not for: a tier whose reads cost nearly what home's do: it is LRU then, for more work.

use crate::memory::tails::{QUEUES, Rest, TailFrame, Tails};
use crate::placement::Costs;
use crate::{Frames, Tick};
use std::collections::VecDeque;
use terrace_page::FrameId;

/// Frames looked at for each victim, on average, if both queues are long.
const FRAMES_PER_VICTIM: u32 = 128;
/// Points that tell `L` of old: more are thinned out, from the oldest on.
const POINTS_MAX: usize = 256;

/// What `L` was at each tick that a frame may have been used at.
///
/// - P1: points ascend in both coordinates.
/// - P2: `at` is exact for the points that are kept; in between, the value before, which is lower.
struct Inflation {
    points: VecDeque<(u64, f64)>,
}

impl Inflation {
    fn new() -> Inflation {
        Inflation { points: VecDeque::from([(0, 0.0)]) }
    }

    fn now(&self) -> f64 {
        self.points.back().expect("the first point stays").1
    }

    /// `L` after what left at `tick` or before.
    fn at(&self, tick: u64) -> f64 {
        let after = self.points.partition_point(|point| point.0 <= tick);
        self.points.get(after.saturating_sub(1)).expect("the first point stays").1
    }

    /// `L` rises to `level` at `tick`, if it is not there.
    fn raise(&mut self, tick: u64, level: f64) {
        if level <= self.now() {
            return;
        }
        match self.points.back_mut() {
            Some(last) if last.0 == tick => last.1 = level,
            _ => self.points.push_back((tick, level)),
        }
        if self.points.len() > POINTS_MAX {
            let mut at = 0;
            // Every other point of the older half; the first stays.
            self.points.retain(|_| {
                at += 1;
                at > POINTS_MAX / 2 || at % 2 == 1
            });
        }
    }

    /// Drops what only ticks before `oldest` need: the caller asks for none of them.
    fn forget_before(&mut self, oldest: u64) {
        while self.points.get(1).is_some_and(|second| second.0 <= oldest) {
            self.points.pop_front();
        }
    }
}

pub struct Gd2l {
    tails: Tails,
    /// What entered since the last look has no smaller `H` (G2).
    horizon: f64,
    inflation: Inflation,
    /// What reading a page again costs, in the order of `QUEUES`.
    retrieval: [f64; 2],
}

impl Gd2l {
    /// # Panics
    ///
    /// If a read costs nothing, or less.
    pub fn new(frames_count: u32, costs: &Costs) -> Gd2l {
        assert!(costs.flash_read > 0.0, "a read of flash costs something");
        assert!(costs.home_read > 0.0, "a read from home costs something");
        Gd2l {
            tails: Tails::new((frames_count / FRAMES_PER_VICTIM).max(1) as usize),
            horizon: f64::NEG_INFINITY,
            inflation: Inflation::new(),
            retrieval: [costs.flash_read, costs.home_read],
        }
    }

    pub fn victims(
        &mut self,
        frames: &impl Frames,
        now: Tick,
        wanted: usize,
        out: &mut Vec<FrameId>,
    ) {
        let first = out.len();
        while out.len() < first + wanted {
            let Some(victim) = self.victim(frames, now, &out[first..]) else { return };
            out.push(victim);
        }
    }

    /// The page with the least `H` that is not `named` yet.
    fn victim(&mut self, frames: &impl Frames, now: Tick, named: &[FrameId]) -> Option<FrameId> {
        let mut least = self.least(frames, named);
        // Of equals the page on flash goes first, and one may have come since.
        let is_too_far =
            |(queue, h): (usize, f64)| h > self.horizon || (h == self.horizon && !QUEUES[queue]);
        if least.is_none_or(is_too_far) {
            self.look(frames, now, named);
            least = self.least(frames, named);
        }
        let (queue, h) = least?;
        let victim = self.tails.take(queue, 0).frame;
        self.inflation.raise(now.0, h);
        Some(victim)
    }

    /// The queue whose tail has the smaller `H`, and that. `None` if there is no tail, or one that
    /// only a look at the frames can find.
    fn least(&mut self, frames: &impl Frames, named: &[FrameId]) -> Option<(usize, f64)> {
        let mut least: Option<(usize, f64)> = None;
        for queue in 0..QUEUES.len() {
            let candidate = match self.tails.oldest(queue, 1, frames, named) {
                ([candidate], _) => *candidate,
                (_, Rest::Known) => continue,
                (_, Rest::Unknown) => return None,
            };
            let h = self.h(&candidate, queue);
            // Of equals the page on flash, which comes first here.
            if least.is_none_or(|(_, other)| h < other) {
                least = Some((queue, h));
            }
        }
        least
    }

    fn h(&self, candidate: &TailFrame, queue: usize) -> f64 {
        match candidate.is_unused {
            true => f64::NEG_INFINITY,
            false => {
                let used = self.tails.looked_at().saturating_sub(candidate.age);
                self.inflation.at(used) + self.retrieval[queue]
            }
        }
    }

    /// Looks at all frames for the ends of both queues.
    fn look(&mut self, frames: &impl Frames, now: Tick, named: &[FrameId]) {
        let oldest = self.tails.look(frames, now, named, |_| {});
        self.inflation.forget_before(oldest);
        // At least a 128th of the way from head to tail, lest each victim be a look.
        let [least, most] = self.retrieval;
        self.horizon = self.inflation.now() + least.max(most / f64::from(FRAMES_PER_VICTIM));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Standing, Touch};
    use std::cell::Cell;
    use std::collections::BTreeSet;

    const COSTS: Costs = Costs::PUBLISHED;

    struct Pool {
        words: Vec<Cell<Touch>>,
        on_flash: BTreeSet<u32>,
        pinned: BTreeSet<u32>,
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

    /// GreedyDual as it was published, but for `H = L at the last use + R` being kept in two parts.
    #[derive(Default)]
    struct Model {
        inflation: f64,
        /// `L` at the last use, or nothing if there was none; and when that was, or it came.
        used: Vec<(f64, u64)>,
    }

    impl Model {
        fn h(&self, pool: &Pool, frame: u32) -> f64 {
            let cost = match pool.on_flash.contains(&frame) {
                true => COSTS.flash_read,
                false => COSTS.home_read,
            };
            self.used[frame as usize].0 + cost
        }

        fn victim(&mut self, pool: &Pool) -> Option<u32> {
            let frames = (0..pool.count()).filter(|frame| !pool.pinned.contains(frame));
            let key = |frame: u32| {
                let home = !pool.on_flash.contains(&frame);
                (self.h(pool, frame), home, self.used[frame as usize].1, frame)
            };
            let less = |&a: &u32, &b: &u32| {
                let (a, b) = (key(a), key(b));
                a.0.total_cmp(&b.0).then((a.1, a.2, a.3).cmp(&(b.1, b.2, b.3)))
            };
            let victim = frames.min_by(less)?;
            self.inflation = self.inflation.max(self.h(pool, victim));
            Some(victim)
        }
    }

    const UNUSED: (f64, u64) = (f64::NEG_INFINITY, 0);

    /// Pages move to and from flash without being used, and are looked at again.
    #[test]
    fn gd2l_agrees_with_greedy_dual() {
        const FRAMES: u32 = 12;
        for seed in 0..400 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let mut policy = Gd2l::new(FRAMES, &COSTS);
            let words = (0..FRAMES).map(|_| Cell::new(Touch::cold(Tick(1)))).collect();
            let (on_flash, pinned) = (BTreeSet::new(), BTreeSet::new());
            let mut pool = Pool { words, on_flash, pinned };
            let mut model = Model { used: vec![UNUSED; FRAMES as usize], ..Model::default() };
            let mut now = Tick(1);
            for step in 0..400 {
                now.0 += 1;
                let frame = prng.u32(..FRAMES);
                let before = pool.touch(FrameId(frame));
                match prng.u8(..8) {
                    0..=2 => {
                        pool.set_touch(FrameId(frame), before.hit(now));
                        model.used[frame as usize] = (model.inflation, now.0);
                    }
                    3 => _ = pool.pinned.insert(frame),
                    4 => {
                        pool.pinned.remove(&frame);
                        // What has moved is found at the next look.
                        policy.tails.forget();
                    }
                    5 => {
                        if !pool.on_flash.remove(&frame) {
                            pool.on_flash.insert(frame);
                        }
                        // What has moved is found at the next look.
                        policy.tails.forget();
                    }
                    _ => {
                        let mut out = Vec::new();
                        policy.victims(&pool, now, 1, &mut out);
                        let expected = model.victim(&pool);
                        let got = out.first().map(|frame| frame.0);
                        assert_eq!(got, expected, "seed {seed} step {step}");
                        let Some(frame) = got else { continue };
                        let is_cold = prng.u8(..5) == 0;
                        let entered = if is_cold { Touch::cold(now) } else { Touch::first(now) };
                        pool.set_touch(FrameId(frame), entered);
                        let level = if is_cold { UNUSED.0 } else { model.inflation };
                        if is_cold {
                            // What has moved is found at the next look.
                            policy.tails.forget();
                        }
                        model.used[frame as usize] = (level, now.0);
                        pool.on_flash.remove(&frame);
                        if prng.bool() {
                            pool.on_flash.insert(frame);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn thinning_keeps_the_new_exact_and_the_old_no_higher() {
        let mut inflation = Inflation::new();
        let level = |tick: u64| (tick as f64).sqrt();
        for tick in 1..=10_000 {
            inflation.raise(tick, level(tick));
            assert!(inflation.points.len() <= POINTS_MAX);
            assert_eq!(inflation.at(tick), level(tick));
        }
        let mut before = 0.0;
        for tick in 1..=10_000 {
            let at = inflation.at(tick);
            assert!(at <= level(tick) && at >= before, "{tick}");
            before = at;
        }
        assert_eq!(inflation.at(9_990), level(9_990));
        inflation.forget_before(9_950);
        assert_eq!(inflation.at(9_990), level(9_990));
        assert!(inflation.points.len() < 60);
    }

    /// A page at home is as much older when it leaves as it costs more to read again.
    #[test]
    fn what_costs_more_stays_longer() {
        const FRAMES: u32 = 1_000;
        let mut prng = fastrand::Rng::with_seed(1);
        // Without a common measure, lest `L` rise in steps.
        let costs = Costs { home_read: 4.137, flash_read: 1.0173, ..COSTS };
        let mut policy = Gd2l::new(FRAMES, &costs);
        let words = (0..FRAMES).map(|_| Cell::new(Touch::first(Tick(1)))).collect();
        let mut pool = Pool { words, on_flash: BTreeSet::new(), pinned: BTreeSet::new() };
        let mut ages = [(0, 0); 2];
        for now in (2..60_000).map(Tick) {
            let mut out = Vec::new();
            policy.victims(&pool, now, 1, &mut out);
            let was_home = usize::from(!pool.on_flash.remove(&out[0].0));
            if now.0 > 20_000 {
                ages[was_home].0 += u64::from(pool.touch(out[0]).age(now));
                ages[was_home].1 += 1;
            }
            pool.set_touch(out[0], Touch::first(now));
            if prng.bool() {
                pool.on_flash.insert(out[0].0);
            }
            let used = FrameId(prng.u32(..FRAMES));
            pool.set_touch(used, pool.touch(used).hit(now));
        }
        let mean = |(sum, count): (u64, u64)| sum as f64 / count as f64;
        let ratio = mean(ages[1]) / mean(ages[0]);
        assert!((3.8..=4.4).contains(&ratio), "{ratio}");
    }
}
