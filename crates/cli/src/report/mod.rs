//! One self-contained HTML page for a bench: what was found, over time, and what was assumed.
//!
//! It loads nothing: style, script and pictures are in the page, which may be mailed or archived.
//! It holds nothing that depends on the machine, so that the same seed gives the same page.

mod advice;
mod curves;
pub mod html;
mod plot;
mod restart;
mod tables;

pub use advice::advice_page;
pub use curves::{CurveLine, Curves, curves_page};
pub use restart::restart_page;
pub use tables::tables_page;

use crate::results::{Bench, Run, Traffic, Window};
use crate::table::{percent, thousands};
use html::escaped;
use plot::{Chart, Series};
use serde_json::{Map, Value};
use std::fmt::Write;
use terrace_policy::DESIGNS;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("charts.js");

/// Designs with a colour of their own; others are told apart by dashes, too.
const COLOURED: [&str; 6] = ["no-ssd", "cw", "dw", "lc", "tac", "auto"];
/// Colours of lines that are told apart by their number.
const HUES: usize = 8;
/// Those of designs without a colour of their own.
const OTHER_HUES: [usize; 5] = [5, 6, 8, 9, 10];

/// The page for `bench`. `repeat` is the command that gives the same numbers again.
pub fn page(bench: &Bench, repeat: &str) -> String {
    let mut out = top(bench.command, &headline(bench), &subtitle(bench), repeat);
    out.push_str(&bars(bench));
    out.push_str(&throughput(bench));
    out.push_str(&figures(bench));
    out.push_str(&pairs(bench));
    out.push_str(&traffic(bench));
    out.push_str(&parameters(bench.seed, &bench.parameters));
    out.push_str(&bottom());
    out
}

/// The page down to the command that repeats the bench.
fn top(command: &str, headline: &str, subtitle: &str, repeat: &str) -> String {
    let mut out = String::with_capacity(1 << 18);
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>terrace {command}</title><style>{STYLE}</style></head><body><main>\
         <h1>{headline}</h1><p class=\"soft\">{subtitle}</p><pre><code>{}</code></pre>",
        escaped(repeat),
    );
    out
}

fn bottom() -> String {
    format!("</main><script>{SCRIPT}</script></body></html>")
}

