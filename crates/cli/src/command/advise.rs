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
    /// A trace of page references, plain or compressed: what `bench --record` or `trace capture`
    /// wrote, or any format that `trace` reads; or what a database counted of its misses: the text
    /// of `Database::misses`, or the database that was opened with `keep_misses`
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
    /// Where the database is, a preset
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
    /// Memory above the flash
    #[arg(long, value_name = "SIZE", default_value = "5%")]
    pub memory: CacheSize,
    /// The trace is of a memory's misses already
    #[arg(long, conflicts_with = "memory")]
    pub no_memory: bool,
    /// How memory chooses what leaves it: lru-2, clock, lru, sieve, gd2l, fasc, priced
    /// [default: what goes with the design, mostly lru-2]
    #[arg(long, value_name = "NAME", value_parser = memory_policy)]
    pub memory_policy: Option<MemoryPolicy>,
    /// lambda of `lc`: share of the flash that may be newer than home
    #[arg(long, value_name = "SHARE", default_value = "50%")]
    pub lambda: Share,
}

#[derive(Args)]
#[command(next_help_heading = "Load and sampling")]
pub struct AdviseLoad {
    /// Clients that wait for a page at any time
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub clients: u32,
    /// First share of the trace that fills the tiers, and is not counted
    #[arg(long, value_name = "SHARE", default_value = "50%")]
    pub warm_up: Share,
    /// Time that the trace covers, for writes per day and requests per second
    /// [default: as its times say]
    #[arg(long, value_name = "TIME")]
    pub covers: Option<Span>,
    /// Share of the trace's extents that is replayed, in four samples; 100% for all of it, once
    /// [default: all of up to 4 million references, and so much of a longer trace]
    #[arg(long, value_name = "SHARE")]
    pub sample: Option<Share>,
    /// Measure what sampling is off by, against the full replay
    #[arg(long)]
    pub errors: bool,
    /// Decides which extents are sampled
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[derive(Args)]
#[command(next_help_heading = "Endurance")]
pub struct Endurance {
    /// Capacity of the flash drive, of which the tier takes a part [default: the tier's size,
    /// and at least that of the smallest drive of the kind, where it is known]
    #[arg(long, value_name = "SIZE")]
    pub drive: Option<CacheSize>,
    /// Times a day that its maker lets the whole drive be written, over the warranty
    /// [default: 1 for nvme and dc-nvme; unknown for others]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub drive_writes_per_day: Option<f64>,
    /// Years of that warranty
    #[arg(long, value_name = "YEARS", default_value_t = 5.0, value_parser = positive)]
    pub warranty: f64,
    /// Years that the drive has to last: what wears it out sooner is not advised
    #[arg(long, value_name = "YEARS", default_value_t = 5.0, value_parser = positive)]
    pub lifetime: f64,
}

/// Prices a month, in whatever currency.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Prices a month")]
pub struct Prices {
    /// A GiB of flash
    #[arg(long, value_name = "PRICE", value_parser = price)]
    pub price_flash: Option<f64>,
    /// A GiB of memory
    #[arg(long, value_name = "PRICE", value_parser = price)]
    pub price_memory: Option<f64>,
    /// A GiB of home
    #[arg(long, value_name = "PRICE", value_parser = price)]
    pub price_home: Option<f64>,
    /// A request a second that home has to serve
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
