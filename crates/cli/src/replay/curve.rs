//! `terrace replay --curve`: miss ratios against capacity.

use super::object::object;
use super::sizes::sizes;
use super::source::{Scope, Source};
use crate::command::Replay;
use crate::failure::Failure;
use crate::interval::rounded;
use crate::output::{Sink, Sinks, Stopwatch};
use crate::progress::Bars;
use crate::report::{CurveLine, Curves, curves_page};
use crate::table::{Table, thousands};
use serde_json::{Value, json};
use std::time::Instant;
use terrace_replay::Policy;
use terrace_replay::curve::{Miniature, Sampling, exact, shards};

/// Capacities of a curve unless others are asked for, as shares of the pages.
const SHARES: [f64; 12] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0];

/// The share of the pages that is sampled unless another is asked for, of a large trace.
const SAMPLE_RATE: f64 = 0.01;
/// And pages, of a small one: SHARDS is off by less than a point with so many (FAST 2015).
const SAMPLED_PAGES: f64 = 8_192.0;
/// Fewer are warned of: `docs/REPLAY.md` says how far off they were.
const SAMPLED_PAGES_WARNED: f64 = 2_000.0;

/// The share of `pages` pages that is sampled.
fn sample_rate(options: &Replay, pages: u32) -> f64 {
    let usual = || (SAMPLED_PAGES / f64::from(pages.max(1))).clamp(SAMPLE_RATE, 1.0);
    options.curve.sample.map_or_else(usual, |share| share.0)
}

/// What a small sample is to be told of, if it was asked for.
fn warning(rate: f64, pages: u32) -> Option<String> {
    let sampled = rate * f64::from(pages);
    (rate < 1.0 && sampled < SAMPLED_PAGES_WARNED).then(|| {
        format!(
            "the samples have {} pages, and may be off by several points; without --sample they \
             have {} or more",
            thousands(sampled),
            thousands(SAMPLED_PAGES.min(f64::from(pages)))
        )
    })
}

/// One curve.
pub(super) struct Line {
    policy: &'static str,
    method: &'static str,
    ratios: Vec<f64>,
    /// By a full replay, if it was asked for.
    true_ratios: Option<Vec<f64>>,
    wall_s: f64,
}

impl Line {
    /// One that is exact, and drawn in `wall_s` seconds.
    pub fn exact(policy: &'static str, ratios: Vec<f64>, wall_s: f64) -> Line {
        Line { policy, method: "exact", ratios, true_ratios: None, wall_s }
    }

    /// For people.
    pub fn text(&self, capacities: &[u32]) -> String {
        let mut text = format!("{}, {}, {:.3} s", self.policy, self.method, self.wall_s);
        if let Some(error) = self.error_max() {
            text += &format!(", off by {:.2} points at most", 100.0 * error);
        }
        let mut table = Table::new(["  pages", "miss ratio"]);
        for (capacity, ratio) in capacities.iter().zip(&self.ratios) {
            let pages = format!("  {}", thousands(f64::from(*capacity)));
            table.row([pages, format!("{ratio:.4}")]);
        }
        format!("{text}\n{}\n", table.text())
    }

    fn error_max(&self) -> Option<f64> {
        let exact = self.true_ratios.as_ref()?;
        let errors = self.ratios.iter().zip(exact).map(|(ratio, exact)| (ratio - exact).abs());
        errors.max_by(f64::total_cmp)
    }

    pub fn json(&self, capacities: &[u32]) -> Value {
        let points = capacities.iter().enumerate().map(|(at, capacity)| {
            let mut point =
                json!({ "capacity_pages": capacity, "miss_ratio": rounded(self.ratios[at]) });
            if let Some(exact) = &self.true_ratios {
                point["exact_miss_ratio"] = json!(rounded(exact[at]));
                point["error"] = json!(rounded(self.ratios[at] - exact[at]));
            }
            point
        });
        json!({
            "policy": self.policy,
            "method": self.method,
            "points": points.collect::<Vec<_>>(),
            "error_max": self.error_max().map(rounded),
            "host": { "wall_s": rounded(self.wall_s) },
        })
    }
}

