//! The two queues of FASC: what leaves memory by what it costs to let it go (Wang, Guo and Meng,
//! "An efficient design and implementation of multi-level cache for database systems", DASFAA 2015)
//! [S2 4].
//!
//! - Idea: to let a page go that is on flash costs nothing now; one that is not there has to be
//!   written. `Q_r` has the first, `Q_m` the others, both in LRU order, and their sizes are held in
//!   a ratio by costs:
//!   `beta = (C_r + theta (C_r + D_w)) / (C_r + C_w + theta (C_r + D_w))`.
//! - The victim is in `Q_r` while `|Q_r| > beta |Q_m|`, else in `Q_m`: of the `scan_depth` pages at
//!   its end the oldest that home has too, and the oldest if home lacks them all.
//! - `theta` falls as more of memory is newer than home, which gives `Q_m` room: it is
//!   1 less that share, between .05 and .95, unless it is given [sources.R9].
//! - C_r and C_w are a read and a write of flash. D_w is a write to home: what is called a fetch in
//!   one place is what migrating a page costs [sources.R11].
//! - State: no more than what `Tails` has. The sizes and `theta` are those of the last look, less
//!   the victims since.
//! - V1: a page in `Q_r` is unchanged since it was copied to flash; so home lacks there what flash
//!   has. A page that waits to be written to flash is still in `Q_m`.
//! - Cost: a hit is one store; a victim is a look at `scan_depth` words, and about a hundred more
//!   on average.
//! - Not for: a pool without flash: all is in `Q_m` then, and the clean leave first.

use crate::memory::tails::{Rest, Tails};
use crate::placement::Costs;
use crate::{Frames, Tick};
use terrace_page::FrameId;

/// Frames looked at for each victim, on average, if both queues are long.
const FRAMES_PER_VICTIM: u32 = 128;
/// Bounds of a theta that is not given.
const THETA_MIN: f64 = 0.05;
const THETA_MAX: f64 = 0.95;
/// The numbers of the queues, as `Tails` has them.
const Q_R: usize = 0;
const Q_M: usize = 1;

/// What can be chosen of the two queues.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueRules {
    /// theta, above 0 and below 1; none to have it follow the share of changed pages.
    pub theta: Option<f64>,
    /// l: pages at the end of a queue among which a clean one goes first.
    pub scan_depth: u32,
}

impl Default for QueueRules {
    /// The paper does not give them [sources.R9, sources.R10].
    fn default() -> QueueRules {
        QueueRules { theta: None, scan_depth: 32 }
    }
}

impl QueueRules {
    /// The largest `scan_depth`.
    pub const SCAN_DEPTH_MAX: u32 = 4096;

    /// What is wrong with the rules, if anything is.
    #[must_use]
    pub fn flaw(&self) -> Option<&'static str> {
        let is_share = |theta: f64| theta > 0.0 && theta < 1.0;
        if !self.theta.is_none_or(is_share) {
            return Some("theta must be above 0 and below 1");
        }
        let depths = 1..=QueueRules::SCAN_DEPTH_MAX;
        (!depths.contains(&self.scan_depth)).then_some("the scan depth must be from 1 to 4096")
    }
}

pub struct TwoQueues {
    rules: QueueRules,
    costs: Costs,
    tails: Tails,
    /// Pages in each queue, as of the last look, less the victims.
    sizes: [u64; 2],
    theta: f64,
}

impl TwoQueues {
    /// # Panics
    ///
    /// If the rules have a flaw.
    pub fn new(frames_count: u32, costs: &Costs, rules: QueueRules) -> TwoQueues {
        assert_eq!(rules.flaw(), None);
        let batch = (frames_count / FRAMES_PER_VICTIM).max(1) + rules.scan_depth;
        TwoQueues {
            rules,
            costs: *costs,
            tails: Tails::new(batch as usize),
            sizes: [0; 2],
            theta: THETA_MAX,
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
            let named = &out[first..];
            let mut victim = self.victim(frames, now, named, Looked::Before);
            if victim == Named::LookFirst {
                self.look(frames, now, named);
                victim = self.victim(frames, now, named, Looked::JustNow);
            }
            match victim {
                Named::Frame(frame) => out.push(frame),
                Named::Nobody => return,
                Named::LookFirst => unreachable!("a look leaves nothing open"),
            }
        }
    }

