//! What is owed holds the log from where it can be rebuilt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// A log all of whose changes are at home or on flash.
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

/// Changes held in memory that cannot be applied when they are asked for the second time.
struct FailsOnce {
    value: u64,
    calls: AtomicU64,
    done: AtomicU64,
}

impl Redo for FailsOnce {
    fn redo(&self, page: PageId, bytes: &mut PageBuf, whole: bool) -> Result<bool, PoolError> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == 1 {
            return Err(PoolError::Redo { page, what: "a record does not fit" });
        }
        Sets(self.value).redo(page, bytes, whole)
    }

    fn done(&self, _page: PageId) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// A rescue made the entry of an owed page, whose redo then failed: its frame went with the entry,
/// and the page was owed from a later change on than the rescue had begun with. The log could be
/// cut between the two, and then nothing had those changes.
#[test]
fn a_rescued_page_whose_redo_failed_is_owed_from_where_the_rescue_began() {
    in_world(|world| {
        let bench = Bench::new(world, lazy(), PAGES, 1);
        bench.change(1, 11);
        (10..10 + 2 * FRAMES).for_each(|page| bench.read(page));
        let flash = bench.flash.clone().expect("a flash device");
        flash.rot(bench.slot_of(1));
        let before = bench.pool.oldest_dirty_lsn().expect("flash has what home lacks");
        let after = Lsn(before.0 + 1_000);
        let (calls, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let redo = Arc::new(FailsOnce { value: 11, calls, done });
        bench.pool.owe([(PageId(1), after, after)], redo.clone());
        // The rescue asks first, and is answered; then what is owed is asked for.
        let failed = bench.pool.read(PageId(1)).err();
        assert!(matches!(failed, Some(PoolError::Redo { .. })), "{failed:?}");
        assert_eq!(redo.calls.load(Ordering::Relaxed), 2);
        assert_eq!(bench.pool.owed(), 1, "it stays owed");
        assert_eq!(redo.done.load(Ordering::Relaxed), 0, "and its changes stay held");
        assert_eq!(bench.pool.stats().frames_dirty, 0, "no frame has it");
        assert_eq!(bench.pool.oldest_dirty_lsn(), Some(before), "as the rescue held the log");
        bench.read(1);
        assert_eq!(bench.pool.owed(), 0);
        assert_eq!(redo.done.load(Ordering::Relaxed), 1);
        assert_eq!(bench.pool.oldest_dirty_lsn(), Some(before), "dirty in memory");
        bench.pool.flush_below(Lsn::MAX).expect("a flush");
        assert_eq!(bench.pool.oldest_dirty_lsn(), None, "home has it");
        assert_eq!(value(&bench.home.page(1)), 11);
        bench.pool.shutdown();
    });
}
