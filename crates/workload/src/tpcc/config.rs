//! What a TPC-C run assumes: every option with its default and where that comes from.
//!
//! The defaults are the paper's 2K-warehouse point scaled by 1/100 (RESULTS.md, scaling rules): 20
//! warehouses, memory and flash fixed in pages, device speeds unscaled, ten hours as 360 seconds.

use std::path::PathBuf;

use terrace::{Fills, PoolConfig, TacConfig};
use terrace_policy::{Classifier, CleanerOrder};
use terrace_rt::Nanos;

use super::input::{Kind, Mix};
use super::population::Scale;

/// Where the three devices of a run are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Models in virtual time, by the names of their presets.
    Virtual {
        /// The permanent home of the database.
        home: String,
        /// The flash tier.
        flash: String,
        /// The log.
        log: String,
    },
    /// Files or block devices in real time.
    Real {
        /// The permanent home of the database.
        home: PathBuf,
        /// The flash tier.
        flash: PathBuf,
        /// The log.
        log: PathBuf,
        /// Threads that run the terminals.
        threads: usize,
    },
}

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
    /// Not at all: a closed loop that keeps the devices queued (RESULTS.md H4).
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
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Decides the database, the transactions and the order of events.
    pub seed: u64,
    /// How large the database is. 20 warehouses, about 105 MiB each.
    pub scale: Scale,
    /// Share of a page that the load fills: 0.7.
    pub fill: f64,
    /// The three devices.
    pub place: Place,
    /// Pages in memory: 25,600.
    pub memory_pages: u32,
    /// Pages of the flash tier: 183,501.
    pub flash_pages: u32,
    /// Name of the memory policy: `lru-2`.
    pub memory_policy: String,
    /// Share of the flash that is filled with whatever comes: 0.95.
    pub tau: f64,
    /// Requests queued at the flash above which it is spared: 100.
    pub mu: u32,
    /// Partitions of the flash tier's structures (N): 16.
    pub partitions: u32,
    /// Most pages gathered by one cleaning write (alpha): 32.
    pub alpha: u32,
    /// Share of the flash that may be dirty before the cleaner starts (lambda): 0.5.
    pub lambda: f64,
    /// Which dirty slots the cleaner takes first: the least recently used, as in SIGMOD 2011.
    pub cleaner_order: CleanerOrder,
    /// Writes that the cleaner keeps outstanding at most: 256.
    pub cleaner_ios: u32,
    /// Which reads fetch neighbours too: those until memory is full, as in SIGMOD 2011.
    pub fills: Fills,
    /// How a page is told to be sequential: by read-ahead.
    pub classifier: Classifier,
    /// The choices of TAC: those of the port of SIGMOD 2011.
    pub tac: TacConfig,
    /// Bytes of the log: 64 GiB, as checkpoints are off. It is sparse.
    pub log_bytes: u64,
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
    /// Cores that CPU time is charged to, in virtual time.
    pub cores: u32,
    /// How Stock-Level reads.
    pub stock_level: StockLevelScope,
    /// When a commit returns.
    pub durability: Durability,
    /// Time between checkpoints; none as in the paper.
    pub checkpoint_every: Option<Nanos>,
    /// Measured time: 360 s.
    pub duration: Nanos,
    /// Throughput is shown for windows of this length: 3.6 s.
    pub window: Nanos,
    /// The last part of the duration that is averaged: 0.1.
    pub averaged_share: f64,
    /// Whether the twelve conditions are checked after load and after each run.
    pub checks: Checks,
}

/// When the commit of a transaction returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// At once; the log is written when it is.
    Buffered,
    /// When the log is on its device.
    Durable,
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
        let tier = PoolConfig::default();
        Config {
            seed: 1,
            scale: Scale::full(20),
            fill: 0.7,
            place: Place::Virtual {
                home: "sigmod2011-hdd".into(),
                flash: "iodrive".into(),
                log: "sigmod2011-log".into(),
            },
            memory_pages: 25_600,
            flash_pages: 183_501,
            memory_policy: "lru-2".into(),
            tau: 0.95,
            mu: 100,
            partitions: 16,
            alpha: 32,
            lambda: 0.5,
            cleaner_order: tier.cleaner_order,
            cleaner_ios: tier.cleaner_ios,
            fills: tier.fills,
            classifier: tier.classifier,
            tac: tier.tac,
            log_bytes: 64 << 30,
            clients: 50,
            delivery_tasks: 10,
            mix: Mix::STANDARD,
            warehouse_choice: WarehouseChoice::PerTransaction,
            pacing: Pacing::None,
            costs: CpuCosts::default(),
            cores: 8,
            stock_level: StockLevelScope::Split,
            durability: Durability::Durable,
            checkpoint_every: None,
            duration: Nanos::from_millis(360_000),
            window: Nanos::from_millis(3_600),
            averaged_share: 0.1,
            checks: Checks::On,
        }
    }
}
