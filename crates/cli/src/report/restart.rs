//! The page of `bench restart`: the intervals, throughput before, during and after, the figures.

use super::html::escaped;
use super::plot::{Chart, Series};
use super::{bottom, parameter_text, parameters, seeds, top};
use crate::bench::restart::{RestartRun, RestartWindow};
use crate::results::Bench;
use crate::table::{percent, thousands};
use serde_json::Value;
use std::fmt::Write;

/// Restarts with a colour of their own; others share one.
const COLOURED: [&str; 5] = ["forget", "mmr", "lbr", "lvr", "warm"];
/// Shown of the time before the event in the near view, in seconds.
const NEAR_BEFORE_S: f64 = 5.0;
/// Shown of the time after it, over the longest interval.
const NEAR_AFTER: f64 = 1.3;
/// Parts of the interval: figure, name, class.
const PARTS: [(&str, &str, &str); 3] = [
    ("shutdown_s", "shutdown", "s-shutdown"),
    ("recovery_s", "recovery", "s-recovery"),
    ("ramp_up_s", "ramp-up", "s-ramp-up"),
];

/// The page for `bench`. `repeat` is the command that gives the same numbers again.
pub fn restart_page(bench: &Bench<RestartRun>, repeat: &str) -> String {
    let mut out = top(bench.command, &headline(bench), &subtitle(bench), repeat);
    out.push_str(&intervals(bench));
    for design in designs(bench) {
        out.push_str(&throughput(bench, design));
    }
    out.push_str(&figures(bench));
    out.push_str(&parameters(bench.seed, &bench.parameters));
    out.push_str(&bottom());
    out
}

fn parameter(bench: &Bench<RestartRun>, name: &str) -> String {
    parameter_text(bench.parameters.get(name).unwrap_or(&Value::Null))
}

