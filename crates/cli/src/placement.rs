//! `terrace placement`: where pages belong if their requests were known, and what two caches make
//! of it that do not know of each other.

use crate::command::{Placement, SpacingName};
use crate::failure::Failure;
use crate::interval::rounded;
use crate::output::{Sinks, Stopwatch};
use crate::results::Host;
use crate::table::{Table, thousands};
use serde_json::{Value, json};
use terrace_policy::placement::{Costs, Placed, Room, Spacing, cost, grid, optimal, two_step};

/// Runs it.
///
/// # Errors
///
/// Costs that are none; a file that cannot be written.
pub fn placement(options: &Placement) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let [home_read, home_write, flash_read, flash_write] = options.costs[..] else {
        return Err(Failure::usage("--costs are four: home read, home write, flash read, write"));
    };
    if !options.costs.iter().all(|cost| cost.is_finite() && *cost >= 0.0) {
        return Err(Failure::usage("--costs are numbers from 0 on"));
    }
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let costs = Costs { home_read, home_write, flash_read, flash_write };
    let spacing = match options.spacing {
        SpacingName::Linear => Spacing::Linear,
        SpacingName::Log => Spacing::Logarithmic,
    };
    let pages = grid(options.side as usize, f64::from(options.most), spacing);
    let room = Room { memory: options.memory as usize, flash: options.flash as usize };
    let best = optimal(&pages, room, &costs);
    let least = cost(&pages, &best, &costs);
    let mut table =
        Table::new(["placement", "cost", "over optimal", "memory", "flash", "both", "neither"]);
    let mut runs = Vec::new();
    for (name, placed) in [("optimal", best), ("two-step", two_step(&pages, room, &costs))] {
        let count = |what| placed.iter().filter(|placed| **placed == what).count();
        let counts = [Placed::Memory, Placed::Flash, Placed::Both, Placed::Home].map(count);
        let total = cost(&pages, &placed, &costs);
        let over = if least > 0.0 { total / least } else { 1.0 };
        let [memory, flash, both, neither] = counts.map(|count| thousands(count as f64));
        table.row([
            name.into(),
            thousands(total),
            format!("{over:.3}"),
            memory,
            flash,
            both,
            neither,
        ]);
        runs.push(run(name, total, over, counts));
    }
    sinks.show(&format!(
        "{} pages, {} to {} reads and writes; memory {}, flash {}\n\n{}",
        thousands(pages.len() as f64),
        1,
        thousands(f64::from(options.most)),
        room.memory,
        room.flash,
        table.text(),
    ));
    sinks.write(&json!({
        "command": "placement",
        "version": env!("CARGO_PKG_VERSION"),
        "parameters": {
            "side": options.side,
            "most": options.most,
            "spacing": crate::bench::word(options.spacing),
            "memory": options.memory,
            "flash": options.flash,
            "costs_ms": options.costs,
        },
        "host": Host::of(&watch, 0.0),
        "runs": runs,
    }))
}

fn run(name: &str, total: f64, over: f64, counts: [usize; 4]) -> Value {
    let [memory, flash, both, neither] = counts;
    json!({
        "placement": name,
        "cost": rounded(total),
        "over_optimal": rounded(over),
        "memory": memory,
        "flash": flash,
        "both": both,
        "neither": neither,
    })
}