/// Runs it.
///
/// # Errors
///
/// Sizes that make no sense; a sample of nothing; a file that cannot be written.
pub fn curve(
    options: &Replay,
    source: &Source,
    sinks: &Sinks,
    watch: &Stopwatch,
) -> Result<(), Failure> {
    let report = options.curve.report.as_deref().map(Sink::open).transpose()?;
    let capacities = capacities(options, &source.scope())?;
    let lines = lines(options, source, &capacities)?;
    let mut text = format!("{}\n\n", source.about);
    let pages = source.references.pages_count();
    let rate = sample_rate(options, pages);
    if let Some(warning) = warning(rate, pages) {
        text += &format!("{warning}\n\n");
    }
    for line in &lines {
        text += &line.text(&capacities);
    }
    sinks.show(&text);
    if let Some(sink) = report {
        write_report(&sink, options, source, (&capacities, &lines))?;
        if let Sink::File(path) = sink {
            sinks.show(&format!("report: {}\n", path.display()));
        }
    }
    let lines = lines.iter().map(|line| line.json(&capacities)).collect::<Vec<_>>();
    let more = json!({
        "curves": lines,
        "sample": rate,
        "sample_pages": options.curve.sample_pages,
    });
    sinks.write(&object(options, source, watch, more))
}

/// The capacities of a curve: those asked for, or some of all sizes.
///
/// # Errors
///
/// Sizes that make no sense.
pub(super) fn capacities(options: &Replay, scope: &Scope) -> Result<Vec<u32>, Failure> {
    if !options.capacity.is_empty() {
        return sizes("--capacity", &options.capacity, scope);
    }
    let all = f64::from(scope.pages);
    let mut pages = SHARES.map(|share| ((share * all) as u32).max(1)).to_vec();
    pages.dedup();
    Ok(pages)
}

fn write_report(
    sink: &Sink,
    options: &Replay,
    source: &Source,
    (capacities, lines): (&[u32], &[Line]),
) -> Result<(), Failure> {
    let Value::Object(mut all) = source.parameters.clone() else {
        unreachable!("parameters have names")
    };
    let pages = source.references.pages_count();
    all.insert("sample".into(), json!(sample_rate(options, pages)));
    all.insert("sample_pages".into(), json!(options.curve.sample_pages));
    let shown = lines.iter().map(|line| CurveLine {
        policy: line.policy,
        method: line.method,
        ratios: &line.ratios,
        error_max: line.error_max(),
    });
    let curves =
        Curves::new((&source.about, options.seed, &all), (pages, capacities), shown.collect());
    sink.write(&curves_page(&curves))
}

fn lines(options: &Replay, source: &Source, capacities: &[u32]) -> Result<Vec<Line>, Failure> {
    let (references, seed) = (&source.references, options.seed);
    let rate = sample_rate(options, references.pages_count());
    if rate <= 0.0 {
        return Err(Failure::usage("--sample is a share above 0"));
    }
    let bars = Bars::new();
    let policies = super::policies(options);
    let bar = bars.add("curves".into(), policies.len() as u64);
    let mut lines = Vec::new();
    let mut miniature = None;
    for &policy in &policies {
        if policy.name() == "lru" {
            let whole = timed("exact", policy, || exact(references).miss_ratios(capacities));
            let truth = options.curve.errors.then(|| whole.ratios.clone());
            let pages = options.curve.sample_pages;
            let sampled = [
                timed("SHARDS, fixed rate", policy, || {
                    shards(references, Sampling::Rate(rate), seed).miss_ratios(capacities)
                }),
                timed("SHARDS, fixed size", policy, || {
                    shards(references, Sampling::Pages(pages), seed).miss_ratios(capacities)
                }),
            ];
            lines.push(whole);
            lines.extend(sampled.map(|line| Line { true_ratios: truth.clone(), ..line }));
        } else {
            let sample = miniature.get_or_insert_with(|| Miniature::new(references, rate, seed));
            let mut line = timed("miniature simulation", policy, || {
                let ratio = |&capacity: &u32| sample.miss_ratio(policy, capacity, seed);
                capacities.iter().map(|capacity| ratio(capacity).unwrap_or(f64::NAN)).collect()
            });
            if line.ratios.iter().any(|ratio| ratio.is_nan()) {
                return Err(Failure::usage(
                    "--sample: no page is in the sample; take a larger share",
                ));
            }
            if options.curve.errors {
                line.true_ratios = Some(full(policy, source, capacities, seed));
            }
            lines.push(line);
        }
        bar.inc(1);
    }
    bars.clear();
    Ok(lines)
}

fn timed(method: &'static str, policy: Policy, draw: impl FnOnce() -> Vec<f64>) -> Line {
    let began = Instant::now();
    let ratios = draw();
    let wall_s = began.elapsed().as_secs_f64();
    Line { policy: policy.name(), method, ratios, true_ratios: None, wall_s }
}

fn full(policy: Policy, source: &Source, capacities: &[u32], seed: u64) -> Vec<f64> {
    let requests = source.references.pages().len() as f64;
    let misses = |&capacity: &u32| policy.misses(&source.references, capacity, seed) as f64;
    capacities.iter().map(|capacity| misses(capacity) / requests).collect()
}
