//! The append log: in what order slots are written and leave, and what becomes of their pages.

use std::sync::atomic::Ordering;

use terrace_device::Device;
use terrace_page::{PageId, verify};
use terrace_policy::{FlashRole, MemoryPolicy, designs, restarts};
use terrace_pool::{Fills, PoolConfig, PoolError, Tier};
use terrace_rt::{Nanos, Virtual, VirtualConfig, World, sleep};

use crate::bench_world::{Bench, config};

const PAGES: u64 = 400;
const FRAMES: u32 = 64;
const SLOTS: u32 = 96;
const GROUP: u32 = 8;
/// Pages of the flash device before its slots.
const HEADER_PAGES: u64 = 8;

fn plain(name: &str) -> PoolConfig {
    PoolConfig {
        frames: FRAMES,
        flash_slots: SLOTS,
        append_group: GROUP,
        memory_policy: Some(MemoryPolicy::Lru),
        fills: Fills { ramp_up: false, aggressive: false },
        ..config(name)
    }
}

fn in_world(test: impl FnOnce(&World)) {
    let world = Virtual::new(VirtualConfig::default());
    world.run(|| test(&world.world())).expect("the world goes on");
}

/// The slots that hold pages, in order.
fn on_flash(bench: &Bench) -> Vec<Option<u64>> {
    let flash = bench.flash.as_ref().expect("a flash device");
    let page_in = |slot: u32| {
        let bytes = flash.page(HEADER_PAGES + u64::from(slot));
        (0..PAGES).find(|&page| verify(&bytes, PageId(page)).is_ok())
    };
    (0..SLOTS).map(page_in).collect()
}

#[test]
fn pages_are_appended_in_groups_by_one_write_each() {
    for (name, group) in [("face", 8), ("face-gr", 8), ("face-base", 1), ("rotating", 1)] {
        in_world(|world| {
            let bench = Bench::new(world, plain(name), PAGES, 1);
            (0..64).for_each(|page| bench.read(page));
            let before = bench.flash.as_ref().unwrap().counters();
            (100..148).for_each(|page| bench.change(page, page));
            let after = bench.flash.as_ref().unwrap().counters();
            let (writes, pages) = (after.writes - before.writes, bench.pool.stats().flash_writes);
            assert!(pages >= 40, "{name}: {pages} pages");
            assert_eq!(pages, writes * group, "{name}");
            // In the order in which they came, from the first slot on.
            let expected: Vec<Option<u64>> = (0..pages).map(Some).collect();
            assert_eq!(on_flash(&bench)[..pages as usize], expected, "{name}");
            bench.pool.check();
            bench.pool.shutdown();
        });
    }
}

/// Dirty pages are written home when they are at the front, and not before; nothing else does.
#[test]
fn the_front_goes_home_and_the_log_goes_round() {
    for name in ["face", "face-gr", "face-base", "rotating"] {
        in_world(|world| {
            let bench = Bench::new(world, plain(name), PAGES, 1);
            (0..60).for_each(|page| bench.change(page, page + 1));
            (100..160).for_each(|page| bench.read(page));
            let stats = bench.until(|stats| stats.slots_dirty >= 50);
            assert_eq!(stats.home_write_pages, 0, "{name}: {stats:?}");
            (160..300).for_each(|page| bench.read(page));
            let stats = bench.until(|stats| stats.slots_dirty == 0 && stats.cleaner_pages == 60);
            assert_eq!(stats.home_write_pages, 60, "{name}: {stats:?}");
            assert!(stats.slots_used > u64::from(SLOTS / 2), "{name}: {stats:?}");
            assert!(stats.slots_used < u64::from(SLOTS), "some are free ahead: {stats:?}");
            bench.pool.check();
            (0..60).for_each(|page| bench.read(page));
            bench.pool.shutdown();
        });
    }
}

/// A page that is asked for again and again stays on flash under second chance only, though the
/// log has gone round many times.
#[test]
fn a_page_that_is_hit_gets_a_second_chance() {
    for (name, stays) in [("face", true), ("face-gr", false), ("face-base", false)] {
        in_world(|world| {
            let config = PoolConfig { flash_slots: 2 * SLOTS, ..plain(name) };
            let bench = Bench::new(world, config, PAGES, 1);
            bench.change(7, 77);
            let mut home_reads = 0;
            for round in 0..40 {
                // More than memory holds, and not enough for the front to come round.
                let from = 10 + round % 3 * 130;
                (from..from + 130).for_each(|page| bench.read(page));
                let before = bench.pool.stats();
                bench.read(7);
                home_reads += bench.pool.stats().home_reads - before.home_reads;
            }
            assert_eq!(home_reads == 0, stays, "{name}: {home_reads} reads from home");
            let stats = bench.pool.stats();
            assert_eq!(stats.second_chances > 0, stays, "{name}: {stats:?}");
            assert_eq!(stats.home_write_pages == 0, stays, "{name}: {stats:?}");
            bench.pool.check();
            bench.pool.shutdown();
        });
    }
}

