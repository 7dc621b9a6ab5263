//! Flash as a part of the database: as long as it survives, no power cut loses anything; without
//! it, or with another, the database does not open; and each rule behind that is missed when off.

use std::panic::catch_unwind;

use terrace_policy::{FlashRole, designs, restarts};
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

/// Switches off a rule.
type Switch = fn(&mut terrace_pool::Rules);

/// Each rule, a design that needs it, its restart if it is not `warm`, and the seeds within which
/// its absence is found.
const RULES: [(&str, &str, u64, Switch); 8] = [
    ("bases outlast changes", "face", 200, |rules| rules.keeps_old_bases = false),
    ("bases outlast changes", "cac", 200, |rules| rules.keeps_old_bases = false),
    ("bases move on", "face", 400, |rules| rules.bases_move_on = false),
    ("slots are free in the table", "face", 400, IN_TABLE_OFF),
    ("slots are free in the table", "fasc", 400, IN_TABLE_OFF),
    ("the front is synced home", "face", 400, |rules| rules.front_is_synced_home = false),
    ("the frontier is read", "face map-segments", 100, |rules| rules.frontier_is_read = false),
    ("the frontier is read", "cac map-zone", 100, |rules| rules.frontier_is_read = false),
];
const IN_TABLE_OFF: Switch = |rules| rules.reused_slots_are_free_in_table = false;

#[test]
fn every_switched_off_rule_is_found() {
    for (name, design, seeds, switch) in RULES {
        let (design, restart) = design.split_once(' ').unwrap_or((design, "warm"));
        let mut fixed = persistent(design, restart);
        switch(&mut fixed.rules);
        fixed.is_calm = true;
        let is_found = |&seed: &u64| {
            catch_unwind(|| torture::run_fixed(seed, fixed))
                .map_or(true, |report| !report.failures.is_empty())
        };
        let found = (0..seeds).find(is_found);
        println!("{name} is off under {design}: seed {found:?}");
        assert!(found.is_some(), "{name} is off under {design} and {seeds} seeds see nothing");
    }
}
