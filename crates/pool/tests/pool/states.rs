//! A page's way, one arrow at a time, as the designs have it.

use terrace_page::{Lsn, PageId, lsn};
use terrace_policy::CleanerOrder;
use terrace_pool::{Dirtied, Fills, PoolConfig, PoolError, TacWrite};
use terrace_rt::{Nanos, Virtual, VirtualConfig, World, sleep};

use crate::bench_world::{Bench, config};
use crate::log_model::{set_value, value};

const PAGES: u64 = 200;
const FRAMES: u64 = 24;

fn plain(name: &str) -> PoolConfig {
    PoolConfig { fills: Fills { ramp_up: false, aggressive: false }, ..config(name) }
}

fn in_world(test: impl FnOnce(&World)) {
    let world = Virtual::new(VirtualConfig::default());
    world.run(|| test(&world.world())).expect("the world goes on");
}

/// Reads a memory full of other pages.
fn push_out(bench: &Bench, from: u64) {
    for page in from..from + FRAMES {
        bench.read(page);
    }
    bench.pool.check();
}

#[test]
fn a_clean_page_leaves_to_flash_and_comes_back_from_there() {
    for name in ["cw", "dw", "lc"] {
        in_world(|world| {
            let bench = Bench::new(world, plain(name), PAGES, 1);
            bench.read(1);
            push_out(&bench, 10);
            let before = bench.pool.stats();
            bench.read(1);
            let after = bench.pool.stats();
            assert_eq!(after.flash_hits, before.flash_hits + 1, "{name}");
            assert_eq!(after.home_reads, before.home_reads, "{name}");
            bench.pool.shutdown();
        });
    }
}

#[test]
fn a_dirty_page_leaves_to_where_its_design_says() {
    // Name; home writes; slots dirty; flash hits when it comes back.
    for (name, home, dirty, hits) in
        [("no-ssd", 1, 0, 0), ("cw", 1, 0, 0), ("dw", 1, 0, 1), ("lc", 0, 1, 1), ("tac", 1, 0, 0)]
    {
        in_world(|world| {
            let mut config = plain(name);
            // A TAC page that is dirtied at once finds its copy abandoned.
            config.tac.write = TacWrite::Async;
            let bench = Bench::new(world, config, PAGES, 1);
            bench.change(1, 11);
            push_out(&bench, 10);
            let stats = bench.pool.stats();
            assert_eq!((stats.home_writes, stats.slots_dirty), (home, dirty), "{name}");
            bench.read(1);
            assert_eq!(bench.pool.stats().flash_hits, hits, "{name}");
            let expected = (name == "lc").then_some(Lsn(0));
            assert_eq!(bench.pool.oldest_dirty_lsn(), expected, "{name}");
            bench.pool.shutdown();
        });
    }
}

#[test]
fn modifying_a_page_frees_its_slot_and_takes_the_old_entry_along() {
    in_world(|world| {
        let bench = Bench::new(world, plain("lc"), PAGES, 1);
        bench.change(1, 11);
        push_out(&bench, 10);
        let mut page = bench.pool.write(PageId(1)).expect("the page");
        assert_eq!(page.dirty(), Dirtied::Already);
        assert_eq!(page.dirty(), Dirtied::Already);
        drop(page);
        let stats = bench.pool.stats();
        assert_eq!((stats.slots_dirty, stats.frames_dirty, stats.invalidations), (0, 1, 1));
        assert_eq!(bench.pool.oldest_dirty_lsn(), Some(Lsn(0)));
        bench.pool.check();
        bench.pool.shutdown();
    });
}

