//! `terrace torture --world real --histories`: random transactions of threads on real files, and
//! the checker that says whether they were serializable.
//!
//! ```text
//! design -> database (seed) -> window -> window -> ... -> check, close, open -> window -> ...
//! ```
//!
//! - A window is a history of its own, checked whole as soon as it is recorded. Its last
//!   transaction reads all that is there, and the next window begins with that.
//! - Hot rows lie far apart in tables that are larger than memory, so that the pages which clients
//!   meet on leave memory, and come back from flash.
//! - A database opened again must hold what its last window left.
//! - The seed decides what clients ask for; the order in which threads come is the machine's.

use crate::command::Torture;
use crate::failure::Failure;
use crate::output::{Sinks, Stopwatch, cores};
use crate::progress::Bars;
use crate::results::Host;
use crate::scratch::Scratch;
use crate::side_by_side;
use crate::table::{Table, thousands};
use serde_json::json;
use std::convert::Infallible;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use terrace::{Builder, Checkpoints, Database, Error, Nanos};
use terrace_policy::{DESIGNS, Design};
use terrace_rt::Prng;
use terrace_workload::history::checker::{Anomaly, History, check};
use terrace_workload::history::{Left, Options, Recording};

const THREADS: u32 = 4;
const TRANSACTIONS: u64 = 20_000;
/// Transactions of each thread in a window.
const WINDOW: u32 = 250;
/// Windows of a database, half of them before it is closed and opened again.
const WINDOWS: u64 = 16;
const PAGE_BYTES: u64 = 8192;
/// Without progress for this long, the threads stand still.
const STANDSTILL: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Longer than that, so that no time limit hides a cycle of waits that nothing finds.
const LOCK_TIMEOUT: Nanos = Nanos::from_secs(600);
/// Failures that are printed; all are in the JSON.
const SHOWN_MAX: usize = 10;

/// What was wrong.
enum Flaw {
    Anomaly(String),
    Hang(String),
    Error(Error),
    Failed(String),
}

impl From<Error> for Flaw {
    fn from(error: Error) -> Flaw {
        Flaw::Error(error)
    }
}

/// What the histories of a design held.
#[derive(Default)]
struct Found {
    design: &'static str,
    databases: u64,
    windows: u64,
    committed: u64,
    aborted: u64,
    dependencies: u64,
    flash_hits: u64,
    flash_hits_dirty: u64,
    anomalies: u64,
    hangs: u64,
    errors: u64,
    failures: Vec<(u64, String)>,
    seconds: f64,
}

impl Found {
    fn add(&mut self, seed: u64, flaw: Flaw) {
        let (count, what) = match flaw {
            Flaw::Anomaly(what) => (&mut self.anomalies, what),
            Flaw::Hang(waits) => (&mut self.hangs, format!("it stands still: {waits}")),
            Flaw::Error(error) => (&mut self.errors, error.to_string()),
            Flaw::Failed(what) => (&mut self.errors, what),
        };
        *count += 1;
        self.failures.push((seed, what));
    }
}

/// Runs histories on each design that keeps dirty pages on flash, and on one that does not.
///
/// # Errors
///
/// A history was not serializable, threads stood still, or the engine failed.
pub fn histories(options: &Torture) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let is_meant = |design: &Design| design.keeps_dirty_on_flash() || design.name == "no-ssd";
    let designs: Vec<Design> = match options.design {
        Some(design) => vec![design],
        None => DESIGNS.into_iter().filter(is_meant).collect(),
    };
    let jobs = options.jobs.unwrap_or((cores() / u64::from(THREADS)).max(1));
    let bars = Bars::new();
    let bar = bars.add("histories".into(), designs.len() as u64);
    let all = side_by_side::each(designs.len(), jobs as usize, |at| {
        let found = of_design(designs[at], options);
        bar.inc(1);
        Ok::<_, Infallible>(found)
    });
    bars.clear();
    let Ok(all) = all;
    sinks.show(&shown(&all, options, watch.seconds()));
    sinks.write(&numbers(&all, options, &watch))?;
    let failures: Vec<_> = failures(&all).collect();
    match failures.first() {
        None => Ok(()),
        Some((found, seed, what)) => Err(Failure::Failed(format!(
            "{} failures, the first with {}: {what}; `{}` tries this seed again, but the order of \
             the threads is the machine's",
            failures.len(),
            found.design,
            repeat(found.design, *seed, options),
        ))),
    }
}

fn failures(all: &[Found]) -> impl Iterator<Item = (&Found, u64, &str)> {
    all.iter().flat_map(|one| one.failures.iter().map(move |(at, what)| (one, *at, &what[..])))
}