    fn victim(
        &mut self,
        frames: &impl Frames,
        now: Tick,
        named: &[FrameId],
        looked: Looked,
    ) -> Named {
        let [reads, writes] = self.sizes.map(|size| size as f64);
        let chosen = if reads > beta(&self.costs, self.theta) * writes { Q_R } else { Q_M };
        for queue in [chosen, Q_R + Q_M - chosen] {
            let depth = self.rules.scan_depth as usize;
            let looked_at = self.tails.looked_at();
            let (oldest, rest) = self.tails.oldest(queue, depth, frames, named);
            // What came since the look may be within the depth.
            let is_short = oldest.is_empty() || (oldest.len() < depth && looked_at != now.0);
            if (rest == Rest::Unknown || is_short) && looked == Looked::Before {
                return Named::LookFirst;
            }
            if oldest.is_empty() {
                continue;
            }
            let is_at_home = |frame| frames.standing(frame).is_some_and(|it| !it.is_ahead_of_home);
            let clean = oldest.iter().rev().position(|candidate| is_at_home(candidate.frame));
            let frame = self.tails.take(queue, clean.unwrap_or(0)).frame;
            self.sizes[queue] = self.sizes[queue].saturating_sub(1);
            return Named::Frame(frame);
        }
        Named::Nobody
    }

    fn look(&mut self, frames: &impl Frames, now: Tick, named: &[FrameId]) {
        let (mut pages, mut on_flash, mut ahead) = (0_u64, 0, 0_u64);
        self.tails.look(frames, now, named, |standing| {
            pages += 1;
            on_flash += u64::from(standing.is_on_flash);
            ahead += u64::from(standing.is_ahead_of_home);
        });
        self.sizes = [on_flash, pages - on_flash];
        self.theta = self.rules.theta.unwrap_or_else(|| {
            (1.0 - ahead as f64 / pages.max(1) as f64).clamp(THETA_MIN, THETA_MAX)
        });
    }
}

/// How many pages of `Q_r` there are to be for each of `Q_m` [S2 Formula 1].
fn beta(costs: &Costs, theta: f64) -> f64 {
    let migrating = theta * (costs.flash_read + costs.home_write);
    (costs.flash_read + migrating) / (costs.flash_read + costs.flash_write + migrating)
}

/// When frames were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    Before,
    JustNow,
}

