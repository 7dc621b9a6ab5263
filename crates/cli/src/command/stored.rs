//! Options of the commands on databases that are there: check, stat, dump, load.

use super::Shown;
use super::lists::{one_design, one_restart};
use crate::quantity::Size;
use clap::Args;
use std::path::PathBuf;
use terrace_policy::{Design, Restart};

#[derive(Args)]
pub struct Stored {
    #[command(flatten)]
    pub shown: Shown,
    #[command(flatten)]
    pub at: StoredAt,
}

/// Where a database is.
#[derive(Args)]
pub struct StoredAt {
    /// The database
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Its log, if it is not at PATH.log
    #[arg(long, value_name = "PATH")]
    pub log: Option<PathBuf>,
    /// Its flash tier; one that is a cache may be left out
    #[arg(long, value_name = "PATH")]
    pub flash_device: Option<PathBuf>,
    /// The design of the flash tier
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = one_design)]
    pub design: Design,
    /// The restart of the flash tier
    #[arg(long, value_name = "NAME", default_value = "warm", value_parser = one_restart)]
    pub restart: Restart,
    /// The flash tier is a part of the database
    #[arg(long, requires = "flash_device")]
    pub persistent_flash: bool,
    /// Memory for pages
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub dram: Size,
}

/// The dump goes to standard output, what could not be read to standard error. Exit status: 0 if
/// all was saved, 1 if not: then what was written is no whole dump, and does not load. With
/// --salvage 3 if something was lost, and 1 if nothing could be saved.
#[derive(Args)]
pub struct Dump {
    #[command(flatten)]
    pub at: StoredAt,
    /// Save this table only; may be given several times
    #[arg(long, value_name = "NAME")]
    pub table: Vec<String>,
    /// Save what is left of a damaged database, from its home alone if its log is lost
    #[arg(long)]
    pub salvage: bool,
}

/// Exit status: 0 if all was loaded, 3 if the dump is of a database that had lost something, 1 if
/// nothing was loaded: then nothing is at PATH.
#[derive(Args)]
pub struct Load {
    /// The dump, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub dump: PathBuf,
    /// Where the database shall be; there must be nothing
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    #[command(flatten)]
    pub made: NewDatabase,
}

/// Without --to, the old database is kept under its name with `.old` behind it, and the new one
/// takes its place.
#[derive(Args)]
pub struct Upgrade {
    /// The database to be converted; its log is not read
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Where the new one shall be, instead of in the place of the old one
    #[arg(long, value_name = "PATH")]
    pub to: Option<PathBuf>,
    #[command(flatten)]
    pub made: NewDatabase,
}

/// How a database is made.
#[derive(Args)]
pub struct NewDatabase {
    /// Bytes that its home may have, reserved at once [default: it grows, up to 64 GiB]
    #[arg(long, value_name = "SIZE")]
    pub home_size: Option<Size>,
    /// Bytes of its log
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub log_size: Size,
    /// Memory for pages
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub dram: Size,
}
