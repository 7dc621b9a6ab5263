//! `terrace compact`: gives the room that a database does not use back to the file system.

use crate::command::Compact;
use crate::database::{blank_flash, builder};
use crate::failure::Failure;
use crate::output::{Sinks, Stopwatch};
use crate::table::thousands;
use serde_json::json;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of a block, as files count them.
const BLOCK_BYTES: u64 = 512;

/// Opens a database, compacts it, and closes it again.
///
/// # Errors
///
/// A database that cannot be opened, or that a process has open; those of the compaction.
pub fn compact(options: &Compact) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let path = &options.at.path;
    let of_engine = |error: terrace::Error| Failure::of_engine(path.display(), &error);
    let mut builder = builder(&options.at, blank_flash(&options.at)?)?;
    if let Some(bytes) = options.log_max {
        builder = builder.log_max(bytes);
    }
    let before = allocated(path);
    let database = builder.open(path).map_err(of_engine)?;
    let compacted = database.compact().map_err(of_engine)?;
    let used = database.stats().home_used_bytes;
    database.close().map_err(of_engine)?;
    let after = allocated(path);
    let [from, to, in_use] = [before, after, used].map(|bytes| thousands(bytes as f64));
    let [moved, freed] =
        [compacted.pages_moved, compacted.pages_freed].map(|pages| thousands(pages as f64));
    sinks.show(&format!(
        "{}: home had {from} bytes, and has {to}, of which {in_use} are in use; {moved} pages \
         moved, {freed} freed\n",
        path.display()
    ));
    sinks.write(&json!({
        "command": "compact",
        "version": env!("CARGO_PKG_VERSION"),
        "pages_moved": compacted.pages_moved,
        "pages_freed": compacted.pages_freed,
        "bytes_punched": compacted.bytes_punched,
        "home_allocated_bytes_before": before,
        "home_allocated_bytes": after,
        "home_used_bytes": used,
        "host": { "wall_s": watch.seconds() },
    }))
}

/// Bytes that a file takes; 0 of what is no file.
fn allocated(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.blocks() * BLOCK_BYTES)
}
