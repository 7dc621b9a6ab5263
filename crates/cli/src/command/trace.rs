//! The options of `trace`.

use super::Shown;
use super::names::named;
use super::replay::CacheSize;
use crate::quantity::{Share, Span, bytes};
use clap::builder::ArgPredicate;
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_policy::replacement::ReplacementRow;
use terrace_trace::{Columns, Format, PageBytes, Paging};

#[derive(Subcommand)]
pub enum Trace {
    /// Write a trace in Terrace's own format, which is smaller and quicker to read
    Convert(TraceConvert),
    /// Say what is in a trace: requests, footprint, span, sequential share, skew
    Info(TraceInfo),
    /// Print the first requests of a trace
    Head(TraceHead),
    /// Make up a trace
    Make(Box<TraceMake>),
    /// Write what a memory would have asked its storage for: misses, and changed pages that leave
    Filter(TraceFilter),
    /// Record what a program, or processes that run, read and write of files
    Capture(TraceCapture),
}

/// A trace that is there.
#[derive(Args)]
pub struct TraceFile {
    /// The trace, plain or compressed (zstd, gzip, xz), or `-` for standard input
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Its format, by name [default: told from its content]
    #[arg(long, value_name = "NAME", value_parser = format_name, long_help = format_help())]
    pub format: Option<Format>,
    /// Which column holds what, in lines of columns: numbers from 1, or names of the header, of
    /// time (with a unit: time=1:us), op, file, size or sectors; and of one of id, page, address,
    /// sector
    #[arg(long, value_name = "time=1,page=3,...")]
    pub columns: Option<Columns>,
    /// Count lines, records and blocks that break the format, and leave them out
    #[arg(long)]
    pub skip_bad: bool,
}

#[derive(Args)]
pub struct TraceConvert {
    #[command(flatten)]
    pub file: TraceFile,
    /// The file to write, or `-` for standard output; compressed if it ends in `.gz`
    #[arg(value_name = "OUT")]
    pub out: PathBuf,
    /// Convert the first N requests only
    #[arg(long, value_name = "N")]
    pub requests: Option<u64>,
}

#[derive(Args)]
pub struct TraceInfo {
    #[command(flatten)]
    pub shown: Shown,
    #[command(flatten)]
    pub file: TraceFile,
    /// How requests are split into pages: a power of two of bytes (4096, 8KiB), or `request` for
    /// one page each [default: what the format suggests, mostly 8KiB]
    #[arg(long, value_name = "BYTES", value_parser = paging)]
    pub page: Option<Paging>,
}

#[derive(Args)]
pub struct TraceHead {
    #[command(flatten)]
    pub file: TraceFile,
    /// Requests to print
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    pub requests: u64,
}

#[derive(Args)]
pub struct TraceMake {
    /// The file to write, or `-` for standard output; compressed if it ends in `.gz`
    #[arg(value_name = "OUT")]
    pub out: PathBuf,
    /// Queries on the tables of TPC-H, in place of pages that are drawn
    #[arg(long, value_enum, conflicts_with_all = ["uniform", "cycle", "ids", "requests", "writes",
                                                  "scan", "working_set"])]
    pub workload: Option<QueriesName>,
    #[command(flatten)]
    pub tpch: TpchMake,
    /// Zipf's law: request the k-th page in proportion to 1/k^S; the k-th last day with
    /// --workload zipf-tpch
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub zipf: f64,
    /// Request all pages alike
    #[arg(long, conflicts_with_all = ["zipf", "cycle"])]
    pub uniform: bool,
    /// Request one page after the other, over and over
    #[arg(long = "loop", conflicts_with = "zipf")]
    pub cycle: bool,
    /// Pages
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub ids: u64,
    /// Requests
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    pub requests: u64,
    /// Decides what is drawn
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Share of writes
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    pub writes: Share,
    /// Share of requests that belong to scans of neighbouring pages
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    pub scan: Share,
    /// Pages of a scan
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub scan_pages: u64,
    /// Request only this number of pages at a time [default: all]
    #[arg(long, value_name = "N")]
    pub working_set: Option<u64>,
    /// Requests after which the working set moves on by half of its size
    #[arg(long, value_name = "N", default_value_t = 100_000, requires = "working_set")]
    pub shift_every: u64,
    /// Bytes of a page and of a request, a power of two [with --workload: 16KiB]
    #[arg(long, value_name = "BYTES", default_value = "8KiB", value_parser = page_bytes,
          default_value_if("workload", ArgPredicate::IsPresent, "16KiB"))]
    pub page: PageBytes,
    /// Time between two requests [default: none, and the trace has no clock]
    #[arg(long, value_name = "TIME")]
    pub interval: Option<Span>,
}

/// Queries of TPC-H.
#[derive(Args)]
pub struct TpchMake {
    /// TPC-H's scale factor: about the size of the rows in GB
    #[arg(long, value_name = "F", default_value_t = 10.0, requires = "workload")]
    pub scale: f64,
    /// Queries [default: 500 of ods-tpch, 100 of zipf-tpch]
    #[arg(long, value_name = "N", requires = "workload")]
    pub queries: Option<u32>,
    /// ods-tpch: fewest and most values of a query's range of keys
    #[arg(long, value_name = "FEWEST,MOST", default_value = "1000,100000", value_parser = widths,
          requires = "workload")]
    pub widths: (u64, u64),
}

