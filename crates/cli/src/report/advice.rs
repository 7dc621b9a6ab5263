//! The page of `advise`: the sentence, what sizes would buy as curves, every estimate, what was
//! assumed.
//!
//! - C1: `ssd-only` is no curve: it has one size, and its gain is so high that no other could be
//!   read beside it. It is a note, and a level where the scale reaches that far.
//! - C2: gains are drawn up to `GAIN_TOLD_MAX`, beyond which none is told.

use super::html::escaped;
use super::plot::{Chart, Series};
use super::{bottom, colour, parameters, top};
use crate::advise::{Advice, Estimate, GAIN_TOLD_MAX, is_held};
use crate::table::percent;
use serde_json::Value;
use std::fmt::Write;
use terrace_policy::HomeDevice;

/// The level of `ssd-only` is drawn if it is at most this many times as high as the best curve.
const LEVEL_TIMES: f64 = 1.25;

/// The page for `advice`.
pub fn advice_page(advice: &Advice) -> String {
    let repeat = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let subtitle = format!("{}. {}.", advice.about, advice.assumptions());
    let mut out = top(
        "advise",
        &escaped(&advice.sentence()),
        &escaped(&subtitle),
        &format!("terrace {repeat}"),
    );
    let without = "Throughput over that without flash, if home and flash are all that is waited \
                   for.";
    let chart = |y_label, of: fn(&Estimate) -> Option<f64>, limit: Option<f64>| {
        curves(advice, y_label, of, limit)
    };
    let _ = write!(
        out,
        "<h2>Gain</h2><p class=\"soft\">{without}{}</p>{}",
        limits(advice),
        chart(
            "times as fast as without flash",
            |one| Some(one.gain.mean.min(GAIN_TOLD_MAX)),
            limit(advice).map(|one| one.gain.mean),
        ),
    );
    let _ = write!(
        out,
        "<h2>Misses served</h2>{}",
        chart("% of memory's misses", |one| Some(100.0 * one.hit_ratio.mean), None),
    );
    if advice.setting.pace().is_some() {
        let of = |one: &Estimate| one.flash_bytes_per_day.map(|bytes| bytes / 1e9);
        let _ = write!(
            out,
            "<h2>Writes to flash</h2><p class=\"soft\">At the pace of the trace, write \
             amplification included.</p>{}",
            chart("GB written a day", of, None),
        );
    }
    out.push_str(&figures(advice));
    let Value::Object(all) = advice.parameters() else { unreachable!("parameters have names") };
    out.push_str(&parameters(advice.setting.seed, &all));
    out.push_str(&bottom());
    out
}

/// Whether all data is on flash: no tier at all.
fn is_limit(one: &Estimate) -> bool {
    one.design.home == HomeDevice::Flash
}

/// What no tier can exceed (C1).
fn limit(advice: &Advice) -> Option<&Estimate> {
    advice.estimates.iter().find(|one| is_limit(one))
}

/// What the chart of the gains leaves out.
fn limits(advice: &Advice) -> String {
    let mut text = String::new();
    if let Some(one) = limit(advice) {
        let times = match one.gain.mean {
            gain if gain >= GAIN_TOLD_MAX => format!("more than {GAIN_TOLD_MAX}"),
            gain => format!("{gain:.2}"),
        };
        let (name, device) = (one.design.name, escaped(&advice.setting.flash_name));
        let _ = write!(
            text,
            " Upper limit ({name}, all data on a drive like {device}): {times} times."
        );
    }
    let is_cut = |one: &Estimate| !is_limit(one) && one.gain.mean > GAIN_TOLD_MAX;
    if advice.estimates.iter().any(is_cut) {
        let _ = write!(
            text,
            " Gains above {GAIN_TOLD_MAX} are drawn at {GAIN_TOLD_MAX}: home has little left to do \
             there, and what is not modelled decides."
        );
    }
    text
}

