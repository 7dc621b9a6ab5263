//! From what the driver found to what is printed.

use crate::interval::rounded;
use crate::results::{
    Checks, Cleaner, Database, Device, Devices, Figures, Flash, Memory, Run, RunHost, Spread,
    Traffic, Transaction, Transactions, Window,
};
use terrace_device::Counters;
use terrace_workload::sampling::{self, Averages, DeviceSample, DeviceUse};
use terrace_workload::tpcc::{Kind, KindCounts, RunResult};

/// The run that `result` was; `wall_s` is what it took on this machine.
pub fn run_of(result: &RunResult, wall_s: f64) -> Run {
    let events_per_s = result.events.map(|events| rounded(ratio(events as f64, wall_s)));
    Run {
        design: result.design,
        restart: result.restart,
        figures: figures(result),
        windows: windows(&result.windows),
        checks: Checks { consistency: result.consistency.summary().to_string() },
        page_rates: None,
        host: RunHost { wall_s, events_per_s },
        spread: Spread::default(),
    }
}

fn figures(result: &RunResult) -> Figures {
    let averages = &result.averages;
    let averaged_s = averages.span.as_secs_f64();
    let (before, after) = (&averages.before, &averages.pool);
    let cleaner_ios = after.cleaner_ios - before.cleaner_ios;
    let cleaner_pages = after.cleaner_pages - before.cleaner_pages;
    let of = |kind: Kind| transaction(result.kind(kind));
    Figures {
        tpmc: rounded(result.tpmc),
        transactions_per_s: rounded(averages.transactions_per_s),
        speedup: None,
        averaged_s: rounded(averaged_s),
        memory: memory(averages),
        flash: flash(averages),
        devices: devices(averages),
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

/// Memory in the averaged part.
pub fn memory(averages: &Averages) -> Memory {
    Memory { hit_ratio: rounded(averages.memory_hit_ratio), frames: averages.pool.frames }
}

/// What the devices did in the averaged part.
pub fn devices(averages: &Averages) -> Devices {
    Devices {
        home: device(&averages.home),
        flash: device(&averages.flash),
        log: device(&averages.log),
    }
}

/// The flash tier in the averaged part; shares are of its end.
pub fn flash(averages: &Averages) -> Flash {
    let (before, end) = (&averages.before, &averages.pool);
    let share = |slots: u64| rounded(ratio(slots as f64, end.slots as f64));
    Flash {
        hit_ratio: rounded(averages.flash_hit_ratio),
        dirty_hit_share: rounded(averages.flash_dirty_hit_share),
        slots: end.slots,
        used_share: share(end.slots_used),
        dirty_share: share(end.slots_dirty),
        invalid_share: share(end.slots_invalid),
        reads: end.flash_reads - before.flash_reads,
        writes: end.flash_writes - before.flash_writes,
        metadata_bytes_per_slot: end.metadata_bytes_per_slot,
        bypassed_by_policy: end.bypassed_by_policy - before.bypassed_by_policy,
        bypassed_by_throttle: end.bypassed_by_throttle - before.bypassed_by_throttle,
        bypassed_by_budget: end.bypassed_by_budget - before.bypassed_by_budget,
        bypassed_for_room: end.bypassed_for_room - before.bypassed_for_room,
        spilled_reads: end.spilled_reads - before.spilled_reads,
        tac_abandoned: end.tac_abandoned - before.tac_abandoned,
    }
}

/// What a device did in the averaged part.
pub fn device(used: &DeviceUse) -> Device {
    Device {
        utilisation: rounded(used.utilisation),
        reads: used.reads,
        writes: used.writes,
        read_bytes: used.read_bytes,
        written_bytes: used.written_bytes,
        write_amplification: rounded(ratio(
            used.programmed_bytes as f64,
            used.written_bytes as f64,
        )),
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

fn windows(windows: &[sampling::Window]) -> Vec<Window> {
    let mut before = DeviceSample::default();
    let mut start_s = 0.0;
    let mut shown = Vec::with_capacity(windows.len());
    for window in windows {
        let end_s = window.end.as_secs_f64();
        let span_s = end_s - start_s;
        let devices = &window.devices;
        let share = |slots: u64| rounded(ratio(slots as f64, window.pool.slots as f64));
        shown.push(Window {
            t_s: rounded(end_s),
            tpmc: rounded(ratio(window.counted as f64 * 60.0, span_s)),
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

/// What a device did in a window of `span_s` seconds.
pub fn traffic(counters: Counters, span_s: f64) -> Traffic {
    Traffic {
        read_bytes: counters.read_bytes,
        written_bytes: counters.written_bytes,
        utilisation: rounded(ratio(counters.busy_ns as f64 / 1e9, span_s)),
    }
}

/// Zero over zero is zero here: nothing happened.
pub fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
