//! One case: a script cut at one event, what the power cut and a fate leave, and what is found.
//!
//! ```text
//!  start --> [open, before, path] --cut--> power_cut, fate --> [open] --second cut--+
//!                                                    |                              |
//!                                                    +--------------+---------------+
//!                                                                   v
//!            [open, verify, go on, close] --> [open, verify, close], flash kept or blank
//! ```
//!
//! - K1: the same case is the same run, whatever other cases there are.
//! - K2: opening after a cut never fails, whatever the flash device is; a redo gap is an error.
//! - K3: where flash is a part of the database, opening may be refused if the device is not the one
//!   that was there, and must then succeed with that one; a damaged device may also end in an error
//!   that names the damage, then or when a page is read.

use std::fmt;
use std::sync::Arc;

use terrace::{Checkpoint, Error, Stats};
use terrace_device::Store;
use terrace_device::model::MarkKind;
use terrace_policy::{Design, FlashRole, Restart};
use terrace_rt::{Nanos, Stopped, Virtual};

use super::super::ledger::{Failure, Ledger, Promise};
use super::super::{Phase, Shared};
use super::disks::{Disks, Fate, Part, Powered, Torn};
use super::script::{Path, Script};
use super::seen::Seen;
use super::stage::{Moment, Setting, Stage};
use super::walk::{Step, Walker, verify};

/// One case of the matrix, or a whole walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Name of the script.
    pub script: &'static str,
    /// The design.
    pub design: Design,
    /// The restart.
    pub restart: Restart,
    /// What flash is to the database.
    pub role: FlashRole,
    /// Decides the devices, and what cuts leave of them.
    pub seed: u64,
    /// Where the power is cut; without it, the walk is meant.
    pub cut: Option<Cut>,
}

/// Where the power is cut, and what happens before it is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The event of the first cut.
    pub event: u64,
    /// What becomes of the flash device.
    pub fate: Fate,
    /// The event of the second cut, counted from the opening after the first.
    pub second: Option<u64>,
}

/// The command that repeats the case.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { script, design, restart, role, seed, cut } = self;
        let (design, restart) = (design.name, restart.name);
        write!(f, "terrace torture --matrix --script {script} --design {design}")?;
        let role = if role.is_persistent() { " --persistent-flash" } else { "" };
        write!(f, " --restart {restart}{role} --seed {seed}")?;
        let Some(Cut { event, fate, second }) = cut else { return Ok(()) };
        write!(f, " --cut {event} --fate {}", fate.name())?;
        second.map_or(Ok(()), |event| write!(f, " --second {event}"))
    }
}

/// The run that is not cut: the events of the path, and what it did.
pub(super) struct Uncut {
    /// The event of each write and barrier in the path.
    pub marks: Vec<(Part, MarkKind, u64)>,
    pub seen: Seen,
    /// Events from power on to the end of the path.
    pub events: u64,
}

/// What one case came to.
#[derive(Default)]
pub(super) struct CaseOutcome {
    /// Events that the opening after the first cut took.
    pub opening: u64,
    /// Slots that this opening found filled.
    pub warm: u64,
    pub torn: Torn,
    /// Restarts whose database was held against the ledger.
    pub verified: u64,
    /// Opening was refused with another flash than the one that was there.
    pub refused: bool,
    /// The case ended with an error that named the damage.
    pub damaged: bool,
}

/// What the first world leaves behind.
#[derive(Default)]
struct Notes {
    begin: u64,
    end: u64,
    before: Stats,
    after: Stats,
    /// The flash when the path began.
    hour: Option<Store>,
}

impl Notes {
    fn begin(&mut self, world: &Virtual, powered: &Powered) {
        self.begin = world.world().events();
        self.hour = powered.flash_now();
    }
}

