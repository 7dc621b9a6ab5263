//! Line charts as inline SVG: axes with units, round ticks, a label at the end of each line.
//!
//! Colours are classes (`s-lc`, ...), so that the page's style gives them for light and dark.

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
    /// Upper end of the vertical axis, at least; it always begins at zero.
    pub y_max: f64,
    /// A shaded part of the horizontal axis, with its name.
    pub shaded: Option<(f64, f64, &'a str)>,
    /// A dashed level, with its name.
    pub level: Option<(f64, &'a str)>,
    /// Width and height in pixels.
    pub size: (f64, f64),
    /// Room for labels at the right, in pixels.
    pub label_room: f64,
}

const LEFT: f64 = 56.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 36.0;
/// Least distance between two labels.
const LABEL_STEP: f64 = 15.0;
/// Horizontal pixels for each tick.
const TICK_PIXELS: f64 = 70.0;
const Y_TICKS: f64 = 4.0;

impl Chart<'_> {
    /// The chart as an `svg` element.
    pub fn svg(&self) -> String {
        let (width, height) = self.size;
        let mut out = String::new();
        let ends = self.points().map(|point| point.0).fold(0.0, f64::max);
        let top = self.points().map(|point| point.1).fold(self.y_max, f64::max);
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
            "<svg class=\"chart\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\" \
             data-frame=\"{LEFT} {TOP} {:.1} {:.1} {} {}\" data-unit=\"{}\">",
            super::escaped(&self.title),
            frame.right,
            frame.bottom,
            frame.x_max,
            frame.y_max,
            self.x_unit,
        );
        self.draw_axes(&mut out, &frame, x_step, y_step);
        for series in &self.series {
            draw_line(&mut out, &frame, series);
        }
        self.draw_labels(&mut out, &frame);
        out.push_str("</svg>");
        out
    }

    fn points(&self) -> impl Iterator<Item = &(f64, f64)> {
        self.series.iter().flat_map(|series| &series.points)
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
        let mut labels: Vec<(f64, &Series)> = self
            .series
            .iter()
            .filter(|series| !series.label.is_empty())
            .filter_map(|series| {
                let tail = &series.points[series.points.len().saturating_sub(5)..];
                let mean = tail.iter().map(|point| point.1).sum::<f64>() / tail.len() as f64;
                (!tail.is_empty()).then(|| (frame.y(mean), series))
            })
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
                super::escaped(series.label),
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
    let _ = write!(
        out,
        "<polyline class=\"line {}\" data-label=\"{}\" points=\"",
        series.class,
        super::escaped(series.label),
    );
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
        let chart = Chart {
            title: "nothing".into(),
            y_label: "MB/s",
            x_label: "",
            x_unit: " s",
            series: vec![Series { label: "a", class: "s-0".into(), points: Vec::new() }],
            y_max: 0.0,
            shaded: None,
            level: None,
            size: (300.0, 200.0),
            label_room: 10.0,
        };
        let svg = chart.svg();
        assert!(svg.ends_with("</svg>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
