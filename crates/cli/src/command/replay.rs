//! The options of `replay`, and those of every command that reads a trace.

use super::names::named;
use super::trace::{format_name, paging};
use super::{DesignList, Shown, TacRuleName, TacWriteName};
use crate::quantity::{Share, Span, share_of_all};
use clap::{Args, ValueEnum};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use terrace_device::model::Preset;
use terrace_policy::BANDS_MAX;
use terrace_replay::Policy;
use terrace_replay::tiers::MemoryRule;
use terrace_trace::{Columns, Format, Paging};

#[derive(Args)]
pub struct Replay {
    #[command(flatten)]
    pub shown: Shown,
    /// The trace, plain or compressed [default with --bench: Zipf(1.0) requests, made in memory]
    #[arg(value_name = "TRACE", required_unless_present = "bench")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub source: TraceSource,
    /// Replacement policies, by name, or `all`; with --flash, those of the flash tier [default:
    /// all; with --flash none, since --design is used]
    #[arg(long, value_name = "NAMES", value_parser = policy_list)]
    pub policy: Option<PolicyList>,
    /// Pages that the cache holds: one size or several, like 10%,64MiB,5000p; a share is of the
    /// distinct pages, rounded down [default: 10%; 1% of the ids of --bench]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub capacity: Vec<CacheSize>,
    /// Stream the trace, reading it twice, instead of keeping it in memory: at most 27 bytes a page
    /// beside the policies' own. For all policies and tiers but those that look ahead, and with
    /// --curve for the exact curve of lru
    #[arg(long, conflicts_with_all = ["timed", "write_back_only", "errors", "report", "bench"])]
    pub stream: bool,
    /// Seed of policies and samples
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub tiers: TierOptions,
    #[command(flatten)]
    pub curve: CurveOptions,
    #[command(flatten)]
    pub bench: BenchOptions,
}

#[derive(Args)]
#[command(next_help_heading = "Trace")]
pub struct TraceSource {
    /// Format of the trace [default: recognized from its content]
    #[arg(long, value_name = "NAME", value_parser = format_name)]
    pub format: Option<Format>,
    /// Which column holds what, in lines of columns: numbers from 1, or names of the header, of
    /// time (with a unit: time=1:us), op, file, size or sectors; and of one of id, page, address,
    /// sector
    #[arg(long, value_name = "time=1,page=3,...")]
    pub columns: Option<Columns>,
    /// Page size, or `request` to treat each request as one object, whatever its length
    /// [default: by format, mostly 8KiB]
    #[arg(long, value_name = "BYTES", value_parser = paging)]
    pub page: Option<Paging>,
    /// Skip and count malformed lines, instead of stopping at the first one
    #[arg(long)]
    pub skip_bad: bool,
    /// Leave out requests for these files, by number, or by name if a list of files
    /// (NAME.files.csv) stands beside the trace; `none` for all requests
    /// [default: logs, temporary and library files, where paths are known: no cache serves them]
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    pub leave_out: Vec<String>,
}

