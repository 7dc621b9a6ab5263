//! The crash matrix [sources.R23]: scripts that go through each path, cut at every event at which a
//! device changes, and opened again after everything that may have become of the flash device.
//!
//! Modules in reading order:
//!
//! - `script`: the scenarios, as data. `seen`: what shows that they took their path. `walk`: the
//!   client that takes their steps.
//! - `disks`: the devices and their fates. `stage`: a database with a past.
//! - `case`: one cut, and what is found after it. `tpcc`: TPC-C cut at random events.
//! - `report`: the counts.
//!
//! - M1: first cuts are exhaustive: every event of a path at which a write is submitted or
//!   complete, or a barrier is complete, on any device (a log force is such a barrier), and the
//!   event before it, for what the client knows by then. Between two of them no device changes.
//! - M2: each is run once for every fate, each time with another draw of what the cut leaves of
//!   volatile caches and writes in flight; one in `SECOND_ONE_IN` of them with a second cut, at a
//!   random event of the recovery.
//! - M3: after each, all rows are held against the ledger, trees and books are checked, the
//!   database goes on, and is opened once more.
//! - M4: where flash is a part of the database, a device that is not whole is refused, and with the
//!   one that was there all is found; or it was not needed, and all is found without it; or it is
//!   damaged, and an error says so. Nothing else may be found.

mod applies;
mod case;
mod disks;
mod report;
mod script;
mod seen;
mod stage;
mod tpcc;
mod walk;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use terrace_policy::{DESIGNS, Design, FlashRole, Restart, RestartKind};
use terrace_pool::Mutations;
use terrace_rt::Prng;

pub use case::{Case, Cut};
pub use disks::{Fate, Torn};
pub use report::{Counts, MatrixReport};
pub use script::{SCRIPTS, Script};

pub(super) use disks::spec;

use super::ledger::Failure;
use super::scenario::restarts_of;
use case::Uncut;
use stage::{Setting, Stage};

/// One case in this number gets a second cut as well.
const SECOND_ONE_IN: u64 = 4;

/// The name of the walks that run TPC-C, in the place of a script's.
pub const TPCC: &str = "tpcc";

/// What is cut.
#[derive(Clone, Copy)]
enum Subject {
    Script(&'static Script),
    Tpcc,
}

/// A script, or TPC-C, under one design and restart, with one seed.
#[derive(Clone, Copy)]
pub struct Walk {
    subject: Subject,
    design: Design,
    restart: Restart,
    role: FlashRole,
    mutations: Mutations,
    seed: u64,
}

/// Which walks to take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice {
    /// This script only, or `TPCC`.
    pub script: Option<&'static str>,
    /// This design only.
    pub design: Option<Design>,
    /// This restart only.
    pub restart: Option<Restart>,
    /// What flash is to the database.
    pub role: FlashRole,
    /// Faults that tests put in force.
    pub mutations: Mutations,
}

/// The walks of `choice` with `seed`, in a fixed order.
#[must_use]
pub fn walks(choice: Choice, seed: u64) -> Vec<Walk> {
    let mut walks = Vec::new();
    for subject in SCRIPTS.iter().map(Subject::Script).chain([Subject::Tpcc]) {
        for design in DESIGNS {
            let Choice { role, mutations, .. } = choice;
            for restart in restarts_of(&design, choice.restart, role) {
                let walk = Walk { subject, design, restart, role, mutations, seed };
                let is_chosen = choice.script.is_none_or(|name| name == walk.name())
                    && choice.design.is_none_or(|chosen| chosen == design);
                if is_chosen && walk.applies() {
                    walks.push(walk);
                }
            }
        }
    }
    walks
}

/// The fates that are tried under `design` and `restart`; without flash only one differs from the
/// others. MMR and LBR keep no LSN of a slot's page, and cannot tell a flash device that went back
/// in time since it was opened: the papers' devices do not.
fn fates(design: &Design, restart: &Restart) -> impl Iterator<Item = Fate> {
    let kinds = [RestartKind::MemoryMapped, RestartKind::LogBased];
    let tells_versions = !kinds.contains(&restart.kind);
    let fates = if design.uses_flash() { &Fate::ALL } else { &Fate::ALL[..1] };
    fates.iter().copied().filter(move |&fate| tells_versions || fate != Fate::OldHour)
}

