//! `terrace bench psync`: what a drive gains from groups of requests, by the size of the group.
//!
//! Requests of 4 KiB at random places, one group after the other, as Roh et al. measured six drives
//! (IEEE Data Engineering Bulletin, June 2014, 2.1 and figure 2).
//!
//! - B1: models run in virtual worlds: the same seed gives the same numbers.
//! - B2: a file is read with direct I/O; writes write back what the pages hold.
//! - B3: the gain of a data sheet is its rate with many requests outstanding times its latency with
//!   one; no model takes anything from it but what its preset says.

use crate::bench::probe::stored_bytes;
use crate::command::PsyncBench;
use crate::failure::Failure;
use crate::interval::rounded;
use crate::output::{Sinks, Stopwatch};
use crate::results::Host;
use crate::table::{Table, percent, thousands};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use terrace_device::model::{Preset, build};
use terrace_device::{
    Access, Device, FileDevice, FileOptions, Keep, Method, Op, PsyncRead, PsyncWrite, Store,
    psync_read, psync_write,
};
use terrace_rt::{LeafMutex, Nanos, Prng, Real, Virtual, VirtualConfig, World, now};

/// Bytes of a request.
const PAGE: usize = 4_096;
/// Bytes of a modelled drive.
const MODEL_BYTES: u64 = 512 << 20;
/// Requests of a measurement on a model.
const MODEL_REQUESTS: u64 = 16_384;
/// Requests before those, so that writes are measured in a full buffer.
const WARM_UP: u64 = 16_384;
/// The models that are measured unless others are asked for.
const MODELS: [&str; 6] =
    ["iodrive-geometry", "p300", "ssd-s", "ssd-m", "consumer-sata", "dc-nvme"];
/// Gains of reads and writes by data sheets (B3): requests a second at depth, and either seconds or
/// requests a second one at a time.
const SHEETS: [(&str, f64, Option<f64>); 6] = [
    ("iodrive-geometry", 88_000.0 * 50e-6, None),
    ("p300", 44_000.0 * 154e-6, Some(16_000.0 * 424e-6)),
    ("ssd-s", 35_000.0 * 75e-6, Some(3_300.0 * 85e-6)),
    ("ssd-m", 35_000.0 * 65e-6, Some(8_600.0 * 85e-6)),
    ("consumer-sata", 100_000.0 / 9_900.0, Some(90_000.0 / 31_000.0)),
    ("dc-nvme", 900_000.0 * 80e-6, Some(200_000.0 * 18e-6)),
];
/// The group that is published to saturate a drive.
const PIO_MAX: u64 = 32;

/// A drive under one kind of request.
struct Run {
    device: String,
    op: Op,
    /// How a file is asked.
    method: Option<Method>,
    /// Requests a second, for each size of group.
    rates: Vec<f64>,
    sheet: Option<f64>,
}

/// Runs the bench.
///
/// # Errors
///
/// A file that cannot be opened or is too small; what a device says.
pub fn psync(options: &PsyncBench) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let mut names: Vec<&str> = options.device.iter().map(String::as_str).collect();
    if names.is_empty() && options.path.is_none() {
        names = MODELS.to_vec();
    }
    let mut runs = Vec::new();
    for name in names {
        for op in [Op::Read, Op::Write] {
            let rates = of_model(name, op, options).map_err(|it| Failure::failed(name, it))?;
            let sheet = SHEETS.iter().find(|(of, ..)| *of == name);
            let sheet = sheet.and_then(|(_, read, write)| match op {
                Op::Read => Some(*read),
                Op::Write => *write,
            });
            runs.push(Run { device: name.into(), op, method: None, rates, sheet });
        }
    }
    if let Some(path) = &options.path {
        runs.extend(of_file(path, options)?);
    }
    sinks.show(&text(options, &runs));
    sinks.write(&json!({
        "command": "bench psync",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": options.seed,
        "parameters": { "page_bytes": PAGE, "groups": options.groups },
        "host": Host::of(&watch, 0.0),
        "runs": runs.iter().map(|run| object(run, &options.groups)).collect::<Vec<_>>(),
        "figures": figures(&runs, &options.groups),
    }))
}

