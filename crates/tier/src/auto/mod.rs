//! The design `auto`: picks admission, replacement and the treatment of dirty pages while it runs,
//! by what each choice would have cost.
//!
//! ```text
//! requests of a sample of pages --> a shadow (small tier) for each choice --> requests
//!              what requests cost on the devices, now --> time on each device --> the choice
//! ```
//!
//! - Idea: a loaded system goes as fast as its busier device lets it. So the cost of a choice is
//!   the time for which it occupies the busier device, and a tenth of that for which it occupies
//!   the other. The cheapest choice is taken if it saves at least a thirtieth.
//! - U1: each choice is followed on the same requests; the choice in force changes none of the
//!   counts.
//! - U2: counts are halved at each decision: what was half a turnover of the tier ago counts half.
//! - U3: the choice is a function of the requests and the costs that it was told.
//! - Sources: none; sampling by hash is SHARDS' (Waldspurger et al. 2015).
//! - Cost: a shadow of about 256 slots for each choice, 28 KB together, whatever the size of the
//!   tier.

mod busy_fit;
mod choice;
mod shadow;

pub use busy_fit::BusyFit;
pub use choice::{CHOICES, Choice};

pub use shadow::{Leaves, Limits, Shadow, Tally};

use terrace_page::PageId;
use terrace_policy::{AccessClass, Costs, Design, History, Replacement, SlotAges, Tick};

use crate::{AgesOrder, SlotRules, Unshared};

/// The least slots of a shadow, if the tier has that many.
const SHADOW_SLOTS_MIN: u32 = 256;
/// How much of the other device's time counts.
const OTHER_DEVICE: f64 = 0.1;
/// A change of the choice must save this share of the cost.
const SAVED_MIN: f64 = 1.0 / 30.0;
/// Under `auto` the sketch of uses is made for one slot in sixteen.
pub(crate) const SKETCH_SLOTS: u32 = 16;

/// What one request keeps a device busy, in any unit, as the devices are now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BusyCosts {
    /// A page read from home.
    pub home_read: f64,
    /// A page written home.
    pub home_write: f64,
    /// A page that the cleaner writes home, along with its neighbours.
    pub home_clean: f64,
    /// A page read from flash.
    pub flash_read: f64,
    /// A page written to flash.
    pub flash_write: f64,
}

impl BusyCosts {
    /// What `tally` costs (see the module).
    fn of(&self, tally: &Tally) -> f64 {
        let home = tally.home_reads * self.home_read
            + tally.home_writes * self.home_write
            + tally.cleanings * self.home_clean;
        let flash = (tally.flash_reads + tally.cleanings) * self.flash_read
            + tally.flash_writes * self.flash_write;
        home.max(flash) + OTHER_DEVICE * home.min(flash)
    }
}

/// The chooser of one tier.
pub struct Chooser {
    /// One in this number of pages is in the sample.
    one_in: u32,
    /// One for each choice.
    shadows: Vec<Shadow<AgesOrder, Unshared>>,
    now: Tick,
    decide_at: Tick,
    period: u64,
    chosen: usize,
}

impl Chooser {
    /// A chooser for a tier of `slots` by `design`, which picks itself within these limits.
    ///
    /// # Panics
    ///
    /// If there are no slots.
    #[must_use]
    pub fn new(design: Design, slots: u32, limits: Limits) -> Chooser {
        assert!(slots > 0, "a tier has slots");
        let one_in = (slots / SHADOW_SLOTS_MIN).max(1);
        let in_small = slots / one_in;
        let shadow = |choice: &Choice| {
            let design = Design { replacement: Replacement::Recency, ..choice.of(design) };
            let rules = SlotRules::of_cache(design, in_small, Costs::PUBLISHED);
            let rules = SlotRules { sketch_one_in: SKETCH_SLOTS, ..rules };
            let ages = SlotAges::new(in_small, u64::from(in_small));
            let order = AgesOrder { ages, order: choice.order };
            Shadow::new(in_small, order, (&rules, &Unshared), limits)
        };
        let period = u64::from(in_small / 2).max(1);
        Chooser {
            one_in,
            shadows: CHOICES.iter().map(shadow).collect(),
            now: Tick(1),
            decide_at: Tick(period),
            period,
            chosen: 0,
        }
    }

