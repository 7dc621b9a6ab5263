//! Rounds: from power on to power off, with the ledger held against what is there in between.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace::{Checkpoints, Database, Error, Spill, TornPages};
use terrace_device::FaultPlan;
use terrace_page::PAGE_SIZE;
use terrace_policy::Costs;
use terrace_rt::{Nanos, Prng, Stopped, Virtual, VirtualConfig, World, sleep};

use super::client::{Client, read_all};
use super::ledger::Failure;
use super::mishaps::{Trouble, is_of_device};
use super::report::{Cuts, Report};
use super::rig::Rig;
use super::scenario::{CutPlan, Fixed, FlashFate, Scenario};
use super::{Phase, Shared, space};

/// Stack of a task: the engine's deepest path and a client on top of it.
const STACK_BYTES: usize = 256 << 10;

/// Longest time of a round, most of which take seconds: beyond it something waits for ever, though
/// the engine's own timers go on.
const ROUND: Nanos = Nanos::from_secs(1_800);

/// Time limit for requests of the flash, and of home and log.
const FLASH_LIMIT: Nanos = Nanos::from_millis(500);
const LIMIT: Nanos = Nanos::from_secs(3);

/// The torture that `seed` decides: its design, clients, devices and cuts.
pub fn run(seed: u64) -> Report {
    run_fixed(seed, Fixed::default())
}

/// The torture that `seed` decides but for what is `fixed`.
pub fn run_fixed(seed: u64, fixed: Fixed) -> Report {
    let mut prng = Prng::from_seed(seed);
    let scenario = Scenario::draw(seed, &mut prng, fixed);
    let mut torture = Torture {
        fixed,
        scenario,
        prng,
        shared: Arc::new(Shared::new()),
        report: Report::default(),
        opening: 0,
        running: 0,
        is_created: false,
        is_last: false,
    };
    torture.run();
    let failure = torture.shared.failure.lock().take();
    (torture.report.commits, torture.report.losses_allowed) = torture.shared.ledger().totals();
    torture.report.mishaps.add(*torture.shared.mishaps.lock());
    torture.report.failures.extend(failure.map(|failure| (seed, failure)));
    torture.report
}

/// How a round went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// To its end, its cut, or a finding.
    Done,
    /// The database does not open with this flash.
    Refused,
    /// It was cut before it could find out.
    CutBefore,
}

struct Torture {
    fixed: Fixed,
    scenario: Scenario,
    prng: Prng,
    shared: Arc<Shared>,
    report: Report,
    /// Events that opening took, and a whole round, when last seen.
    opening: u64,
    running: u64,
    /// Whether the database was open once.
    is_created: bool,
    /// Whether this is the last round.
    is_last: bool,
}

impl Torture {
    fn run(&mut self) {
        let mut rig: Option<Rig> = None;
        for number in 0..self.scenario.rounds {
            if number > 0 {
                self.scenario.change_options(self.fixed, &mut self.prng);
            }
            let plan = self.scenario.cut(&mut self.prng, self.opening, self.running);
            rig = Some(self.round(rig, plan));
            if self.shared.has_failed() {
                return;
            }
        }
        // A last restart that nothing interrupts.
        self.is_last = true;
        self.round(rig, CutPlan::Close);
    }

    /// A round on the devices as they were left, or with another flash. If that is refused, as it
    /// must be where flash is needed, with the flash that was there.
    fn round(&mut self, rig: Option<Rig>, plan: CutPlan) -> Rig {
        match self.attempt(rig.as_ref(), None, plan) {
            (after, Attempt::Done) => after,
            (after, Attempt::CutBefore) => after.with_flash_of(&rig.expect("there is another")),
            (after, Attempt::Refused) => {
                self.report.refused += 1;
                let whole = after.with_flash_of(&rig.expect("the first round has no other flash"));
                self.attempt(Some(&whole), Some(FlashFate::Kept), plan).0
            }
        }
    }

