//! What the slot tables of all partitions share: under leaf locks of their own, and in atomic
//! gauges.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use terrace_policy::{Costs, Expansion, ExpansionRule, Filling, Replacement, Temperatures};
use terrace_rt::LeafMutex;
use terrace_tier::{AnyOrder, Gauge, Lend, Shares};

/// The slots of a partition of the pool.
pub(crate) type SlotTable = terrace_tier::SlotTable<AnyOrder, TierShares>;

/// A share in it.
#[derive(Clone)]
pub(crate) struct TierShares(Arc<Shared>);

struct Shared {
    replacement: Replacement,
    temperatures: LeafMutex<Temperatures>,
    expansion: LeafMutex<Expansion>,
    /// Until the tier is filled.
    filling: LeafMutex<Filling>,
    gauges: Gauges,
    /// A partition wants slots cleaned ahead, and the cleaner has not been told.
    wants_cleaning: AtomicBool,
}

/// Counts over all partitions (`Gauge` says of what), changed where the states change.
#[derive(Default)]
struct Gauges {
    used: AtomicU32,
    dirty: AtomicU32,
    unavailable: AtomicU32,
    invalid: AtomicU32,
}

impl Gauges {
    fn of(&self, what: Gauge) -> &AtomicU32 {
        match what {
            Gauge::Used => &self.used,
            Gauge::Dirty => &self.dirty,
            Gauge::Unavailable => &self.unavailable,
            Gauge::Invalid => &self.invalid,
        }
    }
}

impl TierShares {
    /// Of a design with this `replacement`, where requests cost `costs`, with these temperatures,
    /// and until the tier is filled.
    pub fn new(
        replacement: Replacement,
        temperatures: Temperatures,
        filling: Filling,
        costs: &Costs,
    ) -> TierShares {
        let rule = match replacement {
            Replacement::AnticipatedBenefit => ExpansionRule::Estimated,
            _ => ExpansionRule::One,
        };
        TierShares(Arc::new(Shared {
            replacement,
            temperatures: LeafMutex::new(temperatures),
            expansion: LeafMutex::new(Expansion::new(rule, costs)),
            filling: LeafMutex::new(filling),
            gauges: Gauges::default(),
            wants_cleaning: AtomicBool::new(false),
        }))
    }

    /// A partition wants slots cleaned ahead.
    pub fn want_cleaning(&self) {
        self.0.wants_cleaning.store(true, Ordering::Relaxed);
    }

    /// Whether any does, since this was asked last.
    pub fn take_wanted(&self) -> bool {
        self.0.wants_cleaning.swap(false, Ordering::Relaxed)
    }

    /// Whether the tier is being filled with every page [S0 3.3.1].
    pub fn is_filling(&self) -> bool {
        self.0.filling.lock().is_on(self.gauge(Gauge::Used))
    }

    /// The tier was full once.
    pub fn end_filling(&self) {
        // More than any number of slots ends the filling for good.
        self.0.filling.lock().is_on(u32::MAX);
    }

    /// How many slots are `what`.
    pub fn gauge(&self, what: Gauge) -> u32 {
        self.0.gauges.of(what).load(Ordering::Relaxed)
    }

    /// Bytes allocated for the design.
    pub fn bytes(&self) -> usize {
        match self.0.replacement {
            Replacement::Temperature => self.0.temperatures.lock().bytes(),
            Replacement::AnticipatedBenefit => self.0.expansion.lock().bytes(),
            _ => 0,
        }
    }
}

impl Lend<Temperatures> for TierShares {
    fn lend<R>(&self, use_it: impl FnOnce(&mut Temperatures) -> R) -> R {
        use_it(&mut self.0.temperatures.lock())
    }
}

impl Lend<Expansion> for TierShares {
    fn lend<R>(&self, use_it: impl FnOnce(&mut Expansion) -> R) -> R {
        use_it(&mut self.0.expansion.lock())
    }
}

impl Shares for TierShares {
    fn counted(&self, what: Gauge, by: i32) {
        self.0.gauges.of(what).fetch_add(by as u32, Ordering::Relaxed);
    }
}
