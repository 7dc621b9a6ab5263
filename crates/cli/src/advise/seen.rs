//! What replays saw of a design of some size, and of memory alone: means, by sample, and by window
//! of time.

use super::Setting;
use super::choice::Counted;
use super::estimate::Half;
use super::time::Cuts;
use terrace_policy::MemoryPolicy;
use terrace_replay::{Stretches, TierRates};

/// What was seen.
pub struct Seen {
    /// Of what is counted, by sample.
    pub samples: Vec<TierRates>,
    /// By window of time, means over the samples.
    pub windows: Vec<TierRates>,
    /// In what the first half of the trace counts, and in the second half.
    pub halves: Option<[TierRates; 2]>,
    /// Misses of memory that were counted, in all samples, of pages that were used before.
    pub reused_misses: u64,
    /// Pages written to flash before anything was counted, in all samples, as a share of the slots
    /// of one.
    pub written_before: f64,
}

impl Seen {
    /// By the `stretches` of each sample, of a tier of `slots` slots, of which a sample has the
    /// share `rate`.
    pub fn of(stretches: &[Stretches], cuts: &Cuts, slots: f64) -> Seen {
        let mean_of = |range: &std::ops::Range<usize>| {
            let all: Vec<TierRates> =
                stretches.iter().map(|sample| sample.rates(range.clone())).collect();
            mean(&all)
        };
        let counted = || stretches.iter().map(|sample| sample.rates(cuts.counted.clone()));
        let reused = |sample: &Stretches| {
            let counts = sample.counts(cuts.counted.clone());
            let missed = counts.requests - counts.memory_hits;
            missed.saturating_sub(sample.first_uses(cuts.counted.clone()))
        };
        let before = stretches.iter().map(|sample| sample.before(cuts.counted.start).flash.writes);
        let written = before.sum::<u64>() as f64 / stretches.len() as f64;
        Seen {
            samples: counted().collect(),
            windows: cuts.windows.iter().map(mean_of).collect(),
            halves: cuts.learnt.as_ref().map(|learnt| [mean_of(learnt), mean_of(&cuts.tried)]),
            reused_misses: stretches.iter().map(reused).sum(),
            written_before: written / slots.max(1.0),
        }
    }

    /// Without windows: from counts of another kind, of which `misses` are counted, of a tier that
    /// is full.
    pub fn of_rates(rates: TierRates, misses: u64) -> Seen {
        Seen {
            samples: vec![rates],
            windows: vec![rates],
            halves: None,
            reused_misses: misses,
            written_before: 1.0,
        }
    }

    /// Means of what is counted.
    pub fn rates(&self) -> TierRates {
        mean(&self.samples)
    }
}

/// What memory alone does: what a tier is compared with.
pub struct Baseline {
    /// How memory chooses, if a memory was replayed.
    pub policy: Option<MemoryPolicy>,
    pub seen: Seen,
    /// References a second that every other policy tried would reach over what this one does.
    pub others: Vec<(MemoryPolicy, f64)>,
}

/// Throughput over that without flash, by the same parts.
pub struct Gains {
    pub samples: Vec<f64>,
    pub windows: Vec<f64>,
    pub halves: Option<[Half; 2]>,
}

impl Baseline {
    /// Share of the pages that memory lacks which scans announce, and which are read ahead.
    pub fn ahead_share(&self) -> f64 {
        let rates = self.seen.rates();
        if rates.memory_misses > 0.0 { rates.ahead / rates.memory_misses } else { 0.0 }
    }

    /// Of the counted misses of pages that were used before, the share of those that had been
    /// changed in memory when they left it last.
    pub fn after_change_share(&self) -> f64 {
        let rates = self.seen.rates();
        let reused = rates.memory_misses - rates.first_uses;
        if reused > 0.0 { (rates.after_change / reused).min(1.0) } else { 0.0 }
    }

    /// What a choice needs to know of the load.
    pub fn counted(&self) -> Counted {
        Counted { misses: self.seen.reused_misses, ahead: self.ahead_share() }
    }

    /// The gains of what was `seen`.
    pub fn gains(&self, setting: &Setting, seen: &Seen) -> Gains {
        let ratio = |with: &TierRates, without: &TierRates| {
            setting.throughput(with) / setting.throughput(without)
        };
        let ratios = |with: &[TierRates], without: &[TierRates]| {
            with.iter().zip(without).map(|(with, without)| ratio(with, without)).collect()
        };
        let halves = seen.halves.as_ref().zip(self.seen.halves.as_ref());
        let half = |with: &TierRates, without: &TierRates| Half {
            gain: ratio(with, without),
            hits: with.flash_hit_ratio(),
        };
        Gains {
            samples: ratios(&seen.samples, &self.seen.samples),
            windows: ratios(&seen.windows, &self.seen.windows),
            halves: halves.map(|(with, without)| [0, 1].map(|at| half(&with[at], &without[at]))),
        }
    }

    /// The gain if what flash took changed, and kept to the end, had been written home in time.
    pub fn gain_if_written(&self, setting: &Setting, rates: &TierRates) -> f64 {
        let mut with = *rates;
        with.home.writes += rates.deferred;
        setting.throughput(&with) / setting.throughput(&self.seen.rates())
    }

    /// The gain if the first uses of pages, which no tier can have within this trace, had been
    /// served by flash: the most that a tier comes to which was never full.
    pub fn gain_if_reused(&self, setting: &Setting, rates: &TierRates) -> f64 {
        let moved = rates.first_uses.min(rates.home.reads);
        let mut with = *rates;
        with.flash_hits += moved;
        with.flash.reads += moved;
        with.home.reads -= moved;
        with.home.sequential_reads = with.home.sequential_reads.min(with.home.reads);
        with.home.run_reads = with.home.run_reads.min(with.home.sequential_reads);
        setting.throughput(&with) / setting.throughput(&self.seen.rates())
    }
}

/// The mean of `all`.
pub fn mean(all: &[TierRates]) -> TierRates {
    let count = all.len() as f64;
    let mut mean = TierRates::default();
    for rates in all {
        mean.memory_misses += rates.memory_misses / count;
        mean.ahead += rates.ahead / count;
        mean.after_change += rates.after_change / count;
        mean.flash_hits += rates.flash_hits / count;
        mean.first_uses += rates.first_uses / count;
        mean.deferred += rates.deferred / count;
        for (mean, one) in [(&mut mean.home, &rates.home), (&mut mean.flash, &rates.flash)] {
            mean.reads += one.reads / count;
            mean.sequential_reads += one.sequential_reads / count;
            mean.run_reads += one.run_reads / count;
            mean.writes += one.writes / count;
            mean.sequential_writes += one.sequential_writes / count;
            mean.run_writes += one.run_writes / count;
            mean.blocked_s += one.blocked_s / count;
        }
    }
    mean
}