fn headline(bench: &Bench) -> String {
    let best = bench
        .runs
        .iter()
        .filter_map(|run| Some((run, run.figure("speedup")?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    match best {
        Some((run, speedup)) if speedup > 1.0 => {
            format!("TPC-C runs {speedup:.1} times as fast with {}", run.design)
        }
        _ => "TPC-C over memory, flash and home".into(),
    }
}

fn subtitle(bench: &Bench) -> String {
    let text = |name: &str| parameter_text(bench.parameters.get(name).unwrap_or(&Value::Null));
    let seeds = seeds(bench.seed, bench.runs.first().and_then(|run| run.spread.seeds));
    format!(
        "{} warehouses, {} clients, {} world, {seeds}. Terrace {}.",
        text("warehouses"),
        text("clients"),
        text("world"),
        bench.version,
    )
}

fn seeds(first: u64, count: Option<u64>) -> String {
    count.map_or(format!("seed {first}"), |count| format!("{count} seeds from {first}"))
}

fn colour(design: &str) -> String {
    if COLOURED.contains(&design) {
        return format!("s-{design}");
    }
    let mut others = DESIGNS.iter().filter(|other| !COLOURED.contains(&other.name));
    others.position(|other| other.name == design).map_or("s-other".into(), |number| {
        let dashes = if number < OTHER_HUES.len() { "" } else { " dashed" };
        format!("s-h{}{dashes}", OTHER_HUES[number % OTHER_HUES.len()])
    })
}

/// The classes of line `number` of a picture: a colour, and dashes when colours are used up.
fn hue(number: usize) -> String {
    let dashes = if number < HUES { "" } else { " dashed" };
    format!("s-h{}{dashes}", number % HUES)
}

fn bars(bench: &Bench) -> String {
    let of = |run: &Run| run.figure("tpmc").unwrap_or_default();
    let most = bench.runs.iter().map(of).fold(1e-9, f64::max);
    let mut out = String::from("<div class=\"panel bars\">");
    for run in &bench.runs {
        let title = terrace_policy::designs::find(run.design).map_or("", |design| design.title);
        let speedup = run.figure("speedup").map_or(String::new(), |s| format!(" · {s:.2}×"));
        let ends = run.ends("tpmc").map_or(String::new(), |(low, high)| {
            let ends = [low, high].map(thousands);
            format!(" <span class=\"soft\">95%: {} to {}</span>", ends[0], ends[1])
        });
        let _ = write!(
            out,
            "<div class=\"name\">{}<small>{title}</small></div><div class=\"track\">\
             <div class=\"bar fill {}\" style=\"width:{:.1}%\"></div>\
             <div class=\"value\"><b>{}</b> tpmC{speedup}{ends}</div></div>",
            run.design,
            colour(run.design),
            of(run) / most * 62.0,
            thousands(of(run)),
        );
    }
    out.push_str("</div>");
    out
}

fn throughput(bench: &Bench) -> String {
    let series = bench.runs.iter().map(|run| Series {
        label: run.design,
        class: colour(run.design),
        points: over_time(run, |window| window.tpmc),
    });
    let chart = Chart {
        title: "Throughput over time for each design".into(),
        y_label: "tpmC: New-Orders per minute",
        x_label: "time since the start",
        x_unit: " s",
        series: series.collect(),
        first: first_runs(bench),
        shaded: averaged(bench),
        ..Chart::default()
    };
    let several = bench.runs.iter().any(|run| run.spread.seeds.is_some());
    let which = if several { " The curves are of the first seed." } else { "" };
    format!(
        "<h2>Throughput over time</h2><p class=\"soft\">Every run starts cold: memory and flash \
         are empty.{which}</p><div class=\"panel\">{}</div>",
        chart.html(),
    )
}

/// What is shown at first: what all is compared with, and the fastest.
fn first_runs(bench: &Bench) -> Vec<&'static str> {
    let mut names: Vec<(f64, &'static str)> =
        bench.runs.iter().map(|run| (run.figure("tpmc").unwrap_or_default(), run.design)).collect();
    names.sort_by(|a, b| b.0.total_cmp(&a.0));
    let rest = names.into_iter().map(|(_, name)| name).filter(|name| *name != "no-ssd");
    let base = bench.runs.iter().map(|run| run.design).filter(|name| *name == "no-ssd");
    base.take(1).chain(rest).collect()
}

fn averaged(bench: &Bench) -> Option<(f64, f64, &'static str)> {
    let run = bench.runs.first()?;
    let end = run.windows.last()?.t_s;
    Some(((end - run.figures.averaged_s).max(0.0), end, "averaged"))
}

fn over_time(run: &Run, value: impl Fn(&Window) -> f64) -> Vec<(f64, f64)> {
    run.windows.iter().map(|window| (window.t_s, value(window))).collect()
}

/// The columns of the table: heading, and the cell of a run.
type Column = (&'static str, fn(&Run) -> String);

const COLUMNS: [Column; 14] = [
    ("tpmC", |run| number(run, "tpmc", thousands)),
    ("speedup", |run| number(run, "speedup", |s| format!("{s:.2}×"))),
    ("frames", |run| number(run, "memory.frames", thousands)),
    ("memory<br>hits", |run| number(run, "memory.hit_ratio", percent)),
    ("flash<br>hits", |run| number(run, "flash.hit_ratio", percent)),
    ("dirty share<br>of flash hits", |run| number(run, "flash.dirty_hit_share", percent)),
    ("flash<br>used", |run| number(run, "flash.used_share", percent)),
    ("flash<br>dirty", |run| number(run, "flash.dirty_share", percent)),
    ("flash<br>invalid", |run| number(run, "flash.invalid_share", percent)),
    ("home<br>busy", |run| number(run, "devices.home.utilisation", percent)),
    ("flash<br>busy", |run| number(run, "devices.flash.utilisation", percent)),
    ("flash writes<br>amplified", |run| {
        number(run, "devices.flash.write_amplification", amplification)
    }),
    ("log<br>busy", |run| number(run, "devices.log.utilisation", percent)),
    ("bytes<br>per slot", |run| number(run, "flash.metadata_bytes_per_slot", thousands)),
];

/// Devices that do not tell have none.
fn amplification(times: f64) -> String {
    if times > 0.0 { format!("{times:.2}×") } else { "–".into() }
}

fn number(run: &Run, path: &str, format: fn(f64) -> String) -> String {
    let without_flash = run.figures.flash.slots == 0 && path.contains("flash");
    match run.figure(path) {
        Some(value) if !without_flash => format(value),
        _ => "–".into(),
    }
}

fn figures(bench: &Bench) -> String {
    let mut out = String::from(
        "<h2>Figures</h2><p class=\"soft\">Rates and hit ratios are over the averaged part, shares \
         of the flash as of the end.</p><div class=\"panel\"><table><tr><th>design</th>",
    );
    for (heading, _) in COLUMNS {
        let _ = write!(out, "<th>{heading}</th>");
    }
    out.push_str("<th>consistency</th></tr>");
    for run in &bench.runs {
        let _ = write!(out, "<tr><td class=\"{}\"><b>{}</b></td>", colour(run.design), run.design);
        for (_, cell) in COLUMNS {
            let _ = write!(out, "<td>{}</td>", cell(run));
        }
        let class = if run.checks.is_broken() { " class=\"bad\"" } else { "" };
        let _ = write!(out, "<td{class}>{}</td></tr>", escaped(&run.checks.consistency));
    }
    out.push_str("</table></div>");
    out
}

fn pairs(bench: &Bench) -> String {
    if bench.pairs.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<h2>Pairs</h2><p class=\"soft\">Ratios of tpmC, formed for each seed, with their 95% \
         intervals.</p><div class=\"panel\"><table><tr><th>pair</th><th>mean</th><th>low</th>\
         <th>high</th></tr>",
    );
    for pair in &bench.pairs {
        let _ = write!(
            out,
            "<tr><td>{} / {}</td><td><b>{:.2}</b></td><td>{:.2}</td><td>{:.2}</td></tr>",
            pair.design, pair.over, pair.mean, pair.low, pair.high,
        );
    }
    out.push_str("</table></div>");
    out
}

fn traffic(bench: &Bench) -> String {
    let mut out = String::from(
        "<h2>Device traffic over time</h2><div class=\"panel\"><div class=\"legend\">\
         <span class=\"s-read\">read; slots used</span>\
         <span class=\"s-write\">written; slots newer than home</span>\
         </div><div class=\"rows\"><div></div><div class=\"head\">home device</div>\
         <div class=\"head\">flash device</div><div class=\"head\">what the flash holds</div>",
    );
    let most = |of: fn(&Window) -> &Traffic| {
        let windows = bench.runs.iter().flat_map(|run| pairwise(&run.windows));
        let rates = windows.map(|(span, window)| {
            of(window).read_bytes.max(of(window).written_bytes) as f64 / span / 1e6
        });
        rates.fold(0.0, f64::max)
    };
    let tops = (most(|window| &window.home), most(|window| &window.flash));
    for run in &bench.runs {
        let flash =
            run.figures.flash.slots > 0 || run.windows.iter().any(|w| w.flash.written_bytes > 0);
        let _ = write!(out, "<h3 class=\"{}\">{}</h3>", colour(run.design), run.design);
        out.push_str(&device(run, "home", tops.0, |window| &window.home));
        if flash {
            out.push_str(&device(run, "flash", tops.1, |window| &window.flash));
            out.push_str(&shares(bench, run));
        } else {
            out.push_str("<p class=\"soft\">no flash</p><div></div>");
        }
    }
    out.push_str("</div></div>");
    out
}

/// Each window with its length in seconds.
fn pairwise(windows: &[Window]) -> impl Iterator<Item = (f64, &Window)> {
    let starts = std::iter::once(0.0).chain(windows.iter().map(|window| window.t_s));
    starts.zip(windows).map(|(start, window)| ((window.t_s - start).max(1e-9), window))
}

fn device(run: &Run, name: &str, top: f64, of: fn(&Window) -> &Traffic) -> String {
    let rate = |bytes: fn(&Traffic) -> u64| {
        let rates = pairwise(&run.windows);
        rates.map(|(span, w)| (w.t_s, bytes(of(w)) as f64 / span / 1e6)).collect::<Vec<_>>()
    };
    small(Chart {
        title: format!("{name} traffic of {}", run.design),
        y_label: "MB/s",
        series: vec![
            Series { label: "read", class: "s-read".into(), points: rate(|t| t.read_bytes) },
            Series { label: "written", class: "s-write".into(), points: rate(|t| t.written_bytes) },
        ],
        y_max: top,
        ..empty()
    })
}

fn shares(bench: &Bench, run: &Run) -> String {
    let design = terrace_policy::designs::find(run.design);
    let dirty = design.is_ok_and(|design| design.keeps_dirty_on_flash());
    let lambda = bench.parameters.get("lambda").and_then(Value::as_f64);
    let share = |of: fn(&Window) -> f64| over_time(run, |window| of(window) * 100.0);
    let mut series =
        vec![Series { label: "used", class: "s-read".into(), points: share(|w| w.used_share) }];
    if dirty {
        let points = share(|w| w.dirty_share);
        series.push(Series { label: "newer than home", class: "s-write".into(), points });
    }
    small(Chart {
        title: format!("what the flash of {} holds", run.design),
        y_label: "% of slots",
        series,
        y_max: 100.0,
        level: lambda.filter(|_| dirty).map(|lambda| (lambda * 100.0, "lambda")),
        ..empty()
    })
}

fn empty() -> Chart<'static> {
    // The names of lines are in the legend.
    Chart { size: (320.0, 170.0), label_room: 8.0, ..Chart::default() }
}

fn small(chart: Chart) -> String {
    chart.html()
}

fn parameters(seed: u64, parameters: &Map<String, Value>) -> String {
    let mut out = String::from(
        "<h2>Parameters</h2><p class=\"soft\">All of them, defaults included.</p>\
         <div class=\"panel\"><dl class=\"parameters\">",
    );
    let seed = (&"seed".to_string(), &Value::from(seed));
    for (name, value) in std::iter::once(seed).chain(parameters) {
        let name = escaped(&name.replace('_', " "));
        let value = escaped(&parameter_text(value));
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    out.push_str("</dl></div>");
    out
}

fn parameter_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(parameter_text).collect::<Vec<_>>().join(", "),
        Value::Null => "–".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Host, combine, tests::synthetic};
    use serde_json::json;

    fn bench(seeds: u64) -> Bench {
        let levels = [
            ("no-ssd", 1_050.0),
            ("cw", 1_700.0),
            ("dw", 2_020.0),
            ("lc", 9_900.0),
            ("tac", 1_500.0),
        ];
        let runs = |seed| levels.map(|(name, level)| synthetic(name, level, seed)).to_vec();
        let (mut runs, pairs) = combine((1..=seeds).map(runs).collect());
        for run in &mut runs {
            run.figures.flash.slots = if run.design == "no-ssd" { 0 } else { 183_501 };
        }
        let Value::Object(parameters) = json!({
            "warehouses": 20, "clients": 50, "world": "virtual", "lambda": 0.5, "dram": "200MiB",
            "flash": "183501p", "home": "hdd-array-2011", "design": ["no-ssd", "lc"],
        }) else {
            unreachable!("an object")
        };
        let command = "bench tpcc";
        Bench { command, version: "0.1.0", seed: 1, parameters, host: Host::default(), runs, pairs }
    }

    #[test]
    fn the_page_is_self_contained_and_whole() {
        let page = page(&bench(1), "terrace bench tpcc --seed 1");
        if let Ok(path) = std::env::var("TERRACE_REPORT_SAMPLE") {
            std::fs::write(path, &page).unwrap();
        }
        assert!(
            !page.contains("http://") || page.matches("http://").count() == 1,
            "only SVG's name"
        );
        assert!(!page.contains("https://") && !page.contains("src="));
        assert!(page.contains("times as fast with lc"));
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert_eq!(page.matches("<svg").count(), 1 + 1 + 4 * 3);
        assert!(!page.contains("NaN"));
    }

    #[test]
    fn several_seeds_show_intervals_and_pairs() {
        let page = page(&bench(8), "terrace bench tpcc --seed 1 --seeds 8");
        assert!(page.contains("lc / dw"));
        assert!(page.contains("8 seeds from 1"));
        assert!(page.contains("95%:"));
    }
}
