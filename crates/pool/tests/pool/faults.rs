//! Devices that fail: what the pool survives, and what it tells.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_page::{Damage, Lsn, PAGE_SIZE, PageId, lsn, seal};
use terrace_policy::designs;
use terrace_pool::{BufferPool, Fills, PoolConfig, PoolError, Recovered, Tier};
use terrace_rt::{Nanos, Virtual, VirtualConfig, World, now};

use crate::bench_world::{Bench, config};
use crate::log_model::{fresh_page, set_value, value};

const PAGES: u64 = 100;

/// One page at a time from home, everything random admitted to flash.
fn plain(name: &str) -> PoolConfig {
    PoolConfig { fills: Fills { ramp_up: false, aggressive: false }, ..config(name) }
}

fn in_world(test: impl FnOnce(&World)) {
    let world = Virtual::new(VirtualConfig::default());
    world.run(|| test(&world.world())).expect("the world goes on");
}

/// Reads enough other pages to push the first ten out of memory.
fn push_out(bench: &Bench) {
    for page in 10..34 {
        bench.read(page);
    }
    assert!(bench.pool.stats().evictions > 0);
}

#[test]
fn a_bad_flash_copy_of_a_clean_page_falls_back_to_home() {
    in_world(|world| {
        let bench = Bench::new(world, plain("dw"), PAGES, 1);
        let flash = bench.flash.clone().expect("a flash device");
        bench.change(1, 11);
        bench.read(2);
        push_out(&bench);
        flash.rot(bench.slot_of(1));
        flash.fail_reads_of(bench.slot_of(2));
        bench.read(1);
        bench.read(2);
        assert_eq!(bench.pool.stats().flash_faults, 2);
        bench.pool.check();
        bench.pool.shutdown();
    });
}

#[test]
fn a_bad_flash_copy_of_a_newer_page_is_an_error_and_the_log_can_repair_it() {
    in_world(|world| {
        let bench = Bench::new(world, plain("lc"), PAGES, 1);
        let flash = bench.flash.clone().expect("a flash device");
        bench.change(1, 11);
        push_out(&bench);
        flash.rot(bench.slot_of(1));
        let error = bench.pool.read(PageId(1)).err().expect("an error");
        let PoolError::Damaged { tier: Tier::Flash, page: PageId(1), damage } = error else {
            panic!("{error}")
        };
        assert_eq!(damage, Damage::Checksum);
        assert!(bench.pool.oldest_dirty_lsn().is_some(), "the log is still needed");
        match bench.pool.read_damaged_ok(PageId(1)).expect("a repair") {
            Recovered::Whole(_) => panic!("the page is damaged"),
            Recovered::Damaged(mut page, tier, damage) => {
                let expected = (Tier::Flash, Damage::Checksum, Lsn::ZERO);
                assert_eq!((tier, damage, lsn(&page)), expected);
                page.dirty();
                page.apply(Lsn(100), |bytes| set_value(bytes, 11));
            }
        }
        bench.read(1);
        bench.pool.check();
        bench.pool.flush_all().expect("a checkpoint");
        bench.assert_home_is_current();
        bench.pool.shutdown();
    });
}

#[test]
fn the_sharp_checkpoint_reports_a_newer_page_that_flash_has_lost() {
    in_world(|world| {
        let bench = Bench::new(world, plain("lc"), PAGES, 1);
        bench.change(1, 11);
        push_out(&bench);
        bench.flash.as_ref().expect("a flash device").rot(bench.slot_of(1));
        let error = bench.pool.flush_all().expect_err("a lost page");
        assert!(matches!(error, PoolError::Damaged { page: PageId(1), .. }), "{error}");
        bench.pool.check();
        bench.pool.shutdown();
    });
}

#[test]
fn torn_and_blank_home_pages_are_told_from_whole_ones() {
    in_world(|world| {
        let bench = Bench::new(world, config("no-ssd"), PAGES, 1);
        bench.home.rot(3);
        bench.home.set_page(4, &[0; PAGE_SIZE]);
        bench.home.set_page(5, &fresh_page(6));
        let damages = [
            (3, Damage::Checksum),
            (4, Damage::Blank),
            (5, Damage::WrongPage { found: PageId(6) }),
        ];
        for (page, expected) in damages {
            let error = bench.pool.read(PageId(page)).err().expect("an error");
            let PoolError::Damaged { tier: Tier::Home, damage, .. } = error else {
                panic!("{error}")
            };
            assert_eq!(damage, expected);
            // A repair that is given up leaves nothing behind.
            drop(bench.pool.read_damaged_ok(PageId(page)).expect("a repair"));
            assert!(bench.pool.read(PageId(page)).is_err());
        }
        bench.read(2);
        let beyond = bench.pool.read(PageId(PAGES)).err();
        assert!(matches!(beyond, Some(PoolError::OutOfRange { page: PageId(PAGES) })));
        bench.pool.check();
        bench.pool.shutdown();
    });
}

