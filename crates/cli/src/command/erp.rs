//! The options of `bench erp`.

use super::lists::{DesignList, design_list};
use super::restart::Models;
use super::{Shown, Tier};
use crate::quantity::Span;
use clap::{Args, ValueEnum};
use terrace_workload::erp;

#[derive(Args)]
pub struct Erp {
    #[command(flatten)]
    pub shown: Shown,

    /// Designs to run, by name, or `all`
    #[arg(long, value_name = "NAMES", default_value = "no-ssd,tac", value_parser = design_list)]
    pub design: DesignList,
    /// Also run no-ssd with as many indexes placed on the flash device as fit in `--flash`
    #[arg(long)]
    pub indexes_on_flash: bool,
    /// Seed of the database and of the order of the queries
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of runs in parallel, each on its own thread [default: the cores, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub jobs: Option<u64>,

    /// Rows of the fact table [VLDB 2010: 16,000,000, here a tenth]
    #[arg(long, value_name = "N", default_value_t = 1_600_000,
          value_parser = clap::value_parser!(u32).range(facts_range()))]
    pub facts: u32,
    /// Number of concurrent streams, each of which runs every query once; one run for each number
    /// in the list
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_values_t = [1, 4, 8],
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub streams: Vec<u32>,
    /// Order in which the facts of an answer are fetched
    #[arg(long, value_enum, default_value_t = FetchName::Index)]
    pub fetch: FetchName,
    /// Length of the windows for which counters are shown
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub window: Span,
    #[command(flatten)]
    pub models: Models,
    #[command(flatten)]
    pub tier: Tier,
}

/// Order in which the facts of an answer are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FetchName {
    /// In index order: for each member of a dimension, one sweep over the months
    Index,
    /// In row order: one sweep
    Number,
}

fn facts_range() -> std::ops::RangeInclusive<i64> {
    erp::Config::FACTS_MIN.into()..=erp::Config::FACTS_MAX.into()
}

/// Defaults of `bench erp` that differ from those of `bench tpcc`: sizes, devices and TAC as VLDB
/// 2010 has them, and no fill that it does not know.
pub(super) const ERP_DEFAULTS: [(&str, &str); 7] = [
    ("home", "vldb2010-hdd"),
    ("flash_device", "vldb2010-card"),
    ("dram", "4%"),
    ("flash", "24%"),
    ("ramp_up_fill", "off"),
    ("tac_write", "sync"),
    ("tac_rule", "one-percent"),
];
