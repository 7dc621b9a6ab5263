//! What can be asked for: the command line, with its defaults.

mod advise;
mod device;
mod erp;
mod index;
mod lists;
mod names;
mod page_trace;
mod parascan;
mod parsed;
mod placement;
mod psync;
mod record;
mod replay;
mod restart;
mod set;
mod shell;
mod steady;
mod stored;
mod torture;
mod tpch;
mod trace;

pub use advise::{Advise, Prices, Probe};
pub use device::DeviceChoice;
pub use erp::{Erp, FetchName};
pub use index::IndexBench;
pub use lists::DesignList;
pub use page_trace::TraceBench;
pub use parascan::ParascanBench;
pub use parsed::{parse, terrace};
pub use placement::{Placement, SpacingName};
pub use psync::PsyncBench;
pub use record::{RecordAt, RecordOptions};
pub use replay::{BandOrderName, CacheSize, NearName, Replay, TraceSource, WriteName};
pub use restart::{EventName, Hardening, Models, RestartBench, WorkloadName};
pub use shell::{Completions, Man};
pub use steady::{Steady, SteadyWorkload};
pub use stored::{Backup, Compact, Dump, Load, NewDatabase, Restore, Stored, StoredAt, Upgrade};
pub use torture::{Life, Torture};
pub use tpch::TpchBench;
pub use trace::{
    QueriesName, Trace, TraceCapture, TraceConvert, TraceFile, TraceFilter, TraceHead, TraceInfo,
    TraceMake, Watcher,
};

use crate::quantity::{Share, Size, Span};
use clap::{Args, Parser, Subcommand, ValueEnum};
use lists::{
    admission, costs, daily_budget, design_list, layout, log_age, log_max, memory_policy,
    one_restart, replacement, theta,
};
use std::path::PathBuf;
use terrace_device::model::Preset;
use terrace_policy::{AdmissionRule, Costs, Layout, MemoryPolicy, Replacement, Restart};
use terrace_workload::{Place, System};

/// A transactional storage engine over memory, local flash and slow storage (home): benchmarks,
/// crash tests, and tools for databases and traces.
#[derive(Parser)]
#[command(name = "terrace", version, max_term_width = 100)]
pub struct Terrace {
    #[command(subcommand)]
    pub command: Command,
    /// Overwrite files that exist; without, only reports that Terrace wrote are replaced
    #[arg(long, global = true)]
    pub force: bool,
}

#[derive(Subcommand)]
pub enum Command {
    /// Benchmark designs of the flash tier, or the engine itself
    Bench(BenchCommand),
    /// Compute the cheapest static placement of pages in memory and on flash for known requests
    Placement(Placement),
    /// Replay a trace through cache policies and flash tiers, and count hits and misses
    Replay(Box<Replay>),
    /// Recommend a flash tier for a trace: design, size, gain and lifetime of the drive
    #[command(after_long_help = lists::presets())]
    Advise(Box<Advise>),
    /// Measure a device that is at hand, and print it as `advise` takes it
    Probe(Probe),
    /// Inspect, filter, convert, generate and capture traces of storage requests
    #[command(subcommand)]
    Trace(Trace),
    /// Test crash safety: cut the power at random moments, and check what survives
    Torture(Torture),
    /// One life of a database that is tortured in the real world
    #[command(hide = true)]
    TortureLife(Life),
    /// Verify every tree and page of a database; changes nothing
    Check(Stored),
    /// Show a database's format, tables, sizes and flash tier; changes nothing
    Stat(Stored),
    /// Give the room that a database does not use back to the file system
    Compact(Compact),
    /// Save a database page by page, or what has changed of it since another backup
    Backup(Backup),
    /// Make a database from a backup
    Restore(Restore),
    /// Save a database, or what can be read of a damaged one, as a stream of bytes
    Dump(Dump),
    /// Make a database from a dump
    Load(Load),
    /// Convert a database of format 1 or 2 that was shut down cleanly
    Upgrade(Upgrade),
    /// Print what completes this command's options in a shell
    Completions(Completions),
    /// Print the manual page of this command, or write those of all its parts
    Man(Man),
}