#[derive(Args)]
#[command(next_help_heading = "Memory over flash")]
pub struct TierOptions {
    /// Replay through memory and a flash tier of these sizes, as --capacity
    #[arg(long, value_name = "SIZES", value_delimiter = ',',
          conflicts_with_all = ["capacity", "curve", "bench"])]
    pub flash: Vec<CacheSize>,
    /// Designs of the flash tier, by name, or `all` [default: all, unless --policy is given]
    #[arg(long, value_name = "NAMES", requires = "flash", value_parser = super::design_list)]
    pub design: Option<DesignList>,
    /// Pages that memory holds
    #[arg(long, value_name = "SIZE", default_value = "5%", requires = "flash")]
    pub memory: CacheSize,
    /// The trace already has only the misses of a memory
    #[arg(long, requires = "flash", conflicts_with = "memory")]
    pub no_memory: bool,
    /// Eviction policy of memory: any replacement policy, or gd2l, fasc or priced, which know what
    /// is on flash [default: by design; lru under --policy]
    #[arg(long, value_name = "NAME", requires = "flash", value_parser = memory_rule)]
    pub memory_policy: Option<MemoryRule>,
    /// With --policy: where a dirty page goes when it leaves memory (a design decides that itself)
    #[arg(long, value_enum, default_value_t = WriteName::Back, requires = "flash")]
    pub write: WriteName,
    /// How to treat a page within 64 of the last miss; cw, dw and lc keep sequential pages off the
    /// flash
    #[arg(long, value_enum, default_value_t = NearName::Sequential, requires = "flash")]
    pub near: NearName,
    /// lambda of `lc`: share of the slots that may be dirty before the cleaner starts
    #[arg(long, value_name = "SHARE", default_value = "50%", requires = "flash")]
    pub lambda: Share,
    /// TAC: how much warmer than the coldest cached page a page must be to be admitted
    #[arg(long, value_enum, default_value_t = TacRuleName::Hotter, requires = "flash")]
    pub tac_rule: TacRuleName,
    /// TAC: references after which temperatures are halved; 0 for the number of slots
    #[arg(long, value_name = "N", default_value_t = 0, requires = "flash")]
    pub tac_aging: u64,
    /// TAC: when a page that was read is written to flash
    #[arg(long, value_enum, default_value_t = TacWriteName::Async, requires = "flash")]
    pub tac_write: TacWriteName,
    /// tac-bands: how many bands of temperature, one number or several [default: 64]
    #[arg(long, value_name = "N", value_delimiter = ',', requires = "flash",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(BANDS_MAX)))]
    pub bands: Vec<u16>,
    /// tac-bands: which page of the coldest band leaves first
    #[arg(long, value_enum, default_value_t = BandOrderName::Lru, requires = "flash")]
    pub band_order: BandOrderName,
    /// Time each request on the modelled devices, one after the other; TAC's temperatures then use
    /// these times
    #[arg(long, requires = "flash")]
    pub timed: bool,
    /// Replay only writes: each is appended to flash; when it is full, all are written home in
    /// order of address [VLDB 2010, 4.4]
    #[arg(long, requires = "flash", conflicts_with_all = ["policy", "design", "memory", "timed"])]
    pub write_back_only: bool,
    /// With --write-back-only: home writes outstanding at once
    #[arg(long, value_name = "N", default_value_t = 1, requires = "write_back_only",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub outstanding: u32,
    /// Share of its disks' stroke that home occupies [default: by preset]
    #[arg(long, value_name = "SHARE", requires = "flash")]
    pub span: Option<Share>,
    /// Turn off the read-ahead of home's disks, so that the next page on the track is missed
    #[arg(long, requires = "flash")]
    pub no_read_ahead: bool,
    /// The home device, a preset
    #[arg(long, value_name = "PRESET", default_value = "sigmod2011-hdd", requires = "flash",
          value_parser = device)]
    pub home: Preset,
    /// The flash device, a preset
    #[arg(long, value_name = "PRESET", default_value = "iodrive", requires = "flash",
          value_parser = device)]
    pub flash_device: Preset,
    /// Time that the trace covers, for drive writes per day [default: from its timestamps]
    #[arg(long, value_name = "TIME", requires = "flash", value_parser = super::advise::some_time)]
    pub covers: Option<Span>,
}

/// Where a changed page goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WriteName {
    /// To flash; it is written home when it leaves the flash
    Back,
    /// To flash and home
    Through,
    /// Home only
    Around,
    /// Home, and flash if the page has a slot there, as in TAC
    Update,
}

/// Which page leaves first within a band of temperature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BandOrderName {
    /// The least recently used
    Lru,
    /// The most recently used
    Mru,
}

/// What becomes of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NearName {
    /// They are sequential [SIGMOD 2011, 2.2]
    Sequential,
    /// They are random, as all pages
    Random,
}

pub(super) fn device(name: &str) -> Result<Preset, String> {
    named(name, str::parse::<Preset>)
}

fn memory_rule(name: &str) -> Result<MemoryRule, String> {
    named(name, MemoryRule::find)
}

#[derive(Args)]
#[command(next_help_heading = "Miss-ratio curves")]
pub struct CurveOptions {
    /// Plot miss ratio against capacity: LRU exactly and by SHARDS, others by miniature simulation
    #[arg(long)]
    pub curve: bool,
    /// Share of the pages that is sampled [default: 1%, or what makes 8,192 pages of a small trace]
    #[arg(long, value_name = "SHARE", requires = "curve")]
    pub sample: Option<Share>,
    /// Pages that SHARDS of a fixed size samples
    #[arg(long, value_name = "N", default_value_t = 8192, requires = "curve",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub sample_pages: u32,
    /// Measure the error of each sampled ratio against a full replay
    #[arg(long, requires = "curve")]
    pub errors: bool,
    /// Write a report with the curves, one self-contained page
    #[arg(long, value_name = "FILE.html", requires = "curve")]
    pub report: Option<PathBuf>,
}

