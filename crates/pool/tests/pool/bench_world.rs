//! A pool with its devices, its journal and a naive model of what pages hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_page::{PageId, lsn};
use terrace_policy::{Costs, designs};
use terrace_pool::{BufferPool, Dirtied, FlashLayout, PageMut, PoolConfig, PoolError, PoolStats};
use terrace_rt::{Nanos, Prng, World, sleep};

use crate::log_model::{LogModel, Record, fresh_page, set_value, value};
use crate::ram_device::RamDevice;

pub struct Bench {
    pub pool: Arc<BufferPool>,
    pub home: Arc<RamDevice>,
    pub flash: Option<Arc<RamDevice>>,
    pub log: Arc<LogModel>,
    /// The value of each page; changes under the page's latch.
    pub model: Vec<AtomicU64>,
}

pub const HOME_NS: u64 = 8_000_000;
pub const FLASH_NS: u64 = 80_000;

/// A small pool of the design called `name`.
pub fn config(name: &str) -> PoolConfig {
    let design = designs::find(name).expect("a known design");
    PoolConfig {
        frames: 24,
        design,
        flash_slots: if design.uses_flash() { 40 } else { 0 },
        buf_write_pages: 16,
        alpha: 4,
        costs: Some(Costs::PUBLISHED),
        ..PoolConfig::default()
    }
}

impl Bench {
    pub fn new(world: &World, config: PoolConfig, pages: u64, seed: u64) -> Arc<Bench> {
        Bench::with_flash(world, config, pages, seed, FLASH_NS)
    }

    /// As `new`, with a flash device whose service takes up to `flash_ns`.
    pub fn with_flash(
        world: &World,
        config: PoolConfig,
        pages: u64,
        seed: u64,
        flash_ns: u64,
    ) -> Arc<Bench> {
        let home = RamDevice::new(world, pages, HOME_NS, seed);
        for page in 0..pages {
            home.set_page(page, &fresh_page(page));
        }
        let layout = FlashLayout::new(config.flash_slots, config.restart.kind);
        let flash = || RamDevice::new(world, layout.pages(), flash_ns, seed + 1);
        let flash = (layout.slots > 0).then(flash);
        let log = Arc::new(LogModel::new(seed + 2));
        let pool = BufferPool::open(
            config,
            world.clone(),
            home.clone(),
            flash.clone().map(|flash| flash as Arc<dyn terrace_device::Device>),
            log.clone(),
        );
        let pool = pool.expect("a pool opens");
        let model = (0..pages).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Bench { pool, home, flash, log, model })
    }

    pub fn pages(&self) -> u64 {
        self.model.len() as u64
    }

    /// Where on flash a copy of `page` is.
    pub fn slot_of(&self, page: u64) -> u64 {
        let flash = self.flash.as_ref().expect("a flash device");
        let is_copy = |slot: &u64| terrace_page::verify(&flash.page(*slot), PageId(page)).is_ok();
        (8..48).find(is_copy).expect("the page is on flash")
    }

    /// Waits, for a bounded time, until the counters are as `wanted`.
    pub fn until(&self, wanted: impl Fn(&PoolStats) -> bool) -> PoolStats {
        const LOOKS_MAX: u32 = 10_000;
        for _ in 0..LOOKS_MAX {
            let stats = self.pool.stats();
            if wanted(&stats) {
                return stats;
            }
            sleep(Nanos::from_millis(1));
        }
        panic!("it does not come to that: {:?}", self.pool.stats());
    }

    pub fn read(&self, page: u64) {
        let guard = self.pool.read(PageId(page)).expect("a page is read");
        assert_eq!(value(&guard), self.model[page as usize].load(Ordering::Relaxed), "page {page}");
    }

    pub fn change(&self, page: u64, new: u64) {
        self.try_change(page, new).expect("a page is latched");
    }

    pub fn try_change(&self, page: u64, new: u64) -> Result<(), PoolError> {
        let mut guard = self.pool.write(PageId(page))?;
        assert_eq!(value(&guard), self.model[page as usize].load(Ordering::Relaxed), "page {page}");
        self.set(&mut guard, new);
        Ok(())
    }

    pub fn create(&self, page: u64, new: u64) {
        let mut guard = self.pool.create(PageId(page)).expect("a page is made");
        assert_eq!(value(&guard), 0, "a new page is zeroes");
        self.set(&mut guard, new);
    }

    fn set(&self, guard: &mut PageMut<'_>, new: u64) {
        let is_image = guard.dirty() == Dirtied::Fresh;
        let id = guard.id();
        let record = Record::Update { page: id, previous: lsn(guard), value: new, is_image };
        let at = self.log.append(record);
        // A page may lose its processor between the record and the change.
        terrace_rt::maybe_switch();
        guard.apply(at, |bytes| set_value(bytes, new));
        self.model[id.0 as usize].store(new, Ordering::Relaxed);
    }

    /// One random operation; pages are skewed, so that some stay in memory.
    pub fn step(&self, prng: &mut Prng) {
        let pages = self.pages();
        let spread = if prng.chance(3) { pages } else { pages / 4 };
        let page = prng.below(spread);
        match prng.below(100) {
            0..55 => self.read(page),
            55..88 => self.change(page, prng.next_u64()),
            88..91 => self.pool.read_ahead(PageId(page), 1 + prng.below(12) as u32),
            91..94 => {
                let batch: Vec<PageId> = (0..5).map(|_| PageId(prng.below(pages))).collect();
                self.pool.prefetch(&batch);
            }
            94..95 => self.pool.flush_below(self.some_lsn(prng)).expect("a flush"),
            95..96 => self.checkpoint(),
            _ => {
                // Two latches at once, in page order.
                let (a, b) = (page, prng.below(pages));
                if a < b {
                    let first = self.pool.read(PageId(a)).expect("a page is read");
                    let second = self.pool.read(PageId(b)).expect("a page is read");
                    assert_eq!(value(&first), self.model[a as usize].load(Ordering::Relaxed));
                    assert_eq!(value(&second), self.model[b as usize].load(Ordering::Relaxed));
                }
            }
        }
    }

    fn some_lsn(&self, prng: &mut Prng) -> terrace_page::Lsn {
        use terrace_pool::Journal;
        terrace_page::Lsn(prng.below(self.log.last_lsn().0 + 1))
    }

    /// An indirect checkpoint: the log forgets what it need not keep.
    pub fn checkpoint(&self) {
        use terrace_pool::Journal;
        let begin = terrace_page::Lsn(self.log.last_lsn().0 + 1);
        let oldest = self.pool.oldest_dirty_lsn();
        self.log.truncate(oldest.map_or(begin, |oldest| oldest.min(begin)));
    }

    /// Makes all that was logged durable.
    pub fn commit(&self) {
        use terrace_pool::Journal;
        self.log.make_durable(self.log.last_lsn()).expect("a log");
    }

    /// Every page holds, at home, what the model says.
    pub fn assert_home_is_current(&self) {
        for (page, expected) in self.model.iter().enumerate() {
            let bytes = self.home.page(page as u64);
            terrace_page::verify(&bytes, PageId(page as u64)).expect("home is whole");
            assert_eq!(value(&bytes), expected.load(Ordering::Relaxed), "page {page} at home");
        }
    }
}
