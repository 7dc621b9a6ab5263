//! From the options that benches of designs share to the system that runs are on, and to the
//! parameters that are printed.

use crate::command::{
    ClassifierName, CleanerOrderName, DesignList, Models, Switch, TacRuleName, TacWriteName, Tier,
};
use crate::failure::Failure;
use crate::interval::rounded;
use crate::output::{cores, machine_memory_bytes};
use crate::quantity::{Share, Size, Span};
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use terrace::{FascConfig, Fills, Metadata, PoolConfig, Spill, TacConfig, TacWrite};
use terrace_policy::{
    AdmissionRule, Asked, Classifier, CleanerOrder, Design, FlashRole, Layout, MemoryPolicy,
    QueueRules, Replacement, Restart, TacRule,
};
use terrace_rt::Nanos;
use terrace_workload::{FLASH_BYTES_MIN, LogKept, Place, System};

const PAGE_BYTES: u64 = 8192;
/// A log smaller than this has no room for a checkpoint.
const LOG_BYTES_MIN: u64 = 1 << 20;
/// Runs side by side unless asked otherwise: each may hold a copy of all that it changed.
const JOBS_MAX: u64 = 4;
/// More are shown by nothing.
const WINDOWS_MAX: f64 = 100_000.0;
/// Pages are loaded no emptier than this.
const FILL_MIN: f64 = 0.1;
/// Memory for each slot of the flash tier, in bytes.
const SLOT_BYTES: u64 = 32;
/// Tasks of all runs side by side, whose stacks are two mappings each: a process has 65,530.
const TASKS_MAX: u64 = 25_000;
/// Fewer frames than this cannot hold what a transaction pins.
pub const FRAMES_MIN: u64 = 64;
/// Fewer slots than this leave partitions empty.
const SLOTS_PER_PARTITION_MIN: u64 = 2;

/// Gives the designs the admission, replacement and layout that were asked for. A row without flash
/// stays as it is, for comparison, beside rows with.
///
/// # Errors
///
/// Answers that do not go together.
pub fn combine(designs: &mut DesignList, tier: &Tier) -> Result<(), Failure> {
    let is_baseline = |design: &Design| !design.uses_flash();
    let has_others = !designs.0.iter().all(is_baseline);
    for design in designs.0.iter_mut().filter(|design| !(has_others && is_baseline(design))) {
        let (admission, replacement, layout) = (tier.admission, tier.replacement, tier.layout);
        let asked = Asked { admission, replacement, layout };
        *design = design.combined(asked).map_err(Failure::usage)?;
    }
    Ok(())
}

/// The system on modelled devices that the options describe, but for the sizes of its tiers. Of the
/// log no more than its tail is kept, and there are no checkpoints unless they are asked for.
///
/// # Errors
///
/// A log that is no size of its own, or too small.
pub fn modelled(models: &Models, tier: &Tier) -> Result<System, Failure> {
    let Size::Pages(log_pages) = models.log else {
        return Err(Failure::usage("--log is a size of its own"));
    };
    let log_bytes = log_pages * PAGE_BYTES;
    if log_bytes < LOG_BYTES_MIN {
        return Err(Failure::usage("--log must be at least 1MiB"));
    }
    Ok(System {
        place: Place::Virtual {
            home: models.home.clone(),
            flash: models.flash_device.clone(),
            log: models.log_device.clone(),
        },
        tier: pool(tier),
        log_bytes,
        log_max: models.log_max,
        log_kept: LogKept::Tail,
        cores: models.cores,
        checkpoint_every: interval(tier.checkpoint.unwrap_or(Span(0.0))),
        ..System::default()
    })
}

