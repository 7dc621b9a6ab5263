//! The devices of the two tiers below memory.

pub(crate) mod budget;
pub(crate) mod costs;
pub(crate) mod health;
pub(crate) mod spill;

use std::sync::Arc;

use terrace_device::Device;
use terrace_page::{PAGE_SIZE, PageId};
use terrace_tier::PAGES_MAX;

pub(crate) struct Devices {
    pub(crate) home: Arc<dyn Device>,
    /// None if the design does without.
    pub(crate) flash: Option<Arc<dyn Device>>,
    /// Pages that home has room for, of those that a slot can name.
    home_pages: u64,
}

impl Devices {
    pub(crate) fn new(home: Arc<dyn Device>, flash: Option<Arc<dyn Device>>) -> Devices {
        let home_pages = (home.len() / PAGE_SIZE as u64).min(PAGES_MAX);
        Devices { home, flash, home_pages }
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
}
