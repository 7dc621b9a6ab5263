//! The stage of a script: a database with a past, made once and used by every case of the script.
//!
//! ```text
//!            load          day 1          day 2
//!  blank ----------> day 0 -----> day 1 ----------> start      the script begins here
//!                                   |    or a crash
//!                                   +------------> forked      home and log with another flash
//!  blank, other identity -----------------------> foreign      a flash device alone
//! ```

use std::sync::Arc;

use terrace::{Builder, Checkpoint, Checkpoints, Database, Devices, Error};
use terrace_device::Store;
use terrace_page::PAGE_SIZE;
use terrace_policy::{Costs, Design, FlashRole, Inclusion, MemoryPolicy, Replacement, Restart};
use terrace_pool::{Mutations, TacWrite};
use terrace_rt::{Nanos, Prng, Stopped, Virtual, VirtualConfig, World, sleep};

use super::super::Shared;
use super::super::ledger::{Failure, Ledger, Promise};
use super::disks::Disks;
use super::script::{FRAMES, ROWS, Script, Start};
use super::walk::{Step, Walker};

/// Stack of a task: the engine's deepest path and a client on top of it.
const STACK_BYTES: usize = 256 << 10;
/// The numbers of a foreign database's transactions begin here.
const FOREIGN_FROM: u32 = 1_000;

/// What all cases of a walk have in common.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub script: &'static Script,
    pub design: Design,
    pub restart: Restart,
    pub role: FlashRole,
    /// Faults in force; the stage is built without them.
    pub mutations: Mutations,
    pub seed: u64,
}

/// What differs from one world of a case to the next; each draws its chances from another seed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    Load,
    DayOne,
    DayTwo,
    Fork,
    Foreign,
    First,
    Refused,
    Second,
    After,
    Again,
}

