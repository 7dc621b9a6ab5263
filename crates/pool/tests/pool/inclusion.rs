//! What inclusive, exclusive and lazy tiers promise of pages in memory, against naive models; and
//! that sweeps take home, in order, all that was dirty.

use std::collections::BTreeSet;
use std::sync::Arc;

use terrace_page::PageId;
use terrace_policy::{MemoryPolicy, designs};
use terrace_pool::{Fills, PoolConfig};
use terrace_rt::{Nanos, Prng, Virtual, VirtualConfig, World, sleep};

use crate::bench_world::{Bench, config};

const PAGES: u64 = 150;
const FRAMES: u64 = 24;

fn in_world(seed: u64, test: impl Fn(&World)) {
    let world = Virtual::new(VirtualConfig { seed, ..VirtualConfig::default() });
    world.run(|| test(&world.world())).expect("the world goes on");
}

/// The tier called `name`, with reads of single pages.
fn plain(name: &str, slots: u32) -> PoolConfig {
    PoolConfig {
        flash_slots: slots,
        fills: Fills { ramp_up: false, aggressive: false },
        memory_policy: Some(MemoryPolicy::Lru),
        lambda: 0.2,
        ..config(name)
    }
}

/// Reads and changes pages at random, and calls `check` after each; ends with a sharp checkpoint.
fn random_work(seed: u64, config: PoolConfig, check: impl Fn(&Bench, u64)) {
    in_world(seed, |world| {
        let bench: Arc<Bench> = Bench::new(world, config.clone(), PAGES, seed);
        let mut prng = Prng::from_seed(seed);
        for step in 0..400 {
            let spread = if prng.chance(3) { PAGES } else { 40 };
            let page = prng.below(spread);
            if prng.chance(3) {
                bench.change(page, step + 1);
            } else {
                bench.read(page);
            }
            check(&bench, page);
            bench.pool.check();
        }
        bench.pool.flush_all().expect("a sharp checkpoint");
        bench.assert_home_is_current();
        bench.pool.shutdown();
    });
}

#[test]
fn a_page_is_in_an_exclusive_tier_or_in_memory_and_what_leaves_memory_is_there() {
    for seed in 0..20 {
        random_work(seed, plain("exclusive", 200), |bench, asked| {
            let mut seen = BTreeSet::from([asked]);
            for page in 0..PAGES {
                let copies = bench.pool.copies(PageId(page));
                assert!(!(copies.in_memory && copies.on_flash), "seed {seed}: {page} is in both");
                assert!(!copies.in_memory || !copies.has_slot, "seed {seed}: {page} has a slot");
                if copies.in_memory {
                    seen.insert(page);
                }
            }
            assert!(bench.pool.copies(PageId(asked)).in_memory, "seed {seed}");
        });
    }
}

/// The model: pages that were asked for, which nothing has forgotten while both tiers have room.
#[test]
fn with_room_for_all_an_exclusive_tier_never_asks_home_twice() {
    for seed in 0..10 {
        in_world(seed, |world| {
            let bench = Bench::new(world, plain("exclusive", 200), PAGES, seed);
            let (mut prng, mut asked) = (Prng::from_seed(seed), BTreeSet::new());
            for step in 0..600 {
                let page = prng.below(PAGES);
                asked.insert(page);
                match prng.below(3) {
                    0 => bench.change(page, step + 1),
                    _ => bench.read(page),
                }
                let stats = bench.pool.stats();
                assert_eq!(stats.home_read_pages, asked.len() as u64, "seed {seed} step {step}");
                for page in 0..PAGES {
                    let copies = bench.pool.copies(PageId(page));
                    let is_held = copies.in_memory || copies.on_flash;
                    assert_eq!(is_held, asked.contains(&page), "seed {seed} step {step}: {page}");
                }
            }
            bench.pool.shutdown();
        });
    }
}

/// Laps over more pages than flash has slots, and fewer than both tiers have room for.
#[test]
fn only_an_exclusive_tier_adds_memory_to_flash() {
    let of_second_lap = |name: &str| {
        let home_reads = std::cell::Cell::new(0);
        in_world(1, |world| {
            let bench = Bench::new(world, plain(name, 60), PAGES, 1);
            let lap = || (0..60 + FRAMES / 2).for_each(|page| bench.read(page));
            lap();
            let before = bench.pool.stats().home_reads;
            lap();
            home_reads.set(bench.pool.stats().home_reads - before);
            bench.pool.shutdown();
        });
        home_reads.get()
    };
    assert_eq!(of_second_lap("exclusive"), 0);
    assert!(of_second_lap("lazy") > FRAMES / 2);
    assert!(of_second_lap("inclusive") > FRAMES / 2);
}

