//! `terrace bench steady`: another workload than TPC-C on each design, from a cold start.
//!
//! Every run starts from the same loaded database, in a virtual world of its own; runs go side by
//! side.

use crate::bench::run_of::{devices, flash, memory};
use crate::bench::system::{
    self, charged, check_windows, jobs, modelled, object, place_parameters, positive, refuse,
    tier_parameters, word,
};
use crate::command::{RecordOptions, Steady, SteadyWorkload};
use crate::failure::Failure;
use crate::interrupt::{self, Interrupt};
use crate::interval::rounded;
use crate::output::{Sinks, Stopwatch};
use crate::progress::Bars;
use crate::results::{Bench, Checks, Devices, Flash, Host, Memory, RunHost};
use crate::side_by_side;
use crate::table::{Table, percent, thousands};
use crate::trace::Recorder;
use serde::Serialize;
use serde_json::json;
use terrace_policy::Restart;
use terrace_rt::Nanos;
use terrace_workload::sampling::per_second;
use terrace_workload::steady::{Plan, SteadyResult, run};
use terrace_workload::{Workload, brokerage, restart};

/// One design's run.
#[derive(Clone, Debug, Serialize)]
pub struct SteadyRun {
    /// Name of the design.
    pub design: &'static str,
    /// Transactions per second, over the averaged part.
    pub transactions_per_s: f64,
    /// That over `no-ssd`'s, if it ran.
    pub speedup: Option<f64>,
    /// Length of the averaged part.
    pub averaged_s: f64,
    /// Memory.
    pub memory: Memory,
    /// The flash tier; zeroes if there is none.
    pub flash: Flash,
    /// The devices.
    pub devices: Devices,
    /// Throughput over time.
    pub windows: Vec<SteadyWindow>,
    /// What was checked.
    pub checks: Checks,
    /// What depends on the machine.
    pub host: RunHost,
}

/// One window of a run.
#[derive(Clone, Debug, Serialize)]
pub struct SteadyWindow {
    /// When it ended.
    pub t_s: f64,
    /// Transactions per second in it.
    pub transactions_per_s: f64,
    /// What a design that picks itself had picked at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<String>,
}

/// Runs the bench.
///
/// # Errors
///
/// Options that make no sense; whatever stops the engine; a database that breaks a condition.
pub fn steady(mut options: Box<Steady>, recording: &RecordOptions) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    system::combine(&mut options.design, &options.tier)?;
    let options = &*options;
    let mut plan = plan(options)?;
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let designs = &options.design.0;
    let recorder = Recorder::begin(recording, designs.len(), &mut plan.system.recording)?;
    let workload = workload(options);
    let _watched = Interrupt::watch()?;
    let bars = Bars::new();
    let loading = Stopwatch::start();
    let loaded = restart::load(&workload, &plan.system, plan.seed, &mut |_, _| {})
        .map_err(|error| Failure::of("cannot load the database", &error))?;
    let load_wall_s = loading.seconds();
    system::set_sizes(&mut plan.system, &options.tier, designs, loaded.home_pages)?;
    system::check_sizes(&plan.system, &options.tier, designs)?;
    let side_by_side = jobs(options.jobs, designs.len()) as usize;
    let mut runs = side_by_side::each(designs.len(), side_by_side, |at| {
        let (watch, design) = (Stopwatch::start(), designs[at]);
        let bar = bars.add(design.name.into(), plan.duration.0);
        let result = run(&loaded, &workload, &plan, design, &mut |done, per_s| {
            bar.set_position(done.0);
            bar.set_message(format!("{}/s", thousands(per_s)));
        });
        let result = result.map_err(|error| Failure::of(design.name, &error))?;
        bar.finish_and_clear();
        Ok(run_of(&result, watch.seconds()))
    })?;
    bars.clear();
    let base = runs.iter().find(|run: &&SteadyRun| run.design == "no-ssd");
    if let Some(base) = base.map(|run| run.transactions_per_s) {
        runs.iter_mut().for_each(|run| run.speedup = Some(rounded(run.transactions_per_s / base)));
    }
    let bench = Bench {
        command: "bench steady",
        version: env!("CARGO_PKG_VERSION"),
        seed: options.seed,
        parameters: parameters(options, &plan),
        host: Host::of(&watch, load_wall_s),
        runs,
        pairs: Vec::new(),
    };
    sinks.show(&shown(&bench, options));
    Recorder::end(recorder, &sinks)?;
    sinks.write(&bench)?;
    match bench.runs.iter().find(|run| run.checks.is_broken()) {
        None => interrupt::whole(),
        Some(run) => Err(Failure::failed(
            format!("{} broke a condition", run.design),
            &run.checks.consistency,
        )),
    }
}

