//! `terrace torture`: many small databases, each in a virtual world whose power fails.
//!
//! A seed decides everything, so that `terrace torture --seed S` repeats what `--seeds N` found.

use crate::bench::flash_role;
use crate::command::{Torture, WorldName};
use crate::failure;
use crate::histories;
use crate::lives;
use crate::matrix;
use crate::output::{Sinks, Stopwatch, cores};
use crate::progress::Bars;
use crate::results::Host;
use crate::side_by_side;
use crate::table::{Table, thousands};
use serde_json::json;
use std::convert::Infallible;
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_policy::{designs, restarts};
use terrace_workload::torture::ledger::Failure;
use terrace_workload::torture::{self, Cuts, Fixed, MishapCounts, Report};

const SEEDS: u64 = 100;
pub const JOBS_MAX: u64 = 4;
/// Failures that are printed; all are in the JSON.
pub const SHOWN_MAX: usize = 10;

/// Tortures, and says what was hit and what was lost.
///
/// # Errors
///
/// Something was lost, or is there that should not be.
pub fn torture(options: &Torture) -> Result<(), failure::Failure> {
    refuse_role(options)?;
    refuse_other_world(options)?;
    if options.histories.is_asked {
        return histories::histories(options);
    }
    if options.world == WorldName::Real {
        return lives::torture(options);
    }
    if options.matrix.is_asked {
        return matrix::matrix(options);
    }
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let first = options.seed.unwrap_or(1);
    let seeds = options.seeds.unwrap_or(if options.seed.is_some() { 1 } else { SEEDS });
    let jobs = options.jobs.unwrap_or(cores().min(JOBS_MAX));
    let fixed = Fixed {
        design: options.design,
        restart: options.restart,
        clean_age: options.clean_age,
        flash_role: flash_role(options.persistent_flash),
        ..Fixed::default()
    };
    let total = run_all(first, seeds, jobs, fixed);
    sinks.show(&shown(&total, options, seeds, watch.seconds()));
    let failures: Vec<_> = total
        .failures
        .iter()
        .map(|(seed, failure)| {
            let repeat = repeat(*seed, options);
            json!({ "seed": seed, "what": failure.to_string(), "repeat": repeat })
        })
        .collect();
    let by_moment = keyed(moments(&total.cuts));
    let mut by_kind = by_moment.clone();
    by_kind.extend(keyed(mishaps(&total.mishaps)));
    sinks.write(&json!({
        "command": "torture",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": first,
        "seeds": seeds,
        "cuts": total.cuts.total,
        "faults": total.cuts.faults() + total.mishaps.device_faults,
        "kills": 0,
        "hangs": count_of(&total, |failure| matches!(failure, Failure::Stuck(_))),
        "panics": count_of(&total, is_panic),
        "wrong_answers": count_of(&total, is_wrong),
        "by_kind": by_kind,
        "losses": total.failures.iter().filter(|(_, failure)| is_loss(failure)).count(),
        "failures": failures,
        "cuts_by_moment": by_moment,
        "commits": total.commits,
        "losses_allowed": total.losses_allowed,
        "verified": total.verified,
        "refused": total.refused,
        "host": Host::of(&watch, 0.0),
    }))?;
    match total.failures.first() {
        None => Ok(()),
        Some((seed, failure)) => Err(failure::Failure::Failed(format!(
            "{} failures, the first: {failure}; repeat it with `{}`",
            total.failures.len(),
            repeat(*seed, options),
        ))),
    }
}

/// Refuses a design and restart whose flash cannot be a part of the database.
fn refuse_role(options: &Torture) -> Result<(), failure::Failure> {
    let role = flash_role(options.persistent_flash);
    let warm = restarts::find("warm").expect("a row of the table");
    let design = options.design.unwrap_or_else(|| designs::find("face").expect("a row"));
    match role.refusal(&design, &options.restart.unwrap_or(warm)) {
        Some(why) => Err(failure::Failure::usage(format!("--persistent-flash: {why}"))),
        None => Ok(()),
    }
}

/// Refuses options that say nothing to what was asked for.
fn refuse_other_world(options: &Torture) -> Result<(), failure::Failure> {
    let is_real = options.world == WorldName::Real;
    let is_of_histories = options.histories.is_asked;
    let given = [
        ("--matrix", options.matrix.is_asked, !is_real),
        ("--clean-age", options.clean_age.is_some(), !is_real),
        ("--histories", is_of_histories, is_real),
        ("--folder", options.folder.is_some(), is_real),
        ("--full-disk", options.full_disk.is_some(), is_real),
        ("--persistent-flash", options.persistent_flash, !is_of_histories),
        ("--seeds", options.seeds.is_some(), !is_of_histories),
    ];
    let misplaced = given.iter().find(|(_, is_given, fits)| *is_given && !fits);
    let Some((option, ..)) = misplaced else { return Ok(()) };
    let why = match (is_of_histories, is_real) {
        (true, true) => "does not go with --histories",
        (_, true) => "goes with --world virtual only",
        (_, false) => "goes with --world real only",
    };
    Err(failure::Failure::usage(format!("{option} {why}")))
}