    /// Whether `page` is in the sample: what happens to others need not be told.
    #[must_use]
    #[inline]
    pub fn samples(one_in: u32, page: PageId) -> bool {
        // The sketch and the directory hash otherwise.
        let mixed = page.0.wrapping_add(0x632b_e59b_d9b4_e019).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53) >> 32;
        (mixed * u64::from(one_in)) >> 32 == 0
    }

    /// One in this number of pages is in the sample.
    #[must_use]
    pub fn one_in(&self) -> u32 {
        self.one_in
    }

    /// Memory misses `page`, which is in the sample. Whether a decision is due.
    pub fn asked(&mut self, page: PageId) -> bool {
        self.now = Tick(self.now.0 + 1);
        self.shadows.iter_mut().for_each(|shadow| shadow.asked(page, self.now));
        self.is_due()
    }

    /// `page`, which is in the sample, changes in memory.
    pub fn changed(&mut self, page: PageId) {
        self.shadows.iter_mut().for_each(|shadow| shadow.changed(page));
    }

    /// `page`, which is in the sample, leaves memory; it has more uses than one if it is `reused`.
    pub fn left(&mut self, page: PageId, is_dirty: bool, class: AccessClass, reused: bool) {
        let previous = reused.then_some(self.now);
        let history = History { last: self.now, previous };
        let leaves = Leaves { page, is_dirty, class, history };
        self.shadows.iter_mut().for_each(|shadow| shadow.left(&leaves, self.now));
    }

    /// Whether a decision is due.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.now >= self.decide_at
    }

    /// Chooses again, by what requests cost now.
    pub fn decide(&mut self, costs: &BusyCosts) -> Choice {
        self.decide_at = Tick(self.now.0 + self.period);
        let cost = |at: usize| costs.of(self.shadows[at].tally());
        let cheapest = (0..CHOICES.len())
            .min_by(|&a, &b| cost(a).total_cmp(&cost(b)))
            .expect("there are choices");
        if cost(cheapest) < cost(self.chosen) * (1.0 - SAVED_MIN) {
            self.chosen = cheapest;
        }
        self.shadows.iter_mut().for_each(Shadow::halve);
        CHOICES[self.chosen]
    }

    /// What each choice costs per request of the sample, as counted now.
    #[cfg(test)]
    fn prices(&self, costs: &BusyCosts) -> [f64; CHOICES.len()] {
        std::array::from_fn(|at| {
            let tally = self.shadows[at].tally();
            costs.of(tally) / (tally.home_reads + tally.flash_reads).max(1.0)
        })
    }

    /// Bytes allocated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shadows.iter().map(Shadow::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_policy::{AdmissionRule, DirtyLeave, designs};
    use terrace_rt::Prng;

    const DISK: BusyCosts = BusyCosts {
        home_read: 1.0,
        home_write: 1.0,
        home_clean: 0.4,
        flash_read: 0.08,
        flash_write: 0.08,
    };

    fn chooser(slots: u32) -> Chooser {
        let auto = designs::find("auto").unwrap();
        Chooser::new(auto, slots, Limits { tau: 0.95, lambda: 0.5 })
    }

    /// Misses and departures of pages drawn with a skew, of which `changed_percent` are changed.
    fn drive(chooser: &mut Chooser, seed: u64, changed_percent: u64, costs: &BusyCosts) -> Choice {
        let mut prng = Prng::from_seed(seed);
        for _ in 0..60_000 {
            let page = prng.below(4_000).min(prng.below(4_000)).min(prng.below(4_000));
            let page = PageId(page * 7);
            if !Chooser::samples(chooser.one_in(), page) {
                continue;
            }
            if chooser.asked(page) {
                chooser.decide(costs);
            }
            let is_dirty = prng.below(100) < changed_percent;
            if is_dirty {
                chooser.changed(page);
            }
            chooser.left(page, is_dirty, AccessClass::Random, true);
        }
        CHOICES[chooser.chosen]
    }

    #[test]
    fn changed_pages_stay_away_from_a_slow_home() {
        let choice = drive(&mut chooser(1_500), 1, 60, &DISK);
        assert_eq!(choice.dirty, DirtyLeave::Flash, "{}", choice.title());
    }

    #[test]
    fn a_flash_slower_than_home_is_left_alone_and_taken_up_again() {
        let mut chooser = chooser(1_500);
        let slow = BusyCosts { flash_read: 3.0, flash_write: 9.0, ..DISK };
        let choice = drive(&mut chooser, 1, 30, &slow);
        assert_eq!(choice.admission, AdmissionRule::Nothing, "{}", choice.title());
        let choice = drive(&mut chooser, 2, 30, &DISK);
        assert_ne!(choice.admission, AdmissionRule::Nothing, "{}", choice.title());
    }

    #[test]
    fn the_same_requests_give_the_same_choices_and_no_choice_costs_less_by_much() {
        for seed in 0..6 {
            let run = || {
                let mut chooser = chooser(1_500);
                drive(&mut chooser, seed, 30, &DISK);
                let choice = chooser.decide(&DISK);
                (choice, chooser.prices(&DISK))
            };
            let (choice, prices) = run();
            assert_eq!((choice, prices), run(), "U3");
            let at = CHOICES.iter().position(|&other| other == choice).unwrap();
            let least = prices.iter().copied().fold(f64::INFINITY, f64::min);
            assert!(prices[at] * (1.0 - SAVED_MIN) <= least, "seed {seed}: {prices:?}");
        }
    }

    #[test]
    fn one_page_in_as_many_is_in_the_sample() {
        for one_in in [1, 7, 100] {
            let sampled = (0..70_000).filter(|&page| Chooser::samples(one_in, PageId(page)));
            let share = sampled.count() as f64 * f64::from(one_in) / 70_000.0;
            assert!((0.9..1.1).contains(&share), "{share} of one in {one_in}");
        }
    }

    #[test]
    fn choices_differ_and_the_sample_stays_small() {
        for (at, choice) in CHOICES.iter().enumerate() {
            assert!(!CHOICES[..at].contains(choice), "{}", choice.title());
        }
        for slots in [1, 100, 256, 36_700, 183_501, 20_000_000] {
            let bytes = chooser(slots).bytes();
            assert!(bytes < 64 << 10, "{bytes} bytes for {slots} slots");
        }
    }
}
