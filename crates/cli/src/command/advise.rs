//! The options of `advise`.

use super::lists::memory_policy;
use super::{CacheSize, DesignList, DeviceChoice, Shown, TraceSource};
use crate::quantity::{Share, Span};
use clap::Args;
use std::path::PathBuf;
use terrace_policy::MemoryPolicy;
use terrace_trace::PageBytes;

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
    /// The home device: a preset (`terrace advise --help` lists them), or figures, like
    /// iops=3000,latency=1ms,bandwidth=125MiB (and write-iops, write-latency, write-bandwidth)
    #[arg(long, value_name = "DEVICE", default_value = "sigmod2011-hdd")]
    pub home: DeviceChoice,
    /// The flash device: a preset, or figures
    #[arg(long, value_name = "DEVICE", default_value = "iodrive")]
    pub flash_device: DeviceChoice,
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
    #[arg(long, value_name = "TIME", value_parser = some_time)]
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
    #[arg(long, value_name = "N", value_parser = positive, allow_negative_numbers = true)]
    pub drive_writes_per_day: Option<f64>,
    /// Years of the warranty that the rated endurance refers to
    #[arg(long, value_name = "YEARS", default_value_t = 5.0, value_parser = positive)]
    pub warranty: f64,
    /// Years that the drive must last; a tier that wears it out sooner is not recommended
    #[arg(long, value_name = "YEARS", default_value_t = 5.0, value_parser = positive)]
    pub lifetime: f64,
}

/// Measures a device.
#[derive(Args)]
pub struct Probe {
    #[command(flatten)]
    pub shown: Shown,
    /// A file on the device, of a few GiB, or the block device itself
    pub path: PathBuf,
    /// Find the domains of the drive and the size of its chunks instead, from timing alone
    #[arg(long, conflicts_with_all = ["write", "seconds", "page"])]
    pub inside: bool,
    /// Measure writes, too: pages are written back as they were read before
    #[arg(long)]
    pub write: bool,
    /// Time of each measurement
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = some_time)]
    pub seconds: Span,
    /// Size of a request
    #[arg(long, value_name = "BYTES", default_value = "8KiB", value_parser = page_bytes)]
    pub page: PageBytes,
}

fn page_bytes(text: &str) -> Result<PageBytes, String> {
    let bytes = crate::quantity::bytes(text).and_then(PageBytes::new);
    let bytes = bytes.filter(|bytes| (512..=256 << 10).contains(&bytes.get()));
    bytes.ok_or_else(|| format!("`{text}` is no size of a request; write 8KiB"))
}

/// Prices a month, in whatever currency.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Prices a month")]
pub struct Prices {
    /// Price of a GiB of flash a month
    #[arg(long, value_name = "PRICE", value_parser = price, allow_negative_numbers = true)]
    pub price_flash: Option<f64>,
    /// Price of a GiB of memory a month
    #[arg(long, value_name = "PRICE", value_parser = price, allow_negative_numbers = true)]
    pub price_memory: Option<f64>,
    /// Price of a GiB of home a month
    #[arg(long, value_name = "PRICE", value_parser = price, allow_negative_numbers = true)]
    pub price_home: Option<f64>,
    /// Price a month of one request per second that home must serve
    #[arg(long, value_name = "PRICE", value_parser = price, allow_negative_numbers = true)]
    pub price_iops: Option<f64>,
}

/// A time above zero: no pace follows from none.
pub(super) fn some_time(text: &str) -> Result<Span, String> {
    match text.parse::<Span>() {
        Ok(span) if span.0 <= 0.0 => Err(format!("`{text}` is no time above 0; write 90s or 1h")),
        other => other,
    }
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
