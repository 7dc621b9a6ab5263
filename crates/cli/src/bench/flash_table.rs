//! `terrace bench flash-table`: how long opening takes over a large flash tier's table.

use crate::command::FlashTable;
use crate::failure::Failure;
use crate::output::{Sinks, Stopwatch};
use crate::results::Host;
use crate::table::thousands;
use serde_json::json;
use std::path::Path;
use terrace_workload::flash_table::{self, Config};

/// Runs it.
///
/// # Errors
///
/// A path where something is already; what the file says.
pub fn flash_table(options: &FlashTable) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let path = options.path.display();
    if options.path.exists() {
        return Err(Failure::usage(format!("{path} is there already: name a file to be made")));
    }
    let config = Config {
        slots: options.slots,
        path: options.path.clone(),
        updated: options.updated,
        threads: options.threads as usize,
    };
    let made = Made(&options.path);
    let result = flash_table::run(&config)
        .map_err(|error| Failure::of(format!("bench flash-table on {path}"), &error))?;
    drop(made);
    let seconds = |span: terrace_rt::Nanos| span.as_secs_f64();
    sinks.show(&format!(
        "a flash table of {} pages opened in {:.2} s: read {:.2}, judged by the log {:.2}, filled \
         {:.2}; {} bytes a slot in memory, {} slots filled\n",
        thousands(f64::from(config.slots)),
        seconds(result.total()),
        seconds(result.load),
        seconds(result.settle),
        seconds(result.fill),
        result.bytes_per_slot,
        thousands(result.filled as f64),
    ));
    let host = Host::of(&watch, 0.0);
    sinks.write(&json!({
        "command": "bench flash-table",
        "version": env!("CARGO_PKG_VERSION"),
        "parameters": {
            "slots": config.slots,
            "updated": config.updated,
            "threads": config.threads,
            "world": "real",
        },
        "host": host,
        "runs": [{
            "open_s": seconds(result.total()),
            "read_s": seconds(result.load),
            "settle_s": seconds(result.settle),
            "fill_s": seconds(result.fill),
            "filled": result.filled,
            "flash": { "metadata_bytes_per_slot": result.bytes_per_slot },
        }],
    }))
}

/// The file, which goes when this does.
struct Made<'p>(&'p Path);

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}
