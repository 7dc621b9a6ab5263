//! FaCE's map, which an opening completes by reading slots: these may have pages of a database that
//! had the flash device before.

use std::panic::{AssertUnwindSafe, catch_unwind};

use terrace_pool::{Mutation, Mutations};
use terrace_rt::Nanos;

use super::machine::{Cut, Ended, Plan, run};

/// Seeds in which nothing is found without a mutation, and within which the mutation is found.
const SEEDS: u64 = 100;
/// Changes by the database that had the flash device before: its log grows as quickly, slot by
/// slot, as that of the database that follows, so that the LSNs of its pages look possible.
const CHANGES: u64 = 320;

/// A new database on the flash device of another: power cut, and opened again.
fn follow(seed: u64, mutations: Mutations) -> Result<u64, String> {
    let mut plan = Plan::new("face", "map-segments", seed);
    (plan.pages, plan.config.flash_slots) = (100, 320);
    let (former, ended) = run(&plan, None, seed, None, |opened, _| {
        for change in 0..CHANGES {
            opened.change(change % opened.machine.plan.pages, change);
            opened.begin_checkpoint();
        }
        opened.close()
    });
    assert!(matches!(ended, Ended::Done), "the former database closes");
    let mut machine = former.followed(seed);
    machine.plan.config.mutations = mutations;
    let cut = Some(Cut::Working(Nanos(1_000_000 * (1 + seed))));
    let (machine, ended) = run(&plan, Some(&machine), seed + 1, cut, |opened, world| {
        assert_eq!(opened.reused, 0, "nothing of the former database is used");
        opened.work(world, seed)
    });
    assert!(matches!(ended, Ended::Cut), "the power is cut");
    let reused = std::cell::Cell::new(0);
    let (_, ended) = run(&plan, Some(&machine), seed + 2, None, |opened, _| {
        reused.set(opened.reused);
        opened.close()
    });
    match ended {
        Ended::Done => Ok(reused.get()),
        Ended::Lost(lost) => Err(lost),
        Ended::Cut => unreachable!("no cut was asked for"),
    }
}

#[test]
fn pages_of_a_former_database_are_not_believed() {
    let mut reused = 0;
    for seed in 0..SEEDS {
        reused += follow(seed, Mutations::NONE).unwrap_or_else(|lost| panic!("{seed}: {lost}"));
    }
    assert!(reused > SEEDS, "{reused} slots used again");
    let mutated = |seed| follow(seed, Mutation::TrustUnknownSlots.into());
    let found = (0..SEEDS)
        .find(|&seed| !matches!(catch_unwind(AssertUnwindSafe(|| mutated(seed))), Ok(Ok(_))));
    println!("TrustUnknownSlots is found at seed {found:?}");
    assert!(found.is_some(), "no seed below {SEEDS} finds TrustUnknownSlots");
}
