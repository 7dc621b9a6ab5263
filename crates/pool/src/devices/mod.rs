//! The devices of the two tiers below memory: when flash is bypassed, since it is busy, has failed
//! or has had its day's writes, and when a failed flash stops the pool.

pub(crate) mod budget;
pub(crate) mod costs;
pub(crate) mod spill;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use terrace_device::{Device, DeviceError, Operation};
use terrace_page::{PAGE_SIZE, PageBuf, PageId};
use terrace_policy::Costs;
use terrace_rt::LeafMutex;
use terrace_tier::PAGES_MAX;

use crate::durability::Durability;
use crate::io::{self, PageIo, PagePlace, PageReads};
use crate::{PoolConfig, PoolStats};
use budget::WriteBudget;
use spill::Spilling;

/// After this many failed writes in a row, nothing more is written to flash.
const FLASH_FAILURES_MAX: u32 = 8;

pub(crate) struct Devices {
    pub(crate) home: Arc<dyn Device>,
    /// `None` if the design has no flash tier.
    pub(crate) flash: Option<Arc<dyn Device>>,
    /// Pages that home has room for, of those that a slot can name.
    home_pages: u64,
    /// What requests cost: as configured, or measured.
    pub(crate) costs: Costs,
    /// With more requests than this queued, the flash is bypassed [S0 3.3.2].
    mu: usize,
    /// Limits the writes to flash, if that was configured.
    budget: Option<WriteBudget>,
    /// Writes to flash that failed since the last successful one.
    failures: AtomicU32,
    /// If reads may spill to home.
    pub(crate) spilling: Option<Spilling>,
    /// Whether flash is a part of the database.
    is_flash_needed: bool,
    /// Counts requests, except those that the partitions count.
    pub(crate) counts: LeafMutex<PoolStats>,
}

impl Devices {
    /// Of a pool with this `config`, whose requests have these `costs`.
    pub(crate) fn new(
        config: &PoolConfig,
        home: Arc<dyn Device>,
        flash: Option<Arc<dyn Device>>,
        costs: Costs,
    ) -> Devices {
        let home_pages = (home.len() / PAGE_SIZE as u64).min(PAGES_MAX);
        let limited = flash.as_deref().zip(config.flash_writes_per_day);
        let budget = limited.map(|(flash, bytes_per_day)| {
            WriteBudget::new(bytes_per_day, terrace_rt::now(), flash.counters().written_bytes)
        });
        let spilling = Spilling::new(config, &costs);
        Devices {
            home,
            flash,
            home_pages,
            costs,
            mu: config.mu,
            budget,
            failures: AtomicU32::new(0),
            spilling,
            is_flash_needed: config.flash_role.is_persistent(),
            counts: LeafMutex::default(),
        }
    }

    /// The flash, of a pool with slots.
    pub(crate) fn flash(&self) -> &dyn Device {
        self.flash.as_deref().expect("slots are on flash")
    }

    /// Reads pages from home.
    pub(crate) fn read_home(&self, ios: Vec<PageIo<'_>>) -> std::io::Result<()> {
        self.count_home_reads(&ios);
        io::run(&*self.home, ios)
    }

    /// Reads pages from home and from flash, side by side.
    pub(crate) fn read_both(
        &self,
        home: Vec<PageIo<'_>>,
        flash: Vec<PageIo<'_>>,
    ) -> (std::io::Result<()>, std::io::Result<()>) {
        self.count_home_reads(&home);
        io::run_both((&*self.home, home), (self.flash.as_deref().unwrap_or(&*self.home), flash))
    }

    /// Reads pages from home one by one.
    pub(crate) fn read_home_each<P: PagePlace, T>(&self, pages: &mut impl PageReads<P, T>) {
        io::read_each(&*self.home, pages);
    }