#[test]
fn a_page_in_memory_has_a_slot_of_an_inclusive_tier() {
    for seed in 0..20 {
        let held = std::cell::RefCell::new(BTreeSet::new());
        random_work(seed, plain("inclusive", 100), |bench, asked| {
            let mut held = held.borrow_mut();
            held.insert(asked);
            held.retain(|&page| {
                let copies = bench.pool.copies(PageId(page));
                assert!(!copies.in_memory || copies.has_slot, "seed {seed}: {page} has none");
                copies.in_memory
            });
        });
    }
}

/// The model: while nothing changes, the tier is the pages that were asked for last, memory's
/// among them.
#[test]
fn an_inclusive_tier_keeps_what_memory_has_however_long_it_is_there() {
    for seed in 0..10 {
        in_world(seed, |world| {
            let bench = Bench::new(world, plain("inclusive", 48), PAGES, seed);
            let mut prng = Prng::from_seed(seed);
            // Eight pages that never leave memory, while all others pass through the tier.
            for _ in 0..2_000 {
                (0..8).for_each(|page| bench.read(page));
                bench.read(8 + prng.below(PAGES - 8));
            }
            for page in 0..8 {
                let copies = bench.pool.copies(PageId(page));
                assert!(copies.in_memory && copies.on_flash, "seed {seed}: {page}: {copies:?}");
            }
            assert_eq!(bench.pool.stats().slots_used, 48);
            bench.pool.check();
            bench.pool.shutdown();
        });
    }
}

/// The model: flash is written once for each version that leaves memory.
#[test]
fn a_lazy_tier_writes_a_version_once_and_an_exclusive_one_each_time_it_leaves() {
    let writes = |name: &str, laps: u64| {
        let writes = std::cell::Cell::new(0);
        in_world(1, |world| {
            let bench = Bench::new(world, plain(name, 100), PAGES, 1);
            (0..laps).for_each(|_| (0..60).for_each(|page| bench.read(page)));
            sleep(Nanos::from_secs(1));
            writes.set(bench.pool.stats().flash_writes);
            bench.pool.shutdown();
        });
        writes.get()
    };
    assert_eq!((writes("lazy", 2), writes("lazy", 9)), (60, 60));
    // When it is read, instead of when it leaves.
    assert_eq!((writes("inclusive", 2), writes("inclusive", 9)), (60, 60));
    assert!(writes("exclusive", 9) > 60 * 8 - FRAMES);
}

#[test]
fn a_sweep_takes_home_all_that_was_dirty_in_the_order_of_home() {
    for seed in 0..10 {
        in_world(seed, |world| {
            let config = PoolConfig { lambda: 0.5, cleaner_ios: 1, ..plain("hetero", 80) };
            let bench = Bench::new(world, config, PAGES, seed);
            let mut prng = Prng::from_seed(seed);
            let mut value = 0;
            // What leaves memory changed is collected, and nothing is written home meanwhile.
            while bench.pool.stats().slots_dirty < 38 {
                value += 1;
                bench.change(prng.below(PAGES), value);
                bench.read(prng.below(PAGES));
            }
            assert_eq!(bench.pool.stats().home_writes, 0, "seed {seed}");
            let collected = |page: &u64| bench.pool.copies(PageId(*page)).is_newer;
            let mut before = BTreeSet::new();
            while bench.pool.stats().home_writes == 0 {
                before = (0..PAGES).filter(collected).collect();
                value += 1;
                bench.change(prng.below(PAGES), value);
                sleep(Nanos(1_000_000));
            }
            sleep(Nanos::from_secs(5));
            let written = bench.home.writes();
            assert!(written.is_sorted(), "seed {seed}: {written:?}");
            assert!(written.len() < before.len(), "neighbours go together: {written:?}");
            let left: Vec<u64> = before.into_iter().filter(collected).collect();
            assert!(left.is_empty(), "seed {seed}: {left:?}");
            assert!(bench.pool.stats().slots_dirty < 10, "what came later waits for the next");
            bench.pool.check();
            bench.pool.shutdown();
        });
    }
}

#[test]
fn pages_that_never_change_do_not_come_to_flash_under_hetero() {
    assert!(!designs::find("hetero").expect("a row").takes_clean_pages());
    in_world(1, |world| {
        let bench = Bench::new(world, plain("hetero", 80), PAGES, 1);
        (0..4).for_each(|_| (0..PAGES).for_each(|page| bench.read(page)));
        assert_eq!(bench.pool.stats().flash_writes, 0);
        (0..40).for_each(|page| bench.change(page, 7));
        (0..PAGES).for_each(|page| bench.read(page));
        let before = bench.pool.stats();
        assert!(before.flash_writes > 30, "{before:?}");
        (0..40).for_each(|page| bench.read(page));
        assert!(bench.pool.stats().flash_hits > before.flash_hits + 30, "read from where they are");
        bench.pool.shutdown();
    });
}
