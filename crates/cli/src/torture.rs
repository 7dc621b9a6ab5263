//! `terrace torture`: many small databases, each in a virtual world whose power fails.
//!
//! A seed decides everything, so that `terrace torture --seed S` repeats what `--seeds N` found.

use crate::command::Torture;
use crate::failure::Failure;
use crate::output::{Sinks, Stopwatch, cores, peak_memory_bytes};
use crate::progress::Bars;
use crate::results::Host;
use crate::side_by_side;
use crate::table::{Table, thousands};
use serde_json::json;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_workload::torture::{self, Cuts, Report};

const SEEDS: u64 = 100;
const JOBS_MAX: u64 = 4;
/// Failures that are printed; all are in the JSON.
const SHOWN_MAX: usize = 10;

/// Tortures, and says what was hit and what was lost.
///
/// # Errors
///
/// Something was lost, or is there that should not be.
pub fn torture(options: &Torture) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let first = options.seed.unwrap_or(1);
    let seeds = options.seeds.unwrap_or(if options.seed.is_some() { 1 } else { SEEDS });
    let total = run_all(first, seeds, options.jobs.unwrap_or(cores().min(JOBS_MAX)));
    sinks.show(&shown(&total, seeds, watch.seconds()));
    let failures: Vec<_> = total.failures.iter().map(|(seed, failure)| {
        json!({ "seed": seed, "what": failure.to_string(), "repeat": repeat(*seed) })
    }).collect();
    let by_moment: serde_json::Map<_, _> = moments(&total.cuts)
        .into_iter()
        .map(|(name, count)| (name.replace(' ', "_"), count.into()))
        .collect();
    sinks.write(&json!({
        "command": "torture",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": first,
        "seeds": seeds,
        "cuts": total.cuts.total,
        "losses": total.failures.len(),
        "failures": failures,
        "cuts_by_moment": by_moment,
        "commits": total.commits,
        "losses_allowed": total.losses_allowed,
        "verified": total.verified,
        "host": Host {
            wall_s: watch.seconds(),
            load_wall_s: 0.0,
            peak_memory_bytes: peak_memory_bytes(),
            cores: cores(),
        },
    }))?;
    match total.failures.first() {
        None => Ok(()),
        Some((seed, failure)) => Err(Failure::Failed(format!(
            "{} failures, the first: {failure}; repeat it with `{}`",
            total.failures.len(),
            repeat(*seed),
        ))),
    }
}

fn run_all(first: u64, seeds: u64, jobs: u64) -> Report {
    let bars = Bars::new();
    let bar = bars.add("torture".into(), seeds);
    let (done, cuts) = (AtomicU64::new(0), AtomicU64::new(0));
    let reports = side_by_side::each(seeds as usize, jobs as usize, |at| {
        let report = torture::run(first + at as u64);
        let cuts = cuts.fetch_add(report.cuts.total, Ordering::Relaxed) + report.cuts.total;
        bar.set_position(done.fetch_add(1, Ordering::Relaxed) + 1);
        bar.set_message(format!("{} cuts", thousands(cuts as f64)));
        Ok::<_, Infallible>(report)
    });
    bars.clear();
    let Ok(reports) = reports;
    let mut total = Report::default();
    for report in reports {
        add(&mut total, report);
    }
    total
}

fn add(total: &mut Report, one: Report) {
    let (all, cuts) = (&mut total.cuts, one.cuts);
    all.total += cuts.total;
    all.with_dirty_pages += cuts.with_dirty_pages;
    all.with_dirty_flash += cuts.with_dirty_flash;
    all.with_io_in_flight += cuts.with_io_in_flight;
    all.in_creation += cuts.in_creation;
    all.in_recovery += cuts.in_recovery;
    all.in_run += cuts.in_run;
    all.in_checkpoint += cuts.in_checkpoint;
    all.with_flash_wiped += cuts.with_flash_wiped;
    total.commits += one.commits;
    total.losses_allowed += one.losses_allowed;
    total.verified += one.verified;
    total.failures.extend(one.failures);
}

fn moments(cuts: &Cuts) -> [(&'static str, u64); 8] {
    [
        ("in creation", cuts.in_creation),
        ("in run", cuts.in_run),
        ("in checkpoint", cuts.in_checkpoint),
        ("in recovery", cuts.in_recovery),
        ("with dirty pages", cuts.with_dirty_pages),
        ("with dirty flash", cuts.with_dirty_flash),
        ("with io in flight", cuts.with_io_in_flight),
        ("with flash wiped", cuts.with_flash_wiped),
    ]
}

fn shown(total: &Report, seeds: u64, wall_s: f64) -> String {
    let mut table = Table::new(["power cuts", &thousands(total.cuts.total as f64)]);
    for (moment, count) in moments(&total.cuts) {
        table.row([format!("  {moment}"), thousands(count as f64)]);
    }
    table.row(["commits".into(), thousands(total.commits as f64)]);
    table.row(["lost, as they may".into(), thousands(total.losses_allowed as f64)]);
    table.row(["restarts verified".into(), thousands(total.verified as f64)]);
    table.row(["failures".into(), thousands(total.failures.len() as f64)]);
    let mut text = format!("{}{seeds} seeds in {wall_s:.1} s\n", table.text());
    for (seed, failure) in total.failures.iter().take(SHOWN_MAX) {
        text.push_str(&format!("seed {seed}: {failure}; repeat: {}\n", repeat(*seed)));
    }
    text
}

fn repeat(seed: u64) -> String {
    format!("terrace torture --seed {seed}")
}
