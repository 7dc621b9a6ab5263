//! `terrace bench erp`: streams of queries over a star schema on each design, from a cold start.
//!
//! Every run starts from the same loaded database, in a virtual world of its own; runs go side by
//! side. A run is as long as its slowest stream.

use crate::bench::run_of::{devices, flash, memory, ratio, traffic};
use crate::bench::system::{
    self, check_sizes, jobs, modelled, object, place_parameters, positive, refuse, set_sizes,
    tier_parameters, word,
};
use crate::command::{Erp, FetchName, RecordOptions};
use crate::failure::Failure;
use crate::interrupt::{self, Interrupt};
use crate::interval::rounded;
use crate::output::{Sinks, Stopwatch};
use crate::progress::Bars;
use crate::results::{Bench, Checks, Devices, Flash, Host, Memory, RunHost, Traffic};
use crate::side_by_side;
use crate::table::{Table, percent, thousands};
use crate::trace::Recorder;
use serde::Serialize;
use serde_json::{Map, Value, json};
use terrace_policy::{Design, Restart, designs};
use terrace_rt::Nanos;
use terrace_workload::System;
use terrace_workload::erp::{Config, ErpResult, Fetch, Indexes, Loaded, Plan, QUERIES, load, run};
use terrace_workload::sampling::DeviceSample;

/// One run of one design.
#[derive(Clone, Debug, Serialize)]
pub struct ErpRun {
    /// Name of the design.
    pub design: &'static str,
    /// Whether the indexes were on the flash device for good.
    pub indexes_on_flash: bool,
    /// Streams at once.
    pub streams: usize,
    /// Time of the slowest stream.
    pub elapsed_s: f64,
    /// That of `no-ssd` with the same number of streams over it, if that ran.
    pub speedup: Option<f64>,
    /// Each stream.
    pub each: Vec<QueryStream>,
    /// Memory, over the whole run.
    pub memory: Memory,
    /// The flash tier, over the whole run; zeroes if there is none.
    pub flash: Flash,
    /// Share of memory misses that flash served, in the last quarter.
    pub flash_hit_ratio_last_quarter: f64,
    /// Share of the pages read from flash or home that came from flash.
    pub flash_read_share: f64,
    /// Pages written to flash per second, in the first quarter and in the last.
    pub flash_writes_per_s: [f64; 2],
    /// The devices, over the whole run.
    pub devices: Devices,
    /// Pages that were asked for.
    pub touched_pages: u64,
    /// Pages of tables that memory lacked, read ahead or asked for.
    pub fetched_of_tables: u64,
    /// Pages of indexes that it lacked.
    pub fetched_of_indexes: u64,
    /// Pages of indexes that were on flash for good.
    pub placed_pages: u64,
    /// Counters over time.
    pub windows: Vec<ErpWindow>,
    /// Whether all answers were right.
    pub checks: Checks,
    /// What depends on the machine.
    pub host: RunHost,
}

/// One stream.
#[derive(Clone, Debug, Serialize)]
pub struct QueryStream {
    /// From the beginning to its last answer.
    pub elapsed_s: f64,
    /// Its queries in their order.
    pub queries: Vec<Answered>,
}

/// A query of a stream.
#[derive(Clone, Debug, Serialize)]
pub struct Answered {
    /// What it is called.
    pub query: &'static str,
    /// How long it took.
    pub elapsed_s: f64,
}

/// One window of a run.
#[derive(Clone, Debug, Serialize)]
pub struct ErpWindow {
    /// When it ended.
    pub t_s: f64,
    /// Queries answered in it.
    pub queries: u64,
    /// Traffic of the home device.
    pub home: Traffic,
    /// Traffic of the flash device.
    pub flash: Traffic,
}

/// What is run: a design, where the indexes are, and how many streams.
type Wanted = (Design, Indexes, u32);

