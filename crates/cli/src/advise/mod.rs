//! `terrace advise`: what a flash tier would buy a workload, how large, under which design.
//!
//! Every size of every design is replayed, or samples of it; what the devices would be busy with
//! gives the throughput of a closed system, and what the flash is sent gives its life.
//! `docs/ADVICE.md` says what is assumed, and how far off it was.
//!
//! In reading order: `setting`, what is asked for; `time`, how the trace is cut;
//! `plan`, what is replayed; `seen` and `estimate`, what replays tell; `choice`, what is taken;
//! `sentence` and `shown`, how it is told; `database`, the same from a database's own counts.

mod choice;
mod database;
mod estimate;
mod plan;
mod seen;
mod sentence;
mod setting;
mod shown;
mod time;

pub use choice::is_held;
pub use estimate::{Estimate, GAIN_TOLD_MAX};
pub use setting::Setting;
pub use shown::Advice;

use crate::command::Advise;
use crate::failure::Failure;
use crate::interrupt::{self, Interrupt};
use crate::output::{Sink, Sinks, Stopwatch};
use crate::progress::Bars;
use crate::replay::Source;
use crate::report;
use choice::choices;
use estimate::{Replayed, Stage};
use plan::{First, Pair};
use terrace::Misses;
use terrace_replay::{References, Sample};

/// Samples without extents in common: their spread is the error.
pub const SAMPLES: u32 = 4;

/// Runs it.
///
/// # Errors
///
/// A trace that cannot be read; options that make no sense; a file that cannot be written.
pub fn advise(options: &Advise) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let report = options.report.as_deref().map(Sink::open).transpose()?;
    let advice = match database::misses_at(&options.trace)? {
        Some(misses) => from_misses(options, &misses)?,
        None => from_trace(options)?,
    };
    if interrupt::is_asked() {
        sinks.show("Stopped before the end; of what was replayed until then:\n");
    }
    sinks.show(&advice.text());
    sinks.write(&advice.json(&watch))?;
    if let Some(sink) = report {
        sink.write(&report::advice_page(&advice))?;
        if let Sink::File(path) = sink {
            sinks.show(&format!("report: {}\n", path.display()));
        }
    }
    interrupt::whole()
}

fn from_trace(options: &Advise) -> Result<Advice, Failure> {
    let source = Source::read(&options.trace, &options.source)?;
    let setting = Setting::new(options, &source)?;
    let pairs = setting::pairs(options, &source)?;
    let (about, trace) = (source.about.clone(), shown::trace(&source));
    let Source { references, parameters, .. } = source;
    let _watched = Interrupt::watch()?;
    let bars = Bars::new();
    let Outcome { replayed, estimates, unused, whole } =
        replay(&setting, references, &pairs, &bars);
    let Replayed { baseline, rate, .. } = replayed;
    let policy = baseline.policy;
    let whole = whole.or_else(|| {
        let references = unused.filter(|_| options.load.errors)?;
        Some(Replayed::whole(&setting, references, policy))
    });
    let truth = whole
        .filter(|_| options.load.errors)
        .map(|whole| all(&setting, &whole, &pairs, &bars, "whole"));
    bars.clear();
    Ok(Advice::new((about, trace, parameters), setting, baseline, estimates, (truth, rate)))
}

fn from_misses(options: &Advise, misses: &Misses) -> Result<Advice, Failure> {
    let design = database::design(options)?;
    let setting = Setting::of_misses(options, misses)?;
    let slots = setting::sizes_of(options, setting.paging(), setting.pages)?;
    let (baseline, estimates) = database::estimates(&setting, misses, design, &slots);
    let (about, trace) = database::about(&options.trace, misses);
    let source = serde_json::json!({ "misses": options.trace.display().to_string() });
    Ok(Advice::new((about, trace, source), setting, baseline, estimates, (None, 1.0)))
}

/// What replays came to.
struct Outcome {
    /// What the estimates are from, but for those of the whole trace.
    replayed: Replayed,
    estimates: Vec<Estimate>,
    /// The references, if nothing else has them.
    unused: Option<References>,
    /// The whole trace, if rows of samples were replayed again from it.
    whole: Option<Replayed>,
}

