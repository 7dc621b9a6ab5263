//! From what a restart found to what is printed.

use super::results::{Level, Log, RestartFigures, RestartRun, RestartWindow};
use crate::bench::run_of::{device, devices, flash, memory, ratio, traffic};
use crate::command::{EventName, WorkloadName};
use crate::interval::rounded;
use crate::results::{Checks, Database, Devices, RunHost, Spread};
use terrace_device::Counters;
use terrace_rt::Nanos;
use terrace_workload::restart::RestartResult;
use terrace_workload::sampling::{
    Averages, DeviceSample, DeviceUse, Window, home_pages, per_second,
};

/// The run that `result` was; `wall_s` is what it took on this machine.
pub fn run_of(
    result: &RestartResult,
    (workload, event): (WorkloadName, EventName),
    wall_s: f64,
) -> RestartRun {
    let events_per_s = rounded(ratio(result.events as f64, wall_s));
    RestartRun {
        design: result.design,
        restart: result.restart,
        event: crate::bench::system::word(event),
        figures: figures(result, workload),
        windows: windows(result, workload),
        checks: Checks { consistency: result.consistency.summary().to_string() },
        host: RunHost { wall_s, events_per_s: Some(events_per_s) },
        spread: Spread::default(),
    }
}

/// New-Orders per minute, where the workload counts them.
fn tpmc(workload: WorkloadName, counted_per_s: f64) -> Option<f64> {
    (workload == WorkloadName::Tpcc).then(|| rounded(counted_per_s * 60.0))
}

fn figures(result: &RestartResult, workload: WorkloadName) -> RestartFigures {
    let seconds = |span: Nanos| rounded(span.as_secs_f64());
    let (at_event, at_end) = (&result.at_event, &result.at_end);
    let per_checkpoint =
        |span: Nanos| rounded(ratio(span.as_secs_f64(), at_event.log.checkpoints as f64));
    let transactions: u64 = result.before.iter().map(|window| window.transactions).sum();
    RestartFigures {
        shutdown_s: seconds(result.shutdown),
        recovery_s: seconds(result.recovery),
        ramp_up_s: result.ramp_up.map(seconds),
        ramp_up_held_s: result.ramp_up_held.map(seconds),
        peak_to_peak_s: result.peak_to_peak().map(seconds),
        peak_to_peak_speedup: None,
        flash_pages_kept_share: result.flash_pages_kept_share().map(rounded),
        throughput_ratio: None,
        peak_throughput_ratio: None,
        averaged_s: seconds(result.steady.span),
        steady: level(&result.steady, workload),
        before: level(&result.peak, workload),
        recovery: recovery(result),
        log: Log {
            bytes: at_event.log.bytes,
            used_bytes: at_event.log.used_bytes,
            after_bytes: at_end.log.bytes,
            bytes_per_transaction: rounded(ratio(at_event.log.bytes as f64, transactions as f64)),
            checkpoints: at_event.log.checkpoints,
            checkpoint_s: per_checkpoint(at_event.log.checkpoint_time),
            checkpoint_table_s: per_checkpoint(at_event.log.table_time),
        },
        database: Database { loaded_pages: home_pages(at_event), pages: home_pages(at_end) },
    }
}

fn level(averages: &Averages, workload: WorkloadName) -> Level {
    Level {
        tpmc: tpmc(workload, averages.counted_per_s),
        transactions_per_s: rounded(averages.transactions_per_s),
        memory: memory(averages),
        flash: flash(averages),
        devices: devices(averages),
    }
}

fn recovery(result: &RestartResult) -> Devices {
    let used = DeviceSample::of(&result.at_open);
    let of = |counters: Counters| device(&DeviceUse::of(counters, result.recovery));
    Devices { home: of(used.home), flash: of(used.flash), log: of(used.log) }
}

fn windows(result: &RestartResult, workload: WorkloadName) -> Vec<RestartWindow> {
    let mut shown = part(&result.before, Nanos::ZERO, "before", workload);
    let slots = |used: u64, of: u64| rounded(ratio(used as f64, of as f64));
    let (event, open) = (&result.at_event.pool, &result.at_open.pool);
    let mut closed = |end: Nanos, phase| {
        let pool = if phase == "recovery" { open } else { event };
        shown.push(RestartWindow {
            t_s: rounded(end.as_secs_f64()),
            phase,
            tpmc: tpmc(workload, 0.0),
            dirty_share: slots(pool.slots_dirty, pool.slots),
            used_share: slots(pool.slots_used, pool.slots),
            ..RestartWindow::default()
        });
    };
    let last = result.before.last().map_or(Nanos::ZERO, |window| window.end);
    if result.ended > last {
        closed(result.ended, "stopping");
    }
    if result.shutdown > Nanos::ZERO {
        closed(result.ended + result.shutdown, "shutdown");
    }
    let opened = result.ended + result.shutdown + result.recovery;
    closed(opened, "recovery");
    shown.extend(part(&result.after, opened, "after", workload));
    shown
}

/// The windows of a part that began at `start`.
fn part(
    windows: &[Window],
    start: Nanos,
    phase: &'static str,
    workload: WorkloadName,
) -> Vec<RestartWindow> {
    let mut before = Window::default();
    let mut shown = Vec::with_capacity(windows.len());
    for window in windows {
        let span = window.end.saturating_sub(before.end);
        let used = window.devices.since(before.devices);
        let shares = [window.pool.slots_dirty, window.pool.slots_used];
        let [dirty_share, used_share] =
            shares.map(|slots| rounded(ratio(slots as f64, window.pool.slots as f64)));
        let of = |counters| traffic(counters, span.as_secs_f64());
        shown.push(RestartWindow {
            t_s: rounded((start + window.end).as_secs_f64()),
            phase,
            tpmc: tpmc(workload, per_second(window.counted, span)),
            transactions_per_s: rounded(per_second(window.transactions, span)),
            home: of(used.home),
            flash: of(used.flash),
            log: of(used.log),
            dirty_share,
            used_share,
        });
        before = *window;
    }
    shown
}