fn run_all(first: u64, seeds: u64, jobs: u64, fixed: Fixed) -> Report {
    let bars = Bars::new();
    let bar = bars.add("torture".into(), seeds);
    let (done, cuts) = (AtomicU64::new(0), AtomicU64::new(0));
    let reports = side_by_side::each(seeds as usize, jobs as usize, |at| {
        let report = one(first + at as u64, fixed);
        let cuts = cuts.fetch_add(report.cuts.total, Ordering::Relaxed) + report.cuts.total;
        bar.set_position(done.fetch_add(1, Ordering::Relaxed) + 1);
        bar.set_message(format!("{} cuts", thousands(cuts as f64)));
        Ok::<_, Infallible>(report)
    });
    bars.clear();
    let Ok(reports) = reports;
    let mut total = Report::default();
    for report in reports {
        total.add(report);
    }
    total
}

/// The torture of one seed. What a panic says is a failure of that seed, like any other.
fn one(seed: u64, fixed: Fixed) -> Report {
    panic::catch_unwind(|| torture::run_fixed(seed, fixed)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        let failure = Failure::Error(format!("panic: {}", text.unwrap_or("no message")));
        Report { failures: vec![(seed, failure)], ..Report::default() }
    })
}

/// Whether a commit that had to survive did not.
pub fn is_loss(failure: &Failure) -> bool {
    matches!(failure, Failure::DurableLost(_) | Failure::Hole { .. })
}

fn is_panic(failure: &Failure) -> bool {
    matches!(failure, Failure::Error(what) if what.starts_with("panic: "))
}

fn count_of(total: &Report, is_one: impl Fn(&Failure) -> bool) -> usize {
    total.failures.iter().filter(|(_, failure)| is_one(failure)).count()
}

/// Whether a row, or a marker of a transaction, was not what it had to be.
fn is_wrong(failure: &Failure) -> bool {
    !is_loss(failure) && !matches!(failure, Failure::Error(_) | Failure::Stuck(_))
}

fn moments(cuts: &Cuts) -> [(&'static str, u64); 12] {
    [
        ("in creation", cuts.in_creation),
        ("in verification", cuts.in_verification),
        ("in run", cuts.in_run),
        ("in checkpoint", cuts.in_checkpoint),
        ("in recovery", cuts.in_recovery),
        ("in close", cuts.in_close),
        ("with dirty pages", cuts.with_dirty_pages),
        ("with dirty flash", cuts.with_dirty_flash),
        ("with io in flight", cuts.with_io_in_flight),
        ("with flash wiped", cuts.with_flash_wiped),
        ("pages dropped", cuts.pages_dropped),
        ("pages torn", cuts.pages_torn),
    ]
}

/// What went wrong beside power cuts.
fn mishaps(counts: &MishapCounts) -> [(&'static str, u64); 6] {
    [
        ("device faults", counts.device_faults),
        ("stopped by a device", counts.stopped),
        ("panics of clients", counts.panics),
        ("savepoints gone back to", counts.savepoints),
        ("tables made again", counts.remade),
        ("too large for the log", counts.too_large),
    ]
}

fn keyed<const N: usize>(counts: [(&str, u64); N]) -> serde_json::Map<String, serde_json::Value> {
    counts.into_iter().map(|(name, count)| (name.replace(' ', "_"), count.into())).collect()
}

fn shown(total: &Report, options: &Torture, seeds: u64, wall_s: f64) -> String {
    let mut table = Table::new(["power cuts", &thousands(total.cuts.total as f64)]);
    for (moment, count) in moments(&total.cuts) {
        table.row([format!("  {moment}"), thousands(count as f64)]);
    }
    for (kind, count) in mishaps(&total.mishaps) {
        table.row([kind.into(), thousands(count as f64)]);
    }
    table.row(["commits".into(), thousands(total.commits as f64)]);
    table.row(["lost, as they may".into(), thousands(total.losses_allowed as f64)]);
    table.row(["restarts verified".into(), thousands(total.verified as f64)]);
    if options.persistent_flash {
        table.row(["openings refused".into(), thousands(total.refused as f64)]);
    }
    table.row(["failures".into(), thousands(total.failures.len() as f64)]);
    let mut text = format!("{}{seeds} seeds in {wall_s:.1} s\n", table.text());
    for (seed, failure) in total.failures.iter().take(SHOWN_MAX) {
        text.push_str(&format!("seed {seed}: {failure}; repeat: {}\n", repeat(*seed, options)));
    }
    text
}

fn repeat(seed: u64, options: &Torture) -> String {
    let design = options.design.map_or(String::new(), |one| format!(" --design {}", one.name));
    let restart = options.restart.map_or(String::new(), |one| format!(" --restart {}", one.name));
    let age = options.clean_age.map_or(String::new(), |bytes| format!(" --clean-age {bytes}B"));
    let role = if options.persistent_flash { " --persistent-flash" } else { "" };
    format!("terrace torture --seed {seed}{design}{restart}{age}{role}")
}
