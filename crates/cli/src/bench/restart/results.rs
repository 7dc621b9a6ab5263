//! What `terrace bench restart` prints for each pair of design and restart.
//!
//! The rules of `crate::results` hold. Rates, ratios and counts of requests in `before` and in the
//! run itself are over the last `averaged_s` before the event, and before the end.

use crate::interval::rounded;
use crate::results::{Checks, Database, Devices, Flash, Memory, RunHost, Spread, Traffic};
use serde::Serialize;

/// One pair's run; with several seeds the first, and the interval of all beside it.
#[derive(Clone, Debug, Serialize)]
pub struct RestartRun {
    /// Name of the design.
    pub design: &'static str,
    /// Name of the restart method.
    pub restart: &'static str,
    /// `shutdown` or `crash`.
    pub event: String,
    /// All that is one number, or an object of numbers.
    #[serde(flatten)]
    pub figures: RestartFigures,
    /// Throughput and traffic over time, before, during and after the event.
    pub windows: Vec<RestartWindow>,
    /// What was checked.
    pub checks: Checks,
    /// What depends on the machine.
    pub host: RunHost,
    /// With several seeds: the intervals.
    #[serde(flatten)]
    pub spread: Spread,
}

/// The figures of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RestartFigures {
    /// From the end of the last client to the end of closing; zero after a power cut.
    pub shutdown_s: f64,
    /// What opening took.
    pub recovery_s: f64,
    /// From then to the first window at the peak; none if the run ended before.
    pub ramp_up_s: Option<f64>,
    /// The same for ten windows that are at the peak on average.
    pub ramp_up_held_s: Option<f64>,
    /// Shutdown, recovery and ramp-up.
    pub peak_to_peak_s: Option<f64>,
    /// The interval of `forget` with the same design and seed over this one, if it ran.
    pub peak_to_peak_speedup: Option<f64>,
    /// Valid flash pages right after opening over those right before the event.
    pub flash_pages_kept_share: Option<f64>,
    /// Throughput at the end over that of `forget` with the same design and seed, if it ran.
    pub throughput_ratio: Option<f64>,
    /// The same of the throughput before the event.
    pub peak_throughput_ratio: Option<f64>,
    /// Length of the averaged parts.
    pub averaged_s: f64,
    /// The end of the run.
    #[serde(flatten)]
    pub steady: Level,
    /// The end of the part before the event.
    pub before: Level,
    /// What the devices did while the database was opened.
    pub recovery: Devices,
    /// The log.
    pub log: Log,
    /// The database.
    pub database: Database,
}

/// A steady level.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Level {
    /// New-Orders per minute, with TPC-C.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpmc: Option<f64>,
    /// Transactions of all types per second.
    pub transactions_per_s: f64,
    /// Memory.
    pub memory: Memory,
    /// The flash tier; zeroes if there is none.
    pub flash: Flash,
    /// The devices.
    pub devices: Devices,
}

/// The log.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Log {
    /// Bytes appended before the event.
    pub bytes: u64,
    /// Of them, those that recovery may need, when the event came.
    pub used_bytes: u64,
    /// Bytes appended after it, by recovery and clients.
    pub after_bytes: u64,
    /// Bytes appended for each transaction before the event.
    pub bytes_per_transaction: f64,
    /// Checkpoints before the event.
    pub checkpoints: u64,
    /// How long one took, on average, in seconds.
    pub checkpoint_s: f64,
    /// Of that, until the table of the flash had caught up.
    pub checkpoint_table_s: f64,
}

/// One window of a run, or all of the shutdown, or all of recovery.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RestartWindow {
    /// When it ended, since the clients began.
    pub t_s: f64,
    /// `before`, `stopping` (the last clients finish), `shutdown`, `recovery` or `after`.
    pub phase: &'static str,
    /// New-Orders per minute in it, with TPC-C.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpmc: Option<f64>,
    /// Transactions of all types per second in it.
    pub transactions_per_s: f64,
    /// Traffic of the home device; zeroes while the database is closed.
    pub home: Traffic,
    /// Traffic of the flash device.
    pub flash: Traffic,
    /// Traffic of the log device.
    pub log: Traffic,
    /// Share of slots that holds a page newer than home, at its end.
    pub dirty_share: f64,
    /// Share of slots that holds a page, at its end.
    pub used_share: f64,
}

impl RestartRun {
    /// A figure of the run: with several seeds its mean. `path` is as in the JSON, with dots.
    pub fn figure(&self, path: &str) -> Option<f64> {
        self.spread.figure(&self.figures, path)
    }