#[derive(Args)]
#[command(next_help_heading = "Speed")]
pub struct BenchOptions {
    /// Measure how fast policies are, on one thread: the median of several rounds
    #[arg(id = "bench", long = "bench", conflicts_with = "curve")]
    pub is_asked: bool,
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 5, requires = "bench",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Requests that are made, without TRACE
    #[arg(long, value_name = "N", default_value_t = 20_000_000, requires = "bench",
          value_parser = clap::value_parser!(u32).range(1..=2_000_000_000))]
    pub requests: u32,
    /// Ids that they draw from
    #[arg(long, value_name = "N", default_value_t = 1_000_000, requires = "bench",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    pub ids: u32,
    /// Exponent of their popularity
    #[arg(long, value_name = "ALPHA", default_value_t = 1.0, requires = "bench",
          value_parser = exponent)]
    pub alpha: f64,
}

/// Policies by name.
#[derive(Clone)]
pub struct PolicyList(pub Vec<Policy>);

fn policy_list(text: &str) -> Result<PolicyList, String> {
    super::lists::list(text, &Policy::all(), Policy::find).map(PolicyList)
}

fn exponent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(alpha) if (0.0..=10.0).contains(&alpha) => Ok(alpha),
        _ => Err("an exponent is a number from 0 to 10".into()),
    }
}

/// How much a tier holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheSize {
    /// Pages, of whatever size the trace has.
    Pages(u32),
    /// Bytes.
    Bytes(u64),
    /// Share of the distinct pages.
    Share(f64),
}

impl FromStr for CacheSize {
    type Err = String;

    fn from_str(text: &str) -> Result<CacheSize, String> {
        let wrong = || format!("`{text}` is no size; write 10%, 64MiB, 10GB or 5000p (pages)");
        if let Some(share) = share_of_all(text) {
            return Ok(CacheSize::Share(share));
        }
        let pages = text.strip_suffix("pages").or_else(|| text.strip_suffix('p'));
        if let Some(pages) = pages {
            return pages.trim().parse().map(CacheSize::Pages).map_err(|_| wrong());
        }
        crate::quantity::bytes(text).map(CacheSize::Bytes).ok_or_else(wrong)
    }
}

impl fmt::Display for CacheSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            CacheSize::Pages(pages) => write!(f, "{pages}p"),
            CacheSize::Bytes(bytes) => write!(f, "{bytes}B"),
            CacheSize::Share(share) => Share(share).fmt(f),
        }
    }
}

impl CacheSize {
    /// In pages: of `paging`, and of `all` distinct pages.
    ///
    /// # Errors
    ///
    /// What is wrong: no page at all, too many, or bytes of objects.
    pub fn pages(self, paging: Paging, all: u32) -> Result<u32, String> {
        let pages = match (self, paging) {
            (CacheSize::Pages(pages), _) => u64::from(pages),
            // A share like 29% is not quite what was written: 100 pages are 28.999999999999996.
            (CacheSize::Share(share), _) => (share * f64::from(all) + 1e-6) as u64,
            (CacheSize::Bytes(bytes), Paging::Split(page)) => bytes / page.get(),
            (CacheSize::Bytes(_), Paging::Whole) => {
                return Err(format!("{self}: objects are counted; write 10% or 5000p"));
            }
        };
        match u32::try_from(pages) {
            Ok(0) => Err(format!("{self} of {all} pages is no page")),
            Ok(pages) if pages <= 1 << 30 => Ok(pages),
            _ => Err(format!("{self} is more than 2^30 pages")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_trace::PageBytes;

    #[test]
    fn sizes_are_pages_bytes_or_shares() {
        let pages = |text: &str, paging: Paging| {
            text.parse::<CacheSize>().and_then(|size| size.pages(paging, 59_541))
        };
        let split = Paging::Split(PageBytes::SECTOR);
        assert_eq!(pages("10%", split), Ok(5_954));
        assert_eq!("29%".parse::<CacheSize>().unwrap().pages(split, 100), Ok(29));
        assert_eq!(pages("0.1", split), Ok(5_954));
        assert_eq!(pages("300p", split), Ok(300));
        assert_eq!(pages("1MiB", split), Ok(2_048));
        for (text, paging) in [("0.001%", split), ("0p", split), ("1MiB", Paging::Whole)] {
            assert!(pages(text, paging).is_err(), "{text}");
        }
        for text in ["", "10", "x%", "-5p", "1e99TiB"] {
            assert!(pages(text, split).is_err(), "{text}");
        }
    }
}
