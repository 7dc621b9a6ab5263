//! LBR without one of its rules.

use std::panic::{AssertUnwindSafe, catch_unwind};

use terrace_pool::RestartRules;
use terrace_rt::{Nanos, sleep};

use super::machine::{Cut, Ended, Plan, Session, run, survive};

/// A rule that is off must be missed within so many seeds.
const SEEDS_MAX: u64 = 1000;
/// Seeds in which nothing is missed with all rules on.
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
    plan.config.restart_rules.checks_page_id = false;
    plan.log_full_one_in = if seed.is_multiple_of(3) { 6 } else { 0 };
    plan
}

fn first_caught(design: &str, seeds: u64, break_rule: impl Fn(&mut RestartRules)) -> Option<u64> {
    (0..seeds).find(|&seed| {
        let mut plan = plan(design, seed);
        break_rule(&mut plan.config.restart_rules);
        !matches!(catch_unwind(AssertUnwindSafe(|| survive(&plan, 3))), Ok(Ok(_)))
    })
}

#[test]
fn every_rule_of_lbr_is_missed_when_it_is_off() {
    type Break = fn(&mut RestartRules);
    let rules: [(&str, Break); 4] = [
        ("lbr_syncs_slots", |rules| rules.lbr_syncs_slots = false),
        ("lbr_forces_before_write", |rules| rules.lbr_forces_before_write = false),
        ("lbr_forces_freed", |rules| rules.lbr_forces_freed = false),
        ("lbr_gives_up", |rules| rules.lbr_gives_up = false),
    ];
    let mut missed = Vec::new();
    for design in ["dw", "lc"] {
        for (name, break_rule) in rules {
            match first_caught(design, SEEDS_MAX, break_rule) {
                Some(seed) => println!("without {name}, {design} is caught at seed {seed}"),
                None => missed.push((name, design)),
            }
        }
        assert_eq!(first_caught(design, SEEDS_WHOLE, |_| {}), None, "{design} with all rules");
    }
    assert!(missed.is_empty(), "nobody misses {missed:?}");
}

/// Slots used again after a power cut between BEGIN_CHKPT and the table's records.
fn reused_after_half_a_checkpoint(ended_only: bool) -> u64 {
    let mut plan = plan("dw", 2);
    plan.config.restart_rules.lbr_ended_checkpoints = ended_only;
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
