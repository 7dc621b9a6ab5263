//! `terrace bench restart`: the peak-to-peak interval of each pair of design and restart.
//!
//! Every run starts from the same loaded database, in virtual worlds of its own; runs go side by
//! side. With several seeds, each seed has a database of its own.

mod results;
mod run_of;
mod settings;
mod shown;

pub use results::{RestartRun, RestartWindow};

use crate::bench::system;
use crate::command::{RecordOptions, RestartBench};
use crate::failure::Failure;
use crate::interrupt::{self, Interrupt};
use crate::output::{Sink, Sinks, Stopwatch, report_sink};
use crate::progress::Bars;
use crate::report;
use crate::results::{Bench, Host};
use crate::side_by_side;
use crate::table::thousands;
use crate::trace::Recorder;
use indicatif::ProgressBar;
use results::combine;
use terrace_policy::{Design, Restart};
use terrace_workload::Workload;
use terrace_workload::restart::{Loaded, Phase, Plan, Progress, load, run};

#[cfg(test)]
pub use results::tests;

/// Runs the bench.
///
/// # Errors
///
/// Options that make no sense; whatever stops the engine; a database that breaks a condition.
pub fn restart(mut options: Box<RestartBench>, recording: &RecordOptions) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    system::combine(&mut options.design, &options.tier)?;
    let options = &*options;
    let mut plan = settings::plan(options)?;
    settings::check_sizes(&plan, options)?;
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let report = report_sink(options.report.as_deref(), options.no_report)?;
    let pairs = settings::pairs(options)?;
    let runs = pairs.len() * options.seeds as usize;
    let recorder = Recorder::begin(recording, runs, &mut plan.system.recording)?;

    let _watched = Interrupt::watch()?;
    let bars = Bars::new();
    let (mut load_wall_s, mut by_seed, mut parameters) = (0.0, Vec::new(), None);
    for seed in options.seed..options.seed.saturating_add(options.seeds) {
        let mut plan = Plan { seed, ..plan.clone() };
        let workload = settings::workload(options, seed);
        let watch = Stopwatch::start();
        let loaded = load_shown(&*workload, &plan, &bars)?;
        load_wall_s += watch.seconds();
        let designs = &options.design.0;
        system::set_sizes(&mut plan.system, &options.tier, designs, loaded.home_pages)?;
        parameters.get_or_insert_with(|| settings::parameters(&plan, options));
        by_seed.push(run_all(options, (&plan, &pairs), &*workload, &loaded, &bars)?);
        if interrupt::is_asked() {
            break;
        }
    }
    bars.clear();
    system::only_whole(&mut by_seed);

    let bench = Bench {
        command: "bench restart",
        version: env!("CARGO_PKG_VERSION"),
        seed: options.seed,
        parameters: parameters.expect("at least one seed"),
        host: Host::of(&watch, load_wall_s),
        runs: combine(by_seed),
        pairs: Vec::new(),
    };
    sinks.show(&shown::text(&bench, options.workload));
    Recorder::end(recorder, &sinks)?;
    sinks.write(&bench)?;
    if let Some(sink) = report {
        sink.write(&report::restart_page(&bench, &system::repeat("restart", options.seed)))?;
        if let Sink::File(path) = sink {
            sinks.show(&format!("report: {}\n", path.display()));
        }
    }
    broken(&bench)?;
    interrupt::whole()
}

fn load_shown(workload: &dyn Workload, plan: &Plan, bars: &Bars) -> Result<Loaded, Failure> {
    let bar = bars.add("load".into(), 1);
    let loaded = load(workload, &plan.system, plan.seed, &mut |rows, total| {
        bar.set_length(total);
        bar.set_position(rows);
        bar.set_message(format!("{} rows", thousands(rows as f64)));
    })
    .map_err(|error| Failure::of("cannot load the database", &error))?;
    bar.finish_and_clear();
    Ok(loaded)
}

fn run_all(
    options: &RestartBench,
    (plan, pairs): (&Plan, &[(Design, Restart)]),
    workload: &dyn Workload,
    loaded: &Loaded,
    bars: &Bars,
) -> Result<Vec<RestartRun>, Failure> {
    let jobs = system::jobs(options.jobs, pairs.len()) as usize;
    side_by_side::each(pairs.len(), jobs, |at| {
        let (design, restart) = pairs[at];
        let plan = settings::with_restart(plan, restart);
        let watch = Stopwatch::start();
        let bar = bars.add(format!("{} {}", design.name, restart.name), 1);
        let result = run(loaded, workload, &plan, design, &mut |progress| show(&bar, progress));
        let result = result.map_err(|error| {
            Failure::of(format!("{} with {}", design.name, restart.name), &error)
        })?;
        bar.finish_and_clear();
        Ok(run_of::run_of(&result, (options.workload, options.event), watch.seconds()))
    })
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.total.0);
    bar.set_position(progress.done.0.min(progress.total.0));
    bar.set_message(match progress.phase {
        Phase::Down => "down".into(),
        Phase::Peak | Phase::Back => format!("{}/s", thousands(progress.counted_per_s)),
    });
}

fn broken(bench: &Bench<RestartRun>) -> Result<(), Failure> {
    match bench.runs.iter().find(|run| run.checks.is_broken()) {
        None => Ok(()),
        Some(run) => Err(Failure::failed(
            format!("{} with {} broke a condition", run.design, run.restart),
            &run.checks.consistency,
        )),
    }
}
