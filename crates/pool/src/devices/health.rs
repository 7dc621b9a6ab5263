//! Devices that fail: what is done without, and what the pool stops for.

use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering;

use terrace_device::{DeviceError, Operation};

use crate::{BufferPool, PoolError, Stop, Tier};

/// After so many writes in a row failed, the flash is left alone.
const FLASH_FAILURES_MAX: u32 = 8;

impl BufferPool {
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<(), PoolError> {
        self.durability.stop.check()
    }

    /// A write or sync of home failed: no more changes. Returns the error for the caller.
    pub(crate) fn stop(&self, operation: Operation, source: io::Error) -> PoolError {
        self.stop_for(Stop::new(Tier::Home, &*self.devices.home, operation, source))
    }

    /// As `stop`, for a device that the database cannot do without.
    pub(crate) fn stop_for(&self, stop: Stop) -> PoolError {
        self.durability.stop.set(|| self.journal.stopped(stop))
    }

    /// A write of the table on flash failed, whose failure cannot be made known.
    pub(crate) fn stop_for_table(&self, source: io::Error) -> PoolError {
        let flash = self.devices.flash.as_deref().unwrap_or(&*self.devices.home);
        self.stop_for(Stop::new(Tier::Flash, flash, Operation::Write, source))
    }

    /// Whether the flash is too busy for what can do without it [S0 3.3.2].
    pub(crate) fn flash_is_throttled(&self) -> bool {
        self.devices.flash.as_ref().is_some_and(|flash| flash.queued() > self.config.mu)
    }

    pub(crate) fn flash_is_usable(&self) -> bool {
        let is_there = self.devices.flash.as_ref().is_some_and(|flash| !flash.is_given_up());
        is_there && self.traffic.failures.load(Ordering::Relaxed) < FLASH_FAILURES_MAX
    }

    /// Whether the day's share of writes to flash is spent.
    pub(crate) fn is_over_budget(&self) -> bool {
        let budget = self.traffic.budget.as_ref().zip(self.devices.flash.as_ref());
        budget.is_some_and(|(budget, flash)| {
            !budget.allows(terrace_rt::now(), flash.counters().written_bytes)
        })
    }

    /// A write to flash ended.
    pub(crate) fn flash_was_written(&self, written: bool) {
        if written {
            self.traffic.failures.store(0, Ordering::Relaxed);
        } else {
            self.traffic.failures.fetch_add(1, Ordering::Relaxed);
            self.stats.lock().flash_faults += 1;
            self.look_at_flash();
        }
    }

    /// The flash failed: a database that it is a part of stops once it is given up.
    pub(crate) fn look_at_flash(&self) {
        let Some(flash) = self.devices.flash.as_deref().filter(|flash| flash.is_given_up()) else {
            return;
        };
        if self.config.flash_role.is_persistent() {
            let what = "the device has not answered in time, or has lost a write";
            let source = std::io::Error::new(ErrorKind::TimedOut, what);
            let source = DeviceError::wrap(flash.name(), Operation::Read, None, source);
            self.stop_for(Stop::new(Tier::Flash, flash, Operation::Read, source));
        }
    }
}
