//! `terrace bench index`: B+-tree, PIO B-tree, FD-tree and BFTL on modelled drives, as the papers
//! measured them.
//!
//! `figures` sets what was measured beside what was published; `shown` makes the tables.

mod figures;
mod shown;

use crate::bench::figure::Figure;
use crate::bench::system;
use crate::command::IndexBench;
use crate::failure::Failure;
use crate::output::{Sink, Sinks, Stopwatch};
use crate::progress::Bars;
use crate::report::tables_page;
use crate::results::Host;
use crate::side_by_side;
use crate::table::titled;
use serde_json::{Map, Value, json};
use terrace_index::trials::papers::{Basics, MIXES, MixRow, Trial};
use terrace_index::trials::{Drive, KEPT_ENTRIES_MAX, Scale};

/// Bytes of the machine for an entry: five loads of the PIO B-tree at most, for each job.
const BYTES_PER_ENTRY: u64 = 60;

/// What was measured on a drive.
pub struct OnDrive {
    drive: Drive,
    basics: Basics,
    mixes: Vec<MixRow>,
}

enum Piece {
    Basics(Box<Basics>),
    Mix(Box<MixRow>),
}

/// Runs it.
///
/// # Errors
///
/// Too little memory; whatever stops a structure.
pub fn index(options: &IndexBench) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let scale = Scale { divisor: if options.full { 1 } else { options.divisor } };
    let pieces = options.drives.len() * (1 + MIXES.len());
    let jobs = system::jobs(options.jobs, pieces);
    system::fits(
        "--divisor and --jobs: what is loaded",
        scale.entries().min(KEPT_ENTRIES_MAX) * BYTES_PER_ENTRY * jobs,
    )?;
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let report = options.report.as_deref().map(Sink::open).transpose()?;
    let results = measured(options, scale, jobs)?;
    let judged: Vec<Figure> = figures::all(&results);
    let parameters = parameters(options, scale);
    let tables = shown::tables(&results, &judged, scale);
    sinks.show(&titled(&tables));
    if let Some(sink) = report {
        let page = (
            "bench index",
            "Indexes on the inside of a flash drive",
            "B+-tree, PIO B-tree, FD-tree and BFTL on modelled drives, in virtual time.",
        );
        sink.write(&tables_page(page, options.seed, &parameters, &tables))?;
    }
    sinks.write(&json!({
        "command": "bench index",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": options.seed,
        "parameters": parameters,
        "host": Host::of(&watch, 0.0),
        "runs": results.iter().map(shown::run).collect::<Vec<_>>(),
        "figures": judged.iter().map(Figure::json).collect::<Vec<_>>(),
    }))
}

fn measured(options: &IndexBench, scale: Scale, jobs: u64) -> Result<Vec<OnDrive>, Failure> {
    let per_drive = 1 + MIXES.len();
    let count = options.drives.len() * per_drive;
    let bars = Bars::new();
    let bar = bars.add("measurements".into(), count as u64);
    let piece = |at: usize| {
        let drive = options.drives[at / per_drive].clone();
        let name = drive.name.clone();
        let trial = Trial { drive, scale, seed: options.seed };
        let piece = match at % per_drive {
            0 => trial.basics().map(|basics| Piece::Basics(Box::new(basics))),
            mix => trial.mix(MIXES[mix - 1]).map(|mix| Piece::Mix(Box::new(mix))),
        };
        bar.inc(1);
        piece.map_err(|error| Failure::failed(format!("bench index on {name}"), error))
    };
    let done = side_by_side::each(count, jobs as usize, piece);
    bars.clear();
    let mut results = Vec::new();
    for piece in done? {
        match piece {
            Piece::Basics(basics) => {
                let drive = options.drives[results.len()].clone();
                results.push(OnDrive { drive, basics: *basics, mixes: Vec::new() });
            }
            Piece::Mix(mix) => {
                let last = results.last_mut().expect("the basics of a drive come first");
                last.mixes.push(*mix);
            }
        }
    }
    Ok(results)
}

fn parameters(options: &IndexBench, scale: Scale) -> Map<String, Value> {
    let room = scale.room();
    let names: Vec<&str> = options.drives.iter().map(|drive| drive.name.as_str()).collect();
    let all = json!({
        "drives": names,
        "divisor": scale.divisor,
        "entries": scale.entries(),
        "page_bytes": room.page_bytes,
        "memory_pages": room.memory_pages,
        "pio_max": room.pio_max,
        "world": "virtual",
    });
    match all {
        Value::Object(map) => map,
        _ => unreachable!("an object was made"),
    }
}