/// Runs databases until the histories suffice, each with a seed of its own.
fn of_design(design: Design, options: &Torture) -> Found {
    let begun = Instant::now();
    let mut found = Found { design: design.name, ..Found::default() };
    let asked = options.histories.transactions.unwrap_or(TRANSACTIONS);
    let is_over = |found: &Found| match options.histories.duration {
        Some(span) => begun.elapsed().as_secs_f64() >= span.0,
        None => found.committed >= asked,
    };
    let mut seed = options.seed.unwrap_or(1);
    while !is_over(&found) && found.hangs == 0 {
        found.databases += 1;
        if let Err(flaw) = of_database(design, seed, options, &mut found) {
            found.add(seed, flaw);
        }
        seed += 1;
        if options.seed.is_some() && options.histories.transactions.is_none() {
            // The one that is to be repeated.
            break;
        }
    }
    found.seconds = begun.elapsed().as_secs_f64();
    found
}

/// What a seed decides of a database.
struct Setting {
    builder: Builder,
    options: Options,
}

fn draw(design: Design, options: &Torture, seed: u64, folder: &Path) -> Setting {
    let mut prng = Prng::from_seed(seed);
    // Rows that fit in memory meet most; those that do not have their pages move.
    let is_wide = prng.below(2) > 0;
    let frames = if is_wide { 20 + prng.below(12) } else { 64 };
    let flash_bytes = (1 + prng.below(2)) << 20;
    let mut builder = Database::builder()
        .memory(frames * PAGE_BYTES)
        .home_size(16 << 20)
        .log_size([4 << 20, 16 << 20][prng.below(2) as usize])
        .lock_timeout(LOCK_TIMEOUT)
        .checkpoints(Checkpoints::Every(Nanos::from_millis(
            [10, 100, 1000][prng.below(3) as usize],
        )))
        .design(design)
        .tune(|tier| {
            tier.lambda = [0.1, 0.5, 0.9][prng.below(3) as usize];
            tier.partitions = 1 << prng.below(3);
        });
    if design.uses_flash() {
        builder = builder.flash(folder.join("flash"), flash_bytes);
    }
    if let Some(restart) = options.restart {
        builder = builder.restart(restart);
    }
    // Of its own, so that all else is drawn as without snapshots.
    let has_snapshots = Prng::from_seed(!seed).chance(2);
    if has_snapshots {
        // So little that versions go to disk, and some snapshots end.
        builder = builder.version_memory(64 << 10).version_limit(4 << 20);
    }
    let options = Options {
        clients: THREADS,
        transactions: WINDOW,
        keys: if is_wide { 150 + prng.below(150) } else { 4 + prng.below(40) },
        value_bytes: if is_wide { 1200 } else { [16, 400][prng.below(2) as usize] },
        tables: 1 + prng.below(3) as usize,
        deletes_table_one_in: [0, if is_wide { 1000 } else { 100 }][prng.below(2) as usize],
        savepoint_one_in: [0, 6][prng.below(2) as usize],
        hot_rows: if is_wide { 4 + prng.below(30) } else { 0 },
        scan_keys_max: 8,
        durable_one_in: [4, 40][prng.below(2) as usize],
        snapshot_one_in: if has_snapshots { 2 } else { 0 },
        ..Options::default()
    };
    Setting { builder, options }
}

fn of_database(
    design: Design,
    seed: u64,
    options: &Torture,
    found: &mut Found,
) -> Result<(), Flaw> {
    let failed = |error: std::io::Error| Flaw::Failed(format!("no folder: {error}"));
    let folder = Scratch::make(options.folder.as_deref()).map_err(failed)?;
    let path = folder.path().join("db");
    let setting = draw(design, options, seed, folder.path());
    let mut left = None;
    for life in 0..2 {
        let builder = setting.builder.clone();
        let db = if life == 0 { builder.create(&path)? } else { builder.open(&path)? };
        if let Some(left) = &left {
            is_still_there(&db, left)?;
        }
        for window in 0..WINDOWS / 2 {
            let seed = seed.wrapping_mul(1_000).wrapping_add(life * WINDOWS + window);
            let options = Options { seed, ..setting.options };
            left = Some(of_window(&db, options, left.take(), found)?);
        }
        let pool = db.stats().pool;
        found.flash_hits += pool.flash_hits;
        found.flash_hits_dirty += pool.flash_hits_dirty;
        db.check()?;
        db.close()?;
    }
    Ok(())
}

fn is_still_there(db: &Database, left: &Left) -> Result<(), Flaw> {
    if left.is_in(db)? {
        return Ok(());
    }
    Err(Flaw::Anomaly("opened again, it does not hold the rows that the last window left".into()))
}

/// One history, run and checked.
fn of_window(
    db: &Database,
    options: Options,
    left: Option<Left>,
    found: &mut Found,
) -> Result<Left, Flaw> {
    let (recording, clients) = match left {
        Some(left) => Recording::resume(db, options, left),
        None => Recording::begin(db, options)?,
    };
    let run =
        |client: terrace_workload::history::HistoryClient| thread::spawn(move || client.run());
    join_watched(db, clients.into_iter().map(run).collect(), &recording)?;
    let (history, left) = recording.finish_all(db)?;
    let summary = check(&history).map_err(|it| Flaw::Anomaly(explained(&it, &history)))?;
    found.windows += 1;
    found.committed += summary.committed as u64;
    found.aborted += (history.transactions.len() - summary.committed) as u64;
    found.dependencies += summary.dependencies as u64;
    Ok(left)
}

