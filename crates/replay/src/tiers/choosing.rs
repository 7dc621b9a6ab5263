//! What picks the rules of `auto` in a replay: the same chooser as the pool's, told of a sample of
//! the pages.
//!
//! - C1: what requests cost is what the modelled devices are busy with for each, loaded; the pool
//!   fits that to the counters of its devices.
//! - C2: the prices of memory's policy follow the loads: what both devices were busy with since the
//!   last decision, over what the busier one was, as a loaded system goes as fast as that lets it.
//! - C3: a page that both have is read from flash: that the pool spills such reads to home is not
//!   modelled, since nothing queues here.

use super::shared::id;
use super::{Allocated, DeviceTraffic, FlashSetup, Leaving, Traffic};
use terrace_policy::{Design, Prices};
use terrace_tier::{BusyCosts, Choice, Chooser, Limits};

/// Pages in a write of the cleaner, before there was one.
const CLEANED_TOGETHER: f64 = 2.0;

/// The chooser, and what it asks of a replay.
pub struct Choosing {
    chooser: Chooser,
    busy: BusyCosts,
    prices: Prices,
    /// What home and flash were asked for until the last decision.
    before: [DeviceTraffic; 2],
    /// Pages that were cleaned, and in how many writes.
    cleaned: (u64, u64),
}

impl Choosing {
    pub fn new(design: Design, setup: &FlashSetup) -> Choosing {
        let limits = Limits { tau: setup.tau, lambda: setup.cleaning.lambda };
        Choosing {
            chooser: Chooser::new(design, setup.slots, limits),
            busy: setup.busy,
            prices: Prices::new(setup.costs.home_read / setup.costs.flash_read),
            before: Default::default(),
            cleaned: (0, 0),
        }
    }

    fn is_sampled(&self, page: u32) -> bool {
        Chooser::samples(self.chooser.one_in(), id(page))
    }

    /// Memory missed `page`. If a choice was due, which, and the ratio of prices from now on.
    pub fn asked(&mut self, page: u32, io: &Traffic) -> Option<(Choice, f64)> {
        if !self.is_sampled(page) || !self.chooser.asked(id(page)) {
            return None;
        }
        let together = match self.cleaned {
            (_, 0) => CLEANED_TOGETHER,
            (pages, writes) => pages as f64 / writes as f64,
        };
        let home_clean = self.busy.home_write / together;
        let costs = BusyCosts { home_clean, ..self.busy };
        let choice = self.chooser.decide(&costs);
        self.tell_prices(&costs, io);
        Some((choice, self.prices.ratio()))
    }

    /// The loads since the last decision (C2).
    fn tell_prices(&mut self, costs: &BusyCosts, io: &Traffic) {
        let since = |now: DeviceTraffic, before: DeviceTraffic| {
            // Counts begin anew where the tiers have been filled.
            let less = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now) as f64;
            (less(now.reads, before.reads), less(now.writes, before.writes))
        };
        let [home_before, flash_before] = self.before;
        let (home, flash) = (since(io.home, home_before), since(io.flash, flash_before));
        self.before = [io.home, io.flash];
        let home = home.0 * costs.home_read + home.1 * costs.home_write;
        let flash = flash.0 * costs.flash_read + flash.1 * costs.flash_write;
        let busier = home.max(flash);
        if busier > 0.0 {
            self.prices.told(home / busier, flash / busier, costs.home_read / costs.flash_read);
        }
    }

    /// `page` changes in memory.
    pub fn changes(&mut self, page: u32) {
        if self.is_sampled(page) {
            self.chooser.changed(id(page));
        }
    }

    /// A page has left memory.
    pub fn left(&mut self, leaving: &Leaving) {
        if self.is_sampled(leaving.page) {
            let is_reused = leaving.history.previous.is_some();
            self.chooser.left(id(leaving.page), leaving.dirty, leaving.class, is_reused);
        }
    }

    /// Counts `pages` that one write of the cleaner took home.
    pub fn cleaned(&mut self, pages: usize) {
        self.cleaned.0 += pages as u64;
        self.cleaned.1 += 1;
    }
}

impl Allocated for Choosing {
    fn bytes(&self) -> usize {
        self.chooser.bytes()
    }
}
