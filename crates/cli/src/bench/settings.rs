//! From the options of `bench tpcc` to what the driver takes, and to the parameters that are
//! printed.

use crate::command::{
    ClassifierName, CleanerOrderName, DurabilityName, Rows, Switch, TacRuleName, TacWriteName,
    Tpcc, TpccTier, WorldName, default_presets,
};
use crate::failure::Failure;
use crate::interval::rounded;
use crate::output::{cores, machine_memory_bytes};
use crate::quantity::{Share, Size};
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use terrace::{Fills, TacConfig, TacWrite};
use terrace_device::model::Preset;
use terrace_policy::{Classifier, CleanerOrder, TacRule};
use terrace_rt::Nanos;
use terrace_workload::tpcc::{
    Checks, Config, Durability, FLASH_BYTES_MIN, Pacing, Place, Scale, WarehouseChoice,
    estimated_bytes,
};

/// Windows of a run, unless their length is given.
const WINDOWS: f64 = 100.0;
const PAGE_BYTES: u64 = 8192;
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
const FRAMES_MIN: u64 = 64;
/// Fewer slots than this leave partitions empty.
const SLOTS_PER_PARTITION_MIN: u64 = 2;

/// What the driver takes, but for sizes that are relative to the database.
///
/// # Errors
///
/// Options that contradict each other.
pub fn config(options: &Tpcc) -> Result<Config, Failure> {
    let (database, tier, clients) = (&options.database, &options.tier, &options.clients);
    let window = clients.window.map_or(clients.duration.0 / WINDOWS, |window| window.0);
    positive("--duration", clients.duration.0)?;
    positive("--window", window)?;
    positive("--averaged", clients.averaged.0)?;
    positive("--fill", database.fill.0)?;
    if window > clients.duration.0 {
        return Err(Failure::usage("--window is longer than --duration"));
    }
    if clients.duration.0 / window > WINDOWS_MAX {
        return Err(Failure::usage(format!("more than {WINDOWS_MAX} windows in --duration")));
    }
    if options.seed.checked_add(options.seeds).is_none() {
        return Err(Failure::usage("--seed is too large for so many --seeds"));
    }
    if database.fill.0 < FILL_MIN {
        return Err(Failure::usage(format!("--fill must be at least {}", Share(FILL_MIN))));
    }
    let config = Config {
        seed: options.seed,
        scale: match database.rows {
            Rows::Full => Scale::full(database.warehouses),
            Rows::Tiny => Scale::tiny(database.warehouses),
        },
        fill: database.fill.0,
        place: place(options)?,
        clients: clients.clients,
        warehouse_choice: if clients.own_warehouse {
            WarehouseChoice::PerTerminal
        } else {
            WarehouseChoice::PerTransaction
        },
        pacing: match clients.think {
            0 => Pacing::None,
            speedup => Pacing::Specification { speedup },
        },
        cores: options.devices.cores,
        durability: match clients.durability {
            DurabilityName::Buffered => Durability::Buffered,
            DurabilityName::Durable => Durability::Durable,
        },
        checkpoint_every: (tier.checkpoint.0 > 0.0)
            .then(|| Nanos::from_secs_f64(tier.checkpoint.0)),
        duration: Nanos::from_secs_f64(clients.duration.0),
        window: Nanos::from_secs_f64(window),
        averaged_share: clients.averaged.0,
        checks: if database.no_check { Checks::Off } else { Checks::On },
        ..Config::default()
    };
    Ok(with_tier(config, tier))
}

/// `config` with what the options say of memory and flash, but for their sizes.
fn with_tier(config: Config, tier: &TpccTier) -> Config {
    Config {
        memory_policy: tier.memory_policy.name().into(),
        tau: tier.tau.0,
        mu: tier.mu,
        partitions: tier.partitions,
        alpha: tier.alpha,
        lambda: tier.lambda.0,
        cleaner_order: match tier.cleaner_order {
            CleanerOrderName::Lru2 => CleanerOrder::Lru2Age,
            CleanerOrderName::RecLsn => CleanerOrder::RecLsn,
        },
        cleaner_ios: tier.cleaner_ios,
        fills: Fills {
            ramp_up: tier.ramp_up_fill == Switch::On,
            aggressive: tier.aggressive_fill == Switch::On,
        },
        classifier: match tier.classifier {
            ClassifierName::ReadAhead => Classifier::ReadAhead,
            ClassifierName::Near => Classifier::Near,
        },
        tac: tac(tier),
        ..config
    }
}