/// Replays `pairs`, whose estimates are in their order.
fn replay(setting: &Setting, references: References, pairs: &[Pair], bars: &Bars) -> Outcome {
    let rate = match plan::first(setting, pairs) {
        First::All(rate) => {
            let (samples, unused) = samples(setting, references, rate);
            let replayed = Replayed::new(setting, samples, Stage::Full, rate);
            let estimates = all(setting, &replayed, pairs, bars, "replay");
            return Outcome { replayed, estimates, unused, whole: None };
        }
        First::Coarse(rate) => rate,
    };
    let replayed =
        Replayed::new(setting, of_extents(setting, &references, rate), Stage::Coarse, rate);
    let coarse = all(setting, &replayed, &plan::coarse_pairs(pairs), bars, "coarse");
    if interrupt::is_asked() {
        return Outcome { replayed, estimates: coarse, unused: None, whole: None };
    }
    shown::note_coarse(setting, &coarse, rate);
    let (chosen, rate) = plan::second(setting, pairs, &coarse);
    let (samples, unused) = samples(setting, references, rate);
    let replayed = Replayed::new(setting, samples, Stage::Full, rate);
    let mut estimates = all(setting, &replayed, &chosen, bars, "refined");
    let refined: Vec<&str> = estimates.iter().map(|one| one.design.name).collect();
    let is_new = |one: &Estimate| !refined.contains(&one.design.name);
    estimates.extend(coarse.into_iter().filter(is_new));
    let place = |one: &Estimate| {
        pairs.iter().position(|pair| pair.0.name == one.design.name && pair.1 == one.slots)
    };
    estimates.sort_by_key(place);
    let Some(references) = unused.filter(|_| replayed.rate < 1.0) else {
        return Outcome { replayed, estimates, unused: None, whole: None };
    };
    if !plan::affords_whole(setting) || interrupt::is_asked() {
        return Outcome { replayed, estimates, unused: Some(references), whole: None };
    }
    let whole = Replayed::whole(setting, references, replayed.baseline.policy);
    settle(setting, &whole, &mut estimates);
    Outcome { replayed, estimates, unused: None, whole: Some(whole) }
}

/// Replays what is advised, and the sizes next to it, from the whole trace, until what is advised
/// then was replayed so, or the work is too much.
fn settle(setting: &Setting, whole: &Replayed, estimates: &mut [Estimate]) {
    let counted = whole.baseline.counted();
    let mut work = plan::Work::new(setting);
    while let Some(taken) = choices(estimates, setting.lifetime_years, counted).0.taken {
        let name = estimates[taken].design.name;
        let is_near = |at: usize| {
            at.abs_diff(taken) <= 1 && estimates[at].design.name == name && estimates[at].rate < 1.0
        };
        // What is advised comes first.
        let near = [taken, taken + 1, taken.wrapping_sub(1)];
        let near: Vec<usize> =
            near.into_iter().filter(|&at| at < estimates.len() && is_near(at)).collect();
        let is_settled = estimates[taken].rate >= 1.0;
        let mut none_left = true;
        for at in near {
            let pair = (estimates[at].design, estimates[at].slots);
            if !interrupt::is_asked() && work.take(&pair.0) {
                estimates[at] = whole.estimate(setting, pair);
                none_left = false;
            }
        }
        if is_settled || none_left {
            break;
        }
    }
}

/// The samples of a share each, beside the references; or all of the trace as one.
fn samples(
    setting: &Setting,
    references: References,
    rate: f64,
) -> (Vec<Sample>, Option<References>) {
    match rate {
        rate if rate >= 1.0 => (vec![Sample::whole(references, &setting.cuts.marks)], None),
        rate => (of_extents(setting, &references, rate), Some(references)),
    }
}

fn of_extents(setting: &Setting, references: &References, rate: f64) -> Vec<Sample> {
    let marks = &setting.cuts.marks;
    let sample = |number| Sample::of_extents(references, (rate, number), marks, setting.seed);
    (0..SAMPLES).map(sample).collect()
}

