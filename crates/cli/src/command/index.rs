//! The options of `bench index`.

use super::Shown;
use clap::Args;
use std::path::PathBuf;
use terrace_device::model::UnknownPreset;
use terrace_index::trials::Drive;

#[derive(Args)]
pub struct IndexBench {
    #[command(flatten)]
    pub shown: Shown,
    /// Where to write a report, one self-contained page
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Modelled drives to run on, by name
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = drive,
          default_value = "iodrive-geometry,p300,dc-nvme")]
    pub drives: Vec<Drive>,
    /// Part of the papers' sizes: one in N of 10^9 entries, 16 MB of memory, and operations
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub divisor: u64,
    /// The papers' sizes: the same as `--divisor 1`
    #[arg(long, conflicts_with = "divisor")]
    pub full: bool,
    /// Seed of keys and operations
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of measurements in parallel, each on its own thread [default: the cores, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub jobs: Option<u64>,
}

fn drive(name: &str) -> Result<Drive, String> {
    name.parse().map_err(|error: UnknownPreset| error.to_string())
}
