//! The page of `advise`: the sentence, what sizes would buy as curves, every estimate, what was
//! assumed.

use super::plot::{Chart, Series};
use super::{bottom, colour, escaped, parameters, top};
use crate::advise::{Advice, Estimate};
use crate::table::percent;
use serde_json::Value;
use std::fmt::Write;

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
    let chart = |y_label, of: fn(&Estimate) -> Option<f64>| curves(advice, y_label, of);
    let _ = write!(
        out,
        "<h2>Gain</h2><p class=\"soft\">{without}</p>{}",
        chart("times as fast as without flash", |one| Some(one.gain.mean)),
    );
    let _ = write!(
        out,
        "<h2>Misses served</h2>{}",
        chart("% of memory's misses", |one| Some(100.0 * one.hit_ratio.mean)),
    );
    if advice.setting.pace().is_some() {
        let of = |one: &Estimate| one.flash_bytes_per_day.map(|bytes| bytes / 1e9);
        let _ = write!(
            out,
            "<h2>Writes to flash</h2><p class=\"soft\">At the pace of the trace, write \
             amplification included.</p>{}",
            chart("GB written a day", of),
        );
    }
    out.push_str(&figures(advice));
    let Value::Object(all) = advice.parameters() else { unreachable!("parameters have names") };
    out.push_str(&parameters(advice.setting.seed, &all));
    out.push_str(&bottom());
    out
}

fn curves(advice: &Advice, y_label: &str, of: fn(&Estimate) -> Option<f64>) -> String {
    let bytes_max = advice.estimates.iter().map(|one| one.slots).max().unwrap_or_default();
    let (unit, name) = match f64::from(bytes_max) * advice.setting.page_bytes as f64 {
        bytes if bytes >= 4.0 * f64::from(1 << 30) => (f64::from(1 << 30), " GiB"),
        _ => (f64::from(1 << 20), " MiB"),
    };
    let mut names: Vec<&'static str> = advice.estimates.iter().map(|one| one.design.name).collect();
    names.dedup();
    let series = names.into_iter().map(|label| {
        let own = advice.estimates.iter().filter(|one| one.design.name == label);
        let bytes = |one: &Estimate| f64::from(one.slots) * advice.setting.page_bytes as f64;
        let points = own.filter_map(|one| Some((bytes(one) / unit, of(one)?))).collect();
        Series { label, class: colour(label), points }
    });
    let chart = Chart {
        title: format!("{y_label}, by the size of the flash"),
        y_label,
        x_label: "size of the flash tier",
        x_unit: name,
        series: series.collect(),
        y_max: 0.0,
        shaded: None,
        level: None,
        size: (1040.0, 320.0),
        label_room: 76.0,
    };
    format!("<div class=\"panel\">{}</div>", chart.svg())
}

fn figures(advice: &Advice) -> String {
    let mut out = String::from(
        "<h2>Figures</h2><p class=\"soft\">Busy: for each reference.</p><div class=\"panel\">\
         <table><tr><th>design</th><th>size</th><th>of misses</th><th>gain</th>\
         <th>home<br>busy</th><th>flash<br>busy</th><th>GB written<br>a day</th>\
         <th>drive writes<br>a day</th><th>years</th><th>a month</th></tr>",
    );
    for one in &advice.estimates {
        let or_none =
            |number: Option<f64>| number.map_or("–".into(), |number| format!("{number:.1}"));
        let _ = write!(
            out,
            "<tr><td class=\"{}\"><b>{}</b></td><td>{}</td><td>{}</td><td>{:.2}×</td>\
             <td>{:.1} µs</td><td>{:.1} µs</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            colour(one.design.name),
            one.design.name,
            advice.setting.size_text(one.slots),
            percent(one.hit_ratio.mean),
            one.gain.mean,
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
