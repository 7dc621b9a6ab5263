//! `terrace advise`: what a flash tier would buy a workload, how large, under which design.
//!
//! Every size of every design is replayed; what the devices would be busy with gives the
//! throughput of a closed system, and what the flash is sent gives its life. `docs/ADVICE.md` says
//! what is assumed, and how far off it was.

mod choice;
mod database;
mod estimate;
mod setting;
mod shown;

pub use estimate::Estimate;
pub use setting::Setting;
pub use shown::Advice;

use crate::command::Advise;
use crate::failure::Failure;
use crate::output::{Sink, Sinks, Stopwatch};
use crate::progress::Bars;
use crate::replay::Source;
use crate::report;
use choice::choose;
use estimate::{Baseline, estimate};
use terrace::Misses;
use terrace_policy::Design;
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
    sinks.show(&advice.text());
    sinks.write(&advice.json(&watch))?;
    if let Some(sink) = report {
        sink.write(&report::advice_page(&advice))?;
        if let Sink::File(path) = sink {
            sinks.show(&format!("report: {}\n", path.display()));
        }
    }
    Ok(())
}

fn from_trace(options: &Advise) -> Result<Advice, Failure> {
    let source = Source::read(&options.trace, &options.source)?;
    let setting = Setting::new(options, &source)?;
    let pairs = setting::pairs(options, &source)?;
    let (about, trace) = (source.about.clone(), shown::trace(&source));
    let Source { references, parameters, .. } = source;
    let bars = Bars::new();
    let (samples, whole) = samples(&setting, references, options.load.errors);
    let (baseline, estimates) = estimates(&setting, &samples, &pairs, &bars);
    let truth = whole.map(|whole| self::estimates(&setting, &[whole], &pairs, &bars).1);
    bars.clear();
    let choice = choose(&estimates, setting.lifetime_years);
    Ok(Advice { about, trace, source: parameters, setting, baseline, estimates, truth, choice })
}

fn from_misses(options: &Advise, misses: &Misses) -> Result<Advice, Failure> {
    let design = database::design(options)?;
    let setting = Setting::of_misses(options, misses)?;
    let slots = setting::sizes_of(options, setting.paging(), setting.pages)?;
    let (baseline, estimates) = database::estimates(&setting, misses, design, &slots);
    let choice = choose(&estimates, setting.lifetime_years);
    let (about, trace) = database::about(&options.trace, misses);
    let source = serde_json::json!({ "misses": options.trace.display().to_string() });
    Ok(Advice { about, trace, source, setting, baseline, estimates, truth: None, choice })
}

/// The samples, or all of the trace as one; and all of it beside samples, if their errors are
/// asked for.
fn samples(
    setting: &Setting,
    references: References,
    with_errors: bool,
) -> (Vec<Sample>, Option<Sample>) {
    let warm_up = setting.warm_up;
    if setting.rate >= 1.0 {
        return (vec![Sample::whole(references, warm_up)], None);
    }
    let sample =
        |number| Sample::of_extents(&references, (setting.rate, number), warm_up, setting.seed);
    let samples = (0..SAMPLES).map(sample).collect();
    let whole = with_errors.then(|| Sample::whole(references, warm_up));
    (samples, whole)
}

fn estimates(
    setting: &Setting,
    samples: &[Sample],
    pairs: &[(Design, u32)],
    bars: &Bars,
) -> (Baseline, Vec<Estimate>) {
    let bar = bars.add("replay".into(), pairs.len() as u64);
    let baseline = Baseline::new(setting, samples);
    let one = |&pair: &(Design, u32)| {
        bar.inc(1);
        estimate(setting, samples, &baseline, pair)
    };
    let estimates = pairs.iter().map(one).collect();
    (baseline, estimates)
}
