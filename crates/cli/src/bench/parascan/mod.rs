//! `terrace bench parascan`: scans, joins and aggregates with a task for each domain of a drive, as
//! the paper measured them; of a file in real time; what their steps cost.
//!
//! `figures` sets what was measured beside what was published; `shown` makes the tables; `file`
//! and `steps` are the parts in real time.

mod figures;
mod file;
mod shown;
mod steps;

use crate::bench::figure::Figure;
use crate::bench::system;
use crate::command::ParascanBench;
use crate::failure::Failure;
use crate::output::{Sink, Sinks, Stopwatch};
use crate::progress::Bars;
use crate::report::tables_page;
use crate::results::Host;
use crate::side_by_side;
use crate::table::titled;
use serde_json::{Map, Value, json};
use terrace_operators::trials::figures::{
    Drive, JOIN_THREADS, JoinRow, MEMORY_MIB, Method, Room, ScanRow, Scans, Trial,
};
use terrace_operators::{COSTS, Error};

/// Bytes of the machine for a job at the paper's sizes: what a join writes, and a drive's map.
const BYTES_MAX: u64 = 6 << 30;

/// What was measured on a drive.
pub struct OnDrive {
    drive: Drive,
    scans: Scans,
    aggregates: Vec<ScanRow>,
}

/// All that was measured.
pub struct Results {
    divisor: u64,
    drives: Vec<OnDrive>,
    /// Of the first drive.
    joins: Vec<JoinRow>,
    /// Memory in which each method takes one pass.
    one_pass: Vec<(Method, u64)>,
}

enum Piece {
    Drive(Box<OnDrive>),
    Join(JoinRow),
    OnePass(Method, u64),
}

/// What there is to measure.
#[derive(Clone, Copy)]
enum Job {
    /// Scans and aggregates, on the drive of that number.
    Drive(usize),
    Join(Method, u64, Room),
    OnePass(Method),
}

/// Runs it.
///
/// # Errors
///
/// Too little memory; whatever stops an operator.
pub fn parascan(options: &ParascanBench) -> Result<(), Failure> {
    if let Some(path) = &options.file {
        return file::file(path, options);
    }
    if options.steps {
        return steps::steps(options);
    }
    let watch = Stopwatch::start();
    let divisor = if options.full { 1 } else { options.divisor };
    let jobs = jobs(options);
    let threads = system::jobs(options.jobs, jobs.len());
    system::fits("--divisor: what is joined", BYTES_MAX / divisor * threads)?;
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let report = options.report.as_deref().map(Sink::open).transpose()?;
    let results = measured(options, divisor, &jobs, threads)?;
    let judged = figures::all(&results);
    let parameters = parameters(options, divisor);
    let tables = shown::tables(&results, &judged);
    sinks.show(&titled(&tables));
    if let Some(sink) = report {
        let page = (
            "bench parascan",
            "Scans, joins and aggregates on the inside of a flash drive",
            "ParaScan, ParaHashJoin and ParaAggr on modelled drives, in virtual time.",
        );
        sink.write(&tables_page(page, options.seed, &parameters, &tables))?;
    }
    sinks.write(&json!({
        "command": "bench parascan",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": options.seed,
        "parameters": parameters,
        "host": Host::of(&watch, 0.0),
        "runs": shown::runs(&results),
        "figures": judged.iter().map(Figure::json).collect::<Vec<_>>(),
    }))
}

fn jobs(options: &ParascanBench) -> Vec<Job> {
    let mut jobs: Vec<Job> = (0..options.drives.len()).map(Job::Drive).collect();
    let methods = || Method::ALL.into_iter();
    let join = |room| move |method| MEMORY_MIB.map(|mib| Job::Join(method, mib, room));
    jobs.extend(methods().flat_map(join(Room::Drive)));
    jobs.extend(methods().flat_map(join(Room::PageCache)));
    jobs.extend([Method::Para, Method::New].map(Job::OnePass));
    jobs
}

fn measured(
    options: &ParascanBench,
    divisor: u64,
    jobs: &[Job],
    threads: u64,
) -> Result<Results, Failure> {
    let bars = Bars::new();
    let bar = bars.add("measurements".into(), jobs.len() as u64);
    let piece = |at: usize| {
        let drive = match jobs[at] {
            Job::Drive(number) => options.drives[number].clone(),
            Job::Join(..) | Job::OnePass(_) => options.drives[0].clone(),
        };
        let name = drive.name.clone();
        let piece = run(jobs[at], &Trial { drive, divisor, seed: options.seed });
        bar.inc(1);
        piece.map_err(|error| Failure::failed(format!("bench parascan on {name}"), error))
    };
    let done = side_by_side::each(jobs.len(), threads as usize, piece);
    bars.clear();
    let mut results =
        Results { divisor, drives: Vec::new(), joins: Vec::new(), one_pass: Vec::new() };
    for piece in done? {
        match piece {
            Piece::Drive(on_drive) => results.drives.push(*on_drive),
            Piece::Join(row) => results.joins.push(row),
            Piece::OnePass(method, bytes) => results.one_pass.push((method, bytes)),
        }
    }
    Ok(results)
}

fn run(job: Job, trial: &Trial) -> Result<Piece, Error> {
    Ok(match job {
        Job::Drive(_) => Piece::Drive(Box::new(OnDrive {
            drive: trial.drive.clone(),
            scans: trial.scans()?,
            aggregates: trial.aggregates()?,
        })),
        Job::Join(method, mib, room) => Piece::Join(trial.join(method, mib, room)?),
        Job::OnePass(method) => Piece::OnePass(method, trial.one_pass(method)?),
    })
}

fn parameters(options: &ParascanBench, divisor: u64) -> Map<String, Value> {
    let names: Vec<&str> = options.drives.iter().map(|drive| drive.name.as_str()).collect();
    let costs: Map<String, Value> =
        COSTS.iter().map(|cost| (cost.name.to_string(), json!(cost.ns))).collect();
    let all = json!({
        "drives": names,
        "divisor": divisor,
        "join_threads": JOIN_THREADS,
        "cpu_ns": costs,
        "world": "virtual",
    });
    match all {
        Value::Object(map) => map,
        _ => unreachable!("an object was made"),
    }
}