fn headline(bench: &Bench<RestartRun>) -> String {
    let best = bench
        .runs
        .iter()
        .filter_map(|run| Some((run, run.figure("peak_to_peak_speedup")?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    match best {
        Some((run, speedup)) if speedup > 1.0 => format!(
            "Back at the peak {speedup:.1} times as soon with {} on {}",
            run.restart, run.design
        ),
        _ => format!("From peak to peak after a {}", parameter(bench, "event")),
    }
}

fn subtitle(bench: &Bench<RestartRun>) -> String {
    let size = match parameter(bench, "workload").as_str() {
        "tpcc" => format!("TPC-C, {} warehouses", parameter(bench, "warehouses")),
        _ => format!("TPC-E-like (synthetic), {} customers", parameter(bench, "customers")),
    };
    let seeds = seeds(bench.seed, bench.runs.first().and_then(|run| run.spread.seeds));
    let [event, clients] = ["event", "clients"].map(|name| parameter(bench, name));
    format!(
        "{event}; {size}, {clients} clients, virtual world, {seeds}. Terrace {}.",
        bench.version
    )
}

fn designs(bench: &Bench<RestartRun>) -> Vec<&'static str> {
    let mut designs: Vec<&'static str> = bench.runs.iter().map(|run| run.design).collect();
    designs.dedup();
    designs
}

fn colour(restart: &str) -> String {
    format!("s-{}", if COLOURED.contains(&restart) { restart } else { "other" })
}

/// The interval of each run as a bar of its three parts.
fn intervals(bench: &Bench<RestartRun>) -> String {
    let longest = bench.runs.iter().filter_map(|run| run.figure("peak_to_peak_s"));
    let longest = longest.fold(1e-9, f64::max);
    let mut out = String::from("<div class=\"panel\"><div class=\"legend\">");
    for (_, name, class) in PARTS {
        let _ = write!(out, "<span class=\"{class}\">{name}</span>");
    }
    out.push_str("</div><div class=\"bars\">");
    for run in &bench.runs {
        let _ = write!(
            out,
            "<div class=\"name\">{} {}</div><div class=\"track\"><div class=\"stack\">",
            run.design, run.restart
        );
        for (path, name, class) in PARTS {
            let seconds = run.figure(path).unwrap_or_default();
            let _ = write!(
                out,
                "<div class=\"bar fill {class}\" style=\"width:{:.2}%\" \
                 title=\"{name} {seconds:.2} s\"></div>",
                (seconds / longest * 100.0).min(100.0),
            );
        }
        let total = run.figure("peak_to_peak_s");
        let total = total.map_or("not back at its peak".into(), |s| format!("<b>{s:.2}</b> s"));
        let speedup = run.figure("peak_to_peak_speedup");
        let speedup = speedup.map_or(String::new(), |s| format!(" · {s:.2}×"));
        let ends = run.spread.ends("peak_to_peak_s").map_or(String::new(), |(low, high)| {
            format!(" <span class=\"soft\">95%: {low:.2} to {high:.2}</span>")
        });
        let _ = write!(out, "</div><div class=\"value\">{total}{speedup}{ends}</div></div>");
    }
    out.push_str("</div></div>");
    out
}

fn throughput(bench: &Bench<RestartRun>, design: &str) -> String {
    let runs: Vec<&RestartRun> = bench.runs.iter().filter(|run| run.design == design).collect();
    let several = runs.iter().any(|run| run.spread.seeds.is_some());
    let which = if several { " The curves are of the first seed." } else { "" };
    let down = |run: &&RestartRun| down_at(run);
    let first = runs.iter().map(down).fold(f64::INFINITY, f64::min);
    let longest = runs.iter().filter_map(|run| run.figures.peak_to_peak_s).fold(1.0, f64::max);
    let whole = chart(&runs, design, "time since the clients began", |_, t_s| Some(t_s));
    let near = chart(&runs, design, "time since five seconds before the event", |run, t_s| {
        let since = t_s - down_at(run);
        let shown = -NEAR_BEFORE_S..=longest * NEAR_AFTER;
        shown.contains(&since).then_some(since + NEAR_BEFORE_S)
    });
    format!(
        "<h2>{design}</h2><p class=\"soft\">Throughput before, during and after the event, which \
         came {first:.1} s after the clients began.{which}</p><div class=\"panel\">{}</div>\
         <div class=\"panel\">{}</div>",
        whole.html(),
        near.html(),
    )
}

/// When the clients of `run` were gone.
fn down_at(run: &RestartRun) -> f64 {
    let windows = run.windows.iter().filter(|window| window.phase == "before");
    windows.map(|window| window.t_s).fold(0.0, f64::max)
}

/// What is shown at first: what all is compared with, and those that are back soonest.
fn first<'a>(runs: &[&'a RestartRun]) -> Vec<&'a str> {
    let back = |run: &RestartRun| run.figures.peak_to_peak_s.unwrap_or(f64::INFINITY);
    let mut sorted = runs.to_vec();
    sorted.sort_by(|a, b| back(a).total_cmp(&back(b)));
    let names = || sorted.iter().map(|run| run.restart);
    let base = names().filter(|name| *name == "forget");
    base.chain(names().filter(|name| *name != "forget")).collect()
}

/// Throughput of `runs` over what `place` makes of the time; windows that it leaves out are not
/// drawn.
fn chart<'a>(
    runs: &[&'a RestartRun],
    design: &str,
    x_label: &'a str,
    place: impl Fn(&RestartRun, f64) -> Option<f64>,
) -> Chart<'a> {
    let value = |window: &RestartWindow| window.tpmc.unwrap_or(window.transactions_per_s);
    let series = runs.iter().map(|run| {
        let mut points = Vec::new();
        let mut start_s = 0.0;
        for window in &run.windows {
            // What is down is down from its beginning to its end.
            if window.phase != "before" && window.phase != "after" {
                points.extend(place(run, start_s).map(|x| (x, 0.0)));
            }
            points.extend(place(run, window.t_s).map(|x| (x, value(window))));
            start_s = window.t_s;
        }
        Series { label: run.restart, class: colour(run.restart), points }
    });
    let is_tpcc = runs.iter().any(|run| run.figures.steady.tpmc.is_some());
    Chart {
        title: format!("Throughput of {design} around the event"),
        y_label: if is_tpcc { "tpmC: New-Orders per minute" } else { "transactions per second" },
        x_label,
        x_unit: " s",
        series: series.collect(),
        first: first(runs),
        size: (1040.0, 320.0),
        ..Chart::default()
    }
}

/// The columns of the table: heading, path of the figure, format.
type Column = (&'static str, &'static str, fn(f64) -> String);

