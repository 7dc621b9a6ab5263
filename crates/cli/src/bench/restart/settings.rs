//! From the options of `bench restart` to what its driver takes, and to the parameters that are
//! printed.

use crate::bench::system::{
    self, check_fill, check_seeds, check_tasks, check_windows, fits, interval, jobs, object,
    place_parameters, positive, refuse, tier_parameters, word,
};
use crate::command::{EventName, Hardening, RestartBench, Rows, WorkloadName};
use crate::failure::Failure;
use crate::quantity::Span;
use serde_json::{Map, Value, json};
use terrace::{PoolConfig, RestartTuning};
use terrace_policy::{DESIGNS, Design, RESTARTS, Restart};
use terrace_rt::Nanos;
use terrace_workload::restart::{Event, Plan};
use terrace_workload::tpcc::{self, Checks, Scale};
use terrace_workload::{LogKept, System, Workload, brokerage};

/// Times between checkpoints unless others are asked for: the recovery intervals of ICDE 2013,
/// 30 minutes and 7.5 minutes, scaled by 1/100.
const TPCC_CHECKPOINT: Span = Span(18.0);
const TPCE_LIKE_CHECKPOINT: Span = Span(4.5);
/// Part of the interval between checkpoints after which power is cut, unless told otherwise: what
/// it is on average for a cut at any time.
const CUT_AFTER: f64 = 0.5;

/// What the driver takes with the first restart, but for sizes that are relative to the database.
///
/// # Errors
///
/// Options that make no sense or contradict each other; a pair that cannot be.
pub fn plan(options: &RestartBench) -> Result<Plan, Failure> {
    let parts = &options.parts;
    let named = [
        ("--peak", parts.peak.0),
        ("--after", parts.after.0),
        ("--window", parts.window.0),
        ("--averaged", parts.averaged.0),
        ("--peak-share", parts.peak_share.0),
    ];
    named.iter().try_for_each(|(option, value)| positive(option, *value))?;
    if parts.averaged.0 > parts.peak.0.min(parts.after.0) {
        return Err(Failure::usage("--averaged is longer than --peak or --after"));
    }
    if parts.window.0 > parts.averaged.0 {
        return Err(Failure::usage("--window is longer than --averaged"));
    }
    check_windows("--peak and --after", parts.peak.0 + parts.after.0, parts.window.0)?;
    check_seeds(options.seed, options.seeds)?;
    check_fill(options.database.fill)?;
    pairs(options)?;
    let system = modelled(options)?;
    let half = system.checkpoint_every.map_or(0.0, |every| every.as_secs_f64() * CUT_AFTER);
    let cut_after = parts.cut_after.map_or(half, |after| after.0);
    let nanos = |span: Span| Nanos::from_secs_f64(span.0);
    Ok(Plan {
        system,
        seed: options.seed,
        event: match options.event {
            EventName::Shutdown => Event::Shutdown,
            EventName::Crash => Event::Crash { after_checkpoint: Nanos::from_secs_f64(cut_after) },
        },
        peak: nanos(parts.peak),
        after: nanos(parts.after),
        window: nanos(parts.window),
        averaged: nanos(parts.averaged),
        peak_share: parts.peak_share.0,
    })
}

/// The pairs of design and restart that are run: all of those asked for, or, where one of the two
/// is `all`, those that fit each other.
///
/// # Errors
///
/// A pair that does not fit, if both were named; no pair that does.
pub fn pairs(options: &RestartBench) -> Result<Vec<(Design, Restart)>, Failure> {
    let (designs, restarts) = (&options.design.0, &options.restart.0);
    let are_all = designs.len() == DESIGNS.len() || restarts.len() == RESTARTS.len();
    let mut fitting = Vec::new();
    let mut first_refusal = Ok(());
    for design in designs {
        for restart in restarts {
            match refuse(&[*design], &[*restart], &options.tier) {
                Ok(()) => fitting.push((*design, *restart)),
                Err(refusal) => first_refusal = first_refusal.and(Err(refusal)),
            }
        }
    }
    match first_refusal {
        Err(refusal) if !are_all || fitting.is_empty() => Err(refusal),
        _ => Ok(fitting),
    }
}

/// Checks what does not depend on the database, before it is loaded.
///
/// # Errors
///
/// Sizes that no tier, no machine or no process has.
pub fn check_sizes(plan: &Plan, options: &RestartBench) -> Result<(), Failure> {
    let workload = workload(options, options.seed);
    fits("the database, kept in memory,", workload.home_bytes())?;
    let jobs = jobs(options.jobs, pairs(options)?.len());
    check_tasks(options.parts.clients, jobs)?;
    let designs = &options.design.0;
    system::check_sizes(&plan.system, &options.tier, designs)
}

