//! The options of `bench restart`. The tier of ICDE 2013 has other defaults than that of SIGMOD
//! 2011.

use super::lists::{DesignList, RestartList, design_list, log_max, preset, restart_list};
use super::{Shown, Tier, TpccDatabase};
use crate::quantity::{Share, Size, Span};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Args)]
pub struct RestartBench {
    #[command(flatten)]
    pub shown: Shown,

    /// Where to write the report, one self-contained page [default: report.html]
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Write no report
    #[arg(long, conflicts_with = "report")]
    pub no_report: bool,

    /// Designs to run, by name, or `all`
    #[arg(long, value_name = "NAMES", default_value = "dw,lc", value_parser = design_list)]
    pub design: DesignList,
    /// Restarts to run with each design, by name, or `all`
    #[arg(long, value_name = "NAMES", default_value = "forget", value_parser = restart_list)]
    pub restart: RestartList,
    /// What ends the first part of a run
    #[arg(long, value_enum, default_value_t = EventName::Shutdown)]
    pub event: EventName,
    /// What the clients do
    #[arg(long, value_enum, default_value_t = WorkloadName::Tpcc)]
    pub workload: WorkloadName,
    /// Seed of the database, the transactions and the order of events
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of seeds to run each pair of design and restart with; more than one gives 95%
    /// intervals
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// Number of runs in parallel, each on its own thread [default: the cores, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub jobs: Option<u64>,

    #[command(flatten)]
    pub database: TpccDatabase,
    #[command(flatten)]
    pub brokerage: BrokerageDatabase,
    #[command(flatten)]
    pub models: Models,
    #[command(flatten)]
    pub tier: Tier,
    #[command(flatten)]
    pub hardening: Hardening,
    #[command(flatten)]
    pub parts: Parts,
}

/// What ends the first part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EventName {
    /// The database is closed
    Shutdown,
    /// The power is cut
    Crash,
}

/// What the clients of a restart bench do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WorkloadName {
    /// TPC-C
    Tpcc,
    /// Synthetic, with TPC-E's read:write ratio, and a skew
    TpceLike,
}

#[derive(Args)]
#[command(next_help_heading = "Database of the tpce-like workload")]
pub struct BrokerageDatabase {
    /// Customers, about 100 KiB each
    #[arg(long, value_name = "N", default_value_t = 20_000,
          value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    pub customers: u32,
}

#[derive(Args)]
#[command(next_help_heading = "Modelled devices")]
pub struct Models {
    /// The permanent home
    #[arg(long, value_name = "PRESET", default_value = "icde2013-hdd", value_parser = preset)]
    pub home: String,
    /// The flash device
    #[arg(long, value_name = "PRESET", default_value = "iodrive", value_parser = preset)]
    pub flash_device: String,
    /// The log device
    #[arg(long, value_name = "PRESET", default_value = "sigmod2011-log", value_parser = preset)]
    pub log_device: String,
    /// Size of the log; the modelled device keeps what is written of it in memory
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    pub log: Size,
    /// Have the log grow, up to this, in place of `--log`
    #[arg(long, value_name = "SIZE", value_parser = log_max, conflicts_with = "log")]
    pub log_max: Option<u64>,
    /// Cores of the virtual world, on which CPU time is spent
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cores: u32,
}

#[derive(Args)]
#[command(next_help_heading = "How the published restarts harden their tables")]
pub struct Hardening {
    /// LBR: most slot writes that share one force of the log; 1 for no groups [ICDE 2013, III-C3]
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub lbr_group: u32,
    /// LBR: longest wait of a slot write for others to share the force with
    #[arg(long, value_name = "TIME", default_value = "2ms")]
    pub lbr_timeout: Span,
    /// MMR: bytes of the table per write, a power of two from 512 to 8192 [ICDE 2013, III-B2]
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = table_unit)]
    pub mmr_unit: u32,
    /// LVR: number of chunks of the table; each is read and written whole [ICDE 2013, III-D2]
    #[arg(long, value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub lvr_chunks: u32,
    /// LVR: pause of the flusher after every eight chunks [ICDE 2013: 500 ms; scaled by 1/100, like
    /// the table]
    #[arg(long, value_name = "TIME", default_value = "5ms")]
    pub lvr_pause: Span,
}

fn table_unit(text: &str) -> Result<u32, String> {
    let bytes = text.parse().map_err(|_| "a number of bytes is meant".to_string())?;
    let known = [512, 1024, 2048, 4096, 8192];
    if known.contains(&bytes) { Ok(bytes) } else { Err("a power of two from 512 to 8192".into()) }
}

#[derive(Args)]
#[command(next_help_heading = "Clients and time")]
pub struct Parts {
    /// Number of clients
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub clients: u32,
    /// Time from the cold start to the shutdown or power cut
    #[arg(long, value_name = "TIME", default_value = "200s")]
    pub peak: Span,
    /// Time from the end of recovery to the end of the run
    #[arg(long, value_name = "TIME", default_value = "200s")]
    pub after: Span,
    /// Length of the windows in which throughput is sampled [ICDE 2013: 60 s; scaled by 1/100]
    #[arg(long, value_name = "TIME", default_value = "600ms")]
    pub window: Span,
    /// Time before the event, and before the end of the run, over which the steady throughput is
    /// averaged
    #[arg(long, value_name = "TIME", default_value = "18s")]
    pub averaged: Span,
    /// Share of the steady throughput that counts as being back at the peak
    #[arg(long, value_name = "SHARE", default_value = "95%")]
    pub peak_share: Share,
    /// With `--event crash`: time from the end of a checkpoint to the cut [default: half of
    /// `--checkpoint`]
    #[arg(long, value_name = "TIME")]
    pub cut_after: Option<Span>,
}

/// Defaults of `bench restart` that differ from those of `bench tpcc`: ICDE 2013, IV-A, scaled by
/// 1/100: sizes and times, not the speeds of devices.
pub(super) const RESTART_DEFAULTS: [(&str, &str); 5] = [
    ("dram", "31457p"),
    ("lambda", "20%"),
    ("buf_write_pages", "20"),
    ("cleaner_order", "rec-lsn"),
    ("aggressive_fill", "on"),
];