fn tac(tier: &TpccTier) -> TacConfig {
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

fn positive(option: &str, value: f64) -> Result<(), Failure> {
    if value > 0.0 { Ok(()) } else { Err(Failure::usage(format!("{option} must be above zero"))) }
}

fn place(options: &Tpcc) -> Result<Place, Failure> {
    let devices = &options.devices;
    let named = [
        ("--home", &devices.home),
        ("--flash-device", &devices.flash_device),
        ("--log-device", &devices.log_device),
    ];
    match devices.world {
        WorldName::Virtual => {
            let [home, flash, log] = default_presets();
            let preset = |at: usize, default: String| {
                let name = named[at].1.clone().unwrap_or(default);
                name.parse::<Preset>().map_err(Failure::usage)?;
                Ok(name)
            };
            Ok(Place::Virtual {
                home: preset(0, home)?,
                flash: preset(1, flash)?,
                log: preset(2, log)?,
            })
        }
        WorldName::Real => {
            let uses_flash = options.design.0.iter().any(terrace_policy::Design::uses_flash);
            for (at, (option, path)) in named.iter().enumerate() {
                if let Some((other, _)) = named[..at].iter().find(|(_, p)| p == path && p.is_some())
                {
                    return Err(Failure::usage(format!("{other} and {option} are the same")));
                }
            }
            let path = |at: usize| match named[at] {
                (_, Some(path)) => Ok(path.into()),
                // A design without flash gets along without a flash device.
                ("--flash-device", None) if !uses_flash => Ok("".into()),
                (option, None) => Err(Failure::usage(format!("--world real needs {option} PATH"))),
            };
            Ok(Place::Real {
                home: path(0)?,
                flash: path(1)?,
                log: path(2)?,
                threads: options.devices.threads as usize,
            })
        }
    }
}

/// Sets the sizes of memory and flash, which may be relative to `database_pages`.
///
/// # Errors
///
/// Tiers that are too small.
pub fn set_sizes(config: &mut Config, options: &Tpcc, database_pages: u64) -> Result<(), Failure> {
    let frames = options.tier.dram.pages(database_pages);
    let slots = options.tier.flash.pages(database_pages);
    if frames < FRAMES_MIN {
        return Err(Failure::usage(format!(
            "--dram {} is {frames} pages: memory needs at least {FRAMES_MIN}",
            options.tier.dram,
        )));
    }
    let slots_min = SLOTS_PER_PARTITION_MIN * u64::from(config.partitions);
    let uses_flash = options.design.0.iter().any(terrace_policy::Design::uses_flash);
    if uses_flash && slots < slots_min {
        return Err(Failure::usage(format!(
            "--flash {} is {slots} pages: {} partitions need at least {slots_min}",
            options.tier.flash, config.partitions,
        )));
    }
    let is_real = matches!(config.place, Place::Real { .. });
    if uses_flash && is_real && slots * PAGE_BYTES < FLASH_BYTES_MIN {
        return Err(Failure::usage(format!(
            "--flash {} is {slots} pages: a real one has at least {}",
            options.tier.flash,
            FLASH_BYTES_MIN / PAGE_BYTES,
        )));
    }
    fits("--dram", frames * PAGE_BYTES)?;
    if uses_flash {
        fits("--flash, which keeps 32 bytes of each page in memory,", slots * SLOT_BYTES)?;
    }
    config.memory_pages = frames.try_into().map_err(|_| Failure::usage("--dram is too large"))?;
    config.flash_pages = slots.try_into().map_err(|_| Failure::usage("--flash is too large"))?;
    Ok(())
}

/// Runs that go on at once.
pub fn jobs(options: &Tpcc) -> usize {
    match options.devices.world {
        WorldName::Virtual => options.jobs.unwrap_or(cores().min(JOBS_MAX)) as usize,
        // Real devices are shared: one run at a time.
        WorldName::Real => 1,
    }
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

/// Checks the sizes that are not relative, before anything is loaded.
///
/// # Errors
///
/// Tiers that are too small.
pub fn check_sizes(config: &Config, options: &Tpcc) -> Result<(), Failure> {
    if let Place::Virtual { .. } = config.place {
        fits("--warehouses, kept in memory,", estimated_bytes(config.scale, config.fill))?;
    }
    let side_by_side = jobs(options).min(options.design.0.len()) as u64;
    let tasks = u64::from(config.clients + config.delivery_tasks) * side_by_side;
    if tasks > TASKS_MAX {
        return Err(Failure::usage(format!(
            "--clients in {side_by_side} runs side by side are {tasks} tasks: \
             a process has room for {TASKS_MAX}, try --jobs 1"
        )));
    }
    let mut absolute = config.clone();
    let relative = [options.tier.dram, options.tier.flash]
        .iter()
        .any(|size| matches!(size, Size::OfDatabase(share) if *share > 0.0));
    if relative { Ok(()) } else { set_sizes(&mut absolute, options, 0) }
}

/// Every parameter by name, in the order in which they are explained.
pub fn parameters(config: &Config, options: &Tpcc) -> Map<String, Value> {
    let names: Vec<&str> = options.design.0.iter().map(|design| design.name).collect();
    let mut all = object(json!({
        "design": names,
        "seeds": options.seeds,
        "warehouses": config.scale.warehouses,
        "rows": word(options.database.rows),
        "fill": config.fill,
    }));
    all.extend(place_parameters(config));
    all.extend(client_parameters(config, options));
    all.extend(tier_parameters(config, options));
    all
}

fn place_parameters(config: &Config) -> Map<String, Value> {
    let shown = |path: &std::path::Path| path.display().to_string();
    let (world, [home, flash_device, log_device], threads) = match &config.place {
        Place::Virtual { home, flash, log } => {
            ("virtual", [home.clone(), flash.clone(), log.clone()], None)
        }
        Place::Real { home, flash, log, threads } => {
            ("real", [shown(home), shown(flash), shown(log)], Some(*threads))
        }
    };
    object(json!({
        "world": world,
        "home": home,
        "flash_device": flash_device,
        "log_device": log_device,
        "log_bytes": config.log_bytes,
        "threads": threads,
        "cores": config.cores,
    }))
}

fn client_parameters(config: &Config, options: &Tpcc) -> Map<String, Value> {
    object(json!({
        "clients": config.clients,
        "delivery_tasks": config.delivery_tasks,
        "mix_percent": config.mix.0,
        "warehouse": match config.warehouse_choice {
            WarehouseChoice::PerTransaction => "per transaction",
            WarehouseChoice::PerTerminal => "per client",
        },
        "think": options.clients.think,
        "durability": word(options.clients.durability),
        "duration_s": config.duration.as_secs_f64(),
        "window_s": config.window.as_secs_f64(),
        "averaged": config.averaged_share,
        "start": "cold",
        "checks": config.checks == Checks::On,
    }))
}

fn tier_parameters(config: &Config, options: &Tpcc) -> Map<String, Value> {
    let (tier, costs) = (&options.tier, config.tac.costs);
    let tac_saved_ms = [costs.random_ms, costs.sequential_ms].map(|ms| rounded(f64::from(ms)));
    object(json!({
        "dram": tier.dram.to_string(),
        "dram_pages": config.memory_pages,
        "flash": tier.flash.to_string(),
        "flash_pages": config.flash_pages,
        "memory_policy": config.memory_policy,
        "lambda": config.lambda,
        "tau": config.tau,
        "mu": config.mu,
        "partitions": config.partitions,
        "alpha": config.alpha,
        "cleaner_order": word(tier.cleaner_order),
        "cleaner_ios": config.cleaner_ios,
        "ramp_up_fill": word(tier.ramp_up_fill),
        "aggressive_fill": word(tier.aggressive_fill),
        "classifier": word(tier.classifier),
        "tac_write": word(tier.tac_write),
        "tac_rule": word(tier.tac_rule),
        "tac_aging": config.tac.aging_requests,
        "tac_saved_ms": tac_saved_ms,
        "checkpoint_s": config.checkpoint_every.map(Nanos::as_secs_f64),
    }))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => unreachable!("{other} is no object"),
    }
}

/// The name of a value on the command line.
fn word(value: impl ValueEnum) -> String {
    let value = value.to_possible_value().expect("no value is hidden");
    value.get_name().to_string()
}

/// The options, as they are written, that differ from the defaults: what repeats a run.
pub fn repeat(options: &Tpcc) -> String {
    let mut text = String::from("terrace bench tpcc");
    for argument in std::env::args().skip(3) {
        text.push(' ');
        text.push_str(&argument);
    }
    if !text.contains("--seed ") && !text.contains("--seed=") {
        text.push_str(&format!(" --seed {}", options.seed));
    }
    text
}

/// A line that says what lambda was and what was reached.
pub fn lambda_line(lambda: f64, dirty_share: f64) -> String {
    format!(
        "lc: dirty share of flash {:.1}% at the end, lambda {}\n",
        dirty_share * 100.0,
        Share(lambda)
    )
}