/// Runs the bench.
///
/// # Errors
///
/// Options that make no sense; whatever stops the engine; a wrong answer.
pub fn erp(mut options: Box<Erp>, recording: &RecordOptions) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    system::combine(&mut options.design, &options.tier)?;
    let options = &*options;
    let (mut system, wanted) = (system_of(options)?, wanted(options)?);
    let all: Vec<Design> = wanted.iter().map(|(design, ..)| *design).collect();
    check_sizes(&system, &options.tier, &all)?;
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let recorder = Recorder::begin(recording, wanted.len(), &mut system.recording)?;
    let _watched = Interrupt::watch()?;
    let bars = Bars::new();
    let loading = Stopwatch::start();
    let config = Config { seed: options.seed, facts: options.facts };
    let loaded = load_shown(&config, &system, &bars)?;
    let load_wall_s = loading.seconds();
    set_sizes(&mut system, &options.tier, &all, loaded.home_pages)?;
    if options.indexes_on_flash {
        system.flash_pages = slots(options, loaded.home_pages)?;
    }
    let side_by_side = jobs(options.jobs, wanted.len()) as usize;
    let mut runs = side_by_side::each(wanted.len(), side_by_side, |at| {
        run_shown(&loaded, options, &system, wanted[at], &bars)
    })?;
    bars.clear();
    compare(&mut runs);
    let bench = Bench {
        command: "bench erp",
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

/// The pages of flash that are asked for, also where no design uses any.
fn slots(options: &Erp, database_pages: u64) -> Result<u32, Failure> {
    let slots = options.tier.flash.pages(database_pages);
    slots.try_into().map_err(|_| Failure::usage("--flash is too large"))
}

/// All runs: for each number of streams every design.
fn wanted(options: &Erp) -> Result<Vec<Wanted>, Failure> {
    let mut designs: Vec<(Design, Indexes)> =
        options.design.0.iter().map(|design| (*design, Indexes::AtHome)).collect();
    if options.indexes_on_flash {
        let no_ssd = designs::find("no-ssd").map_err(|error| Failure::usage(error.to_string()))?;
        designs.push((no_ssd, Indexes::OnFlash));
    }
    let each = |streams: u32| designs.iter().map(move |(design, at)| (*design, *at, streams));
    Ok(options.streams.iter().flat_map(|streams| each(*streams)).collect())
}

fn system_of(options: &Erp) -> Result<System, Failure> {
    positive("--window", options.window.0)?;
    refuse(&options.design.0, &[Restart::forget()], &options.tier)?;
    modelled(&options.models, &options.tier)
}

fn load_shown(config: &Config, system: &System, bars: &Bars) -> Result<Loaded, Failure> {
    let bar = bars.add("load".into(), 1);
    let loaded = load(config, system, &mut |entries, total| {
        bar.set_length(total);
        bar.set_position(entries);
        bar.set_message(format!("{} entries", thousands(entries as f64)));
    })
    .map_err(|error| Failure::of("cannot load the database", &error))?;
    bar.finish_and_clear();
    Ok(loaded)
}

fn run_shown(
    loaded: &Loaded,
    options: &Erp,
    system: &System,
    (design, indexes, streams): Wanted,
    bars: &Bars,
) -> Result<ErpRun, Failure> {
    const STEPS: u64 = 1000;
    let watch = Stopwatch::start();
    let plan = Plan {
        system: system.clone(),
        seed: options.seed,
        streams,
        window: Nanos::from_secs_f64(options.window.0),
        indexes,
        fetch: match options.fetch {
            FetchName::Index => Fetch::ByIndex,
            FetchName::Number => Fetch::ByNumber,
        },
    };
    let name = format!("{} x {streams}", design.name);
    let bar = bars.add(name.clone(), STEPS);
    let result = run(loaded, &plan, design, &mut |passed, share| {
        bar.set_position((share * STEPS as f64) as u64);
        bar.set_message(format!("{:.0} s", passed.as_secs_f64()));
    });
    let result = result.map_err(|error| Failure::of(name, &error))?;
    bar.finish_and_clear();
    Ok(run_of(&result, indexes, watch.seconds()))
}

/// Gives each run its speedup over no-ssd with the same number of streams.
fn compare(runs: &mut [ErpRun]) {
    let is_base = |run: &&ErpRun| run.design == "no-ssd" && !run.indexes_on_flash;
    let bases: Vec<(usize, f64)> =
        runs.iter().filter(is_base).map(|run| (run.streams, run.elapsed_s)).collect();
    for run in runs {
        let base = bases.iter().find(|(streams, _)| *streams == run.streams);
        run.speedup = base.map(|(_, elapsed_s)| rounded(ratio(*elapsed_s, run.elapsed_s)));
    }
}

fn run_of(result: &ErpResult, indexes: Indexes, wall_s: f64) -> ErpRun {
    let seconds = |span: Nanos| rounded(span.as_secs_f64());
    let each = result.streams.iter().map(|stream| QueryStream {
        elapsed_s: seconds(stream.elapsed),
        queries: stream
            .queries
            .iter()
            .map(|(at, span)| Answered { query: QUERIES[*at].name, elapsed_s: seconds(*span) })
            .collect(),
    });
    let pool = &result.whole.pool;
    let read = pool.flash_reads as f64;
    ErpRun {
        design: result.design,
        indexes_on_flash: indexes == Indexes::OnFlash,
        streams: result.streams.len(),
        elapsed_s: seconds(result.elapsed()),
        speedup: None,
        each: each.collect(),
        memory: memory(&result.whole),
        flash: flash(&result.whole),
        flash_hit_ratio_last_quarter: rounded(result.last_quarter.flash_hit_ratio),
        flash_read_share: rounded(ratio(read, read + pool.home_read_pages as f64)),
        flash_writes_per_s: result.flash_writes_per_s().map(rounded),
        devices: devices(&result.whole),
        touched_pages: result.touched_pages,
        fetched_of_tables: result.fetches.of_tables,
        fetched_of_indexes: result.fetches.of_indexes,
        placed_pages: result.placed_pages,
        windows: windows(result),
        checks: Checks { consistency: result.consistency.summary().to_string() },
        host: RunHost { wall_s, events_per_s: None },
    }
}

fn windows(result: &ErpResult) -> Vec<ErpWindow> {
    let (mut before, mut start_s) = (DeviceSample::default(), 0.0);
    let shown = result.windows.iter().map(|window| {
        let (end_s, used) = (window.end.as_secs_f64(), window.devices.since(before));
        let span_s = end_s - start_s;
        (before, start_s) = (window.devices, end_s);
        ErpWindow {
            t_s: rounded(end_s),
            queries: window.counted,
            home: traffic(used.home, span_s),
            flash: traffic(used.flash, span_s),
        }
    });
    shown.collect()
}

fn parameters(options: &Erp, system: &System, loaded: &Loaded) -> Map<String, Value> {
    let names: Vec<&str> = options.design.0.iter().map(|design| design.name).collect();
    let mut all = object(json!({
        "design": names,
        "indexes_on_flash": options.indexes_on_flash,
        "facts": options.facts,
        "streams": options.streams,
        "fetch": word(options.fetch),
        "window_s": options.window.0,
        "database_pages": loaded.home_pages,
        "index_pages": loaded.index_pages,
    }));
    all.extend(place_parameters(system));
    all.extend(tier_parameters(system, &options.tier));
    all
}

fn shown(bench: &Bench<ErpRun>, options: &Erp, loaded: &Loaded) -> String {
    let mut table = Table::new([
        "streams",
        "design",
        "slowest s",
        "fastest s",
        "speedup",
        "mem hit",
        "flash hit",
        "last quarter",
        "of reads",
        "writes/s first, last",
        "used",
        "home busy",
        "flash busy",
        "answers",
    ]);
    for run in &bench.runs {
        let of_flash = |cell: String| if run.flash.slots == 0 { "-".into() } else { cell };
        let fastest = run.each.iter().map(|stream| stream.elapsed_s).fold(f64::INFINITY, f64::min);
        let [first, last] = run.flash_writes_per_s.map(thousands);
        let placed = if run.indexes_on_flash { ", indexes on flash" } else { "" };
        table.row([
            run.streams.to_string(),
            format!("{}{placed}", run.design),
            format!("{:.1}", run.elapsed_s),
            format!("{fastest:.1}"),
            run.speedup.map_or("-".into(), |speedup| format!("{speedup:.2}x")),
            percent(run.memory.hit_ratio),
            of_flash(percent(run.flash.hit_ratio)),
            of_flash(percent(run.flash_hit_ratio_last_quarter)),
            of_flash(percent(run.flash_read_share)),
            of_flash(format!("{first}, {last}")),
            of_flash(percent(run.flash.used_share)),
            percent(run.devices.home.utilisation),
            of_flash(percent(run.devices.flash.utilisation)),
            if run.checks.is_broken() { "WRONG".into() } else { "right".into() },
        ]);
    }
    let touched = bench.runs.iter().map(|run| run.touched_pages).max().unwrap_or_default();
    format!(
        "ERP star, {} facts, {} pages of which {} of indexes, {} asked for ({}), seed {}; memory \
         {}, flash {} on {}, home {}\n\n{}\n{:.1} s, of which load {:.1} s\n",
        thousands(f64::from(options.facts)),
        thousands(loaded.home_pages as f64),
        thousands(loaded.index_pages as f64),
        thousands(touched as f64),
        percent(ratio(touched as f64, loaded.home_pages as f64)),
        bench.seed,
        options.tier.dram,
        options.tier.flash,
        options.models.flash_device,
        options.models.home,
        table.text(),
        bench.host.wall_s,
        bench.host.load_wall_s,
    )
}
