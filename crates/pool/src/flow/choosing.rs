//! The design that picks itself: what it is told, what requests cost now, and what a new choice
//! changes.
//!
//! ```text
//! a page is missed, changes, leaves --(if in the sample)--> Chooser --(due)--> costs --> choice
//!    admission, order, write policy <--- every partition, the cleaner <---------------------+
//! ```
//!
//! - N1: a choice may change between any two decisions about a page. Each is made by the choice of
//!   that moment, and every state of a slot that one choice leaves behind is one that all others
//!   know: they share slots, and the tier keeps dirty pages whatever is chosen.
//! - N2: what was written back stays newer than home until it is cleaned. While changed pages go
//!   home at once, the cleaner empties the tier of them, gently.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use terrace_device::{Counters, Device};
use terrace_page::{PAGE_SIZE, PageId};
use terrace_policy::{Costs, DirtyLeave, Prices, Replacement};
use terrace_rt::{LeafMutex, Nanos, now};
use terrace_tier::{BusyCosts, BusyFit, CHOICES, Choice, Chooser, Limits};

use crate::memory::frames::Frame;
use crate::{BufferPool, PoolConfig};

/// Runs under way while the tier is emptied of what is newer than home (N2).
pub(crate) const DRAIN_RUNS: u32 = 8;
/// Pages in a write of the cleaner, before there was one.
const CLEANED_TOGETHER: f64 = 2.0;
/// A stride over the choices that meets them all.
const FORCED_STRIDE: u64 = 5;

const _: () = assert!(!(CHOICES.len() as u64).is_multiple_of(FORCED_STRIDE));

/// Of a pool whose design picks itself.
pub(crate) struct Choosing {
    one_in: u32,
    chooser: LeafMutex<Chooser>,
    /// What is chosen, of `CHOICES`.
    chosen: AtomicUsize,
    meter: LeafMutex<Meter>,
    forced_misses: Option<u64>,
    misses: AtomicU64,
    changes: AtomicU64,
}

/// What requests keep the devices busy.
struct Meter {
    home: BusyFit,
    flash: BusyFit,
    prices: Prices,
    before: (Counters, Counters),
    before_at: Nanos,
}

impl Choosing {
    /// If `config` has such a design.
    pub fn new(config: &PoolConfig, costs: &Costs) -> Option<Choosing> {
        if config.design.replacement != Replacement::Chosen {
            return None;
        }
        let limits = Limits { tau: config.tau, lambda: config.lambda };
        let chooser = Chooser::new(config.design, config.flash_slots, limits);
        let meter = Meter {
            home: BusyFit::new(costs.home_read),
            flash: BusyFit::new(costs.flash_read),
            // It rises faster than it falls: two devices that are both busy differ by little.
            prices: Prices::new(1.0),
            before: Default::default(),
            before_at: now(),
        };
        Some(Choosing {
            one_in: chooser.one_in(),
            chooser: LeafMutex::new(chooser),
            chosen: AtomicUsize::new(0),
            meter: LeafMutex::new(meter),
            forced_misses: config.forced_choice_misses,
            misses: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        })
    }

    pub fn choice(&self) -> Choice {
        CHOICES[self.chosen.load(Ordering::Relaxed)]
    }

    pub fn bytes(&self) -> usize {
        self.chooser.lock().bytes() + size_of::<Choosing>()
    }

    /// How often another choice was made.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }
}

/// Requests by pages, for a device that is asked for runs of them.
fn requests(counters: Counters) -> (f64, f64) {
    let pages = |bytes: u64| (bytes / PAGE_SIZE as u64) as f64;
    (pages(counters.read_bytes), pages(counters.written_bytes))
}