    fn count_home_reads(&self, ios: &[PageIo<'_>]) {
        let pages = ios.iter().map(|io| io.pages() as u64).sum();
        self.home_is_read(ios.len() as u64, pages);
    }

    /// Counts reads from home.
    pub(crate) fn home_is_read(&self, reads: u64, pages: u64) {
        let mut counts = self.counts.lock();
        counts.home_reads += reads;
        counts.home_read_pages += pages;
    }

    /// Writes pages home and to flash, side by side.
    pub(crate) fn write_both(
        &self,
        home: Vec<PageIo<'_>>,
        flash: Vec<PageIo<'_>>,
    ) -> (std::io::Result<()>, std::io::Result<()>) {
        {
            let mut counts = self.counts.lock();
            counts.home_writes += home.len() as u64;
            counts.home_write_pages += home.iter().map(|io| io.pages() as u64).sum::<u64>();
            counts.flash_writes += flash.len() as u64;
        }
        if flash.is_empty() {
            return (io::run(&*self.home, home), Ok(()));
        }
        io::run_both((&*self.home, home), (self.flash(), flash))
    }

    /// Counts the home writes of `pages`, in page order, which are about to be cleaned, up to
    /// `at_once` together.
    pub(crate) fn count_cleaning(&self, pages: &[(PageId, &PageBuf)], at_once: usize) {
        let runs =
            |part: &[(PageId, &PageBuf)]| part.chunk_by(|a, b| a.0.plus(1) == b.0).count() as u64;
        let ios = pages.chunks(at_once).map(runs).sum::<u64>();
        let mut counts = self.counts.lock();
        counts.cleaner_ios += ios;
        counts.cleaner_pages += pages.len() as u64;
        counts.home_writes += ios;
        counts.home_write_pages += pages.len() as u64;
    }

    /// Flash failed to read or write, or returned bytes that are not the page.
    pub(crate) fn count_fault(&self) {
        self.counts.lock().flash_faults += 1;
    }

    /// Whether `page` lies at home.
    pub(crate) fn has(&self, page: PageId) -> bool {
        page.0 < self.home_pages
    }

    /// Requests that wait at flash, or are served there.
    pub(crate) fn queued_at_flash(&self) -> usize {
        self.flash.as_ref().map_or(0, |flash| flash.queued())
    }

    /// As `queued_at_flash`, of home, too.
    pub(crate) fn queued(&self) -> usize {
        self.home.queued() + self.queued_at_flash()
    }

    /// Whether the flash is too busy for what can do without it [S0 3.3.2].
    pub(crate) fn is_throttled(&self) -> bool {
        self.flash.as_ref().is_some_and(|flash| flash.queued() > self.mu)
    }

    /// Whether the flash takes pages.
    pub(crate) fn is_usable(&self) -> bool {
        let is_there = self.flash.as_ref().is_some_and(|flash| !flash.is_given_up());
        is_there && self.failures.load(Ordering::Relaxed) < FLASH_FAILURES_MAX
    }

    /// Whether the day's share of writes to flash is spent.
    pub(crate) fn is_over_budget(&self) -> bool {
        let budget = self.budget.as_ref().zip(self.flash.as_ref());
        budget.is_some_and(|(budget, flash)| {
            !budget.allows(terrace_rt::now(), flash.counters().written_bytes)
        })
    }

    /// Memory has missed a page: samples the devices' queues from time to time, if reads may spill.
    /// Call it without a lock.
    pub(crate) fn missed(&self) {
        if let (Some(spilling), Some(flash)) = (&self.spilling, &self.flash) {
            spilling.missed(&**flash, &*self.home);
        }
    }

    /// A write to flash ended.
    pub(crate) fn flash_was_written(&self, durability: &Durability, written: bool) {
        if written {
            self.failures.store(0, Ordering::Relaxed);
        } else {
            self.failures.fetch_add(1, Ordering::Relaxed);
            self.count_fault();
            self.look_at_flash(durability);
        }
    }

    /// The flash failed. If it is a part of the database, and is given up, stops the database.
    pub(crate) fn look_at_flash(&self, durability: &Durability) {
        let flash = self.flash.as_deref().filter(|flash| flash.is_given_up());
        let Some(flash) = flash.filter(|_| self.is_flash_needed) else { return };
        let what = "the device has not answered in time, or has lost a write";
        let source = std::io::Error::new(ErrorKind::TimedOut, what);
        let source = DeviceError::wrap(flash.name(), Operation::Read, None, source);
        durability.stop_for_flash(flash, Operation::Read, source);
    }
}

impl terrace_tier::Devices for Devices {
    fn is_flash_spared(&self) -> bool {
        self.flash.as_ref().is_some_and(|flash| flash.is_given_up()) || self.is_throttled()
    }

    fn spills(&self) -> bool {
        let both = self.spilling.as_ref().zip(self.flash.as_ref());
        both.is_some_and(|(spilling, flash)| spilling.is_on(&**flash, &*self.home))
    }
}
