//! What `terrace bench` prints as JSON, and what table and report are made from.
//!
//! - J1: fields are added, never renamed, and keep their types.
//! - J2: what depends on the machine stands in `host` objects only: all else is the same bytes for
//!   the same seed.
//! - J3: rates, ratios and counts of requests are over the averaging window, whose length is
//!   `averaged_s`; gauges (shares, sizes) are as of the end of the run; `windows` cover all of it.

use crate::interval;
use crate::output::{Stopwatch, cores, peak_memory_bytes};
use serde::Serialize;
use serde_json::{Map, Value};

/// The object that a bench prints.
#[derive(Clone, Debug, Serialize)]
pub struct Bench<R = Run> {
    /// The command, without its options.
    pub command: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// The first seed.
    pub seed: u64,
    /// Every parameter by name, defaults included.
    pub parameters: Map<String, Value>,
    /// What depends on the machine.
    pub host: Host,
    /// One for each design.
    pub runs: Vec<R>,
    /// With several seeds: how much faster each design is than each before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<Pair>,
}

/// What depends on the machine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Host {
    /// Time that the command took, in seconds.
    pub wall_s: f64,
    /// Of it, time to load the database.
    pub load_wall_s: f64,
    /// Most memory that the process had at once.
    pub peak_memory_bytes: u64,
    /// Cores of the machine.
    pub cores: u64,
}

impl Host {
    /// As of now, for a command that `watch` has timed from its start.
    pub fn of(watch: &Stopwatch, load_wall_s: f64) -> Host {
        Host {
            wall_s: watch.seconds(),
            load_wall_s,
            peak_memory_bytes: peak_memory_bytes(),
            cores: cores(),
        }
    }
}

/// What depends on the machine, for one run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RunHost {
    /// Time that the run took, in seconds.
    pub wall_s: f64,
    /// Events of the virtual world in each second of it; absent in the real world.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_per_s: Option<f64>,
}

/// One design's run; with several seeds the first, and the interval of all beside it.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Name of the design.
    pub design: &'static str,
    /// What of the flash is found again when the database is next opened.
    pub restart: &'static str,
    /// All that is one number, or an object of numbers.
    #[serde(flatten)]
    pub figures: Figures,
    /// Throughput and traffic over time.
    pub windows: Vec<Window>,
    /// What was checked.
    pub checks: Checks,
    /// Pages compared with themselves, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_rates: Option<PageRates>,
    /// What depends on the machine.
    pub host: RunHost,
    /// With several seeds: the intervals.
    #[serde(flatten)]
    pub spread: Spread,
}

/// How pages were asked for while they had a slot on flash, and while they had none.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PageRates {
    /// Pages that were in both states for a tenth of the time, as far as they were asked for.
    pub pages: u64,
    /// Reads from a device a second.
    pub reads: Compared,
    /// Reads from a device for each request of memory.
    pub misses: Compared,
    /// Writes to a device a second.
    pub writes: Compared,
}

/// Pages with a higher rate in one state than in the other.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Compared {
    /// With a slot.
    pub higher_on_flash: u64,
    /// Without.
    pub higher_elsewhere: u64,
    /// With a slot, of both.
    pub share: f64,
}

/// The 95% intervals of a run's figures over several seeds; nothing with one seed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Spread {
    /// The mean of each figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<Value>,
    /// The lower end of its 95% interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<Value>,
    /// The upper end of its 95% interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<Value>,
    /// How many seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seeds: Option<u64>,
}

impl Spread {
    /// The intervals of `figures`, one object for each seed.
    pub fn of<F: Serialize>(figures: impl IntoIterator<Item = F>) -> Spread {
        let samples: Vec<Value> = figures.into_iter().map(|figures| value_of(&figures)).collect();
        if samples.len() < 2 {
            return Spread::default();
        }
        let [mean, low, high] = interval::of_objects(&samples).map(Some);
        Spread { mean, low, high, seeds: Some(samples.len() as u64) }
    }

    /// One of `figures`, or with several seeds its mean. `path` is as in the JSON, with dots.
    pub fn figure(&self, figures: &impl Serialize, path: &str) -> Option<f64> {
        match &self.mean {
            Some(mean) => lookup(mean, path),
            None => lookup(&value_of(figures), path),
        }
    }