/// What the options say of memory and flash, but for their sizes.
pub fn pool(tier: &Tier) -> PoolConfig {
    PoolConfig {
        memory_policy: tier.memory_policy,
        metadata: match tier.charge_metadata {
            Switch::On => Metadata::Charged,
            Switch::Off => Metadata::Free,
        },
        costs: tier.costs,
        tau: tier.tau.0,
        mu: tier.mu as usize,
        spill: match tier.spill {
            None => Spill::AsDesigned,
            Some(Switch::On) => Spill::WhenFlashIsBusy,
            Some(Switch::Off) => Spill::Never,
        },
        partitions: tier.partitions,
        alpha: tier.alpha,
        append_group: tier.face_group,
        fasc: fasc(tier),
        lambda: tier.lambda.0,
        cleaner_order: match tier.cleaner_order {
            CleanerOrderName::Lru2 => CleanerOrder::Lru2Age,
            CleanerOrderName::RecLsn => CleanerOrder::RecLsn,
        },
        cleaner_ios: tier.cleaner_ios,
        clean_age: tier.clean_age,
        flash_writes_per_day: tier.flash_writes_per_day,
        flash_role: flash_role(tier.persistent_flash),
        fills: Fills {
            ramp_up: tier.ramp_up_fill == Switch::On,
            aggressive: tier.aggressive_fill == Switch::On,
        },
        classifier: match tier.classifier {
            ClassifierName::ReadAhead => Classifier::ReadAhead,
            ClassifierName::Near => Classifier::Near,
        },
        tac: tac(tier),
        buf_write_pages: tier.buf_write_pages,
        ..PoolConfig::default()
    }
}

fn fasc(tier: &Tier) -> FascConfig {
    FascConfig {
        block_pages: tier.fasc_block,
        window_requests: tier.fasc_window,
        full: tier.fasc_full.0,
        migration_pages: tier.fasc_migration,
        queues: QueueRules { theta: tier.fasc_theta, scan_depth: tier.fasc_scan },
    }
}

fn tac(tier: &Tier) -> TacConfig {
    TacConfig {
        write: match tier.tac_write {
            TacWriteName::Async => TacWrite::Async,
            TacWriteName::Sync => TacWrite::Sync,
        },
        rule: match tier.tac_rule {
            TacRuleName::Hotter => TacRule::HotterThanColdest,
            TacRuleName::OnePercent => TacRule::OnePercent,
        },
        aging_requests: tier.tac_aging,
        ..TacConfig::default()
    }
}

/// A time between events; zero is never.
pub fn interval(span: Span) -> Option<Nanos> {
    (span.0 > 0.0).then(|| Nanos::from_secs_f64(span.0))
}

/// Refuses a pair of design and restart that cannot be, or not with the flash as a part of the
/// database where the options say so.
///
/// # Errors
///
/// The first such pair, with the reason.
pub fn refuse(designs: &[Design], restarts: &[Restart], tier: &Tier) -> Result<(), Failure> {
    let role = flash_role(tier.persistent_flash);
    for design in designs {
        for restart in restarts {
            let pair = format!("{} with {}", design.name, restart.name);
            if let Some(why) = restart.refusal(design) {
                return Err(Failure::usage(format!("{pair}: {why}")));
            }
            let persistent = role.refusal(design, restart).filter(|_| design.uses_flash());
            if let Some(why) = persistent {
                return Err(Failure::usage(format!("--persistent-flash, {pair}: {why}")));
            }
        }
    }
    Ok(())
}

/// Leaves out the seed of which only a part was run before a Ctrl-C, unless it is the only one.
pub fn only_whole<R>(by_seed: &mut Vec<Vec<R>>) {
    let most = by_seed.first().map_or(0, Vec::len);
    if by_seed.last().is_some_and(|last| last.len() < most) {
        by_seed.pop();
    }
}

/// What flash is to the database, as the option says.
pub fn flash_role(is_persistent: bool) -> FlashRole {
    if is_persistent { FlashRole::Persistent } else { FlashRole::Cache }
}

/// # Errors
///
/// A value of `option` that is not above zero.
pub fn positive(option: &str, value: f64) -> Result<(), Failure> {
    if value > 0.0 { Ok(()) } else { Err(Failure::usage(format!("{option} must be above zero"))) }
}

