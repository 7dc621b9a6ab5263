//! One measured run on an open database: terminals, windows, averages.
//!
//! The task that measures sleeps from window to window and reads counters; it takes no part in the
//! load. All runs start the same way: every terminal at once, on whatever the memory then holds.

use std::sync::Arc;

use terrace::{Database, Stats};
use terrace_rt::{Nanos, Prng, Task, World, now, sleep};

use super::config::Config;
use super::random::Constants;
use super::results::{Consistency, DeviceSample, DeviceUse, Progress, RunResult, Window};
use super::terminal::{Floor, Terminal};
use crate::Error;

/// Runs the terminals of `config` on `db`, in `world`, for the configured time. Returns when the
/// last of them is done. `epoch` is the date at the start: later than that of any run before on
/// this database, by more than a run takes.
///
/// # Errors
///
/// What stopped a terminal.
pub fn measure(
    db: &Database,
    config: &Config,
    (design, epoch): (&'static str, u64),
    world: &World,
    progress: &mut dyn FnMut(Progress),
) -> Result<RunResult, Error> {
    let loaded_pages = home_pages(&db.stats());
    let floor = Arc::new(Floor::new(db.clone(), config.clone(), epoch));
    let tasks = open(&floor, config, world);
    let windows = watch(&floor, db, config, progress);
    floor.close();
    for task in tasks {
        task.join();
    }
    if let Some(error) = floor.take_failure() {
        return Err(error);
    }
    let mut result = summarise(config, design, &windows);
    result.windows = windows;
    result.stats = db.stats();
    result.home_pages = home_pages(&result.stats);
    result.kinds = floor.kinds();
    result.deliveries_skipped = floor.skipped();
    result.loaded_pages = loaded_pages;
    Ok(result)
}

/// Spawns terminals and delivery tasks.
fn open(floor: &Arc<Floor>, config: &Config, world: &World) -> Vec<Task> {
    let mut prng = Prng::from_seed(config.seed ^ 0x0007_E241_1A15);
    let constants = Constants::load(config.seed).for_run(&mut prng);
    let count = config.clients + config.delivery_tasks;
    assert!(count <= u32::from(u16::MAX));
    (0..count)
        .map(|number| {
            let floor = Arc::clone(floor);
            let terminal = Terminal::new(floor, number as u16, prng.fork(), constants);
            match number < config.clients {
                true => world.spawn("terminal", move || terminal.run()),
                false => world.spawn("delivery", move || terminal.run_deliveries()),
            }
        })
        .collect()
}

/// Reads counters at the end of each window, until the time is over or a terminal fails.
fn watch(
    floor: &Floor,
    db: &Database,
    config: &Config,
    progress: &mut dyn FnMut(Progress),
) -> Vec<Window> {
    let begun = now();
    let at_start = devices(&db.stats());
    let windows_count = config.duration.0.div_ceil(config.window.0).max(1);
    let (mut before, mut windows) = ((0, 0), Vec::with_capacity(windows_count as usize));
    let mut end_before = Nanos::ZERO;
    for index in 1..=windows_count {
        let end = Nanos((config.window.0 * index).min(config.duration.0));
        sleep(end.saturating_sub(now().saturating_sub(begun)));
        if floor.has_failed() {
            break;
        }
        let (stats, committed) = (db.stats(), floor.committed());
        let window = Window {
            end: now().saturating_sub(begun),
            new_orders: committed.0 - before.0,
            transactions: committed.1 - before.1,
            devices: devices(&stats).since(at_start),
            pool: stats.pool,
        };
        let length = window.end.saturating_sub(end_before);
        let tpmc = per_second(window.new_orders, length) * 60.0;
        progress(Progress { done: window.end, total: config.duration, tpmc });
        (before, end_before) = (committed, window.end);
        windows.push(window);
    }
    windows
}

fn devices(stats: &Stats) -> DeviceSample {
    DeviceSample {
        home: stats.home_device,
        flash: stats.flash_device.unwrap_or_default(),
        log: stats.log_device,
    }
}

/// Pages at home that belong to tables or maps.
pub fn home_pages(stats: &Stats) -> u64 {
    stats.home_used_bytes / terrace_page::PAGE_SIZE as u64
}

fn per_second(count: u64, span: Nanos) -> f64 {
    if span == Nanos::ZERO { 0.0 } else { count as f64 / span.as_secs_f64() }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Averages over the last part of the run.
fn summarise(config: &Config, design: &'static str, windows: &[Window]) -> RunResult {
    let averaged_count = (windows.len() as f64 * config.averaged_share).round().max(1.0) as usize;
    let first = windows.len() - averaged_count.min(windows.len());
    let before = first.checked_sub(1).map(|index| windows[index]);
    let before = before.unwrap_or_else(Window::at_start);
    let last = windows.last().copied().unwrap_or_else(Window::at_start);
    let averaged = last.end.saturating_sub(before.end);
    let counted = &windows[first..];
    let new_orders: u64 = counted.iter().map(|window| window.new_orders).sum();
    let transactions: u64 = counted.iter().map(|window| window.transactions).sum();
    let used = last.devices.since(before.devices);
    let (misses, hits) = (last.pool.misses - before.pool.misses, last.pool.hits - before.pool.hits);
    let flash_hits = last.pool.flash_hits - before.pool.flash_hits;
    let flash_hits_dirty = last.pool.flash_hits_dirty - before.pool.flash_hits_dirty;
    RunResult {
        design,
        windows: Vec::new(),
        averaged,
        tpmc: per_second(new_orders, averaged) * 60.0,
        transactions_per_s: per_second(transactions, averaged),
        memory_hit_ratio: share(hits, hits + misses),
        flash_hit_ratio: share(flash_hits, misses),
        flash_dirty_hit_share: share(flash_hits_dirty, flash_hits),
        before: before.pool,
        pool: last.pool,
        home: DeviceUse::of(used.home, averaged),
        flash: DeviceUse::of(used.flash, averaged),
        log: DeviceUse::of(used.log, averaged),
        stats: Stats::default(),
        kinds: std::array::from_fn(|_| super::results::KindCounts::new()),
        deliveries_skipped: 0,
        home_pages: 0,
        loaded_pages: 0,
        events: None,
        consistency: Consistency::Unchecked,
    }
}