/// What a search for a victim came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Frame(FrameId),
    /// No page can leave.
    Nobody,
    /// Only a look at the frames can tell.
    LookFirst,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Standing, Touch};
    use std::cell::Cell;
    use std::collections::{BTreeMap, BTreeSet};

    const COSTS: Costs = Costs::PUBLISHED;

    struct Pool {
        words: Vec<Cell<Touch>>,
        standings: BTreeMap<u32, Standing>,
        pinned: BTreeSet<u32>,
    }

    impl Pool {
        fn new(frames: u32, prng: &mut fastrand::Rng) -> Pool {
            let used = |at: u32| Cell::new(Touch::first(Tick(u64::from(at))));
            let words = (1..=frames).map(used).collect();
            let standings = (0..frames).map(|it| (it, some_standing(prng))).collect();
            Pool { words, standings, pinned: BTreeSet::new() }
        }
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
            self.standings.get(&frame.0).copied()
        }
    }

    fn some_standing(prng: &mut fastrand::Rng) -> Standing {
        Standing { is_on_flash: prng.bool(), is_ahead_of_home: prng.u8(..3) == 0 }
    }

    /// The queues as lists, oldest first; sizes and theta as they were at the last look.
    struct Model {
        rules: QueueRules,
        used: Vec<u64>,
        sizes: [usize; 2],
        theta: f64,
    }

    impl Model {
        fn look(&mut self, pool: &Pool) {
            let on_flash = pool.standings.values().filter(|it| it.is_on_flash).count();
            let ahead = pool.standings.values().filter(|it| it.is_ahead_of_home).count();
            self.sizes = [on_flash, pool.standings.len() - on_flash];
            let share = 1.0 - ahead as f64 / pool.standings.len().max(1) as f64;
            self.theta = self.rules.theta.unwrap_or(share.clamp(0.05, 0.95));
        }

        fn victim(&mut self, pool: &Pool) -> Option<u32> {
            let queue = |on_flash: bool| {
                let here = pool.standings.iter().filter(|(_, it)| it.is_on_flash == on_flash);
                let mut frames: Vec<u32> = here.map(|(&frame, _)| frame).collect();
                frames.retain(|frame| !pool.pinned.contains(frame));
                frames.sort_by_key(|&frame| (self.used[frame as usize], frame));
                frames
            };
            let Costs { flash_read, flash_write, home_write, .. } = COSTS;
            let home = self.theta * (flash_read + home_write);
            let beta = (flash_read + home) / (flash_read + flash_write + home);
            let reads_first = self.sizes[0] as f64 > beta * self.sizes[1] as f64;
            let queues = [queue(reads_first), queue(!reads_first)];
            let chosen = queues.into_iter().find(|queue| !queue.is_empty())?;
            let mut end = chosen.iter().take(self.rules.scan_depth as usize);
            let clean = end.find(|&frame| !pool.standings[frame].is_ahead_of_home);
            let victim = *clean.unwrap_or(&chosen[0]);
            self.sizes[usize::from(!pool.standings[&victim].is_on_flash)] -= 1;
            Some(victim)
        }
    }

    /// What moved, or can leave again, is found at the next look: there is one then.
    #[test]
    fn the_queues_agree_with_lists() {
        const FRAMES: u32 = 40;
        for seed in 0..400 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let theta = prng.bool().then(|| 0.01 + 0.98 * prng.f64());
            let rules = QueueRules { theta, scan_depth: prng.u32(1..8) };
            let mut policy = TwoQueues::new(FRAMES, &COSTS, rules);
            let mut pool = Pool::new(FRAMES, &mut prng);
            let used = (1..=u64::from(FRAMES)).collect();
            let mut model = Model { rules, used, sizes: [0; 2], theta: 0.0 };
            let mut now = Tick(u64::from(FRAMES));
            for step in 0..400 {
                now.0 += 1;
                let frame = prng.u32(..FRAMES);
                match prng.u8(..8) {
                    0 | 1 => {
                        pool.set_touch(FrameId(frame), pool.touch(FrameId(frame)).hit(now));
                        model.used[frame as usize] = now.0;
                    }
                    2 => _ = pool.pinned.insert(frame),
                    3 => {
                        pool.pinned.remove(&frame);
                        policy.tails.forget();
                    }
                    4 => {
                        if pool.standings.remove(&frame).is_none() {
                            pool.standings.insert(frame, some_standing(&mut prng));
                        }
                        policy.tails.forget();
                    }
                    _ => {
                        let mut out = Vec::new();
                        policy.victims(&pool, now, 1, &mut out);
                        if policy.tails.looked_at() == now.0 {
                            model.look(&pool);
                        }
                        let got = out.first().map(|frame| frame.0);
                        assert_eq!(got, model.victim(&pool), "seed {seed} step {step}");
                        let Some(frame) = got else { continue };
                        pool.set_touch(FrameId(frame), Touch::first(now));
                        pool.standings.insert(frame, some_standing(&mut prng));
                        model.used[frame as usize] = now.0;
                    }
                }
            }
        }
    }

    #[test]
    fn the_ratio_is_that_of_the_paper() {
        let costs = Costs { home_read: 9.0, home_write: 8.0, flash_read: 1.0, flash_write: 2.0 };
        assert_eq!(beta(&costs, 0.5), 5.5 / 7.5);
        assert!(beta(&costs, 0.05) < beta(&costs, 0.95), "changes give Q_m room");
        assert!(beta(&costs, 0.95) < 1.0);
    }

    /// With as many pages coming to each queue their sizes settle at beta.
    #[test]
    fn sizes_settle_in_the_ratio() {
        const FRAMES: u32 = 4_000;
        let mut prng = fastrand::Rng::with_seed(1);
        let rules = QueueRules { theta: Some(0.2), scan_depth: 16 };
        let costs = Costs { home_read: 9.0, home_write: 2.0, flash_read: 1.0, flash_write: 4.0 };
        let mut policy = TwoQueues::new(FRAMES, &costs, rules);
        let mut pool = Pool::new(FRAMES, &mut prng);
        for now in (u64::from(FRAMES)..60_000).map(Tick) {
            let mut out = Vec::new();
            policy.victims(&pool, now, 1, &mut out);
            pool.set_touch(out[0], Touch::first(now));
            pool.standings.insert(out[0].0, some_standing(&mut prng));
        }
        let reads = pool.standings.values().filter(|it| it.is_on_flash).count() as f64;
        let ratio = reads / (f64::from(FRAMES) - reads);
        assert!((ratio - beta(&costs, 0.2)).abs() < 0.03, "{ratio}");
    }

    #[test]
    fn rules_that_cannot_be_are_refused() {
        let rules = QueueRules::default();
        assert_eq!(rules.flaw(), None);
        for theta in [0.0, 1.0, -0.5, f64::NAN] {
            assert!(QueueRules { theta: Some(theta), ..rules }.flaw().is_some(), "{theta}");
        }
        for scan_depth in [0, 4097] {
            assert!(QueueRules { scan_depth, ..rules }.flaw().is_some(), "{scan_depth}");
        }
    }
}