fn curves(
    advice: &Advice,
    y_label: &str,
    of: fn(&Estimate) -> Option<f64>,
    limit: Option<f64>,
) -> String {
    let tiers = || advice.estimates.iter().filter(|one| !is_limit(one));
    let bytes_max = tiers().map(|one| one.slots).max().unwrap_or_default();
    let top = tiers().filter_map(of).fold(0.0, f64::max);
    let (unit, name) = match f64::from(bytes_max) * advice.setting.page_bytes as f64 {
        bytes if bytes >= 4.0 * f64::from(1 << 30) => (f64::from(1 << 30), " GiB"),
        _ => (f64::from(1 << 20), " MiB"),
    };
    let mut names: Vec<&'static str> = tiers().map(|one| one.design.name).collect();
    names.dedup();
    let bytes = |one: &Estimate| f64::from(one.slots) * advice.setting.page_bytes as f64;
    let series = names.into_iter().map(|label| {
        let own = tiers().filter(|one| one.design.name == label);
        let points = own.filter_map(|one| Some((bytes(one) / unit, of(one)?))).collect();
        Series { label, class: colour(label), points }
    });
    let chart = Chart {
        title: format!("{y_label}, by the size of the flash"),
        y_label,
        x_label: "size of the flash tier",
        x_unit: name,
        series: series.collect(),
        first: first(advice),
        level: limit.filter(|limit| *limit <= top * LEVEL_TIMES).map(|limit| (limit, "ssd-only")),
        y_max: limit.filter(|limit| *limit <= top * LEVEL_TIMES).unwrap_or_default(),
        mark: taken(advice).and_then(|one| Some((bytes(one) / unit, of(one)?, "advised".into()))),
        size: (1040.0, 340.0),
        ..Chart::default()
    };
    format!("<div class=\"panel\">{}</div>", chart.html())
}

/// The design and size that are advised.
fn taken(advice: &Advice) -> Option<&Estimate> {
    advice.choice.taken.map(|at| &advice.estimates[at])
}

/// What is shown at first: what is advised, and the designs with the highest gains, those that may
/// be advised before the others.
fn first(advice: &Advice) -> Vec<&'static str> {
    let mut all: Vec<&Estimate> = advice.estimates.iter().filter(|one| !is_limit(one)).collect();
    let rank = |one: &Estimate| (is_held(one.design.name) && one.keeps_order, one.gain.mean);
    all.sort_by(|a, b| rank(b).partial_cmp(&rank(a)).expect("gains are numbers"));
    let mut names: Vec<&'static str> = Vec::new();
    for name in taken(advice).into_iter().chain(all).map(|one| one.design.name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn figures(advice: &Advice) -> String {
    let notes = advice.notes().join(". ");
    let notes = if notes.is_empty() { notes } else { format!(" {}.", escaped(&notes)) };
    let mut out = format!(
        "<h2>Figures</h2><p class=\"soft\">Busy: for each reference.{notes}</p>\
         <div class=\"panel\"><table><tr><th>design</th><th>size</th>\
         <th>of misses</th><th>gain</th>\
         <th>home<br>busy</th><th>flash<br>busy</th><th>GB written<br>a day</th>\
         <th>drive writes<br>a day</th><th>years</th><th>a month</th></tr>",
    );
    for (at, one) in advice.estimates.iter().enumerate() {
        let or_none =
            |number: Option<f64>| number.map_or("–".into(), |number| format!("{number:.1}"));
        let _ = write!(
            out,
            "<tr><td class=\"{}\"><b>{}</b>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{:.1} µs</td><td>{:.1} µs</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            colour(one.design.name),
            one.design.name,
            advice.mark(at),
            advice.setting.size_text(one.slots),
            percent(one.hit_ratio.mean),
            gain(one),
            one.home_s * 1e6,
            one.flash_s * 1e6,
            or_none(one.flash_bytes_per_day.map(|bytes| bytes / 1e9)),
            or_none(one.drive_writes_per_day),
            or_none(one.years),
            or_none(one.cost),
        );
    }
    out.push_str("</table></div>");
    out
}

/// A gain as far as it is told.
fn gain(one: &Estimate) -> String {
    match one.gain.mean {
        gain if gain >= GAIN_TOLD_MAX => format!("&gt;{GAIN_TOLD_MAX}×"),
        gain => format!("{gain:.2}×"),
    }
}
