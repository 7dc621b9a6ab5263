//! `terrace replay --timed`: requests on modelled devices that know where they go; and
//! `--write-back-only`, which is timed so, too.

use super::object::object;
use super::sizes::sizes;
use super::source::Source;
use super::tiers::{TierOutcome, page_bytes};
use crate::command::Replay;
use crate::failure::Failure;
use crate::interval::rounded;
use crate::output::{Sinks, Stopwatch};
use crate::progress::Bars;
use crate::table::{Table, percent, thousands};
use serde_json::json;
use terrace_device::disk::ReadAhead;
use terrace_device::model::{MemberSpec, Spec};
use terrace_replay::{Places, Seconds, TimedDevices, WriteBack};

/// What has no flash, and what others are compared with.
const WITHOUT: &str = "no-ssd";

/// Home, as it is asked for.
pub(super) fn home(options: &Replay) -> Spec {
    let mut spec = options.tiers.home.spec();
    if let Some(span) = options.tiers.span
        && span.0 > 0.0
    {
        spec = spec.with_span(span.0.min(1.0));
    }
    if let MemberSpec::Disk(disk) = &mut spec.member
        && options.tiers.no_read_ahead
    {
        disk.buffering.read_ahead = ReadAhead::Off;
    }
    spec
}

/// The devices that are asked for, with a flash of `slots` slots.
pub(super) fn devices(options: &Replay, page_bytes: u64, slots: u32) -> TimedDevices {
    TimedDevices {
        home: home(options),
        flash: options.tiers.flash_device.spec(),
        slots,
        page_bytes,
        outstanding: options.tiers.outstanding,
        seed: options.seed,
    }
}

/// What flash tiers did, and how long it took.
pub(super) fn text(options: &Replay, source: &Source, outcomes: &[TierOutcome]) -> String {
    let mut table = Table::new([
        "flash",
        "slots",
        "reads",
        "of flash",
        "flash writes",
        "home reads",
        "home writes",
        "home time",
        "flash time",
        "time",
        "gain",
    ]);
    let seconds = |outcome: &TierOutcome| outcome.seconds.unwrap_or_default().all();
    for outcome in outcomes {
        let (counts, took) = (&outcome.counts, outcome.seconds.unwrap_or_default());
        let without = outcomes
            .iter()
            .find(|other| other.name == WITHOUT && other.slots == outcome.slots)
            .map(|other| seconds(other) / took.all().max(1e-9));
        let reads = counts.flash.reads + counts.home.reads;
        let count = |number: u64| thousands(number as f64);
        table.row([
            outcome.name.clone(),
            thousands(f64::from(outcome.slots)),
            count(reads),
            percent(counts.flash.reads as f64 / reads.max(1) as f64),
            count(counts.flash.writes),
            count(counts.home.reads),
            count(counts.home.writes),
            format!("{:.1} s", took.home()),
            format!("{:.1} s", took.flash()),
            format!("{:.1} s", took.all()),
            without.map_or("-".into(), |gain| format!("{gain:.2}x")),
        ]);
    }
    format!("{}\n{}\n\n{}", source.about, devices_text(options), table.text())
}

fn devices_text(options: &Replay) -> String {
    let span = options.tiers.span.map_or(String::new(), |span| format!(", span {}", span.0));
    let ahead = if options.tiers.no_read_ahead { ", without read-ahead" } else { "" };
    format!(
        "home: {}{span}{ahead}; flash: {}; one request after the other",
        options.tiers.home.name(),
        options.tiers.flash_device.name()
    )
}

/// Replays writes alone.
///
/// # Errors
///
/// Sizes that make no sense; a trace without writes; a file that cannot be written.
pub(super) fn write_back(
    options: &Replay,
    source: &Source,
    sinks: &Sinks,
    watch: &Stopwatch,
) -> Result<(), Failure> {
    let page_bytes = page_bytes(source.paging)?;
    let mut slots = sizes("--flash", &options.tiers.flash, &source.scope())?;
    if source.references.writes_count() == 0 {
        return Err(Failure::usage("--write-back-only: the trace has no writes"));
    }
    slots.insert(0, 0);
    let places = Places::new(&source.references);
    let bars = Bars::new();
    let bar = bars.add("replay".into(), slots.len() as u64);
    let mut results: Vec<(u32, WriteBack, Seconds)> = Vec::new();
    for slots in slots {
        let write_back = WriteBack::of(&source.references, &places, slots);
        let devices = devices(options, page_bytes, slots.max(1));
        let seconds = devices.seconds(&write_back.asked, &places);
        results.push((slots, write_back, seconds));
        bar.inc(1);
    }
    bars.clear();
    sinks.show(&write_back_text(options, source, &results));
    let rows = results.iter().map(|(slots, write_back, seconds)| {
        json!({
            "capacity_pages": slots,
            "writes": write_back.writes,
            "flushes": write_back.flushes,
            "home_writes": write_back.home.writes,
            "home_run_writes": write_back.home.run_writes,
            "home_time_s": rounded(seconds.home()),
            "flash_time_s": rounded(seconds.flash()),
            "time_s": rounded(seconds.all()),
        })
    });
    let results = rows.collect::<Vec<_>>();
    let mut object = object(options, source, watch, json!({ "results": results }));
    object["parameters"]["write_back"] = json!({
        "home": options.tiers.home.name(),
        "flash_device": options.tiers.flash_device.name(),
        "span": options.tiers.span.map(|span| span.0),
        "outstanding": options.tiers.outstanding,
    });
    sinks.write(&object)
}

fn write_back_text(
    options: &Replay,
    source: &Source,
    results: &[(u32, WriteBack, Seconds)],
) -> String {
    let mut table = Table::new([
        "flash",
        "pages",
        "flushes",
        "written home",
        "requests",
        "home time",
        "flash time",
        "time",
        "gain",
    ]);
    let direct = results.first().map_or(0.0, |(_, _, seconds)| seconds.all());
    for (slots, write_back, seconds) in results {
        let home = &write_back.home;
        let count = |number: u64| thousands(number as f64);
        table.row([
            if *slots == 0 { "none".into() } else { "sorted".into() },
            thousands(f64::from(*slots)),
            count(write_back.flushes),
            count(home.writes),
            count(home.writes - home.run_writes),
            format!("{:.1} s", seconds.home()),
            format!("{:.1} s", seconds.flash()),
            format!("{:.1} s", seconds.all()),
            format!("{:.2}x", direct / seconds.all().max(1e-9)),
        ]);
    }
    format!(
        "{}\n{}, but {} writes home at once\n\n{}",
        source.about,
        devices_text(options),
        options.tiers.outstanding,
        table.text()
    )
}