/// Waits for the threads, as long as they make progress. Those that stand still are left behind:
/// they would not end.
fn join_watched(
    db: &Database,
    threads: Vec<JoinHandle<()>>,
    recording: &Recording,
) -> Result<(), Flaw> {
    let (mut last, mut since) = (recording.progress(), Instant::now());
    while threads.iter().any(|thread| !thread.is_finished()) {
        thread::sleep(LOOK_EVERY);
        let now = recording.progress();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if since.elapsed() > STANDSTILL {
            // Closing would wait for them.
            std::mem::forget(db.clone());
            return Err(Flaw::Hang(db.debug_waits()));
        }
    }
    for thread in threads {
        thread.join().map_err(|_| Flaw::Failed("a client panicked".into()))?;
    }
    Ok(())
}

/// The anomaly, and what the transactions that take part in it did.
fn explained(anomaly: &Anomaly, history: &History) -> String {
    let members: Vec<usize> = match anomaly {
        Anomaly::Cycle(cycle) => cycle.iter().map(|&(member, _)| member).collect(),
        Anomaly::AbortedRead { reader, writer, .. }
        | Anomaly::IntermediateRead { reader, writer, .. } => vec![*reader, *writer],
        Anomaly::UnknownValue { reader, .. }
        | Anomaly::OwnWriteLost { reader, .. }
        | Anomaly::NeverAbsent { reader, .. }
        | Anomaly::BadScan { reader, .. } => vec![*reader],
    };
    let shown = members.iter().map(|&one| format!("; {one} is {:?}", history.transactions[one]));
    format!("{anomaly:?}{}", shown.collect::<String>())
}

fn repeat(design: &str, seed: u64, options: &Torture) -> String {
    let restart = options.restart.map_or(String::new(), |one| format!(" --restart {}", one.name));
    let folder = options.folder.as_ref();
    let folder = folder.map_or(String::new(), |path| format!(" --folder {}", path.display()));
    let command = "terrace torture --world real --histories";
    format!("{command} --design {design}{restart} --seed {seed}{folder}")
}

fn numbers(all: &[Found], options: &Torture, watch: &Stopwatch) -> serde_json::Value {
    let sum = |count: fn(&Found) -> u64| all.iter().map(count).sum::<u64>();
    let of_design = |found: &Found| {
        json!({
            "design": found.design,
            "transactions": found.committed,
            "aborted": found.aborted,
            "dependencies": found.dependencies,
            "windows": found.windows,
            "databases": found.databases,
            "flash_hits": found.flash_hits,
            "flash_hits_dirty": found.flash_hits_dirty,
            "anomalies": found.anomalies,
            "hangs": found.hangs,
            "errors": found.errors,
            "wall_s": found.seconds,
        })
    };
    let failure = |(found, seed, what): (&Found, u64, &str)| {
        let repeat = repeat(found.design, seed, options);
        json!({ "design": found.design, "seed": seed, "what": what, "repeat": repeat })
    };
    json!({
        "command": "torture",
        "version": env!("CARGO_PKG_VERSION"),
        "histories": true,
        "seed": options.seed.unwrap_or(1),
        "threads": THREADS,
        "transactions": sum(|found| found.committed),
        "wrong_answers": sum(|found| found.anomalies),
        "anomalies": sum(|found| found.anomalies),
        "hangs": sum(|found| found.hangs),
        "errors": sum(|found| found.errors),
        "designs": all.iter().map(of_design).collect::<Vec<_>>(),
        "failures": failures(all).map(failure).collect::<Vec<_>>(),
        "host": Host::of(watch, 0.0),
    })
}

fn shown(all: &[Found], options: &Torture, wall_s: f64) -> String {
    let mut table = Table::new([
        "design",
        "committed",
        "aborted",
        "dependencies",
        "flash hits",
        "dirty",
        "anomalies",
        "hangs",
        "errors",
        "per second",
    ]);
    for found in all {
        let count = |count: u64| thousands(count as f64);
        table.row([
            found.design.into(),
            count(found.committed),
            count(found.aborted),
            count(found.dependencies),
            count(found.flash_hits),
            count(found.flash_hits_dirty),
            count(found.anomalies),
            count(found.hangs),
            count(found.errors),
            thousands(found.committed as f64 / found.seconds.max(1e-3)),
        ]);
    }
    let committed: u64 = all.iter().map(|found| found.committed).sum();
    let committed = thousands(committed as f64);
    let mut text = format!("{}{committed} transactions in {wall_s:.1} s\n", table.text());
    for (found, seed, what) in failures(all).take(SHOWN_MAX) {
        let repeat = repeat(found.design, seed, options);
        text.push_str(&format!("{}, seed {seed}: {what}; try again: {repeat}\n", found.design));
    }
    text
}