    /// The 95% interval of a figure, with several seeds.
    pub fn ends(&self, path: &str) -> Option<(f64, f64)> {
        Some((lookup(self.low.as_ref()?, path)?, lookup(self.high.as_ref()?, path)?))
    }
}

fn value_of(figures: &impl Serialize) -> Value {
    serde_json::to_value(figures).expect("figures are numbers")
}

/// The figures of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// New-Orders per minute.
    pub tpmc: f64,
    /// Transactions of all types per second.
    pub transactions_per_s: f64,
    /// `tpmc` over that of `no-ssd` with the same seed, if it ran.
    pub speedup: Option<f64>,
    /// Length of the averaging window.
    pub averaged_s: f64,
    /// Memory.
    pub memory: Memory,
    /// The flash tier; zeroes if there is none.
    pub flash: Flash,
    /// The devices.
    pub devices: Devices,
    /// The lazy cleaner.
    pub cleaner: Cleaner,
    /// The database.
    pub database: Database,
    /// Transactions by type, over the whole run.
    pub transactions: Transactions,
}

/// Memory.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Memory {
    /// Share of page requests that memory served.
    pub hit_ratio: f64,
    /// Frames.
    pub frames: u64,
}

/// The flash tier.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Flash {
    /// Share of memory misses that flash served.
    pub hit_ratio: f64,
    /// Share of those on pages newer than home.
    pub dirty_hit_share: f64,
    /// Pages that the tier can hold.
    pub slots: u64,
    /// Share of them that holds a page.
    pub used_share: f64,
    /// Share of them that holds a page newer than home.
    pub dirty_share: f64,
    /// Share of them that holds a page that is no longer current.
    pub invalid_share: f64,
    /// Pages read for memory misses.
    pub reads: u64,
    /// Pages written.
    pub writes: u64,
    /// Memory for the tier, by slot: all structures, as allocated.
    pub metadata_bytes_per_slot: u64,
    /// Pages not admitted for their class or temperature.
    pub bypassed_by_policy: u64,
    /// Pages not admitted because of the queue at the device.
    pub bypassed_by_throttle: u64,
    /// Pages not admitted because the day's share of writes to flash was spent.
    pub bypassed_by_budget: u64,
    /// Pages not admitted because no slot was free or clean.
    pub bypassed_for_room: u64,
    /// Reads of pages on flash that home served, as the flash was busier.
    pub spilled_reads: u64,
    /// Asynchronous writes given up because the page was changed first (TAC).
    pub tac_abandoned: u64,
}

/// The devices.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Devices {
    /// The permanent home.
    pub home: Device,
    /// The flash tier.
    pub flash: Device,
    /// The log.
    pub log: Device,
}

/// A device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Device {
    /// Share of the time that it was busy, the mean over its members.
    pub utilisation: f64,
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes that flash took for each of them; 0 if the device does not tell.
    pub write_amplification: f64,
}

/// The lazy cleaner.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cleaner {
    /// Writes to home per second.
    pub ios_per_s: f64,
    /// Pages in each of them.
    pub pages_per_io: f64,
}

/// The database.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Database {
    /// Pages when loaded.
    pub loaded_pages: u64,
    /// Pages at the end of the run.
    pub pages: u64,
}

/// The transactions by type.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Transactions {
    /// New-Order.
    pub new_order: Transaction,
    /// Payment.
    pub payment: Transaction,
    /// Order-Status.
    pub order_status: Transaction,
    /// Delivery.
    pub delivery: Transaction,
    /// Stock-Level.
    pub stock_level: Transaction,
}

/// One type of transaction.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Transaction {
    /// Committed.
    pub committed: u64,
    /// Rolled back on purpose.
    pub rolled_back: u64,
    /// Run again after a conflict.
    pub conflicts: u64,
    /// Median latency.
    pub p50_ms: f64,
    /// Latency that 95 of 100 are below.
    pub p95_ms: f64,
    /// Latency that 99 of 100 are below.
    pub p99_ms: f64,
}

/// What was checked after the run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Checks {
    /// The twelve consistency conditions: `ok`, `unchecked`, or what is broken.
    pub consistency: String,
}

/// One window of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Window {
    /// When it ended.
    pub t_s: f64,
    /// New-Orders per minute in it.
    pub tpmc: f64,
    /// Traffic of the home device.
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

