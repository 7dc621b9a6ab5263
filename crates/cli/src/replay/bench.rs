//! `terrace replay --bench`: how fast policies are.
//!
//! - Requests are numbered once; each round replays the numbers. Both rates are given: of the
//!   replay alone, and with the time to read and number the requests added.
//! - Rounds go through all policies in turn, so that a slow moment of the machine hits one round of
//!   some, and the median drops it.
//! - Beside the time that passes stands the time on the processor, where the system says: on a
//!   machine that is shared, only that tells of the policy. Caches that others empty still count.

use super::measured::{measured, timed};
use super::object::object;
use super::sizes::capacities;
use super::source::{Source, made};
use crate::command::{CacheSize, Replay};
use crate::failure::Failure;
use crate::interval::rounded;
use crate::output::{Sinks, Stopwatch};
use crate::progress::Bars;
use crate::table::{Table, thousands};
use serde_json::{Value, json};
use terrace_replay::{Policy, curve};

/// Capacity of requests that are made: a share of the ids.
const MADE_SHARE: f64 = 0.01;

/// Runs it.
///
/// # Errors
///
/// A trace that cannot be read; sizes that make no sense; a file that cannot be written.
pub fn bench(options: &Replay, sinks: &Sinks, watch: &Stopwatch) -> Result<(), Failure> {
    let bench = &options.bench;
    let (source, default) = source(options)?;
    let capacities = capacities(options, &source, default)?;
    let [capacity] = capacities[..] else {
        return Err(Failure::usage("--bench takes one --capacity"));
    };
    let policies = super::policies(options);
    let mut misses = vec![0; policies.len()];
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); policies.len()];
    let mut cpu_times = times.clone();
    let (mut curve_times, mut curve_cpu_times) = (Vec::new(), Vec::new());
    let bars = Bars::new();
    let bar = bars.add("rounds".into(), u64::from(bench.rounds));
    for _ in 0..bench.rounds {
        for (at, &policy) in policies.iter().enumerate() {
            let outcome = measured(policy, &source, capacity, options.seed);
            misses[at] = outcome.misses;
            times[at].push(outcome.wall_s);
            cpu_times[at].extend(outcome.cpu_s);
        }
        let draw = || curve::exact(&source.references).miss_ratios(&[capacity]);
        let (whole, wall_s, cpu_s) = timed(draw);
        assert!(whole[0] <= 1.0);
        curve_times.push(wall_s);
        curve_cpu_times.extend(cpu_s);
        bar.inc(1);
    }
    bars.clear();
    let requests = source.references.pages().len() as f64;
    let mut table =
        Table::new(["policy", "miss ratio", "M/s", "with reading", "slowest", "M/CPU s"]);
    let mut results = Vec::new();
    for (at, times) in times.iter_mut().enumerate() {
        let (middle, slowest) = median_and_most(times);
        let rates = [middle, middle + source.read_s, slowest].map(|seconds| requests / seconds);
        let ratio = misses[at] as f64 / requests;
        let cells = rates.map(|rate| format!("{:.1}", rate / 1e6));
        let [alone, reading, least] = cells;
        let per_cpu = median(&mut cpu_times[at]).map(|seconds| requests / seconds);
        let on_cpu = per_cpu.map_or("-".into(), |rate| format!("{:.1}", rate / 1e6));
        let (name, ratio) = (policies[at].name().to_string(), format!("{ratio:.4}"));
        table.row([name, ratio, alone, reading, least, on_cpu]);
        let mut result = result(policies[at], capacity, requests, misses[at], rates);
        result["host"]["requests_per_cpu_s"] = json!(per_cpu.map(f64::round));
        results.push(result);
    }
    let (curve_s, _) = median_and_most(&mut curve_times);
    let curve_cpu_s = median(&mut curve_cpu_times);
    let on_cpu = curve_cpu_s.map_or("?".into(), |seconds| format!("{seconds:.2}"));
    sinks.show(&format!(
        "{}; capacity {} pages, median of {} rounds on one thread\n\n{}\n\
         exact LRU curve: {:.2} s, {on_cpu} s on the processor\n",
        source.about,
        thousands(f64::from(capacity)),
        bench.rounds,
        table.text(),
        curve_s,
    ));
    let mut object = object(options, &source, watch, json!({ "results": results }));
    object["host"]["exact_lru_curve_s"] = json!(rounded(curve_s));
    object["host"]["exact_lru_curve_cpu_s"] = json!(curve_cpu_s.map(rounded));
    object["host"]["rounds"] = json!(bench.rounds);
    sinks.write(&object)
}

/// What is replayed, and the capacity unless another is asked for.
fn source(options: &Replay) -> Result<(Source, CacheSize), Failure> {
    let bench = &options.bench;
    if let Some(path) = &options.trace {
        return Ok((Source::read(path, &options.source)?, super::CAPACITY_DEFAULT));
    }
    let pages = (MADE_SHARE * f64::from(bench.ids)).max(1.0) as u32;
    let made = made(bench.requests, bench.ids, bench.alpha, options.seed);
    Ok((made, CacheSize::Pages(pages)))
}

fn result(policy: Policy, capacity: u32, requests: f64, misses: u64, rates: [f64; 3]) -> Value {
    let [alone, with_reading, slowest] = rates.map(f64::round);
    json!({
        "policy": policy.name(),
        "capacity_pages": capacity,
        "requests": requests as u64,
        "misses": misses,
        "miss_ratio": rounded(misses as f64 / requests),
        // Here it is what was asked for.
        "requests_per_s": alone,
        "host": {
            "requests_per_s": alone,
            "requests_per_s_with_reading": with_reading,
            "requests_per_s_slowest_round": slowest,
        },
    })
}

/// None of no times.
fn median(times: &mut [f64]) -> Option<f64> {
    (!times.is_empty()).then(|| median_and_most(times).0)
}

fn median_and_most(times: &mut [f64]) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2].max(1e-9), times[times.len() - 1].max(1e-9))
}
