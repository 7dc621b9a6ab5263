//! The torture finds nothing in the engine as it is, and finds every mutation.

use std::panic::catch_unwind;

use terrace_policy::{designs, restarts};
use terrace_pool::Mutation;
use terrace_workload::torture::{self, Fixed, Report};

/// Seeds of the suite.
const SEEDS: u64 = 200;
/// Seeds that have found something: a cache that failed as an opening let its writes go; a root
/// that had no room for its last child, by six bytes of rounding; a slot that LBR believed to hold
/// more than redo had done when the slot was written; a reading of the log for each page that a
/// silent flash had lost.
const FOUND: [u64; 4] = [610_730, 9_300_773, 12_001_127, 12_100_109];

#[test]
fn two_hundred_seeds_lose_nothing() {
    let mut total = Report::default();
    for seed in (0..SEEDS).chain(FOUND) {
        let report = torture::run(seed);
        assert!(report.failures.is_empty(), "{}: {}", Report::command(seed), report.failures[0].1,);
        total.add(report);
    }
    let cuts = total.cuts;
    assert!(cuts.total > SEEDS, "{cuts:?}");
    assert!(cuts.in_recovery > 0 && cuts.in_run > 0 && cuts.in_checkpoint > 0, "{cuts:?}");
    assert!(cuts.with_dirty_pages > 0 && cuts.with_dirty_flash > 0, "{cuts:?}");
    assert!(cuts.with_io_in_flight > 0 && cuts.with_flash_wiped > 0, "{cuts:?}");
    assert!(cuts.pages_dropped > 0 && cuts.pages_torn > 0, "{cuts:?}");
    assert!(total.commits > 1000 && total.losses_allowed > 0);
    let mishaps = total.mishaps;
    assert!(mishaps.panics > 0 && mishaps.savepoints > 0 && mishaps.remade > 0, "{mishaps:?}");
    assert!(mishaps.too_large > 0 && mishaps.stopped > 0, "{mishaps:?}");
    assert!(mishaps.device_faults > 0, "{mishaps:?}");
}

#[test]
fn a_seed_decides_the_torture() {
    for seed in [3, 4] {
        let (one, two) = (torture::run(seed), torture::run(seed));
        assert_eq!(format!("{one:?}"), format!("{two:?}"));
    }
}

/// Mutations, a design that they harm, and the seeds within which that is found.
const MUTATIONS: [(&[Mutation], &str, u64); 15] = [
    (&[Mutation::SkipDoublewrite], "no-ssd", 40),
    (&[Mutation::PageBeforeLog], "lc", 40),
    (&[Mutation::EolAfterJoin], "lc", 40),
    (&[Mutation::JoinModified], "lc", 150),
    // Either of the two rules alone makes up for the other.
    (&[Mutation::BufWriteBeforeSync, Mutation::EntryEndsBeforeSync], "no-ssd", 40),
    (&[Mutation::InvalidateBeforeEntry], "lc", 150),
    (&[Mutation::KeepStaleCopy], "cw", 20),
    (&[Mutation::KeepStaleCopy], "dw", 20),
    (&[Mutation::KeepStaleCopy], "lc", 20),
    (&[Mutation::KeepStaleCopy], "tac", 20),
    (&[Mutation::CleanBeforeBothWrites], "dw", 200),
    (&[Mutation::OldestWithoutFlash], "lc", 40),
    (&[Mutation::SkipVerify], "no-ssd", 40),
    (&[Mutation::TwoHomeWrites], "lc", 400),
    (&[Mutation::EntryMovesBeforeWrite], "lc", 400),
];

#[test]
fn every_mutation_is_found() {
    for (mutations, design, seeds) in MUTATIONS {
        let mut fixed = Fixed { design: designs::find(design).ok(), ..Fixed::default() };
        fixed.mutations = mutations.iter().copied().collect();
        fixed.is_calm = true;
        match mutations[0] {
            Mutation::TwoHomeWrites => {
                // A write must last while its page is changed and written again, by eviction and
                // by a cleaner that has much to do.
                (fixed.stall_one_in, fixed.lambda) = (Some(4), Some(0.1));
            }
            Mutation::EntryMovesBeforeWrite => {
                // The power must fail while a write to flash lasts, of many such pages.
                (fixed.stall_one_in, fixed.lambda) = (Some(2), Some(0.9));
                fixed.restart = restarts::find("forget").ok();
            }
            _ => {}
        }
        // An engine that breaks its own rules may well trip over one of its assertions.
        let is_found = |&seed: &u64| {
            catch_unwind(|| torture::run_fixed(seed, fixed))
                .map_or(true, |report| !report.failures.is_empty())
        };
        let found = (0..seeds).find(is_found);
        println!("{mutations:?} under {design}: seed {found:?}");
        assert!(found.is_some(), "{seeds} seeds do not find {mutations:?} under {design}");
    }
}

/// An assertion that failed on the way used to abort the process: the last handle of the database
/// wanted to close it, and so to wait, while its task was unwound.
#[test]
fn an_engine_that_trips_over_its_assertions_is_a_failure_and_no_abort() {
    let mut tripped = 0;
    for design in ["dw", "lc"] {
        let mut fixed = Fixed { design: designs::find(design).ok(), ..Fixed::default() };
        fixed.mutations = Mutation::KeepStaleCopy.into();
        fixed.is_calm = true;
        let run = |seed| catch_unwind(|| torture::run_fixed(seed, fixed));
        tripped += (0..12).filter(|&seed| run(seed).is_err()).count();
    }
    assert!(tripped > 0, "no assertion noticed");
}
