//! `terrace probe`: what a device that is at hand gives, as a preset for `terrace advise`.
//!
//! - B1: nothing is written unless it is asked for; and then pages are written back as they were
//!   read before: the file is locked, so that no other process changes them meanwhile.
//! - B2: requests go the same way to the device as the engine's: direct, through io_uring where
//!   there is one, so that the system's cache serves none.
//! - B3: the latency is that of one request at a time; the rate is the best over the depths; bytes
//!   a second are those of large reads in order.
//! - `inside`: its domains instead.
//! - Not for: devices that burst. A volume which serves more for some minutes than for hours shows
//!   what it serves while it is probed.

mod inside;

use crate::bench::probe::stored_bytes;
use crate::command::Probe;
use crate::failure::Failure;
use crate::interval::rounded;
use crate::output::Sinks;
use crate::table::{Table, thousands};
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_device::{Access, Device, FileDevice, FileOptions, read, write};
use terrace_rt::{LeafMutex, Nanos, Prng, Real, now, spawn};

/// Requests that are outstanding, from one measurement to the next.
const DEPTHS: [u64; 5] = [1, 4, 16, 64, 256];
/// Bytes of the large reads.
const LARGE_BYTES: u64 = 256 << 10;
/// Large reads that are outstanding.
const LARGE_DEPTH: u64 = 8;
/// Share of reads in a mixed load, in percent.
const MIXED_READS: u64 = 70;
/// Pages that each client writes back.
const HELD_PAGES: usize = 8;
/// What direct I/O wants of memory, at most.
const ALIGNMENT: usize = 4_096;

/// What is asked of the device.
#[derive(Clone, Copy)]
struct Load {
    /// Of a hundred requests those that read.
    reads: u64,
    depth: u64,
    bytes: u64,
    in_order: bool,
    span: Nanos,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate {
    per_s: f64,
    /// Mean time of a request.
    latency_s: f64,
}

/// Rates by depth, of one kind of load.
struct Row {
    name: &'static str,
    rates: Vec<Rate>,
}

/// Runs it.
///
/// # Errors
///
/// A file that cannot be opened, or is too small; what the device says.
pub fn probe(options: &Probe) -> Result<(), Failure> {
    if options.inside {
        return inside::inside(options);
    }
    let failed = |error: io::Error| {
        Failure::failed(format!("cannot probe {}", options.path.display()), error)
    };
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let access = if options.write { Access::ReadWrite } else { Access::ReadOnly };
    let device = FileDevice::open(&options.path, &FileOptions { access, ..FileOptions::default() });
    let device: Arc<dyn Device> = Arc::new(device.map_err(failed)?);
    let bytes = stored_bytes(&options.path, device.len()).map_err(failed)?;
    if bytes < 2 * LARGE_BYTES {
        return Err(Failure::Failed(format!(
            "{}: a file of {} bytes is too small to be probed; take one of a few GiB, larger than \
             what the device itself caches",
            options.path.display(),
            thousands(bytes as f64)
        )));
    }
    let span = Nanos((options.seconds.0 * 1e9) as u64);
    let page = options.page.get();
    let run = |load: Load| measure(&device, bytes, load).map_err(failed);
    let random = |reads, depth| Load { reads, depth, bytes: page, in_order: false, span };
    let row = |name, reads| -> Result<Row, Failure> {
        let rates = DEPTHS.iter().map(|&depth| run(random(reads, depth)));
        Ok(Row { name, rates: rates.collect::<Result<_, _>>()? })
    };
    let mut rows = vec![row("reads", 100)?];
    if options.write {
        rows.extend([row("writes", 0)?, row("70% reads", MIXED_READS)?]);
    }
    let large = Load { reads: 100, depth: LARGE_DEPTH, bytes: LARGE_BYTES, in_order: true, span };
    let bytes_per_s = run(large)?.per_s * LARGE_BYTES as f64;
    let preset = preset(&rows, bytes_per_s);
    sinks.show(&text(&options.path, page, &rows, &preset));
    sinks.write(&object(page, &rows, bytes_per_s, &preset))
}

/// Asks `device`, of whose first `bytes` bytes something is stored.
fn measure(device: &Arc<dyn Device>, bytes: u64, load: Load) -> io::Result<Rate> {
    let places = bytes / load.bytes;
    let next = Arc::new(AtomicU64::new(0));
    let found = Arc::new(LeafMutex::new(Vec::new()));
    let (device, all) = (Arc::clone(device), Arc::clone(&found));
    Real::new(1).run(move || {
        let tasks: Vec<_> = (1..=load.depth)
            .map(|seed| {
                let (device, next) = (Arc::clone(&device), Arc::clone(&next));
                let all = Arc::clone(&all);
                spawn("probe", move || {
                    let worked = Client::work(&*device, load, places, seed, &next);
                    all.lock().push(worked);
                })
            })
            .collect();
        tasks.into_iter().for_each(terrace_rt::Task::join);
    });
    let (mut per_s, mut busy_s, mut done) = (0.0, 0.0, 0.0);
    for worked in found.lock().drain(..) {
        let Worked { requests, busy, elapsed } = worked?;
        per_s += requests as f64 / elapsed.as_secs_f64();
        busy_s += busy.as_secs_f64();
        done += requests as f64;
    }
    Ok(Rate { per_s, latency_s: busy_s / f64::max(done, 1.0) })
}

/// What one client did.
struct Worked {
    requests: u64,
    /// The time of all its requests.
    busy: Nanos,
    elapsed: Nanos,
}

/// One of the clients that ask at the same time.
struct Client<'a> {
    device: &'a dyn Device,
    memory: AlignedBytes,
    /// Pages that it writes back as they are.
    held: Vec<(u64, AlignedBytes)>,
}