/// The first world: opens the stage's database and walks the script.
fn first(
    setting: &Setting,
    shared: &Arc<Shared>,
    (world, powered): (&Virtual, &Powered),
    notes: &mut Notes,
) -> Result<(), Error> {
    let script: &Script = setting.script;
    if matches!(script.path, Path::Opening) {
        notes.begin(world, powered);
    }
    let builder = setting.builder(world.world(), powered.devices(), setting.slots());
    let mut walker = Walker::new(builder.open_on_devices()?, Arc::clone(shared));
    if let Path::Steps(steps) = script.path {
        walker.walk(&(script.before)())?;
        notes.before = walker.db().map(|db| db.stats()).unwrap_or_default();
        notes.begin(world, powered);
        walker.walk(&steps(&setting.design))?;
    }
    notes.end = world.world().events();
    notes.after = walker.db().map_or(notes.before, |db| db.stats());
    Ok(())
}

/// Walks the script without a cut.
pub(super) fn uncut(setting: &Setting, stage: &Stage) -> Result<Uncut, Failure> {
    let mut prng = setting.prng(Moment::First, 0);
    let world = setting.world(&mut prng);
    let shared = Arc::new(Shared::with(stage.start.1.clone()));
    let powered = stage.start.0.power_on(&world.world(), &mut prng);
    powered.record_writes();
    let mut notes = Notes::default();
    let ran = world.run(|| first(setting, &shared, (&world, &powered), &mut notes));
    orderly(ran)?;
    shared.outcome()?;
    let path = notes.begin..=notes.end;
    let marks: Vec<_> = powered
        .marks()
        .into_iter()
        .filter(|(_, mark)| path.contains(&mark.event))
        .map(|(part, mark)| (part, mark.kind, mark.event))
        .collect();
    let count = |part, kind| marks.iter().filter(|mark| (mark.0, mark.1) == (part, kind)).count();
    let seen = Seen {
        design: setting.design,
        restart: setting.restart,
        before: notes.before,
        after: notes.after,
        flash_writes: count(Part::Flash, MarkKind::WriteSubmitted),
        home_writes: count(Part::Home, MarkKind::WriteSubmitted),
        log_syncs: count(Part::Log, MarkKind::Synced),
    };
    Ok(Uncut { marks, seen, events: notes.end })
}

fn orderly(ran: Result<Result<(), Error>, Stopped>) -> Result<(), Failure> {
    match ran {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Failure::Error(error.to_string())),
        Err(stopped) => Err(Failure::Error(stopped.to_string())),
    }
}

/// Cuts the script as `case` says, and opens what is left.
pub(super) fn run(setting: &Setting, stage: &Stage, case: Cut) -> Result<CaseOutcome, Failure> {
    let salt = case.event << 8 | case.fate as u64;
    let mut prng = setting.prng(Moment::First, 0);
    let world = setting.world(&mut prng);
    let shared = Arc::new(Shared::with(stage.start.1.clone()));
    let powered = stage.start.0.power_on(&world.world(), &mut prng);
    world.cut_at_event(case.event);
    let mut notes = Notes::default();
    let ran = world.run(|| first(setting, &shared, (&world, &powered), &mut notes));
    if !matches!(ran, Err(Stopped::PowerCut { .. })) {
        orderly(ran)?;
        return Err(Failure::Error(format!("there is no event {}", case.event)));
    }
    let ledger = shared.outcome()?;
    let mut prng = setting.prng(Moment::Second, salt);
    let (disks, torn) = powered.cut(&mut prng);
    let mut left = (disks.clone(), ledger);
    befall(stage, case.fate, notes.hour, &mut left, &mut prng);
    let refused = setting.role.is_persistent()
        && case.fate != Fate::Kept
        && put_back(setting, stage, (case.fate, salt), &disks, &mut left.0)?;
    let mut outcome = match after(setting, salt, left, case.second) {
        Err(Ended::Damaged(_)) if setting.role.is_persistent() && case.fate.damages() => {
            CaseOutcome { damaged: true, ..CaseOutcome::default() }
        }
        Err(ended) => return Err(ended.into()),
        Ok(outcome) => outcome,
    };
    outcome.refused = refused;
    let is_cold = case.fate.is_cold() && case.second.is_none() && !refused;
    if (is_cold || setting.restart == Restart::forget()) && outcome.warm > 0 {
        let what = format!("{} slots are believed that may not be", outcome.warm);
        return Err(Failure::Error(what));
    }
    outcome.torn.exposed += torn.exposed;
    outcome.torn.dropped += torn.dropped;
    outcome.torn.torn += torn.torn;
    Ok(outcome)
}

