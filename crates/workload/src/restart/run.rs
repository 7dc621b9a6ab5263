//! One run: two worlds, and the devices that pass from one to the other.

use terrace::{Database, Stats};
use terrace_policy::Design;
use terrace_rt::{Nanos, Prng, Stopped, Virtual, World, now, sleep};

use super::result::ramp_up;
use super::{Event, Phase, Plan, Progress, RestartResult};
use crate::Error;
use crate::clients::{Clients, Consistency, Part, Workload};
use crate::sampling::{Averages, Sampler, Window, home_pages, per_second};
use crate::system::{ModelledDevices, Stores, System};

/// The most intervals that a power cut waits for a checkpoint.
const INTERVALS_WAITED_MAX: u64 = 4;
/// The second part begins this long after the first, for code that compares their times.
const PAUSE: Nanos = Nanos::from_secs(1);

/// A loaded database: cheap to clone, and each run starts from its own copy.
#[derive(Clone)]
pub struct Loaded {
    stores: Stores,
    /// Pages in use at home.
    pub home_pages: u64,
    /// The checks of the workload after the load.
    pub consistency: Consistency,
}

impl Loaded {
    pub(crate) fn stores(&self) -> &Stores {
        &self.stores
    }
}

/// Loads the database of `workload`, to be run on `system`, whose log must be kept whole.
///
/// # Errors
///
/// Those of the engine; devices that are not known.
pub fn load(
    workload: &dyn Workload,
    system: &System,
    seed: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Loaded, Error> {
    let ((home_pages, consistency), stores) =
        Stores::load(system, seed, workload.home_bytes(), |db| {
            workload.load(&db, progress)?;
            let consistency = workload.check(&db)?;
            let pages = home_pages(&db.stats());
            db.close()?;
            Ok((pages, consistency))
        })?;
    Ok(Loaded { stores, home_pages, consistency })
}

/// Runs `plan` with `design` on a copy of `loaded`. Blocks, and uses this thread only.
///
/// # Errors
///
/// Whatever stops the engine or a client.
pub fn run(
    loaded: &Loaded,
    workload: &dyn Workload,
    plan: &Plan,
    design: Design,
    progress: &mut dyn FnMut(Progress),
) -> Result<RestartResult, Error> {
    let mut run = Run { workload, plan, design, phase: Phase::Peak, progress };
    let (before, devices) = run.first_part(loaded)?;
    let after = run.second_part(devices, &before)?;
    let windows = (plan.averaged.0 / plan.window.0) as usize;
    let peak = Averages::of_last(&before.windows, windows);
    let level = peak.counted_per_s * plan.peak_share;
    let (first, held) = ramp_up(&after.windows, level);
    Ok(RestartResult {
        design: design.name,
        restart: plan.system.tier.restart.name,
        peak,
        steady: Averages::of_last(&after.windows, windows),
        before: before.windows,
        ended: before.ended,
        shutdown: before.shutdown,
        recovery: after.recovery,
        after: after.windows,
        ramp_up: first,
        ramp_up_held: held,
        at_event: before.stats,
        at_open: after.at_open,
        at_end: after.stats,
        consistency: after.consistency,
        events: before.events + after.events,
    })
}

/// What the first part found.
#[derive(Default)]
struct Before {
    windows: Vec<Window>,
    /// Since the clients began, and since the world began.
    ended: Nanos,
    ended_in_world: Nanos,
    shutdown: Nanos,
    stats: Stats,
    events: u64,
}

/// What the second part found.
struct After {
    recovery: Nanos,
    windows: Vec<Window>,
    at_open: Stats,
    stats: Stats,
    consistency: Consistency,
    events: u64,
}

struct Run<'a> {
    workload: &'a dyn Workload,
    plan: &'a Plan,
    design: Design,
    phase: Phase,
    progress: &'a mut dyn FnMut(Progress),
}

