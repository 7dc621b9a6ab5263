//! LRU-2 by prices: what flash gives back sooner leaves sooner, by as much as the loads say.
//!
//! - Idea: a page is asked for about once in the time since its use before the last. What memory
//!   saves by keeping it is that rate times what reading it again costs. So the time of a page that
//!   flash has too counts `ratio` times, the price of a read from home over one of flash; with a
//!   ratio of one this is LRU-2.
//! - The prices are those of the devices' time: where flash is the busier device, sparing home is
//!   worth nothing. `Prices` finds the ratio at which neither is busier, or an end of its range:
//!   dual ascent on "the system goes as fast as its busier device lets it".
//! - P1: a page used once leaves before all that were used twice, as in LRU-2; of two of those the
//!   one with the longer time, counted likewise.
//! - P2: the ratio is between 1 and `RATIO_MAX`, whatever was told.
//! - Sources: none for the two together. LRU-2 is O'Neil et al.'s (1993), the weighing of what
//!   reading again costs GreedyDual's, and GD2L's for two devices [S1e 4].
//! - Cost: a hit is one store; see `coldest` for a victim.
//! - Not for: memory so small that a page leaves before its second use.

use crate::memory::coldest::{Cold, Coldest};
use crate::memory::lru_2;
use crate::{Frames, Tick};
use terrace_page::FrameId;

/// The ratio counts in units of one part in this number.
const PARTS: u64 = 256;
/// The most that a read from home can be worth, in reads of flash.
pub const RATIO_MAX: f64 = 64.0;
/// The most that the ratio changes at a time, in powers of two.
const STEP_MAX: f64 = 0.5;
/// Loads that differ by a fifth of the higher are as far apart as can be.
const STEEPNESS: f64 = 5.0;
/// Below this share of the time no device limits anything.
const IDLE: f64 = 0.5;

pub struct Priced {
    coldest: Coldest,
    /// The price of a read from home over one of flash, in `PARTS`.
    ratio: u64,
}

impl Priced {
    pub fn new(frames_count: u32, ratio: f64) -> Priced {
        let mut priced = Priced { coldest: Coldest::new(frames_count), ratio: PARTS };
        priced.set_ratio(ratio);
        priced
    }

    /// From now on, until the coldest are looked for again (coldest.B2).
    pub fn set_ratio(&mut self, ratio: f64) {
        self.ratio = (ratio.clamp(1.0, RATIO_MAX) * PARTS as f64) as u64;
    }

    pub fn victims(
        &mut self,
        frames: &impl Frames,
        now: Tick,
        wanted: usize,
        out: &mut Vec<FrameId>,
    ) {
        let ratio = self.ratio;
        let cold = |frame, touch| {
            let Cold { age, tie } = lru_2::cold(touch, now);
            let is_on_flash = frames.standing(frame).is_some_and(|page| page.is_on_flash);
            let parts = if is_on_flash { ratio } else { PARTS };
            let tie = (u64::from(tie) * parts / PARTS).min(u64::from(u32::MAX)) as u32;
            Cold { age: age.saturating_mul(parts), tie }
        };
        self.coldest.victims(frames, cold, wanted, out);
    }
}

/// What a read from home is worth in reads of flash, by the loads of the two devices.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    /// In powers of two.
    ratio: f64,
}

impl Prices {
    /// To begin with `ratio` (P2).
    #[must_use]
    pub fn new(ratio: f64) -> Prices {
        Prices { ratio: ratio.clamp(1.0, RATIO_MAX).log2() }
    }

    /// The devices were busy for such shares of a while, and a read from home takes as long as
    /// `costs` of flash: to where the ratio returns while neither limits anything.
    pub fn told(&mut self, home: f64, flash: f64, costs: f64) {
        let busier = home.max(flash);
        let step = if busier < IDLE {
            costs.clamp(1.0, RATIO_MAX).log2() - self.ratio
        } else {
            STEEPNESS * (home - flash) / busier * STEP_MAX
        };
        let step = step.clamp(-STEP_MAX, STEP_MAX);
        self.ratio = (self.ratio + step).clamp(0.0, RATIO_MAX.log2());
    }

    /// The price of a read from home over one of flash.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.ratio.exp2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system that uses more of flash and less of home the higher the ratio is: told until it
    /// comes to rest.
    fn settle(prices: &mut Prices, loads: impl Fn(f64) -> (f64, f64)) -> f64 {
        for _ in 0..200 {
            let (home, flash) = loads(prices.ratio());
            prices.told(home, flash, 12.0);
        }
        prices.ratio()
    }

    #[test]
    fn the_ratio_settles_where_the_loads_meet_or_at_an_end() {
        for begin in [1.0, 12.0, 64.0, 1e9] {
            let mut prices = Prices::new(begin);
            let meet = settle(&mut prices, |ratio| (3.0 / ratio.sqrt(), ratio.sqrt() / 3.0));
            assert!((8.0..10.0).contains(&meet), "{meet} from {begin}");
            let home_bound = settle(&mut prices, |_| (0.99, 0.3));
            assert_eq!(home_bound, RATIO_MAX);
            let flash_bound = settle(&mut prices, |_| (0.7, 1.0));
            assert_eq!(flash_bound, 1.0);
        }
    }

    #[test]
    fn where_nothing_is_busy_what_requests_take_decides() {
        let mut prices = Prices::new(1.0);
        let idle = settle(&mut prices, |_| (0.1, 0.4));
        assert!((idle - 12.0).abs() < 1e-9, "{idle}");
        assert_eq!(Prices::new(0.001).ratio(), 1.0, "P2");
    }
}