impl Client<'_> {
    /// Asks, one request after the other, until the span is over; at least once.
    fn work(
        device: &dyn Device,
        load: Load,
        places: u64,
        seed: u64,
        next: &AtomicU64,
    ) -> io::Result<Worked> {
        let mut prng = Prng::from_seed(seed);
        let memory = AlignedBytes::new(load.bytes as usize);
        let mut client = Client { device, memory, held: Vec::new() };
        if load.reads < 100 {
            client.hold(load, places, &mut prng)?;
        }
        let (mut worked, begin) =
            (Worked { requests: 0, busy: Nanos::ZERO, elapsed: Nanos::ZERO }, now());
        while worked.requests == 0 || worked.elapsed < load.span {
            let asked = now();
            if prng.below(100) < load.reads {
                let place = match load.in_order {
                    true => next.fetch_add(1, Ordering::Relaxed) % places,
                    false => prng.below(places),
                };
                read(device, place * load.bytes, client.memory.get())?;
            } else {
                let at = prng.below(client.held.len() as u64) as usize;
                let (place, bytes) = &mut client.held[at];
                write(device, *place * load.bytes, bytes.get())?;
            }
            worked.requests += 1;
            worked.busy += now().saturating_sub(asked);
            worked.elapsed = now().saturating_sub(begin);
        }
        Ok(worked)
    }

    /// Reads the pages that are written later.
    fn hold(&mut self, load: Load, places: u64, prng: &mut Prng) -> io::Result<()> {
        for _ in 0..HELD_PAGES {
            let (place, mut bytes) = (prng.below(places), AlignedBytes::new(load.bytes as usize));
            read(self.device, place * load.bytes, bytes.get())?;
            self.held.push((place, bytes));
        }
        Ok(())
    }
}

