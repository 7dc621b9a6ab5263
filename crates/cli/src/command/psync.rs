//! The options of `bench psync`.

use super::Shown;
use super::lists::preset;
use crate::quantity::Span;
use clap::Args;
use std::path::PathBuf;
use terrace_device::PSYNC_GROUP_MAX;

#[derive(Args)]
pub struct PsyncBench {
    #[command(flatten)]
    pub shown: Shown,
    /// Modelled drives, by name [default: iodrive-geometry, p300, ssd-s, ssd-m, consumer-sata and
    /// dc-nvme; none with `--path`]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = preset)]
    pub device: Vec<String>,
    /// A file of a few hundred MiB, or a block device, that is read in real time
    #[arg(long, value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// With `--path`: measure writes too; pages are written back as they were read before
    #[arg(long, requires = "path")]
    pub write: bool,
    /// Requests of a group, from one measurement to the next; the first is what gains are over
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,2,4,8,16,32,64",
          value_parser = clap::value_parser!(u64).range(1..=PSYNC_GROUP_MAX as u64))]
    pub groups: Vec<u64>,
    /// Seed of the places
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Time of each measurement on a file
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub seconds: Span,
}
