//! The torture finds nothing in the engine as it is, and finds every rule that is switched off.

use std::panic::catch_unwind;

use terrace_policy::{designs, restarts};
use terrace_workload::torture::{self, Fixed, Report};

/// Seeds of the suite.
const SEEDS: u64 = 200;

#[test]
fn two_hundred_seeds_lose_nothing() {
    let mut total = Report::default();
    for seed in 0..SEEDS {
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

/// Switches off a rule.
type Switch = fn(&mut terrace_pool::Rules);

/// Each rule, a design that needs it, and the seeds within which its absence is found.
const RULES: [(&str, &str, u64, Switch); 15] = [
    ("copies before home", "no-ssd", 40, |rules| rules.copies_before_home = false),
    ("log before page", "lc", 40, |rules| rules.wal_before_page = false),
    ("EOL before pages join", "lc", 40, |rules| rules.buf_write_eol_rule = false),
    ("join only if not modified", "lc", 150, |rules| rules.buf_write_join_rule = false),
    // Either of the two alone makes up for the other.
    ("home synced before the log forgets", "no-ssd", 40, |rules| {
        rules.sync_before_buf_write = false;
        rules.entry_until_sync = false;
    }),
    ("entry before invalidation", "lc", 150, |rules| rules.entry_before_invalidation = false),
    ("invalidate on modify", "cw", 20, INVALIDATE_OFF),
    ("invalidate on modify", "dw", 20, INVALIDATE_OFF),
    ("invalidate on modify", "lc", 20, INVALIDATE_OFF),
    ("invalidate on modify", "tac", 20, INVALIDATE_OFF),
    ("clean after both writes", "dw", 200, |rules| rules.dw_clean_after_both = false),
    ("oldest covers flash", "lc", 40, |rules| rules.oldest_covers_flash = false),
    ("verify reads", "no-ssd", 40, |rules| rules.verify_reads = false),
    (ONE_HOME_WRITE, "lc", 400, |rules| rules.in_flight_home_writes = false),
    (ENTRY_MOVES, "lc", 400, |rules| rules.lc_entry_moves_after_flash_write = false),
];
const INVALIDATE_OFF: Switch = |rules| rules.invalidate_on_modify = false;
const ONE_HOME_WRITE: &str = "one home write of a page at a time";
const ENTRY_MOVES: &str = "entry moves after the flash write";

#[test]
fn every_switched_off_rule_is_found() {
    for (name, design, seeds, switch) in RULES {
        let mut fixed = Fixed { design: designs::find(design).ok(), ..Fixed::default() };
        switch(&mut fixed.rules);
        fixed.is_calm = true;
        if name == ONE_HOME_WRITE {
            // A write must last while its page is changed and written again, by eviction and by
            // a cleaner that has much to do.
            (fixed.stall_one_in, fixed.lambda) = (Some(4), Some(0.1));
        }
        if name == ENTRY_MOVES {
            // The power must fail while a write to flash lasts, of many such pages.
            (fixed.stall_one_in, fixed.lambda) = (Some(2), Some(0.9));
            fixed.restart = restarts::find("forget").ok();
        }
        // An engine that breaks its own rules may well trip over one of its assertions.
        let is_found = |&seed: &u64| {
            catch_unwind(|| torture::run_fixed(seed, fixed))
                .map_or(true, |report| !report.failures.is_empty())
        };
        let found = (0..seeds).find(is_found);
        println!("{name} is off under {design}: seed {found:?}");
        assert!(found.is_some(), "{name} is off under {design} and {seeds} seeds see nothing");
    }
}

/// An assertion that failed on the way used to abort the process: the last handle of the database
/// wanted to close it, and so to wait, while its task was unwound.
#[test]
fn an_engine_that_trips_over_its_assertions_is_a_failure_and_no_abort() {
    let mut tripped = 0;
    for design in ["dw", "lc"] {
        let mut fixed = Fixed { design: designs::find(design).ok(), ..Fixed::default() };
        INVALIDATE_OFF(&mut fixed.rules);
        fixed.is_calm = true;
        let run = |seed| catch_unwind(|| torture::run_fixed(seed, fixed));
        tripped += (0..12).filter(|&seed| run(seed).is_err()).count();
    }
    assert!(tripped > 0, "no assertion noticed");
}
