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
    /// Also run no-ssd with the indexes on the flash device for good, as many as `--flash` holds
    #[arg(long)]
    pub indexes_on_flash: bool,
    /// Decides the database and the orders of the queries
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Runs side by side, each on a thread of its own [default: the cores, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub jobs: Option<u64>,

    /// Rows of the fact table [VLDB 2010: 16,000,000, here a tenth]
    #[arg(long, value_name = "N", default_value_t = 1_600_000,
          value_parser = clap::value_parser!(u32).range(facts_range()))]
    pub facts: u32,
    /// Streams at once, each of which runs every query once: a list, for one run with each number
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_values_t = [1, 4, 8],
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub streams: Vec<u32>,
    /// In which order the facts of an answer are fetched
    #[arg(long, value_enum, default_value_t = FetchName::Index)]
    pub fetch: FetchName,
    /// Counters are shown for windows of this length
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub window: Span,
    #[command(flatten)]
    pub models: Models,
    #[command(flatten)]
    pub tier: Tier,
}

/// In which order the facts of an answer are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FetchName {
    /// As an index has them: for each member of a dimension a sweep over the months
    Index,
    /// In the order of their numbers: one sweep
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
