//! `terrace bench reads | updates | scan`: the engine's own speed, in real time.

use crate::bench::{probe, system};
use crate::command::{Points, RecordOptions, WorldName};
use crate::failure::Failure;
use crate::output::{Sinks, Stopwatch};
use crate::quantity::Size;
use crate::results::Host;
use crate::table::{percent, thousands};
use crate::trace::Recorder;
use serde_json::json;
use std::path::PathBuf;
use terrace_rt::Nanos;
use terrace_workload::points::{self, Config, Operation, RunResult};

/// Bytes that a row takes in a page beside its value: key, header, its share of free room.
const ROW_OVERHEAD_BYTES: u64 = 24;
/// Room in memory for all rows: pages are not full, and trees have inner nodes.
const ROOM_FOR_ALL: f64 = 1.7;
const PAGE_BYTES: u64 = 8192;
/// Longest probe.
const PROBE_MAX: Nanos = Nanos(5_000_000_000);
/// Least memory, in pages.
const FRAMES_MIN: u64 = 64;

/// Runs `name`.
///
/// # Errors
///
/// Options that make no sense; whatever stops the engine.
pub fn points(name: &str, options: &Points, recording: &RecordOptions) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let mut config = config(name, options)?;
    let recorder = Recorder::begin(recording, 1, &mut config.recording)?;
    let temporary = options.path.is_none().then(temporary_folder).transpose()?;
    config.path = match (&temporary, &options.path) {
        (Some(folder), _) => folder.0.join("rows.terrace"),
        (None, path) => path.clone().unwrap_or_default(),
    };
    let result = points::run(&config).map_err(|error| {
        let path = config.path.display();
        Failure::of(format!("bench {name} on {path}"), &error)
    })?;
    let probed_reads_per_s = options.probe.then(|| probed(&config)).transpose()?;
    drop(temporary);

    sinks.show(&shown(name, &config, &result, probed_reads_per_s));
    Recorder::end(recorder, &sinks)?;
    let host = Host::of(&watch, 0.0);
    sinks.write(&json!({
        "command": format!("bench {name}"),
        "version": env!("CARGO_PKG_VERSION"),
        "seed": config.seed,
        "parameters": {
            "rows": config.rows,
            "value_bytes": config.value_bytes,
            "dram_pages": config.memory_pages,
            "log_max_bytes": config.log_max,
            "scan_rows": config.scan_rows,
            "batch": config.batch,
            "threads": config.threads,
            "tasks": config.tasks,
            "duration_s": config.duration.as_secs_f64(),
            "world": "real",
        },
        "host": host,
        "runs": [{
            "operation": name,
            "operations": result.operations,
            "operations_per_s": result.operations_per_s,
            "conflicts": result.conflicts,
            "p50_us": us(&result, 0.5),
            "p99_us": us(&result, 0.99),
            "written_bytes_per_operation": {
                "log": result.written.log,
                "doublewrite": result.written.doublewrite,
                "home": result.written.home,
            },
            "memory": { "hit_ratio": result.memory_hit_ratio },
            "devices": { "home": {
                "reads_per_s": result.home_reads_per_s,
                "probed_reads_per_s": probed_reads_per_s,
            } },
        }],
    }))
}

/// A quantile of the latencies in microseconds.
fn us(result: &RunResult, quantile: f64) -> f64 {
    result.latency_ns.value_at_quantile(quantile) as f64 / 1e3
}

fn shown(name: &str, config: &Config, result: &RunResult, probed: Option<f64>) -> String {
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let mut text = format!(
        "{name}: {} operations/s on {} thread{}, {} task{}; {} rows of {} bytes, memory hits {}\n\
         latency {:.1} us median, {:.1} us at 99%; {} conflicts\n",
        thousands(result.operations_per_s),
        config.threads,
        plural(config.threads),
        config.tasks,
        plural(config.tasks),
        thousands(config.rows as f64),
        config.value_bytes,
        percent(result.memory_hit_ratio),
        us(result, 0.5),
        us(result, 0.99),
        result.conflicts,
    );
    if result.written.log > 0.0 {
        text.push_str(&format!(
            "written for each: {:.0} bytes to the log, {:.0} to the doublewrite area, {:.0} home\n",
            result.written.log, result.written.doublewrite, result.written.home,
        ));
    }
    if let Some(rate) = probed {
        text.push_str(&format!(
            "the engine read {} pages/s; the file itself gives {} to {} tasks\n",
            thousands(result.home_reads_per_s),
            thousands(rate),
            config.tasks,
        ));
    }
    text
}

/// What the file itself gives.
fn probed(config: &Config) -> Result<f64, Failure> {
    let span = Nanos(config.duration.0.min(PROBE_MAX.0));
    probe::reads_per_s(&config.path, config.tasks, config.threads, span)
        .map_err(|error| Failure::failed("the probe", error))
}

fn config(name: &str, options: &Points) -> Result<Config, Failure> {
    if options.world != WorldName::Real {
        return Err(Failure::usage(format!("bench {name} runs in the real world only")));
    }
    if options.duration.0 <= 0.0 {
        return Err(Failure::usage("--duration must be above zero"));
    }
    let rows_pages = options.rows * (options.value_bytes + ROW_OVERHEAD_BYTES) / PAGE_BYTES + 1;
    let frames = match options.dram {
        Some(size @ (Size::Pages(_) | Size::OfDatabase(_))) => size.pages(rows_pages),
        None => (rows_pages as f64 * ROOM_FOR_ALL) as u64 + FRAMES_MIN,
    };
    if frames < FRAMES_MIN {
        return Err(Failure::usage(format!("memory needs at least {FRAMES_MIN} pages")));
    }
    system::fits("--dram", frames.saturating_mul(PAGE_BYTES))?;
    let threads = options.threads as usize;
    let operation = match name {
        "reads" => Operation::Read,
        "updates" => Operation::Update,
        _ => Operation::Scan,
    };
    Ok(Config {
        seed: options.seed,
        operation,
        batch: options.batch.unwrap_or(operation.usual_batch()),
        rows: options.rows,
        value_bytes: options.value_bytes as usize,
        scan_rows: options.scan_rows,
        memory_pages: frames.try_into().map_err(|_| Failure::usage("--dram is too large"))?,
        log_max: options.log_max,
        path: PathBuf::new(),
        threads,
        tasks: options.tasks.map_or(threads, |tasks| tasks as usize),
        duration: Nanos::from_secs_f64(options.duration.0),
        recording: None,
    })
}

/// A folder that goes when this does.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn temporary_folder() -> Result<Temporary, Failure> {
    let path = std::env::temp_dir().join(format!("terrace-bench-{}", std::process::id()));
    std::fs::create_dir(&path)
        .map_err(|error| Failure::failed(format!("cannot make {}", path.display()), error))?;
    Ok(Temporary(path))
}
