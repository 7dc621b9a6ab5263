//! Line charts: data for the script of the page, which draws them at the width that there is, and
//! the same as inline SVG for readers without scripts.
//!
//! - G1: at most [`LINES_SHOWN`] lines are shown at first; the others are one click away.
//! - G2: axes cover what is shown, and begin at zero; the script's vertical axis begins higher if
//!   all that is shown is far above.
//!
//! Colours are classes (`s-lc`, ...), so that the page's style gives them for light and dark.

use serde_json::{Value, json};
use std::fmt::Write;

/// A line of a chart.
pub struct Series<'a> {
    /// What the line is called at its end; empty for no label.
    pub label: &'a str,
    /// CSS classes that give its colour and dash.
    pub class: String,
    /// Points from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A chart.
pub struct Chart<'a> {
    /// What screen readers say.
    pub title: String,
    /// Quantity and unit of the vertical axis.
    pub y_label: &'a str,
    /// Quantity of the horizontal axis; empty if it goes without saying.
    pub x_label: &'a str,
    /// Unit that follows each number of the horizontal axis.
    pub x_unit: &'a str,
    /// Lines, drawn in this order.
    pub series: Vec<Series<'a>>,
    /// The lines that are shown at first, most important first; the first lines if there are none.
    pub first: Vec<&'a str>,
    /// Upper end of the vertical axis, at least; it always begins at zero.
    pub y_max: f64,
    /// A shaded part of the horizontal axis, with its name.
    pub shaded: Option<(f64, f64, &'a str)>,
    /// A dashed level, with its name.
    pub level: Option<(f64, &'a str)>,
    /// A point that is marked, with its name.
    pub mark: Option<(f64, f64, String)>,
    /// Width and height in pixels.
    pub size: (f64, f64),
    /// Room for labels at the right, in pixels.
    pub label_room: f64,
}

impl Default for Chart<'_> {
    fn default() -> Self {
        Chart {
            title: String::new(),
            y_label: "",
            x_label: "",
            x_unit: " s",
            series: Vec::new(),
            first: Vec::new(),
            y_max: 0.0,
            shaded: None,
            level: None,
            mark: None,
            size: (1040.0, 380.0),
            label_room: 96.0,
        }
    }
}

/// Lines that are shown at first.
pub const LINES_SHOWN: usize = 5;
const LEFT: f64 = 56.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 36.0;
/// Least distance between two labels.
const LABEL_STEP: f64 = 15.0;
/// Horizontal pixels for each tick.
const TICK_PIXELS: f64 = 70.0;
const Y_TICKS: f64 = 4.0;
/// Room in which labels of lines are drawn.
const LABEL_ROOM_MIN: f64 = 20.0;