/// A bench, and what all of them can be asked for.
#[derive(Args)]
pub struct BenchCommand {
    #[command(subcommand)]
    pub bench: Bench,
    #[command(flatten)]
    pub recording: RecordOptions,
}

#[derive(Subcommand)]
pub enum Bench {
    /// Run TPC-C without a flash tier and under several designs of one
    Tpcc(Box<Tpcc>),
    /// Measure how long a restart takes until throughput is back at its peak
    Restart(Box<RestartBench>),
    /// Run another workload than TPC-C on each design of the flash tier
    Steady(Box<Steady>),
    /// Run streams of queries over a star schema on each design of the flash tier
    Erp(Box<Erp>),
    /// Run queries of TPC-H with ranges, one after the other, on each design of the flash tier
    Tpch(Box<TpchBench>),
    /// Compare index structures on flash drives with parallel units inside
    Index(IndexBench),
    /// Scan, join and aggregate tables on flash drives with a task for each parallel unit inside
    Parascan(ParascanBench),
    /// Read random rows, in real time
    Reads(Points),
    /// Replace random rows, in real time
    #[command(visible_alias = "writes")]
    Updates(Points),
    /// Read ranges of rows, in real time
    Scan(Points),
    /// Measure what drives gain from groups of requests, by the size of the group
    Psync(PsyncBench),
    /// Measure how long opening takes with a large flash tier, in real time
    FlashTable(FlashTable),
    /// Replay a trace's page references through the engine's buffer pool, in real time
    Trace(Box<TraceBench>),
}

/// Where numbers go.
#[derive(Args)]
pub struct Shown {
    /// Print the numbers as JSON to FILE, or to standard output: `-`
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// In which world the engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WorldName {
    /// Modelled devices, virtual time: the same numbers on any machine
    Virtual,
    /// Files or block devices, direct I/O, real time
    Real,
}

#[derive(Args)]
pub struct Tpcc {
    #[command(flatten)]
    pub shown: Shown,

    /// Where to write the report, one self-contained page [default: report.html]
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Write no report
    #[arg(long, conflicts_with = "report")]
    pub no_report: bool,

    /// Designs to run, by name, or `all`
    #[arg(long, value_name = "NAMES", default_value = "no-ssd,cw,dw,lc,tac,auto",
          value_parser = design_list)]
    pub design: DesignList,
    /// How the flash tier is found again when the database is next opened, by name
    #[arg(long, value_name = "NAME", default_value = "forget", value_parser = one_restart)]
    pub restart: Restart,
    /// Seed of the database, the transactions and the order of events
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of seeds to run each design with; more than one gives 95% intervals
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// Number of runs in parallel, each on its own thread [default: the cores, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub jobs: Option<u64>,

    #[command(flatten)]
    pub database: TpccDatabase,
    #[command(flatten)]
    pub devices: TpccDevices,
    #[command(flatten)]
    pub tier: Tier,
    #[command(flatten)]
    pub clients: TpccClients,
    /// Sample N pages, and report how often each is read and written while it is on flash and while
    /// it is not. One design, one seed
    #[arg(long, value_name = "N", conflicts_with = "record", help_heading = "Recording")]
    pub page_rates: Option<u32>,
}

#[derive(Args)]
#[command(next_help_heading = "Database")]
pub struct TpccDatabase {
    /// Warehouses, about 105 MiB each
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub warehouses: u32,
    /// How full the load leaves each page
    #[arg(long, value_name = "SHARE", default_value = "70%")]
    pub fill: Share,
    /// Rows per warehouse: as specified, or few for a quick run
    #[arg(long, value_name = "ROWS", value_enum, default_value_t = Rows::Full)]
    pub rows: Rows,
    /// Skip the twelve consistency conditions after load and runs
    #[arg(long)]
    pub no_check: bool,
}

/// How many rows a warehouse has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rows {
    /// As specified
    Full,
    /// About 300 KiB a warehouse
    Tiny,
}