/// Rates of a model, each size of group in a world of its own.
fn of_model(name: &str, op: Op, options: &PsyncBench) -> io::Result<Vec<f64>> {
    let preset: Preset = name.parse().expect("names of presets were checked");
    let seed = options.seed;
    let rates = options.groups.iter().map(|&group| {
        let config = VirtualConfig { seed, switch_one_in: 0, cores: 1, ..VirtualConfig::default() };
        let run = move || {
            let store = Store::new(MODEL_BYTES, Keep::Recent { pages: 1_024 });
            let device = build(preset, World::current(), store);
            let mut client = Client::new(&*device, MODEL_BYTES, (op, group), seed);
            client.forget_bytes();
            client.run(|done| done < WARM_UP)?;
            let begin = now();
            let done = client.run(|done| done < MODEL_REQUESTS)?;
            Ok(done as f64 / now().saturating_sub(begin).as_secs_f64())
        };
        Virtual::new(config).run(run).expect("a world that nobody stops")
    });
    rates.collect()
}

fn of_file(path: &Path, options: &PsyncBench) -> Result<Vec<Run>, Failure> {
    let failed =
        |error: io::Error| Failure::failed(format!("cannot measure {}", path.display()), error);
    let access = if options.write { Access::ReadWrite } else { Access::ReadOnly };
    let device = FileDevice::open(path, &FileOptions { access, ..FileOptions::default() });
    let device = Arc::new(device.map_err(failed)?);
    let bytes = stored_bytes(path, device.len()).map_err(failed)?;
    let most = options.groups.iter().max().copied().unwrap_or(1);
    if bytes / (PAGE as u64) < 2 * most {
        return Err(Failure::Failed(format!(
            "{}: {} bytes are too few for groups of {most} requests; take a file of a few hundred \
             MiB, larger than what the device itself caches",
            path.display(),
            thousands(bytes as f64)
        )));
    }
    let span = Nanos::from_secs_f64(options.seconds.0);
    let ops: &[Op] = if options.write { &[Op::Read, Op::Write] } else { &[Op::Read] };
    let mut runs = Vec::new();
    for &op in ops {
        let (asked, method) = (Arc::clone(&device), Some(device.method()));
        let (groups, seed) = (options.groups.clone(), options.seed);
        let found = Arc::new(LeafMutex::new(Ok(Vec::new())));
        let result = Arc::clone(&found);
        Real::new(1).run(move || {
            let rates = groups.iter().map(|&group| {
                let mut client = Client::new(&*asked, bytes, (op, group), seed);
                let begin = now();
                let done = client.run(|_| now() < begin + span)?;
                Ok(done as f64 / now().saturating_sub(begin).as_secs_f64())
            });
            *result.lock() = rates.collect::<io::Result<Vec<f64>>>();
        });
        let rates = std::mem::replace(&mut *found.lock(), Ok(Vec::new())).map_err(failed)?;
        runs.push(Run { device: path.display().to_string(), op, method, rates, sheet: None });
    }
    Ok(runs)
}

/// Who asks for one group after the other.
struct Client<'a> {
    device: &'a dyn Device,
    pages: u64,
    op: Op,
    group: usize,
    prng: Prng,
    memory: Vec<u8>,
    /// Writes bring back what was read.
    keeps_bytes: bool,
}

impl Client<'_> {
    fn new(device: &dyn Device, bytes: u64, (op, group): (Op, u64), seed: u64) -> Client<'_> {
        let group = group as usize;
        let memory = vec![0; (group + 1) * PAGE];
        let pages = bytes / PAGE as u64;
        let prng = Prng::from_seed(seed);
        Client { device, pages, op, group, prng, memory, keeps_bytes: true }
    }

    /// What the device holds does not matter.
    fn forget_bytes(&mut self) {
        self.keeps_bytes = false;
    }

    /// Asks as long as `goes_on` says of the number of requests done, and at least once.
    fn run(&mut self, goes_on: impl Fn(u64) -> bool) -> io::Result<u64> {
        let mut done = 0;
        // Groups of writes go over places that were read before: reading is not measured.
        let held = if self.op == Op::Write && self.keeps_bytes { Some(self.read()?) } else { None };
        loop {
            match (self.op, &held) {
                (Op::Read, _) => drop(self.read()?),
                (Op::Write, Some(places)) => self.write(places)?,
                (Op::Write, None) => {
                    let places = self.places();
                    self.write(&places)?;
                }
            }
            done += self.group as u64;
            if !goes_on(done) {
                return Ok(done);
            }
        }
    }

    fn places(&mut self) -> Vec<u64> {
        let mut seen = BTreeSet::new();
        let mut places = Vec::with_capacity(self.group);
        while places.len() < self.group {
            let page = self.prng.below(self.pages);
            if seen.insert(page) {
                places.push(page * PAGE as u64);
            }
        }
        places
    }

    fn read(&mut self) -> io::Result<Vec<u64>> {
        let places = self.places();
        let start = self.memory.as_ptr().align_offset(PAGE);
        let pages = self.memory[start..].chunks_exact_mut(PAGE);
        let group = places.iter().zip(pages);
        let mut group: Vec<_> =
            group.map(|(offset, bytes)| PsyncRead { offset: *offset, bytes }).collect();
        psync_read(self.device, &mut group).map_err(|failure| failure.source)?;
        Ok(places)
    }

    fn write(&self, places: &[u64]) -> io::Result<()> {
        let start = self.memory.as_ptr().align_offset(PAGE);
        let group = places.iter().zip(self.memory[start..].chunks_exact(PAGE));
        let group: Vec<_> =
            group.map(|(offset, bytes)| PsyncWrite { offset: *offset, bytes }).collect();
        psync_write(self.device, &group).map_err(|failure| failure.source)
    }
}