/// Memory for direct I/O.
struct AlignedBytes {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    fn new(len: usize) -> AlignedBytes {
        let bytes = vec![0; len + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        AlignedBytes { bytes, start, len }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// The device in figures, as `--home` and `--flash-device` take them.
fn preset(rows: &[Row], bytes_per_s: f64) -> String {
    let figures = |row: &Row, prefix: &str| {
        let best = row.rates.iter().map(|rate| rate.per_s).fold(0.0, f64::max);
        let latency_us = row.rates[0].latency_s * 1e6;
        format!("{prefix}iops={best:.0},{prefix}latency={latency_us:.0}us")
    };
    let mut text = figures(&rows[0], "");
    text += &format!(",bandwidth={:.0}MiB", bytes_per_s / f64::from(1 << 20));
    if let Some(writes) = rows.get(1) {
        text += &format!(",{}", figures(writes, "write-"));
    }
    text
}

fn text(path: &Path, page: u64, rows: &[Row], preset: &str) -> String {
    let mut table = Table::new(["outstanding", "load", "requests/s", "mean"]);
    for row in rows {
        for (depth, rate) in DEPTHS.iter().zip(&row.rates) {
            table.row([
                depth.to_string(),
                row.name.to_string(),
                thousands(rate.per_s),
                format!("{:.0} us", rate.latency_s * 1e6),
            ]);
        }
    }
    format!(
        "{}: random requests of {} bytes\n\n{}\nfor advise: --home {preset}\n",
        path.display(),
        thousands(page as f64),
        table.text()
    )
}

fn object(page: u64, rows: &[Row], bytes_per_s: f64, preset: &str) -> Value {
    let rates = |row: &Row| {
        let rates = DEPTHS.iter().zip(&row.rates).map(|(depth, rate)| {
            json!({
                "outstanding": depth,
                "requests_per_s": rounded(rate.per_s),
                "latency_us": rounded(rate.latency_s * 1e6),
            })
        });
        json!({ "load": row.name, "rates": rates.collect::<Vec<_>>() })
    };
    json!({
        "command": "probe",
        "version": env!("CARGO_PKG_VERSION"),
        "page_bytes": page,
        "loads": rows.iter().map(rates).collect::<Vec<_>>(),
        "bytes_per_s": bytes_per_s.round(),
        "device": preset,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::DeviceChoice;

    #[test]
    fn what_is_probed_is_a_device_that_advise_takes() {
        let rate = |per_s, latency_s| Rate { per_s, latency_s };
        let row = |name, rates: [Rate; 2]| Row { name, rates: rates.to_vec() };
        let reads = row("reads", [rate(9_000.0, 1.1e-4), rate(70_000.4, 9e-4)]);
        let writes = row("writes", [rate(20_000.0, 5e-5), rate(31_000.0, 1e-3)]);
        let both = preset(&[reads, writes], f64::from(512 << 20));
        assert_eq!(
            both,
            "iops=70000,latency=110us,bandwidth=512MiB,write-iops=31000,write-latency=50us"
        );
        assert!(both.parse::<DeviceChoice>().is_ok());
    }

    /// Pages are written back as they were.
    #[test]
    fn a_file_that_is_probed_keeps_its_bytes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let bytes: Vec<u8> =
            (0..1u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        std::fs::write(&path, &bytes).expect("a file");
        let device = match FileDevice::open(&path, &FileOptions::default()) {
            Ok(device) => Arc::new(device) as Arc<dyn Device>,
            // A file system in memory may refuse direct I/O; that is said, not ignored.
            Err(error) => return assert!(error.to_string().contains("direct"), "{error}"),
        };
        for reads in [0, 70, 100] {
            let (depth, span) = (4, Nanos::from_millis(10));
            let load = Load { reads, depth, bytes: 8_192, in_order: reads == 100, span };
            let rate = measure(&device, bytes.len() as u64, load).expect("no error");
            assert!(rate.per_s > 0.0 && rate.latency_s > 0.0, "{rate:?}");
        }
        drop(device);
        assert!(std::fs::read(&path).expect("the file") == bytes);
    }
}