impl Run<'_> {
    fn open(&self, devices: &ModelledDevices, world: &World) -> Result<Database, Error> {
        let builder = self.plan.system.builder(self.design, world.clone());
        Ok(builder.devices(devices.devices()).open_on_devices()?)
    }

    fn first_part(&mut self, loaded: &Loaded) -> Result<(Before, ModelledDevices), Error> {
        let plan = self.plan;
        let world = plan.system.world(plan.seed);
        let devices = loaded.stores.devices(&plan.system, self.design, &world.world())?;
        let mut before = Before::default();
        let ended = world.run(|| self.until_event(&world, &devices, &mut before));
        before.events = world.world().events();
        match (plan.event, ended) {
            (_, Ok(done)) => done?,
            (Event::Crash { .. }, Err(Stopped::PowerCut { .. })) => {
                devices.cut(&mut Prng::from_seed(plan.seed));
            }
            (_, Err(stopped)) => return Err(stopped.into()),
        }
        Ok((before, devices))
    }

    /// Runs to the peak and through the event; after a power cut it does not return.
    fn until_event(
        &mut self,
        world: &Virtual,
        devices: &ModelledDevices,
        before: &mut Before,
    ) -> Result<(), Error> {
        let plan = self.plan;
        let db = self.open(devices, &world.world())?;
        let part = Part { number: 0, since: Nanos::ZERO };
        let begun = now();
        plan.system.begin_recording();
        let mut clients = self.workload.start(&db, part, &world.world());
        let mut sampler = Sampler::new(&db);
        self.sample(&mut sampler, &mut *clients, &db, plan.peak)?;
        if let Event::Crash { after_checkpoint } = plan.event {
            self.await_checkpoint(&mut sampler, &mut *clients, &db)?;
            let until = sampler.elapsed() + after_checkpoint;
            self.sample(&mut sampler, &mut *clients, &db, until)?;
        } else {
            clients.stop()?;
        }
        plan.system.end_recording();
        before.windows = sampler.into_windows();
        (before.ended, before.ended_in_world) = (now() - begun, now());
        before.stats = db.stats();
        self.phase = Phase::Down;
        self.say(plan.peak, 0.0);
        if let Event::Crash { .. } = plan.event {
            world.cut_at_event(world.world().events());
            sleep(Nanos::from_secs(1));
            unreachable!("the power was cut");
        }
        db.close()?;
        before.shutdown = now() - before.ended_in_world;
        Ok(())
    }

    /// Lets clients work until a checkpoint ends, if any are taken.
    fn await_checkpoint(
        &mut self,
        sampler: &mut Sampler,
        clients: &mut dyn Clients,
        db: &Database,
    ) -> Result<(), Error> {
        let Some(interval) = self.plan.system.checkpoint_every else { return Ok(()) };
        let seen = db.stats().log.checkpoints;
        let latest = sampler.elapsed() + interval * INTERVALS_WAITED_MAX;
        while db.stats().log.checkpoints == seen && sampler.elapsed() < latest {
            let until = sampler.elapsed() + self.plan.window;
            self.sample(sampler, clients, db, until)?;
        }
        Ok(())
    }

    fn second_part(&mut self, devices: ModelledDevices, before: &Before) -> Result<After, Error> {
        let plan = self.plan;
        let world = plan.system.world(plan.seed);
        let devices = devices.reopen(&world.world());
        let (mut after, db) = world.run(|| {
            let db = self.open(&devices, &world.world())?;
            let (recovery, at_open) = (now(), db.stats());
            self.phase = Phase::Back;
            let part = Part { number: 1, since: before.ended_in_world + PAUSE };
            let mut clients = self.workload.start(&db, part, &world.world());
            let mut sampler = Sampler::new(&db);
            self.sample(&mut sampler, &mut *clients, &db, plan.after)?;
            clients.stop()?;
            let stats = db.stats();
            let consistency = self.workload.check(&db)?;
            let windows = sampler.into_windows();
            let after = After { recovery, windows, at_open, stats, consistency, events: 0 };
            Ok::<_, Error>((after, db))
        })??;
        after.events = world.world().events();
        // Closing would write all dirty pages, which are not read again: the power is cut instead.
        world.cut_at_event(world.world().events());
        let _ = world.run(|| sleep(Nanos::from_secs(1)));
        drop(db);
        Ok(after)
    }

    /// Samples until `until`, since the sampler began.
    fn sample(
        &mut self,
        sampler: &mut Sampler,
        clients: &mut dyn Clients,
        db: &Database,
        until: Nanos,
    ) -> Result<(), Error> {
        while sampler.elapsed() < until {
            sampler.sleep_until((sampler.elapsed() + self.plan.window).min(until));
            if clients.has_failed() {
                return clients.stop();
            }
            let (window, length) = sampler.end_window(db, clients.committed());
            self.say(window.end, per_second(window.counted, length));
        }
        Ok(())
    }

    fn say(&mut self, in_part: Nanos, counted_per_s: f64) {
        let (phase, Plan { peak, after, .. }) = (self.phase, self.plan);
        let done = if phase == Phase::Back { *peak + in_part } else { in_part };
        (self.progress)(Progress { phase, done, total: *peak + *after, counted_per_s });
    }
}