impl Setting {
    /// The generator of `moment`; `salt` tells cases apart.
    pub fn prng(&self, moment: Moment, salt: u64) -> Prng {
        let seed = self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (moment as u64) << 56;
        Prng::from_seed(seed ^ salt.wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }

    pub fn world(&self, prng: &mut Prng) -> Virtual {
        Virtual::new(VirtualConfig {
            seed: prng.next_u64(),
            switch_one_in: if self.seed.is_multiple_of(2) { 0 } else { 7 },
            cores: 2,
            stack_bytes: STACK_BYTES,
        })
    }

    pub fn builder(&self, world: World, devices: Devices, slots: u32) -> Builder {
        let builder = Database::builder()
            .memory(FRAMES * PAGE_SIZE as u64)
            .design(self.design)
            .restart(self.restart)
            .flash_role(self.role)
            .tune(|tier| {
                tier.flash_slots = slots;
                tier.mutations = self.mutations;
                tier.lambda = self.script.lambda;
                tier.costs = Some(Costs::PUBLISHED);
                tier.clean_age = self.script.clean_age;
                tier.buf_write_pages = 4;
                tier.forced_choice_misses = self.script.forced_choice_misses;
                if self.design.batch().is_some() {
                    // An append log keeps no uses: pages would leave memory in another order.
                    tier.memory_policy = Some(MemoryPolicy::Lru);
                }
                if self.design.replacement == Replacement::Chosen {
                    // The scripts are written for pages that leave memory by their uses.
                    tier.memory_policy = Some(MemoryPolicy::Lru2);
                }
                tier.tac.write =
                    if self.seed.is_multiple_of(2) { TacWrite::Async } else { TacWrite::Sync };
            })
            .checkpoints(Checkpoints::Off)
            .world(world)
            .devices(devices);
        match self.script.log_max {
            Some(bytes) => builder.log_max(bytes),
            None => builder,
        }
    }

    /// Slots of the script; one more per frame where each page in memory has one of its own.
    pub fn slots(&self) -> u32 {
        let is_inclusive = self.design.inclusion == Inclusion::Inclusive;
        let own = if is_inclusive { FRAMES as u32 } else { 0 };
        if self.design.uses_flash() { self.script.slots + own } else { 0 }
    }
}

/// Runs `body` in a world of its own on `disks`; what an orderly end, or the power cut that `body`
/// asked for, leaves.
fn session(
    setting: &Setting,
    moment: Moment,
    disks: &Disks,
    body: impl FnOnce(Builder, &Virtual) -> Result<(), Error>,
) -> Result<Disks, Failure> {
    let mut prng = setting.prng(moment, 0);
    let world = setting.world(&mut prng);
    let powered = disks.power_on(&world.world(), &mut prng);
    let builder = setting.builder(world.world(), powered.devices(), disks.slots);
    match world.run(|| body(builder, &world)) {
        Ok(Ok(())) => Ok(powered.power_off()),
        Ok(Err(error)) => Err(Failure::Error(format!("{moment:?}: {error}"))),
        Err(Stopped::PowerCut { .. }) => Ok(powered.cut(&mut prng).0),
        Err(deadlock) => Err(Failure::Error(format!("{moment:?}: {deadlock}"))),
    }
}

/// A database with a past.
pub(super) struct Stage {
    /// Where the script begins.
    pub start: (Disks, Ledger),
    /// A day earlier.
    pub day_one: (Disks, Ledger),
    /// That day, gone on with another flash device.
    pub forked: (Disks, Ledger),
    /// The flash device of another database.
    pub foreign: Option<Store>,
}

impl Stage {
    /// Builds the stage.
    ///
    /// # Errors
    ///
    /// Whatever goes wrong on the way: nothing is cut here but at the end of a day.
    pub fn build(setting: &Setting) -> Result<Stage, Failure> {
        let setting = &Setting { mutations: Mutations::NONE, ..*setting };
        let identity = u128::from(setting.seed) << 64 | 0x7E44_ACE0;
        let new = load(setting, identity, Ledger::default())?;
        // So that the stages that go on with another flash device may do so.
        let (mut first_day, sharp) = (first_day(), Step::Checkpoint(Checkpoint::Sharp));
        first_day.extend(setting.role.is_persistent().then_some(sharp));
        let day_one = day(setting, Moment::DayOne, &new, &first_day, End::Closed)?;
        let start = match setting.script.start {
            Start::Cold => (day_one.0.with_blank_flash(), day_one.1.clone()),
            Start::Day => day(setting, Moment::DayTwo, &day_one, &second_day(), End::Closed)?,
            Start::Crash => day(setting, Moment::DayTwo, &day_one, &second_day(), End::Cut)?,
        };
        if !setting.design.uses_flash() {
            return Ok(Stage { forked: start.clone(), start, day_one, foreign: None });
        }
        let other = (day_one.0.with_blank_flash(), day_one.1.clone());
        let forked = day(setting, Moment::Fork, &other, &forked_day(), End::Closed)?;
        let mut ledger = Ledger::default();
        for _ in 0..FOREIGN_FROM {
            let _unused = ledger.begin();
        }
        let foreign = load(setting, identity + 1, ledger)?;
        let foreign = day(setting, Moment::Foreign, &foreign, &second_day(), End::Closed)?;
        Ok(Stage { start, day_one, forked, foreign: foreign.0.flash })
    }
}

/// A new database with all rows.
fn load(setting: &Setting, identity: u128, ledger: Ledger) -> Result<(Disks, Ledger), Failure> {
    let shared = Arc::new(Shared::with(ledger));
    let blank = Disks::blank(setting.slots());
    let disks = session(setting, Moment::Load, &blank, |builder, _| {
        let db = builder.identity(identity).create_on_devices()?;
        let mut walker = Walker::new(db, Arc::clone(&shared));
        walker.load(0..ROWS)?;
        walker.walk(&[Step::Checkpoint(Checkpoint::Sharp), Step::Close])
    })?;
    shared.outcome().map(|ledger| (disks, ledger))
}

/// How a day ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    Cut,
}

fn first_day() -> Vec<Step> {
    let all = || Step::Read(0..ROWS);
    vec![all(), Step::Write(28..36, Promise::Durable), all(), Step::Write(6..10, Promise::Buffered)]
}

fn second_day() -> Vec<Step> {
    vec![
        Step::Write(4..24, Promise::Durable),
        Step::Read(40..ROWS),
        Step::Write(110..122, Promise::Durable),
        Step::Hold(60..66),
        Step::Read(80..160),
        Step::Write(150..156, Promise::Durable),
    ]
}

fn forked_day() -> Vec<Step> {
    vec![
        Step::Read(0..ROWS),
        Step::Write(0..12, Promise::Durable),
        Step::Read(20..120),
        Step::Write(104..116, Promise::Buffered),
        Step::Write(150..154, Promise::Durable),
        Step::Read(0..ROWS),
    ]
}

fn day(
    setting: &Setting,
    moment: Moment,
    (disks, ledger): &(Disks, Ledger),
    steps: &[Step],
    end: End,
) -> Result<(Disks, Ledger), Failure> {
    let shared = Arc::new(Shared::with(ledger.clone()));
    let disks = session(setting, moment, disks, |builder, world| {
        let mut walker = Walker::new(builder.open_on_devices()?, Arc::clone(&shared));
        walker.walk(steps)?;
        match end {
            End::Closed => walker.walk(&[Step::Close]),
            End::Cut => {
                world.cut_at_event(0);
                sleep(Nanos(1));
                Ok(())
            }
        }
    })?;
    shared.outcome().map(|ledger| (disks, ledger))
}
