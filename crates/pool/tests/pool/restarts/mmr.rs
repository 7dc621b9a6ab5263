//! MMR with one of its rules broken.

use std::panic::{AssertUnwindSafe, catch_unwind};

use terrace_pool::Mutation;
use terrace_rt::Nanos;

use super::machine::{Plan, survive};

/// A mutation must be found within this many seeds.
const SEEDS_MAX: u64 = 400;

fn first_caught(design: &str, mutation: Option<Mutation>) -> Option<u64> {
    first_caught_of(design, SEEDS_MAX, 0, mutation)
}

/// The first seed that is caught, where one in `errors_one_in` writes to flash fails.
fn first_caught_of(
    design: &str,
    seeds: u64,
    errors_one_in: u64,
    mutation: Option<Mutation>,
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
        plan.flash_error_one_in = errors_one_in;
        plan.config.mutations = [Mutation::SkipPageIdCheck].into_iter().chain(mutation).collect();
        !matches!(catch_unwind(AssertUnwindSafe(|| survive(&plan, 3))), Ok(Ok(_)))
    })
}

#[test]
fn every_mutation_of_mmr_is_found() {
    let mutations =
        [Mutation::MmrEntryBeforeSync, Mutation::MmrSkipReused, Mutation::MmrSkipModified];
    let mut missed = Vec::new();
    for design in ["dw", "lc"] {
        for mutation in mutations {
            match first_caught(design, Some(mutation)) {
                Some(seed) => println!("{mutation:?} under {design} is found at seed {seed}"),
                None => missed.push((mutation, design)),
            }
        }
        assert_eq!(first_caught(design, None), None, "{design} without mutation");
    }
    assert!(missed.is_empty(), "nothing finds {missed:?}");
}

#[test]
fn a_table_that_cannot_be_written_is_given_up_and_nothing_stops() {
    const ERRORS_ONE_IN: [u64; 2] = [4, 16];
    for design in ["dw", "lc"] {
        let caught = ERRORS_ONE_IN.map(|errors_one_in| {
            // Were the engine to stop, the last session would not close.
            let whole = first_caught_of(design, 60, errors_one_in, None);
            assert_eq!(whole, None, "{design}, one in {errors_one_in}");
            first_caught_of(design, SEEDS_MAX, errors_one_in, Some(Mutation::MmrNeverGivesUp))
        });
        println!("where the table is believed all the same, {design} is caught at {caught:?}");
        assert!(caught.iter().any(Option::is_some), "nothing finds it under {design}");
    }
}
