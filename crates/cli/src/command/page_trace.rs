//! The options of `bench trace`.

use super::lists::{DesignList, design_list, memory_policy};
use super::{CacheSize, Shown, TraceSource};
use crate::quantity::Share;
use clap::Args;
use std::path::PathBuf;
use terrace_policy::MemoryPolicy;

#[derive(Args)]
pub struct TraceBench {
    #[command(flatten)]
    pub shown: Shown,
    /// A trace of page references, in any format that `trace` reads
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Designs to run, by name
    #[arg(long, value_name = "NAMES", default_value = "no-ssd,lc", value_parser = design_list)]
    pub design: DesignList,
    /// File to be made on the home device, for the pages of the trace; removed afterwards
    #[arg(long, value_name = "FILE")]
    pub home: PathBuf,
    /// File to be made on the flash device, for the slots; removed afterwards
    #[arg(long, value_name = "FILE")]
    pub flash_device: Option<PathBuf>,
    /// Size of memory; a share is of the distinct pages, as for `advise`
    #[arg(long, value_name = "SIZE", default_value = "5%")]
    pub memory: CacheSize,
    /// Eviction policy of memory: lru-2, clock, lru, sieve, gd2l, fasc, priced
    /// [default: by design, mostly lru-2]
    #[arg(long, value_name = "NAME", value_parser = memory_policy)]
    pub memory_policy: Option<MemoryPolicy>,
    /// Size of the flash tier
    #[arg(long, value_name = "SIZE", default_value = "25%")]
    pub flash: CacheSize,
    /// lambda of `lc`: share of the slots that may be dirty
    #[arg(long, value_name = "SHARE", default_value = "50%")]
    pub lambda: Share,
    /// Number of clients: each asks for the next page of the trace when it has its last one
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub clients: u32,
    /// Threads that run the clients
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=256))]
    pub threads: u64,
    /// Share of the trace, from its start, that only fills the tiers and is not counted
    #[arg(long, value_name = "SHARE", default_value = "50%")]
    pub warm_up: Share,
    #[command(flatten)]
    pub source: TraceSource,
}
