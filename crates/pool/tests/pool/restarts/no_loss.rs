//! Every restart, with every design that it can have, loses nothing in power cuts at random
//! moments, again and again, and finds its slots again.

use terrace_policy::{DESIGNS, restarts};

use super::machine::{Plan, survive};

/// The restarts of the paper that are built.
const RESTARTS: [&str; 3] = ["mmr", "lbr", "lvr"];

#[test]
fn no_restart_loses_an_update() {
    for restart in RESTARTS {
        let kept = restarts::find(restart).expect("a known restart");
        for design in DESIGNS.iter().filter(|design| kept.refusal(design).is_none()) {
            let mut reused = 0;
            for seed in 0..30 {
                let mut plan = Plan::new(design.name, restart, seed);
                if seed % 5 == 4 {
                    // Units of the table straddle partitions.
                    plan.config.frames = 200;
                    plan.config.partitions = 3;
                    plan.config.flash_slots = 500;
                    plan.pages = 300;
                }
                match survive(&plan, 3) {
                    Ok(slots) => reused += slots,
                    Err(lost) => panic!("{restart} {} seed {seed}: {lost}", design.name),
                }
            }
            println!("{restart} {}: {reused} slots used again", design.name);
            // What never changes does not come to every tier.
            let enough = if design.takes_clean_pages() { 1000 } else { 500 };
            assert!(reused > enough, "{restart} {}: {reused} slots used again", design.name);
        }
    }
}
