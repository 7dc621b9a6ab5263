//! What a flash tier of some design and size would do, by replay and the times of its devices.
//!
//! - E1: a gain is throughput over that of the best memory policy without flash.
//! - E2: the interval of a gain is that of its mean over windows of time and over samples; and
//!   where the tier was not full when counting began, it reaches up to the gain of a tier that
//!   serves every page's first use too, since the trace does not tell what of these a longer one
//!   would find there. It reaches down to the gain with all pages written home that the tier took
//!   changed and still kept at the end: a longer trace would write them.
//! - E3: wear is read twice: at the pace of the trace, and at the pace times the upper end of the
//!   gain by windows and samples, as clients that are served faster may ask for more. The second
//!   one counts.

use super::Setting;
use super::choice::keeps_order;
use super::seen::{Baseline, Seen};
use crate::interval::Interval;
use terrace_policy::{Design, MemoryPolicy, MemoryRule as DesignMemory};
use terrace_replay::tiers::{Cleaning, Flash, FlashSetup, Memory, MemoryRule};
use terrace_replay::{References, Sample, TierRates};

const DAY_S: f64 = 86_400.0;
const YEAR_DAYS: f64 = 365.25;
/// A gain of more is not told from this one: home is nearly idle then, and the load is limited by
/// what is not modelled.
pub const GAIN_TOLD_MAX: f64 = 10.0;

/// How much of the trace an estimate is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Small samples: enough to leave out what is not worth more.
    Coarse,
    /// All that is replayed.
    Full,
}

/// What one half of the trace tells.
#[derive(Clone, Copy, Debug)]
pub struct Half {
    pub gain: f64,
    /// Share of memory's misses that flash serves.
    pub hits: f64,
}

/// A design of a size.
pub struct Estimate {
    pub design: Design,
    pub slots: u32,
    pub stage: Stage,
    /// Share of the extents in each sample that it is from.
    pub rate: f64,
    /// How the memory above it chooses, if there is one.
    pub memory: Option<MemoryPolicy>,
    /// Means over the samples.
    pub rates: TierRates,
    /// Share of memory's misses that flash serves, with the error of sampling.
    pub hit_ratio: Interval,
    /// Throughput over that without flash, with the error of sampling.
    pub gain: Interval,
    /// Between which the gain is (E2).
    pub gain_range: [f64; 2],
    /// What the first half of the trace counts, and the second half.
    pub halves: Option<[Half; 2]>,
    /// Share of memory's misses that are first uses, if the tier was not full when counting began.
    pub unsettled: f64,
    /// References that each client makes until as many pages were used as memory and the tier hold;
    /// none if the trace ends before, or there is no trace.
    pub turnover: Option<f64>,
    /// Whether its hits can be told from the order of one record.
    pub keeps_order: bool,
    /// How full it was, by what was written there.
    pub filled: f64,
    /// Seconds that the devices are busy with each reference.
    pub home_s: f64,
    pub flash_s: f64,
    /// What the flash takes in a day, write amplification included, at the pace of the trace.
    pub flash_bytes_per_day: Option<f64>,
    /// Times a day that this is the drive's capacity.
    pub drive_writes_per_day: Option<f64>,
    /// Until the drive has taken what its maker lets it, at the pace of the trace.
    pub years: Option<f64>,
    /// The same at the pace times the upper end of the gain (E3).
    pub years_least: Option<f64>,
    /// Requests a second that home serves, at the pace of the trace.
    pub home_iops: Option<f64>,
    pub cost: Option<f64>,
}

/// The samples that one stage replays, and what memory alone does with them.
pub struct Replayed {
    pub samples: Vec<Sample>,
    pub baseline: Baseline,
    pub stage: Stage,
    /// Share of the extents in each sample.
    pub rate: f64,
}

impl Replayed {
    /// Replays without flash, under each policy that memory may have, and takes the best.
    pub fn new(setting: &Setting, samples: Vec<Sample>, stage: Stage, rate: f64) -> Replayed {
        let none = terrace_policy::designs::find("no-ssd").expect("the row of no flash");
        let seen = |policy: Option<MemoryPolicy>| {
            let (setup, memory) = (setup(setting, none, 1), setting.memory(policy));
            let all: Vec<_> = samples.iter().map(|sample| sample.replay(memory, &setup)).collect();
            Seen::of(&all, &setting.cuts, 1.0)
        };
        let mut all: Vec<(Option<MemoryPolicy>, Seen)> =
            setting.memory_policies().into_iter().map(|policy| (policy, seen(policy))).collect();
        let reached: Vec<f64> =
            all.iter().map(|(_, seen)| setting.throughput(&seen.rates())).collect();
        // The first is the engine's own: another has to be better to be taken.
        let best = (1..all.len())
            .filter(|&at| reached[at] >= POLICY_GAIN_MIN * reached[0])
            .max_by(|&a, &b| reached[a].total_cmp(&reached[b]).then(b.cmp(&a)))
            .unwrap_or(0);
        let others = (0..all.len())
            .filter_map(|at| all[at].0.map(|policy| (policy, reached[at] / reached[best])))
            .collect();
        let (policy, seen) = all.swap_remove(best);
        Replayed { samples, baseline: Baseline { policy, seen, others }, stage, rate }
    }

