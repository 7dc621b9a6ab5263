//! The options of `bench tpch`.

use super::lists::{DesignList, design_list};
use super::restart::Models;
use super::trace::widths;
use super::{QueriesName, Shown, Tier};
use clap::Args;

#[derive(Args)]
pub struct TpchBench {
    #[command(flatten)]
    pub shown: Shown,

    /// Designs to run, by name, or `all`
    #[arg(long, value_name = "NAMES", default_value = "no-ssd,tac", value_parser = design_list)]
    pub design: DesignList,
    /// Seed of rows and queries, as in `trace make`
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of runs in parallel, each on its own thread [default: the cores, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub jobs: Option<u64>,

    /// Which queries, and how lines lie
    #[arg(long, value_enum, default_value_t = QueriesName::OdsTpch)]
    pub workload: QueriesName,
    /// TPC-H's scale factor, about the GB of rows [VLDB 2010: 10; here a tenth]
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    pub scale: f64,
    /// Queries, one after the other [default: 500 of ods-tpch, 100 of zipf-tpch]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub queries: Option<u32>,
    /// ods-tpch: least and greatest number of values in a query's key range
    #[arg(long, value_name = "FEWEST,MOST", default_value = "100,10000", value_parser = widths)]
    pub widths: (u64, u64),
    /// zipf-tpch: exponent S; a date range ends on the k-th last day with probability proportional
    /// to 1/k^S
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub zipf: f64,
    #[command(flatten)]
    pub models: Models,
    #[command(flatten)]
    pub tier: Tier,
}

/// Defaults of `bench tpch` that differ from those of `bench tpcc`: devices and TAC as VLDB 2010
/// has them, memory of a 96th of the database, flash of twice that, and no fill that it does not
/// know.
pub(super) const TPCH_DEFAULTS: [(&str, &str); 7] = [
    ("home", "vldb2010-hdd"),
    ("flash_device", "vldb2010-ssd"),
    ("dram", "1.04%"),
    ("flash", "2.08%"),
    ("ramp_up_fill", "off"),
    ("tac_write", "sync"),
    ("tac_rule", "one-percent"),
];