/// Why a case ended before its end.
enum Ended {
    /// An error named what damage had made of the flash, or of a page there.
    Damaged(Error),
    Failure(Failure),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended::Failure(failure)
    }
}

impl From<Ended> for Failure {
    fn from(ended: Ended) -> Failure {
        match ended {
            Ended::Damaged(error) => Failure::Error(error.to_string()),
            Ended::Failure(failure) => failure,
        }
    }
}

/// Opens with the flash that fate left, where the database may need the one that `was` there (K3).
/// If it is refused, that one is put back, beside what home and log are after the refusal. Returns
/// whether it was.
fn put_back(
    setting: &Setting,
    stage: &Stage,
    (fate, salt): (Fate, u64),
    was: &Disks,
    disks: &mut Disks,
) -> Result<bool, Failure> {
    let mut prng = setting.prng(Moment::Refused, salt);
    let world = setting.world(&mut prng);
    let powered = disks.power_on(&world.world(), &mut prng);
    let builder = setting.builder(world.world(), powered.devices(), disks.slots);
    let was_refused = match world.run(|| builder.open_on_devices().map(drop)) {
        Ok(Err(Error::FlashNeeded { .. })) => true,
        // Whatever else it comes to, it does again, and is seen then.
        Ok(_) => false,
        Err(stopped) => return Err(Failure::Error(stopped.to_string())),
    };
    if was_refused && !fate.damages() {
        let flash = match fate {
            Fate::Restored => &stage.day_one.0,
            Fate::Forked => &stage.forked.0,
            _ => was,
        };
        let (flash, slots) = (flash.flash.clone(), flash.slots);
        *disks = Disks { flash, slots, ..powered.power_off() };
    }
    Ok(was_refused)
}

/// What happens while the power is off.
fn befall(
    stage: &Stage,
    fate: Fate,
    hour: Option<Store>,
    left: &mut (Disks, Ledger),
    prng: &mut terrace_rt::Prng,
) {
    let disks = &mut left.0;
    match fate {
        Fate::Kept => {}
        Fate::Wiped => *disks = disks.with_blank_flash(),
        Fate::HalfWiped => disks.wipe_half(prng),
        // Cut before the path began to note it: then an hour ago is the start.
        Fate::OldHour => disks.flash = hour.or_else(|| stage.start.0.flash.clone()),
        Fate::OldDay => disks.flash.clone_from(&stage.day_one.0.flash),
        Fate::Foreign => disks.flash.clone_from(&stage.foreign),
        Fate::Restored | Fate::Forked => {
            let day = if fate == Fate::Restored { &stage.day_one } else { &stage.forked };
            let flash = disks.flash.take();
            *left = (Disks { flash, ..day.0.clone() }, day.1.clone());
        }
        Fate::Flipped => disks.flip_front(prng),
        Fate::Rotten => disks.flip(u64::MAX, prng),
        Fate::Shrunk => disks.shrink(),
        Fate::Newer => disks.renew_version(),
    }
}

/// What a database that was found again is asked to do.
fn go_on() -> Vec<Step> {
    vec![
        Step::Write(2..10, Promise::Durable),
        Step::Read(20..120),
        Step::Make(2),
        Step::Write(112..118, Promise::Buffered),
        Step::Checkpoint(Checkpoint::Indirect),
        Step::Read(120..super::script::ROWS),
    ]
}

/// Until the reclaim task has nothing left to do.
const RECLAIMED: Nanos = Nanos::from_secs(2);