impl Chart<'_> {
    /// The chart as a `figure` element.
    pub fn html(&self) -> String {
        let data = super::html::escaped(&self.data().to_string());
        let title = super::html::escaped(&self.title);
        let svg = self.svg();
        format!(
            "<figure class=\"plot\" data-title=\"{title}\" data-chart=\"{data}\">{svg}</figure>"
        )
    }

    /// Whether the line is shown at first (G1).
    fn is_shown(&self, at: usize) -> bool {
        if self.first.is_empty() {
            return at < LINES_SHOWN;
        }
        self.first.iter().take(LINES_SHOWN).any(|label| *label == self.series[at].label)
    }

    fn shown(&self) -> impl Iterator<Item = &Series<'_>> {
        let shown = (0..self.series.len()).filter(|at| self.is_shown(*at));
        shown.map(|at| &self.series[at])
    }

    /// What the script draws.
    fn data(&self) -> Value {
        let short = |value: f64| (value * 1e5).round() / 1e5;
        let series = self.series.iter().enumerate().map(|(at, series)| {
            let points = series.points.iter().map(|point| json!([short(point.0), short(point.1)]));
            json!({
                "label": series.label,
                "class": series.class,
                "on": self.is_shown(at),
                "points": points.collect::<Vec<_>>(),
            })
        });
        json!({
            "title": self.title,
            "y": self.y_label,
            "x": self.x_label,
            "unit": self.x_unit,
            "yMax": self.y_max,
            "labels": self.label_room > LABEL_ROOM_MIN,
            "height": self.size.1,
            "shaded": self.shaded.map(|(from, to, name)| json!([from, to, name])),
            "level": self.level.map(|(value, name)| json!([value, name])),
            "mark": self.mark.as_ref().map(|(x, y, name)| json!([x, y, name])),
            "series": series.collect::<Vec<_>>(),
        })
    }

    fn svg(&self) -> String {
        let (width, height) = self.size;
        let mut out = String::new();
        let marks = self.mark.iter().map(|mark| (mark.0, mark.1));
        let points = || self.shown().flat_map(|series| series.points.iter().copied());
        let ends = points().chain(marks.clone()).map(|point| point.0).fold(0.0, f64::max);
        let top = points().chain(marks).map(|point| point.1).fold(self.y_max, f64::max);
        let x_step = round_step(ends / ((width - LEFT - self.label_room) / TICK_PIXELS).max(2.0));
        let y_step = round_step(top / Y_TICKS);
        let frame = Frame {
            x_max: if ends > 0.0 { ends } else { 1.0 },
            y_max: ((top / y_step - 1e-9).ceil() * y_step).max(y_step),
            right: width - self.label_room,
            bottom: height - BOTTOM,
        };
        let _ = write!(
            out,
            "<svg class=\"chart\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
            super::html::escaped(&self.title),
        );
        self.draw_axes(&mut out, &frame, x_step, y_step);
        for series in self.shown() {
            draw_line(&mut out, &frame, series);
        }
        if let Some((x, y, name)) = &self.mark {
            let (x, y) = (frame.x(*x), frame.y(*y));
            let _ = write!(
                out,
                "<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"/><text \
                 class=\"marked\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                y - 12.0,
                super::html::escaped(name),
            );
        }
        if self.label_room > LABEL_ROOM_MIN {
            self.draw_labels(&mut out, &frame);
        }
        out.push_str("</svg>");
        out
    }

    fn draw_axes(&self, out: &mut String, frame: &Frame, x_step: f64, y_step: f64) {
        if let Some((from, to, name)) = self.shaded {
            let (left, right) = (frame.x(from), frame.x(to));
            let _ = write!(
                out,
                "<rect class=\"shade\" x=\"{left:.1}\" y=\"{TOP}\" width=\"{:.1}\" \
                 height=\"{:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{name}</text>",
                right - left,
                frame.bottom - TOP,
                right - 4.0,
                TOP + 12.0,
            );
        }
        for at in 0..=(frame.y_max / y_step).round() as u32 {
            let value = f64::from(at) * y_step;
            let y = frame.y(value);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                frame.right,
                LEFT - 8.0,
                y + 4.0,
                short(value, y_step),
            );
        }
        for at in 0..=(frame.x_max / x_step + 1e-9) as u32 {
            let value = f64::from(at) * x_step;
            let unit = if at == 0 { "" } else { self.x_unit };
            let _ = write!(
                out,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}{unit}\
                 </text>",
                frame.x(value),
                frame.bottom + 17.0,
                short(value, x_step),
            );
        }
        let _ = write!(
            out,
            "<text class=\"axis\" x=\"0\" y=\"12\">{}</text>\
             <text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            self.y_label,
            frame.right,
            self.size.1 - 4.0,
            self.x_label,
        );
        if let Some((value, name)) = self.level {
            let y = frame.y(value);
            let _ = write!(
                out,
                "<line class=\"level\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{name}</text>",
                frame.right,
                LEFT + 6.0,
                y - 5.0,
            );
        }
    }

    /// A label at the end of each line, pushed apart where lines end close together.
    fn draw_labels(&self, out: &mut String, frame: &Frame) {
        let labelled = self.shown().filter(|series| !series.label.is_empty());
        let mut labels: Vec<(f64, &Series)> = labelled
            .filter_map(|series| Some((frame.y(series.points.last()?.1), series)))
            .collect();
        labels.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut lowest = frame.bottom + 4.0;
        for (y, series) in labels {
            let y = y.min(lowest);
            lowest = y - LABEL_STEP;
            let _ = write!(
                out,
                "<text class=\"label {}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                series.class,
                frame.right + 8.0,
                y + 4.0,
                super::html::escaped(series.label),
            );
        }
    }
}

