//! The options of `placement`.

use super::Shown;
use clap::{Args, ValueEnum};

#[derive(Args)]
pub struct Placement {
    #[command(flatten)]
    pub shown: Shown,
    /// Pages with each number of reads, and with each number of writes: their square is all pages
    #[arg(long, value_name = "N", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(2..=100))]
    pub side: u32,
    /// Reads of the most read page, and writes of the most written; the least have one
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub most: u32,
    /// How the numbers in between are spaced
    #[arg(long, value_enum, default_value_t = SpacingName::Log)]
    pub spacing: SpacingName,
    /// Pages that memory holds
    #[arg(long, value_name = "N", default_value_t = 150,
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub memory: u32,
    /// Pages that flash holds
    #[arg(long, value_name = "N", default_value_t = 200,
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub flash: u32,
    /// Costs of a read and of a write at home, of a read and of a write on flash
    #[arg(long, value_name = "MS,MS,MS,MS", value_delimiter = ',',
          default_values_t = [12.0, 12.5, 0.16, 0.4])]
    pub costs: Vec<f64>,
}

/// How numbers are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SpacingName {
    /// In equal steps
    Linear,
    /// In equal ratios
    Log,
}