fn all(
    setting: &Setting,
    replayed: &Replayed,
    pairs: &[Pair],
    bars: &Bars,
    name: &str,
) -> Vec<Estimate> {
    let bar = bars.add(name.into(), pairs.len() as u64);
    let one = |&pair: &Pair| {
        bar.inc(1);
        replayed.estimate(setting, pair)
    };
    // The first is always replayed: there is something to show.
    let goes_on = |(at, _): &(usize, &Pair)| *at == 0 || !interrupt::is_asked();
    pairs.iter().enumerate().take_while(goes_on).map(|(_, pair)| one(pair)).collect()
}

#[cfg(test)]
mod tests {
    use super::choice::{GAIN_MIN, HITS_MIN, Verdict};
    use super::*;
    use crate::command::{Command, Terrace};
    use clap::Parser;
    use terrace_rt::Prng;
    use terrace_trace::{Clock, Kind, PageBytes, PageKey, PageRequest, Paging};

    /// A trace of some pages: skewed, in loops, or in scans, now and then written.
    fn trace(prng: &mut Prng) -> References {
        let pages = prng.range(20..3_000);
        let (kind, writes) = (prng.below(4), prng.below(101));
        let mut references = References::default();
        let count = prng.range(50..8_000);
        for at in 0..count {
            let skewed = (pages as f64 * prng.f64().powi(4)) as u64;
            let number = match kind {
                0 => skewed,
                1 => at % pages,
                2 => prng.below(pages),
                _ if at / 500 % 3 == 2 => pages + at,
                _ => skewed,
            };
            let is_write = prng.below(100) < writes;
            let kind = if is_write { Kind::Write } else { Kind::Read };
            let page = PageKey { file: 0, number };
            references.push(PageRequest { time_ns: at * 1_000_000, page, kind });
        }
        references
    }

    fn source(references: References) -> Source {
        Source {
            references,
            paging: Paging::Split(PageBytes::DEFAULT),
            clock: Clock::Kept,
            read_s: 0.0,
            about: String::new(),
            parameters: serde_json::json!({}),
        }
    }

    fn device(prng: &mut Prng) -> String {
        let presets = ["gp3", "iodrive", "nvme", "sata-ssd", "io2", "pd-balanced"];
        if prng.chance(2) {
            return presets[prng.below(presets.len() as u64) as usize].into();
        }
        let iops = 10u64.pow(prng.range(2..6) as u32) * prng.range(1..10);
        let latency = prng.range(10..20_000);
        format!("iops={iops},latency={latency}us,bandwidth={}MiB", prng.range(1..4_000))
    }

    fn options(arguments: &[String]) -> Advise {
        let all = ["terrace", "advise", "no.trace"].map(String::from);
        let parsed = Terrace::try_parse_from(all.iter().chain(arguments)).expect("options");
        let Command::Advise(options) = parsed.command else { panic!("advise") };
        *options
    }

    fn advised(references: References, options: &Advise) -> Advice {
        let source = source(references);
        let setting = Setting::new(options, &source).expect("a setting");
        let pairs = setting::pairs(options, &source).expect("sizes");
        let Outcome { replayed, estimates, .. } =
            replay(&setting, source.references, &pairs, &Bars::new());
        let Replayed { baseline, rate, .. } = replayed;
        let none = (String::new(), serde_json::json!({}), serde_json::json!({}));
        Advice::new(none, setting, baseline, estimates, (None, rate))
    }

    /// The share of memory's misses by which a sentence explains a gain, if it tells of one.
    fn share_credited(sentence: &str) -> Option<f64> {
        let (before, _) = sentence.split_once(" this load ")?;
        let (_, share) = before.rsplit_once(" serve")?;
        let share = share.trim_start_matches(['s', ' ']).split_once('%').expect("a share").0;
        Some(share.parse::<f64>().expect("a number") / 100.0)
    }