impl Walk {
    fn name(&self) -> &'static str {
        match self.subject {
            Subject::Script(script) => script.name,
            Subject::Tpcc => TPCC,
        }
    }

    fn applies(&self) -> bool {
        match self.subject {
            Subject::Script(script) => (script.applies)(&self.design, &self.restart),
            Subject::Tpcc => true,
        }
    }

    /// The case of this walk that `cut` names.
    fn case(&self, cut: Option<Cut>) -> Case {
        let Walk { design, restart, role, seed, .. } = *self;
        Case { script: self.name(), design, restart, role, seed, cut }
    }

    /// Runs one in `one_in` of the walk's cases: all with 1. TPC-C always runs whole.
    #[must_use]
    pub fn run(&self, one_in: u64) -> MatrixReport {
        let mut report = MatrixReport { walks: 1, ..MatrixReport::default() };
        let outcome = match self.subject {
            Subject::Script(script) => self.run_script(script, one_in, &mut report),
            Subject::Tpcc => {
                let tier = (self.design, self.restart, self.role);
                guarded(|| tpcc::run(tier, self.mutations, self.seed))
                    .map(|found| report.count_tpcc(&found))
            }
        };
        if let Err(failure) = outcome {
            report.failures.push((self.case(None), failure));
        }
        report
    }

    /// Draws which cases are taken: another sample for each walk.
    fn sample(&self) -> Prng {
        let names = [self.name(), self.design.name, self.restart.name];
        let mix = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        Prng::from_seed(names.iter().flat_map(|name| name.bytes()).fold(self.seed, mix))
    }

    fn setting(&self, script: &'static Script) -> Setting {
        let Walk { design, restart, role, mutations, seed, .. } = *self;
        Setting { script, design, restart, role, mutations, seed }
    }

    fn run_script(
        &self,
        script: &'static Script,
        one_in: u64,
        report: &mut MatrixReport,
    ) -> Result<(), Failure> {
        let setting = self.setting(script);
        let (stage, uncut) = guarded(|| {
            let stage = Stage::build(&setting)?;
            let uncut = case::uncut(&setting, &stage)?;
            Ok((stage, uncut))
        })?;
        if uncut.marks.is_empty() || !(script.shows)(&uncut.seen) {
            let what = format!("the script does not take its path: {}", uncut.seen);
            return Err(Failure::Error(what));
        }
        let mut sample = self.sample();
        for event in cut_events(&uncut) {
            for fate in fates(&self.design, &self.restart) {
                let (is_taken, has_second) = (sample.chance(one_in), sample.chance(SECOND_ONE_IN));
                let draw = sample.next_u64();
                if !is_taken {
                    continue;
                }
                let cut = Cut { event, fate, second: None };
                report.count(&self.case(None), cut, &uncut);
                let opening = self.run_cut(&setting, &stage, cut, report);
                if let (Some(opening), true) = (opening, has_second) {
                    let second = Some(1 + draw % opening.max(1));
                    report.second_cuts += 1;
                    self.run_cut(&setting, &stage, Cut { second, ..cut }, report);
                }
            }
        }
        Ok(())
    }

    /// Runs one case; the events of its opening, if nothing was wrong.
    fn run_cut(
        &self,
        setting: &Setting,
        stage: &Stage,
        cut: Cut,
        report: &mut MatrixReport,
    ) -> Option<u64> {
        match guarded(|| case::run(setting, stage, cut)) {
            Ok(outcome) => {
                if cut.second.is_none() && !outcome.refused {
                    report.count_warm(cut, outcome.warm);
                }
                report.verified += outcome.verified;
                report.refused += u64::from(outcome.refused);
                report.damaged += u64::from(outcome.damaged);
                report.torn.add(outcome.torn);
                (!outcome.damaged).then_some(outcome.opening)
            }
            Err(failure) => {
                report.failures.push((self.case(Some(cut)), failure));
                None
            }
        }
    }

    /// Runs one case of the walk, and nothing else.
    ///
    /// # Panics
    ///
    /// If it is a walk of TPC-C, which has no cases.
    #[must_use]
    pub fn repeat(&self, cut: Cut) -> MatrixReport {
        let Subject::Script(script) = self.subject else { panic!("TPC-C has no cases") };
        let setting = self.setting(script);
        let mut report = MatrixReport { walks: 1, cuts: 1, ..MatrixReport::default() };
        report.second_cuts = u64::from(cut.second.is_some());
        match guarded(|| Stage::build(&setting)) {
            Ok(stage) => drop(self.run_cut(&setting, &stage, cut, &mut report)),
            Err(failure) => report.failures.push((self.case(Some(cut)), failure)),
        }
        report
    }
}

/// The events to cut at (M1).
fn cut_events(uncut: &Uncut) -> BTreeSet<u64> {
    let marks = uncut.marks.iter().map(|mark| mark.2);
    marks
        .flat_map(|event| [event - 1, event])
        .filter(|event| (1..uncut.events).contains(event))
        .collect()
}

/// What a panic says is a failure like any other.
fn guarded<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        Err(Failure::Error(format!("panic: {}", text.unwrap_or("no message"))))
    })
}