/// Gains over the first size of group.
fn gains(run: &Run) -> impl Iterator<Item = f64> + '_ {
    run.rates.iter().map(|rate| rate / run.rates[0])
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// Share of the best rate that groups of `PIO_MAX` reach, if they were measured.
fn saturation(run: &Run, groups: &[u64]) -> Option<f64> {
    let at = groups.iter().position(|group| *group == PIO_MAX)?;
    Some(run.rates[at] / most(run.rates.iter().copied()))
}

fn word(op: Op) -> &'static str {
    match op {
        Op::Read => "reads",
        Op::Write => "writes",
    }
}

fn text(options: &PsyncBench, runs: &[Run]) -> String {
    let mut table = Table::new(["device", "load"]);
    for run in runs {
        table.row([run.device.clone(), word(run.op).into()]);
    }
    let first = |run: &Run| format!("{}/s", thousands(run.rates[0]));
    table.column(&format!("group {}", options.groups[0]), runs.iter().map(first).collect());
    for (at, group) in options.groups.iter().enumerate().skip(1) {
        let gain = |run: &Run| format!("{:.2}x", run.rates[at] / run.rates[0]);
        table.column(&group.to_string(), runs.iter().map(gain).collect());
    }
    let sheet = |run: &Run| run.sheet.map_or("-".into(), |gain| format!("{gain:.1}x"));
    table.column("data sheet", runs.iter().map(sheet).collect());
    let share = |run: &Run| saturation(run, &options.groups).map_or("-".into(), percent);
    table.column(&format!("{PIO_MAX} of best"), runs.iter().map(share).collect());
    let asked = runs.iter().find_map(|run| run.method).map_or("", |method| match method {
        Method::Positioned => "\nThe file is asked for one request after the other: no io_uring.\n",
        Method::Auto | Method::Uring => "\nOne system call for each group of the file.\n",
    });
    format!(
        "random requests of {PAGE} bytes, gains over the first group\n\n{}{asked}",
        table.text()
    )
}

fn object(run: &Run, groups: &[u64]) -> Value {
    let rates = groups.iter().zip(run.rates.iter().zip(gains(run))).map(|(group, (rate, gain))| {
        json!({
            "group": group,
            "requests_per_s": rounded(*rate),
            "bytes_per_s": rounded(rate * PAGE as f64),
            "gain": rounded(gain),
        })
    });
    json!({
        "device": run.device,
        "load": word(run.op),
        "one_call": run.method.map(|method| method == Method::Uring),
        "groups": rates.collect::<Vec<_>>(),
        "data_sheet_gain": run.sheet.map(rounded),
        "share_of_best_at_32": saturation(run, groups).map(rounded),
    })
}

/// The published gain beside the best drive's, and the published saturation beside the worst one's.
fn figures(runs: &[Run], groups: &[u64]) -> Vec<Value> {
    let mut figures = Vec::new();
    for op in [Op::Read, Op::Write] {
        let of_models = || runs.iter().filter(|run| run.op == op && run.method.is_none());
        let best = of_models().map(|run| (most(gains(run)), &run.device));
        if let Some((gain, device)) = best.max_by(|(one, _), (other, _)| one.total_cmp(other)) {
            figures.push(json!({
                "id": "E01",
                "what": format!("gain of {} over one at a time, best drive", word(op)),
                "published": 10.0,
                "measured": rounded(gain),
                "band": [10.0, Value::Null],
                "regime": device,
            }));
        }
        let shares = of_models().filter_map(|run| Some((saturation(run, groups)?, &run.device)));
        if let Some((share, device)) = shares.min_by(|(one, _), (other, _)| one.total_cmp(other)) {
            figures.push(json!({
                "id": "E02",
                "what": format!("share of the best rate, {} by 32, worst drive", word(op)),
                "published": 0.9,
                "measured": rounded(share),
                "band": [0.9, 1.0],
                "regime": device,
            }));
        }
    }
    figures
}
