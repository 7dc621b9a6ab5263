//! How much of the flash may be dirty, and the news by which the cleaner learns of more.

use std::sync::atomic::{AtomicBool, AtomicU32};

use terrace_policy::Cleaning;
use terrace_rt::{LeafMutex, Signal};
use terrace_tier::Gauge;

use crate::BufferPool;
use crate::flow::sweep::Sweep;

/// What the cleaner shares with the tasks that wake it, and those that wait for it.
pub(crate) struct CleanerState {
    /// When, and in which order, it cleans.
    pub(crate) rule: Cleaning,
    /// The share of the slots that may be dirty, if it goes by that.
    share: Option<f64>,
    /// Given when the cleaner may have work.
    pub(crate) news: Signal,
    /// Given when a run of pages was cleaned.
    pub(crate) run_ended: Signal,
    /// Runs of pages being cleaned.
    pub(crate) runs: AtomicU32,
    /// Pages that go home in the order in which they lie there.
    pub(crate) sweep: LeafMutex<Sweep>,
    /// A partition wants slots cleaned ahead, and the cleaner has not been told.
    pub(crate) is_wanted: AtomicBool,
}

impl CleanerState {
    /// Of a tier with `slots`, of which the share `lambda` may be dirty if the rule counts it.
    pub(crate) fn new(rule: Cleaning, slots: u32, lambda: f64) -> CleanerState {
        CleanerState {
            rule,
            share: rule.is_by_share().then_some(lambda),
            news: Signal::new(),
            run_ended: Signal::new(),
            runs: AtomicU32::new(0),
            sweep: LeafMutex::new(Sweep::of(rule, slots, lambda)),
            is_wanted: AtomicBool::new(false),
        }
    }
}

impl BufferPool {
    /// Tells the cleaner if there are too many dirty pages on flash.
    pub(crate) fn wake_cleaner(&self) {
        if self.durability.is_sharp() || self.flash_dirty() > self.dirty_share(self.lambda()) {
            self.cleaning.news.notify_all();
        }
    }

    /// Whether more than `low` pages are dirty that nobody cleans yet.
    pub(super) fn has_more_than(&self, low: u32) -> bool {
        let unavailable = self.shares.gauge(Gauge::Unavailable);
        self.flash_dirty().saturating_sub(unavailable) > low
    }

    /// Where the share does not count it is all.
    pub(super) fn lambda(&self) -> f64 {
        match self.cleaning.share {
            Some(_) if self.drains() => 0.0,
            Some(lambda) => lambda,
            None => 1.0,
        }
    }

    pub(super) fn dirty_share(&self, share: f64) -> u32 {
        (f64::from(self.config.flash_slots) * share.max(0.0)) as u32
    }
}
