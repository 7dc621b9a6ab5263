//! A device that fails while its database opens after a crash, at any of its requests. Without a
//! cache on flash the opening goes on; of any other device it tells that it has failed, never that
//! another one is damaged. Nothing is lost.

use std::ops::Range;
use std::sync::Arc;

use terrace::{Checkpoints, ColdStart, Database, Devices, Durability, Error, Part, TableDef};

use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Device, FaultCounts, FaultPlan, FaultyDevice, Keep, Store};
use terrace_policy::{DESIGNS, Design, FlashRole, RESTARTS, Restart};
use terrace_rt::{Nanos, Prng, Virtual, VirtualConfig, World, sleep};

const TABLE: TableDef<u64, &[u8]> = TableDef::new("rows");
const ROWS: u64 = 600;
const ROUNDS: u64 = 6;
/// So few that openings log many of these records, and each soon.
const BUF_WRITE_PAGES: u32 = 2;
/// Of transactions that a crash cuts off.
const OTHER: TableDef<u64, &[u8]> = TableDef::new("other rows");

#[derive(Clone)]
struct Rig {
    home: Store,
    flash: Store,
    log: Store,
    /// Changes are brought home after this much further log, by a task that runs beside the rest.
    clean_age: Option<u64>,
}

struct Opened {
    rig: Rig,
    /// Batches and syncs that the device that may fail was given by the opening.
    requests: u64,
    /// Faults that it met.
    faults: u64,
    outcome: Result<(), Error>,
}

/// How one of the devices fails.
#[derive(Clone, Debug)]
struct Fault {
    part: Part,
    plan: FaultPlan,
    role: FlashRole,
    /// Whether the power fails after an opening that was refused.
    cuts: bool,
}

impl Fault {
    fn none(part: Part, role: FlashRole) -> Fault {
        Fault { part, plan: FaultPlan::default(), role, cuts: false }
    }
}

impl Rig {
    fn blank() -> Rig {
        let store = |mebibytes: u64| Store::new(mebibytes << 20, Keep::Plain);
        Rig { home: store(16), flash: store(2), log: store(8), clean_age: None }
    }

    /// Runs `body` on the database, of which a device fails as `fault` says, and cuts the power.
    fn session(
        &self,
        rules: (&Design, &Restart),
        fault: Fault,
        body: impl FnOnce(&Database) -> Result<(), Error>,
    ) -> Opened {
        let checkpoints = Checkpoints::Every(Nanos::from_millis(5));
        self.session_with(rules, fault, (checkpoints, None), body)
    }

    /// The same, with other checkpoints, and a cut after the given number of events if that comes
    /// first.
    fn session_with(
        &self,
        (design, restart): (&Design, &Restart),
        fault: Fault,
        (checkpoints, cut): (Checkpoints, Option<u64>),
        body: impl FnOnce(&Database) -> Result<(), Error>,
    ) -> Opened {
        let switch_one_in = if self.clean_age.is_some() { 3 } else { 0 };
        let config = VirtualConfig { seed: 1, switch_one_in, cores: 1, stack_bytes: 256 << 10 };
        let world = Virtual::new(config);
        let on = |store: &Store, world: World| {
            SimDevice::new(Preset::Ram.spec().with_write_cache(), world, store.clone())
        };
        let [home, flash, log] =
            [&self.home, &self.flash, &self.log].map(|store| on(store, world.world()));
        let Fault { part, plan, role, cuts } = fault;
        let device = match part {
            Part::Home => &home,
            Part::Flash => &flash,
            Part::Log => &log,
        };
        let faulty = FaultyDevice::new(Arc::<SimDevice>::clone(device), plan);
        let mut outcome = Ok(());
        let mut counts = FaultCounts::default();
        cut.iter().for_each(|&event| world.cut_at_event(event));
        let ran = world.run(|| {
            let given = |of: Part, device: &Arc<SimDevice>| -> Arc<dyn Device> {
                if of == part { faulty.clone() } else { Arc::<SimDevice>::clone(device) }
            };
            let devices = Devices {
                home: given(Part::Home, &home),
                flash: Some(given(Part::Flash, &flash)),
                log: given(Part::Log, &log),
            };
            let opened = Database::builder()
                .memory(256 << 10)
                .design(*design)
                .restart(*restart)
                .flash_role(role)
                .tune(|tier| {
                    tier.buf_write_pages = BUF_WRITE_PAGES;
                    tier.clean_age = self.clean_age;
                })
                .io_timeout_flash(Nanos::from_millis(50))
                .io_timeout_home(Nanos::from_millis(60))
                .io_timeout_log(Nanos::from_millis(70))
                .checkpoints(checkpoints)
                .devices(devices)
                .open_or_create_on_devices();
            counts = faulty.counts();
            outcome = opened.and_then(|db| {
                let done = body(&db);
                cut_now(&world);
                done
            });
            if cuts && outcome.is_err() {
                cut_now(&world);
            }
        });
        let mut prng = Prng::from_seed(2);
        if ran.is_err() {
            [&home, &flash, &log].into_iter().for_each(|device| {
                device.power_cut(&mut prng);
            });
        }
        let (home, flash, log) = (home.store(), flash.store(), log.store());
        let rig = Rig { home, flash, log, ..*self };
        Opened { rig, requests: counts.accepted, faults: counts.faults(), outcome }
    }
}

