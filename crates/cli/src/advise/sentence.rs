//! The advice in a sentence or two, which states what it rests on: memory, how far off the gain may
//! be, and what the trace is too short to tell.

use super::choice::{Choice, GAIN_MIN, HITS_MIN, MISSES_MIN, Verdict};
use super::estimate::{Estimate, GAIN_TOLD_MAX, years_text};
use super::setting::{Pace, SPAN_MIN_S};
use super::{Advice, Setting};
use crate::table::{percent, thousands};

/// A trace this many times as long is none that anybody records.
const LONGER_MAX: f64 = 1_000.0;

impl Advice {
    /// The sentence at the top.
    pub fn sentence(&self) -> String {
        match self.choice.verdict {
            Verdict::Take => self.takes(),
            Verdict::NoFlash => self.no_flash(),
            Verdict::WearsOut => self.wears_out(),
            Verdict::TooShort => self.too_short(),
            Verdict::ReadsAhead => self.reads_ahead(),
            Verdict::OrderChanges => self.order_changes(),
        }
    }

    fn takes(&self) -> String {
        let Choice { taken, enough, worn, .. } = self.choice;
        let taken = taken.expect("what is taken");
        let (one, setting) = (&self.estimates[taken], &self.setting);
        let mut text = format!(
            "{} of {} under {} serves {} of the misses of {} and makes this load {} as fast as {} \
             alone{}",
            setting.size_text(one.slots),
            setting.flash_name,
            one.design.name,
            percent(one.hit_ratio.mean),
            self.memory_text(one),
            gain_text(one),
            self.baseline_text(),
            wear_text(setting, one),
        );
        text += &match enough {
            _ if one.unsettled >= 0.01 => format!(
                "; whether more serves more the trace does not tell, since it fills {} of that.",
                percent(one.filled)
            ),
            Some(enough) if enough != taken => {
                format!("; more than {} buys nothing.", self.size(enough))
            }
            Some(_) => "; more buys nothing.".into(),
            None => ".".into(),
        };
        if let Some(worn) = worn {
            text += &format!(" {}", self.worn_text(worn));
        }
        text
    }

    fn no_flash(&self) -> String {
        let best = &self.estimates[self.choice.best];
        let serves = format!(
            "No flash: the best of these, {} of {} under {}, would serve {} of the misses of {}",
            self.size(self.choice.best),
            self.setting.flash_name,
            best.design.name,
            percent(best.hit_ratio.mean),
            self.memory_text(best),
        );
        if best.hit_ratio.mean < HITS_MIN {
            return format!("{serves}: less than {}, too few to gain anything.", percent(HITS_MIN));
        }
        format!(
            "{serves} and make this load {} as fast as {} alone.",
            gain_text(best),
            self.baseline_text()
        )
    }

    fn wears_out(&self) -> String {
        let worn = self.choice.worn.expect("what wears out");
        format!(
            "No size of {} lasts for {}. {} Take a drive that may be written more often.",
            self.setting.flash_name,
            years_text(self.setting.lifetime_years),
            self.worn_text(worn),
        )
    }

    fn reads_ahead(&self) -> String {
        format!(
            "No advice: scans read {} of the pages that memory lacks ahead of need, and \
             predictions of what flash gains such loads are off by up to two fifths.",
            percent(self.baseline.ahead_share())
        )
    }

    fn order_changes(&self) -> String {
        let at = self.choice.reordered.expect("a row whose order would change");
        let each = self.estimates[at].turnover.unwrap_or_default();
        format!(
            "No advice: {} of the misses of {} are of pages that were changed when they were there \
             last, and each client makes only {} references until memory and {} of flash have \
             other pages. A faster tier changes the order of such references, and hits told from \
             one record were off by up to 7 points. Record again with a tier in place.",
            percent(self.baseline.after_change_share()),
            self.setting.size_text(self.setting.frames),
            thousands(each),
            self.size(at),
        )
    }

    fn too_short(&self) -> String {
        let open = self.choice.open.expect("what a longer trace might show");
        let one = &self.estimates[open];
        let misses = self.baseline.seen.reused_misses;
        let why = if misses < MISSES_MIN {
            format!(
                "{} of the misses that are counted are of pages used before, and {} are needed",
                thousands(misses as f64),
                thousands(MISSES_MIN as f64)
            )
        } else if one.unsettled > 0.0 {
            format!(
                "{} of memory's misses are first uses of a page, and {} of flash was filled to {} \
                 when counting began",
                percent(one.unsettled),
                self.size(open),
                percent(one.filled)
            )
        } else if one.rates.deferred > one.rates.home.writes {
            "most of the pages that flash took changed are not written home yet at its end".into()
        } else {
            "its parts differ too much".into()
        };
        let longer = format!("it would have to be more than {LONGER_MAX:.0} times as long");
        let needed = needed(one, misses).map_or(longer, |times| {
            let references = self.references * times;
            let time = self.setting.span_s.map(|span| format!(" ({})", time_text(span * times)));
            format!(
                "a trace of about {} references{} would tell",
                thousands(two_digits(references)),
                time.unwrap_or_default()
            )
        });
        let text = format!("No advice, as the trace is too short: {why}; {needed}.");
        if one.gain.mean < GAIN_MIN {
            return format!("{text} As far as it goes, no flash gains anything.");
        }
        let serves = format!(
            "{text} As far as it goes, {} of {} under {} serves {} of memory's misses",
            self.size(open),
            self.setting.flash_name,
            one.design.name,
            percent(one.hit_ratio.mean),
        );
        if one.hit_ratio.mean < HITS_MIN {
            return format!("{serves}: less than {}, too few to gain anything.", percent(HITS_MIN));
        }
        format!(
            "{serves} and makes this load {} as fast as {} alone.",
            gain_text(one),
            self.baseline_text()
        )
    }