impl Meter {
    /// What requests cost, by all that was until the counters stood so.
    fn costs(&mut self, counters: (Counters, Counters), cleaned_together: f64) -> BusyCosts {
        let (home, flash) = (counters.0 - self.before.0, counters.1 - self.before.1);
        let at = now();
        let elapsed_ns = (at - self.before_at).0 as f64;
        (self.before, self.before_at) = (counters, at);
        self.home.add((home.reads as f64, home.writes as f64), home.busy_ns as f64);
        self.flash.add(requests(flash), flash.busy_ns as f64);
        let ((home_read, home_write), (flash_read, flash_write)) =
            (self.home.times(), self.flash.times());
        let home_clean = home_write / cleaned_together;
        if elapsed_ns > 0.0 {
            let share = |busy_ns: u64| busy_ns as f64 / elapsed_ns;
            self.prices.told(share(home.busy_ns), share(flash.busy_ns), home_read / flash_read);
        }
        BusyCosts { home_read, home_write, home_clean, flash_read, flash_write }
    }
}

impl BufferPool {
    /// What becomes of changed pages that leave memory.
    pub(crate) fn dirty_leave(&self) -> DirtyLeave {
        let chosen = self.traffic.choosing.as_ref().map(|choosing| choosing.choice().dirty);
        chosen.unwrap_or(self.config.design.dirty_leave)
    }

    /// Whether pages that are newer than home are wanted no more (N2).
    pub(crate) fn drains(&self) -> bool {
        self.traffic.choosing.is_some() && self.dirty_leave() != DirtyLeave::Flash
    }

    /// Memory has missed `page`. To be called without a lock.
    pub(crate) fn choosing_asked(&self, page: PageId) {
        let Some(choosing) = &self.traffic.choosing else { return };
        if let Some(every) = choosing.forced_misses {
            let misses = choosing.misses.fetch_add(1, Ordering::Relaxed) + 1;
            if misses.is_multiple_of(every) {
                let turn = misses / every * FORCED_STRIDE;
                self.choose((turn % CHOICES.len() as u64) as usize);
            }
            return;
        }
        if Chooser::samples(choosing.one_in, page) && choosing.chooser.lock().asked(page) {
            self.choose_again(choosing);
        }
    }

    fn choose_again(&self, choosing: &Choosing) {
        let of = |device: Option<&dyn Device>| device.map(Device::counters).unwrap_or_default();
        let cleaned_together = {
            let stats = self.devices.counts.lock();
            match stats.cleaner_ios {
                0 => CLEANED_TOGETHER,
                ios => stats.cleaner_pages as f64 / ios as f64,
            }
        };
        let (costs, ratio) = {
            let mut meter = choosing.meter.lock();
            // Read under the lock: what another thread reads later is more.
            let counters = (of(Some(&*self.devices.home)), of(self.devices.flash.as_deref()));
            (meter.costs(counters, cleaned_together), meter.prices.ratio())
        };
        for partition in &self.memory.partitions {
            partition.books.lock().policy.set_price_ratio(ratio);
        }
        let choice = {
            let mut chooser = choosing.chooser.lock();
            if !chooser.is_due() {
                return;
            }
            chooser.decide(&costs)
        };
        let at = CHOICES.iter().position(|&other| other == choice);
        self.choose(at.expect("a choice that there is"));
    }

    fn choose(&self, at: usize) {
        let Some(choosing) = &self.traffic.choosing else { return };
        if choosing.chosen.swap(at, Ordering::Relaxed) == at {
            return;
        }
        choosing.changes.fetch_add(1, Ordering::Relaxed);
        for partition in &self.memory.partitions {
            partition.books.lock().slots.choose(CHOICES[at]);
        }
        if self.drains() {
            self.cleaning.news.notify_all();
        }
    }

    /// `page` changes in memory.
    pub(crate) fn choosing_changed(&self, page: PageId) {
        if let Some(choosing) = &self.traffic.choosing
            && Chooser::samples(choosing.one_in, page)
        {
            choosing.chooser.lock().changed(page);
        }
    }

    /// The page of `frame` is about to leave memory.
    pub(crate) fn choosing_left(&self, page: PageId, frame: &Frame) {
        if let Some(choosing) = &self.traffic.choosing
            && Chooser::samples(choosing.one_in, page)
        {
            let is_reused = frame.touch().history(self.memory.now()).previous.is_some();
            let (is_dirty, class) = (frame.rec_lsn().is_some(), frame.class());
            choosing.chooser.lock().left(page, is_dirty, class, is_reused);
        }
    }
}
