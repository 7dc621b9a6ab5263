//! The tables that `bench restart` prints.

use super::results::RestartRun;
use crate::bench::system;
use crate::command::WorkloadName;
use crate::results::Bench;
use crate::table::{Table, percent, thousands};
use serde_json::Value;

/// What is assumed, the intervals, the steady levels.
pub fn text(bench: &Bench<RestartRun>, workload: WorkloadName) -> String {
    let text = |name: &str| match bench.parameters.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    let (what, unit) = match workload {
        WorkloadName::Tpcc => (format!("TPC-C, {} warehouses", text("warehouses")), "tpmC"),
        WorkloadName::TpceLike => {
            (format!("TPC-E-like (synthetic), {} customers", text("customers")), "transactions/s")
        }
    };
    let mut out = format!(
        "{} after {} s of {what}, {} clients, virtual world, seed {}; memory {}{}, flash {} on {}, \
         home {}, log {}; checkpoints {}\n\nThe peak-to-peak interval, in seconds\n",
        text("event"),
        text("peak_s"),
        text("clients"),
        bench.seed,
        text("dram"),
        system::charged(&text("charge_metadata")),
        text("flash"),
        text("flash_device"),
        text("home"),
        text("log_device"),
        if text("checkpoint_s") == "null" { "off".into() } else { text("checkpoint_s") + " s" },
    );
    out.push_str(&intervals(bench).text());
    out.push_str(&format!("\nSteady levels before and after; throughput in {unit}\n"));
    out.push_str(&levels(bench).text());
    out.push_str(&format!(
        "\n{:.1} s, of which load {:.1} s; peak memory {:.2} GiB\n",
        bench.host.wall_s,
        bench.host.load_wall_s,
        bench.host.peak_memory_bytes as f64 / f64::from(1 << 30),
    ));
    out
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.2}")
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2}x")
}

/// What `run` has at `path`, or a dash.
pub fn cell(run: &RestartRun, path: &str, format: fn(f64) -> String) -> String {
    let absent = run.figures.steady.flash.slots == 0 && path.contains("flash");
    run.figure(path).filter(|_| !absent).map_or("-".into(), format)
}

fn intervals(bench: &Bench<RestartRun>) -> Table {
    let mut table = Table::new([
        "design",
        "restart",
        "shutdown",
        "recovery",
        "ramp-up",
        "held",
        "peak to peak",
        "speedup",
        "flash kept",
        "log MB",
        "to recover",
    ]);
    let megabytes = |bytes: f64| thousands(bytes / 1e6);
    for run in &bench.runs {
        table.row([
            run.design.into(),
            run.restart.into(),
            cell(run, "shutdown_s", seconds),
            cell(run, "recovery_s", seconds),
            cell(run, "ramp_up_s", seconds),
            cell(run, "ramp_up_held_s", seconds),
            cell(run, "peak_to_peak_s", seconds),
            cell(run, "peak_to_peak_speedup", times),
            cell(run, "flash_pages_kept_share", percent),
            cell(run, "log.bytes", megabytes),
            cell(run, "log.used_bytes", megabytes),
        ]);
    }
    table
}

fn levels(bench: &Bench<RestartRun>) -> Table {
    let mut table = Table::new([
        "design",
        "restart",
        "level",
        "tput",
        "ratio",
        "mem hit",
        "flash hit",
        "used",
        "dirty",
        "home busy",
        "flash busy",
        "log busy",
        "checks",
    ]);
    for run in &bench.runs {
        for (name, of, ratio) in
            [("peak", "before", "peak_throughput_ratio"), ("after", "", "throughput_ratio")]
        {
            let prefix = if of.is_empty() { String::new() } else { format!("{of}.") };
            let cell = |path: &str| cell(run, &format!("{prefix}{path}"), percent);
            table.row([
                run.design.into(),
                run.restart.into(),
                name.into(),
                run.throughput(of).map_or("-".into(), thousands),
                run.figure(ratio).map_or("-".into(), |ratio| format!("{ratio:.3}")),
                cell("memory.hit_ratio"),
                cell("flash.hit_ratio"),
                cell("flash.used_share"),
                cell("flash.dirty_share"),
                cell("devices.home.utilisation"),
                cell("devices.flash.utilisation"),
                cell("devices.log.utilisation"),
                if run.checks.is_broken() {
                    "BROKEN".into()
                } else {
                    run.checks.consistency.clone()
                },
            ]);
        }
    }
    table
}
