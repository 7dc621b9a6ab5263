//! `terrace replay`: a trace through policies.
//!
//! What the JSON says is stable; what depends on the machine stands in `host` objects.

mod bench;
mod curve;
mod measured;
mod object;
mod sizes;
mod source;
mod stream;
mod tiers;
mod timed;

use crate::command::Replay;
use crate::failure::Failure;
use crate::interrupt::{self, Interrupt};
use crate::output::{Sinks, Stopwatch};
use crate::progress::Bars;
use crate::table::{Table, thousands};
use measured::{Measured, measured};
use object::object;
use serde_json::json;
pub use sizes::sizes;
use sizes::{CAPACITY_DEFAULT, capacities, policies};
pub use source::{Scope, Source};

/// Runs it.
///
/// # Errors
///
/// A trace that cannot be read; sizes that make no sense; a file that cannot be written.
pub fn replay(options: &Replay) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    if options.bench.is_asked {
        return bench::bench(options, &sinks, &watch);
    }
    let path = options.trace.as_deref().expect("clap asks for it");
    if options.stream {
        return stream::stream(options, path, &sinks, &watch);
    }
    let source = Source::read(path, &options.source)?;
    if options.tiers.write_back_only {
        return timed::write_back(options, &source, &sinks, &watch);
    }
    if !options.tiers.flash.is_empty() {
        return tiers::tiers(options, &source, &sinks, &watch);
    }
    if options.curve.curve {
        return curve::curve(options, &source, &sinks, &watch);
    }
    let capacities = capacities(options, &source, CAPACITY_DEFAULT)?;
    let _watched = Interrupt::watch()?;
    let results = run(options, &source, &capacities);
    let mut table = Table::new(["policy", "capacity", "misses", "miss ratio", "requests/s"]);
    for result in &results {
        table.row([
            result.policy.name().into(),
            thousands(f64::from(result.capacity)),
            thousands(result.misses as f64),
            format!("{:.4}", result.miss_ratio()),
            format!("{:.1}M", result.requests as f64 / result.wall_s.max(1e-9) / 1e6),
        ]);
    }
    sinks.show(&format!("{}\n\n{}", source.about, table.text()));
    let results = results.iter().map(Measured::json).collect::<Vec<_>>();
    sinks.write(&object(options, &source, &watch, json!({ "results": results })))?;
    interrupt::whole()
}

fn run(options: &Replay, source: &Source, capacities: &[u32]) -> Vec<Measured> {
    let bars = Bars::new();
    let policies = policies(options);
    let all = policies.len() * capacities.len();
    let bar = bars.add("replay".into(), all as u64);
    let mut results = Vec::with_capacity(all);
    for &capacity in capacities {
        for &policy in &policies {
            if !results.is_empty() && interrupt::is_asked() {
                break;
            }
            results.push(measured(policy, source, capacity, options.seed));
            bar.inc(1);
        }
    }
    bars.clear();
    results
}