/// `plan` with another restart method.
pub fn with_restart(plan: &Plan, restart: Restart) -> Plan {
    let mut plan = plan.clone();
    plan.system.tier.restart = restart;
    plan
}

fn modelled(options: &RestartBench) -> Result<System, Failure> {
    let checkpoint = match options.workload {
        WorkloadName::Tpcc => TPCC_CHECKPOINT,
        WorkloadName::TpceLike => TPCE_LIKE_CHECKPOINT,
    };
    let system = system::modelled(&options.models, &options.tier)?;
    let restart_tuning = restart_tuning(&options.hardening);
    Ok(System {
        tier: PoolConfig { restart_tuning, ..system.tier },
        log_kept: LogKept::All,
        checkpoint_every: interval(options.tier.checkpoint.unwrap_or(checkpoint)),
        ..system
    })
}

fn restart_tuning(hardening: &Hardening) -> RestartTuning {
    RestartTuning {
        lbr_group: hardening.lbr_group,
        lbr_timeout: Nanos::from_secs_f64(hardening.lbr_timeout.0),
        mmr_unit: hardening.mmr_unit,
        lvr_chunks: hardening.lvr_chunks,
        lvr_pause: Nanos::from_secs_f64(hardening.lvr_pause.0),
        ..RestartTuning::default()
    }
}

/// The workload with its database, for `seed`.
pub fn workload(options: &RestartBench, seed: u64) -> Box<dyn Workload> {
    let (database, clients) = (&options.database, options.parts.clients);
    let checks = if database.no_check { Checks::Off } else { Checks::On };
    match options.workload {
        WorkloadName::Tpcc => Box::new(tpcc::Config {
            seed,
            scale: scale(options),
            fill: database.fill.0,
            clients,
            checks,
            ..tpcc::Config::default()
        }),
        WorkloadName::TpceLike => Box::new(brokerage::Config {
            seed,
            customers: options.brokerage.customers,
            fill: database.fill.0,
            clients,
            checks: !database.no_check,
            ..brokerage::Config::default()
        }),
    }
}

fn scale(options: &RestartBench) -> Scale {
    match options.database.rows {
        Rows::Full => Scale::full(options.database.warehouses),
        Rows::Tiny => Scale::tiny(options.database.warehouses),
    }
}

/// Every parameter by name, in the order in which they are explained.
pub fn parameters(plan: &Plan, options: &RestartBench) -> Map<String, Value> {
    let designs: Vec<&str> = options.design.0.iter().map(|design| design.name).collect();
    let restarts: Vec<&str> = options.restart.0.iter().map(|restart| restart.name).collect();
    let cut_after_s = match plan.event {
        Event::Shutdown => None,
        Event::Crash { after_checkpoint } => Some(after_checkpoint.as_secs_f64()),
    };
    let mut all = object(json!({
        "design": designs,
        "restart": restarts,
        "event": word(options.event),
        "workload": word(options.workload),
        "seeds": options.seeds,
    }));
    all.extend(object(match options.workload {
        WorkloadName::Tpcc => json!({
            "warehouses": options.database.warehouses,
            "rows": word(options.database.rows),
        }),
        WorkloadName::TpceLike => json!({
            "customers": options.brokerage.customers,
            "skew": brokerage::SKEW,
            "reads_per_write": brokerage::READS_PER_WRITE,
        }),
    }));
    all.extend(place_parameters(&plan.system));
    all.extend(object(json!({
        "fill": options.database.fill.0,
        "clients": options.parts.clients,
        "peak_s": plan.peak.as_secs_f64(),
        "after_s": plan.after.as_secs_f64(),
        "window_s": plan.window.as_secs_f64(),
        "averaged_s": plan.averaged.as_secs_f64(),
        "peak_share": plan.peak_share,
        "cut_after_checkpoint_s": cut_after_s,
        "start": "cold",
        "checks": !options.database.no_check,
    })));
    all.extend(tier_parameters(&plan.system, &options.tier));
    let hardening = &options.hardening;
    all.extend(object(json!({
        "lbr_group": hardening.lbr_group,
        "lbr_timeout_ms": hardening.lbr_timeout.0 * 1e3,
        "mmr_unit": hardening.mmr_unit,
        "lvr_chunks": hardening.lvr_chunks,
        "lvr_pause_ms": hardening.lvr_pause.0 * 1e3,
    })));
    all
}
