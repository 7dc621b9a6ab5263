//! What the matrix counted.

use std::collections::BTreeMap;

use terrace_device::model::MarkKind;

use super::super::ledger::Failure;
use super::case::{Case, Cut, Uncut};
use super::disks::{Part, Torn};
use super::tpcc::TpccReport;

/// Cuts by name.
pub type Counts = BTreeMap<&'static str, u64>;

/// What walks came to.
#[derive(Clone, Debug, Default)]
pub struct MatrixReport {
    /// Scripts walked, each under one design and restart.
    pub walks: u64,
    /// First cuts of scripts.
    pub cuts: u64,
    /// Second cuts, in recovery.
    pub second_cuts: u64,
    /// Restarts whose database was held against the ledger.
    pub verified: u64,
    /// Openings that were refused for want of the flash that the database had.
    pub refused: u64,
    /// Cases that ended with an error that named what damage had made of a page or the table.
    pub damaged: u64,
    /// First cuts by script.
    pub by_script: Counts,
    /// First cuts by design.
    pub by_design: Counts,
    /// First cuts by restart.
    pub by_restart: Counts,
    /// First cuts by what became of the flash device.
    pub by_fate: Counts,
    /// Openings after a cut that found slots filled, by what became of the flash device.
    pub warm_by_fate: Counts,
    /// First cuts by what had just happened on a device; a cut just before counts with it.
    pub by_moment: Counts,
    /// Cuts of TPC-C while it was opened or checked.
    pub tpcc_in_opening: u64,
    /// Cuts of TPC-C while it ran.
    pub tpcc_in_run: u64,
    /// Times that the twelve conditions were checked.
    pub tpcc_checks: u64,
    /// What all cuts took from the devices.
    pub torn: Torn,
    /// What was wrong.
    pub failures: Vec<(Case, Failure)>,
}

impl Torn {
    /// Adds what another cut took.
    pub fn add(&mut self, other: Torn) {
        self.exposed += other.exposed;
        self.dropped += other.dropped;
        self.torn += other.torn;
    }
}

fn moment(part: Part, kind: MarkKind) -> &'static str {
    match (part, kind) {
        (Part::Home, MarkKind::WriteSubmitted) => "home write begun",
        (Part::Home, MarkKind::WriteCompleted) => "home write done",
        (Part::Home, MarkKind::Synced) => "home barrier",
        (Part::Flash, MarkKind::WriteSubmitted) => "flash write begun",
        (Part::Flash, MarkKind::WriteCompleted) => "flash write done",
        (Part::Flash, MarkKind::Synced) => "flash barrier",
        (Part::Log, MarkKind::WriteSubmitted) => "log write begun",
        (Part::Log, MarkKind::WriteCompleted) => "log write done",
        (Part::Log, MarkKind::Synced) => "log force",
    }
}

fn add(counts: &mut Counts, name: &'static str, count: u64) {
    *counts.entry(name).or_default() += count;
}

impl MatrixReport {
    /// Counts the first cut of a script.
    pub(super) fn count(&mut self, case: &Case, cut: Cut, uncut: &Uncut) {
        self.cuts += 1;
        add(&mut self.by_script, case.script, 1);
        add(&mut self.by_design, case.design.name, 1);
        add(&mut self.by_restart, case.restart.name, 1);
        add(&mut self.by_fate, cut.fate.name(), 1);
        let near = |event: &u64| *event == cut.event || *event == cut.event + 1;
        let mark = uncut.marks.iter().find(|mark| near(&mark.2)).expect("a cut is at a mark");
        add(&mut self.by_moment, moment(mark.0, mark.1), 1);
    }

    /// Counts an opening that found `slots` filled.
    pub(super) fn count_warm(&mut self, cut: Cut, slots: u64) {
        if slots > 0 {
            add(&mut self.warm_by_fate, cut.fate.name(), 1);
        }
    }

    /// Counts the cuts of a run of TPC-C.
    pub(super) fn count_tpcc(&mut self, found: &TpccReport) {
        self.tpcc_in_opening += found.in_opening;
        self.tpcc_in_run += found.in_run;
        self.tpcc_checks += found.checks;
        self.refused += found.refused;
        self.torn.add(found.torn);
    }

    /// Adds what other walks came to.
    pub fn add(&mut self, other: MatrixReport) {
        self.tpcc_in_opening += other.tpcc_in_opening;
        self.tpcc_in_run += other.tpcc_in_run;
        self.tpcc_checks += other.tpcc_checks;
        self.walks += other.walks;
        self.cuts += other.cuts;
        self.second_cuts += other.second_cuts;
        self.verified += other.verified;
        self.refused += other.refused;
        self.damaged += other.damaged;
        for (counts, others) in [
            (&mut self.by_script, other.by_script),
            (&mut self.by_design, other.by_design),
            (&mut self.by_restart, other.by_restart),
            (&mut self.by_fate, other.by_fate),
            (&mut self.by_moment, other.by_moment),
            (&mut self.warm_by_fate, other.warm_by_fate),
        ] {
            others.into_iter().for_each(|(name, count)| add(counts, name, count));
        }
        self.torn.add(other.torn);
        self.failures.extend(other.failures);
    }
}
