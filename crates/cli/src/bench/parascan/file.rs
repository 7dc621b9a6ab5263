//! `bench parascan --file`: how fast one thread scans a file or block device, in real time.
//!
//! The bytes are taken for pages as they are, since what is measured is how they are read.

use crate::bench::probe::stored_bytes;
use crate::command::ParascanBench;
use crate::failure::Failure;
use crate::interval::rounded;
use crate::output::Sinks;
use crate::table::Table;
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::sync::Arc;
use terrace_device::inside::Search;
use terrace_device::{Access, Device, FileDevice, FileOptions};
use terrace_operators::{Checked, Cpu, Error, PageNo, Pages, Plan, Table as Pages8K, choose, scan};
use terrace_rt::{LeafMutex, Real, now};

const PAGE_BYTES: u64 = 8 << 10;
/// Of the longest scan.
const BYTES_MAX: u64 = 8 << 30;
/// Scans of each plan, in turns.
const TURNS: usize = 3;
/// Requests that a drive is taken to accept at once.
const QUEUE: u32 = 32;

/// Pages of which nothing is known.
struct Unknown;

impl Pages for Unknown {
    fn page_bytes(&self) -> usize {
        PAGE_BYTES as usize
    }

    fn row_bytes_max(&self) -> usize {
        0
    }

    fn rows_max(&self) -> u16 {
        0
    }

    fn check(&self, _: PageNo, _: &[u8]) -> Option<Checked> {
        Some(Checked { version: 0, rows: 0 })
    }

    fn row<'a>(&self, _: &'a [u8], _: u16) -> &'a [u8] {
        &[]
    }
}

/// A way to scan, and the bytes a second of each turn.
struct Way {
    name: String,
    plan: Plan,
    rates: Vec<f64>,
}

/// Runs it.
///
/// # Errors
///
/// A file that cannot be read, or has no page.
pub fn file(path: &Path, options: &ParascanBench) -> Result<(), Failure> {
    let failed = |error: Error| Failure::failed(format!("cannot scan {}", path.display()), error);
    let io_failed = |error: io::Error| failed(Error::Device(error));
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let access = Access::ReadOnly;
    let device = FileDevice::open(path, &FileOptions { access, ..FileOptions::default() });
    let device = device.map_err(io_failed)?;
    let bytes = stored_bytes(path, device.len()).map_err(io_failed)?.min(BYTES_MAX);
    if bytes < PAGE_BYTES {
        return Err(Failure::Failed(format!(
            "{}: it has no page of {PAGE_BYTES} bytes to scan; take a file of a few hundred MiB",
            path.display()
        )));
    }
    let (device, found): (Arc<dyn Device>, _) = (Arc::new(device), Arc::new(LeafMutex::new(None)));
    let (result, seed) = (Arc::clone(&found), options.seed);
    Real::new(1).run(move || {
        let ways = ways(&device, bytes, seed);
        *result.lock() = Some(ways);
    });
    let ways = found.lock().take().expect("the task has ended").map_err(failed)?;
    let mut table = Table::new(["scan", "tasks", "request KiB", "MB/s", "least", "most"]);
    for way in &ways {
        let (tasks, request) = way.plan.buffers(PAGE_BYTES);
        let [low, middle, high] = ends(&way.rates);
        table.row([
            way.name.clone(),
            tasks.to_string(),
            (request >> 10).to_string(),
            format!("{:.1}", middle / 1e6),
            format!("{:.1}", low / 1e6),
            format!("{:.1}", high / 1e6),
        ]);
    }
    sinks.show(&format!("{}, {bytes} bytes, one thread\n\n{}", path.display(), table.text()));
    sinks.write(&json!({
        "command": "bench parascan --file",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": options.seed,
        "path": path.display().to_string(),
        "host": { "scans": ways.iter().map(object).collect::<Vec<_>>() },
    }))
}

fn ends(rates: &[f64]) -> [f64; 3] {
    let mut rates = rates.to_vec();
    rates.sort_by(f64::total_cmp);
    [rates[0], rates[rates.len() / 2], rates[rates.len() - 1]]
}

fn object(way: &Way) -> Value {
    let (tasks, request) = way.plan.buffers(PAGE_BYTES);
    json!({
        "scan": way.name,
        "tasks": tasks,
        "request_bytes": request,
        "bytes_per_s": way.rates.iter().map(|rate| rounded(*rate)).collect::<Vec<_>>(),
    })
}

fn ways(device: &Arc<dyn Device>, bytes: u64, seed: u64) -> Result<Vec<Way>, Error> {
    let choice = choose(device, bytes, &Search { seed, ..Search::default() }, (QUEUE, QUEUE))?;
    let way = |name: String, plan| Way { name, plan, rates: Vec::new() };
    let mut ways = vec![
        way("in order".into(), Plan::ordinary()),
        way("in order, 1 MiB".into(), Plan::in_order(1 << 20)?),
        way(format!("chosen: {}", super::shown::found(choice.found)), choice.plan),
    ];
    let count = (bytes / PAGE_BYTES) as PageNo;
    let table = Pages8K::new(Arc::clone(device), Arc::new(Unknown), 0, count)?;
    for _ in 0..TURNS {
        for way in &mut ways {
            let begin = now();
            scan(&table, &way.plan, &Cpu::free(), |_| (), |(), _, _| Ok(()))?;
            let seconds = now().saturating_sub(begin).as_secs_f64();
            way.rates.push(f64::from(count) * PAGE_BYTES as f64 / seconds);
        }
    }
    Ok(ways)
}
