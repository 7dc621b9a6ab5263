//! Which design of which size to take, and the sentence that says so.
//!
//! - The knee: the smallest size that gives nearly all that any would give.
//! - Of designs that do about as well at that size, the one that writes least to flash.
//! - What wears the drive out too soon is left out, if anything else is worth its place.

use super::Setting;
use super::estimate::{Estimate, years_text};
use crate::table::percent;

/// This share of the best gain is nearly all.
const NEARLY_ALL: f64 = 0.95;
/// And this share is all.
const ALL: f64 = 0.99;
/// Designs so close do about as well.
const AS_WELL: f64 = 0.98;
/// Less is nothing.
const GAIN_MIN: f64 = 1.05;

/// What is advised: places in the list of estimates.
pub struct Choice {
    /// The design at its knee; none if no flash is worth it.
    pub taken: Option<usize>,
    /// The size of the same design beyond which there is nothing more to gain.
    pub enough: Option<usize>,
    /// The best gain of all, whatever wears out.
    pub best: usize,
    /// Whether something was left out because the drive would not last.
    pub wears_out: bool,
}

/// Chooses from `estimates`, sizes ascending within each design: a flash tier. A home that is on
/// flash is what a tier comes up to at best; whether to have one is not a matter of caching.
pub fn choose(estimates: &[Estimate], lifetime_years: f64) -> Choice {
    let by_gain = |&a: &usize, &b: &usize| {
        estimates[a].gain.mean.total_cmp(&estimates[b].gain.mean).then(b.cmp(&a))
    };
    let tiers = (0..estimates.len()).filter(|&at| estimates[at].design.uses_flash());
    let all: Vec<usize> = if tiers.clone().next().is_some() {
        tiers.collect()
    } else {
        (0..estimates.len()).collect()
    };
    let all = all.into_iter();
    let best = all.clone().max_by(by_gain).expect("a design and a size");
    let lasting: Vec<usize> =
        all.clone().filter(|&at| estimates[at].lasts(lifetime_years)).collect();
    let gain = |at: usize| estimates[at].gain.mean;
    let top = lasting.iter().copied().max_by(by_gain).filter(|&top| gain(top) >= GAIN_MIN);
    let taken = top.map(|top| {
        let near = lasting.iter().copied().filter(|&at| gain(at) >= NEARLY_ALL * gain(top));
        let slots = near.clone().map(|at| estimates[at].slots).min().expect("the top is near");
        let here: Vec<usize> = near.filter(|&at| estimates[at].slots == slots).collect();
        let most = here.iter().map(|&at| gain(at)).fold(0.0, f64::max);
        let as_good = here.into_iter().filter(|&at| gain(at) >= AS_WELL * most);
        let writes = |at: usize| estimates[at].rates.flash.writes;
        as_good.min_by(|&a, &b| writes(a).total_cmp(&writes(b))).expect("the best of them")
    });
    let enough = taken.and_then(|taken| {
        let name = estimates[taken].design.name;
        let same = all.filter(|&at| estimates[at].design.name == name);
        let most = same.clone().map(gain).fold(0.0, f64::max);
        same.clone().find(|&at| gain(at) >= ALL * most).filter(|&at| at >= taken)
    });
    let is_less = |taken: usize| gain(best) * NEARLY_ALL > gain(taken);
    let wears_out = !estimates[best].lasts(lifetime_years) && taken.is_none_or(is_less);
    Choice { taken, enough, best, wears_out }
}

/// The smallest of some sizes that gives nearly the best of their gains.
pub fn knee(sizes: impl Iterator<Item = (u32, f64)> + Clone) -> Option<u32> {
    let best = sizes.clone().map(|(_, gain)| gain).fold(0.0, f64::max);
    sizes.filter(|&(_, gain)| gain >= NEARLY_ALL * best).map(|(slots, _)| slots).min()
}

