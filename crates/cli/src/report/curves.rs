//! The page of `replay --curve`: miss ratios against capacity, as curves and in figures.

use super::html::escaped;
use super::plot::{Chart, Series};
use super::{bottom, hue, parameters, top};
use crate::table::{percent, thousands};
use serde_json::{Map, Value};
use std::fmt::Write;

/// Where a second picture ends: most caches are smaller.
const SMALL: f64 = 0.1;
/// A picture of fewer points says nothing.
const POINTS_MIN: usize = 3;

/// What came out of `replay --curve`.
pub struct Curves<'a> {
    /// The trace, for people.
    pub about: &'a str,
    pub seed: u64,
    pub parameters: &'a Map<String, Value>,
    /// Distinct pages of the trace.
    pages: u32,
    capacities: &'a [u32],
    lines: Vec<CurveLine<'a>>,
}

/// One curve.
pub struct CurveLine<'a> {
    pub policy: &'a str,
    pub method: &'a str,
    /// For each capacity.
    pub ratios: &'a [f64],
    /// How far off it is at most, if that was measured.
    pub error_max: Option<f64>,
}

impl<'a> Curves<'a> {
    /// Curves over `capacities` of a trace of `pages` pages.
    pub fn new(
        (about, seed, parameters): (&'a str, u64, &'a Map<String, Value>),
        (pages, capacities): (u32, &'a [u32]),
        lines: Vec<CurveLine<'a>>,
    ) -> Curves<'a> {
        Curves { about, seed, parameters, pages, capacities, lines }
    }

    fn share(&self, capacity: u32) -> f64 {
        f64::from(capacity) / f64::from(self.pages.max(1))
    }

    /// The policy that misses least of those that do not know the future, at the capacity that is
    /// nearest to a tenth of the pages.
    fn headline(&self) -> String {
        let off = |at: &usize| (self.share(self.capacities[*at]) - SMALL).abs();
        let at = (0..self.capacities.len()).min_by(|a, b| off(a).total_cmp(&off(b)));
        let online = || self.lines.iter().filter(|line| !line.policy.starts_with("opt"));
        let best = at.and_then(|at| {
            let least = online().min_by(|a, b| a.ratios[at].total_cmp(&b.ratios[at]))?;
            Some((at, least))
        });
        let Some((at, least)) = best else { return "Miss ratios against capacity".into() };
        let capacity = self.capacities[at];
        format!(
            "With {} pages, {} of all, {} misses {} of the references",
            thousands(f64::from(capacity)),
            percent(self.share(capacity)),
            least.policy,
            percent(least.ratios[at]),
        )
    }

    fn chart(&self, upto: f64) -> Option<String> {
        let shown = |at: &usize| self.share(self.capacities[*at]) <= upto + 1e-9;
        let points = (0..self.capacities.len()).filter(shown).count();
        if points < POINTS_MIN {
            return None;
        }
        let point = |line: &CurveLine, at: usize| {
            (100.0 * self.share(self.capacities[at]), 100.0 * line.ratios[at])
        };
        let labels: Vec<String> = (0..self.lines.len()).map(|number| self.label(number)).collect();
        let series = self.lines.iter().enumerate().map(|(number, line)| Series {
            label: &labels[number],
            class: self.class(number),
            points: (0..points).map(|at| point(line, at)).collect(),
        });
        let chart = Chart {
            title: "Miss ratio against capacity".into(),
            y_label: "% of the references missed",
            x_label: "capacity, in shares of the distinct pages",
            x_unit: "%",
            series: series.collect(),
            first: self.first(points),
            size: (1040.0, 400.0),
            ..Chart::default()
        };
        Some(format!("<div class=\"panel\">{}</div>", chart.html()))
    }

    /// What is shown at first: LRU, which all know, what knows the future, and the best of the
    /// others over the capacities shown.
    fn first(&self, points: usize) -> Vec<&'a str> {
        let mean = |line: &CurveLine| line.ratios[..points].iter().sum::<f64>();
        let mut lines: Vec<&CurveLine> = self.lines.iter().collect();
        lines.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
        let known = ["lru", "opt"];
        let mut names: Vec<&str> = lines.iter().map(|line| line.policy).collect();
        names.retain(|name| !known.contains(name) && !name.starts_with("opt"));
        let all = known.into_iter().filter(|name| lines.iter().any(|line| line.policy == *name));
        let mut first: Vec<&str> = all.chain(names).collect();
        first.dedup();
        first
    }

    /// The name of a curve: the policy, and how it was found if there is one of it before.
    fn label(&self, number: usize) -> String {
        let CurveLine { policy, method, .. } = self.lines[number];
        match self.lines[..number].iter().any(|line| line.policy == policy) {
            true => format!("{policy}, {method}"),
            false => policy.to_string(),
        }
    }

    /// The colour of a policy; what is sampled where there is an exact curve is dotted. Those that
    /// are shown at first come first: no two of them have the same.
    fn class(&self, number: usize) -> String {
        let policy = self.lines[number].policy;
        let first = self.lines.iter().position(|line| line.policy == policy);
        let shown = self.first(self.capacities.len());
        let hidden = self.lines.iter().map(|line| line.policy);
        let hidden = hidden.filter(|name| !shown.contains(name)).collect::<Vec<_>>();
        let mut names = shown.iter().chain(&hidden);
        let place = names.position(|name| *name == policy).unwrap_or_default();
        let dots = if first == Some(number) { "" } else { " dotted" };
        format!("{}{dots}", hue(place))
    }

    fn figures(&self) -> String {
        let mut out = String::from(
            "<h2>Figures</h2><p class=\"soft\">Misses in percent of the references, by pages of \
             capacity.</p><div class=\"panel\"><table><tr><th>policy</th><th>method</th>",
        );
        for &capacity in self.capacities {
            let _ = write!(out, "<th>{}</th>", thousands(f64::from(capacity)));
        }
        out.push_str("<th>off by<br>at most</th></tr>");
        for (number, line) in self.lines.iter().enumerate() {
            let _ = write!(
                out,
                "<tr><td class=\"{}\"><b>{}</b></td><td>{}</td>",
                self.class(number),
                escaped(line.policy),
                escaped(line.method),
            );
            for ratio in line.ratios {
                let _ = write!(out, "<td>{:.2}</td>", 100.0 * ratio);
            }
            let error =
                line.error_max.map_or("–".into(), |error| format!("{:.2}", 100.0 * error));
            let _ = write!(out, "<td>{error}</td></tr>");
        }
        out.push_str("</table></div>");
        out
    }
}

/// The page for `curves`.
pub fn curves_page(curves: &Curves) -> String {
    let repeat = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let mut out = top(
        "replay --curve",
        &escaped(&curves.headline()),
        &escaped(curves.about),
        &format!("terrace {repeat}"),
    );
    if let Some(chart) = curves.chart(1.0) {
        let _ = write!(
            out,
            "<h2>Misses by capacity</h2><p class=\"soft\">What is dotted is a sample of what is \
             drawn as well.</p>{chart}"
        );
    }
    if let Some(chart) = curves.chart(SMALL) {
        let _ = write!(out, "<h2>Small caches</h2>{chart}");
    }
    out.push_str(&curves.figures());
    out.push_str(&parameters(curves.seed, curves.parameters));
    out.push_str(&bottom());
    out
}
