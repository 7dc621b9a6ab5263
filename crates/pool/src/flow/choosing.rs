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
//! - N2: what was written back stays newer than home until it is cleaned. While changed pages are
//!   written home at once, the cleaner empties the tier of them, gently.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use terrace_device::{Counters, Device};
use terrace_page::{PAGE_SIZE, PageId};
use terrace_policy::{Costs, DirtyLeave, Prices, Replacement, Tick};
use terrace_rt::{LeafMutex, Nanos, now};
use terrace_tier::{BusyCosts, BusyFit, CHOICES, Choice, Chooser, Limits};

use crate::PoolConfig;
use crate::devices::Devices;
use crate::flow::cleaning::CleanerState;
use crate::memory::Memory;
use crate::memory::frames::Frame;

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

    /// Whether pages that are newer than home are wanted no more (N2).
    pub fn drains(&self) -> bool {
        self.choice().dirty != DirtyLeave::Flash
    }

    /// Memory has missed `page`. To be called without a lock.
    pub fn asked(&self, page: PageId, memory: &Memory, devices: &Devices, cleaning: &CleanerState) {
        if let Some(every) = self.forced_misses {
            let misses = self.misses.fetch_add(1, Ordering::Relaxed) + 1;
            if misses.is_multiple_of(every) {
                let turn = misses / every * FORCED_STRIDE;
                self.choose((turn % CHOICES.len() as u64) as usize, memory, cleaning);
            }
            return;
        }
        if Chooser::samples(self.one_in, page) && self.chooser.lock().asked(page) {
            let (costs, ratio) = self.look(devices);
            for partition in &memory.partitions {
                partition.books.lock().policy.set_price_ratio(ratio);
            }
            if let Some(choice) = self.decide(&costs) {
                self.choose(choice, memory, cleaning);
            }
        }
    }

    /// What requests cost now, and the ratio of the devices' prices.
    fn look(&self, devices: &Devices) -> (BusyCosts, f64) {
        let of = |device: Option<&dyn Device>| device.map(Device::counters).unwrap_or_default();
        let cleaned_together = {
            let counts = devices.counts.lock();
            match counts.cleaner_ios {
                0 => CLEANED_TOGETHER,
                ios => counts.cleaner_pages as f64 / ios as f64,
            }
        };
        let mut meter = self.meter.lock();
        // Read under the lock: what another thread reads later is more.
        let counters = (of(Some(&*devices.home)), of(devices.flash.as_deref()));
        (meter.costs(counters, cleaned_together), meter.prices.ratio())
    }

    /// The choice at these costs, of `CHOICES`, if one is due.
    fn decide(&self, costs: &BusyCosts) -> Option<usize> {
        let mut chooser = self.chooser.lock();
        if !chooser.is_due() {
            return None;
        }
        let choice = chooser.decide(costs);
        let at = CHOICES.iter().position(|&other| other == choice);
        Some(at.expect("a choice that there is"))
    }

    fn choose(&self, at: usize, memory: &Memory, cleaning: &CleanerState) {
        if self.chosen.swap(at, Ordering::Relaxed) == at {
            return;
        }
        self.changes.fetch_add(1, Ordering::Relaxed);
        for partition in &memory.partitions {
            partition.books.lock().slots.choose(CHOICES[at]);
        }
        // Until what was told is what is chosen: another choice may have come between.
        loop {
            let drains = self.drains();
            cleaning.drain(drains);
            if drains == self.drains() {
                break;
            }
        }
    }

    /// `page` changes in memory.
    pub fn changed(&self, page: PageId) {
        if Chooser::samples(self.one_in, page) {
            self.chooser.lock().changed(page);
        }
    }

    /// The page of `frame` is about to leave memory.
    pub fn left(&self, page: PageId, frame: &Frame, now: Tick) {
        if Chooser::samples(self.one_in, page) {
            let is_reused = frame.touch().history(now).previous.is_some();
            let (is_dirty, class) = (frame.rec_lsn().is_some(), frame.class());
            self.chooser.lock().left(page, is_dirty, class, is_reused);
        }
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