/// Opens what is left, perhaps cut short once more; verifies, goes on, closes, opens again.
fn after(
    setting: &Setting,
    salt: u64,
    (mut disks, ledger): (Disks, Ledger),
    second: Option<u64>,
) -> Result<CaseOutcome, Ended> {
    let shared = Arc::new(Shared::with(ledger));
    let is_persistent = setting.role.is_persistent();
    let is_replaced = setting.prng(Moment::Again, salt).chance(2);
    let mut torn = Torn::default();
    if let Some(event) = second {
        let mut prng = setting.prng(Moment::Second, salt ^ event << 32);
        let world = setting.world(&mut prng);
        let powered = disks.power_on(&world.world(), &mut prng);
        world.cut_at_event(event);
        let ran = world.run(|| resume(setting, &shared, (&world, &powered), disks.slots, &go_on()));
        match ran {
            Err(Stopped::PowerCut { .. }) => (disks, torn) = powered.cut(&mut prng),
            other => {
                settled(other, &shared)?;
                let what = format!("there is no event {event} after the cut");
                return Err(Failure::Error(what).into());
            }
        }
        shared.found_nothing()?;
    }
    let mut first = Opened::default();
    let mut steps = go_on();
    if is_persistent && is_replaced {
        // What is to be found without its flash is at home before, and so is what the background
        // makes of it.
        steps.extend([Step::Rest(RECLAIMED), Step::Checkpoint(Checkpoint::Sharp)]);
    }
    for (moment, steps) in [(Moment::After, steps), (Moment::Again, Vec::new())] {
        let mut prng = setting.prng(moment, salt);
        if matches!(moment, Moment::Again) && prng.chance(2) {
            disks = disks.with_blank_flash();
        }
        let world = setting.world(&mut prng);
        let powered = disks.power_on(&world.world(), &mut prng);
        let ran = world.run(|| resume(setting, &shared, (&world, &powered), disks.slots, &steps));
        let opened = settled(ran, &shared)?;
        if matches!(moment, Moment::After) {
            first = opened;
        }
        shared.found_nothing()?;
        disks = powered.power_off();
    }
    let Opened { events: opening, warm } = first;
    Ok(CaseOutcome { opening, warm, torn, verified: 2, ..CaseOutcome::default() })
}

/// What a world came to that was not cut, if nothing wrong was found in it.
fn settled(ran: Result<Result<Opened, Error>, Stopped>, shared: &Shared) -> Result<Opened, Ended> {
    shared.found_nothing()?;
    match ran {
        Ok(Ok(opened)) => Ok(opened),
        Ok(Err(
            error @ (Error::FlashNeeded { .. } | Error::Corrupt { .. } | Error::RedoGap { .. }),
        )) => Err(Ended::Damaged(error)),
        other => Err(orderly(other.map(|ran| ran.map(drop))).expect_err("not opened").into()),
    }
}

/// What opening took, and found.
#[derive(Clone, Copy, Debug, Default)]
struct Opened {
    events: u64,
    /// The least number of slots that are filled and were not since.
    warm: u64,
}

/// Opens the database, holds it against the ledger, takes `steps` and closes it.
fn resume(
    setting: &Setting,
    shared: &Arc<Shared>,
    (world, powered): (&Virtual, &Powered),
    slots: u32,
    steps: &[Step],
) -> Result<Opened, Error> {
    shared.enter(Phase::Opening);
    let builder = setting.builder(world.world(), powered.devices(), slots);
    let db = builder.open_on_devices()?;
    let pool = db.stats().pool;
    let warm = pool.slots_used.saturating_sub(pool.admissions);
    let opened = Opened { events: world.world().events(), warm };
    shared.enter(Phase::Verifying);
    verify(&db, shared)?;
    if shared.has_failed() {
        return Ok(opened);
    }
    shared.enter(Phase::Running);
    let mut walker = Walker::new(db, Arc::clone(shared));
    walker.walk(steps)?;
    walker.walk(&[Step::Close])?;
    Ok(opened)
}
