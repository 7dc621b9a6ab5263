//! Spilling: while requests wait for the flash and home has nothing to do, home serves reads of
//! pages that both have [Wu et al., "The Storage Hierarchy is Not a Hierarchy", FAST 2021, the
//! idea].
//!
//! - Z1: a page that is newer on flash is read there, whatever waits.
//! - Z2: home gets a read only while it serves fewer requests than it can serve at once, and only
//!   if more than twice as many wait at the flash as that serves at once.
//! - What a device serves at once is the time of a single read, as measured when the pool is
//!   opened, over the time that a request keeps the device busy, as counted since.
//! - A home fifty times slower than the flash, or more, is left alone: a client would wait for long
//!   to spare the others little.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use terrace_device::{Counters, Device};
use terrace_policy::Costs;
use terrace_rt::LeafMutex;

use crate::PoolConfig;

/// Misses between two looks at the devices' counters.
const LOOK_MISSES: u64 = 512;
/// How much slower home may be.
const SLOWER_MAX: f64 = 50.0;
/// Requests that wait at the flash, for each that it serves at once.
const WAITING_MIN: f64 = 2.0;

/// Of a pool that spills.
pub(crate) struct Spilling {
    costs: Costs,
    misses: AtomicU64,
    before: LeafMutex<(Counters, Counters)>,
    /// Reads spill while more than this number of requests are at the flash,
    flash_over: AtomicU32,
    /// and fewer than this number at home.
    home_under: AtomicU32,
}

/// What a request keeps the device busy, in ms.
fn busy_ms(counters: Counters) -> f64 {
    counters.busy_ns as f64 / 1e6 / (counters.reads + counters.writes).max(1) as f64
}

/// For home to serve a read, more requests than the first number must be at the flash, and fewer
/// than the second at home. `costs` are of single reads; the busy times of requests are `flash` and
/// `home`, in ms.
fn limits(costs: &Costs, flash: f64, home: f64) -> (u32, u32) {
    if flash <= 0.0 || home <= 0.0 || home > SLOWER_MAX * flash {
        return (u32::MAX, 0);
    }
    let flash_at_once = (costs.flash_read / flash).max(1.0);
    let home_at_once = (costs.home_read / home).max(1.0);
    ((flash_at_once * WAITING_MIN) as u32, home_at_once as u32)
}

impl Spilling {
    pub fn new(config: &PoolConfig, costs: &Costs) -> Option<Spilling> {
        config.spills().then(|| Spilling {
            costs: *costs,
            misses: AtomicU64::new(0),
            before: LeafMutex::new(Default::default()),
            flash_over: AtomicU32::new(u32::MAX),
            home_under: AtomicU32::new(0),
        })
    }

    /// Whether a page that both have is read from home (Z2).
    pub fn is_on(&self, flash: &dyn Device, home: &dyn Device) -> bool {
        flash.queued() > self.flash_over.load(Ordering::Relaxed) as usize
            && home.queued() < self.home_under.load(Ordering::Relaxed) as usize
    }

    /// Memory has missed a page: looks at the devices from time to time.
    pub fn missed(&self, flash: &dyn Device, home: &dyn Device) {
        let misses = self.misses.fetch_add(1, Ordering::Relaxed) + 1;
        if !misses.is_multiple_of(LOOK_MISSES) {
            return;
        }
        let now = (flash.counters(), home.counters());
        let before = std::mem::replace(&mut *self.before.lock(), now);
        let busy = (busy_ms(now.0 - before.0), busy_ms(now.1 - before.1));
        let (flash_over, home_under) = limits(&self.costs, busy.0, busy.1);
        self.flash_over.store(flash_over, Ordering::Relaxed);
        self.home_under.store(home_under, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs =
        Costs { home_read: 8.0, home_write: 8.0, flash_read: 0.08, flash_write: 0.08 };

    #[test]
    fn an_array_takes_a_read_for_each_of_its_disks() {
        assert_eq!(limits(&COSTS, 0.08, 1.0), (2, 8));
    }

    #[test]
    fn a_drive_of_many_dies_is_busy_when_many_wait() {
        assert_eq!(limits(&COSTS, 0.02, 0.5), (8, 16));
    }

    #[test]
    fn a_much_slower_home_is_left_alone() {
        assert_eq!(limits(&COSTS, 0.01, 1.0), (u32::MAX, 0));
        assert_eq!(limits(&COSTS, 0.0, 1.0), (u32::MAX, 0), "before anything is known");
    }
}
