//! MMR without one of its rules.

use std::panic::{AssertUnwindSafe, catch_unwind};

use terrace_pool::RestartRules;
use terrace_rt::Nanos;

use super::machine::{Plan, survive};

/// A rule that is off must be missed within so many seeds.
const SEEDS_MAX: u64 = 400;

fn first_caught(design: &str, break_rule: impl Fn(&mut RestartRules)) -> Option<u64> {
    first_caught_of(design, SEEDS_MAX, 0, break_rule)
}

/// The first seed that is caught, where one in `errors_one_in` writes to flash fails.
fn first_caught_of(
    design: &str,
    seeds: u64,
    errors_one_in: u64,
    break_rule: impl Fn(&mut RestartRules),
) -> Option<u64> {
    (0..seeds).find(|&seed| {
        let mut plan = Plan::new(design, "mmr", seed);
        plan.config.frames = 16;
        plan.config.restart_tuning.mmr_unit = 512;
        plan.config.flash_slots = 24;
        plan.pages = 80;
        // Pages change and come home while others are on their way to flash.
        plan.home_stall = Nanos(100_000);
        plan.flash_stall = Nanos(5_000_000);
        plan.checkpoint_every = Nanos(2_000_000);
        plan.config.restart_rules.checks_page_id = false;
        plan.flash_error_one_in = errors_one_in;
        break_rule(&mut plan.config.restart_rules);
        !matches!(catch_unwind(AssertUnwindSafe(|| survive(&plan, 3))), Ok(Ok(_)))
    })
}

#[test]
fn every_rule_of_mmr_is_missed_when_it_is_off() {
    type Break = fn(&mut RestartRules);
    let rules: [(&str, Break); 3] = [
        ("mmr_syncs_slots", |rules| rules.mmr_syncs_slots = false),
        ("mmr_hardens_reused", |rules| rules.mmr_hardens_reused = false),
        ("mmr_hardens_modified", |rules| rules.mmr_hardens_modified = false),
    ];
    let mut missed = Vec::new();
    for design in ["dw", "lc"] {
        for (name, break_rule) in rules {
            match first_caught(design, break_rule) {
                Some(seed) => println!("without {name}, {design} is caught at seed {seed}"),
                None => missed.push((name, design)),
            }
        }
        assert_eq!(first_caught(design, |_| {}), None, "{design} with all rules");
    }
    assert!(missed.is_empty(), "nobody misses {missed:?}");
}

#[test]
fn a_table_that_cannot_be_written_is_given_up_and_nothing_stops() {
    const ERRORS_ONE_IN: [u64; 2] = [4, 16];
    for design in ["dw", "lc"] {
        let caught = ERRORS_ONE_IN.map(|errors_one_in| {
            // Were the engine to stop, the last session would not close.
            let whole = first_caught_of(design, 60, errors_one_in, |_| {});
            assert_eq!(whole, None, "{design}, one in {errors_one_in}");
            let ignored = |rules: &mut RestartRules| rules.mmr_gives_up = false;
            first_caught_of(design, SEEDS_MAX, errors_one_in, ignored)
        });
        println!("where the table is believed all the same, {design} is caught at {caught:?}");
        assert!(caught.iter().any(Option::is_some), "nobody misses it under {design}");
    }
}
