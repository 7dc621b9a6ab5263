//! What is replayed: everything, or coarsely first.
//!
//! - P1: work is counted in references replayed, times what a design costs beside the cheapest; it
//!   does not depend on the machine, so that the same trace gives the same advice everywhere.
//! - P2: a trace whose rows all fit into the budget is replayed whole.
//! - P3: else small samples, of few sizes, tell which designs are worth more; those are replayed
//!   with larger samples, or whole, at every size. What was left out is shown as the small samples
//!   have it, and never advised.
//! - P4: what is advised by samples, and the sizes next to it, are replayed whole if that is little
//!   work; if something else is advised then, that is, too.

use super::choice::is_held;
use super::estimate::{Estimate, GAIN_TOLD_MAX};
use super::{SAMPLES, Setting};
use terrace_policy::{Design, Replacement};

/// Work of the coarse stage, in references: a few seconds.
const COARSE_WORK: f64 = 3e6;
/// Of all sizes of the better designs.
const FULL_WORK: f64 = 16e6;
/// Of what is advised at last, from the whole trace.
const WHOLE_WORK: f64 = 12e6;
/// Sizes of each design in the coarse stage.
const COARSE_SIZES: usize = 4;
/// Designs that go on.
const DESIGNS_MAX: usize = 6;
/// A design goes on if it might come so near the best.
const NEAR: f64 = 0.9;
/// Frames that memory has in a sample, at least: fewer are another cache.
const FRAMES_MIN: f64 = 20.0;
/// The largest share of the extents that each sample may be: another is replayed whole.
const RATE_MAX: f64 = 1.0 / SAMPLES as f64;

/// A design and its slots.
pub type Pair = (Design, u32);

/// What is replayed at first.
#[derive(Debug, PartialEq)]
pub enum First {
    /// Everything, in samples of this share each; 1 for the trace itself.
    All(f64),
    /// Some sizes, in samples of this share each.
    Coarse(f64),
}

/// What comes first, of `pairs`.
pub fn first(setting: &Setting, pairs: &[Pair]) -> First {
    if let Some(rate) = setting.asked_rate {
        return First::All(rate);
    }
    let rate = rate_for(setting, pairs, FULL_WORK);
    if rate >= 1.0 {
        return First::All(1.0);
    }
    let coarse = coarse_pairs(pairs);
    match rate_for(setting, &coarse, COARSE_WORK) {
        // Little would be saved.
        rate if rate >= 1.0 || coarse.len() == pairs.len() => {
            First::All(rate_for(setting, pairs, FULL_WORK))
        }
        rate => First::Coarse(rate),
    }
}

/// Some sizes of each design: the least, the largest, and between.
pub fn coarse_pairs(pairs: &[Pair]) -> Vec<Pair> {
    let of_design = |design: &Design| {
        let sizes: Vec<Pair> =
            pairs.iter().copied().filter(|pair| pair.0.name == design.name).collect();
        let last = sizes.len() - 1;
        let mut places: Vec<usize> =
            (0..COARSE_SIZES).map(|at| at * last / (COARSE_SIZES - 1)).collect();
        places.dedup();
        places.into_iter().map(|at| sizes[at]).collect::<Vec<_>>()
    };
    let mut designs: Vec<Design> = pairs.iter().map(|pair| pair.0).collect();
    designs.dedup_by_key(|design| design.name);
    designs.iter().flat_map(of_design).collect()
}

/// What goes on after the coarse stage, and in samples of which share: the designs that may be
/// advised and might come near the best, at most a few, at all of their sizes.
pub fn second(setting: &Setting, pairs: &[Pair], coarse: &[Estimate]) -> (Vec<Pair>, f64) {
    let told = |gain: f64| gain.min(GAIN_TOLD_MAX);
    let may_go_on = |one: &&Estimate| {
        one.design.uses_flash() && is_held(one.design.name) && one.lasts(setting.lifetime_years)
    };
    // The best gain that each design may have, in the order of the table.
    let mut best: Vec<(&'static str, f64, f64)> = Vec::new();
    for one in coarse.iter().filter(may_go_on) {
        let (gain, high) = (told(one.gain.mean), told(one.gain.high));
        match best.iter_mut().find(|row| row.0 == one.design.name) {
            Some(row) => *row = (row.0, row.1.max(gain), row.2.max(high)),
            None => best.push((one.design.name, gain, high)),
        }
    }
    let top = best.iter().map(|row| row.1).fold(0.0, f64::max);
    best.retain(|row| row.2 >= NEAR * top);
    best.sort_by(|a, b| b.1.total_cmp(&a.1));
    best.truncate(DESIGNS_MAX);
    let goes_on = |pair: &&Pair| best.iter().any(|row| row.0 == pair.0.name);
    let mut chosen: Vec<Pair> = pairs.iter().filter(goes_on).copied().collect();
    if chosen.is_empty() {
        chosen = coarse_pairs(pairs);
    }
    let rate = rate_for(setting, &chosen, FULL_WORK);
    (chosen, rate)
}

/// Whether a row of the whole trace, and memory alone, are little work.
pub fn affords_whole(setting: &Setting) -> bool {
    setting.asked_rate.is_none() && 2.0 * setting.references <= WHOLE_WORK
}

/// What is left of the work for the whole trace.
pub struct Work {
    left: f64,
    references: f64,
}

impl Work {
    /// After memory alone.
    pub fn new(setting: &Setting) -> Work {
        let references = setting.references;
        Work { left: WHOLE_WORK - references, references }
    }

    /// Takes what a row of `design` costs. Whether there was enough.
    pub fn take(&mut self, design: &Design) -> bool {
        let cost = weight(design) * self.references;
        let is_enough = cost <= self.left;
        self.left -= if is_enough { cost } else { 0.0 };
        is_enough
    }
}

/// The share of each sample with which all of `pairs` are `work`; 1 for the trace itself.
fn rate_for(setting: &Setting, pairs: &[Pair], work: f64) -> f64 {
    let weights: f64 = pairs.iter().map(|pair| weight(&pair.0)).sum();
    let whole = weights * setting.references;
    // A whole trace is one sample, others are some.
    if whole <= work {
        return 1.0;
    }
    let rate = work / whole / f64::from(SAMPLES);
    let least = match setting.has_memory {
        true => FRAMES_MIN / f64::from(setting.frames),
        false => 0.0,
    };
    if rate.max(least) > RATE_MAX { 1.0 } else { rate.max(least) }
}

/// What a reference costs under a design, beside the cheapest, as measured.
fn weight(design: &Design) -> f64 {
    match design.replacement {
        Replacement::BlockWeight | Replacement::Chosen => 4.0,
        Replacement::Benefit | Replacement::AnticipatedBenefit => 6.0,
        Replacement::Temperature => 2.0,
        _ => 1.0,
    }
}