/// A changed page leaves a hole, which is not filled before the front has passed it.
#[test]
fn older_versions_are_holes() {
    in_world(|world| {
        let bench = Bench::new(world, plain("face"), PAGES, 1);
        (0..16).for_each(|page| bench.read(page));
        (100..160).for_each(|page| bench.read(page));
        assert!(bench.pool.stats().slots_used >= 8);
        let used = bench.pool.stats().slots_used;
        (0..8).for_each(|page| bench.change(page, page + 1));
        let stats = bench.pool.stats();
        assert_eq!(stats.invalidations, 8);
        assert_eq!((stats.slots_invalid, stats.slots_used >= used - 8), (8, true), "{stats:?}");
        (160..224).for_each(|page| bench.read(page));
        let newest = on_flash(&bench);
        let last = |page| newest.iter().rposition(|held| *held == Some(page)).expect("on flash");
        assert!((0..8).all(|page| last(page) > 8), "the new versions lie behind the old");
        bench.pool.check();
        bench.pool.shutdown();
    });
}

/// The rotating tier writes every page anew, and a page in memory takes over what its slot had
/// that home lacks.
#[test]
fn the_rotating_tier_writes_what_it_has_anew() {
    in_world(|world| {
        let bench = Bench::new(world, plain("rotating"), PAGES, 1);
        bench.change(1, 11);
        (100..170).for_each(|page| bench.read(page));
        bench.read(1);
        let before = bench.pool.stats();
        assert_eq!((before.slots_dirty, before.frames_dirty), (1, 0));
        // The front passes the slot of a page that is in memory.
        for page in 200..310 {
            bench.read(page);
            bench.read(1);
        }
        let stats = bench.pool.stats();
        assert_eq!((stats.slots_dirty, stats.frames_dirty), (0, 1), "{stats:?}");
        assert_eq!(stats.home_write_pages, 0);
        // And writes it anew, with its entry, though it has not changed.
        (100..170).for_each(|page| bench.read(page));
        let stats = bench.pool.stats();
        assert_eq!((stats.slots_dirty, stats.frames_dirty), (1, 0), "{stats:?}");
        bench.read(1);
        bench.pool.check();
        bench.pool.flush_all().expect("a checkpoint");
        bench.assert_home_is_current();
        bench.pool.shutdown();
    });
}

/// Bad bytes at the front: the log of this world repairs nothing, so the page stays where it is,
/// its reader gets an error, and victims are written home as if there were no flash.
#[test]
fn a_front_that_is_damaged_holds_its_place() {
    for name in ["face", "face-gr", "face-base", "rotating", "fasc"] {
        in_world(|world| {
            let bench = Bench::new(world, plain(name), PAGES, 1);
            let flash = bench.flash.clone().expect("a flash device");
            bench.change(1, 11);
            (100..200).for_each(|page| bench.read(page));
            let slot = on_flash(&bench).iter().position(|page| *page == Some(1)).unwrap() as u64;
            flash.rot(HEADER_PAGES + slot);
            for round in 0..3 {
                (100..300).for_each(|page| bench.change(page, page + round));
            }
            let error = bench.pool.read(PageId(1)).err().expect("an error");
            assert!(matches!(error, PoolError::Damaged { page: PageId(1), .. }), "{name}: {error}");
            assert!(bench.pool.stats().home_write_pages > 100, "{name}");
            assert!(bench.pool.oldest_dirty_lsn().is_some_and(|lsn| lsn.0 < 200), "{name}");
            bench.pool.check();
            // A repair of the page lets the log go round again.
            let found = bench.pool.read_damaged_ok(PageId(1)).expect("a repair");
            let terrace_pool::Recovered::Damaged(mut page, ..) = found else { panic!("{name}") };
            page.dirty();
            let at = terrace_page::Lsn(terrace_pool::Journal::last_lsn(&*bench.log).0);
            page.apply(at, |bytes| crate::log_model::set_value(bytes, 11));
            drop(page);
            let before = bench.pool.stats().admissions;
            (100..300).for_each(|page| bench.read(page));
            sleep(Nanos(100_000_000));
            (100..300).for_each(|page| bench.read(page));
            assert!(bench.pool.stats().admissions > before + 100, "{name}");
            bench.pool.check();
            bench.pool.flush_all().expect("a checkpoint");
            bench.assert_home_is_current();
            bench.pool.shutdown();
        });
    }
}

/// What was hit and is bad at the front is dropped if home has it too.
#[test]
fn a_bad_clean_page_gets_no_second_chance() {
    in_world(|world| {
        let bench = Bench::new(world, plain("face"), PAGES, 1);
        bench.read(1);
        (100..170).for_each(|page| bench.read(page));
        bench.read(1);
        (200..260).for_each(|page| bench.read(page));
        let slot = on_flash(&bench).iter().position(|page| *page == Some(1)).unwrap() as u64;
        bench.flash.as_ref().unwrap().rot(HEADER_PAGES + slot);
        (260..340).for_each(|page| bench.read(page));
        let before = bench.pool.stats();
        bench.read(1);
        let after = bench.pool.stats();
        assert_eq!(after.home_reads, before.home_reads + 1, "{after:?}");
        bench.pool.check();
        bench.pool.shutdown();
    });
}

