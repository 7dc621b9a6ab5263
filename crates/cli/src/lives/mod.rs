//! `terrace torture --world real`: processes with threads and real files, which are killed, and
//! whose files come to harm in between.
//!
//! ```text
//! seed -> design, restart, role of the flash
//!   life -- killed, or closed -> mishap -> life -> ... -> damage to home and log, some trials
//! ```
//!
//! Modules in reading order: `model`: what clients do, and what must be there. `ledger`: what was
//! promised. `life`: the process that is killed. `mishap`: what befalls the files.
//!
//! - V1: the parent never opens a database. What it knows it has from the lives' lines and exit
//!   status; the ledger is outside of the database.
//! - V2: flash that is a cache may come to any harm; every life must open and lose nothing.
//! - V3: home and log that come to harm are repaired, or an error is told; a database whose opening
//!   is refused has not changed by a byte.
//! - The seed decides what is done; when a process dies depends on the machine, too.

mod ledger;
mod life;
mod mishap;
mod model;

use self::mishap::{Damage, Mishap};
use crate::command::{Life, Torture};
use crate::failure::Failure;
use crate::output::{Sinks, Stopwatch, cores};
use crate::progress::Bars;
use crate::results::Host;
use crate::scratch::Scratch;
use crate::side_by_side;
use crate::table::{Table, thousands};
use serde_json::json;
use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use terrace_policy::{DESIGNS, Design, FlashRole, Restart, restarts};
use terrace_rt::Prng;
use terrace_workload::torture::OPEN_RESTARTS;

const SEEDS: u64 = 20;
const JOBS_MAX: u64 = 4;
/// Lives of a seed, before the trials of damage.
const LIVES: u64 = 8;
/// Places that are damaged, one after the other, each in the same database.
const TRIALS: u64 = 10;
const RUNS_MS_MAX: u64 = 250;
/// A life that says nothing for so long is stuck before its own watchdog runs.
const SILENCE: Duration = Duration::from_secs(20);
/// Failures that are printed; all are in the JSON.
const SHOWN_MAX: usize = 10;

pub use self::life::live;

/// What a run found.
#[derive(Default)]
struct Report {
    kills: u64,
    faults: u64,
    lives: u64,
    verified: u64,
    transactions: u64,
    losses: u64,
    wrong_answers: u64,
    hangs: u64,
    panics: u64,
    by_kind: BTreeMap<String, u64>,
    failures: Vec<(u64, String)>,
}

impl Report {
    fn count(&mut self, kind: impl Into<String>) {
        *self.by_kind.entry(kind.into()).or_default() += 1;
    }

    fn fail(&mut self, seed: u64, what: String) {
        self.failures.push((seed, what));
    }

    fn add(&mut self, other: Report) {
        self.kills += other.kills;
        self.faults += other.faults;
        self.lives += other.lives;
        self.verified += other.verified;
        self.transactions += other.transactions;
        self.losses += other.losses;
        self.wrong_answers += other.wrong_answers;
        self.hangs += other.hangs;
        self.panics += other.panics;
        for (kind, count) in other.by_kind {
            *self.by_kind.entry(kind).or_default() += count;
        }
        self.failures.extend(other.failures);
    }
}

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
    let jobs = options.jobs.unwrap_or(cores().min(JOBS_MAX));
    let bars = Bars::new();
    let bar = bars.add("torture".into(), seeds);
    let done = AtomicU64::new(0);
    let reports = side_by_side::each(seeds as usize, jobs as usize, |at| {
        let report = one_seed(first + at as u64, options);
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
            "{} failures, the first: {what}; repeat it with `{}`",
            total.failures.len(),
            repeat(*seed, options),
        ))),
    }
}

fn repeat(seed: u64, options: &Torture) -> String {
    let design = options.design.map_or(String::new(), |one| format!(" --design {}", one.name));
    let restart = options.restart.map_or(String::new(), |one| format!(" --restart {}", one.name));
    let role = if options.persistent_flash { " --persistent-flash" } else { "" };
    format!("terrace torture --world real --seed {seed}{design}{restart}{role}")
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
        "faults": total.faults,
        "kills": total.kills,
        "losses": total.losses,
        "wrong_answers": total.wrong_answers,
        "hangs": total.hangs,
        "panics": total.panics,
        "by_kind": total.by_kind,
        "lives": total.lives,
        "transactions": total.transactions,
        "verified": total.verified,
        "failures": failures,
        "host": Host::of(watch, 0.0),
    })
}

fn shown(total: &Report, options: &Torture, seeds: u64, wall_s: f64) -> String {
    let mut table = Table::new(["kills", &thousands(total.kills as f64)]);
    let rows = [
        ("lives", total.lives),
        ("openings verified", total.verified),
        ("transactions", total.transactions),
        ("mishaps and damage", total.faults),
        ("losses", total.losses),
        ("wrong answers", total.wrong_answers),
        ("hangs", total.hangs),
        ("panics", total.panics),
    ];
    for (what, count) in rows {
        table.row([what.into(), thousands(count as f64)]);
    }
    for (kind, count) in &total.by_kind {
        table.row([format!("  {kind}"), thousands(*count as f64)]);
    }
    let mut text = format!("{}{seeds} seeds in {wall_s:.1} s\n", table.text());
    for (seed, what) in total.failures.iter().take(SHOWN_MAX) {
        text.push_str(&format!("seed {seed}: {what}; repeat: {}\n", repeat(*seed, options)));
    }
    text
}