fn write(db: &Database) -> Result<(), Error> {
    write_rounds(db, 0..ROUNDS)
}

fn write_rounds(db: &Database, rounds: Range<u64>) -> Result<(), Error> {
    let mut prng = Prng::from_seed(5);
    for round in rounds {
        for first in (0..ROWS).step_by(20) {
            db.write_with(Durability::Durable, |txn| {
                let mut table = txn.open_table(TABLE)?;
                (first..first + 20).try_for_each(|key| table.insert(key, &[round as u8; 700]))
            })?;
        }
        sleep(Nanos::from_millis(prng.below(8)));
    }
    Ok(())
}

/// Cuts the power.
fn cut_now(world: &Virtual) {
    world.cut_at_event(0);
    sleep(Nanos(1));
}

/// Writes rows at random.
fn scatter(db: &Database, round: u64) -> Result<(), Error> {
    let mut prng = Prng::from_seed(9);
    (0..60).try_for_each(|_| {
        db.write_with(Durability::Durable, |txn| {
            let mut table = txn.open_table(TABLE)?;
            (0..5).try_for_each(|_| table.insert(prng.below(ROWS), &[round as u8; 700]))
        })
    })
}

fn holds(db: &Database) -> Result<(), Error> {
    holds_round(db, ROUNDS - 1)
}

fn holds_round(db: &Database, round: u64) -> Result<(), Error> {
    db.read(|txn| {
        let table = txn.open_table(TABLE)?;
        for key in 0..ROWS {
            let row = table.get(key)?.expect("a row");
            assert_eq!(row.value(), [round as u8; 700], "row {key}");
        }
        Ok::<_, Error>(())
    })?;
    db.check().map(drop)
}