#[test]
fn a_flash_that_fails_in_the_middle_loses_nothing() {
    for name in ["face", "face-gr", "face-base", "rotating", "fasc"] {
        in_world(|world| {
            let bench = Bench::new(world, plain(name), PAGES, 1);
            for round in 0..6 {
                // It comes back, and fails for good in the end.
                let fails = [false, true, false, true, true, true][round as usize];
                bench.flash.as_ref().unwrap().fails_writes.store(fails, Ordering::Relaxed);
                for page in 0..180 {
                    bench.read((page * 7) % 180);
                    if page % 3 == 0 {
                        bench.change(page, round * PAGES + page + 1);
                    }
                }
                bench.pool.check();
            }
            bench.pool.flush_all().expect("a checkpoint");
            bench.assert_home_is_current();
            bench.pool.shutdown();
        });
    }
}

#[test]
fn a_group_that_cannot_be_is_refused() {
    in_world(|world| {
        let bench = Bench::new(world, plain("face"), PAGES, 1);
        bench.pool.shutdown();
        for append_group in [0, 1025] {
            let opened = terrace_pool::BufferPool::open(
                PoolConfig { append_group, ..plain("face") },
                world.clone(),
                bench.home.clone(),
                bench.flash.clone().map(|flash| flash as std::sync::Arc<dyn Device>),
                bench.log.clone(),
            );
            let refused =
                matches!(opened, Err(PoolError::Config { what, .. }) if what.contains("1024"));
            assert!(refused, "a group of {append_group}");
        }
        assert!(designs::find("face").unwrap().batch().is_some());
    });
}

/// A page that changed while it was on its way home from the front kept its slot as a base, and
/// that its group: a hot page did not leave memory, so nothing was appended until the next
/// checkpoint.
#[test]
fn a_page_that_changes_on_its_way_home_does_not_stop_the_ring() {
    for name in ["face", "face-gr", "face-base"] {
        in_world(|world| {
            let config = PoolConfig {
                restart: restarts::find("map-log").expect("a row"),
                flash_role: FlashRole::Persistent,
                ..plain(name)
            };
            let bench = Bench::new(world, config, PAGES, 1);
            bench.pool.begin();
            (0..60).for_each(|page| bench.change(page, page + 1));
            let mut hot = None;
            for page in 100..PAGES {
                bench.read(page);
                // A group is on its way home, and has not left: home is slow.
                let homeward = bench.pool.stats().cleaner_pages;
                match hot {
                    None if homeward > 0 => {
                        hot = Some(homeward - 1);
                        bench.change(homeward - 1, page);
                        assert_eq!(bench.pool.stats().invalidations, 1, "{name}: it was there");
                    }
                    None => {}
                    Some(hot) => bench.read(hot),
                }
            }
            let stats = bench.pool.stats();
            assert!(stats.flash_writes > 250, "{name}: {stats:?}");
            assert_eq!(stats.home_write_pages, 60 + 1, "{name}: what was caught, twice");
            bench.pool.check();
            bench.pool.shutdown();
        });
    }
}

/// A bad copy in a group that leaves was taken for rebuilt from home and the log, though the log
/// need not have what only flash had: what was lost was not reported.
#[test]
fn a_bad_copy_that_only_persistent_flash_had_is_told() {
    for (role, is_told) in [(FlashRole::Cache, false), (FlashRole::Persistent, true)] {
        in_world(|world| {
            let restart = restarts::find("map-log").expect("a row");
            let config = PoolConfig { restart, flash_role: role, ..plain("face") };
            let bench = Bench::new(world, config, PAGES, 1);
            bench.pool.begin();
            bench.log.is_cut.store(true, Ordering::Relaxed);
            (0..60).for_each(|page| bench.change(page, page + 1));
            (100..160).for_each(|page| bench.read(page));
            let flash = bench.flash.as_ref().expect("a flash device");
            let is_copy = |at: &u64| verify(&flash.page(*at), PageId(1)).is_ok();
            flash.rot((HEADER_PAGES..).find(is_copy).expect("page 1 is on flash"));
            for page in 160..300 {
                // What is at the front may stand in the way.
                let _page = bench.pool.read(PageId(page)).expect("home has it");
            }
            sleep(Nanos(100_000_000));
            let found = bench.pool.read(PageId(1)).map(drop);
            let tier = Tier::Flash;
            let is_damaged =
                matches!(found, Err(PoolError::Damaged { tier: at, .. }) if at == tier);
            assert_eq!(is_damaged, is_told, "{role:?}: {found:?}");
            bench.pool.shutdown();
        });
    }
}
