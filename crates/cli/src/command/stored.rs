//! Options of the commands on databases that are there: check, stat, compact, backup, restore,
//! dump, load.

use super::Shown;
use super::lists::{log_max, one_design, one_restart, rate};
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

/// Where a database is, and how to open it.
#[derive(Args)]
pub struct StoredAt {
    /// Path of the database
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Path of its log, if it is not PATH.log
    #[arg(long, value_name = "PATH")]
    pub log: Option<PathBuf>,
    /// Path of its flash tier; not needed if that is a cache
    #[arg(long, value_name = "PATH")]
    pub flash_device: Option<PathBuf>,
    /// How much of it the flash tier takes [default: all but the last 8 KiB]
    #[arg(long, value_name = "SIZE", requires = "flash_device")]
    pub flash: Option<Size>,
    /// The design of the flash tier
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = one_design)]
    pub design: Design,
    /// The restart of the flash tier
    #[arg(long, value_name = "NAME", default_value = "warm", value_parser = one_restart)]
    pub restart: Restart,
    /// Open the flash tier as a part of the database
    #[arg(long, requires = "flash_device")]
    pub persistent_flash: bool,
    /// Memory for pages
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub dram: Size,
}

/// Steps of a compaction are logged. If it is killed, the next opening needs a limit of the log
/// that is not lower than this one.
#[derive(Args)]
pub struct Compact {
    #[command(flatten)]
    pub shown: Shown,
    #[command(flatten)]
    pub at: StoredAt,
    /// How long the log may get [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = log_max)]
    pub log_max: Option<u64>,
}

/// Works on a database that no process has open for writing, also after a crash, and changes no
/// byte of it. One that is open is backed up by its own process, with `Database::backup`.
#[derive(Args)]
pub struct Backup {
    #[command(flatten)]
    pub shown: Shown,
    #[command(flatten)]
    pub at: StoredAt,
    /// The backup to be written, or `-` for standard output; nothing may be there
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Save only what has changed since this backup; it is restored upon that one
    #[arg(long, value_name = "FILE")]
    pub since: Option<PathBuf>,
    /// Read at most so many bytes of pages a second
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub rate: Option<u64>,
}

/// The database has an id of its own: no flash tier of the original is taken for one of it.
#[derive(Args)]
pub struct Restore {
    #[command(flatten)]
    pub shown: Shown,
    /// The whole backup, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Path of the database to create; nothing may be there
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// A backup that was made since the one before; may be repeated
    #[arg(long, value_name = "FILE")]
    pub then: Vec<PathBuf>,
    #[command(flatten)]
    pub made: NewDatabase,
}

/// The dump goes to standard output, reports of losses to standard error. Exit status: 0 if
/// everything was saved; 1 if not, and what was written does not load. With --salvage: 3 if
/// something was lost, 1 if nothing could be saved.
#[derive(Args)]
pub struct Dump {
    #[command(flatten)]
    pub at: StoredAt,
    /// Save only this table; may be repeated
    #[arg(long, value_name = "NAME")]
    pub table: Vec<String>,
    /// Save what can be read of a damaged database, from home alone if the log is lost
    #[arg(long)]
    pub salvage: bool,
}

/// Exit status: 0 if everything was loaded; 3 if so, but the dump was salvaged from a database that
/// had lost something; 1 if it failed, and nothing is at PATH.
#[derive(Args)]
pub struct Load {
    /// The dump, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub dump: PathBuf,
    /// Path of the database to create; nothing may be there
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    #[command(flatten)]
    pub made: NewDatabase,
}

/// Without --to, the old database is renamed to PATH.old, and the new one takes its place.
#[derive(Args)]
pub struct Upgrade {
    /// Path of the database to convert; its log is not read
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Path of the new database, which then does not replace the old one
    #[arg(long, value_name = "PATH")]
    pub to: Option<PathBuf>,
    #[command(flatten)]
    pub made: NewDatabase,
}

/// Options of a new database.
#[derive(Args)]
pub struct NewDatabase {
    /// Size of the home, reserved at once [default: it grows, up to 64 GiB]
    #[arg(long, value_name = "SIZE")]
    pub home_size: Option<Size>,
    /// Size of the log, reserved at once [default: it grows, up to 1 GiB]
    #[arg(long, value_name = "SIZE")]
    pub log_size: Option<Size>,
    /// How long a log that grows may get [default: 1GiB]; each opening sets its own limit
    #[arg(long, value_name = "SIZE", value_parser = log_max, conflicts_with = "log_size")]
    pub log_max: Option<u64>,
    /// Memory for pages
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub dram: Size,
}
