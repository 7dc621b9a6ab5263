//! `terrace torture --world real`: processes with threads and real files, which are killed, whose
//! devices fail, and whose files come to harm in between.
//!
//! ```text
//! seed -> design, restart, role of the flash
//!   life -- killed, or closed, or stopped by a device -> mishap -> life -> ... -> damage, trials
//! ```
//!
//! Modules in reading order: `model`: what clients do, and what must be there. `ledger`: what was
//! promised. `fault`: how devices fail. `life`: the process that is killed; `child`: the same, seen
//! from outside. `mishap`: what befalls the files; `region`: where. `victim`: one seed. `report`:
//! what came of it.
//!
//! - V1: the parent never opens a database. What it knows it has from the lives' lines and exit
//!   status; the ledger is outside of the database.
//! - V2: flash that is a cache may come to any harm, and fail in any way; every life must open, go
//!   on and lose nothing.
//! - V3: home and log that come to harm are repaired, or an error is reported; a database whose
//!   opening is refused has not changed by a byte.
//! - V4: a home, a log, or a flash that is a part of the database, that fails, may stop a life with
//!   an error of that device; the next life loses nothing.
//! - The seed decides what is done; when a process dies depends on the machine, too.
//!
//! Rounds of it, and what they counted, are listed at the end of docs/RECOVERY.md.

mod child;
mod fault;
mod ledger;
mod life;
mod mishap;
mod model;
mod region;
mod report;
mod victim;

use self::report::{Outcome, Report};
use crate::command::Torture;
use crate::failure::Failure;
use crate::output::{Sinks, Stopwatch, cores};
use crate::progress::Bars;
use crate::results::Host;
use crate::side_by_side;
use crate::table::{Table, thousands};
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

const SEEDS: u64 = 20;
const JOBS_MAX: u64 = 8;
/// Failures that are printed; all are in the JSON.
const SHOWN_MAX: usize = 10;

pub use self::fault::Fault;
pub use self::life::live;

/// Tortures in the real world, and says what was done and what was lost.
///
/// # Errors
///
/// Something was lost, wrong or stuck, or a process could not be run.
pub fn torture(options: &Torture) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let first = options.seed.unwrap_or(1);
    let seeds = options.seeds.unwrap_or(if options.seed.is_some() { 1 } else { SEEDS });
    let jobs = match &options.full_disk {
        // One fills the disk of the others.
        Some(_) => 1,
        // They wait for their files most of the time.
        None => options.jobs.unwrap_or((2 * cores()).min(JOBS_MAX)),
    };
    let bars = Bars::new();
    let bar = bars.add("torture".into(), seeds);
    let done = AtomicU64::new(0);
    let reports = side_by_side::each(seeds as usize, jobs as usize, |at| {
        let report = victim::torture(first + at as u64, options);
        bar.set_position(done.fetch_add(1, Ordering::Relaxed) + 1);
        report
    });
    bars.clear();
    let mut total = Report::default();
    for report in reports.map_err(|error| Failure::failed("cannot torture", error))? {
        total.add(report);
    }
    sinks.show(&shown(&total, options, seeds, watch.seconds()));
    sinks.write(&numbers(&total, options, first, seeds, &watch))?;
    match total.failures.first() {
        None => Ok(()),
        Some((seed, what)) => Err(Failure::Failed(format!(
            "{} failures, the first: {what}; `{}` tries this seed again, but what a kill meets \
             also depends on the machine",
            total.failures.len(),
            repeat(*seed, options),
        ))),
    }
}

fn repeat(seed: u64, options: &Torture) -> String {
    let design = options.design.map_or(String::new(), |one| format!(" --design {}", one.name));
    let restart = options.restart.map_or(String::new(), |one| format!(" --restart {}", one.name));
    let role = if options.persistent_flash { " --persistent-flash" } else { "" };
    let path = |option, path: &Option<PathBuf>| {
        path.as_ref().map_or(String::new(), |path| format!(" {option} {}", path.display()))
    };
    let full = path("--full-disk", &options.full_disk);
    let folder = path("--folder", &options.folder);
    format!("terrace torture --world real --seed {seed}{design}{restart}{role}{full}{folder}")
}

fn numbers(
    total: &Report,
    options: &Torture,
    first: u64,
    seeds: u64,
    watch: &Stopwatch,
) -> serde_json::Value {
    let failures: Vec<_> = total
        .failures
        .iter()
        .map(|(seed, what)| json!({ "seed": seed, "what": what, "repeat": repeat(*seed, options) }))
        .collect();
    json!({
        "command": "torture",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": first,
        "seeds": seeds,
        "cuts": 0,
        "faults": total.faults(),
        "kills": total.kills(),
        "losses": total.all(Outcome::Lost),
        "wrong_answers": total.all(Outcome::Wrong),
        "hangs": total.all(Outcome::Hung),
        "panics": total.all(Outcome::Panicked),
        "stopped": total.all(Outcome::Stopped),
        "changed": total.all(Outcome::Changed),
        "by_kind": total.by_kind_json(),
        "damages": total.damages,
        "settings": total.settings,
        "lives": total.lives,
        "transactions": total.transactions,
        "told_that_home_is_full": total.full,
        "verified": total.verified,
        "failures": failures,
        "host": Host::of(watch, 0.0),
    })
}

fn shown(total: &Report, options: &Torture, seeds: u64, wall_s: f64) -> String {
    let [one, two, three, four, five, six, seven, eight, nine] = Report::outcomes();
    let heading = ["what befell", "all", one, two, three, four, five, six, seven, eight, nine];
    let mut table = Table::new(heading);
    for (kind, all, counts) in total.by_kind() {
        let [a, b, c, d, e, f, g, h, i] = counts.map(|count| thousands(count as f64));
        table.row([kind.to_string(), thousands(all as f64), a, b, c, d, e, f, g, h, i]);
    }
    let mut sums = Table::new(["kills", &thousands(total.kills() as f64)]);
    for (what, count) in [
        ("mishaps, damages and faults of devices", total.faults()),
        ("lives", total.lives),
        ("openings verified", total.verified),
        ("transactions", total.transactions),
        ("  told that home is full", total.full),
    ] {
        sums.row([what.into(), thousands(count as f64)]);
    }
    for (name, count) in &total.damages {
        sums.row([format!("damages: {name}"), thousands(*count as f64)]);
    }
    let befell = (total.kills() + total.faults()) as f64;
    let rate = befell / wall_s.max(1e-3);
    let mut text = format!("{}{}", table.text(), sums.text());
    text.push_str(&format!("{seeds} seeds in {wall_s:.1} s, {rate:.1} per second\n"));
    for (seed, what) in total.failures.iter().take(SHOWN_MAX) {
        text.push_str(&format!("seed {seed}: {what}; try again: {}\n", repeat(*seed, options)));
    }
    text
}
