//! The advice as text and as JSON.

use super::choice::{Choice, Verdict, choices, is_held, knee, reads_ahead};
use super::estimate::{GAIN_TOLD_MAX, Stage, years_text};
use super::seen::Baseline;
use super::sentence::time_text;
use super::setting::Pace;
use super::{Estimate, SAMPLES, Setting};
use crate::interval::{Interval, rounded};
use crate::output::Stopwatch;
use crate::replay::Source;
use crate::results::Host;
use crate::table::{Table, percent, thousands};
use serde_json::{Value, json};
use terrace_policy::MemoryPolicy;

/// More rows are not read.
const ROWS_MAX: usize = 50;

/// All that came out.
pub struct Advice {
    /// The trace, for people.
    pub about: String,
    /// The same in figures.
    pub trace: Value,
    pub source: Value,
    pub setting: Setting,
    pub baseline: Baseline,
    pub estimates: Vec<Estimate>,
    /// The same from the whole trace, if errors were asked for.
    pub truth: Option<Vec<Estimate>>,
    pub choice: Choice,
    /// What the first half of the trace alone would have advised.
    pub learnt: Option<Choice>,
    /// References of the trace, or what was counted in their place.
    pub references: f64,
    /// Share of the extents in each sample.
    pub rate: f64,
}

/// What a trace is, in figures.
pub fn trace(source: &Source) -> Value {
    let references = &source.references;
    json!({
        "references": references.pages().len(),
        "writes": references.writes_count(),
        "pages": references.pages_count(),
        "span_s": source.span_s(),
    })
}

impl Advice {
    /// What came out, with what is advised.
    pub fn new(
        (about, trace, source): (String, Value, Value),
        setting: Setting,
        baseline: Baseline,
        estimates: Vec<Estimate>,
        (truth, rate): (Option<Vec<Estimate>>, f64),
    ) -> Advice {
        let (choice, learnt) = choices(&estimates, setting.lifetime_years, baseline.counted());
        let references = setting.references;
        Advice {
            about,
            trace,
            source,
            setting,
            baseline,
            estimates,
            truth,
            choice,
            learnt,
            references,
            rate,
        }
    }

    /// What was assumed, in a line or two.
    pub fn assumptions(&self) -> String {
        let setting = &self.setting;
        let size = setting.size_text(setting.frames);
        let memory = match self.baseline.policy {
            Some(policy) => format!("memory: {size} under {}", policy.name()),
            None if setting.frames > 0 => format!("memory: {size} as it was"),
            None => "no memory above".into(),
        };
        let whole = self.estimates.iter().any(|one| one.rate >= 1.0);
        let sampled = match self.rate {
            _ if self.is_from_misses() => "an LRU of memory's misses".into(),
            rate if rate >= 1.0 => "replayed in full".into(),
            rate => format!(
                "replayed in {SAMPLES} samples of {} of its extents each (errors are 95% \
                 intervals){}",
                percent(rate),
                if whole { ", what has no error whole" } else { "" }
            ),
        };
        let what = if self.is_from_misses() { "misses" } else { "references" };
        let pace = match (setting.pace, setting.references_per_s) {
            (Pace::Known(pace), _) => format!("{} {what}/s", thousands(pace)),
            (Pace::TooShort, Some(pace)) => {
                let span = time_text(setting.span_s.unwrap_or_default());
                format!("{} {what}/s for {span}, too short for wear and cost", thousands(pace))
            }
            _ => "no clock, so no wear and no cost of requests".into(),
        };
        let fills = match setting.warm_up {
            share if share > 0.0 => format!("the first {} fills the tiers; ", percent(share)),
            _ => String::new(),
        };
        format!(
            "{memory}; home: {}; {} clients; {pace}; {fills}{sampled}",
            setting.home_name, setting.clients,
        )
    }

