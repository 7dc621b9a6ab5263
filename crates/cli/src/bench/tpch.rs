//! `terrace bench tpch`: queries of TPC-H with ranges, one after the other, on each design, from a
//! cold start.
//!
//! Every run starts from the same loaded database, in a virtual world of its own; runs go side by
//! side.

use crate::bench::run_of::{devices, flash, memory, ratio};
use crate::bench::system::{
    self, check_sizes, jobs, modelled, object, place_parameters, refuse, set_sizes,
    tier_parameters, word,
};
use crate::command::{QueriesName, RecordOptions, TpchBench};
use crate::failure::Failure;
use crate::interrupt::{self, Interrupt};
use crate::interval::rounded;
use crate::output::{Sinks, Stopwatch};
use crate::progress::Bars;
use crate::results::{Bench, Checks, Devices, Flash, Host, Memory, RunHost};
use crate::side_by_side;
use crate::table::{Table, percent, thousands};
use crate::trace::{Recorder, wrong};
use serde::Serialize;
use serde_json::{Map, Value, json};
use terrace_policy::{Design, Restart};
use terrace_trace::tpch::TpchWorkload;
use terrace_workload::System;
use terrace_workload::tpch::{Answered, Config, Loaded, TpchResult, load, run};

/// One run of one design.
#[derive(Clone, Debug, Serialize)]
pub struct TpchRun {
    /// Name of the design.
    pub design: &'static str,
    /// From the first query to the last answer.
    pub elapsed_s: f64,
    /// That of `no-ssd` over it, if that ran.
    pub speedup: Option<f64>,
    /// All queries together.
    pub total: Work,
    /// Those of each kind together, by the names of the benchmark.
    pub kinds: Vec<Kind>,
    /// Memory, over the whole run.
    pub memory: Memory,
    /// The flash tier, over the whole run; zeroes if there is none.
    pub flash: Flash,
    /// Share of the pages read from flash or home that came from flash.
    pub flash_read_share: f64,
    /// The devices, over the whole run.
    pub devices: Devices,
    /// The queries in their order.
    pub queries: Vec<Ran>,
    /// Whether all answers were right.
    pub checks: Checks,
    /// What depends on the machine.
    pub host: RunHost,
}

/// What some queries did.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Work {
    /// How many they are.
    pub queries: u64,
    /// Rows and entries of the index that they read.
    pub rows_read: u64,
    /// Rows that their answers are of.
    pub rows_answered: u64,
    /// Pages that they asked for.
    pub references: u64,
    /// Of them, those that memory lacked.
    pub misses: u64,
}

/// The queries of a kind.
#[derive(Clone, Debug, Serialize)]
pub struct Kind {
    /// The name of the benchmark.
    pub query: String,
    /// What they did.
    #[serde(flatten)]
    pub work: Work,
    /// How long they took together.
    pub elapsed_s: f64,
}

/// A query that was run.
#[derive(Clone, Debug, Serialize)]
pub struct Ran {
    /// The name of the benchmark.
    pub query: String,
    /// Its range: the first value, and the one after the last.
    pub range: [u64; 2],
    /// How long it took.
    pub elapsed_s: f64,
    /// Pages that it asked for and memory lacked.
    pub misses: u64,
    /// Rows that its answer is of.
    pub rows_answered: u64,
}