#[test]
fn tac_keeps_the_slot_of_a_modified_page_and_rewrites_it_at_eviction() {
    for write in [TacWrite::Sync, TacWrite::Async] {
        in_world(|world| {
            let mut config = plain("tac");
            config.tac.write = write;
            let bench = Bench::new(world, config, PAGES, 1);
            bench.read(1);
            bench.until(|stats| stats.slots_used == 1);
            bench.change(1, 11);
            assert_eq!(bench.pool.stats().slots_invalid, 1);
            bench.pool.check();
            push_out(&bench, 10);
            assert_eq!(bench.pool.stats().slots_invalid, 0);
            bench.read(1);
            assert_eq!(bench.pool.stats().flash_hits, 1);
            bench.pool.check();
            bench.pool.shutdown();
        });
    }
}

#[test]
fn tac_abandons_the_copy_of_a_page_that_is_dirtied_first() {
    in_world(|world| {
        let bench = Bench::new(world, plain("tac"), PAGES, 1);
        bench.change(1, 11);
        let stats = bench.until(|stats| stats.tac_abandoned == 1);
        assert_eq!(stats.slots_used, 0);
        bench.pool.shutdown();
    });
}

#[test]
fn sequential_pages_stay_off_a_flash_that_is_filled() {
    in_world(|world| {
        let bench = Bench::new(world, PoolConfig { tau: 0.0, ..plain("dw") }, PAGES, 1);
        bench.pool.read_ahead(PageId(0), 16);
        let stats = bench.until(|stats| stats.home_read_pages == 16);
        assert_eq!((stats.pages_read_ahead, stats.home_reads), (16, 1));
        (0..16).for_each(|page| bench.read(page));
        push_out(&bench, 100);
        let stats = bench.pool.stats();
        assert_eq!((stats.bypassed_by_policy, stats.admissions), (16, 0));
        // While filling, all are welcome.
        let bench = Bench::new(world, PoolConfig { tau: 1.0, ..plain("dw") }, PAGES, 1);
        bench.pool.read_ahead(PageId(0), 16);
        bench.until(|stats| stats.home_read_pages == 16);
        (0..16).for_each(|page| bench.read(page));
        push_out(&bench, 100);
        assert_eq!(bench.pool.stats().admissions, 16);
        bench.pool.shutdown();
    });
}

/// In the whole pool the middle of a long read is one read, and newer pages come from flash.
#[test]
fn a_long_read_over_a_newer_flash_page_drops_the_image_from_home() {
    in_world(|world| {
        let bench = Bench::new(world, plain("lc"), PAGES, 1);
        bench.change(2, 22);
        bench.read(4);
        push_out(&bench, 10);
        push_out(&bench, 50);
        let before = bench.pool.stats();
        bench.pool.read_ahead(PageId(0), 6);
        let after = bench.until(|stats| stats.flash_reads == before.flash_reads + 1);
        assert_eq!(after.home_reads, before.home_reads + 1);
        assert_eq!(after.home_read_pages, before.home_read_pages + 6);
        (0..6).for_each(|page| bench.read(page));
        assert_eq!(bench.pool.stats().misses, after.misses, "all are in memory");
        bench.pool.shutdown();
    });
}

#[test]
fn the_cleaner_writes_neighbours_together_and_holds_lambda() {
    for order in [CleanerOrder::Lru2Age, CleanerOrder::RecLsn] {
        in_world(|world| {
            let config = PoolConfig { lambda: 0.25, cleaner_order: order, ..plain("lc") };
            let bench = Bench::new(world, config, PAGES, 1);
            (0..60).for_each(|page| bench.change(page, page + 1));
            sleep(Nanos(1_000_000_000));
            let stats = bench.pool.stats();
            assert!(stats.slots_dirty <= 10, "{stats:?}");
            assert!(stats.cleaner_pages > 2 * stats.cleaner_ios, "{stats:?}");
            bench.pool.check();
            bench.pool.flush_all().expect("a checkpoint");
            bench.assert_home_is_current();
            assert_eq!(bench.pool.oldest_dirty_lsn(), None);
            bench.pool.shutdown();
        });
    }
}