/// Traffic of a device in a window.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Traffic {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Share of the window that it was busy.
    pub utilisation: f64,
}

/// How much faster one design is than another: the ratio of `tpmc`, formed for each seed.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// Name of the one.
    pub design: &'static str,
    /// Name of the other.
    pub over: &'static str,
    /// Mean of the ratios.
    pub mean: f64,
    /// Lower end of its 95% interval.
    pub low: f64,
    /// Upper end of its 95% interval.
    pub high: f64,
}

/// Makes one run per design of `by_seed`, where each seed has the same designs in the same order:
/// forms speedups, and with several seeds intervals and pairs.
pub fn combine(mut by_seed: Vec<Vec<Run>>) -> (Vec<Run>, Vec<Pair>) {
    for runs in &mut by_seed {
        let base = runs.iter().find(|run| run.design == "no-ssd").map(|run| run.figures.tpmc);
        for run in runs {
            let ratio =
                |base: f64| (base > 0.0).then(|| interval::rounded(run.figures.tpmc / base));
            run.figures.speedup = base.and_then(ratio);
        }
    }
    let mut runs = by_seed.first().cloned().unwrap_or_default();
    if by_seed.len() < 2 {
        return (runs, Vec::new());
    }
    for (at, run) in runs.iter_mut().enumerate() {
        run.spread = Spread::of(by_seed.iter().map(|runs| &runs[at].figures));
        let broken = by_seed.iter().map(|runs| &runs[at].checks).find(|c| c.is_broken());
        if let Some(broken) = broken {
            run.checks = broken.clone();
        }
    }
    let pairs = pairs(&by_seed);
    (runs, pairs)
}

fn pairs(by_seed: &[Vec<Run>]) -> Vec<Pair> {
    let designs: Vec<&'static str> = by_seed[0].iter().map(|run| run.design).collect();
    let mut pairs = Vec::new();
    for (at, design) in designs.iter().enumerate() {
        for (before, over) in designs[..at].iter().enumerate() {
            let tpmc = |runs: &[Run], at: usize| runs[at].figures.tpmc;
            if by_seed.iter().any(|runs| tpmc(runs, before) <= 0.0) {
                continue;
            }
            let ratios: Vec<f64> =
                by_seed.iter().map(|runs| tpmc(runs, at) / tpmc(runs, before)).collect();
            let interval = interval::Interval::of(&ratios);
            let [mean, low, high] =
                [interval.mean, interval.low, interval.high].map(interval::rounded);
            pairs.push(Pair { design, over, mean, low, high });
        }
    }
    pairs
}

impl Checks {
    /// Whether a check found something wrong.
    pub fn is_broken(&self) -> bool {
        !matches!(self.consistency.as_str(), "ok" | "unchecked")
    }
}

impl Run {
    /// A figure of the run: with several seeds its mean. `path` is as in the JSON, with dots.
    pub fn figure(&self, path: &str) -> Option<f64> {
        self.spread.figure(&self.figures, path)
    }

    /// The 95% interval of a figure, with several seeds.
    pub fn ends(&self, path: &str) -> Option<(f64, f64)> {
        self.spread.ends(path)
    }
}