/// Runs the bench.
///
/// # Errors
///
/// Options that make no sense; whatever stops the engine; a wrong answer.
pub fn tpch(mut options: Box<TpchBench>, recording: &RecordOptions) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    system::combine(&mut options.design, &options.tier)?;
    let options = &*options;
    let designs = &options.design.0;
    refuse(designs, &[Restart::forget()], &options.tier)?;
    let mut system = modelled(&options.models, &options.tier)?;
    check_sizes(&system, &options.tier, designs)?;
    let config = config(options)?;
    system::fits("--scale, kept in memory,", config.home_bytes())?;
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let recorder = Recorder::begin(recording, designs.len(), &mut system.recording)?;
    let _watched = Interrupt::watch()?;
    let bars = Bars::new();
    let loading = Stopwatch::start();
    let loaded = load_shown(&config, &system, &bars)?;
    let load_wall_s = loading.seconds();
    set_sizes(&mut system, &options.tier, designs, loaded.home_pages)?;
    let side_by_side = jobs(options.jobs, designs.len()) as usize;
    let mut runs = side_by_side::each(designs.len(), side_by_side, |at| {
        run_shown(&loaded, &system, designs[at], queries(options).into(), &bars)
    })?;
    bars.clear();
    compare(&mut runs);
    let bench = Bench {
        command: "bench tpch",
        version: env!("CARGO_PKG_VERSION"),
        seed: options.seed,
        parameters: parameters(options, &system, &loaded),
        host: Host::of(&watch, load_wall_s),
        runs,
        pairs: Vec::new(),
    };
    sinks.show(&shown(&bench, options, &loaded));
    Recorder::end(recorder, &sinks)?;
    sinks.write(&bench)?;
    match bench.runs.iter().find(|run| run.checks.is_broken()) {
        None => interrupt::whole(),
        Some(run) => Err(Failure::failed(run.design, &run.checks.consistency)),
    }
}

fn config(options: &TpchBench) -> Result<Config, Failure> {
    let workload = match options.workload {
        QueriesName::OdsTpch => {
            let (narrowest, widest) = options.widths;
            TpchWorkload::Ods { narrowest, widest }
        }
        QueriesName::ZipfTpch => TpchWorkload::Dates(options.zipf),
    };
    Config::new(workload, options.scale, queries(options), options.seed).map_err(wrong)
}

fn queries(options: &TpchBench) -> u32 {
    options.queries.unwrap_or(options.workload.usual_queries())
}

fn load_shown(config: &Config, system: &System, bars: &Bars) -> Result<Loaded, Failure> {
    let bar = bars.add("load".into(), 1);
    let loaded = load(config, system, &mut |rows, total| {
        bar.set_length(total);
        bar.set_position(rows);
        bar.set_message(format!("{} rows", thousands(rows as f64)));
    })
    .map_err(|error| Failure::of("cannot load the database", &error))?;
    bar.finish_and_clear();
    Ok(loaded)
}

fn run_shown(
    loaded: &Loaded,
    system: &System,
    design: Design,
    queries: u64,
    bars: &Bars,
) -> Result<TpchRun, Failure> {
    let watch = Stopwatch::start();
    let bar = bars.add(design.name.into(), queries);
    let result = run(loaded, system, design, &mut |passed, answered| {
        bar.set_position(answered as u64);
        bar.set_message(format!("{:.0} s", passed.as_secs_f64()));
    });
    let result = result.map_err(|error| Failure::of(design.name, &error))?;
    bar.finish_and_clear();
    Ok(run_of(&result, watch.seconds()))
}

/// Gives each run its speedup over no-ssd.
fn compare(runs: &mut [TpchRun]) {
    let base = runs.iter().find(|run| run.design == "no-ssd").map(|run| run.elapsed_s);
    for run in runs {
        run.speedup = base.map(|elapsed_s| rounded(ratio(elapsed_s, run.elapsed_s)));
    }
}

impl Work {
    fn add(&mut self, answered: &Answered) {
        self.queries += 1;
        self.rows_read += answered.rows_read;
        self.rows_answered += answered.rows_answered;
        self.references += answered.references;
        self.misses += answered.misses;
    }
}

fn run_of(result: &TpchResult, wall_s: f64) -> TpchRun {
    let mut total = Work::default();
    result.queries.iter().for_each(|answered| total.add(answered));
    let pool = &result.whole.pool;
    let read = pool.flash_reads as f64;
    let ran = result.queries.iter().map(|answered| Ran {
        query: format!("{:?}", answered.query.name),
        range: [answered.query.range.start, answered.query.range.end],
        elapsed_s: rounded(answered.elapsed.as_secs_f64()),
        misses: answered.misses,
        rows_answered: answered.rows_answered,
    });
    TpchRun {
        design: result.design,
        elapsed_s: rounded(result.elapsed().as_secs_f64()),
        speedup: None,
        total,
        kinds: kinds(result),
        memory: memory(&result.whole),
        flash: flash(&result.whole),
        flash_read_share: rounded(ratio(read, read + pool.home_read_pages as f64)),
        devices: devices(&result.whole),
        queries: ran.collect(),
        checks: Checks { consistency: result.consistency.summary().to_string() },
        host: RunHost { wall_s, events_per_s: None },
    }
}

