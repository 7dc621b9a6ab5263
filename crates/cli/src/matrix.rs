//! `terrace torture --matrix`: the crash matrix, with its counts.
//!
//! A seed decides everything; a failure prints the command that repeats its case and nothing else.

use crate::bench::flash_role;
use crate::command::Torture;
use crate::failure::Failure;
use crate::output::{Sinks, Stopwatch, cores};
use crate::progress::Bars;
use crate::results::Host;
use crate::side_by_side;
use crate::table::{Table, thousands};
use crate::torture::{JOBS_MAX, SHOWN_MAX, is_loss};
use serde_json::json;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_workload::torture::matrix::{
    Choice, Counts, Cut, Fate, MatrixReport, TPCC, Walk, walks,
};

/// Walks the matrix, and says what was hit and what was lost.
///
/// # Errors
///
/// Something was lost, or is there that should not be; no script is for the design and restart.
pub fn matrix(options: &Torture) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let first = options.seed.unwrap_or(1);
    let seeds = options.seeds.unwrap_or(1);
    let chosen = Choice {
        script: options.matrix.script,
        design: options.design,
        restart: options.restart,
        role: flash_role(options.persistent_flash),
        ..Choice::default()
    };
    let all: Vec<Walk> = (first..first + seeds).flat_map(|seed| walks(chosen, seed)).collect();
    if all.is_empty() {
        let what = "no script is for this design and restart, or the restart is not there yet";
        return Err(Failure::Usage(what.into()));
    }
    let jobs = options.jobs.unwrap_or(cores().min(JOBS_MAX));
    let total = match options.matrix.cut {
        None => run_all(&all, options.matrix.one_in.unwrap_or(1), jobs),
        Some(_) if options.matrix.script == Some(TPCC) => {
            return Err(Failure::Usage("TPC-C is cut at random: leave out --cut".into()));
        }
        Some(event) => {
            let fate = options.matrix.fate.unwrap_or(Fate::Kept);
            all[0].repeat(Cut { event, fate, second: options.matrix.second })
        }
    };
    sinks.show(&shown(&total, seeds, watch.seconds()));
    sinks.write(&json(&total, (first, seeds), &watch))?;
    match total.failures.first() {
        None => Ok(()),
        Some((case, failure)) => Err(Failure::Failed(format!(
            "{} failures, the first: {failure}; repeat it with `{case}`",
            total.failures.len(),
        ))),
    }
}

fn run_all(all: &[Walk], one_in: u64, jobs: u64) -> MatrixReport {
    let bars = Bars::new();
    let bar = bars.add("matrix".into(), all.len() as u64);
    let (done, cuts) = (AtomicU64::new(0), AtomicU64::new(0));
    let reports = side_by_side::each(all.len(), jobs as usize, |at| {
        let report = all[at].run(one_in);
        let cuts = cuts.fetch_add(report.cuts, Ordering::Relaxed) + report.cuts;
        bar.set_position(done.fetch_add(1, Ordering::Relaxed) + 1);
        bar.set_message(format!("{} cuts", thousands(cuts as f64)));
        Ok::<_, Infallible>(report)
    });
    bars.clear();
    let Ok(reports) = reports;
    let mut total = MatrixReport::default();
    reports.into_iter().for_each(|report| total.add(report));
    total
}

/// The cuts of one kind or another, by name.
fn by_name(total: &MatrixReport) -> [(&'static str, &Counts); 5] {
    [
        ("script", &total.by_script),
        ("moment", &total.by_moment),
        ("fate", &total.by_fate),
        ("design", &total.by_design),
        ("restart", &total.by_restart),
    ]
}

fn all_cuts(total: &MatrixReport) -> u64 {
    total.cuts + total.second_cuts + total.tpcc_in_opening + total.tpcc_in_run
}

fn losses(total: &MatrixReport) -> usize {
    total.failures.iter().filter(|(_, failure)| is_loss(failure)).count()
}

fn shown(total: &MatrixReport, seeds: u64, wall_s: f64) -> String {
    let mut table = Table::new(["power cuts", &thousands(all_cuts(total) as f64)]);
    let mut row = |name: String, count: u64| table.row([name, thousands(count as f64)]);
    row("scripts walked".into(), total.walks);
    row("  first cuts".into(), total.cuts);
    for (kind, counts) in by_name(total) {
        row(format!("  by {kind}"), counts.len() as u64);
        for (name, count) in counts {
            row(format!("    {name}"), *count);
        }
    }
    row("  second cuts, in recovery".into(), total.second_cuts);
    row("  found warm".into(), total.warm_by_fate.values().sum());
    for (name, count) in &total.warm_by_fate {
        row(format!("    {name}"), *count);
    }
    row("tpc-c, cuts in opening".into(), total.tpcc_in_opening);
    row("tpc-c, cuts in run".into(), total.tpcc_in_run);
    row("tpc-c, conditions checked".into(), total.tpcc_checks);
    row("writes at risk".into(), total.torn.exposed);
    row("  pages dropped".into(), total.torn.dropped);
    row("  pages torn".into(), total.torn.torn);
    row("restarts verified".into(), total.verified);
    row("openings refused for want of flash".into(), total.refused);
    row("damage named by an error".into(), total.damaged);
    row("losses".into(), losses(total) as u64);
    row("failures".into(), total.failures.len() as u64);
    let mut text = format!("{}{seeds} seeds in {wall_s:.1} s\n", table.text());
    for (case, failure) in total.failures.iter().take(SHOWN_MAX) {
        text.push_str(&format!("{failure}; repeat: {case}\n"));
    }
    text
}

fn json(total: &MatrixReport, (first, seeds): (u64, u64), watch: &Stopwatch) -> serde_json::Value {
    let failures: Vec<_> = total
        .failures
        .iter()
        .map(|(case, failure)| {
            let (what, repeat) = (failure.to_string(), case.to_string());
            json!({ "seed": case.seed, "what": what, "repeat": repeat })
        })
        .collect();
    let mut object = json!({
        "command": "torture",
        "version": env!("CARGO_PKG_VERSION"),
        "matrix": true,
        "seed": first,
        "seeds": seeds,
        "cuts": all_cuts(total),
        "losses": losses(total),
        "failures": failures,
        "scripts_walked": total.walks,
        "first_cuts": total.cuts,
        "second_cuts": total.second_cuts,
    });
    for (kind, counts) in by_name(total) {
        object[format!("first_cuts_by_{kind}")] = json!(counts);
    }
    object["found_warm_by_fate"] = json!(total.warm_by_fate);
    object["tpcc"] = json!({
        "cuts_in_opening": total.tpcc_in_opening,
        "cuts_in_run": total.tpcc_in_run,
        "conditions_checked": total.tpcc_checks,
    });
    object["writes_at_risk"] = total.torn.exposed.into();
    object["pages_dropped"] = total.torn.dropped.into();
    object["pages_torn"] = total.torn.torn.into();
    object["verified"] = total.verified.into();
    object["refused"] = total.refused.into();
    object["damaged"] = total.damaged.into();
    object["host"] = json!(Host::of(watch, 0.0));
    object
}