/// The bug: recovery had begun to count on copies on flash when the device died, and the database
/// was refused: a record did not fit its page, or a page was corrupt.
#[test]
fn a_cache_that_fails_while_its_database_opens_is_done_without() {
    let (mut openings, mut failed) = (0, 0);
    let designs = DESIGNS.iter().filter(|design| design.uses_flash());
    for (number, design) in (0..).zip(designs) {
        for (other, restart) in (0..).zip(&RESTARTS) {
            let rules = (design, restart);
            let name = format!("{} {}", design.name, restart.name);
            let well = Fault::none(Part::Flash, FlashRole::Cache);
            let written = Rig::blank().session(rules, well.clone(), write);
            let Ok(()) = written.outcome else { continue };
            let opened = written.rig.session(rules, well.clone(), holds);
            opened.outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut prng = Prng::from_seed(number * 10 + other);
            for round in 0..rounds().max(8) {
                let at = Some(prng.below(opened.requests + 4));
                let plan = match round % 8 {
                    0 | 1 => FaultPlan { dies_after: at, ..FaultPlan::default() },
                    2 => FaultPlan { silent_after: at, ..FaultPlan::default() },
                    3 => FaultPlan { seed: round, read_error_one_in: 8, ..FaultPlan::default() },
                    4 | 5 => {
                        FaultPlan { seed: round, write_error_one_in: 8, ..FaultPlan::default() }
                    }
                    _ => FaultPlan { seed: round, partial_error_one_in: 8, ..FaultPlan::default() },
                };
                let what = format!("{name}, {plan:?}");
                let opened = written.rig.session(rules, Fault { plan, ..well.clone() }, holds);
                opened.outcome.unwrap_or_else(|error| panic!("{what}: {error}"));
                openings += 1;
                failed += u32::from(opened.faults > 0);
                let again = opened.rig.session(rules, well.clone(), holds);
                again.outcome.unwrap_or_else(|error| panic!("{what}, opened again: {error}"));
            }
        }
    }
    assert!(openings > 150 && failed > openings / 2, "{failed} of {openings} openings");
}

/// The bug: the cache failed when an opening let its writes go, home's went on, and what the cache
/// had from before was believed after a power cut that came before the next checkpoint.
#[test]
fn a_cache_that_failed_while_its_database_opened_is_not_believed_later() {
    let (mut openings, mut cold, mut warm) = (0, 0, 0);
    let designs = DESIGNS.iter().filter(|design| design.uses_flash());
    for (number, design) in (0..).zip(designs) {
        for (other, restart) in (0..).zip(&RESTARTS) {
            let rules = (design, restart);
            let name = format!("{} {}", design.name, restart.name);
            let well = Fault::none(Part::Flash, FlashRole::Cache);
            let written = Rig::blank().session(rules, well.clone(), write);
            let Ok(()) = written.outcome else { continue };
            let at_once = |_: &Database| Ok(());
            let none = (Checkpoints::Off, None);
            let opened = written.rig.session_with(rules, well.clone(), none, at_once);
            let mut prng = Prng::from_seed(number * 10 + other);
            for round in 0..rounds() {
                let at = Some(opened.requests - prng.below(opened.requests.min(12) + 1));
                let plan = match round % 3 {
                    0 => FaultPlan { dies_after: at, ..FaultPlan::default() },
                    1 => FaultPlan { silent_after: at, ..FaultPlan::default() },
                    _ => FaultPlan { seed: round, write_error_one_in: 6, ..FaultPlan::default() },
                };
                let cut = (round % 2 == 1).then(|| 20 + prng.below(600));
                let how = (Checkpoints::Off, cut);
                let what = format!("{name}, {plan:?}, cut {cut:?}");
                let fault = Fault { plan, ..well.clone() };
                let opened = written.rig.session_with(rules, fault, how, at_once);
                opened.outcome.unwrap_or_else(|error| panic!("{what}: {error}"));
                openings += 1;
                let again = opened.rig.session(rules, well.clone(), |db| {
                    let count = if db.cold_start().is_some() { &mut cold } else { &mut warm };
                    *count += 1;
                    holds(db)
                });
                again.outcome.unwrap_or_else(|error| panic!("{what}, opened again: {error}"));
            }
        }
    }
    assert!(openings > 150 && cold > 0 && warm > 0, "{openings}: {cold} cold, {warm} warm");
}

/// Whether `error` tells that the device of `part` failed, and nothing else.
fn tells_of(error: &Error, part: Part) -> bool {
    match error {
        Error::Device { part: told, .. } => *told == part,
        Error::Failed { cause: Some(cause) } => tells_of(cause, part),
        Error::FlashNeeded { why: ColdStart::Device(_), .. } => part == Part::Flash,
        _ => false,
    }
}

