//! LBR with one of its rules broken.

use std::panic::{AssertUnwindSafe, catch_unwind};

use terrace_pool::{Mutation, Mutations};
use terrace_rt::{Nanos, sleep};

use super::machine::{Cut, Ended, Plan, Session, run, survive};

/// A mutation must be found within this many seeds.
const SEEDS_MAX: u64 = 1000;
/// Seeds in which nothing is found without a mutation.
const SEEDS_WHOLE: u64 = 100;

/// As published: the page id of what is read is not looked at.
fn plan(design: &str, seed: u64) -> Plan {
    let mut plan = Plan::new(design, "lbr", seed);
    plan.config.frames = 16;
    plan.config.flash_slots = 24;
    plan.pages = 80;
    plan.home_stall = Nanos(100_000);
    plan.flash_stall = Nanos(5_000_000);
    plan.checkpoint_every = Nanos(2_000_000);
    plan.commit_every = Nanos(3_000_000);
    plan.config.restart_tuning.lbr_group = if seed.is_multiple_of(2) { 8 } else { 1 };
    plan.config.mutations = Mutation::SkipPageIdCheck.into();
    plan.log_full_one_in = if seed.is_multiple_of(3) { 6 } else { 0 };
    plan
}

fn first_caught(design: &str, seeds: u64, mutation: Option<Mutation>) -> Option<u64> {
    (0..seeds).find(|&seed| {
        let mut plan = plan(design, seed);
        plan.config.mutations = mutation.into_iter().fold(plan.config.mutations, Mutations::and);
        !matches!(catch_unwind(AssertUnwindSafe(|| survive(&plan, 3))), Ok(Ok(_)))
    })
}

#[test]
fn every_mutation_of_lbr_is_found() {
    let mutations = [
        Mutation::LbrRecordBeforeSync,
        Mutation::LbrWriteBeforeForce,
        Mutation::LbrWriteBeforeChange,
        Mutation::LbrNeverGivesUp,
    ];
    let mut missed = Vec::new();
    for design in ["dw", "lc"] {
        for mutation in mutations {
            match first_caught(design, SEEDS_MAX, Some(mutation)) {
                Some(seed) => println!("{mutation:?} under {design} is found at seed {seed}"),
                None => missed.push((mutation, design)),
            }
        }
        assert_eq!(first_caught(design, SEEDS_WHOLE, None), None, "{design} without mutation");
    }
    assert!(missed.is_empty(), "nothing finds {missed:?}");
}

/// Slots used again after a power cut between BEGIN_CHKPT and the table's records.
fn reused_after_half_a_checkpoint(ended_only: bool) -> u64 {
    let mut plan = plan("dw", 2);
    if !ended_only {
        plan.config.mutations = plan.config.mutations.and(Mutation::LbrUnendedCheckpoint);
    }
    let script = |opened: Session, _: &_| {
        (0..80).for_each(|page| opened.read(page));
        opened.checkpoint(false)?;
        opened.begin_checkpoint();
        loop {
            sleep(Nanos(1_000_000_000));
        }
    };
    let cut = Some(Cut::Working(Nanos(2_000_000_000)));
    let (machine, ended) = run(&plan, None, 1, cut, script);
    assert!(matches!(ended, Ended::Cut));
    let reused = std::cell::Cell::new(0);
    let (_, ended) = run(&plan, Some(&machine), 2, None, |opened, _| {
        reused.set(opened.reused);
        Ok(())
    });
    assert!(matches!(ended, Ended::Done));
    reused.get()
}

#[test]
fn a_checkpoint_that_did_not_end_does_not_count() {
    assert!(reused_after_half_a_checkpoint(true) > 20);
    assert_eq!(reused_after_half_a_checkpoint(false), 0);
}