    /// Whether a database counted, and no trace was replayed.
    fn is_from_misses(&self) -> bool {
        self.source.get("misses").is_some()
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}\n\n{}\n{}\n\n{}",
            self.sentence(),
            self.about,
            self.assumptions(),
            self.table().text()
        );
        for note in self.notes() {
            text += &format!("{note}\n");
        }
        for line in [self.policies_text(), self.check_text()].into_iter().flatten() {
            text += &format!("{line}\n");
        }
        if self.estimates.len() > ROWS_MAX {
            text += "of each design its knee, and the size that is advised; every size of each: \
                     --json, --report\n";
        }
        if let Some(cost) = self.setting.cost(0, self.home_iops()) {
            text += &format!("without flash {cost:.2} a month\n");
        }
        if let Some([gain, hits]) = self.errors_max() {
            text += &format!(
                "samples are off by {} in the gain at most, {:.2} points in flash hits\n",
                percent(gain),
                100.0 * hits
            );
        }
        text
    }

    /// What marks say, and what is not advised.
    pub fn notes(&self) -> Vec<&'static str> {
        let is_any = |mark| (0..self.estimates.len()).any(|at| self.mark(at) == mark);
        let reads_ahead = self.choice.verdict == Verdict::ReadsAhead;
        [
            (is_any(" ?"), "? not advised: a faster tier changes the order (docs/ADVICE.md)"),
            (is_any(" ~"), "~ from small samples: left out early, as others are better"),
            (is_any(" !"), "! not advised: predictions for it were off (docs/ADVICE.md)"),
            (
                reads_ahead,
                "no row is advised: predictions for loads that read ahead were off \
                 (docs/ADVICE.md)",
            ),
        ]
        .into_iter()
        .filter_map(|(holds, note)| holds.then_some(note))
        .collect()
    }

    /// The mark of a row: what is advised, what may not be, what is from small samples.
    pub fn mark(&self, at: usize) -> &'static str {
        let one = &self.estimates[at];
        match one.stage {
            _ if self.choice.taken == Some(at) => " *",
            _ if !is_held(one.design.name) => " !",
            _ if !one.keeps_order => " ?",
            Stage::Coarse => " ~",
            Stage::Full => "",
        }
    }

    fn home_iops(&self) -> Option<f64> {
        let home = self.baseline.seen.rates().home;
        self.setting.pace().map(|pace| pace * (home.reads + home.writes))
    }

    fn table(&self) -> Table {
        let mut table = Table::new([
            "flash",
            "size",
            "of misses",
            "gain",
            "home busy",
            "flash busy",
            "written/day",
            "drive/day",
            "lasts",
            "a month",
        ]);
        for (at, one) in self.estimates.iter().enumerate().filter(|&(at, _)| self.is_shown(at)) {
            let mark = self.mark(at);
            let or_none = |text: Option<String>| text.unwrap_or("-".into());
            let per_day = one.flash_bytes_per_day.map(|bytes| format!("{:.1} GB", bytes / 1e9));
            table.row([
                format!("{}{mark}", one.design.name),
                self.setting.size_text(one.slots),
                with_error(&one.hit_ratio, 100.0, 1, "%"),
                table_gain(one),
                format!("{:.1} us", one.home_s * 1e6),
                format!("{:.1} us", one.flash_s * 1e6),
                or_none(per_day),
                or_none(one.drive_writes_per_day.map(|times| format!("{times:.1}"))),
                or_none(one.years_least.map(years_text)),
                or_none(one.cost.map(|cost| format!("{cost:.2}"))),
            ]);
        }
        table
    }

    /// Whether a row is for people: if there are many, the knee of each design is, and what the
    /// others come to at the size that is advised.
    fn is_shown(&self, at: usize) -> bool {
        let one = &self.estimates[at];
        let taken = self.choice.taken.map(|taken| self.estimates[taken].slots);
        let same = self.estimates.iter().filter(|other| other.design.name == one.design.name);
        let knee = knee(same.map(|other| (other.slots, other.gain.mean)));
        self.estimates.len() <= ROWS_MAX || taken == Some(one.slots) || knee == Some(one.slots)
    }

    /// What sampling is off by at worst: the gain as a share, the flash hit ratio.
    pub fn errors_max(&self) -> Option<[f64; 2]> {
        self.truth.as_ref()?;
        let full = |one: &&Estimate| one.stage == Stage::Full && one.rate < 1.0;
        let pairs = || {
            let all = self.estimates.iter().filter(full);
            all.filter_map(|one| Some((one, self.truth_of(one)?)))
        };
        let gain = pairs().map(|(got, truth)| (got.gain.mean / truth.gain.mean - 1.0).abs());
        let hits = pairs().map(|(got, truth)| (got.hit_ratio.mean - truth.hit_ratio.mean).abs());
        Some([gain.fold(0.0, f64::max), hits.fold(0.0, f64::max)])
    }

    /// The same from the whole trace, if errors were asked for.
    fn truth_of(&self, one: &Estimate) -> Option<&Estimate> {
        let is_same =
            |other: &&Estimate| other.design.name == one.design.name && other.slots == one.slots;
        self.truth.as_ref()?.iter().find(is_same)
    }

    /// For programs.
    pub fn json(&self, watch: &Stopwatch) -> Value {
        let setting = &self.setting;
        let pick = |at: Option<usize>| {
            at.map(|at| {
                let one = &self.estimates[at];
                json!({ "design": one.design.name, "capacity_pages": one.slots })
            })
        };
        let is_told = !reads_ahead(self.baseline.ahead_share());
        let results = self.estimates.iter().map(|one| {
            let mut object = one.json(setting, self.truth_of(one));
            object["is_held"] = json!(is_told && one.keeps_order && is_held(one.design.name));
            object["references_per_turnover"] = json!(one.turnover.map(rounded));
            object
        });
        let errors = self.errors_max().map(|errors| errors.map(rounded));
        let half = |at: Option<usize>, half: usize| {
            let halves = at.and_then(|at| self.estimates[at].halves);
            halves.map(|halves| rounded(halves[half].gain))
        };
        let without = self.baseline.seen.rates();
        let others = self.baseline.others.iter();
        let memory_alone: Vec<Value> = others
            .map(
                |(policy, share)| json!({ "policy": policy.name(), "throughput": rounded(*share) }),
            )
            .collect();
        json!({
            "command": "advise",
            "version": env!("CARGO_PKG_VERSION"),
            "seed": setting.seed,
            "parameters": self.parameters(),
            "trace": self.trace,
            "host": Host::of(watch, 0.0),
            "advice": {
                "sentence": self.sentence(),
                "take": pick(self.choice.taken),
                "enough": pick(self.choice.enough),
                "best": pick(Some(self.choice.best)),
                "verdict": verdict_name(self.choice.verdict),
                "wears_out": self.choice.worn.is_some(),
                "from_first_half": self.learnt.map(|learnt| json!({
                    "take": pick(learnt.taken),
                    "throughput_gain": half(learnt.taken, 0),
                    "throughput_gain_on_second_half": half(learnt.taken, 1),
                })),
            },
            "without_flash": {
                "memory_policy": self.baseline.policy.map(MemoryPolicy::name),
                "memory_policies": memory_alone,
                "memory_miss_ratio": rounded(without.memory_misses),
                "read_ahead_share": rounded(self.baseline.ahead_share()),
                "after_change_share": rounded(self.baseline.after_change_share()),
                "home_time_us": rounded(1e6 * without.home.time_s(&setting.home)),
                "home_iops": self.home_iops().map(rounded),
                "cost_per_month": setting.cost(0, self.home_iops()).map(rounded),
            },
            "sampling_error_max": errors.map(|[gain, hits]| {
                json!({ "throughput_gain": gain, "flash_hit_ratio": hits })
            }),
            "results": results.collect::<Vec<_>>(),
        })
    }

    /// Every parameter by name.
    pub fn parameters(&self) -> Value {
        let setting = &self.setting;
        let prices = &setting.prices;
        json!({
            "source": self.source,
            "memory_pages": setting.frames,
            "memory_policy": setting.has_memory.then(|| {
                self.baseline.policy.map(MemoryPolicy::name)
            }),
            "page_bytes": setting.page_bytes,
            "home": setting.home_name,
            "flash_device": setting.flash_name,
            "clients": setting.clients,
            "lambda": setting.lambda,
            "warm_up": setting.warm_up,
            "samples": if self.rate < 1.0 { SAMPLES } else { 1 },
            "sample": self.rate,
            "references_per_s": setting.references_per_s,
            "drive_pages": setting.drive_pages,
            "drive_pages_min": setting.drive_pages_min,
            "drive_writes_per_day": setting.drive_writes_per_day,
            "warranty_years": setting.warranty_years,
            "lifetime_years": setting.lifetime_years,
            "price_flash": prices.price_flash,
            "price_memory": prices.price_memory,
            "price_home": prices.price_home,
            "price_iops": prices.price_iops,
        })
    }
}