const COLUMNS: [Column; 17] = [
    ("shutdown", "shutdown_s", seconds),
    ("recovery", "recovery_s", seconds),
    ("ramp-up", "ramp_up_s", seconds),
    ("ramp-up,<br>held", "ramp_up_held_s", seconds),
    ("peak<br>to peak", "peak_to_peak_s", seconds),
    ("flash<br>kept", "flash_pages_kept_share", percent),
    ("ratio<br>at peak", "peak_throughput_ratio", ratio),
    ("ratio<br>after", "throughput_ratio", ratio),
    ("log,<br>MB", "log.bytes", megabytes),
    ("flash hits<br>at peak", "before.flash.hit_ratio", percent),
    ("flash hits<br>after", "flash.hit_ratio", percent),
    ("home busy<br>at peak", "before.devices.home.utilisation", percent),
    ("flash busy<br>at peak", "before.devices.flash.utilisation", percent),
    ("log busy<br>at peak", "before.devices.log.utilisation", percent),
    ("home busy<br>after", "devices.home.utilisation", percent),
    ("flash busy<br>after", "devices.flash.utilisation", percent),
    ("log busy<br>after", "devices.log.utilisation", percent),
];

fn seconds(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

fn ratio(ratio: f64) -> String {
    format!("{ratio:.3}")
}

fn megabytes(bytes: f64) -> String {
    thousands(bytes / 1e6)
}

fn figures(bench: &Bench<RestartRun>) -> String {
    let mut out = String::from(
        "<h2>Figures</h2><p class=\"soft\">Ratios are of the throughput over that of forget. \
         Rates, hit ratios and utilisations are over the last part before the event, and before \
         the end.</p><div class=\"panel\"><table><tr><th>run</th><th>throughput<br>at peak</th>\
         <th>throughput<br>after</th>",
    );
    for (heading, ..) in COLUMNS {
        let _ = write!(out, "<th>{heading}</th>");
    }
    out.push_str("<th>consistency</th></tr>");
    for run in &bench.runs {
        let class = colour(run.restart);
        let _ = write!(out, "<tr><td class=\"{class}\"><b>{} {}</b></td>", run.design, run.restart);
        for of in ["before", ""] {
            let _ = write!(out, "<td>{}</td>", run.throughput(of).map_or("–".into(), thousands));
        }
        for (_, path, format) in COLUMNS {
            let _ = write!(out, "<td>{}</td>", run.figure(path).map_or("–".into(), format));
        }
        let class = if run.checks.is_broken() { " class=\"bad\"" } else { "" };
        let _ = write!(out, "<td{class}>{}</td></tr>", escaped(&run.checks.consistency));
    }
    out.push_str("</table></div>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::restart::tests::synthetic;
    use crate::results::Host;
    use serde_json::json;

    fn bench() -> Bench<RestartRun> {
        let pairs = [
            ("dw", "forget", 27.0),
            ("dw", "lvr", 2.0),
            ("lc", "forget", 12.0),
            ("lc", "lvr", 1.0),
        ];
        let Value::Object(parameters) = json!({
            "event": "shutdown", "workload": "tpcc", "warehouses": 20, "clients": 50,
        }) else {
            unreachable!("an object")
        };
        Bench {
            command: "bench restart",
            version: "0.1.0",
            seed: 1,
            parameters,
            host: Host::default(),
            runs: pairs.map(|(design, restart, ramp)| synthetic(design, restart, ramp)).into(),
            pairs: Vec::new(),
        }
    }

    #[test]
    fn the_page_is_self_contained_and_has_a_curve_for_each_run() {
        let page = restart_page(&bench(), "terrace bench restart --seed 1");
        if let Ok(path) = std::env::var("TERRACE_REPORT_SAMPLE_RESTART") {
            std::fs::write(path, &page).unwrap();
        }
        assert!(!page.contains("https://") && !page.contains("src="));
        assert!(!page.contains("NaN") && !page.contains("inf "));
        assert_eq!(page.matches("<svg").count(), 2 * 2);
        assert_eq!(page.matches("<polyline").count(), 2 * 2 * 2);
        assert!(page.contains("From peak to peak after a shutdown"), "no ratio was formed");
    }

    #[test]
    fn a_run_that_is_not_back_says_so() {
        let mut bench = bench();
        bench.runs[0].figures.ramp_up_s = None;
        bench.runs[0].figures.peak_to_peak_s = None;
        assert!(restart_page(&bench, "").contains("not back at its peak"));
    }
}
