//! One measured run on an open database: terminals, windows, averages.
//!
//! All runs start the same way: every terminal at once, on whatever the memory then holds.

use std::sync::Arc;

use terrace::Database;
use terrace_rt::{Nanos, Prng, Task, World};

use super::config::Config;
use super::random::Constants;
use super::results::{Progress, RunResult};
use super::terminal::{Floor, Terminal};
use crate::Error;
use crate::clients::{Clients, Consistency};
use crate::sampling::{Averages, Committed, Sampler, Window, home_pages, per_second};

/// Runs the terminals of `config` on `db`, in `world`, for the configured time. Returns when the
/// last of them is done. `epoch` is the date at the start: later than that of any run before on
/// this database, by more than a run takes.
///
/// # Errors
///
/// What stopped a terminal.
pub fn measure(
    db: &Database,
    config: &Config,
    (design, epoch): (&'static str, u64),
    world: &World,
    progress: &mut dyn FnMut(Progress),
) -> Result<RunResult, Error> {
    let loaded_pages = home_pages(&db.stats());
    config.system.begin_recording();
    let mut terminals = Terminals::start(db, config, (0, epoch), world);
    let windows = watch(&terminals, db, config, progress);
    terminals.stop()?;
    config.system.end_recording();
    let count = (windows.len() as f64 * config.averaged_share).round() as usize;
    let averages = Averages::of_last(&windows, count);
    let stats = db.stats();
    Ok(RunResult {
        design,
        restart: config.system.tier.restart.name,
        windows,
        tpmc: averages.counted_per_s * 60.0,
        averages,
        kinds: terminals.floor.kinds(),
        deliveries_skipped: terminals.floor.skipped(),
        home_pages: home_pages(&stats),
        loaded_pages,
        stats,
        events: None,
        consistency: Consistency::Unchecked,
    })
}

/// Terminals and delivery tasks at work.
pub(super) struct Terminals {
    floor: Arc<Floor>,
    tasks: Vec<Task>,
}

impl Terminals {
    /// Spawns terminals and delivery tasks of the part of a run with this number, at the date
    /// `epoch`.
    pub(super) fn start(
        db: &Database,
        config: &Config,
        (part, epoch): (u32, u64),
        world: &World,
    ) -> Terminals {
        let mut prng = Prng::from_seed(config.seed ^ 0x0007_E241_1A15);
        let constants = Constants::load(config.seed).for_run(&mut prng);
        // The constants decide what is hot, so they are those of the run; what is drawn is the
        // part's own.
        for _ in 0..part {
            prng = prng.fork();
        }
        let count = config.clients + config.delivery_tasks;
        assert!(count <= u32::from(u16::MAX));
        let floor = Arc::new(Floor::new(db.clone(), config.clone(), epoch));
        let spawn = |number| {
            let floor = Arc::clone(&floor);
            let terminal = Terminal::new(floor, number as u16, prng.fork(), constants);
            match number < config.clients {
                true => world.spawn("terminal", move || terminal.run()),
                false => world.spawn("delivery", move || terminal.run_deliveries()),
            }
        };
        let tasks = (0..count).map(spawn).collect();
        Terminals { floor, tasks }
    }
}

impl Clients for Terminals {
    fn committed(&self) -> Committed {
        let (counted, transactions) = self.floor.committed();
        Committed { counted, transactions }
    }

    fn has_failed(&self) -> bool {
        self.floor.has_failed()
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.floor.close();
        self.tasks.drain(..).for_each(Task::join);
        self.floor.take_failure().map_or(Ok(()), Err)
    }
}

/// Reads counters at the end of each window, until the time is over or a terminal fails.
fn watch(
    terminals: &Terminals,
    db: &Database,
    config: &Config,
    progress: &mut dyn FnMut(Progress),
) -> Vec<Window> {
    let mut sampler = Sampler::new(db);
    for index in 1..=config.duration.0.div_ceil(config.window.0).max(1) {
        sampler.sleep_until(Nanos((config.window.0 * index).min(config.duration.0)));
        if terminals.has_failed() {
            break;
        }
        let (window, length) = sampler.end_window(db, terminals.committed());
        let tpmc = per_second(window.counted, length) * 60.0;
        progress(Progress { done: window.end, total: config.duration, tpmc });
    }
    sampler.into_windows()
}