    fn worn_text(&self, at: usize) -> String {
        let one = &self.estimates[at];
        format!(
            "{} under {} would make it {} as fast{}.",
            self.size(at),
            one.design.name,
            gain_text(one),
            wear_text(&self.setting, one)
        )
    }

    fn size(&self, at: usize) -> String {
        self.setting.size_text(self.estimates[at].slots)
    }

    /// The memory above a tier.
    fn memory_text(&self, one: &Estimate) -> String {
        let size = self.setting.size_text(self.setting.frames);
        match one.memory {
            Some(policy) => format!("{size} of memory under {}", policy.name()),
            None if self.setting.frames > 0 => format!("{size} of memory"),
            None => "a memory".into(),
        }
    }

    /// What a gain is over.
    fn baseline_text(&self) -> String {
        let memory = match self.baseline.policy {
            Some(policy) => format!("that memory under {}", policy.name()),
            None => "that memory".into(),
        };
        format!("{memory} over {}", self.setting.home_name)
    }

    /// What another policy of memory would be without flash, if it matters.
    pub fn policies_text(&self) -> Option<String> {
        let own = self.baseline.policy?;
        let others = &self.baseline.others;
        let usual = others.first().filter(|first| first.0 != own)?;
        Some(format!(
            "memory alone: {} makes this load {:.2} times as fast as {}, without flash; gains are \
             over that",
            own.name(),
            1.0 / usual.1,
            usual.0.name()
        ))
    }

    /// What the advice from the first half of the trace came to on the second.
    pub fn check_text(&self) -> Option<String> {
        let is_told =
            |it: &&Choice| !matches!(it.verdict, Verdict::ReadsAhead | Verdict::OrderChanges);
        let learnt = self.learnt.as_ref().filter(is_told)?;
        let Some(taken) = learnt.taken else {
            return Some("check: from its first half alone the trace advises no flash".into());
        };
        let [first, second] = self.estimates[taken].halves?;
        Some(format!(
            "check: from its first half alone the trace advises {} under {}, {} times as fast; on \
             its second half that is {} times",
            self.size(taken),
            self.estimates[taken].design.name,
            told(first.gain),
            told(second.gain)
        ))
    }
}

/// How many times as fast, with the interval.
pub fn gain_text(one: &Estimate) -> String {
    let [low, high] = one.gain_range;
    if one.gain.mean >= GAIN_TOLD_MAX {
        return format!(
            "more than {GAIN_TOLD_MAX} times (as far as home and flash go; what else limits it is \
             not modelled)"
        );
    }
    match high - low {
        width if width < 0.005 => format!("{:.2} times", one.gain.mean),
        _ => format!("{:.2} times ({low:.2} to {})", one.gain.mean, told(high)),
    }
}

/// A gain, as far as one is told.
fn told(gain: f64) -> String {
    match gain {
        gain if gain >= GAIN_TOLD_MAX => format!("more than {GAIN_TOLD_MAX}"),
        gain => format!("{gain:.2}"),
    }
}

/// What becomes of the drive, or why that is not known.
fn wear_text(setting: &Setting, one: &Estimate) -> String {
    if setting.drive_writes_per_day.is_none() {
        return String::new();
    }
    match (setting.pace, one.years_least, one.years) {
        (_, Some(least), Some(years)) if years_text(least) == years_text(years) => {
            format!(", and wears it out in {}", years_text(least))
        }
        (_, Some(least), Some(years)) => format!(
            ", and wears it out in {} ({} if clients ask no more than in the trace)",
            years_text(least),
            years_text(years)
        ),
        (Pace::NoClock, ..) => {
            " (of wear the trace says nothing: it has no clock; give --covers)".into()
        }
        _ => format!(
            " (of wear the trace says nothing: it covers {}, and {} are needed)",
            setting.span_s.map_or("no time".into(), time_text),
            time_text(SPAN_MIN_S)
        ),
    }
}

/// How many times as long a trace has to be, as far as that is known: until enough misses are
/// counted, the tier is full when counting begins, and the interval is above the least gain, since
/// it narrows with the square root of the length.
fn needed(one: &Estimate, misses: u64) -> Option<f64> {
    let mut times: f64 = 1.0;
    if misses < MISSES_MIN {
        times = times.max(MISSES_MIN as f64 / (misses as f64).max(f64::MIN_POSITIVE));
    }
    if one.unsettled > 0.0 {
        times = times.max(1.0 / one.filled.max(f64::MIN_POSITIVE));
    }
    let [low, _] = one.gain_range;
    if one.gain.mean > GAIN_MIN && low < GAIN_MIN {
        times = times.max(((one.gain.mean - low) / (one.gain.mean - GAIN_MIN)).powi(2));
    }
    (times > 1.0 && times <= LONGER_MAX).then_some(times)
}

/// The first two digits of a number.
fn two_digits(number: f64) -> f64 {
    let unit = 10f64.powf((number.max(1.0).log10() - 1.0).floor().max(0.0));
    (number / unit).ceil() * unit
}

/// A time as people say it.
pub fn time_text(seconds: f64) -> String {
    match seconds {
        seconds if seconds >= 2.0 * 86_400.0 => format!("{:.0} days", seconds / 86_400.0),
        seconds if seconds >= 7_200.0 => format!("{:.0} hours", seconds / 3_600.0),
        seconds if seconds >= 120.0 => format!("{:.0} minutes", seconds / 60.0),
        seconds if seconds >= 2.0 => format!("{seconds:.0} s"),
        seconds => format!("{seconds:.2} s"),
    }
}