    /// The throughput that the workload counts, at the end: its name and its value.
    pub fn throughput(&self, of: &str) -> Option<f64> {
        let path = |name: &str| if of.is_empty() { name.into() } else { format!("{of}.{name}") };
        self.figure(&path("tpmc")).or_else(|| self.figure(&path("transactions_per_s")))
    }
}

impl Level {
    fn throughput(&self) -> f64 {
        self.tpmc.unwrap_or(self.transactions_per_s)
    }
}

/// Makes one run per pair of `by_seed`, where each seed has the same pairs in the same order:
/// forms ratios over `forget`, and with several seeds intervals.
pub fn combine(mut by_seed: Vec<Vec<RestartRun>>) -> Vec<RestartRun> {
    for runs in &mut by_seed {
        let bases: Vec<RestartRun> =
            runs.iter().filter(|run| run.restart == "forget").cloned().collect();
        for run in runs {
            let base = bases.iter().find(|base| base.design == run.design);
            let Some(base) = base.map(|base| &base.figures) else { continue };
            let own = &mut run.figures;
            own.throughput_ratio = ratio(own.steady.throughput(), base.steady.throughput());
            own.peak_throughput_ratio = ratio(own.before.throughput(), base.before.throughput());
            let intervals = base.peak_to_peak_s.zip(own.peak_to_peak_s);
            own.peak_to_peak_speedup = intervals.and_then(|(base, own)| ratio(base, own));
        }
    }
    let mut runs = by_seed.first().cloned().unwrap_or_default();
    for (at, run) in runs.iter_mut().enumerate() {
        run.spread = Spread::of(by_seed.iter().map(|runs| &runs[at].figures));
        let broken = by_seed.iter().map(|runs| &runs[at].checks).find(|c| c.is_broken());
        if let Some(broken) = broken {
            run.checks = broken.clone();
        }
    }
    runs
}

fn ratio(own: f64, base: f64) -> Option<f64> {
    (base > 0.0).then(|| rounded(own / base))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A run that looks like one, for tests of what is made from it.
    pub fn synthetic(design: &'static str, restart: &'static str, ramp_up_s: f64) -> RestartRun {
        let event_s = 60.0;
        let window = |at: u32| {
            let t_s = f64::from(at) * 0.6;
            let since = if t_s <= event_s { t_s } else { t_s - event_s - 3.0 };
            let tpmc = if since < 0.0 { 0.0 } else { 30_000.0 * (since / ramp_up_s).min(1.0) };
            let phase = if t_s <= event_s { "before" } else { "after" };
            let tpmc = Some(tpmc);
            RestartWindow { t_s: rounded(t_s), phase, tpmc, ..RestartWindow::default() }
        };
        let level = Level { tpmc: Some(30_000.0), ..Level::default() };
        RestartRun {
            design,
            restart,
            event: "shutdown".into(),
            figures: RestartFigures {
                shutdown_s: 2.5,
                recovery_s: 0.5,
                ramp_up_s: Some(ramp_up_s),
                peak_to_peak_s: Some(3.0 + ramp_up_s),
                steady: level.clone(),
                before: level,
                ..RestartFigures::default()
            },
            windows: (1..=200).map(window).collect(),
            checks: Checks { consistency: "ok".into() },
            host: RunHost::default(),
            spread: Spread::default(),
        }
    }

    #[test]
    fn ratios_are_over_forget_of_the_same_design_and_seed() {
        let runs = vec![
            synthetic("dw", "forget", 27.0),
            synthetic("dw", "lvr", 2.0),
            synthetic("lc", "lvr", 1.0),
        ];
        let runs = combine(vec![runs]);
        assert_eq!(runs[0].figures.peak_to_peak_speedup, Some(1.0));
        assert_eq!(runs[1].figures.peak_to_peak_speedup, Some(6.0));
        assert_eq!(runs[1].figures.throughput_ratio, Some(1.0));
        assert_eq!(runs[2].figures.throughput_ratio, None, "forget did not run with lc");
        assert!(runs[1].spread.mean.is_none());
    }

    #[test]
    fn several_seeds_add_intervals() {
        let seed = |ramp| vec![synthetic("dw", "forget", 27.0), synthetic("dw", "lvr", ramp)];
        let runs = combine(vec![seed(2.0), seed(1.5), seed(2.5)]);
        let (low, high) = runs[1].spread.ends("peak_to_peak_speedup").expect("three seeds");
        let mean = runs[1].figure("peak_to_peak_speedup").expect("a figure");
        assert!(low < mean && mean < high && (5.0..7.0).contains(&mean));
        assert_eq!(runs[1].figure("before.tpmc"), Some(30_000.0));
    }
}
