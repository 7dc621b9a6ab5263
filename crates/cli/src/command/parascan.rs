//! The options of `bench parascan`.

use super::Shown;
use clap::Args;
use std::path::PathBuf;
use terrace_device::model::UnknownPreset;
use terrace_operators::trials::figures::Drive;

#[derive(Args)]
pub struct ParascanBench {
    #[command(flatten)]
    pub shown: Shown,
    /// Where to write a report, one self-contained page
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Modelled drives to run on, by name; joins run on the first
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = drive,
          default_value = "ssd-s,ssd-m,hdd-7200")]
    pub drives: Vec<Drive>,
    /// Part of the paper's sizes: one in N of the rows of its tables, and of memory
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub divisor: u64,
    /// The paper's sizes: the same as `--divisor 1`
    #[arg(long, conflicts_with = "divisor")]
    pub full: bool,
    /// Seed of what the tables hold
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of measurements in parallel, each on its own thread [default: the cores, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub jobs: Option<u64>,
    /// Instead, scan a file or block device from one thread, in real time; nothing is written
    #[arg(long, value_name = "PATH", conflicts_with_all = ["divisor", "full", "steps"])]
    pub file: Option<PathBuf>,
    /// Instead, measure what the steps of the operators cost on this machine
    #[arg(long, conflicts_with_all = ["divisor", "full"])]
    pub steps: bool,
}

fn drive(name: &str) -> Result<Drive, String> {
    name.parse().map_err(|error: UnknownPreset| error.to_string())
}