    /// The whole trace, for which memory without flash is under `policy`.
    pub fn whole(
        setting: &Setting,
        references: References,
        policy: Option<MemoryPolicy>,
    ) -> Replayed {
        let none = terrace_policy::designs::find("no-ssd").expect("the row of no flash");
        let sample = Sample::whole(references, &setting.cuts.marks);
        let all = [sample.replay(setting.memory(policy), &setup(setting, none, 1))];
        let seen = Seen::of(&all, &setting.cuts, 1.0);
        let baseline = Baseline { policy, seen, others: Vec::new() };
        Replayed { samples: vec![sample], baseline, stage: Stage::Full, rate: 1.0 }
    }

    /// Replays `design` with the given number of slots.
    pub fn estimate(&self, setting: &Setting, (design, slots): (Design, u32)) -> Estimate {
        let policy = setting.policy_of(&design, self.baseline.policy);
        let (setup, memory) = (setup(setting, design, slots), setting.memory(policy));
        let all: Vec<_> = self.samples.iter().map(|one| one.replay(memory, &setup)).collect();
        let seen = Seen::of(&all, &setting.cuts, f64::from(slots) * self.rate);
        let of = (design, slots, policy);
        let (stage, rate) = (self.stage, self.rate);
        let pages = u64::from(setting.frames) + u64::from(slots);
        let turnovers =
            self.samples.iter().map(|one| one.turnover(pages, setting.cuts.counted.start));
        let turnovers: Option<Vec<f64>> = turnovers.collect();
        let turnover = turnovers.map(|all| {
            let count = all.len() as f64 * f64::from(setting.clients.max(1));
            all.iter().sum::<f64>() / count
        });
        let keeps_order = keeps_order(self.baseline.after_change_share(), turnover);
        let estimate = Estimate::new(setting, &self.baseline, of, &seen);
        Estimate { stage, rate, turnover, keeps_order, ..estimate }
    }
}

/// Another policy of memory is taken for the best without flash if it serves more by this.
const POLICY_GAIN_MIN: f64 = 1.02;

impl Setting {
    /// Memory under `policy`, if there is one.
    fn memory(&self, policy: Option<MemoryPolicy>) -> Memory {
        let rule = policy.map(|policy| (MemoryRule::Pool(policy), self.frames));
        let outstanding = self.clients;
        Memory { policy: rule, near_is_sequential: false, outstanding, counted_from: 0 }
    }

    /// How memory may choose without flash: as was asked for, or in any way. The engine's own way
    /// comes first.
    fn memory_policies(&self) -> Vec<Option<MemoryPolicy>> {
        match (self.has_memory, self.memory_policy) {
            (false, _) => vec![None],
            (true, Some(asked)) => vec![Some(asked)],
            (true, None) => terrace_policy::MEMORY_POLICIES.iter().map(|row| Some(row.1)).collect(),
        }
    }

    /// How memory above the flash of `design` chooses: as was asked for, else as the design says,
    /// else as is `best` without flash.
    fn policy_of(&self, design: &Design, best: Option<MemoryPolicy>) -> Option<MemoryPolicy> {
        match (design.memory, self.memory_policy) {
            _ if !self.has_memory => None,
            (_, Some(asked)) => Some(asked),
            (DesignMemory::Prefers(own), None) => Some(own),
            (DesignMemory::Any, None) => best,
        }
    }

    /// Of a month, as far as prices are given.
    pub fn cost(&self, slots: u32, home_iops: Option<f64>) -> Option<f64> {
        let prices = &self.prices;
        let gib = |pages: u32| f64::from(pages) * self.page_bytes as f64 / f64::from(1 << 30);
        let parts = [
            prices.price_flash.map(|price| price * gib(slots)),
            prices.price_memory.map(|price| price * gib(self.frames)),
            prices.price_home.map(|price| price * gib(self.pages)),
            prices.price_iops.zip(home_iops).map(|(price, iops)| price * iops),
        ];
        parts.into_iter().flatten().reduce(|sum, part| sum + part)
    }
}

