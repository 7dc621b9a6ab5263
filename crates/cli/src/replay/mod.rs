//! `terrace replay`: a trace through policies.
//!
//! What the JSON says is stable; what depends on the machine stands in `host` objects.

mod bench;
mod curve;
mod source;
mod stream;
mod tiers;
mod timed;

use crate::command::{CacheSize, Replay};
use crate::failure::Failure;
use crate::interval::rounded;
use crate::output::{Sinks, Stopwatch, cpu_seconds};
use crate::progress::Bars;
use crate::results::Host;
use crate::table::{Table, thousands};
use serde_json::{Value, json};
pub use source::{Scope, Source};
use terrace_replay::Policy;

/// The capacity of a cache unless another is asked for.
const CAPACITY_DEFAULT: CacheSize = CacheSize::Share(0.1);

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
    let results = results.iter().map(Outcome::json).collect::<Vec<_>>();
    sinks.write(&object(options, &source, &watch, json!({ "results": results })))
}

/// What a policy did.
struct Outcome {
    policy: Policy,
    capacity: u32,
    requests: u64,
    misses: u64,
    wall_s: f64,
    /// On the processor, where the system says.
    cpu_s: Option<f64>,
}

impl Outcome {
    fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.requests as f64
    }

    fn json(&self) -> Value {
        json!({
            "policy": self.policy.name(),
            "capacity_pages": self.capacity,
            "requests": self.requests,
            "misses": self.misses,
            "miss_ratio": rounded(self.miss_ratio()),
            "host": {
                "wall_s": rounded(self.wall_s),
                "requests_per_s": (self.requests as f64 / self.wall_s.max(1e-9)).round(),
            },
        })
    }
}

fn run(options: &Replay, source: &Source, capacities: &[u32]) -> Vec<Outcome> {
    let bars = Bars::new();
    let policies = policies(options);
    let all = policies.len() * capacities.len();
    let bar = bars.add("replay".into(), all as u64);
    let mut results = Vec::with_capacity(all);
    for &capacity in capacities {
        for &policy in &policies {
            results.push(measured(policy, source, capacity, options.seed));
            bar.inc(1);
        }
    }
    bars.clear();
    results
}

fn measured(policy: Policy, source: &Source, capacity: u32, seed: u64) -> Outcome {
    let (misses, wall_s, cpu_s) = timed(|| policy.misses(&source.references, capacity, seed));
    let requests = source.references.pages().len() as u64;
    Outcome { policy, capacity, requests, misses, wall_s, cpu_s }
}

/// What `work` gives, the time that passed, and the time on the processor.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64, Option<f64>) {
    let (watch, cpu) = (std::time::Instant::now(), cpu_seconds());
    let done = work();
    let cpu_s = cpu.and_then(|began| Some(cpu_seconds()? - began));
    (done, watch.elapsed().as_secs_f64(), cpu_s)
}

/// The policies asked for.
fn policies(options: &Replay) -> Vec<Policy> {
    options.policy.as_ref().map_or_else(Policy::all, |list| list.0.clone())
}

/// The capacities asked for, in pages, ascending.
fn capacities(options: &Replay, source: &Source, default: CacheSize) -> Result<Vec<u32>, Failure> {
    let asked = if options.capacity.is_empty() { &[default][..] } else { &options.capacity[..] };
    sizes("--capacity", asked, &source.scope())
}

/// Sizes in pages, ascending.
///
/// # Errors
///
/// Sizes that make no sense, named by their option.
pub fn sizes(option: &str, asked: &[CacheSize], scope: &Scope) -> Result<Vec<u32>, Failure> {
    let pages = asked.iter().map(|size| size.pages(scope.paging, scope.pages));
    let pages = pages.collect::<Result<Vec<u32>, String>>();
    let mut pages = pages.map_err(|wrong| Failure::usage(format!("{option} {wrong}")))?;
    pages.sort_unstable();
    pages.dedup();
    Ok(pages)
}

/// What the command prints as JSON: `more`, beside what all replays say.
fn object(options: &Replay, source: &Source, watch: &Stopwatch, more: Value) -> Value {
    let references = &source.references;
    let mut host = json!(Host::of(watch, 0.0));
    host["bytes"] = json!(references.bytes());
    let each = references.bytes() as f64 / f64::from(references.pages_count().max(1));
    host["bytes_per_page"] = json!(rounded(each));
    host["read_s"] = json!(rounded(source.read_s));
    let read_s = source.read_s.max(1e-3);
    host["read_requests_per_s"] = json!((references.pages().len() as f64 / read_s).round());
    let mut object = json!({
        "command": "replay",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": options.seed,
        "parameters": source.parameters,
        "trace": {
            "references": references.pages().len(),
            "writes": references.writes_count(),
            "pages": references.pages_count(),
            "span_s": references.span_s(),
        },
        "host": host,
    });
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}