fn lookup(object: &Value, path: &str) -> Option<f64> {
    path.split('.').try_fold(object, |value, name| value.get(name))?.as_f64()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A run that looks like one, for tests of what is made from it.
    pub fn synthetic(design: &'static str, level: f64, seed: u64) -> Run {
        let mut prng = (seed ^ level.to_bits()).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut noise = || {
            prng ^= prng << 13;
            prng ^= prng >> 7;
            prng ^= prng << 17;
            (prng % 1_000) as f64 / 1_000.0 - 0.5
        };
        let windows = (1..=100)
            .map(|at| {
                let warm = 1.0 - (-f64::from(at) / 18.0).exp();
                let tpmc = level * (0.12 + 0.88 * warm) * (1.0 + 0.07 * noise());
                let mut bytes = |mb: f64| (mb * 1e6 * 3.6 * (1.0 + 0.1 * noise())) as u64;
                let flash = if design == "no-ssd" { 0.0 } else { 1.0 };
                Window {
                    t_s: interval::rounded(f64::from(at) * 3.6),
                    tpmc: interval::rounded(tpmc),
                    home: Traffic {
                        read_bytes: bytes(6.0),
                        written_bytes: bytes(4.0),
                        utilisation: 0.9,
                    },
                    flash: Traffic {
                        read_bytes: bytes(60.0 * flash * warm * level / 20_000.0),
                        written_bytes: bytes(25.0 * flash),
                        utilisation: flash * warm,
                    },
                    log: Traffic {
                        read_bytes: 0,
                        written_bytes: bytes(level / 9_000.0),
                        utilisation: 0.3,
                    },
                    dirty_share: 0.5 * warm * flash,
                    used_share: warm * flash,
                }
            })
            .collect();
        let figures = Figures {
            tpmc: level * (1.0 + 0.02 * noise()),
            transactions_per_s: level / 27.0,
            averaged_s: 36.0,
            ..Figures::default()
        };
        Run {
            design,
            restart: "forget",
            figures,
            windows,
            checks: Checks { consistency: "ok".into() },
            page_rates: None,
            host: RunHost::default(),
            spread: Spread::default(),
        }
    }

    #[test]
    fn speedups_are_over_no_ssd_of_the_same_seed() {
        let (runs, pairs) =
            combine(vec![vec![synthetic("no-ssd", 1_000.0, 1), synthetic("lc", 9_000.0, 1)]]);
        assert_eq!(runs[0].figures.speedup, Some(1.0));
        let expected = interval::rounded(runs[1].figures.tpmc / runs[0].figures.tpmc);
        assert_eq!(runs[1].figures.speedup, Some(expected));
        assert!(pairs.is_empty());
        assert!(runs[1].spread.mean.is_none());
        let (alone, _) = combine(vec![vec![synthetic("lc", 9_000.0, 1)]]);
        assert_eq!(alone[0].figures.speedup, None);
    }

    #[test]
    fn several_seeds_add_intervals_and_pairs() {
        let seed = |seed| vec![synthetic("no-ssd", 1_000.0, seed), synthetic("lc", 9_000.0, seed)];
        let (runs, pairs) = combine((1..=8).map(seed).collect());
        let lc = serde_json::to_value(&runs[1]).unwrap();
        assert_eq!(lc["seeds"], 8);
        assert!(lc["low"]["tpmc"].as_f64() < lc["mean"]["tpmc"].as_f64());
        assert!(lc["mean"]["speedup"].as_f64() < lc["high"]["speedup"].as_f64());
        assert!(lc["mean"]["devices"]["home"]["utilisation"].is_f64());
        assert_eq!((pairs.len(), pairs[0].design, pairs[0].over), (1, "lc", "no-ssd"));
        assert!((8.5..9.5).contains(&pairs[0].mean), "{:?}", pairs[0]);
    }

    #[test]
    fn the_fields_that_scripts_read_are_there() {
        let (runs, pairs) = combine(vec![vec![synthetic("no-ssd", 1_000.0, 1)]]);
        let bench = Bench {
            command: "bench tpcc",
            version: "0",
            seed: 1,
            parameters: Map::new(),
            host: Host::default(),
            runs,
            pairs,
        };
        let json = serde_json::to_value(&bench).unwrap();
        for field in ["command", "version", "seed", "parameters", "host", "runs"] {
            assert!(json.get(field).is_some(), "{field}");
        }
        for path in [
            "/design",
            "/restart",
            "/tpmc",
            "/transactions_per_s",
            "/speedup",
            "/windows/0/t_s",
            "/windows/0/tpmc",
            "/memory/hit_ratio",
            "/flash/hit_ratio",
            "/flash/dirty_hit_share",
            "/flash/slots",
            "/flash/used_share",
            "/flash/dirty_share",
            "/flash/invalid_share",
            "/flash/reads",
            "/flash/writes",
            "/flash/metadata_bytes_per_slot",
            "/devices/home/utilisation",
            "/devices/home/reads",
            "/devices/home/writes",
            "/devices/home/read_bytes",
            "/devices/home/written_bytes",
            "/devices/flash/write_amplification",
            "/devices/flash/utilisation",
            "/devices/log/utilisation",
            "/checks/consistency",
        ] {
            assert!(json["runs"][0].pointer(path).is_some(), "{path}");
        }
    }
}
