//! The bound on the age of changes: what home lacks is never older, in memory or on flash.

use terrace_page::Lsn;
use terrace_policy::DESIGNS;
use terrace_pool::{Journal, PoolConfig, PoolError};
use terrace_rt::{Nanos, Prng, Virtual, VirtualConfig, World, sleep};

use crate::bench_world::{Bench, config};

const PAGES: u64 = 60;
const CLEAN_AGE: u64 = PoolConfig::CLEAN_AGE_MIN;
/// Some six bounds of log.
const CHANGES: u64 = 4_000;
/// Between two changes: home writes a page in at most four times as much.
const PAUSE: Nanos = Nanos(2_000_000);

fn in_world(seed: u64, test: impl FnOnce(&World)) {
    let world = Virtual::new(VirtualConfig { seed, ..VirtualConfig::default() });
    world.run(|| test(&world.world())).expect("the world goes on");
}

/// Changes pages at random, and says how much log the oldest change that home lacked was away from
/// the end, at most. Cold pages are changed once in a while, and lie on flash in between.
fn oldest_of(world: &World, config: PoolConfig, seed: u64) -> u64 {
    let bench = Bench::new(world, config, PAGES, seed);
    let mut prng = Prng::from_seed(seed);
    let mut oldest = 0;
    for number in 0..CHANGES {
        let spread = if prng.chance(50) { PAGES } else { PAGES / 6 };
        bench.change(prng.below(spread), number);
        // As the engine does with each transaction.
        bench.pool.log_grew(bench.log.last_lsn());
        bench.read(PAGES / 2 + prng.below(PAGES / 2));
        sleep(PAUSE);
        if number % 40 == 0 {
            let end = bench.log.last_lsn().0;
            let dirty = bench.pool.oldest_dirty_lsn().unwrap_or(Lsn(end));
            oldest = oldest.max(end - dirty.0);
        }
    }
    bench.pool.check();
    bench.pool.shutdown();
    bench.pool.flush_all().expect("a checkpoint");
    bench.assert_home_is_current();
    oldest
}

#[test]
fn no_change_is_away_from_home_for_longer_than_the_bound() {
    for design in DESIGNS {
        for seed in 0..6 {
            in_world(seed, |world| {
                let config = PoolConfig { lambda: 0.9, ..config(design.name) };
                let aged = PoolConfig { clean_age: Some(CLEAN_AGE), ..config.clone() };
                let bounded = oldest_of(world, aged, seed);
                assert!(bounded <= CLEAN_AGE, "{}, seed {seed}: {bounded}", design.name);
                // The bound is made use of: pages may stay for most of it.
                assert!(bounded > CLEAN_AGE / 2, "{}, seed {seed}: {bounded}", design.name);
                // Without it the flash keeps pages for as long as they are not used.
                let is_lazy = design.keeps_dirty_on_flash();
                let free = if is_lazy { oldest_of(world, config, seed) } else { u64::MAX };
                assert!(free > 2 * CLEAN_AGE, "{}, seed {seed}: {free}", design.name);
            });
        }
    }
}

#[test]
fn pages_that_are_found_too_old_go_home_though_nobody_uses_them() {
    in_world(1, |world| {
        let config = PoolConfig { lambda: 0.9, clean_age: Some(CLEAN_AGE), ..config("lc") };
        let bench = Bench::new(world, config, PAGES, 1);
        (0..30).for_each(|page| bench.change(page, page + 1));
        (30..60).for_each(|page| bench.read(page));
        assert!(bench.pool.stats().slots_dirty > 0);
        // The log grows by what is none of the pool's.
        while bench.log.last_lsn().0 < 2 * CLEAN_AGE {
            bench.log.append(crate::log_model::Record::Begin);
            bench.pool.log_grew(bench.log.last_lsn());
        }
        bench.until(|stats| (stats.slots_dirty, stats.frames_dirty) == (0, 0));
        bench.pool.shutdown();
    });
}

#[test]
fn a_bound_that_is_too_narrow_is_refused() {
    in_world(1, |world| {
        let config = PoolConfig { clean_age: Some(CLEAN_AGE - 1), ..config("lc") };
        let home = crate::ram_device::RamDevice::new(world, PAGES, 1, 1);
        let flash = crate::ram_device::RamDevice::new(world, PAGES, 1, 1);
        let log = std::sync::Arc::new(crate::log_model::LogModel::new(1));
        let opened =
            terrace_pool::BufferPool::open(config, world.clone(), home, Some(flash), log.clone());
        assert!(matches!(opened, Err(PoolError::Config { option: "clean_age", .. })));
        assert_eq!(log.last_lsn(), Lsn(0));
    });
}
