//! Advice from what a database counted of its own misses, instead of a trace.
//!
//! A sample of the misses says what an LRU of any size would have served. Of the designs that is
//! `dw`: pages that leave memory are admitted, and changed ones are written through. For others a
//! trace has to be recorded.

use super::Setting;
use super::estimate::Estimate;
use super::seen::{Baseline, Seen};
use crate::command::Advise;
use crate::failure::Failure;
use crate::table::{percent, thousands};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use terrace::Misses;
use terrace_policy::{Design, designs};
use terrace_replay::TierRates;
use terrace_replay::tiers::DeviceRates;

/// Where the home of a database says what it is.
const MAGIC_AT: usize = 32;
const MAGIC: &[u8] = b"TERRACE\0";
/// More is no such text.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Fewer sampled misses say nothing.
const SAMPLED_MIN: u64 = 1_000;

/// What the file at `path` says of misses; none if it is neither that nor a database.
///
/// # Errors
///
/// A file that cannot be read, or breaks its format; a database that keeps no such file.
pub fn misses_at(path: &Path) -> Result<Option<Misses>, Failure> {
    if path.as_os_str() == "-" {
        // Standard input is read once, as a trace.
        return Ok(None);
    }
    let mut start = Vec::new();
    let failed = |path: &Path, error: &dyn std::fmt::Display| {
        Failure::failed(format!("cannot read {}", path.display()), error)
    };
    let opened = File::open(path).map_err(|error| failed(path, &error))?;
    opened.take(64).read_to_end(&mut start).map_err(|error| failed(path, &error))?;
    let text_path: PathBuf = if Misses::begins(&start) {
        path.to_path_buf()
    } else if start.get(MAGIC_AT..MAGIC_AT + MAGIC.len()) == Some(MAGIC) {
        let mut name = path.as_os_str().to_os_string();
        name.push(".misses");
        PathBuf::from(name)
    } else {
        return Ok(None);
    };
    let mut text = String::new();
    let opened = File::open(&text_path).map_err(|error| {
        let path = text_path.display();
        Failure::failed(
            format!("no statistics of misses at {path}; open the database with keep_misses"),
            error,
        )
    })?;
    let read = opened.take(TEXT_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| failed(&text_path, &error))?;
    let misses = text.parse::<Misses>();
    let misses = misses.map_err(|bad| Failure::failed(text_path.display(), bad))?;
    if misses.curve.sampled() < SAMPLED_MIN {
        return Err(Failure::Failed(format!(
            "{}: {} sampled misses are too few; let the database run on",
            text_path.display(),
            misses.curve.sampled()
        )));
    }
    Ok(Some(misses))
}

/// The design whose flash these misses tell of.
///
/// # Errors
///
/// Another was asked for.
pub fn design(options: &Advise) -> Result<Design, Failure> {
    let told = designs::find("dw").expect("a row of the table");
    match &options.tiers.design {
        Some(list) if list.0.iter().any(|design| design.name != told.name) => {
            Err(Failure::usage("--design: misses tell of dw alone; record a trace for the others"))
        }
        _ => Ok(told),
    }
}

/// What flash tiers of these sizes would do, and none.
pub fn estimates(
    setting: &Setting,
    misses: &Misses,
    design: Design,
    slots: &[u32],
) -> (Baseline, Vec<Estimate>) {
    let changed = misses.dirty_leaves as f64 / misses.curve.misses().max(1) as f64;
    let rates = |hits: f64, flash_writes: f64| TierRates {
        memory_misses: 1.0,
        ahead: 0.0,
        after_change: 0.0,
        first_uses: 0.0,
        deferred: 0.0,
        flash_hits: hits,
        home: DeviceRates { reads: 1.0 - hits, writes: changed, ..DeviceRates::default() },
        flash: DeviceRates { reads: hits, writes: flash_writes, ..DeviceRates::default() },
    };
    let seen = |rates| Seen::of_rates(rates, misses.curve.sampled());
    let without = seen(rates(0.0, 0.0));
    let baseline = Baseline { policy: None, seen: without, others: Vec::new() };
    let one = |&slots: &u32| {
        let hits = misses.curve.hit_ratio(slots);
        // What came from home and left as it came, and what left changed.
        let writes = (1.0 - hits) * (1.0 - changed).max(0.0) + changed;
        Estimate::new(setting, &baseline, (design, slots, None), &seen(rates(hits, writes)))
    };
    let estimates = slots.iter().map(one).collect();
    (baseline, estimates)
}

/// What the misses are, for people and in figures.
pub fn about(path: &Path, misses: &Misses) -> (String, Value) {
    let count = |number: u64| thousands(number as f64);
    let missed = misses.curve.misses();
    let text = format!(
        "{}: {} misses ({} of {} page requests) in {:.0} s, {} of them sampled; {} pages",
        path.display(),
        count(missed),
        percent(missed as f64 / misses.requests.max(1) as f64),
        count(misses.requests),
        misses.seconds,
        count(misses.curve.sampled()),
        count(misses.pages),
    );
    let figures = json!({
        "requests": misses.requests,
        "misses": missed,
        "sampled": misses.curve.sampled(),
        "dirty_leaves": misses.dirty_leaves,
        "pages": misses.pages,
        "span_s": misses.seconds,
    });
    (text, figures)
}
