//! Figures of papers: what was published, what was measured, and where that lies.

use crate::table::Table;
use serde_json::{Value, json};

/// A published value and ours.
pub struct Figure {
    pub id: &'static str,
    pub drive: String,
    pub what: String,
    /// `None` for what goes beyond the paper.
    pub published: Option<f64>,
    pub measured: f64,
    /// Ends of the band.
    pub band: (f64, f64),
    pub regime: String,
}

impl Figure {
    /// Where it lies.
    pub fn verdict(&self) -> &'static str {
        match self.measured {
            value if value < self.band.0 => "below",
            value if value > self.band.1 => "above",
            _ => "inside",
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "id": self.id,
            "drive": self.drive,
            "what": self.what,
            "published": self.published,
            "measured": self.measured,
            "band": [self.band.0, self.band.1.is_finite().then_some(self.band.1)],
            "verdict": self.verdict(),
            "regime": self.regime,
        })
    }
}

/// All of them as a table.
pub fn table(figures: &[Figure]) -> Table {
    let mut table = Table::new(["figure", "drive", "published", "measured", "band", "", "regime"]);
    for figure in figures {
        let high = match figure.band.1 {
            high if high.is_finite() => format!("to {high:.2}"),
            _ => "or more".into(),
        };
        table.row([
            format!("{} {}", figure.id, figure.what),
            figure.drive.clone(),
            figure.published.map_or("-".into(), |value| format!("{value}")),
            format!("{:.2}", figure.measured),
            format!("{:.2} {high}", figure.band.0),
            figure.verdict().into(),
            figure.regime.clone(),
        ]);
    }
    table
}