/// What a seed decides before its first life.
struct Setting {
    seed: u64,
    design: Design,
    restart: Restart,
    role: FlashRole,
    folder: Scratch,
}

fn one_seed(seed: u64, options: &Torture) -> io::Result<Report> {
    let mut prng = Prng::from_seed(seed);
    let setting = draw(seed, options, &mut prng)?;
    let mut report = Report::default();
    report.count(format!("design {}", setting.design.name));
    report.count(format!("restart {}", setting.restart.name));
    if lives(&setting, &mut prng, &mut report)? {
        trials(&setting, &mut prng, &mut report)?;
    }
    Ok(report)
}

fn draw(seed: u64, options: &Torture, prng: &mut Prng) -> io::Result<Setting> {
    let pick = |prng: &mut Prng, count: usize| prng.below(count as u64) as usize;
    let is_persistent = options.persistent_flash || prng.below(6) == 0;
    let warm = restarts::find("warm").expect("a row of the table");
    let mut design = options.design.unwrap_or(DESIGNS[pick(prng, DESIGNS.len())]);
    let drawn = OPEN_RESTARTS[pick(prng, OPEN_RESTARTS.len())];
    let drawn = restarts::find(drawn).expect("a row of the table");
    let mut restart = options.restart.unwrap_or(drawn);
    while options.design.is_none() && design.name == "ssd-only" {
        design = DESIGNS[pick(prng, DESIGNS.len())];
    }
    let wanted = if is_persistent { FlashRole::Persistent } else { FlashRole::Cache };
    let mut role = wanted;
    if wanted.refusal(&design, &restart).is_some() && options.restart.is_none() {
        restart = warm;
    }
    if wanted.refusal(&design, &restart).is_some() {
        role = FlashRole::Cache;
    }
    Ok(Setting { seed, design, restart, role, folder: Scratch::make(options.folder.as_deref())? })
}

/// How a life ended.
enum Ending {
    /// By the parent, after it was held against the ledger, or before.
    Killed,
    /// By itself, with this status.
    Exited(i32),
    /// By a signal that the parent did not send.
    Died,
    /// It said nothing any more.
    Silent,
}

struct Lived {
    ending: Ending,
    /// The last line that was no count.
    said: String,
    is_verified: bool,
    transactions: u64,
    panic: Option<String>,
}

/// Runs the lives of a seed; false if one of them found something, or the flash is needed and gone.
fn lives(setting: &Setting, prng: &mut Prng, report: &mut Report) -> io::Result<bool> {
    let folder = setting.folder.path();
    let (flash, older, foreign) =
        (folder.join("flash"), folder.join("flash.older"), folder.join("flash.foreign"));
    for number in 0..LIVES {
        let is_killed = prng.below(4) > 0;
        let kill_after = is_killed.then(|| Duration::from_millis(prng.below(RUNS_MS_MAX)));
        let runs_ms = 1 + prng.below(RUNS_MS_MAX);
        let lived = one_life(setting, folder, number, runs_ms, kill_after)?;
        if !judge(setting, &lived, report, &format!("life {number}")) {
            return Ok(false);
        }
        if number == 0 {
            // Another database's flash: the same file names, another identity.
            let other = folder.join("other");
            fs::create_dir_all(&other)?;
            let lived = one_life(setting, &other, 0, 20, None)?;
            if judge(setting, &lived, report, "the other database") {
                let _absent = fs::rename(other.join("flash"), &foreign);
            }
        }
        if setting.role == FlashRole::Cache && number + 1 < LIVES {
            let mishap = Mishap::ALL[prng.below(Mishap::ALL.len() as u64) as usize];
            mishap.befall(&flash, &older, &foreign, prng)?;
            report.count(mishap.name());
            report.faults += u64::from(mishap != Mishap::Spared);
        }
        if prng.below(3) == 0 && flash.exists() {
            fs::copy(&flash, &older)?;
        }
    }
    Ok(true)
}

