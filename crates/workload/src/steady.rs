//! One run of any workload in virtual time, from a cold start to its steady level.
//!
//! - Every run starts from the same loaded database, in a world of its own; it depends on nothing
//!   but that, its plan and its design.

use terrace_policy::Design;
use terrace_rt::{Nanos, sleep};

use crate::Error;
use crate::clients::{Consistency, Part, Workload};
use crate::restart::Loaded;
use crate::sampling::{Averages, Sampler, Window, per_second};
use crate::system::System;

/// All that decides a run but its workload and its design.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it runs on.
    pub system: System,
    /// Decides the order of events.
    pub seed: u64,
    /// How long it runs.
    pub duration: Nanos,
    /// Throughput is sampled in windows of this length.
    pub window: Nanos,
    /// The last part that is averaged.
    pub averaged: Nanos,
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct SteadyResult {
    /// Name of the design.
    pub design: &'static str,
    /// All windows.
    pub windows: Vec<Window>,
    /// The last of them.
    pub averages: Averages,
    /// The checks of the workload at the end.
    pub consistency: Consistency,
}

/// Runs `plan` with `design` on a copy of `loaded`. Blocks, and uses this thread only. `progress`
/// is called with the time that has passed and what was counted per second.
///
/// # Errors
///
/// Whatever stops the engine or a client.
pub fn run(
    loaded: &Loaded,
    workload: &dyn Workload,
    plan: &Plan,
    design: Design,
    progress: &mut dyn FnMut(Nanos, f64),
) -> Result<SteadyResult, Error> {
    let world = plan.system.world(plan.seed);
    let devices = loaded.stores().devices(&plan.system, design, &world.world())?.devices();
    let ran = world.run(|| {
        let builder = plan.system.builder(design, world.world());
        let db = builder.devices(devices).open_on_devices()?;
        let part = Part { number: 0, since: Nanos::ZERO };
        plan.system.begin_recording();
        let mut clients = workload.start(&db, part, &world.world());
        let mut sampler = Sampler::new(&db);
        while sampler.elapsed() < plan.duration && !clients.has_failed() {
            sampler.sleep_until((sampler.elapsed() + plan.window).min(plan.duration));
            let (window, length) = sampler.end_window(&db, clients.committed());
            progress(window.end, per_second(window.counted, length));
        }
        clients.stop()?;
        plan.system.end_recording();
        let windows = sampler.into_windows();
        let count = (plan.averaged.0 / plan.window.0).max(1) as usize;
        let averages = Averages::of_last(&windows, count);
        let consistency = workload.check(&db)?;
        let design = design.name;
        Ok::<_, Error>((SteadyResult { design, windows, averages, consistency }, db))
    })??;
    // Closing would write all dirty pages, which are not read again: the power is cut instead.
    world.cut_at_event(world.world().events());
    let _ = world.run(|| sleep(Nanos::from_secs(1)));
    drop(ran.1);
    Ok(ran.0)
}