#[derive(Args)]
#[command(next_help_heading = "World and devices")]
pub struct TpccDevices {
    /// Modelled devices in virtual time, or real ones in real time
    #[arg(long, value_enum, default_value_t = WorldName::Virtual)]
    pub world: WorldName,
    /// The permanent home: a preset, or in the real world a path
    #[arg(long, value_name = "PRESET|PATH", help = device_help("The permanent home", 0))]
    pub home: Option<String>,
    /// The flash device: a preset, or in the real world a path
    #[arg(long, value_name = "PRESET|PATH", help = device_help("The flash device", 1))]
    pub flash_device: Option<String>,
    /// The log device: a preset, or in the real world a path
    #[arg(long, value_name = "PRESET|PATH", help = device_help("The log device", 2))]
    pub log_device: Option<String>,
    /// Have the log grow, up to this [default: a log of fixed size]
    #[arg(long, value_name = "SIZE", value_parser = log_max)]
    pub log_max: Option<u64>,
    /// Threads of the real world
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=256))]
    pub threads: u64,
    /// In the real world: overwrite what is at the paths, unless it is a database
    #[arg(long)]
    pub overwrite: bool,
    /// Cores of the virtual world, on which CPU time is spent
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cores: u32,
}

#[derive(Args)]
#[command(next_help_heading = "Memory and flash tier")]
pub struct Tier {
    /// Memory for pages: 64MiB, 25600p (pages) or 10% of the loaded database
    #[arg(long, value_name = "SIZE", default_value = "25600p")]
    pub dram: Size,
    /// The flash tier: as `--dram`
    #[arg(long, value_name = "SIZE", default_value = "183501p")]
    pub flash: Size,
    /// Take the memory for the flash tier's metadata (directory, eviction orders, ghosts, tables)
    /// out of `--dram`
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    pub charge_metadata: Switch,
    /// Eviction policy of memory: lru-2, clock, lru, sieve, gd2l, fasc, priced [default: by design:
    /// priced for auto, gd2l for cac, lru for cc, fasc for fasc, lru-2 for the others]
    #[arg(long, value_name = "NAME", value_parser = memory_policy)]
    pub memory_policy: Option<MemoryPolicy>,
    /// Request costs in ms that gd2l, cc, cac and fasc assume: home read and write, flash read and
    /// write [default: reads as measured on the devices, writes the same]
    #[arg(long, value_name = "MS,MS,MS,MS", value_parser = costs)]
    pub costs: Option<Costs>,
    /// Admission to flash: random-class, everything, tinylfu [default: by design]
    #[arg(long, value_name = "NAME", value_parser = admission)]
    pub admission: Option<AdmissionRule>,
    /// Replacement on flash: lru-2, lru, fifo, clock, 2q, arc, lirs, s3-fifo, sieve, w-tinylfu,
    /// lecar [default: by design]
    #[arg(long, value_name = "NAME", value_parser = replacement)]
    pub replacement: Option<Replacement>,
    /// Layout of flash: in-place, append-page, append-group; the append layouts need the
    /// replacement fifo or clock [default: by design]
    #[arg(long, value_name = "NAME", value_parser = layout)]
    pub layout: Option<Layout>,
    /// Most bytes to write to flash in a day, like 100GiB; then nothing more is admitted
    /// [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = daily_budget)]
    pub flash_writes_per_day: Option<u64>,
    /// lambda: share of the slots that may be dirty before the cleaner starts
    #[arg(long, value_name = "SHARE", default_value = "50%")]
    pub lambda: Share,
    /// tau: share of the slots up to which every evicted page is admitted
    #[arg(long, value_name = "SHARE", default_value = "95%")]
    pub tau: Share,
    /// mu: with more requests than this queued at the flash, home serves clean reads and nothing is
    /// admitted
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub mu: u32,
    /// While requests queue for the flash and home is nearly idle, read pages that both have from
    /// home [default: on for auto, off for the others]
    #[arg(long, value_enum)]
    pub spill: Option<Switch>,
    /// N: partitions of the flash tier's structures
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub partitions: u32,
    /// alpha: most pages that the cleaner writes home with one request
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub alpha: u32,
    /// FaCE: pages per group, which is appended with one write and evicted with one read
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub face_group: u32,
    /// FASC: pages of a block, which is written whole; 128 are 1 MiB
    #[arg(long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub fasc_block: u32,
    /// FASC: page requests per window; a page used in neither of the last two windows is cold
    #[arg(long, value_name = "N", default_value_t = 4096,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub fasc_window: u64,
    /// FASC: share of the slots in use above which each block written evicts another
    #[arg(long, value_name = "SHARE", default_value = "95%")]
    pub fasc_full: Share,
    /// FASC: pages per batch that is migrated home; one batch fills while another is written
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub fasc_migration: u32,
    /// FASC: theta of its two memory queues, above 0 and below 1 [default: 1 minus the share of
    /// memory that is dirty]
    #[arg(long, value_name = "THETA", value_parser = theta)]
    pub fasc_theta: Option<f64>,
    /// FASC: how many pages to scan from the end of a queue for a clean victim
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub fasc_scan: u32,
    /// Most writes that the cleaner keeps outstanding
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub cleaner_ios: u32,
    /// Pages per BUF_WRITE record, which logs that pages were written home
    #[arg(long, value_name = "N", default_value_t = 2048,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub buf_write_pages: u32,
    /// Order in which the cleaner takes dirty pages
    #[arg(long, value_enum, default_value_t = CleanerOrderName::Lru2)]
    pub cleaner_order: CleanerOrderName,
    /// Write each change home after this much further log, whatever lambda says: bounds redo
    /// [default: no bound]
    #[arg(long, value_name = "SIZE", value_parser = log_age, conflicts_with = "cleaner_order")]
    pub clean_age: Option<u64>,
    /// Read eight adjacent pages instead of one until memory is full [SIGMOD 2011, 4.3.2]
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub ramp_up_fill: Switch,
    /// Read eight adjacent pages instead of one until the flash is full [ICDE 2013, IV-A1]
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    pub aggressive_fill: Switch,
    /// What counts as a sequential page
    #[arg(long, value_enum, default_value_t = ClassifierName::ReadAhead)]
    pub classifier: ClassifierName,
    /// TAC: when an admitted page is written
    #[arg(long, value_enum, default_value_t = TacWriteName::Async)]
    pub tac_write: TacWriteName,
    /// TAC: how much warmer than the coldest cached page a page must be to be admitted
    #[arg(long, value_enum, default_value_t = TacRuleName::Hotter)]
    pub tac_rule: TacRuleName,
    /// TAC: page requests after which temperatures are halved; 0 for the number of slots
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub tac_aging: u64,
    /// Make flash a part of the database instead of a cache, as FaCE, FASC and CAC were published:
    /// changes on flash no longer hold the log, and the database does not open without its flash
    #[arg(long)]
    pub persistent_flash: bool,
    /// Time between checkpoints; `0s` is never [default: never; `bench restart`: 18s, and 4.5s for
    /// the tpce-like workload]
    #[arg(long, value_name = "TIME")]
    pub checkpoint: Option<Span>,
}

