//! From the options of `bench tpcc` to what the driver takes, and to the parameters that are
//! printed.

use super::system::{
    self, check_fill, check_seeds, check_windows, interval, object, place_parameters, pool,
    positive, refuse, tier_parameters, word,
};
use crate::command::{DurabilityName, Rows, Tpcc, WorldName, default_presets};
use crate::failure::Failure;
use crate::quantity::{Share, Span};
use serde_json::{Map, Value, json};
use terrace::{Durability, PoolConfig};
use terrace_device::model::Preset;
use terrace_policy::{DESIGNS, Design, HomeDevice};
use terrace_rt::Nanos;
use terrace_workload::tpcc::{
    Checks, Config, Pacing, Scale, Start, WarehouseChoice, estimated_bytes,
};
use terrace_workload::{Place, System};

/// Windows of a run, unless their length is given.
const WINDOWS: f64 = 100.0;
/// What the driver takes, but for sizes that are relative to the database.
///
/// # Errors
///
/// Options that contradict each other.
pub fn config(options: &Tpcc) -> Result<Config, Failure> {
    let (database, clients) = (&options.database, &options.clients);
    let window = clients.window.map_or(clients.duration.0 / WINDOWS, |window| window.0);
    positive("--duration", clients.duration.0)?;
    positive("--window", window)?;
    positive("--averaged", clients.averaged.0)?;
    if window > clients.duration.0 {
        return Err(Failure::usage("--window is longer than --duration"));
    }
    check_windows("--duration", clients.duration.0, window)?;
    check_seeds(options.seed, options.seeds)?;
    check_fill(database.fill)?;
    Ok(Config {
        seed: options.seed,
        scale: match database.rows {
            Rows::Full => Scale::full(database.warehouses),
            Rows::Tiny => Scale::tiny(database.warehouses),
        },
        fill: database.fill.0,
        system: system(options)?,
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
        durability: match clients.durability {
            DurabilityName::None => Durability::None,
            DurabilityName::Buffered => Durability::Buffered,
            DurabilityName::Durable => Durability::Durable,
        },
        duration: Nanos::from_secs_f64(clients.duration.0),
        window: Nanos::from_secs_f64(window),
        averaged_share: clients.averaged.0,
        start: if clients.warm { Start::Warm } else { Start::Cold },
        checks: if database.no_check { Checks::Off } else { Checks::On },
        ..Config::default()
    })
}

/// Of all designs, the real world cannot run those whose home is another device.
pub fn leave_out(options: &mut Tpcc) {
    let designs = &mut options.design.0;
    if options.devices.world == WorldName::Real && designs.len() == DESIGNS.len() {
        designs.retain(|design| design.home == HomeDevice::Home);
    }
}

/// Runs that go on at once.
pub fn jobs(options: &Tpcc) -> u64 {
    match options.devices.world {
        WorldName::Virtual => system::jobs(options.jobs, options.design.0.len()),
        // Real devices are shared: one run at a time.
        WorldName::Real => 1,
    }
}

/// Checks what does not depend on the database, before it is loaded.
///
/// # Errors
///
/// Sizes that no tier, no machine or no process has.
pub fn check_sizes(config: &Config, options: &Tpcc) -> Result<(), Failure> {
    if let Place::Virtual { .. } = config.system.place {
        system::fits("--warehouses, kept in memory,", estimated_bytes(config.scale, config.fill))?;
    }
    system::check_tasks(config.clients + config.delivery_tasks, jobs(options))?;
    system::check_sizes(&config.system, &options.tier, &options.design.0)
}

/// What the runs run on, but for the sizes of memory and flash.
fn system(options: &Tpcc) -> Result<System, Failure> {
    let tier = &options.tier;
    refuse(&options.design.0, &[options.restart], &options.tier)?;
    Ok(System {
        place: place(options)?,
        tier: PoolConfig { restart: options.restart, ..pool(tier) },
        log_max: options.devices.log_max,
        cores: options.devices.cores,
        checkpoint_every: interval(tier.checkpoint.unwrap_or(Span(0.0))),
        ..System::default()
    })
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
            let uses_flash = options.design.0.iter().any(Design::uses_flash);
            let is_on_flash = |design: &&Design| design.home == HomeDevice::Flash;
            if let Some(design) = options.design.0.iter().find(is_on_flash) {
                return Err(Failure::usage(format!(
                    "{}: in the real world, load a database on the flash device and run no-ssd: \
                     `--design no-ssd --home` with its path",
                    design.name
                )));
            }
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
                overwrite: options.devices.overwrite,
            })
        }
    }
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
    all.extend(place_parameters(&config.system));
    all.extend(client_parameters(config, options));
    all.extend(tier_parameters(&config.system, &options.tier));
    all
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
        "start": if config.start == Start::Warm { "warm" } else { "cold" },
        "restart": options.restart.name,
        "checks": config.checks == Checks::On,
    }))
}

/// A line that says what lambda was and what was reached.
pub fn lambda_line(lambda: f64, dirty_share: f64) -> String {
    format!(
        "lc: dirty share of flash {:.1}% at the end, lambda {}\n",
        dirty_share * 100.0,
        Share(lambda)
    )
}