/// The advice in a sentence or two.
pub fn sentence(choice: &Choice, estimates: &[Estimate], setting: &Setting) -> String {
    let drive = setting.flash_name;
    let size = |at: usize| setting.size_text(estimates[at].slots);
    let worn = |at: usize| {
        let years = estimates[at].years.map(years_text);
        years.map_or(String::new(), |years| format!(", and wears it out in {years}"))
    };
    let Some(taken) = choice.taken else {
        let best = &estimates[choice.best];
        if choice.wears_out {
            return format!(
                "No size of {drive} lasts for {}: {} of it, under {}, would make this load {:.1} \
                 times as fast{}. Take a drive that may be written more often.",
                years_text(setting.lifetime_years),
                size(choice.best),
                best.design.name,
                best.gain.mean,
                worn(choice.best),
            );
        }
        return format!(
            "No flash: the best of these, {} of {drive} under {}, would make this load {:.2} \
             times as fast as it is with memory over {} alone.",
            size(choice.best),
            best.design.name,
            best.gain.mean,
            setting.home_name,
        );
    };
    let one = &estimates[taken];
    let mut text = format!(
        "{} of {drive} under {} serves {} of memory's misses, makes this load {:.1} times as fast",
        size(taken),
        one.design.name,
        percent(one.hit_ratio.mean),
        one.gain.mean,
    );
    text += &worn(taken);
    match choice.enough {
        Some(enough) if enough != taken => {
            text += &format!("; more than {} buys nothing.", size(enough));
        }
        Some(_) => text += "; more buys nothing.",
        None => text += ".",
    }
    if choice.wears_out {
        let best = &estimates[choice.best];
        text += &format!(
            " {} under {} would be {:.1} times as fast{}.",
            size(choice.best),
            best.design.name,
            best.gain.mean,
            worn(choice.best),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::Interval;
    use terrace_policy::designs;
    use terrace_replay::TierRates;

    fn estimate(design: &str, slots: u32, gain: f64, (writes, years): (f64, f64)) -> Estimate {
        let mut rates = TierRates::default();
        rates.flash.writes = writes;
        Estimate {
            design: designs::find(design).expect("a design"),
            slots,
            rates,
            hit_ratio: Interval::of(&[0.5]),
            gain: Interval::of(&[gain]),
            home_s: 1.0,
            flash_s: 1.0,
            flash_bytes_per_day: None,
            drive_writes_per_day: None,
            years: (years > 0.0).then_some(years),
            home_iops: None,
            cost: None,
        }
    }

    #[test]
    fn the_knee_is_taken_under_the_design_that_writes_less() {
        let estimates = [
            estimate("dw", 10, 2.0, (1.0, 0.0)),
            estimate("dw", 20, 3.95, (1.0, 0.0)),
            estimate("dw", 40, 4.0, (1.0, 0.0)),
            estimate("dw", 80, 4.0, (1.0, 0.0)),
            estimate("lc", 20, 4.0, (2.0, 0.0)),
            estimate("lc", 40, 4.05, (2.0, 0.0)),
        ];
        let choice = choose(&estimates, 5.0);
        assert_eq!((choice.taken, choice.enough, choice.best), (Some(1), Some(2), 5));
        assert!(!choice.wears_out);
    }

    #[test]
    fn what_wears_the_drive_out_is_left_out_and_told() {
        let estimates = [estimate("dw", 10, 2.0, (1.0, 9.0)), estimate("lc", 10, 4.0, (1.0, 0.5))];
        let choice = choose(&estimates, 5.0);
        assert_eq!((choice.taken, choice.best, choice.wears_out), (Some(0), 1, true));
        let choice = choose(&estimates, 0.1);
        assert_eq!((choice.taken, choice.wears_out), (Some(1), false));
        assert_eq!(choose(&estimates[1..], 5.0).taken, None);
    }

    #[test]
    fn a_gain_of_a_few_percent_is_no_flash() {
        let choice = choose(&[estimate("dw", 10, 1.02, (1.0, 0.0))], 5.0);
        assert_eq!((choice.taken, choice.best, choice.wears_out), (None, 0, false));
    }
}