    /// Of random traces and devices nothing is advised that breaks the rules, and the sentence says
    /// nothing else.
    #[test]
    fn advice_is_never_for_what_serves_or_gains_nothing() {
        let mut taken = 0;
        for seed in 0..48 {
            let mut prng = Prng::from_seed(seed);
            let references = trace(&mut prng);
            // A memory of nearly all pages, in half of the cases: another policy of memory gains
            // much there, and a small tier nothing.
            let frames = match prng.chance(2) {
                true => prng.range(1..200),
                false => u64::from(references.pages_count()) * prng.range(50..100) / 100,
            };
            let arguments = [
                format!("--home={}", device(&mut prng)),
                format!("--flash-device={}", device(&mut prng)),
                format!("--clients={}", prng.range(1..65)),
                format!("--memory={}p", frames.max(1)),
                "--flash=1p,10p,100p,1000p".into(),
                "--design=dw,lc,tac,face,cc,cac,auto".into(),
                "--drive-writes-per-day=1".into(),
                "--drive=1GiB".into(),
                format!("--covers={}s", 1_000 * prng.range(1..100)),
            ];
            let advice = advised(references, &options(&arguments));
            let sentence = advice.sentence();
            let said = format!("seed {seed}: {sentence}");
            assert!(sentence.ends_with('.') && !sentence.contains("NaN"), "{said}");
            assert!(share_credited(&sentence).is_none_or(|share| share >= HITS_MIN), "{said}");
            let Some(at) = advice.choice.taken else {
                assert_ne!(advice.choice.verdict, Verdict::Take, "{said}");
                continue;
            };
            taken += 1;
            let one = &advice.estimates[at];
            assert!(one.hit_ratio.mean >= HITS_MIN, "{said}");
            assert!(one.gain.mean >= GAIN_MIN && one.gain_range[0] >= GAIN_MIN, "{said}");
            assert!(one.lasts(advice.setting.lifetime_years), "{said}");
            assert!(advice.baseline.seen.reused_misses >= choice::MISSES_MIN, "{said}");
        }
        assert!(taken >= 3, "{taken} of 48: too few to show anything");
    }

    /// Of a loop that memory nearly holds, the sentence told a gain of 1.31 for .7% of the misses:
    /// that of another memory policy.
    #[test]
    fn a_sentence_tells_no_gain_of_what_serves_nothing() {
        let mut references = References::default();
        for at in 0..60_000u64 {
            let page = PageKey { file: 0, number: at % 6_000 };
            references.push(PageRequest { time_ns: at * 1_000_000, page, kind: Kind::Read });
        }
        let sizes = ["--memory=4800p", "--flash=1p,100p", "--design=auto"];
        let arguments = [&sizes[..], &["--home=gp3", "--flash-device=nvme"]].concat();
        let arguments: Vec<String> = arguments.into_iter().map(String::from).collect();
        let advice = advised(references, &options(&arguments));
        assert_eq!(advice.choice.taken, None, "{}", advice.sentence());
        let gains = advice.estimates.iter().filter(|one| one.hit_ratio.mean < HITS_MIN);
        let most = gains.map(|one| one.gain.mean).fold(0.0, f64::max);
        assert!(most >= GAIN_MIN, "{most}: nothing that could be told");
        let sentence = advice.sentence();
        assert!(share_credited(&sentence).is_none_or(|share| share >= HITS_MIN), "{sentence}");
    }

    /// Every design brought a memory policy of its own, and its gain was over another one's: the
    /// best without flash is what all are compared with.
    #[test]
    fn what_another_memory_policy_gains_is_not_credited_to_flash() {
        // A loop over more pages than memory holds, for which LRU is the worst policy.
        let mut references = References::default();
        for at in 0..40_000u64 {
            let number = if at % 2 == 0 { at / 2 % 120 } else { 500 + at * 7_919 % 40 };
            let page = PageKey { file: 0, number };
            references.push(PageRequest { time_ns: at, page, kind: Kind::Read });
        }
        let arguments = ["--memory=100p", "--flash=1p", "--sample=100%"].map(String::from);
        let advice = advised(references, &options(&arguments));
        let best = advice.baseline.policy.expect("a policy");
        for (policy, throughput) in &advice.baseline.others {
            assert!(*throughput <= 1.0, "{} is better than {}", policy.name(), best.name());
        }
        for one in &advice.estimates {
            if one.design.uses_flash() && one.hit_ratio.mean < HITS_MIN {
                assert!(one.gain.mean < GAIN_MIN, "{}: {}", one.design.name, one.gain.mean);
            }
        }
        assert_eq!(advice.choice.taken, None, "{}", advice.sentence());
    }
}
