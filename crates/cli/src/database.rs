//! `terrace check` and `terrace stat`: verify a database, and show what is in it.

use crate::command::Stored;
use crate::failure::Failure;
use crate::output::{Sinks, Stopwatch};
use crate::table::{Table, thousands};
use serde_json::json;
use terrace::Database;

const PAGE_BYTES: u64 = 8192;
/// Memory of a database that is only looked at, in pages, at least.
const FRAMES_MIN: u64 = 64;

/// Walks every tree of a database.
///
/// # Errors
///
/// A database that cannot be opened, or the first flaw.
pub fn check(options: &Stored) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let database = open(options)?;
    let failed = |error| Failure::failed(options.path.display(), error);
    let found = database.check().map_err(failed)?;
    database.close().map_err(failed)?;
    sinks.show(&format!(
        "{}: sound; {} trees, {} pages, {} entries\n",
        options.path.display(),
        thousands(found.trees as f64),
        thousands(found.pages as f64),
        thousands(found.entries as f64),
    ));
    sinks.write(&json!({
        "command": "check",
        "version": env!("CARGO_PKG_VERSION"),
        "sound": true,
        "trees": found.trees,
        "pages": found.pages,
        "entries": found.entries,
        "host": { "wall_s": watch.seconds() },
    }))
}

/// Shows the tables of a database, and how much room it takes.
///
/// # Errors
///
/// A database that cannot be opened.
pub fn stat(options: &Stored) -> Result<(), Failure> {
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let database = open(options)?;
    let failed = |error| Failure::failed(options.path.display(), error);
    let names = database.read(|transaction| transaction.table_names()).map_err(failed)?;
    let stats = database.stats();
    database.close().map_err(failed)?;
    let mut table = Table::new(["home", &thousands(stats.home_used_bytes as f64)]);
    table.row(["log".into(), thousands(stats.log.used_bytes as f64)]);
    table.row(["log, at most".into(), thousands(stats.log.capacity_bytes as f64)]);
    let mut text = format!("{}\nbytes\n{}", options.path.display(), table.text());
    text.push_str(&format!("{} tables\n", names.len()));
    for name in &names {
        text.push_str(&format!("  {name}\n"));
    }
    sinks.show(&text);
    sinks.write(&json!({
        "command": "stat",
        "version": env!("CARGO_PKG_VERSION"),
        "tables": names,
        "home_used_bytes": stats.home_used_bytes,
        "log_used_bytes": stats.log.used_bytes,
        "log_capacity_bytes": stats.log.capacity_bytes,
    }))
}

fn open(options: &Stored) -> Result<Database, Failure> {
    let frames = options.dram.pages(0);
    if frames < FRAMES_MIN {
        return Err(Failure::usage(format!("--dram must be at least {FRAMES_MIN} pages")));
    }
    let mut builder = Database::builder().memory(frames * PAGE_BYTES);
    if let Some(log) = &options.log {
        builder = builder.log(log);
    }
    builder.open(&options.path).map_err(|error| Failure::failed(options.path.display(), error))
}