/// With a full memory, and across pages of the group that are there already [S3 IV-A1].
#[test]
fn while_flash_fills_a_miss_brings_its_group_along() {
    for name in ["dw", "lc"] {
        in_world(|world| {
            let fills = Fills { ramp_up: false, aggressive: true };
            let bench = Bench::new(world, PoolConfig { fills, ..config(name) }, PAGES, 1);
            push_out(&bench, 100);
            for (alone, missed) in [(None, 3), (Some(20), 18), (Some(39), 35)] {
                alone.into_iter().for_each(|page| bench.pool.prefetch(&[PageId(page)]));
                let before = bench.pool.stats();
                bench.read(missed);
                let group = missed - missed % 8;
                (group..group + 8).for_each(|page| bench.read(page));
                let after = bench.pool.stats();
                assert_eq!(after.home_reads, before.home_reads + 1, "{name} {missed}");
                // A page at the end of the group that is there already is not read again.
                let pages = 8 - u64::from(alone == Some(39));
                assert_eq!(
                    after.home_read_pages,
                    before.home_read_pages + pages,
                    "{name} {missed}"
                );
            }
            bench.pool.check();
            bench.pool.shutdown();
        });
    }
}

#[test]
fn a_closed_pool_can_still_be_emptied() {
    in_world(|world| {
        let bench = Bench::new(world, plain("lc"), PAGES, 1);
        (0..60).for_each(|page| bench.change(page, page + 1));
        bench.pool.shutdown();
        bench.pool.flush_all().expect("a checkpoint");
        bench.assert_home_is_current();
    });
}

#[test]
fn a_created_page_reads_nothing_and_a_dropped_one_leaves_nothing() {
    in_world(|world| {
        let bench = Bench::new(world, plain("lc"), PAGES, 1);
        bench.create(1, 11);
        assert_eq!(bench.pool.stats().home_reads, 0);
        bench.read(1);
        // Not changed: the former page is back, in memory as at home.
        drop(bench.pool.create(PageId(1)).expect("a page"));
        bench.read(1);
        drop(bench.pool.create(PageId(2)).expect("a page"));
        bench.read(2);
        // Announced, not changed: the entry goes with the zeroes.
        let mut page = bench.pool.create(PageId(3)).expect("a page");
        assert_eq!(page.dirty(), Dirtied::Fresh);
        drop(page);
        bench.read(3);
        assert_eq!(bench.pool.stats().frames_dirty, 1);
        bench.pool.check();
        bench.pool.shutdown();
    });
}

#[test]
fn a_page_made_anew_keeps_its_lsn_while_home_is_older() {
    in_world(|world| {
        let bench = Bench::new(world, plain("lc"), PAGES, 1);
        bench.change(1, 11);
        push_out(&bench, 10);
        let mut page = bench.pool.create(PageId(1)).expect("a page");
        assert_eq!((value(&page), lsn(&page)), (0, Lsn(100)));
        assert_eq!(page.dirty(), Dirtied::Already);
        page.apply(Lsn(200), |bytes| set_value(bytes, 5));
        let page = page.downgrade();
        assert_eq!(value(&page), 5);
        drop(page);
        bench.pool.check();
        bench.pool.shutdown();
    });
}

#[test]
fn a_pool_whose_pages_are_all_latched_says_so() {
    in_world(|world| {
        let bench = Bench::new(world, plain("no-ssd"), PAGES, 1);
        let held: Vec<_> =
            (0..FRAMES).map(|page| bench.pool.read(PageId(page)).expect("a page")).collect();
        assert!(matches!(bench.pool.read(PageId(100)), Err(PoolError::AllPinned)));
        drop(held);
        bench.read(100);
        bench.pool.shutdown();
    });
}

