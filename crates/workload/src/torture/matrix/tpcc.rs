//! TPC-C under power cuts: a small database, cut at random events, which must meet the twelve
//! conditions of clause 3.3.2 whenever it is opened again.
//!
//! ```text
//!   load --> [open, check] --> [open, check, run --cut--] --> fate --> ... --> [open, check]
//! ```
//!
//! - P1: half of the cuts come while the database is opened and checked, the others while it runs.
//! - P2: dates only rise, so that a run on home and log of an earlier day makes no key twice.
//! - The rows of a lost transaction are gone from all tables or from none: that is what the
//!   conditions see. That a durable one is not lost is for the scripts to show.

use terrace::{Builder, Checkpoints, Database, Error};
use terrace_device::Store;
use terrace_page::PAGE_SIZE;
use terrace_policy::{Costs, Design, FlashRole, Restart};
use terrace_pool::Mutations;
use terrace_rt::{Nanos, Prng, Stopped, Virtual, VirtualConfig};

use super::super::ledger::Failure;
use super::disks::{Disks, Fate, Torn};
use crate::tpcc::{Config, Scale, consistency, measure, populate};

/// The design that picks itself picks something else after this number of misses.
const CHOICE_MISSES: u64 = 40;
/// The smallest database with the shape of the whole.
const SCALE: Scale = Scale::tiny(1);
/// Pages of memory: a quarter of what the database has.
const FRAMES: u64 = 24;
/// Slots of the flash tier.
const SLOTS: u32 = 32;
/// Pages at home and in the log.
const PAGES: u64 = 2048;
/// Power cuts of one run.
const CUTS: u64 = 24;
/// Events after the opening among which a cut is drawn.
const EVENTS: u64 = 4_000;
/// One seed in this number bounds the age of changes, by `CLEAN_AGE` bytes of log: less than a
/// session's.
const AGED_ONE_IN: u64 = 3;
const CLEAN_AGE: u64 = 64 << 10;
/// Dates of a run begin this long after those of the one before.
const DATES_APART: u64 = 3_600_000_000_000;

/// Fates of the flash device between two worlds.
const FATES: [Fate; 10] = [
    Fate::Kept,
    Fate::Kept,
    Fate::Kept,
    Fate::Kept,
    Fate::Wiped,
    Fate::HalfWiped,
    Fate::OldDay,
    Fate::Restored,
    Fate::Flipped,
    Fate::Rotten,
];

/// What one run of cuts came to.
#[derive(Clone, Debug, Default)]
pub struct TpccReport {
    /// Cuts while the database was opened or checked.
    pub in_opening: u64,
    /// Cuts while terminals ran.
    pub in_run: u64,
    /// Times that the twelve conditions were checked.
    pub checks: u64,
    /// Openings that were refused for want of the flash that the database had.
    pub refused: u64,
    /// What the cuts took.
    pub torn: Torn,
}

/// One run.
struct Run {
    config: Config,
    design: Design,
    restart: Restart,
    role: FlashRole,
    mutations: Mutations,
    prng: Prng,
    report: TpccReport,
    /// What an earlier cut left.
    old: Option<Disks>,
    /// Events that opening and checking took when last seen.
    opening: u64,
    date: u64,
}

/// Cuts a small TPC-C again and again under this design and restart, with `mutations`.
///
/// # Errors
///
/// A condition that does not hold, or an error of the engine.
pub(super) fn run(
    (design, restart, role): (Design, Restart, FlashRole),
    mutations: Mutations,
    seed: u64,
) -> Result<TpccReport, Failure> {
    let window = Nanos::from_secs(1);
    let config = Config {
        seed,
        scale: SCALE,
        clients: 4,
        delivery_tasks: 1,
        duration: Nanos::from_secs(1_000),
        window,
        ..Config::default()
    };
    let mut run = Run {
        config,
        design,
        restart,
        role,
        mutations,
        prng: Prng::from_seed(seed ^ 0x7BCC),
        report: TpccReport::default(),
        old: None,
        opening: 0,
        date: 2_000_000_000_000_000_000,
    };
    let loaded = run.load()?;
    // Nothing is cut the first time: it tells how long opening and checking take.
    let mut disks = run.session(&loaded, None)?;
    for _ in 0..CUTS {
        let (past, span) =
            if run.prng.chance(2) { (0, run.opening) } else { (run.opening, EVENTS) };
        let event = past + 1 + run.prng.below(span);
        disks = run.session(&disks, Some(event))?;
        let flash = run.befall(&mut disks);
        if role.is_persistent() {
            run.put_back(flash, &mut disks)?;
        }
    }
    run.session(&disks, None)?;
    Ok(run.report)
}

impl Run {
    fn world(&mut self) -> Virtual {
        Virtual::new(VirtualConfig { seed: self.prng.next_u64(), ..VirtualConfig::default() })
    }

