//! What is owed holds the log from where it can be rebuilt.

use std::sync::Arc;

use terrace_page::{Lsn, PageBuf, PageId};
use terrace_pool::{PoolConfig, PoolError, Redo};
use terrace_rt::{Virtual, VirtualConfig, World};

use crate::bench_world::{Bench, config};
use crate::log_model::{set_value, value};

const PAGES: u64 = 200;
const FRAMES: u64 = 24;
/// Where the log has the first change that analysis met of a page, and where its image may be.
const REC: Lsn = Lsn(500_000);
const REBUILT_FROM: Lsn = Lsn(40_000);

/// A log whose changes home and flash have all.
struct NothingToRedo;

impl Redo for NothingToRedo {
    fn redo(&self, _page: PageId, _bytes: &mut PageBuf, _whole: bool) -> Result<bool, PoolError> {
        Ok(false)
    }

    fn done(&self, _page: PageId) {}
}

fn in_world(test: impl FnOnce(&World)) {
    let world = Virtual::new(VirtualConfig::default());
    world.run(|| test(&world.world())).expect("the world goes on");
}

fn lazy() -> PoolConfig {
    let fills = terrace_pool::Fills { ramp_up: false, aggressive: false };
    PoolConfig { fills, ..config("lc") }
}

fn owe(bench: &Bench, page: u64) {
    bench.pool.owe([(PageId(page), REC, REBUILT_FROM)], Arc::new(NothingToRedo));
}

/// A page whose copy on flash counts as clean was made dirty from the first change on that analysis
/// met, though its image came before: once its next home write was torn, and the log cut at that
/// change, nothing could rebuild it.
#[test]
fn a_clean_copy_holds_the_log_from_its_image_on_until_home_has_it() {
    in_world(|world| {
        let bench = Bench::new(world, lazy(), PAGES, 1);
        bench.read(1);
        (10..10 + FRAMES).for_each(|page| bench.read(page));
        owe(&bench, 1);
        assert_eq!(bench.pool.oldest_dirty_lsn(), Some(REBUILT_FROM), "owed");
        bench.read(1);
        assert_eq!(bench.pool.owed(), 0);
        assert_eq!(bench.pool.oldest_dirty_lsn(), Some(REBUILT_FROM), "dirty in memory");
        bench.pool.flush_below(Lsn::MAX).expect("a flush");
        assert_eq!(bench.pool.oldest_dirty_lsn(), None, "home has it");
        bench.pool.shutdown();
    });
}

#[test]
fn a_page_without_a_copy_holds_the_log_from_its_first_change_on() {
    in_world(|world| {
        let bench = Bench::new(world, lazy(), PAGES, 1);
        owe(&bench, 1);
        assert_eq!(bench.pool.oldest_dirty_lsn(), Some(REC));
        bench.read(1);
        assert_eq!(bench.pool.oldest_dirty_lsn(), None, "home had it");
        bench.pool.shutdown();
    });
}

/// Changes held in memory that make of whatever home has the value that they were given.
struct Sets(u64);

impl Redo for Sets {
    fn redo(&self, _page: PageId, bytes: &mut PageBuf, whole: bool) -> Result<bool, PoolError> {
        assert!(whole, "home has the page");
        set_value(bytes, self.0);
        Ok(true)
    }

    fn done(&self, _page: PageId) {}
}

/// The log was read from the page's first change to its end, for each copy that a power cut took.
#[test]
fn a_bad_copy_of_an_owed_page_is_rebuilt_without_reading_the_log() {
    in_world(|world| {
        let bench = Bench::new(world, lazy(), PAGES, 1);
        bench.change(1, 11);
        (10..10 + 2 * FRAMES).for_each(|page| bench.read(page));
        let flash = bench.flash.clone().expect("a flash device");
        flash.rot(bench.slot_of(1));
        let before = bench.pool.oldest_dirty_lsn().expect("flash has what home lacks");
        // The log of this bench repairs nothing.
        assert!(bench.pool.read(PageId(1)).is_err());
        bench.pool.owe([(PageId(1), before, before)], Arc::new(Sets(11)));
        bench.read(1);
        assert_eq!(bench.pool.owed(), 0);
        assert_eq!(bench.pool.oldest_dirty_lsn(), Some(before), "dirty since its first change");
        bench.pool.flush_below(Lsn::MAX).expect("a flush");
        assert_eq!(value(&bench.home.page(1)), 11);
        bench.pool.shutdown();
    });
}
