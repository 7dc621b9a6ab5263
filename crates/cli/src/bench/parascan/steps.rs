//! `bench parascan --steps`: what the steps of the operators cost on this machine, beside what
//! trials charge.

use crate::command::ParascanBench;
use crate::failure::Failure;
use crate::interval::rounded;
use crate::output::Sinks;
use crate::table::Table;
use serde_json::{Value, json};
use terrace_operators::COSTS;
use terrace_operators::trials::steps::measure;

/// Runs it.
///
/// # Errors
///
/// A place for JSON that cannot be written.
pub fn steps(options: &ParascanBench) -> Result<(), Failure> {
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let measured = measure().map_err(|error| Failure::failed("cannot measure", error))?;
    let of = |step| measured.iter().find(|(it, _)| *it == step).map(|(_, ns)| *ns);
    let mut table = Table::new(["step", "charged ns", "measured ns"]);
    for cost in COSTS {
        let ns = of(cost.step).map_or("-".into(), |ns| format!("{ns:.1}"));
        table.row([cost.name.into(), cost.ns.to_string(), ns]);
    }
    sinks.show(&table.text());
    let steps = COSTS.iter().map(|cost| {
        let ns = of(cost.step).map(rounded);
        json!({ "step": cost.name, "charged_ns": cost.ns, "measured_ns": ns })
    });
    sinks.write(&json!({
        "command": "bench parascan --steps",
        "version": env!("CARGO_PKG_VERSION"),
        "host": { "steps": steps.collect::<Vec<Value>>() },
    }))
}