/// Sets the sizes of memory and flash, which may be relative to `database_pages`.
///
/// # Errors
///
/// Tiers that are too small.
pub fn set_sizes(
    system: &mut System,
    tier: &Tier,
    designs: &[Design],
    database_pages: u64,
) -> Result<(), Failure> {
    let frames = tier.dram.pages(database_pages);
    let slots = tier.flash.pages(database_pages);
    if frames < FRAMES_MIN {
        return Err(Failure::usage(format!(
            "--dram {} is {frames} pages: memory needs at least {FRAMES_MIN}",
            tier.dram,
        )));
    }
    let slots_min = SLOTS_PER_PARTITION_MIN * u64::from(system.tier.partitions);
    let uses_flash = designs.iter().any(Design::uses_flash);
    if uses_flash && slots < slots_min {
        return Err(Failure::usage(format!(
            "--flash {} is {slots} pages: {} partitions need at least {slots_min}",
            tier.flash, system.tier.partitions,
        )));
    }
    let is_real = matches!(system.place, Place::Real { .. });
    if uses_flash && is_real && slots * PAGE_BYTES < FLASH_BYTES_MIN {
        return Err(Failure::usage(format!(
            "--flash {} is {slots} pages: a real one has at least {}",
            tier.flash,
            FLASH_BYTES_MIN / PAGE_BYTES,
        )));
    }
    fits("--dram", frames * PAGE_BYTES)?;
    if uses_flash {
        fits("--flash, which keeps 32 bytes of each page in memory,", slots * SLOT_BYTES)?;
    }
    system.memory_pages = frames.try_into().map_err(|_| Failure::usage("--dram is too large"))?;
    system.flash_pages = slots.try_into().map_err(|_| Failure::usage("--flash is too large"))?;
    Ok(())
}

/// Runs that go on at once, of `runs` in all.
pub fn jobs(asked: Option<u64>, runs: usize) -> u64 {
    asked.unwrap_or(cores().min(JOBS_MAX)).min(runs as u64)
}

/// Checks that `bytes` are no more than the machine's memory.
///
/// # Errors
///
/// They are more.
pub fn fits(what: &str, bytes: u64) -> Result<(), Failure> {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    match machine_memory_bytes() {
        Some(memory) if bytes > memory => Err(Failure::usage(format!(
            "{what} needs {:.1} GiB of memory, and this machine has {:.1}",
            gib(bytes),
            gib(memory),
        ))),
        _ => Ok(()),
    }
}

/// Checks that a process has room for `tasks` in each of the given number of runs side by side.
///
/// # Errors
///
/// It has not.
pub fn check_tasks(tasks: u32, side_by_side: u64) -> Result<(), Failure> {
    let tasks = u64::from(tasks) * side_by_side;
    if tasks <= TASKS_MAX {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--clients in {side_by_side} runs side by side are {tasks} tasks: \
         a process has room for {TASKS_MAX}, try --jobs 1"
    )))
}

/// Checks that there are not too many windows in `span`, the value of `option`.
///
/// # Errors
///
/// There are.
pub fn check_windows(option: &str, span: f64, window: f64) -> Result<(), Failure> {
    if span / window <= WINDOWS_MAX {
        return Ok(());
    }
    Err(Failure::usage(format!("more than {WINDOWS_MAX} windows in {option}")))
}

/// Checks that there is this number of seeds.
///
/// # Errors
///
/// There are not.
pub fn check_seeds(first: u64, count: u64) -> Result<(), Failure> {
    let last = first.checked_add(count);
    last.map(|_| ()).ok_or_else(|| Failure::usage("--seed is too large for so many --seeds"))
}

/// Checks that pages are filled enough to hold anything.
///
/// # Errors
///
/// They are not.
pub fn check_fill(fill: Share) -> Result<(), Failure> {
    if fill.0 >= FILL_MIN {
        return Ok(());
    }
    Err(Failure::usage(format!("--fill must be at least {}", Share(FILL_MIN))))
}

/// Checks the sizes that are not relative, before anything is loaded.
///
/// # Errors
///
/// Tiers that are too small.
pub fn check_sizes(system: &System, tier: &Tier, designs: &[Design]) -> Result<(), Failure> {
    let relative = [tier.dram, tier.flash]
        .iter()
        .any(|size| matches!(size, Size::OfDatabase(share) if *share > 0.0));
    if relative { Ok(()) } else { set_sizes(&mut system.clone(), tier, designs, 0) }
}