/// The queries by kind, in the order of the benchmark's numbers.
fn kinds(result: &TpchResult) -> Vec<Kind> {
    let mut names: Vec<_> = result.queries.iter().map(|answered| answered.query.name).collect();
    names.sort_unstable();
    names.dedup();
    let of_kind = |name| {
        let mut work = Work::default();
        let mut elapsed_s = 0.0;
        for answered in result.queries.iter().filter(|answered| answered.query.name == name) {
            work.add(answered);
            elapsed_s += answered.elapsed.as_secs_f64();
        }
        Kind { query: format!("{name:?}"), work, elapsed_s: rounded(elapsed_s) }
    };
    names.into_iter().map(of_kind).collect()
}

fn parameters(options: &TpchBench, system: &System, loaded: &Loaded) -> Map<String, Value> {
    let names: Vec<&str> = options.design.0.iter().map(|design| design.name).collect();
    let is_ods = options.workload == QueriesName::OdsTpch;
    let mut all = object(json!({
        "design": names,
        "workload": word(options.workload),
        "scale": options.scale,
        "queries": queries(options),
        "widths": is_ods.then_some([options.widths.0, options.widths.1]),
        "zipf": (!is_ods).then_some(options.zipf),
        "database_pages": loaded.home_pages,
    }));
    all.extend(place_parameters(system));
    all.extend(tier_parameters(system, &options.tier));
    all
}

fn shown(bench: &Bench<TpchRun>, options: &TpchBench, loaded: &Loaded) -> String {
    format!(
        "{}, scale {}, {} pages, {} queries one after the other, seed {}; memory {}, flash {} on \
         {}, home {}\n\n{}\n{}\n{:.1} s, of which load {:.1} s\n",
        word(options.workload),
        options.scale,
        thousands(loaded.home_pages as f64),
        queries(options),
        bench.seed,
        options.tier.dram,
        options.tier.flash,
        options.models.flash_device,
        options.models.home,
        table_of_runs(&bench.runs),
        table_of_kinds(&bench.runs),
        bench.host.wall_s,
        bench.host.load_wall_s,
    )
}

fn table_of_runs(runs: &[TpchRun]) -> String {
    let mut table = Table::new([
        "design",
        "elapsed s",
        "speedup",
        "mem hit",
        "flash hit",
        "of reads",
        "flash writes",
        "used",
        "home busy",
        "flash busy",
        "answers",
    ]);
    for run in runs {
        let of_flash = |cell: String| if run.flash.slots == 0 { "-".into() } else { cell };
        table.row([
            run.design.into(),
            format!("{:.1}", run.elapsed_s),
            run.speedup.map_or("-".into(), |speedup| format!("{speedup:.2}x")),
            percent(run.memory.hit_ratio),
            of_flash(percent(run.flash.hit_ratio)),
            of_flash(percent(run.flash_read_share)),
            of_flash(thousands(run.flash.writes as f64)),
            of_flash(percent(run.flash.used_share)),
            percent(run.devices.home.utilisation),
            of_flash(percent(run.devices.flash.utilisation)),
            if run.checks.is_broken() { "WRONG".into() } else { "right".into() },
        ]);
    }
    table.text()
}

/// The queries of each kind: what they did on any design, and how long they took on each.
fn table_of_kinds(runs: &[TpchRun]) -> String {
    let mut table =
        Table::new(["design", "query", "runs", "rows read", "answered", "pages", "missed", "s"]);
    for run in runs {
        for kind in &run.kinds {
            table.row([
                run.design.into(),
                kind.query.clone(),
                kind.work.queries.to_string(),
                thousands(kind.work.rows_read as f64),
                thousands(kind.work.rows_answered as f64),
                thousands(kind.work.references as f64),
                thousands(kind.work.misses as f64),
                format!("{:.1}", kind.elapsed_s),
            ]);
        }
    }
    table.text()
}