/// Queries on the tables of TPC-H.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QueriesName {
    /// Queries 2, 5, 9, 11 and 17, each over a range of keys anywhere [VLDB 2010, 4.2]
    OdsTpch,
    /// Queries 1, 6, 14 and 15 over ranges of dates, mostly recent [VLDB 2010, 4.2]
    ZipfTpch,
}

impl QueriesName {
    /// How many of them the paper ran.
    pub fn usual_queries(self) -> u32 {
        match self {
            QueriesName::OdsTpch => 500,
            QueriesName::ZipfTpch => 100,
        }
    }
}

#[derive(Args)]
pub struct TraceFilter {
    #[command(flatten)]
    pub file: TraceFile,
    /// The file to write, or `-` for standard output; compressed if it ends in `.gz`
    #[arg(value_name = "OUT")]
    pub out: PathBuf,
    /// Pages that memory holds, like 10%, 64MiB, 5000p; a share is of the distinct pages
    #[arg(long, value_name = "SIZE", default_value = "5%")]
    pub memory: CacheSize,
    /// How memory chooses what leaves it: any replacement policy
    #[arg(long, value_name = "NAME", default_value = "lru",
          value_parser = replacement)]
    pub memory_policy: ReplacementRow,
    /// How requests are split into pages [default: what the format suggests, mostly 8KiB]
    #[arg(long, value_name = "BYTES", value_parser = paging)]
    pub page: Option<Paging>,
    /// Decides what is drawn, by policies that draw
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[derive(Args)]
pub struct TraceCapture {
    /// The file to write, or `-` for standard output; compressed if it ends in `.gz`. The list of
    /// its files stands beside it, in NAME.files.csv
    #[arg(long, value_name = "FILE", default_value = "capture.trace")]
    pub out: PathBuf,
    /// Record only files in this folder
    #[arg(long, value_name = "FOLDER")]
    pub under: Option<PathBuf>,
    /// Watch these processes and all of their children, which go on, instead of a command
    #[arg(long, value_name = "N", value_delimiter = ',', required_unless_present = "command")]
    pub pid: Vec<u32>,
    /// Stop after this time [default: when the command or the processes end, or at Ctrl-C]
    #[arg(long = "for", value_name = "TIME")]
    pub span: Option<Span>,
    /// How to watch processes that run: tracepoints cost less, strace also sees libaio
    #[arg(long, value_enum, default_value_t = Watcher::Auto, requires = "pid")]
    pub with: Watcher,
    /// Record logs, temporary files and libraries, too; without, they are on the list only
    #[arg(long)]
    pub all_files: bool,
    /// Ask the catalog of this PostgreSQL database, by psql, what its files are called
    #[arg(long, value_name = "CONNECTION", visible_alias = "catalog")]
    pub catalogue: Option<String>,
    /// The program and its arguments, behind `--`
    #[arg(value_name = "COMMAND", last = true, conflicts_with = "pid")]
    pub command: Vec<OsString>,
}

/// How processes that run are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Watcher {
    /// Tracepoints if this user may use them, or else strace
    Auto,
    /// By strace
    Strace,
    /// By the kernel's tracepoints of system calls (root, tracefs)
    Tracepoints,
}

/// Parses the name of a format.
pub fn format_name(text: &str) -> Result<Format, String> {
    named(text, str::parse::<Format>)
}

fn format_help() -> String {
    let mut help = "Its format, by name [default: told from its content]:\n".to_string();
    for row in &terrace_trace::FORMATS {
        help.push_str(&format!("  {:<15} {}\n", row.name, row.what));
    }
    help
}

/// Parses the size of a page.
pub fn page_bytes(text: &str) -> Result<PageBytes, String> {
    let number = text.parse().ok().or_else(|| bytes(text));
    number
        .and_then(PageBytes::new)
        .ok_or_else(|| format!("`{text}` is no page size; write 4096 or 8KiB, a power of two"))
}

fn replacement(name: &str) -> Result<ReplacementRow, String> {
    named(name, terrace_policy::replacement::find)
}

/// Parses the fewest and the most values of a range.
pub(super) fn widths(text: &str) -> Result<(u64, u64), String> {
    let numbers = text.split_once(',').map(|(fewest, most)| (fewest.parse(), most.parse()));
    match numbers {
        Some((Ok(fewest), Ok(most))) => Ok((fewest, most)),
        _ => Err(format!("`{text}` is not two numbers; write 1000,100000")),
    }
}

/// Parses how requests are split.
pub fn paging(text: &str) -> Result<Paging, String> {
    match text {
        "request" => Ok(Paging::Whole),
        size => page_bytes(size).map(Paging::Split),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_sizes_are_powers_of_two() {
        for (text, bytes) in [("8KiB", 8192), ("4096", 4096), ("512B", 512), ("1MiB", 1 << 20)] {
            assert_eq!(page_bytes(text).map(PageBytes::get), Ok(bytes));
        }
        for text in ["", "0", "3", "KiB", "-8", "99999999999999999999", "18014398509481985KiB"] {
            assert!(page_bytes(text).is_err(), "{text}");
        }
        assert_eq!(paging("request"), Ok(Paging::Whole));
        assert!(paging("requests").is_err());
    }
}