    /// Power on, off, and what the devices are then. Without a `fate` the flash has one by chance.
    fn attempt(
        &mut self,
        rig: Option<&Rig>,
        fate: Option<FlashFate>,
        plan: CutPlan,
    ) -> (Rig, Attempt) {
        let world = Virtual::new(VirtualConfig {
            seed: self.prng.next_u64(),
            switch_one_in: self.scenario.switch_one_in,
            cores: 2,
            stack_bytes: STACK_BYTES,
        });
        let (rig, fate) = self.power_on(rig, fate, &world.world());
        let trouble = self.trouble(fate);
        self.shared.reset(trouble.may_stop);
        world.cut_at(ROUND);
        if let CutPlan::AtEvent(event) = plan {
            world.cut_at_event(event);
        }
        let body = Round {
            scenario: self.scenario.clone(),
            shared: Arc::clone(&self.shared),
            devices: rig.devices(&trouble, self.scenario.design.uses_flash()),
            world: world.world(),
            prng: self.prng.fork(),
            is_created: self.is_created,
            is_last: self.is_last,
        };
        let ran = world.run(|| {
            let done = body.run();
            if let Err(error) = &done {
                self.note_stop(error, &trouble);
            }
            if self.shared.has_stopped() && self.prng.chance(2) {
                world.cut_at_event(0);
                sleep(Nanos(1));
            }
            done
        });
        self.note_trouble(&rig);
        match ran {
            Ok(Ok(done)) => {
                (self.opening, self.running) = (done.opening, world.world().events());
                self.report.verified += u64::from(self.is_created);
                self.is_created = true;
            }
            Ok(Err(Error::FlashNeeded { .. }))
                if fate != FlashFate::Kept && self.scenario.flash_role.is_persistent() =>
            {
                return (rig, Attempt::Refused);
            }
            Ok(Err(_)) if self.shared.has_stopped() => {
                self.is_created |= *self.shared.phase.lock() > Phase::Opening;
            }
            Ok(Err(error)) => self.shared.fail(Failure::Error(error.to_string())),
            Err(Stopped::PowerCut { at, .. }) if at >= ROUND => {
                let phase = *self.shared.phase.lock();
                self.shared.fail(Failure::Stuck(format!("{phase:?} takes longer than {ROUND}")));
            }
            Err(Stopped::PowerCut { .. }) => {
                self.power_off(&rig);
                let was_on = rig.flash_was_written() || fate == FlashFate::Kept;
                if self.scenario.flash_role.is_persistent() && !was_on {
                    return (rig, Attempt::CutBefore);
                }
            }
            Err(deadlock) => self.shared.fail(Failure::Stuck(deadlock.to_string())),
        }
        (rig, Attempt::Done)
    }

    /// The trouble of a round. Flash that is needed and was taken away has to be reported as
    /// missing.
    fn trouble(&mut self, fate: FlashFate) -> Trouble {
        let is_needed = self.scenario.flash_role.is_persistent();
        if self.is_last || is_needed && fate != FlashFate::Kept {
            return Trouble::default();
        }
        Trouble::draw(&self.scenario.mishaps, is_needed, &mut self.prng)
    }

    /// Notes an error that the trouble of a round may end it with.
    fn note_stop(&self, error: &Error, trouble: &Trouble) {
        let flash_fails = trouble.flash != FaultPlan::default();
        if is_of_device(error) || flash_fails && matches!(error, Error::FlashNeeded { .. }) {
            self.shared.stopped_by(error);
        }
    }

    fn note_trouble(&self, rig: &Rig) {
        let stopped = u64::from(self.shared.has_stopped());
        self.shared.count(|counts| {
            counts.stopped += stopped;
            counts.device_faults += rig.device_faults();
        });
    }

    fn power_on(
        &mut self,
        rig: Option<&Rig>,
        fate: Option<FlashFate>,
        world: &World,
    ) -> (Rig, FlashFate) {
        match rig {
            Some(rig) => {
                let fate = fate.unwrap_or_else(|| self.scenario.flash_fate(&mut self.prng));
                let lost = fate != FlashFate::Kept && self.scenario.design.uses_flash();
                self.report.cuts.with_flash_wiped += u64::from(lost);
                (rig.reopen(world, fate), fate)
            }
            None => (Rig::new(&self.scenario, world, &mut self.prng), FlashFate::Kept),
        }
    }