fn plan_of(kind: u64, at: u64, seed: u64) -> FaultPlan {
    let plan = FaultPlan { seed, ..FaultPlan::default() };
    match kind {
        0 => FaultPlan { dies_after: Some(at), ..plan },
        1 => FaultPlan { silent_after: Some(at), ..plan },
        2 => FaultPlan { read_error_one_in: 5, ..plan },
        3 => FaultPlan { partial_error_one_in: 9, ..plan },
        4 => FaultPlan { write_error_one_in: 4, ..plan },
        5 => FaultPlan { sync_error_one_in: 4, ..plan },
        _ => FaultPlan { passing_error_one_in: 3, ..plan },
    }
}
const PLANS: u64 = 7;

/// The bug: a log that fell silent while the database opened was reported as a damaged page of
/// home.
#[test]
fn an_opening_tells_of_the_device_that_fails_and_of_no_other() {
    let mut told = [0; 3];
    for (number, design) in (0..).zip(["lc", "face", "cac"]) {
        let design = DESIGNS.iter().find(|row| row.name == design).expect("a design");
        for (other, restart) in (0..).zip(&RESTARTS) {
            for role in [FlashRole::Cache, FlashRole::Persistent] {
                let rules = (design, restart);
                let first = Rig::blank().session(rules, Fault::none(Part::Flash, role), write);
                let Ok(()) = first.outcome else { continue };
                for part in [Part::Home, Part::Flash, Part::Log] {
                    if part == Part::Flash && role == FlashRole::Cache {
                        continue;
                    }
                    let name = format!("{} {} {role:?} {part}", design.name, restart.name);
                    let well = first.rig.session(rules, Fault::none(part, role), holds);
                    well.outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
                    let mut prng = Prng::from_seed(number * 100 + other);
                    for round in 0..rounds() {
                        let at = prng.below(well.requests + 2);
                        let plan = plan_of(round % PLANS, at, round + other);
                        let what = format!("{name}, {plan:?}");
                        let fault = Fault { plan, ..Fault::none(part, role) };
                        let opened = first.rig.session(rules, fault, holds);
                        if let Err(error) = opened.outcome {
                            assert!(tells_of(&error, part), "{what}: {error}");
                            assert!(round % PLANS < 6, "{what}: it passes: {error}");
                            told[part as usize] += 1;
                        }
                        let again = opened.rig.session(rules, Fault::none(part, role), holds);
                        again.outcome.unwrap_or_else(|e| panic!("{what}, again: {e}"));
                    }
                }
            }
        }
    }
    assert!(told.iter().all(|&told| told > 20), "{told:?}");
}

/// A database that a power cut has left with more to redo than memory and flash have room for, and
/// with a transaction to undo.
struct Crashed {
    rig: Rig,
    role: FlashRole,
}

impl Crashed {
    const LAST_ROUND: u64 = ROUNDS + 1;
    const FLASH_BYTES: u64 = 320 << 10;
    const CLEAN_AGE: u64 = 64 << 10;

    /// `None` if the rules do not go together.
    fn new(rules: (&Design, &Restart), role: FlashRole) -> Option<Crashed> {
        let well = || Fault::none(Part::Flash, role);
        let flash = Store::new(Crashed::FLASH_BYTES, Keep::Plain);
        let blank = Rig { flash, clean_age: Some(Crashed::CLEAN_AGE), ..Rig::blank() };
        let first = blank.session(rules, well(), |db| {
            write(db)?;
            db.write(|txn| {
                let mut other = txn.open_table(OTHER)?;
                (0..ROWS / 2).try_for_each(|key| other.insert(key, &[1; 300]))
            })
        });
        first.outcome.ok()?;
        let late = |db: &Database| {
            let open = db.begin_write()?;
            let mut other = open.open_table(OTHER)?;
            (0..ROWS / 2).try_for_each(|key| other.insert(key, &[2; 300]))?;
            scatter(db, ROUNDS)?;
            write_rounds(db, Crashed::LAST_ROUND..Crashed::LAST_ROUND + 1)?;
            drop(other);
            // What a crash cuts off is not rolled back.
            std::mem::forget(open);
            Ok(())
        };
        let second = first.rig.session_with(rules, well(), (Checkpoints::Off, None), late);
        second.outcome.expect("it goes on");
        Some(Crashed { rig: second.rig, role })
    }