/// Damages home and log, one place after the other, and opens what is left.
fn trials(setting: &Setting, prng: &mut Prng, report: &mut Report) -> io::Result<()> {
    let folder = setting.folder.path();
    let names = ["db", "db.log", "flash"];
    let files: Vec<_> = names.iter().map(|name| folder.join(name)).collect();
    let kept: Vec<_> = names.iter().map(|name| folder.join(format!("{name}.kept"))).collect();
    for (file, kept) in files.iter().zip(&kept).filter(|(file, _)| file.exists()) {
        fs::copy(file, kept)?;
    }
    for trial in 0..TRIALS {
        for (file, kept) in files.iter().zip(&kept).filter(|(_, kept)| kept.exists()) {
            fs::copy(kept, file)?;
        }
        let of_log = prng.below(3) == 0;
        let file = &files[usize::from(of_log)];
        let damage = Damage::draw(&mishap::sectors_with_data(file)?, prng);
        damage.to(file)?;
        report.faults += 1;
        let before = mishap::hashes(&files);
        let lived = one_life(setting, folder, LIVES + trial, 0, None)?;
        let place = if of_log { "log" } else { "home" };
        let what = format!("{} at {} of {place}", damage.name(), damage.at());
        let outcome = match lived.ending {
            Ending::Exited(0) => "repaired or unused",
            Ending::Exited(life::REFUSED) if mishap::hashes(&files) == before => "refused",
            Ending::Exited(life::REFUSED) => {
                report.wrong_answers += 1;
                report.fail(setting.seed, format!("{what}: refused, but changed: {}", lived.said));
                "refused, but changed"
            }
            Ending::Exited(life::TOLD) => "told",
            _ => {
                judge(setting, &lived, report, &what);
                "failed"
            }
        };
        report.count(format!("{place}, {}: {outcome}", damage.name()));
    }
    Ok(())
}

/// Counts a life; false if it found something.
fn judge(setting: &Setting, lived: &Lived, report: &mut Report, what: &str) -> bool {
    report.lives += 1;
    report.transactions += lived.transactions;
    report.verified += u64::from(lived.is_verified);
    let about = format!("{what} ({}, {})", setting.design.name, setting.restart.name);
    match lived.ending {
        Ending::Killed => report.kills += 1,
        Ending::Exited(0) => (),
        Ending::Silent | Ending::Exited(life::HANGS) => {
            report.hangs += 1;
            report.fail(setting.seed, format!("{about} hangs: {}", lived.said));
        }
        Ending::Exited(life::WRONG) => {
            report.wrong_answers += 1;
            report.losses += u64::from(lived.said.contains("ledger"));
            report.fail(setting.seed, format!("{about}: {}", lived.said));
        }
        Ending::Exited(_) | Ending::Died => {
            report.panics += u64::from(lived.panic.is_some());
            let said = lived.panic.as_deref().unwrap_or(&lived.said);
            report.fail(setting.seed, format!("{about}: {said}"));
        }
    }
    matches!(lived.ending, Ending::Killed | Ending::Exited(0))
}

/// Runs one life, and kills it after `kill_after`.
fn one_life(
    setting: &Setting,
    folder: &Path,
    number: u64,
    runs_ms: u64,
    kill_after: Option<Duration>,
) -> io::Result<Lived> {
    let life = Life {
        folder: folder.to_path_buf(),
        seed: setting.seed.wrapping_mul(1_000).wrapping_add(number),
        design: setting.design,
        restart: setting.restart,
        persistent_flash: setting.role == FlashRole::Persistent,
        runs_ms,
        is_first: runs_ms > 0,
    };
    let said = folder.join("stderr");
    let mut child = Command::new(env::current_exe()?)
        .args(life.arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&said)?)
        .spawn()?;
    let mut lived = listen(&mut child, kill_after)?;
    let errors = fs::read_to_string(&said).unwrap_or_default();
    lived.panic = errors.contains("panicked").then(|| errors.replace('\n', " | "));
    Ok(lived)
}

/// Reads the lines of a life until it ends.
fn listen(child: &mut Child, kill_after: Option<Duration>) -> io::Result<Lived> {
    let begun = Instant::now();
    let (sender, lines) = mpsc::channel();
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let reader = thread::spawn(move || {
        output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line).map_err(drop))
    });
    let mut lived = Lived {
        ending: Ending::Silent,
        said: String::new(),
        is_verified: false,
        transactions: 0,
        panic: None,
    };
    let mut last_heard = Instant::now();
    let is_killed = loop {
        let left = kill_after.map(|at| at.saturating_sub(begun.elapsed()));
        if left == Some(Duration::ZERO) {
            child.kill()?;
            break true;
        }
        match lines.recv_timeout(left.unwrap_or(SILENCE).min(SILENCE)) {
            Ok(line) => {
                last_heard = Instant::now();
                hear(&mut lived, line);
            }
            Err(RecvTimeoutError::Timeout) if last_heard.elapsed() >= SILENCE => {
                child.kill()?;
                break false;
            }
            Err(RecvTimeoutError::Timeout) => (),
            Err(RecvTimeoutError::Disconnected) => break false,
        }
    };
    let status = child.wait()?;
    for line in lines.try_iter() {
        hear(&mut lived, line);
    }
    let _ended = reader.join();
    for line in lines.try_iter() {
        hear(&mut lived, line);
    }
    lived.ending = match status.code() {
        Some(code) => Ending::Exited(code),
        None if is_killed => Ending::Killed,
        None if last_heard.elapsed() >= SILENCE => Ending::Silent,
        None => Ending::Died,
    };
    Ok(lived)
}

fn hear(lived: &mut Lived, line: String) {
    if let Some(count) = line.strip_prefix("alive ") {
        lived.transactions = count.parse().unwrap_or(lived.transactions);
    } else {
        lived.is_verified |= line == "verified";
        lived.said = line;
    }
}
