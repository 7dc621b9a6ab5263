//! CC and CAC: pages that are on flash are written there again, and what costs are measured.

use terrace_page::PageId;
use terrace_policy::Costs;
use terrace_pool::PoolConfig;
use terrace_rt::{Virtual, VirtualConfig, World};

use crate::bench_world::{Bench, FLASH_NS, HOME_NS, config};

const PAGES: u64 = 150;

fn in_world(test: impl Fn(&World)) {
    let world = Virtual::new(VirtualConfig { seed: 1, ..VirtualConfig::default() });
    world.run(|| test(&world.world())).expect("the world goes on");
}

#[test]
fn a_page_that_is_on_flash_is_written_there_and_nowhere_else() {
    for name in ["cc", "cac"] {
        in_world(|world| {
            let bench = Bench::new(world, config(name), PAGES, 1);
            let others = 30..80;
            for round in 1..=3 {
                (0..8).for_each(|page| bench.change(page, 100 * round + page));
                others.clone().for_each(|page| bench.read(page));
                let stats = bench.pool.stats();
                assert_eq!((stats.slots_dirty, stats.slots_invalid), (8, 0), "{name} {round}");
                assert_eq!(stats.home_writes, 0, "{name} {round}");
                // The first copies took free slots; the others took the same again.
                assert_eq!(stats.invalidations, (round - 1) * 8, "{name} {round}");
            }
            bench.pool.check();
            bench.pool.flush_all().expect("a sharp checkpoint");
            bench.assert_home_is_current();
            bench.pool.shutdown();
        });
    }
}

#[test]
fn pages_that_benefit_more_take_over_and_a_scan_does_not() {
    in_world(|world| {
        let bench = Bench::new(world, config("cc"), PAGES, 1);
        // More than memory, again and again: all come to flash, while it has free slots.
        for _ in 0..6 {
            (0..40).for_each(|page| bench.read(page));
        }
        let before = bench.pool.stats();
        assert_eq!(before.slots_used, before.slots, "free slots take all");
        bench.pool.read_ahead(PageId(60), 30);
        // One page per frame.
        bench.until(|stats| stats.home_read_pages == before.home_read_pages + before.frames);
        (0..40).for_each(|page| bench.read(page));
        let cold = bench.pool.stats();
        assert_eq!(cold.admissions, before.admissions, "a scan leaves the flash alone");
        assert!(cold.bypassed_by_policy - before.bypassed_by_policy > 10, "{cold:?}");
        // Others that are wanted as often take over.
        for _ in 0..6 {
            (100..140).for_each(|page| bench.read(page));
        }
        let hot = bench.pool.stats();
        assert!(hot.admissions - cold.admissions > 20, "{hot:?}");
        bench.pool.check();
        bench.pool.shutdown();
    });
}

#[test]
fn costs_are_measured_unless_they_are_given() {
    for (name, given) in [("cac", None), ("cac", Some(Costs::PUBLISHED)), ("cc", None)] {
        in_world(|world| {
            let bench = Bench::new(world, PoolConfig { costs: given, ..config(name) }, PAGES, 1);
            let costs = bench.pool.costs();
            if let Some(given) = given {
                assert_eq!(costs, given);
            } else {
                let is_of = |ms: f64, most_ns: u64| ms > 0.0 && ms <= most_ns as f64 / 1e6;
                assert!(is_of(costs.home_read, HOME_NS), "{costs:?}");
                assert!(is_of(costs.flash_read, FLASH_NS), "{costs:?}");
                assert!(costs.home_read > 10.0 * costs.flash_read, "{costs:?}");
            }
            bench.pool.shutdown();
        });
    }
}
