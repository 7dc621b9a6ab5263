//! The options of `advise`.

use super::lists::memory_policy;
use super::replay::device;
use super::{CacheSize, DesignList, Shown, TraceSource};
use crate::quantity::{Share, Span};
use clap::Args;
use std::path::PathBuf;
use terrace_device::model::Preset;
use terrace_policy::MemoryPolicy;

#[derive(Args)]
pub struct Advise {
    #[command(flatten)]
    pub shown: Shown,
    /// A trace of page references, plain or compressed, in any format that `trace` reads (such as
    /// those of `bench --record` and `trace capture`); or the misses of a database: the text of
    /// `Database::misses`, or the path of a database that was opened with `keep_misses`
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Write a report with the curves, one self-contained page
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub source: TraceSource,
    #[command(flatten)]
    pub tiers: AdviseTiers,
    #[command(flatten)]
    pub load: AdviseLoad,
    #[command(flatten)]
    pub endurance: Endurance,
    #[command(flatten)]
    pub prices: Prices,
}

#[derive(Args)]
#[command(next_help_heading = "Tiers")]
pub struct AdviseTiers {
    /// The home device, a preset
    #[arg(long, value_name = "PRESET", default_value = "sigmod2011-hdd", value_parser = device)]
    pub home: Preset,
    /// The flash device, a preset
    #[arg(long, value_name = "PRESET", default_value = "iodrive", value_parser = device)]
    pub flash_device: Preset,
    /// Sizes of the flash tier, like 10%,64GiB,5000p; a share is of the distinct pages
    /// [default: 1% to 100%]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub flash: Vec<CacheSize>,
    /// Designs to choose from, by name [default: all]
    #[arg(long, value_name = "NAMES", value_parser = super::design_list)]
    pub design: Option<DesignList>,
    /// Size of memory
    #[arg(long, value_name = "SIZE", default_value = "5%")]
    pub memory: CacheSize,
    /// The trace already has only the misses of a memory
    #[arg(long, conflicts_with = "memory")]
    pub no_memory: bool,
    /// Eviction policy of memory: lru-2, clock, lru, sieve, gd2l, fasc, priced
    /// [default: by design, mostly lru-2]
    #[arg(long, value_name = "NAME", value_parser = memory_policy)]
    pub memory_policy: Option<MemoryPolicy>,
    /// lambda of `lc`: share of the slots that may be dirty
    #[arg(long, value_name = "SHARE", default_value = "50%")]
    pub lambda: Share,
}

#[derive(Args)]
#[command(next_help_heading = "Load and sampling")]
pub struct AdviseLoad {
    /// Number of clients waiting for a page at any time
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub clients: u32,
    /// Share of the trace, from its start, that only fills the tiers and is not counted
    #[arg(long, value_name = "SHARE", default_value = "50%")]
    pub warm_up: Share,
    /// Time that the trace covers, for writes per day and requests per second
    /// [default: from its timestamps]
    #[arg(long, value_name = "TIME")]
    pub covers: Option<Span>,
    /// Share of the trace's extents to replay, in four samples; 100% replays all of it, once
    /// [default: about 4 million references, or all if there are fewer]
    #[arg(long, value_name = "SHARE")]
    pub sample: Option<Share>,
    /// Measure the error of sampling against the full replay
    #[arg(long)]
    pub errors: bool,
    /// Seed of the sample
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[derive(Args)]
#[command(next_help_heading = "Endurance")]
pub struct Endurance {
    /// Capacity of the flash drive [default: the tier's size, but at least that of the smallest
    /// drive of the kind, if known]
    #[arg(long, value_name = "SIZE")]
    pub drive: Option<CacheSize>,
    /// Rated endurance: drive writes per day over the warranty [default: 1 for nvme and dc-nvme;
    /// unknown for others]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub drive_writes_per_day: Option<f64>,
    /// Years of the warranty that the rated endurance refers to
    #[arg(long, value_name = "YEARS", default_value_t = 5.0, value_parser = positive)]
    pub warranty: f64,
    /// Years that the drive must last; a tier that wears it out sooner is not recommended
    #[arg(long, value_name = "YEARS", default_value_t = 5.0, value_parser = positive)]
    pub lifetime: f64,
}

/// Prices a month, in whatever currency.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Prices a month")]
pub struct Prices {
    /// Price of a GiB of flash a month
    #[arg(long, value_name = "PRICE", value_parser = price)]
    pub price_flash: Option<f64>,
    /// Price of a GiB of memory a month
    #[arg(long, value_name = "PRICE", value_parser = price)]
    pub price_memory: Option<f64>,
    /// Price of a GiB of home a month
    #[arg(long, value_name = "PRICE", value_parser = price)]
    pub price_home: Option<f64>,
    /// Price a month of one request per second that home must serve
    #[arg(long, value_name = "PRICE", value_parser = price)]
    pub price_iops: Option<f64>,
}

fn positive(text: &str) -> Result<f64, String> {
    match price(text) {
        Ok(number) if number > 0.0 => Ok(number),
        _ => Err(format!("`{text}` is no number above 0")),
    }
}

fn price(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..1e12).contains(&number) => Ok(number),
        _ => Err(format!("`{text}` is no number of 0 or more")),
    }
}
