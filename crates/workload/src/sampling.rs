//! Counters read from window to window while clients run, and averages over the last of them.
//!
//! The task that samples sleeps and reads counters; it takes no part in the load.

use terrace::{Database, LogStats, Stats};
use terrace_device::Counters;
use terrace_pool::PoolStats;
use terrace_rt::{Nanos, now, sleep};

/// Transactions committed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Those that the workload's throughput counts.
    pub counted: u64,
    /// All.
    pub transactions: u64,
}

/// The devices at the end of a window, counted since the sampling began.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceSample {
    /// The permanent home.
    pub home: Counters,
    /// The flash tier; zeroes if the design has none.
    pub flash: Counters,
    /// The log.
    pub log: Counters,
}

impl DeviceSample {
    /// The devices now, counted since the database was opened.
    pub fn of(stats: &Stats) -> DeviceSample {
        DeviceSample {
            home: stats.home_device,
            flash: stats.flash_device.unwrap_or_default(),
            log: stats.log_device,
        }
    }

    /// What happened since `earlier`.
    #[must_use]
    pub fn since(self, earlier: DeviceSample) -> DeviceSample {
        DeviceSample {
            home: self.home - earlier.home,
            flash: self.flash - earlier.flash,
            log: self.log - earlier.log,
        }
    }
}

/// One window of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// When it ended, since the sampling began.
    pub end: Nanos,
    /// Transactions committed in it that the workload's throughput counts.
    pub counted: u64,
    /// All transactions committed in it.
    pub transactions: u64,
    /// Devices at its end, counted since the sampling began; subtract the window before.
    pub devices: DeviceSample,
    /// The buffer pool at its end, counted since the database was opened.
    pub pool: PoolStats,
    /// The log at its end, counted since the database was opened.
    pub log: LogStats,
}

/// Reads counters at the ends of windows.
pub struct Sampler {
    begun: Nanos,
    at_start: DeviceSample,
    before: Committed,
    windows: Vec<Window>,
}

impl Sampler {
    /// A sampler of `db` that begins now, when no client has committed anything.
    pub fn new(db: &Database) -> Sampler {
        Sampler {
            begun: now(),
            at_start: DeviceSample::of(&db.stats()),
            before: Committed::default(),
            windows: Vec::new(),
        }
    }

    /// Sleeps until `end`, counted since the beginning.
    pub fn sleep_until(&self, end: Nanos) {
        sleep(end.saturating_sub(now().saturating_sub(self.begun)));
    }

    /// Ends a window now, with `committed` since the beginning, and returns it and its length.
    pub fn end_window(&mut self, db: &Database, committed: Committed) -> (Window, Nanos) {
        let stats = db.stats();
        let window = Window {
            end: now().saturating_sub(self.begun),
            counted: committed.counted - self.before.counted,
            transactions: committed.transactions - self.before.transactions,
            devices: DeviceSample::of(&stats).since(self.at_start),
            pool: stats.pool,
            log: stats.log,
        };
        let length = window.end.saturating_sub(self.elapsed());
        self.before = committed;
        self.windows.push(window);
        (window, length)
    }

    /// The end of the last window.
    pub fn elapsed(&self) -> Nanos {
        self.windows.last().map_or(Nanos::ZERO, |window| window.end)
    }

    /// The windows so far.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// The windows, in order of time.
    pub fn into_windows(self) -> Vec<Window> {
        self.windows
    }
}

/// What one device did over the averaged part.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceUse {
    /// Share of the time that the device was busy, the mean over its members.
    pub utilisation: f64,
    /// Requests read.
    pub reads: u64,
    /// Requests written.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes that its medium took for them, if it tells; else 0.
    pub programmed_bytes: u64,
}

impl DeviceUse {
    /// What `counted` is in `span`.
    pub fn of(counted: Counters, span: Nanos) -> DeviceUse {
        DeviceUse {
            utilisation: counted.busy_ns as f64 / span.0.max(1) as f64,
            reads: counted.reads,
            writes: counted.writes,
            read_bytes: counted.read_bytes,
            written_bytes: counted.written_bytes,
            programmed_bytes: counted.programmed_bytes,
        }
    }
}

/// Averages over the last windows of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Averages {
    /// Length of the averaged part.
    pub span: Nanos,
    /// Transactions that the workload's throughput counts, per second.
    pub counted_per_s: f64,
    /// All transactions per second.
    pub transactions_per_s: f64,
    /// Share of page requests that memory served.
    pub memory_hit_ratio: f64,
    /// Share of memory misses that flash served.
    pub flash_hit_ratio: f64,
    /// Share of flash hits on pages newer than home.
    pub flash_dirty_hit_share: f64,
    /// The buffer pool when the averaged part began, counted since the database was opened.
    pub before: PoolStats,
    /// The buffer pool at its end; subtract `before` for the averaged part.
    pub pool: PoolStats,
    /// The home device.
    pub home: DeviceUse,
    /// The flash device.
    pub flash: DeviceUse,
    /// The log device.
    pub log: DeviceUse,
}

impl Averages {
    /// Averages over the last `count` of `windows`, or all of them.
    pub fn of_last(windows: &[Window], count: usize) -> Averages {
        let first = windows.len() - count.clamp(1, windows.len().max(1)).min(windows.len());
        let before = first.checked_sub(1).map(|index| windows[index]).unwrap_or_default();
        let last = windows.last().copied().unwrap_or_default();
        let span = last.end.saturating_sub(before.end);
        let sum = |of: fn(&Window) -> u64| windows[first..].iter().map(of).sum();
        let used = last.devices.since(before.devices);
        let (pool, old) = (last.pool, before.pool);
        let (misses, hits) = (pool.misses - old.misses, pool.hits - old.hits);
        let flash_hits = pool.flash_hits - old.flash_hits;
        Averages {
            span,
            counted_per_s: per_second(sum(|window| window.counted), span),
            transactions_per_s: per_second(sum(|window| window.transactions), span),
            memory_hit_ratio: share(hits, hits + misses),
            flash_hit_ratio: share(flash_hits, misses),
            flash_dirty_hit_share: share(pool.flash_hits_dirty - old.flash_hits_dirty, flash_hits),
            before: old,
            pool,
            home: DeviceUse::of(used.home, span),
            flash: DeviceUse::of(used.flash, span),
            log: DeviceUse::of(used.log, span),
        }
    }
}

/// `count` over `span`; nothing in no time is none.
pub fn per_second(count: u64, span: Nanos) -> f64 {
    if span == Nanos::ZERO { 0.0 } else { count as f64 / span.as_secs_f64() }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Pages at home that belong to tables or maps.
pub fn home_pages(stats: &Stats) -> u64 {
    stats.home_used_bytes / terrace_page::PAGE_SIZE as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(end_s: u64, counted: u64) -> Window {
        let pool = PoolStats::default();
        let (end, transactions) = (Nanos::from_secs(end_s), 2 * counted);
        Window { end, counted, transactions, pool, ..Window::default() }
    }

    #[test]
    fn averages_are_over_the_last_windows_only() {
        let windows = [window(1, 100), window(3, 20), window(5, 40)];
        let averages = Averages::of_last(&windows, 2);
        assert_eq!((averages.span, averages.counted_per_s), (Nanos::from_secs(4), 15.0));
        assert_eq!(averages.transactions_per_s, 30.0);
        let all = Averages::of_last(&windows, 9);
        assert_eq!((all.span, all.counted_per_s), (Nanos::from_secs(5), 32.0));
        assert_eq!(Averages::of_last(&[], 1).span, Nanos::ZERO);
    }
}
