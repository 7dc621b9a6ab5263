//! `terrace bench tpcc`: loads a database once, runs each design on it, and shows what came out.
//!
//! Every run starts from the same loaded database, in a world of its own; in the virtual world runs
//! go side by side. With several seeds, each seed has a database of its own.

use crate::bench::run_of::run_of;
use crate::bench::{page_rates, settings, system};
use crate::command::{RecordOptions, Tpcc};
use crate::failure::Failure;
use crate::interrupt::{self, Interrupt};
use crate::interval::Interval;
use crate::output::{Sink, Sinks, Stopwatch, report_sink};
use crate::progress::Bars;
use crate::report;
use crate::results::{Bench, Host, Run, combine};
use crate::side_by_side;
use crate::table::{Table, percent, thousands};
use crate::trace::Recorder;
use terrace_policy::Design;
use terrace_workload::Place;
use terrace_workload::tpcc::{Config, Loaded, load, run};

/// Runs the bench.
///
/// # Errors
///
/// Options that make no sense; whatever stops the engine; a database that breaks a condition.
pub fn tpcc(mut options: Box<Tpcc>, recording: &RecordOptions) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    settings::leave_out(&mut options);
    system::combine(&mut options.design, &options.tier)?;
    let options = &*options;
    let mut config = settings::config(options)?;
    settings::check_sizes(&config, options)?;
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let report = report_sink(options.report.as_deref(), options.no_report)?;
    let runs = (&options.design.0[..], options.seeds);
    let count = runs.0.len() * runs.1 as usize;
    let recorder = Recorder::begin(recording, count, &mut config.system.recording)?;
    let rates = page_rates::begin(options.page_rates, runs, &mut config.system)?;

    let _watched = Interrupt::watch()?;
    let bars = Bars::new();
    let mut load_wall_s = 0.0;
    let mut by_seed = Vec::new();
    let mut parameters = None;
    for seed in options.seed..options.seed.saturating_add(options.seeds) {
        let mut config = Config { seed, ..config.clone() };
        let watch = Stopwatch::start();
        let loaded = load_shown(&config, &bars)?;
        load_wall_s += watch.seconds();
        let (tier, designs) = (&options.tier, &options.design.0);
        system::set_sizes(&mut config.system, tier, designs, loaded.home_pages)?;
        parameters.get_or_insert_with(|| settings::parameters(&config, options));
        by_seed.push(run_all(options, &config, &loaded, &bars)?);
        if interrupt::is_asked() {
            break;
        }
    }
    bars.clear();
    system::only_whole(&mut by_seed);

    let (mut runs, pairs) = combine(by_seed);
    if let Some(rates) = &rates {
        runs[0].page_rates = Some(page_rates::shown(&rates.rates()));
    }
    let bench = Bench {
        command: "bench tpcc",
        version: env!("CARGO_PKG_VERSION"),
        seed: options.seed,
        parameters: parameters.expect("at least one seed"),
        host: Host::of(&watch, load_wall_s),
        runs,
        pairs,
    };
    sinks.show(&shown(&bench, config.system.tier.lambda));
    if let Some(rates) = &bench.runs[0].page_rates {
        sinks.show(&page_rates::text(rates));
    }
    Recorder::end(recorder, &sinks)?;
    sinks.write(&bench)?;
    if let Some(sink) = report {
        sink.write(&report::page(&bench, &system::repeat("tpcc", options.seed)))?;
        if let Sink::File(path) = sink {
            sinks.show(&format!("report: {}\n", path.display()));
        }
    }
    broken(&bench)?;
    interrupt::whole()
}

fn load_shown(config: &Config, bars: &Bars) -> Result<Loaded, Failure> {
    let bar = bars.add("load".into(), 1);
    let loaded = load(config, &mut |rows, total| {
        bar.set_length(total);
        bar.set_position(rows);
        bar.set_message(format!("{} rows", thousands(rows as f64)));
    })
    .map_err(|error| {
        let at = match &config.system.place {
            Place::Virtual { .. } => String::new(),
            Place::Real { home, .. } => format!(" at {}", home.display()),
        };
        Failure::of(format!("cannot load the database{at}"), &error)
    })?;
    bar.finish_and_clear();
    Ok(loaded)
}

fn run_all(
    options: &Tpcc,
    config: &Config,
    loaded: &Loaded,
    bars: &Bars,
) -> Result<Vec<Run>, Failure> {
    let designs = &options.design.0;
    let jobs = settings::jobs(options) as usize;
    side_by_side::each(designs.len(), jobs, |at| run_shown(loaded, config, designs[at], bars))
}