#[test]
fn after_a_failed_home_write_there_are_no_more_changes_but_reads() {
    in_world(|world| {
        let bench = Bench::new(world, plain("no-ssd"), PAGES, 1);
        bench.change(1, 11);
        bench.home.fails_writes.store(true, Ordering::Relaxed);
        let error = bench.pool.flush_all().expect_err("the device failed");
        assert!(matches!(error, PoolError::Stopped { .. }), "{error}");
        bench.home.fails_writes.store(false, Ordering::Relaxed);
        assert!(matches!(bench.pool.write(PageId(2)), Err(PoolError::Stopped { .. })));
        assert!(matches!(bench.pool.create(PageId(2)), Err(PoolError::Stopped { .. })));
        for page in 1..60 {
            bench.read(page);
        }
        assert!(bench.pool.oldest_dirty_lsn().is_some());
        bench.pool.check();
        bench.pool.shutdown();
    });
}

#[test]
fn who_wants_a_frame_of_a_stopped_pool_is_told_at_once() {
    // With every frame changed, a reader waited 20 s for room, and got `AllPinned`.
    in_world(|world| {
        let bench = Bench::new(world, plain("no-ssd"), PAGES, 1);
        bench.home.fails_writes.store(true, Ordering::Relaxed);
        let error = (1..PAGES).find_map(|page| bench.try_change(page, 7).err());
        let error = error.expect("frames are few");
        assert!(matches!(error, PoolError::Stopped { .. }), "{error}");
        let began = now();
        let told = (1..PAGES).filter_map(|page| bench.pool.read(PageId(page)).err());
        let told: Vec<PoolError> = told.collect();
        assert!(!told.is_empty() && told.iter().all(|it| matches!(it, PoolError::Stopped { .. })));
        assert!(now() - began < Nanos::from_secs(1), "{:?}", now() - began);
        bench.pool.shutdown();
    });
}

#[test]
fn a_failed_sync_stops_changes_and_keeps_the_log() {
    in_world(|world| {
        let bench = Bench::new(world, plain("no-ssd"), PAGES, 1);
        bench.change(1, 11);
        bench.home.fails_syncs.store(true, Ordering::Relaxed);
        bench.pool.flush_below(Lsn::MAX).expect("the write itself succeeds");
        assert_eq!(bench.pool.oldest_dirty_lsn(), Some(Lsn(1)));
        assert!(matches!(bench.pool.write(PageId(2)), Err(PoolError::Stopped { .. })));
        bench.pool.shutdown();
    });
}

#[test]
fn a_dead_flash_costs_nothing_but_its_hits() {
    for name in ["cw", "dw", "lc", "tac"] {
        in_world(|world| {
            let bench = Bench::new(world, plain(name), PAGES, 1);
            let flash = bench.flash.clone().expect("a flash device");
            flash.fails_writes.store(true, Ordering::Relaxed);
            for round in 0..4 {
                for page in 0..PAGES {
                    bench.read(page);
                    if page % 3 == 0 {
                        bench.change(page, round * PAGES + page + 1);
                    }
                }
            }
            bench.pool.check();
            bench.pool.flush_all().expect("a checkpoint");
            bench.assert_home_is_current();
            assert!(bench.pool.stats().flash_faults >= 8, "{name}");
            bench.pool.shutdown();
        });
    }
}

/// The restart design is `forget`: an old flash, or a foreign one, is never believed.
#[test]
fn the_flash_is_cold_at_every_open() {
    in_world(|world| {
        let bench = Bench::new(world, plain("dw"), PAGES, 1);
        bench.change(1, 11);
        push_out(&bench);
        bench.pool.flush_all().expect("a checkpoint");
        bench.pool.shutdown();
        let old = bench.slot_of(1);
        let mut changed = bench.home.page(1);
        set_value(&mut changed, 12);
        seal(&mut changed);
        bench.home.set_page(1, &changed);
        let again = BufferPool::open(
            plain("dw"),
            world.clone(),
            bench.home.clone(),
            bench.flash.clone().map(|flash| flash as Arc<dyn terrace_device::Device>),
            bench.log.clone(),
        );
        let again = again.expect("a pool opens");
        assert_eq!(value(&again.read(PageId(1)).expect("the page")), 12, "not slot {old}'s 11");
        assert_eq!(again.stats().flash_hits, 0);
        again.shutdown();
    });
}

#[test]
fn a_configuration_that_cannot_work_is_refused_with_its_reason() {
    in_world(|world| {
        let bench = Bench::new(world, config("no-ssd"), PAGES, 1);
        bench.pool.shutdown();
        let lc = designs::find("lc").expect("a design");
        let bad = [
            PoolConfig { frames: 0, ..config("no-ssd") },
            PoolConfig { tau: 1.5, ..config("no-ssd") },
            PoolConfig { lambda: f64::NAN, ..config("no-ssd") },
            PoolConfig { design: lc, ..config("no-ssd") },
            PoolConfig { partitions: 0, ..config("no-ssd") },
        ];
        for config in bad {
            let opened = BufferPool::open(
                config,
                world.clone(),
                bench.home.clone(),
                None,
                bench.log.clone(),
            );
            assert!(matches!(opened, Err(PoolError::Config { .. })));
        }
    });
}
