//! What a TPC-C run assumes: every option with its default and where that comes from.
//!
//! The defaults are the 2K-warehouse point of [S0 4.2] scaled by 1/100: 20 warehouses, ten hours as
//! 360 seconds, and the system of `System::default`.

use terrace::Durability;
use terrace_rt::Nanos;

use super::input::{Kind, Mix};
use super::population::Scale;
use crate::system::System;

/// Which warehouse a terminal's transactions are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarehouseChoice {
    /// Any, drawn for each transaction: few clients reach all of the database.
    PerTransaction,
    /// The terminal's own (clause 2.4.1.1): terminal `n` stands in warehouse `n` modulo their
    /// number.
    PerTerminal,
}

/// How long a terminal rests around a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// Not at all: a closed loop that keeps the devices queued.
    None,
    /// Keying and think times of clause 5.2.5.7, divided by `speedup`.
    Specification {
        /// 1 for the specification's times.
        speedup: u32,
    },
}

impl Pacing {
    /// Keying time of `kind`.
    pub fn keying(self, kind: Kind) -> Nanos {
        const SECONDS: [u64; 5] = [18, 3, 2, 2, 2];
        self.scaled(SECONDS[kind as usize] * 1000)
    }

    /// Mean think time of `kind`; the distribution is exponential, cut at ten times its mean.
    pub fn mean_think(self, kind: Kind) -> Nanos {
        const SECONDS: [u64; 5] = [12, 12, 10, 5, 5];
        self.scaled(SECONDS[kind as usize] * 1000)
    }

    fn scaled(self, millis: u64) -> Nanos {
        match self {
            Pacing::None => Nanos(0),
            Pacing::Specification { speedup } => {
                Nanos(Nanos::from_millis(millis).0 / u64::from(speedup.max(1)))
            }
        }
    }
}

/// Named costs in CPU time, charged once for each transaction; zero unless an experiment says
/// otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCosts(pub [Nanos; 5]);

impl CpuCosts {
    /// What one transaction of `kind` costs.
    pub fn of(self, kind: Kind) -> Nanos {
        self.0[kind as usize]
    }
}

/// How Stock-Level reads. In one transaction it deadlocks with New-Order, which takes stocks before
/// the district: a third of all runs meet a conflict when 50 clients share 4 warehouses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StockLevelScope {
    /// In one serializable transaction, as all others.
    OneTransaction,
    /// In several, which clause 2.8.2.3 allows and which is the default: the order lines first,
    /// then the stocks in groups.
    Split,
}

/// All that decides a run but the design.
#[derive(Clone, Debug)]
pub struct Config {
    /// Decides the database, the transactions and the order of events.
    pub seed: u64,
    /// How large the database is. 20 warehouses, about 105 MiB each.
    pub scale: Scale,
    /// Share of a page that the load fills: 0.7.
    pub fill: f64,
    /// What it runs on.
    pub system: System,
    /// Terminals: 50.
    pub clients: u32,
    /// Tasks that execute the queued deliveries: 10.
    pub delivery_tasks: u32,
    /// Shares of the transactions.
    pub mix: Mix,
    /// Which warehouse a transaction is for.
    pub warehouse_choice: WarehouseChoice,
    /// Keying and think times.
    pub pacing: Pacing,
    /// CPU time charged.
    pub costs: CpuCosts,
    /// How Stock-Level reads.
    pub stock_level: StockLevelScope,
    /// When a commit returns.
    pub durability: Durability,
    /// Measured time: 360 s.
    pub duration: Nanos,
    /// Throughput is shown for windows of this length: 3.6 s.
    pub window: Nanos,
    /// The last part of the duration that is averaged: 0.1.
    pub averaged_share: f64,
    /// What is in memory when the run begins.
    pub start: Start,
    /// Whether the twelve conditions are checked after load and after each run.
    pub checks: Checks,
}

/// What is in memory when a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing, as in the papers.
    Cold,
    /// Every page that finds room: each was read before.
    Warm,
}

/// Whether the twelve conditions of clause 3.3.2 are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// After load and after each run.
    On,
    /// Never.
    Off,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            seed: 1,
            scale: Scale::full(20),
            fill: 0.7,
            system: System::default(),
            clients: 50,
            delivery_tasks: 10,
            mix: Mix::STANDARD,
            warehouse_choice: WarehouseChoice::PerTransaction,
            pacing: Pacing::None,
            costs: CpuCosts::default(),
            stock_level: StockLevelScope::Split,
            durability: Durability::Durable,
            duration: Nanos::from_millis(360_000),
            window: Nanos::from_millis(3_600),
            averaged_share: 0.1,
            start: Start::Cold,
            checks: Checks::On,
        }
    }
}