fn run_shown(
    loaded: &Loaded,
    config: &Config,
    design: Design,
    bars: &Bars,
) -> Result<Run, Failure> {
    let watch = Stopwatch::start();
    let bar = bars.add(design.name.into(), config.duration.0);
    let result = run(loaded, config, design, &mut |progress| {
        bar.set_position(progress.done.0);
        bar.set_message(format!("{} tpmC", thousands(progress.tpmc)));
    })
    .map_err(|error| Failure::of(format!("the run of {}", design.name), &error))?;
    bar.finish_and_clear();
    Ok(run_of(&result, watch.seconds()))
}

/// The table, and what is assumed.
fn shown(bench: &Bench, lambda: f64) -> String {
    let text = |name: &str| match bench.parameters.get(name) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    let mut out = format!(
        "TPC-C, {} warehouses, {} clients, {} s, {} world, seed {}; memory {}{}, flash {} on {}, \
         home {}, log {}; cold start, checkpoints {}\n\n",
        text("warehouses"),
        text("clients"),
        text("duration_s"),
        text("world"),
        bench.seed,
        text("dram"),
        system::charged(&text("charge_metadata")),
        text("flash"),
        text("flash_device"),
        text("home"),
        text("log_device"),
        if text("checkpoint_s") == "null" { "off".into() } else { text("checkpoint_s") + " s" },
    );
    out.push_str(&figures(bench).text());
    for run in bench.runs.iter().filter(|run| run.design == "lc") {
        let dirty = run.figure("flash.dirty_share").unwrap_or_default();
        out.push_str(&format!("\n{}", settings::lambda_line(lambda, dirty)));
    }
    if !bench.pairs.is_empty() {
        let mut table = Table::new(["pair", "mean", "low", "high"]);
        for pair in &bench.pairs {
            let [mean, low, high] = [pair.mean, pair.low, pair.high].map(|n| format!("{n:.2}"));
            table.row([format!("{}/{}", pair.design, pair.over), mean, low, high]);
        }
        out.push_str(&format!("\n95% intervals of the ratios of tpmC\n{}", table.text()));
    }
    out.push_str(&format!(
        "\n{:.1} s, of which load {:.1} s; peak memory {:.2} GiB\n",
        bench.host.wall_s,
        bench.host.load_wall_s,
        bench.host.peak_memory_bytes as f64 / f64::from(1 << 30),
    ));
    out
}

/// How far the mean throughput may be off, as a share of it: a 95% interval by the windows that it
/// is averaged over, as if they were independent; none of fewer than three.
fn noise(run: &Run) -> Option<f64> {
    const WINDOWS_MIN: usize = 3;
    let end = run.windows.last()?.t_s;
    let averaged = run.windows.iter().filter(|it| it.t_s > end - run.figures.averaged_s + 1e-9);
    let rates: Vec<f64> = averaged.map(|window| window.tpmc).collect();
    if rates.len() < WINDOWS_MIN {
        return None;
    }
    let interval = Interval::of(&rates);
    (interval.mean > 0.0).then(|| (interval.high - interval.mean) / interval.mean)
}

fn figures(bench: &Bench) -> Table {
    let mut table = Table::new([
        "design",
        "tpmC",
        "noise",
        "speedup",
        "p50",
        "p99",
        "mem hit",
        "flash hit",
        "of it dirty",
        "used",
        "dirty",
        "invalid",
        "home busy",
        "flash busy",
        "log busy",
        "B/slot",
        "checks",
    ]);
    for run in &bench.runs {
        let cell = |path: &str, format: fn(f64) -> String| {
            let absent = run.figures.flash.slots == 0 && path.contains("flash");
            run.figure(path).filter(|_| !absent).map_or("-".into(), format)
        };
        table.row([
            run.design.into(),
            cell("tpmc", thousands),
            noise(run).map_or("-".into(), |share| format!("±{}", percent(share))),
            cell("speedup", |speedup| format!("{speedup:.2}x")),
            cell("transactions.new_order.p50_ms", |ms| format!("{ms:.1} ms")),
            cell("transactions.new_order.p99_ms", |ms| format!("{ms:.1} ms")),
            cell("memory.hit_ratio", percent),
            cell("flash.hit_ratio", percent),
            cell("flash.dirty_hit_share", percent),
            cell("flash.used_share", percent),
            cell("flash.dirty_share", percent),
            cell("flash.invalid_share", percent),
            cell("devices.home.utilisation", percent),
            cell("devices.flash.utilisation", percent),
            cell("devices.log.utilisation", percent),
            cell("flash.metadata_bytes_per_slot", thousands),
            if run.checks.is_broken() { "BROKEN".into() } else { run.checks.consistency.clone() },
        ]);
    }
    table
}

fn broken(bench: &Bench) -> Result<(), Failure> {
    match bench.runs.iter().find(|run| run.checks.is_broken()) {
        None => Ok(()),
        Some(run) => Err(Failure::failed(
            format!("{} broke a consistency condition", run.design),
            &run.checks.consistency,
        )),
    }
}
