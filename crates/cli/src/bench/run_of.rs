//! From what the driver found to what is printed.

use crate::interval::rounded;
use crate::results::{
    Checks, Cleaner, Database, Device, Devices, Figures, Flash, Memory, Run, RunHost, Traffic,
    Transaction, Transactions, Window,
};
use terrace_device::Counters;
use terrace_pool::PoolStats;
use terrace_workload::tpcc;
use terrace_workload::tpcc::{DeviceUse, Kind, KindCounts, RunResult};

/// The run that `result` was; `wall_s` is what it took on this machine.
pub fn run_of(result: &RunResult, wall_s: f64) -> Run {
    let events_per_s = result.events.map(|events| rounded(ratio(events as f64, wall_s)));
    Run {
        design: result.design,
        restart: "forget",
        figures: figures(result),
        windows: windows(&result.windows),
        checks: Checks { consistency: result.consistency.summary().to_string() },
        host: RunHost { wall_s, events_per_s },
        mean: None,
        low: None,
        high: None,
        seeds: None,
    }
}

fn figures(result: &RunResult) -> Figures {
    let averaged_s = result.averaged.as_secs_f64();
    let (before, after) = averaged_pools(result);
    let cleaner_ios = after.cleaner_ios - before.cleaner_ios;
    let cleaner_pages = after.cleaner_pages - before.cleaner_pages;
    let of = |kind: Kind| transaction(result.kind(kind));
    Figures {
        tpmc: rounded(result.tpmc),
        transactions_per_s: rounded(result.transactions_per_s),
        speedup: None,
        averaged_s: rounded(averaged_s),
        memory: Memory { hit_ratio: rounded(result.memory_hit_ratio), frames: result.pool.frames },
        flash: flash(result, &before, &after),
        devices: Devices {
            home: device(&result.home),
            flash: device(&result.flash),
            log: device(&result.log),
        },
        cleaner: Cleaner {
            ios_per_s: rounded(ratio(cleaner_ios as f64, averaged_s)),
            pages_per_io: rounded(ratio(cleaner_pages as f64, cleaner_ios as f64)),
        },
        database: Database { loaded_pages: result.loaded_pages, pages: result.home_pages },
        transactions: Transactions {
            new_order: of(Kind::NewOrder),
            payment: of(Kind::Payment),
            order_status: of(Kind::OrderStatus),
            delivery: of(Kind::Delivery),
            stock_level: of(Kind::StockLevel),
        },
    }
}

/// The pool before and after the averaged part.
fn averaged_pools(result: &RunResult) -> (PoolStats, PoolStats) {
    let Some(last) = result.windows.last() else { return (result.pool, result.pool) };
    let start = last.end.as_secs_f64() - result.averaged.as_secs_f64();
    // Half a nanosecond of slack: window ends are sums.
    let before = result.windows.iter().rev().find(|w| w.end.as_secs_f64() <= start + 5e-10);
    (before.map_or_else(PoolStats::default, |window| window.pool), last.pool)
}

fn flash(result: &RunResult, before: &PoolStats, after: &PoolStats) -> Flash {
    let end = &result.pool;
    let share = |slots: u64| rounded(ratio(slots as f64, end.slots as f64));
    Flash {
        hit_ratio: rounded(result.flash_hit_ratio),
        dirty_hit_share: rounded(result.flash_dirty_hit_share),
        slots: end.slots,
        used_share: share(end.slots_used),
        dirty_share: share(end.slots_dirty),
        invalid_share: share(end.slots_invalid),
        reads: after.flash_reads - before.flash_reads,
        writes: after.flash_writes - before.flash_writes,
        metadata_bytes_per_slot: end.metadata_bytes_per_slot,
        bypassed_by_policy: after.bypassed_by_policy - before.bypassed_by_policy,
        bypassed_by_throttle: after.bypassed_by_throttle - before.bypassed_by_throttle,
        bypassed_for_room: after.bypassed_for_room - before.bypassed_for_room,
        tac_abandoned: after.tac_abandoned - before.tac_abandoned,
    }
}

fn device(used: &DeviceUse) -> Device {
    Device {
        utilisation: rounded(used.utilisation),
        reads: used.reads,
        writes: used.writes,
        read_bytes: used.read_bytes,
        written_bytes: used.written_bytes,
    }
}

fn transaction(counts: &KindCounts) -> Transaction {
    let ms = |quantile: f64| rounded(counts.latency_ns.value_at_quantile(quantile) as f64 / 1e6);
    Transaction {
        committed: counts.committed,
        rolled_back: counts.rolled_back,
        conflicts: counts.conflicts,
        p50_ms: ms(0.50),
        p95_ms: ms(0.95),
        p99_ms: ms(0.99),
    }
}

fn windows(windows: &[tpcc::Window]) -> Vec<Window> {
    let mut before = tpcc::DeviceSample::default();
    let mut start_s = 0.0;
    let mut shown = Vec::with_capacity(windows.len());
    for window in windows {
        let end_s = window.end.as_secs_f64();
        let span_s = end_s - start_s;
        let devices = &window.devices;
        let share = |slots: u64| rounded(ratio(slots as f64, window.pool.slots as f64));
        shown.push(Window {
            t_s: rounded(end_s),
            tpmc: rounded(ratio(window.new_orders as f64 * 60.0, span_s)),
            home: traffic(devices.home - before.home, span_s),
            flash: traffic(devices.flash - before.flash, span_s),
            log: traffic(devices.log - before.log, span_s),
            dirty_share: share(window.pool.slots_dirty),
            used_share: share(window.pool.slots_used),
        });
        before = *devices;
        start_s = end_s;
    }
    shown
}

fn traffic(counters: Counters, span_s: f64) -> Traffic {
    Traffic {
        read_bytes: counters.read_bytes,
        written_bytes: counters.written_bytes,
        utilisation: rounded(ratio(counters.busy_ns as f64 / 1e9, span_s)),
    }
}

/// Zero over zero is zero here: nothing happened.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
