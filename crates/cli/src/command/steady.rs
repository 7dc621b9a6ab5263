//! The options of `bench steady`.

use super::lists::{DesignList, design_list};
use super::restart::{BrokerageDatabase, Models};
use super::{Shown, Tier};
use crate::quantity::{Share, Span};
use clap::{Args, ValueEnum};

#[derive(Args)]
pub struct Steady {
    #[command(flatten)]
    pub shown: Shown,

    /// Designs to run, by name, or `all`
    #[arg(long, value_name = "NAMES", default_value = "all", value_parser = design_list)]
    pub design: DesignList,
    /// What the clients do
    #[arg(long, value_enum, default_value_t = SteadyWorkload::TpceLike)]
    pub workload: SteadyWorkload,
    /// Seed of the database, the transactions and the order of events
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of runs in parallel, each on its own thread [default: the cores, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub jobs: Option<u64>,

    #[command(flatten)]
    pub brokerage: BrokerageDatabase,
    /// With `--workload scans`: tasks that scan all trades, over and over
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub scanners: u32,
    /// With `--workload shifting`: time after which other customers become popular
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub shift_every: Span,
    #[command(flatten)]
    pub models: Models,
    #[command(flatten)]
    pub tier: Tier,
    /// Number of clients
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub clients: u32,
    /// Measured time from a cold start, by the clock of the virtual world
    #[arg(long, value_name = "TIME", default_value = "180s")]
    pub duration: Span,
    /// Length of the windows for which throughput is shown
    #[arg(long, value_name = "TIME", default_value = "3s")]
    pub window: Span,
    /// Average over this last share of the duration
    #[arg(long, value_name = "SHARE", default_value = "50%")]
    pub averaged: Share,
    /// Skip the check of the database after load and runs
    #[arg(long)]
    pub no_check: bool,
}

/// Defaults of `bench steady` that differ from those of `bench restart`: the disks of SIGMOD 2011.
pub(super) const STEADY_DEFAULTS: [(&str, &str); 1] = [("home", "sigmod2011-hdd")];

/// What the clients of a steady bench do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SteadyWorkload {
    /// Synthetic, with TPC-E's read:write ratio, and a skew
    TpceLike,
    /// The same, with concurrent scans of the largest table
    Scans,
    /// The same, but the popular customers change from time to time, and so does the mix: every
    /// second time most clients trade
    Shifting,
}