impl Estimate {
    fn json(&self, setting: &Setting, truth: Option<&Estimate>) -> Value {
        let rates = &self.rates;
        let mut object = json!({
            "design": self.design.name,
            "memory_policy": self.memory.map(MemoryPolicy::name),
            "sample": self.rate,
            "is_coarse": self.stage == Stage::Coarse,
            "capacity_pages": self.slots,
            "capacity_bytes": u64::from(self.slots) * setting.page_bytes,
            "memory_miss_ratio": rounded(rates.memory_misses),
            "flash_hit_ratio": rounded(self.hit_ratio.mean),
            "flash_hit_ratio_error": rounded(error(&self.hit_ratio)),
            "throughput_gain": rounded(self.gain.mean),
            "throughput_gain_error": rounded(error(&self.gain)),
            "throughput_gain_low": rounded(self.gain_range[0]),
            "throughput_gain_high": rounded(self.gain_range[1]),
            "first_uses_unsettled": rounded(self.unsettled),
            "filled": rounded(self.filled),
            "home_time_us": rounded(self.home_s * 1e6),
            "flash_time_us": rounded(self.flash_s * 1e6),
            "home_reads_per_1000": rounded(rates.home.reads * 1e3),
            "home_writes_per_1000": rounded(rates.home.writes * 1e3),
            "flash_writes_per_1000": rounded(rates.flash.writes * 1e3),
            "home_iops": self.home_iops.map(rounded),
            "flash_bytes_per_day": self.flash_bytes_per_day.map(f64::round),
            "drive_writes_per_day": self.drive_writes_per_day.map(rounded),
            "years": self.years.map(rounded),
            "years_least": self.years_least.map(rounded),
            "cost_per_month": self.cost.map(rounded),
        });
        if let Some(truth) = truth {
            object["full_flash_hit_ratio"] = json!(rounded(truth.hit_ratio.mean));
            object["full_throughput_gain"] = json!(rounded(truth.gain.mean));
        }
        object
    }
}

fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Take => "take",
        Verdict::NoFlash => "no flash",
        Verdict::WearsOut => "wears out",
        Verdict::TooShort => "too short",
        Verdict::ReadsAhead => "reads ahead",
        Verdict::OrderChanges => "order changes",
    }
}

/// Says how the coarse stage looks, while the rest is replayed.
pub fn note_coarse(setting: &Setting, coarse: &[Estimate], rate: f64) {
    let mut table = Table::new(["flash", "size", "of misses", "gain"]);
    for one in coarse {
        table.row([
            one.design.name.to_string(),
            setting.size_text(one.slots),
            with_error(&one.hit_ratio, 100.0, 1, "%"),
            table_gain(one),
        ]);
    }
    eprintln!(
        "at first glance, from samples of {} each; the better designs are looked at again:\n{}",
        percent(rate),
        table.text()
    );
}

/// A gain and its error, for tables.
fn table_gain(one: &Estimate) -> String {
    match one.gain.mean {
        gain if gain >= GAIN_TOLD_MAX => format!(">{GAIN_TOLD_MAX:.0}x"),
        _ => with_error(&one.gain, 1.0, 2, "x"),
    }
}

/// Half of the interval.
fn error(interval: &Interval) -> f64 {
    interval.high - interval.mean
}

/// A number with its error, if it has one.
pub fn with_error(interval: &Interval, times: f64, digits: usize, unit: &str) -> String {
    let number = interval.mean * times;
    match error(interval) * times {
        error if error > 0.0 => format!("{number:.digits$}±{error:.digits$}{unit}"),
        _ => format!("{number:.digits$}{unit}"),
    }
}