fn plan(options: &Steady) -> Result<Plan, Failure> {
    positive("--duration", options.duration.0)?;
    positive("--window", options.window.0)?;
    positive("--averaged", options.averaged.0)?;
    positive("--shift-every", options.shift_every.0)?;
    check_windows("--duration", options.duration.0, options.window.0)?;
    refuse(&options.design.0, &[Restart::forget()], &options.tier)?;
    let nanos = |span: f64| Nanos::from_secs_f64(span);
    Ok(Plan {
        system: modelled(&options.models, &options.tier)?,
        seed: options.seed,
        duration: nanos(options.duration.0),
        window: nanos(options.window.0),
        averaged: nanos(options.duration.0 * options.averaged.0),
    })
}

fn workload(options: &Steady) -> impl Workload + use<> {
    let is = |workload: SteadyWorkload| options.workload == workload;
    brokerage::Config {
        seed: options.seed,
        customers: options.brokerage.customers,
        clients: options.clients,
        scanners: if is(SteadyWorkload::Scans) { options.scanners } else { 0 },
        shift_every: is(SteadyWorkload::Shifting)
            .then(|| Nanos::from_secs_f64(options.shift_every.0)),
        checks: !options.no_check,
        ..brokerage::Config::default()
    }
}

fn run_of(result: &SteadyResult, wall_s: f64) -> SteadyRun {
    let averages = &result.averages;
    let mut before = Nanos::ZERO;
    let windows = result.windows.iter().map(|window| {
        let span = window.end.saturating_sub(before);
        before = window.end;
        SteadyWindow {
            t_s: rounded(window.end.as_secs_f64()),
            transactions_per_s: rounded(per_second(window.transactions, span)),
            choice: window.pool.choice.map(|choice| choice.title()),
        }
    });
    SteadyRun {
        design: result.design,
        transactions_per_s: rounded(averages.transactions_per_s),
        speedup: None,
        averaged_s: rounded(averages.span.as_secs_f64()),
        memory: memory(averages),
        flash: flash(averages),
        devices: devices(averages),
        windows: windows.collect(),
        checks: Checks { consistency: result.consistency.summary().to_string() },
        host: RunHost { wall_s, events_per_s: None },
    }
}

fn parameters(options: &Steady, plan: &Plan) -> serde_json::Map<String, serde_json::Value> {
    let names: Vec<&str> = options.design.0.iter().map(|design| design.name).collect();
    let mut all = object(json!({
        "design": names,
        "workload": word(options.workload),
        "customers": options.brokerage.customers,
        "clients": options.clients,
        "scanners": options.scanners,
        "shift_every_s": options.shift_every.0,
        "duration_s": options.duration.0,
        "window_s": options.window.0,
        "averaged": options.averaged.0,
    }));
    all.extend(place_parameters(&plan.system));
    all.extend(tier_parameters(&plan.system, &options.tier));
    all
}

fn shown(bench: &Bench<SteadyRun>, options: &Steady) -> String {
    let mut table = Table::new([
        "design",
        "tx/s",
        "speedup",
        "mem hit",
        "flash hit",
        "of it dirty",
        "used",
        "dirty",
        "home busy",
        "flash busy",
        "log busy",
        "B/slot",
        "checks",
    ]);
    for run in &bench.runs {
        let of_flash = |cell: String| if run.flash.slots == 0 { "-".into() } else { cell };
        table.row([
            run.design.into(),
            thousands(run.transactions_per_s),
            run.speedup.map_or("-".into(), |speedup| format!("{speedup:.2}x")),
            percent(run.memory.hit_ratio),
            of_flash(percent(run.flash.hit_ratio)),
            of_flash(percent(run.flash.dirty_hit_share)),
            of_flash(percent(run.flash.used_share)),
            of_flash(percent(run.flash.dirty_share)),
            percent(run.devices.home.utilisation),
            of_flash(percent(run.devices.flash.utilisation)),
            percent(run.devices.log.utilisation),
            of_flash(thousands(run.flash.metadata_bytes_per_slot as f64)),
            if run.checks.is_broken() { "BROKEN".into() } else { run.checks.consistency.clone() },
        ]);
    }
    let what = word(options.workload);
    format!(
        "{what}, {} customers, {} clients, {} s of which the last {} averaged, seed {}; memory \
         {}{}, flash {} on {}, home {}\n\n{}\n{:.1} s, of which load {:.1} s\n",
        options.brokerage.customers,
        options.clients,
        options.duration.0,
        options.averaged,
        bench.seed,
        options.tier.dram,
        charged(&word(options.tier.charge_metadata)),
        options.tier.flash,
        options.models.flash_device,
        options.models.home,
        table.text(),
        bench.host.wall_s,
        bench.host.load_wall_s,
    )
}