#[test]
fn ramp_up_reads_groups_until_memory_is_full() {
    in_world(|world| {
        let bench = Bench::new(world, config("no-ssd"), PAGES, 1);
        bench.read(9);
        let stats = bench.pool.stats();
        assert_eq!((stats.home_reads, stats.home_read_pages, stats.misses), (1, 8, 1));
        (8..16).for_each(|page| bench.read(page));
        assert_eq!(bench.pool.stats().misses, 1);
        (0..FRAMES * 2).for_each(|page| bench.read(page + 50));
        let full = bench.pool.stats();
        bench.read(199);
        let after = bench.pool.stats();
        assert_eq!(after.home_read_pages, full.home_read_pages + 1);
        bench.pool.shutdown();
    });
}

/// The evictor keeps frames free, so no request ever met a full memory: groups went on for ever.
#[test]
fn ramp_up_ends_although_the_evictor_keeps_frames_free() {
    in_world(|world| {
        let bench = Bench::new(world, PoolConfig { frames: 256, ..config("no-ssd") }, 600, 1);
        (0..600).for_each(|page| bench.read(page));
        let full = bench.pool.stats();
        assert!(full.frames_used > 250, "{full:?}");
        (0..100).for_each(|page| bench.read(page));
        let after = bench.pool.stats();
        assert_eq!(
            after.home_read_pages - full.home_read_pages,
            after.home_reads - full.home_reads
        );
        bench.pool.shutdown();
    });
}

#[test]
fn a_batch_is_read_at_once() {
    in_world(|world| {
        let bench = Bench::new(world, plain("no-ssd"), PAGES, 1);
        let pages: Vec<PageId> = (0..16).map(|at| PageId(at * 10)).collect();
        let before = terrace_rt::now();
        bench.pool.prefetch(&pages);
        let span = terrace_rt::now().0 - before.0;
        assert!(span < 2 * crate::bench_world::HOME_NS, "{span} ns for 16 reads side by side");
        pages.iter().for_each(|page| bench.read(page.0));
        assert_eq!(bench.pool.stats().misses, 16);
        bench.pool.shutdown();
    });
}

/// Whether they come from home one by one, or from flash as a batch.
#[test]
fn pages_of_a_batch_are_shown_once_each_and_used_by_that() {
    for name in ["no-ssd", "lc"] {
        in_world(|world| {
            let bench = Bench::new(world, plain(name), PAGES, 1);
            bench.change(50, 55);
            push_out(&bench, 100);
            bench.read(30);
            let pages: Vec<PageId> = (0..16).map(|at| PageId(at * 10)).collect();
            let is_away = |at: &usize| !bench.pool.is_in_memory(pages[*at]);
            let away: Vec<usize> = (0..16).filter(is_away).collect();
            assert!(away.contains(&5) && !away.contains(&3), "{name}");
            let before = bench.pool.stats();
            let mut shown = Vec::new();
            bench.pool.read_once(&pages, |at, page| {
                assert_eq!(page.id(), pages[at]);
                assert_eq!(value(&page), if at == 5 { 55 } else { 0 });
                shown.push(at);
            });
            shown.sort_unstable();
            assert_eq!(shown, away, "{name}");
            let after = bench.pool.stats();
            assert_eq!(after.misses, before.misses, "{name}");
            assert_eq!(after.pages_read_ahead - before.pages_read_ahead, shown.len() as u64);
            assert_eq!(after.hits - before.hits, shown.len() as u64, "{name}: each is a use");
            bench.read(30);
            bench.pool.read_once(&pages[3..4], |_, _| panic!("it is in memory"));
            bench.pool.check();
            bench.pool.shutdown();
        });
    }
}

/// All that is allocated for the tier, at a size where rounding does not matter.
#[test]
fn a_flash_page_costs_at_most_32_bytes_of_memory() {
    for name in ["cw", "dw", "lc", "tac"] {
        in_world(|world| {
            let config = PoolConfig { frames: 2048, flash_slots: 16_384, ..plain(name) };
            let bench = Bench::new(world, config, 1, 1);
            let bytes = bench.pool.stats().metadata_bytes_per_slot;
            assert!((20..=32).contains(&bytes), "{name}: {bytes} bytes");
            bench.pool.shutdown();
        });
    }
}
