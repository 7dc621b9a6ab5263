//! Flash as a part of the database: as long as it survives, no power cut loses anything; without
//! it, or with another, the database does not open; and each mutation that breaks this is found.

use std::panic::catch_unwind;

use terrace_policy::{FlashRole, designs, restarts};
use terrace_pool::Mutation;
use terrace_workload::torture::{self, Fixed, Report};

/// The designs that keep changed pages on flash, in place and appended.
const DESIGNS: [&str; 8] = ["face", "face-gr", "face-base", "fasc", "cac", "cc", "lc", "auto"];
/// Seeds of each.
const SEEDS: u64 = 12;

fn persistent(design: &str, restart: &str) -> Fixed {
    Fixed {
        design: designs::find(design).ok(),
        restart: restarts::find(restart).ok(),
        flash_role: FlashRole::Persistent,
        ..Fixed::default()
    }
}

#[test]
fn what_flash_has_survives_and_a_database_without_its_flash_stays_shut() {
    for design in DESIGNS {
        let mut total = Report::default();
        for seed in 0..SEEDS {
            let report = torture::run_fixed(seed, persistent(design, "warm"));
            let first = report.failures.first().map(|(_, failure)| failure.to_string());
            assert_eq!(first, None, "{design}: {} --persistent-flash", Report::command(seed));
            total.add(report);
        }
        let cuts = total.cuts;
        assert!(cuts.with_dirty_flash > 0 && cuts.in_recovery > 0, "{design}: {cuts:?}");
        assert!(total.refused > 0, "{design}: no opening was refused of {cuts:?}");
        assert!(total.verified > SEEDS, "{design}: {total:?}");
    }
}

/// The maps of FaCE, FASC and FASC_T: the log is redone before the database is open.
#[test]
fn maps_that_are_redone_before_opening_lose_nothing() {
    let pairs = [
        ("face", "map-log"),
        ("face", "map-segments"),
        ("face-base", "map-segments"),
        ("cac", "map-zone"),
        ("cc", "map-zone"),
        ("fasc", "map-log"),
        ("fasc", "map-chunks"),
        ("lc", "map-chunks"),
        ("fasc", "map-through"),
        ("cac", "map-through"),
    ];
    for (design, restart) in pairs {
        for role in [FlashRole::Persistent, FlashRole::Cache] {
            for seed in 100..108 {
                let fixed = Fixed { flash_role: role, ..persistent(design, restart) };
                let report = torture::run_fixed(seed, fixed);
                let first = report.failures.first().map(|(_, failure)| failure.to_string());
                assert_eq!(first, None, "{design} with {restart}: {}", Report::command(seed));
            }
        }
    }
}

/// Each mutation, a design that it harms, its restart, and the seeds within which that is found.
const MUTATIONS: [(Mutation, &str, &str, u64); 8] = [
    (Mutation::DropOldBases, "face", "warm", 200),
    (Mutation::DropOldBases, "cac", "warm", 200),
    (Mutation::DropBasesAtFront, "face", "warm", 400),
    (Mutation::ReuseBeforeTable, "face", "warm", 400),
    (Mutation::ReuseBeforeTable, "fasc", "warm", 400),
    (Mutation::ReuseBeforeHomeSync, "face", "warm", 400),
    (Mutation::SkipFrontier, "face", "map-segments", 100),
    (Mutation::SkipFrontier, "cac", "map-zone", 400),
];

#[test]
fn every_mutation_is_found() {
    for (mutation, design, restart, seeds) in MUTATIONS {
        let mut fixed = persistent(design, restart);
        fixed.mutations = mutation.into();
        fixed.is_calm = true;
        let is_found = |&seed: &u64| {
            catch_unwind(|| torture::run_fixed(seed, fixed))
                .map_or(true, |report| !report.failures.is_empty())
        };
        let found = (0..seeds).find(is_found);
        println!("{mutation:?} under {design} with {restart}: seed {found:?}");
        assert!(found.is_some(), "{seeds} seeds do not find {mutation:?} under {design}");
    }
}