/// World and devices by name.
pub fn place_parameters(system: &System) -> Map<String, Value> {
    let shown = |path: &std::path::Path| path.display().to_string();
    let (world, [home, flash_device, log_device], threads) = match &system.place {
        Place::Virtual { home, flash, log } => {
            ("virtual", [home.clone(), flash.clone(), log.clone()], None)
        }
        Place::Real { home, flash, log, threads, .. } => {
            ("real", [shown(home), shown(flash), shown(log)], Some(*threads))
        }
    };
    let mut parameters = object(json!({
        "world": world,
        "home": home,
        "flash_device": flash_device,
        "log_device": log_device,
        "log_bytes": system.log_bytes,
        "threads": threads,
        "cores": system.cores,
    }));
    if let Some(bytes) = system.log_max {
        parameters.remove("log_bytes");
        parameters.insert("log_max_bytes".to_string(), bytes.into());
    }
    parameters
}

/// What is printed behind the size of memory if the books of the flash tier are taken from it.
pub fn charged(charge_metadata: &str) -> &'static str {
    if charge_metadata == "on" { " less the flash tier's books" } else { "" }
}

/// Memory and flash by name.
pub fn tier_parameters(system: &System, tier: &Tier) -> Map<String, Value> {
    let (pool, costs) = (&system.tier, system.tier.tac.costs);
    let tac_saved_ms = [costs.random_ms, costs.sequential_ms].map(|ms| rounded(f64::from(ms)));
    object(json!({
        "dram": tier.dram.to_string(),
        "dram_pages": system.memory_pages,
        "charge_metadata": word(tier.charge_metadata),
        "flash": tier.flash.to_string(),
        "flash_pages": system.flash_pages,
        "memory_policy": pool.memory_policy.map_or("by design", MemoryPolicy::name),
        "costs_ms": pool.costs.map(|costs| {
            [costs.home_read, costs.home_write, costs.flash_read, costs.flash_write]
        }),
        "admission": tier.admission.map_or("by design", AdmissionRule::name),
        "replacement": tier.replacement.map_or("by design", Replacement::name),
        "layout": tier.layout.map_or("by design", Layout::name),
        "flash_writes_per_day": pool.flash_writes_per_day,
        "persistent_flash": pool.flash_role.is_persistent(),
        "lambda": pool.lambda,
        "tau": pool.tau,
        "mu": pool.mu,
        "spill": tier.spill.map_or_else(|| "by design".into(), word),
        "partitions": pool.partitions,
        "alpha": pool.alpha,
        "face_group": pool.append_group,
        "fasc_block": pool.fasc.block_pages,
        "fasc_window": pool.fasc.window_requests,
        "fasc_full": pool.fasc.full,
        "fasc_migration": pool.fasc.migration_pages,
        "fasc_theta": pool.fasc.queues.theta,
        "fasc_scan": pool.fasc.queues.scan_depth,
        "cleaner_order": word(match pool.order_of_cleaner() {
            CleanerOrder::Lru2Age => CleanerOrderName::Lru2,
            CleanerOrder::RecLsn => CleanerOrderName::RecLsn,
        }),
        "clean_age_bytes": pool.clean_age,
        "buf_write_pages": pool.buf_write_pages,
        "cleaner_ios": pool.cleaner_ios,
        "ramp_up_fill": word(tier.ramp_up_fill),
        "aggressive_fill": word(tier.aggressive_fill),
        "classifier": word(tier.classifier),
        "tac_write": word(tier.tac_write),
        "tac_rule": word(tier.tac_rule),
        "tac_aging": pool.tac.aging_requests,
        "tac_saved_ms": tac_saved_ms,
        "checkpoint_s": system.checkpoint_every.map(Nanos::as_secs_f64),
    }))
}

/// The fields of what is known to be an object.
pub fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => unreachable!("{other} is no object"),
    }
}

/// The name of a value on the command line.
pub fn word(value: impl ValueEnum) -> String {
    let value = value.to_possible_value().expect("no value is hidden");
    value.get_name().to_string()
}

/// The options of `bench name`, as they are written: what repeats a run.
pub fn repeat(name: &str, seed: u64) -> String {
    let mut text = format!("terrace bench {name}");
    for argument in std::env::args().skip(3) {
        text.push(' ');
        text.push_str(&argument);
    }
    if !text.contains("--seed ") && !text.contains("--seed=") {
        text.push_str(&format!(" --seed {}", seed));
    }
    text
}