/// Whether something is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On
    On,
    /// Off
    Off,
}

/// Order in which the cleaner takes dirty pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CleanerOrderName {
    /// The oldest use before the last [SIGMOD 2011]
    #[value(name = "lru-2")]
    Lru2,
    /// The oldest change [ICDE 2013]
    RecLsn,
}

/// What counts as a sequential page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClassifierName {
    /// One that was read ahead
    ReadAhead,
    /// One within 64 pages of the page read before
    Near,
}

/// When TAC writes an admitted page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TacWriteName {
    /// Soon after the read, unless the page is changed first [SIGMOD 2011]
    Async,
    /// Before the read returns [VLDB 2010]
    Sync,
}

/// How much warmer than the coldest a page must be for TAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TacRuleName {
    /// Warmer at all [SIGMOD 2011]
    Hotter,
    /// By 1% [VLDB 2010]
    OnePercent,
}

#[derive(Args)]
#[command(next_help_heading = "Clients and time")]
pub struct TpccClients {
    /// Number of clients
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub clients: u32,
    /// Measured time, by the clock of the world
    #[arg(long, value_name = "TIME", default_value = "360s")]
    pub duration: Span,
    /// Length of the windows for which throughput is shown [default: a hundredth of the duration]
    #[arg(long, value_name = "TIME")]
    pub window: Option<Span>,
    /// Average over this last share of the duration
    #[arg(long, value_name = "SHARE", default_value = "10%")]
    pub averaged: Share,
    /// First read the database into memory, as far as it fits
    #[arg(long)]
    pub warm: bool,
    /// Give each client a warehouse of its own, instead of a random one per transaction
    #[arg(long)]
    pub own_warehouse: bool,
    /// Divide the specification's keying and think times by N; 0 for no such times
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub think: u32,
    /// When a commit returns
    #[arg(long, value_enum, default_value_t = DurabilityName::Durable)]
    pub durability: DurabilityName,
}

