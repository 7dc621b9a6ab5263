//! Names as they are written on the command line: of designs, restarts, policies, devices; and one
//! kind of size.

use super::names::named;
use crate::quantity::Size;
use terrace::PoolConfig;
use terrace_device::model::{Preset, PresetRow};
use terrace_policy::{
    AdmissionRule, Layout, Replacement, designs, find_admission, find_layout, find_replacement,
    restarts,
};
use terrace_policy::{Costs, DESIGNS, Design, MemoryPolicy, RESTARTS, Restart, UnknownName};
use terrace_workload::torture::matrix::{Fate, SCRIPTS, TPCC};

pub(super) fn preset(name: &str) -> Result<String, String> {
    named(name, str::parse::<Preset>).map(|preset| preset.name().to_string())
}

pub(super) fn one_restart(name: &str) -> Result<Restart, String> {
    named(name, restarts::find)
}

pub(super) fn admission(name: &str) -> Result<AdmissionRule, String> {
    named(name, find_admission)
}

pub(super) fn replacement(name: &str) -> Result<Replacement, String> {
    named(name, find_replacement)
}

pub(super) fn layout(name: &str) -> Result<Layout, String> {
    named(name, find_layout)
}

/// A budget of writes in bytes.
pub(super) fn daily_budget(text: &str) -> Result<u64, String> {
    match text.parse::<Size>()?.bytes() {
        None => Err("a budget of writes is a size of its own, like 100GiB".into()),
        Some(0) => Err("a budget of nothing is no flash: take the design no-ssd".into()),
        Some(bytes) => Ok(bytes),
    }
}

/// The weight of migration in FASC's ratio of queues.
pub(super) fn theta(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(theta) if theta > 0.0 && theta < 1.0 => Ok(theta),
        Ok(theta) if theta <= 0.0 => {
            Err("theta is above 0: 0.01 gives changed pages most room".into())
        }
        Ok(theta) if theta >= 1.0 => Err("theta is below 1: 0.99 gives them least room".into()),
        _ => Err("theta is a number above 0 and below 1, like 0.5".into()),
    }
}

/// The least that a log that grows is bounded by, in bytes.
const LOG_MAX_MIN: u64 = 1 << 20;
/// No log is as long as this.
const LOG_MAX_END: u64 = 4 << 40;

/// How long a log that grows may get, in bytes.
pub(super) fn log_max(text: &str) -> Result<u64, String> {
    match text.parse::<Size>()?.bytes() {
        None => Err("the limit of a log is a size of its own, like 1GiB".into()),
        Some(bytes) if !(LOG_MAX_MIN..LOG_MAX_END).contains(&bytes) => {
            Err("the limit of a log is at least 1MiB, and less than 4TiB".into())
        }
        Some(bytes) => Ok(bytes),
    }
}

/// Bytes a second.
pub(super) fn rate(text: &str) -> Result<u64, String> {
    match text.parse::<Size>()?.bytes() {
        None | Some(0) => Err("a rate is bytes a second, like 64MiB".into()),
        Some(bytes) => Ok(bytes),
    }
}

/// A bound on the age of changes, in bytes of log.
pub(super) fn log_age(text: &str) -> Result<u64, String> {
    match text.parse::<Size>()?.bytes() {
        None => Err("a size of log is one of its own, like 64MiB".into()),
        Some(bytes) if bytes < PoolConfig::CLEAN_AGE_MIN => {
            Err("a bound on age is at least 64KiB of log".into())
        }
        Some(bytes) => Ok(bytes),
    }
}

/// Restarts by name.
#[derive(Clone)]
pub struct RestartList(pub Vec<Restart>);

pub(super) fn restart_list(text: &str) -> Result<RestartList, String> {
    list(text, &RESTARTS, restarts::find).map(RestartList)
}

/// Designs by name.
#[derive(Clone)]
pub struct DesignList(pub Vec<Design>);

pub(super) fn design_list(text: &str) -> Result<DesignList, String> {
    list(text, &DESIGNS, designs::find).map(DesignList)
}

/// The rows named in `text`, each once, or `all` of them.
pub(super) fn list<T: Copy + PartialEq>(
    text: &str,
    all: &[T],
    find: impl Fn(&str) -> Result<T, UnknownName>,
) -> Result<Vec<T>, String> {
    if text.eq_ignore_ascii_case("all") {
        return Ok(all.to_vec());
    }
    let mut list = Vec::new();
    for name in text.split(',') {
        // Behind the known names of rows stands the one of all.
        let all = |name: &str| find(name).map_err(|unknown| format!("{unknown}, all"));
        let row = named(name.trim(), all)?;
        if !list.contains(&row) {
            list.push(row);
        }
    }
    Ok(list)
}

pub(super) fn one_design(text: &str) -> Result<Design, String> {
    named(text, designs::find)
}

pub(super) fn one_script(text: &str) -> Result<&'static str, String> {
    let names = || SCRIPTS.iter().map(|script| script.name).chain([TPCC]);
    let found = names().find(|name| *name == text);
    found.ok_or_else(|| unknown("script", text, names().collect()))
}

pub(super) fn one_fate(text: &str) -> Result<Fate, String> {
    let names = Fate::ALL.map(Fate::name).to_vec();
    Fate::find(text).ok_or_else(|| unknown("fate", text, names))
}

fn unknown(what: &str, name: &str, known: Vec<&str>) -> String {
    format!("unknown {what} `{name}`; known: {}", known.join(", "))
}

/// What requests cost, in ms.
pub(super) fn costs(text: &str) -> Result<Costs, String> {
    let parsed: Result<Vec<f64>, _> = text.split(',').map(|cost| cost.trim().parse()).collect();
    let Ok([home_read, home_write, flash_read, flash_write]) = parsed.as_deref() else {
        return Err("four numbers: home read, home write, flash read, flash write".into());
    };
    let (home_read, home_write) = (*home_read, *home_write);
    let (flash_read, flash_write) = (*flash_read, *flash_write);
    let costs = Costs { home_read, home_write, flash_read, flash_write };
    if costs.are_positive() { Ok(costs) } else { Err("costs are numbers above zero".into()) }
}

pub(super) fn memory_policy(text: &str) -> Result<MemoryPolicy, String> {
    named(text, MemoryPolicy::find)
}

/// The modelled devices and where their figures come from, for help.
pub(super) fn presets() -> String {
    let row =
        |row: &PresetRow| format!("  {:<17}{}\n{:<19}{}\n", row.name, row.about, "", row.source);
    let rows: String = Preset::TABLE.iter().map(row).collect();
    format!("Devices, and where their figures come from:\n{rows}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_designs_are_read() {
        let names = |text: &str| {
            design_list(text).map(|list| list.0.iter().map(|d| d.name).collect::<Vec<_>>())
        };
        assert_eq!(names("all").unwrap().len(), DESIGNS.len());
        assert_eq!(names("lc, no-ssd,lc"), Ok(vec!["lc", "no-ssd"]));
        let unknown = names("lc,fastest").unwrap_err();
        let known: Vec<&str> = DESIGNS.iter().map(|design| design.name).chain(["all"]).collect();
        assert_eq!(unknown, format!("unknown design `fastest`; known: {}", known.join(", ")));
    }
}