/// Where data stand on the picture.
struct Frame {
    x_max: f64,
    y_max: f64,
    right: f64,
    bottom: f64,
}

impl Frame {
    fn x(&self, value: f64) -> f64 {
        LEFT + value / self.x_max * (self.right - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - value / self.y_max * (self.bottom - TOP)
    }
}

fn draw_line(out: &mut String, frame: &Frame, series: &Series) {
    let _ = write!(out, "<polyline class=\"line {}\" points=\"", series.class);
    for (at, (x, y)) in series.points.iter().enumerate() {
        let space = if at == 0 { "" } else { " " };
        let _ = write!(out, "{space}{:.1},{:.1}", frame.x(*x), frame.y(*y));
    }
    out.push_str("\"/>");
}

/// The least of 1, 2, 5 times a power of ten that is not below `step`.
fn round_step(step: f64) -> f64 {
    if step <= 0.0 || !step.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= step * 0.999).unwrap_or(1.0)
}

/// A tick's number, as short as its step allows.
fn short(value: f64, step: f64) -> String {
    let (value, step, suffix) =
        if step >= 1_000.0 { (value / 1e3, step / 1e3, "k") } else { (value, step, "") };
    if value == 0.0 {
        return "0".into();
    }
    let digits = (-step.log10().floor()).max(0.0) as usize;
    format!("{value:.digits$}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(round_step(0.0), 1.0);
        assert_eq!(round_step(37.0), 50.0);
        assert_eq!(round_step(0.013), 0.02);
        assert_eq!(short(20_000.0, 5_000.0), "20k");
        assert_eq!(short(0.4, 0.2), "0.4");
        assert_eq!(short(50.0, 50.0), "50");
    }

    #[test]
    fn a_chart_of_nothing_is_still_a_chart() {
        let series = vec![Series { label: "a", class: "s-0".into(), points: Vec::new() }];
        let chart = Chart { title: "nothing".into(), series, ..Chart::default() };
        let html = chart.html();
        assert!(html.ends_with("</svg></figure>"));
        assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
    }

    #[test]
    fn five_lines_are_shown_and_the_others_are_there() {
        let labels = ["a", "b", "c", "d", "e", "f", "g"];
        let line = |at: usize| Series {
            label: labels[at],
            class: "s-0".into(),
            points: vec![(0.0, 1.0), (1.0, if at == 5 { 1_000.0 } else { 2.0 })],
        };
        let chart = |first: &[&'static str]| Chart {
            series: (0..labels.len()).map(line).collect(),
            first: first.to_vec(),
            mark: Some((1.0, 2.0, "advised".into())),
            ..Chart::default()
        };
        let html = chart(&[]).html();
        assert_eq!(html.matches("<polyline").count(), LINES_SHOWN);
        assert_eq!(html.matches("&quot;on&quot;:false").count(), 2);
        assert!(html.contains("class=\"mark\"") && html.contains("advised"));
        // The axis covers what is shown.
        assert!(!html.contains(">1000<") && !html.contains(">1k<"), "{html}");
        let html = chart(&["f", "a"]).html();
        assert_eq!(html.matches("<polyline").count(), 2);
        assert!(html.contains(">1000<") || html.contains(">1k<"), "{html}");
    }
}