    fn builder(&self, slots: u32) -> Builder {
        Database::builder()
            .memory(FRAMES * PAGE_SIZE as u64)
            .design(self.design)
            .restart(self.restart)
            .flash_role(self.role)
            .checkpoints(Checkpoints::Every(Nanos::from_millis(50)))
            .tune(|tier| {
                tier.flash_slots = if self.design.uses_flash() { slots } else { 0 };
                tier.lambda = 0.3;
                tier.mutations = self.mutations;
                tier.forced_choice_misses = Some(CHOICE_MISSES);
                tier.costs = Some(Costs::PUBLISHED);
                let is_bounded = self.config.seed.is_multiple_of(AGED_ONE_IN);
                tier.clean_age = is_bounded.then_some(CLEAN_AGE);
            })
    }

    fn load(&mut self) -> Result<Disks, Failure> {
        let slots = if self.design.uses_flash() { SLOTS } else { 0 };
        let disks = Disks::sized(slots, PAGES);
        let world = self.world();
        let powered = disks.power_on(&world.world(), &mut self.prng);
        let builder = self.builder(slots).world(world.world()).devices(powered.devices());
        let config = &self.config;
        let ran = world.run(|| {
            let db = builder.create_on_devices()?;
            populate(&db, config, &mut |_, _| {})?;
            db.close().map_err(crate::Error::from)
        });
        match ran {
            Ok(Ok(())) => Ok(powered.power_off()),
            Ok(Err(error)) => Err(Failure::Error(error.to_string())),
            Err(stopped) => Err(Failure::Error(stopped.to_string())),
        }
    }

    /// Opens, checks, and runs until the power is cut at `event`; without one, closes after the
    /// check.
    fn session(&mut self, disks: &Disks, event: Option<u64>) -> Result<Disks, Failure> {
        let world = self.world();
        let powered = disks.power_on(&world.world(), &mut self.prng);
        if let Some(event) = event {
            world.cut_at_event(event);
        }
        let builder = self.builder(disks.slots).world(world.world()).devices(powered.devices());
        self.date += DATES_APART;
        let (mut checked_at, mut broken, mut contradicted) = (None, Vec::new(), None);
        let (config, date, name) = (&self.config, self.date, self.design.name);
        let ran = world.run(|| {
            let db = builder.open_on_devices()?;
            contradicted = super::super::contradiction(&db);
            broken = consistency::check(&db, SCALE)?;
            db.check()?;
            checked_at = Some(world.world().events());
            if event.is_none() || !broken.is_empty() {
                return db.close().map_err(crate::Error::from);
            }
            measure(&db, config, (name, date), &world.world(), &mut |_| {}).map(drop)
        });
        if let Some(failure) = contradicted {
            return Err(failure);
        }
        if let Some(violation) = broken.first() {
            return Err(Failure::Error(format!("TPC-C: {violation}")));
        }
        if let Some(events) = checked_at {
            self.report.checks += 1;
            self.opening = events;
        }
        match ran {
            Err(Stopped::PowerCut { .. }) => {
                let in_opening = checked_at.is_none();
                self.report.in_opening += u64::from(in_opening);
                self.report.in_run += u64::from(!in_opening);
                let (disks, torn) = powered.cut(&mut self.prng);
                self.report.torn.add(torn);
                Ok(disks)
            }
            Ok(Ok(())) if event.is_none() => Ok(powered.power_off()),
            Ok(Ok(())) => Err(Failure::Error("the run ended before it was cut".into())),
            Ok(Err(error)) => Err(Failure::Error(error.to_string())),
            Err(deadlock) => Err(Failure::Error(deadlock.to_string())),
        }
    }

    /// Opens with the flash that fate left. If it is refused, `flash`, which home and log had, is
    /// put back.
    fn put_back(&mut self, flash: Option<Store>, disks: &mut Disks) -> Result<(), Failure> {
        let world = self.world();
        let powered = disks.power_on(&world.world(), &mut self.prng);
        let builder = self.builder(disks.slots).world(world.world()).devices(powered.devices());
        match world.run(|| builder.open_on_devices().map(drop)) {
            Ok(Err(Error::FlashNeeded { .. })) => {
                *disks = Disks { flash, ..powered.power_off() };
                self.report.refused += 1;
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(stopped) => Err(Failure::Error(stopped.to_string())),
        }
    }

    /// What happens while the power is off; returns the flash that home and log then had.
    fn befall(&mut self, disks: &mut Disks) -> Option<Store> {
        let before = disks.clone();
        let is_persistent = self.role.is_persistent();
        let old = self.old.replace(before).unwrap_or_else(|| match is_persistent {
            true => disks.clone(),
            false => disks.with_blank_flash(),
        });
        let fate = FATES[self.prng.below(FATES.len() as u64) as usize];
        let flash = if fate == Fate::Restored { old.flash.clone() } else { disks.flash.clone() };
        match fate {
            // What a device loses that it had acknowledged is for the scripts to show.
            fate if is_persistent && fate.damages() => {}
            Fate::Wiped => *disks = disks.with_blank_flash(),
            Fate::HalfWiped => disks.wipe_half(&mut self.prng),
            Fate::OldDay => disks.flash = old.flash,
            Fate::Restored => *disks = Disks { flash: disks.flash.take(), ..old },
            Fate::Flipped => disks.flip_front(&mut self.prng),
            Fate::Rotten => disks.flip(u64::MAX, &mut self.prng),
            _ => {}
        }
        flash
    }
}