    /// The requests that the device of `part` gets from an opening that nothing disturbs.
    fn requests(&self, rules: (&Design, &Restart), part: Part) -> u64 {
        let how = (Checkpoints::Off, None);
        let opened = self.rig.session_with(rules, Fault::none(part, self.role), how, |_| Ok(()));
        opened.outcome.expect("nothing disturbs it");
        opened.requests
    }

    /// Opens it while a device fails as `fault` says, then again with devices that are well.
    /// Returns whether the first opening was refused. Panics if a row is not what was committed.
    fn survives(&self, rules: (&Design, &Restart), fault: Fault, what: &str) -> bool {
        let (part, role) = (fault.part, self.role);
        let how = (Checkpoints::Off, None);
        let opened = self.rig.session_with(rules, fault, how, |_| Ok(()));
        let refused = opened.outcome.as_ref().err();
        let is_told = refused.is_none_or(|error| tells_of(error, part));
        assert!(is_told, "{what}: {refused:?}");
        let well = Fault::none(part, role);
        let again = opened.rig.session(rules, well, |db| {
            assert!(!matches!(db.cold_start(), Some(ColdStart::Contradicted)), "{what}");
            let other = db.read(|txn| {
                let other = txn.open_table(OTHER)?;
                let is_old =
                    |key| Ok::<_, Error>(other.get(key)?.expect("a row").value() == [1; 300]);
                (0..ROWS / 2).try_fold(true, |all, key| Ok::<_, Error>(all & is_old(key)?))
            });
            assert!(other?, "{what}: a row of a transaction that was cut off");
            holds_round(db, Crashed::LAST_ROUND)
        });
        again.outcome.unwrap_or_else(|error| panic!("{what}, opened again: {error}"));
        refused.is_some()
    }
}

/// The requests after which a device dies: all that an opening makes, or `count` of them, which
/// `number` decides. Writes are withheld until recovery is through: the later requests are those
/// that are let go.
fn moments(requests: u64, count: u64, number: u64) -> impl Iterator<Item = u64> {
    let step = requests.div_ceil(count).max(1);
    (number % step..requests).step_by(step as usize)
}

/// Each device fails at any request of an opening, after which the power fails or does not, and the
/// next opening finds home, log and flash as they are then.
#[test]
fn an_opening_that_fails_midway_loses_nothing() {
    let (mut openings, mut refused) = (0_u64, 0_u64);
    let of_flash = DESIGNS.iter().filter(|design| design.uses_flash());
    let all = of_flash.flat_map(|design| RESTARTS.iter().map(move |restart| (design, restart)));
    for (number, rules) in (0_u64..).zip(all) {
        for role in [FlashRole::Cache, FlashRole::Persistent] {
            let Some(crashed) = Crashed::new(rules, role) else { continue };
            for part in [Part::Home, Part::Flash, Part::Log] {
                let requests = crashed.requests(rules, part);
                for at in moments(requests, rounds().div_ceil(PLANS), number) {
                    let plan = FaultPlan { dies_after: Some(at), ..FaultPlan::default() };
                    let cuts = (at + number).is_multiple_of(2);
                    let what = format!(
                        "{} {} {role:?}: {part} dies after {at} requests, power cut: {cuts}",
                        rules.0.name, rules.1.name
                    );
                    let fault = Fault { plan, cuts, ..Fault::none(part, role) };
                    openings += 1;
                    refused += u64::from(crashed.survives(rules, fault, &what));
                }
            }
        }
    }
    println!("{openings} openings with a device that died, {refused} of them refused");
    assert!(openings > 300 && refused > openings / 3, "{refused} of {openings}");
}

/// Faults of each design, restart and device; more where the environment says so.
fn rounds() -> u64 {
    std::env::var("OPENING_FAULTS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(PLANS)
}
