//! What a flash tier of some design and size would do, by replay and the times of its devices.

use super::Setting;
use crate::interval::Interval;
use terrace_policy::Design;
use terrace_replay::tiers::{Cleaning, Flash, FlashSetup, Memory, MemoryRule};
use terrace_replay::{Sample, TierRates, throughput};

/// Nothing takes less time than this for each reference: what memory always serves.
const DEMAND_MIN_S: f64 = 1e-9;
const DAY_S: f64 = 86_400.0;
const YEAR_DAYS: f64 = 365.25;

/// A design of a size.
pub struct Estimate {
    pub design: Design,
    pub slots: u32,
    /// Means over the samples.
    pub rates: TierRates,
    /// Share of memory's misses that flash serves.
    pub hit_ratio: Interval,
    /// Throughput over that without flash.
    pub gain: Interval,
    /// Seconds that the devices are busy with each reference.
    pub home_s: f64,
    pub flash_s: f64,
    /// What the flash takes in a day, write amplification included, at the pace of the trace.
    pub flash_bytes_per_day: Option<f64>,
    /// Times a day that this is the drive's capacity.
    pub drive_writes_per_day: Option<f64>,
    /// Until the drive has taken what its maker lets it.
    pub years: Option<f64>,
    /// Requests a second that home serves, at the pace of the trace.
    pub home_iops: Option<f64>,
    pub cost: Option<f64>,
}

/// What every sample does without flash.
pub struct Baseline {
    rates: Vec<TierRates>,
    throughputs: Vec<f64>,
}

impl Baseline {
    /// Replays without flash.
    pub fn new(setting: &Setting, samples: &[Sample]) -> Baseline {
        let none = terrace_policy::designs::find("no-ssd").expect("the row of no flash");
        let (setup, memory) = (setup(setting, none, 1), setting.memory(&none));
        let rates: Vec<TierRates> =
            samples.iter().map(|sample| sample.rates(memory, &setup)).collect();
        Baseline::of(setting, rates)
    }

    /// As `rates` has it.
    pub fn of(setting: &Setting, rates: Vec<TierRates>) -> Baseline {
        let throughputs = rates.iter().map(|rates| setting.throughput(rates)).collect();
        Baseline { rates, throughputs }
    }

    /// The means.
    pub fn rates(&self) -> TierRates {
        mean(&self.rates)
    }
}

/// Replays `design` with the given number of slots.
pub fn estimate(
    setting: &Setting,
    samples: &[Sample],
    baseline: &Baseline,
    (design, slots): (Design, u32),
) -> Estimate {
    let (setup, memory) = (setup(setting, design, slots), setting.memory(&design));
    let all: Vec<TierRates> = samples.iter().map(|sample| sample.rates(memory, &setup)).collect();
    Estimate::new(setting, baseline, (design, slots), &all)
}

impl Setting {
    /// Memory above the flash of `design`.
    fn memory(&self, design: &Design) -> Memory {
        let rule = MemoryRule::Pool(design.memory.policy(self.memory_policy));
        let (policy, outstanding) = (self.has_memory.then_some((rule, self.frames)), self.clients);
        Memory { policy, near_is_sequential: false, outstanding, counted_from: 0 }
    }

    /// References a second.
    fn throughput(&self, rates: &TierRates) -> f64 {
        let home = rates.home.time_s(&self.home);
        let flash = rates.flash.time_s(&self.flash);
        throughput(&[home.max(DEMAND_MIN_S), flash.max(DEMAND_MIN_S)], self.clients)
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
    /// Of `design` with the given number of slots, which does as `all` samples say.
    pub fn new(
        setting: &Setting,
        baseline: &Baseline,
        (design, slots): (Design, u32),
        all: &[TierRates],
    ) -> Estimate {
        let gains: Vec<f64> = all
            .iter()
            .zip(&baseline.throughputs)
            .map(|(rates, without)| setting.throughput(rates) / without)
            .collect();
        let hit_ratios: Vec<f64> = all.iter().map(TierRates::flash_hit_ratio).collect();
        let rates = mean(all);
        let pace = setting.references_per_s;
        let page = setting.page_bytes as f64;
        let written = rates.flash.writes * page * setting.flash.write_amplification * DAY_S;
        let flash_bytes_per_day = pace.map(|pace| written * pace);
        let drive_pages = setting.drive_pages.unwrap_or(slots.max(setting.drive_pages_min));
        let drive_bytes = f64::from(drive_pages) * page;
        let drive_writes_per_day = flash_bytes_per_day.map(|bytes| bytes / drive_bytes);
        let may = setting.drive_writes_per_day.map(|times| times * setting.warranty_years);
        let years = may.zip(drive_writes_per_day).map(|(may, day)| may / day.max(1e-12));
        let home_iops = pace.map(|pace| pace * (rates.home.reads + rates.home.writes));
        Estimate {
            design,
            slots,
            hit_ratio: Interval::of(&hit_ratios),
            gain: Interval::of(&gains),
            home_s: rates.home.time_s(&setting.home),
            flash_s: rates.flash.time_s(&setting.flash),
            rates,
            flash_bytes_per_day,
            drive_writes_per_day,
            years,
            home_iops,
            cost: setting.cost(slots, home_iops),
        }
    }

    /// Whether the drive lasts for `years` years, as far as that is known.
    pub fn lasts(&self, years: f64) -> bool {
        self.years.is_none_or(|lasts| lasts >= years)
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

fn mean(all: &[TierRates]) -> TierRates {
    let count = all.len() as f64;
    let mut mean = TierRates::default();
    for rates in all {
        mean.memory_misses += rates.memory_misses / count;
        mean.flash_hits += rates.flash_hits / count;
        for (mean, one) in [(&mut mean.home, &rates.home), (&mut mean.flash, &rates.flash)] {
            mean.reads += one.reads / count;
            mean.sequential_reads += one.sequential_reads / count;
            mean.writes += one.writes / count;
            mean.sequential_writes += one.sequential_writes / count;
            mean.run_writes += one.run_writes / count;
        }
    }
    mean
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