impl Estimate {
    /// Of `design` with the given number of slots below memory of some policy.
    pub fn new(
        setting: &Setting,
        baseline: &Baseline,
        (design, slots, memory): (Design, u32, Option<MemoryPolicy>),
        seen: &Seen,
    ) -> Estimate {
        let gains = baseline.gains(setting, seen);
        let hit_ratios: Vec<f64> = seen.samples.iter().map(TierRates::flash_hit_ratio).collect();
        let (rates, gain) = (seen.rates(), Interval::of(&gains.samples));
        // What takes no unchanged pages has none of those that are read for the first time.
        let is_full = seen.written_before >= 1.0 || !design.takes_clean_pages();
        let misses = rates.memory_misses.max(f64::MIN_POSITIVE);
        let unsettled = if is_full { 0.0 } else { (rates.first_uses / misses).min(1.0) };
        let [low, high] = range(&gain, &gains.windows);
        // The same share of the gain is lost at its lower end.
        let written = baseline.gain_if_written(setting, &rates) / gain.mean;
        let low = low * written.min(1.0);
        let reused = if is_full { high } else { baseline.gain_if_reused(setting, &rates) };
        let wear = Wear::new(setting, &rates, slots, high);
        let pace = setting.pace();
        let home_iops = pace.map(|pace| pace * (rates.home.reads + rates.home.writes));
        Estimate {
            design,
            slots,
            stage: Stage::Full,
            rate: 1.0,
            memory,
            hit_ratio: Interval::of(&hit_ratios),
            gain,
            gain_range: [low, high.max(reused)],
            halves: gains.halves,
            unsettled,
            turnover: None,
            keeps_order: true,
            filled: seen.written_before.min(1.0),
            home_s: rates.home.time_s(&setting.home),
            flash_s: rates.flash.time_s(&setting.flash),
            rates,
            flash_bytes_per_day: wear.bytes_per_day,
            drive_writes_per_day: wear.drive_writes_per_day,
            years: wear.years,
            years_least: wear.years_least,
            home_iops,
            cost: setting.cost(slots, home_iops),
        }
    }

    /// Whether the drive lasts for `years` years by the worst reading, as far as that is known.
    pub fn lasts(&self, years: f64) -> bool {
        self.years_least.is_none_or(|lasts| lasts >= years)
    }
}

/// Where the gain is by samples and windows (E2).
fn range(gain: &Interval, windows: &[f64]) -> [f64; 2] {
    let half = |interval: Interval| interval.high - interval.mean;
    let width = half(*gain).hypot(half(Interval::of(windows)));
    [(gain.mean - width).max(0.0), gain.mean + width]
}

/// What a tier does to its drive.
struct Wear {
    bytes_per_day: Option<f64>,
    drive_writes_per_day: Option<f64>,
    years: Option<f64>,
    years_least: Option<f64>,
}

impl Wear {
    fn new(setting: &Setting, rates: &TierRates, slots: u32, gain_most: f64) -> Wear {
        let page = setting.page_bytes as f64;
        let written = rates.flash.writes * page * setting.flash.write_amplification * DAY_S;
        let bytes_per_day = setting.pace().map(|pace| written * pace);
        let drive_pages = setting.drive_pages.unwrap_or(slots.max(setting.drive_pages_min));
        let drive_bytes = f64::from(drive_pages) * page;
        let drive_writes_per_day = bytes_per_day.map(|bytes| bytes / drive_bytes);
        let may = setting.drive_writes_per_day.map(|times| times * setting.warranty_years);
        let years = may.zip(drive_writes_per_day).map(|(may, day)| may / day.max(1e-12));
        let faster = gain_most.clamp(1.0, GAIN_TOLD_MAX);
        let years_least = years.map(|years| years / faster);
        Wear { bytes_per_day, drive_writes_per_day, years, years_least }
    }
}

fn setup(setting: &Setting, design: Design, slots: u32) -> FlashSetup {
    let setup = FlashSetup::new(Flash::Design(design), slots, setting.seed);
    FlashSetup {
        cleaning: Cleaning { lambda: setting.lambda, ..setup.cleaning },
        costs: setting.costs,
        busy: setting.home.busy_beside(&setting.flash),
        home_array: setting.home_array,
        ..setup
    }
}

/// Years as people say them.
pub fn years_text(years: f64) -> String {
    match years {
        years if years >= 100.0 => "more than 100 years".into(),
        years if years >= 2.0 => format!("{years:.0} years"),
        years if years >= 2.0 / 12.0 => format!("{:.0} months", years * 12.0),
        years if years * YEAR_DAYS >= 1.5 => format!("{:.0} days", years * YEAR_DAYS),
        _ => "a day".into(),
    }
}