/// When a commit returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DurabilityName {
    /// At once; the log is written when enough of it has gathered in memory
    None,
    /// When the log was written to its device, without a sync
    Buffered,
    /// When the log was written and synced: the commit survives a power cut
    Durable,
}

#[derive(Args)]
pub struct Points {
    #[command(flatten)]
    pub shown: Shown,
    /// Seed of the rows that are picked
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// This benchmark runs only in the real world: files or block devices, in real time
    #[arg(long, value_enum, default_value_t = WorldName::Real)]
    pub world: WorldName,
    /// The database; it is loaded if it is not there [default: a temporary one]
    #[arg(long, value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Rows, with keys of 8 bytes
    #[arg(long, value_name = "N", default_value_t = 5_000_000,
          value_parser = clap::value_parser!(u64).range(1..=10_000_000_000))]
    pub rows: u64,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub value_bytes: u64,
    /// Memory for pages; a share is of the rows' bytes [default: room for all]
    #[arg(long, value_name = "SIZE")]
    pub dram: Option<Size>,
    /// How long the log may get, which grows [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = log_max)]
    pub log_max: Option<u64>,
    /// Rows of a scan
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub scan_rows: u64,
    /// Operations of one transaction [default: 1000 reads; 1 update or scan]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub batch: Option<u64>,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=256))]
    pub threads: u64,
    /// Tasks, spread over the threads; several per thread keep a queue at the device
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=20_000))]
    pub tasks: Option<u64>,
    /// Measured time
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub duration: Span,
    /// Also measure the file alone: random page reads by the same number of tasks
    #[arg(long)]
    pub probe: bool,
}

#[derive(Args)]
pub struct FlashTable {
    #[command(flatten)]
    pub shown: Shown,
    /// A file to create for the benchmark, and remove afterwards; in a file system with sparse
    /// files it takes 16 bytes a slot and a journal
    #[arg(long, value_name = "PATH")]
    pub path: PathBuf,
    /// Slots of the flash tier
    #[arg(long, value_name = "N", default_value_t = 100_000_000,
          value_parser = clap::value_parser!(u32).range(1_000..=1_000_000_000))]
    pub slots: u32,
    /// Pages that have changes in the log
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub updated: u32,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u64).range(1..=256))]
    pub threads: u64,
}

/// The presets of the virtual world unless others are asked for: home, flash, log.
pub fn default_presets() -> [String; 3] {
    match System::default().place {
        Place::Virtual { home, flash, log } => [home, flash, log],
        Place::Real { .. } => unreachable!("the default is virtual"),
    }
}

fn device_help(what: &str, device: usize) -> String {
    let default = &default_presets()[device];
    let known = Preset::NAMES.join(", ");
    format!(
        "{what}: in the virtual world a preset ({known}), in the real one a path \
         [default: {default}]"
    )
}
