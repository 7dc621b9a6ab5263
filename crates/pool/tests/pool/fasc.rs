//! FASC: blocks that are written whole, what stays of a block that leaves, and how it is written
//! home.

use terrace_device::Device;
use terrace_policy::QueueRules;
use terrace_pool::{BufferPool, FascConfig, Fills, PoolConfig, PoolError};
use terrace_rt::{Nanos, Virtual, VirtualConfig, World, sleep};

use crate::bench_world::{Bench, config};

const PAGES: u64 = 400;
const FRAMES: u32 = 64;
const BLOCK: u32 = 8;
const SLOTS: u32 = 12 * BLOCK;

fn plain() -> PoolConfig {
    PoolConfig {
        frames: FRAMES,
        flash_slots: SLOTS,
        fasc: FascConfig { block_pages: BLOCK, window_requests: 16, ..FascConfig::default() },
        fills: Fills { ramp_up: false, aggressive: false },
        ..config("fasc")
    }
}

fn in_world(test: impl FnOnce(&World)) {
    let world = Virtual::new(VirtualConfig::default());
    world.run(|| test(&world.world())).expect("the world goes on");
}

#[test]
fn a_block_is_written_by_one_write() {
    in_world(|world| {
        let bench = Bench::new(world, plain(), PAGES, 1);
        (0..140).for_each(|page| bench.read(page));
        let counters = bench.flash.as_ref().unwrap().counters();
        assert!(counters.writes > 5);
        let bytes = u64::from(BLOCK) * 8192;
        assert_eq!(counters.written_bytes, counters.writes * bytes);
        bench.pool.check();
        bench.pool.shutdown();
    });
}

/// Pages that flash has leave memory without a write; and the others wait in memory, where they
/// are found, until a block is full.
#[test]
fn what_is_on_flash_is_not_written_again_and_what_waits_is_found() {
    in_world(|world| {
        let bench = Bench::new(world, plain(), PAGES, 1);
        for _ in 0..12 {
            (0..76).for_each(|page| bench.read(page));
        }
        let stats = bench.pool.stats();
        assert!(stats.evictions > 500, "{stats:?}");
        assert!(stats.admissions <= 76, "{stats:?}");
        assert_eq!(stats.home_reads, 76, "{stats:?}");
        assert_eq!(stats.home_write_pages, 0);
        bench.pool.check();
        bench.pool.shutdown();
    });
}

/// A block of holes leaves, but the one page of it that was used recently is taken in again.
#[test]
fn the_hot_page_of_a_block_that_leaves_is_kept() {
    for window_requests in [1, 1000] {
        in_world(|world| {
            let fasc = FascConfig { window_requests, ..plain().fasc };
            let bench = Bench::new(world, PoolConfig { fasc, ..plain() }, PAGES, 1);
            (0..120).for_each(|page| bench.read(page));
            bench.read(3);
            assert_eq!(bench.pool.stats().flash_hits, 1);
            [0, 1, 2, 4, 5, 6, 7].into_iter().for_each(|page| bench.change(page, page + 1));
            assert_eq!(bench.pool.stats().second_chances, 0);
            (120..220).for_each(|page| bench.read(page));
            let stats = bench.pool.stats();
            assert_eq!(stats.second_chances, u64::from(window_requests > 1), "{stats:?}");
            assert!(stats.slots_used < u64::from(SLOTS), "a block is free: {stats:?}");
            bench.pool.check();
            bench.pool.shutdown();
        });
    }
}

/// Cold dirty pages are written home in batches of the configured size, two of them at once.
#[test]
fn cold_dirty_pages_are_migrated_in_small_batches() {
    for migration_pages in [1, 3, 8] {
        in_world(|world| {
            let fasc = FascConfig { migration_pages, ..plain().fasc };
            let bench = Bench::new(world, PoolConfig { fasc, ..plain() }, PAGES, 1);
            for round in 0..3 {
                (0..300).for_each(|page| bench.change(page, page + round));
            }
            sleep(Nanos(100_000_000));
            let stats = bench.pool.stats();
            assert!(stats.cleaner_pages > 300, "{stats:?}");
            let per_write = stats.cleaner_pages.div_ceil(stats.cleaner_ios);
            assert!(per_write <= u64::from(migration_pages), "{stats:?}");
            bench.pool.check();
            bench.pool.flush_all().expect("a checkpoint");
            bench.assert_home_is_current();
            bench.pool.shutdown();
        });
    }
}

/// Blocks of changed pages have holes, and few pages that are worth a place.
#[test]
fn a_block_of_holes_leaves_before_others() {
    in_world(|world| {
        let bench = Bench::new(world, plain(), PAGES, 1);
        (0..130).for_each(|page| bench.read(page));
        (0..16).for_each(|page| bench.change(page, page + 1));
        let stats = bench.pool.stats();
        assert!(stats.slots_invalid >= 8, "{stats:?}");
        (130..200).for_each(|page| bench.read(page));
        let after = bench.pool.stats();
        assert!(after.slots_invalid < stats.slots_invalid, "{after:?}");
        assert_eq!(after.second_chances, 0);
        bench.pool.check();
        bench.pool.shutdown();
    });
}

#[test]
fn choices_that_cannot_be_are_refused_with_what_can() {
    in_world(|world| {
        let bench = Bench::new(world, plain(), PAGES, 1);
        bench.pool.shutdown();
        let fasc = plain().fasc;
        let queues = QueueRules { theta: Some(1.0), ..QueueRules::default() };
        for (fasc, said) in [
            (FascConfig { block_pages: 0, ..fasc }, "from 1 to 1024"),
            (FascConfig { block_pages: 1025, ..fasc }, "from 1 to 1024"),
            (FascConfig { migration_pages: 0, ..fasc }, "from 1 to 1024"),
            (FascConfig { window_requests: 0, ..fasc }, "must not be zero"),
            (FascConfig { full: 1.5, ..fasc }, "must be a share"),
            (FascConfig { queues, ..fasc }, "above 0 and below 1"),
        ] {
            let opened = BufferPool::open(
                PoolConfig { fasc, ..plain() },
                world.clone(),
                bench.home.clone(),
                bench.flash.clone().map(|flash| flash as std::sync::Arc<dyn Device>),
                bench.log.clone(),
            );
            let refused = matches!(opened, Err(PoolError::Config { option, what }) if format!("{option}: {what}").contains(said));
            assert!(refused, "{fasc:?}");
        }
    });
}