    /// Counts the cut, and takes from the devices what it takes.
    fn power_off(&mut self, rig: &Rig) {
        let shared = &self.shared;
        let phase = *shared.phase.lock();
        let Cuts { in_creation, in_recovery, in_verification, in_run, in_close, .. } =
            &mut self.report.cuts;
        match phase {
            Phase::Opening if !self.is_created => *in_creation += 1,
            Phase::Opening => *in_recovery += 1,
            Phase::Verifying => *in_verification += 1,
            Phase::Running => *in_run += 1,
            Phase::Closing => *in_close += 1,
        }
        let cuts = &mut self.report.cuts;
        cuts.total += 1;
        cuts.in_checkpoint += u64::from(shared.checkpoints.load(Ordering::Relaxed) > 0);
        cuts.with_dirty_pages += u64::from(shared.frames_dirty.load(Ordering::Relaxed) > 0);
        cuts.with_dirty_flash += u64::from(shared.slots_dirty.load(Ordering::Relaxed) > 0);
        cuts.with_io_in_flight += u64::from(rig.queued() > 0);
        self.report.verified += u64::from(self.is_created && phase >= Phase::Running);
        self.is_created |= phase > Phase::Opening;
        let lost = rig.cut(&mut self.prng);
        self.report.cuts.pages_dropped += lost.dropped;
        self.report.cuts.pages_torn += lost.torn;
    }
}

/// What happens between power on and power off.
struct Round {
    scenario: Scenario,
    shared: Arc<Shared>,
    devices: terrace::Devices,
    world: World,
    prng: Prng,
    is_created: bool,
    is_last: bool,
}

struct Done {
    opening: u64,
}

impl Round {
    fn run(mut self) -> Result<Done, terrace::Error> {
        let builder = Database::builder()
            .memory(u64::from(self.scenario.frames) * PAGE_SIZE as u64)
            .design(self.scenario.design)
            .restart(self.scenario.restart)
            .flash_role(self.scenario.flash_role)
            .torn_pages(match self.scenario.writes_pages_atomically {
                true => TornPages::Atomic,
                false => TornPages::Doublewrite,
            })
            .version_memory((64 << 10) << (self.scenario.keys % 4 * 2))
            .tune(|tier| {
                tier.mutations = self.scenario.mutations;
                tier.lambda = self.scenario.lambda;
                tier.costs = Some(Costs::PUBLISHED);
                tier.clean_age = self.scenario.clean_age;
                tier.partitions = self.scenario.partitions;
                tier.buf_write_pages = self.scenario.buf_write_pages;
                tier.append_group = self.scenario.append_group;
                tier.spill = match self.scenario.keys % 5 {
                    0 => Spill::WhenFlashIsBusy,
                    _ => Spill::Never,
                };
                tier.forced_choice_misses = Some(self.scenario.forced_choice_misses);
                tier.fasc.block_pages = self.scenario.append_group;
                tier.fasc.window_requests = self.scenario.window_requests;
            })
            .checkpoints(Checkpoints::Every(self.scenario.checkpoint_every))
            .io_timeout_flash(FLASH_LIMIT)
            .io_timeout_home(LIMIT)
            .io_timeout_log(LIMIT)
            .world(self.world.clone())
            .devices(self.devices.clone());
        let builder = match self.scenario.mishaps.log_grows {
            true => builder.log_max(self.scenario.mishaps.log_bytes),
            false => builder,
        };
        // A database whose creation was cut short is not there; one that was opened once is.
        let db = match self.is_created {
            true => builder.open_on_devices()?,
            false => builder.open_or_create_on_devices()?,
        };
        let opening = self.world.events();
        self.shared.enter(Phase::Verifying);
        if self.is_created {
            let found = read_all(&db)?;
            let failures = self.shared.ledger().verify(&found);
            let failures = failures.into_iter().chain(super::contradiction(&db));
            failures.for_each(|failure| self.shared.fail(failure));
            db.check()?;
        }
        self.shared.enter(Phase::Running);
        if !self.is_created {
            self.client(&db).preload();
        }
        self.run_clients(&db);
        if self.is_last && !self.shared.has_failed() {
            let failure = space::compare(&db, &self.world)?;
            failure.into_iter().for_each(|failure| self.shared.fail(failure));
        }
        if !self.shared.has_failed() {
            self.shared.enter(Phase::Closing);
            db.close()?;
        }
        Ok(Done { opening })
    }

    fn client(&mut self, db: &Database) -> Client {
        let (shared, scenario) = (Arc::clone(&self.shared), self.scenario.clone());
        Client::new(db.clone(), shared, scenario, self.prng.fork())
    }

    fn run_clients(&mut self, db: &Database) {
        let tasks: Vec<_> = (0..self.scenario.clients)
            .map(|_| {
                let client = self.client(db);
                self.world.spawn("client", move || client.run())
            })
            .collect();
        for task in tasks {
            task.join();
        }
    }
}
