//! Pages that are owed are brought in: in the background, or because somebody waits for it.

use terrace_page::PageId;
use terrace_rt::{Nanos, sleep};

use crate::BufferPool;

/// Pages that the background brings in at once while the devices have little to do; else one, so
/// that it takes no more of a busy device than one client does.
const DRAIN_PAGES: usize = 8;
/// Requests at flash and home together from which on they are busy.
const BUSY_REQUESTS: usize = 8;
/// How long it waits when a page could not be brought in.
const DRAIN_NAP: Nanos = Nanos(10_000_000);
/// How often it tries.
const DRAIN_ROUNDS_MAX: u32 = 1000;

impl BufferPool {
    /// The life of a background task: brings in what is owed, a page at a time while the devices
    /// are busy with what others want.
    pub(crate) fn drain_owed_gently(&self) {
        self.drain_owed(|| {
            let queued = self.devices.queued();
            if queued < BUSY_REQUESTS { DRAIN_PAGES } else { 1 }
        });
    }

    /// Brings in what is owed, because somebody waits for it.
    pub(crate) fn drain_owed_now(&self) {
        self.drain_owed(|| DRAIN_PAGES);
    }

    /// Brings in what is owed, as many pages at a time as `pages_at_once` says each time.
    fn drain_owed(&self, pages_at_once: impl Fn() -> usize) {
        for _ in 0..DRAIN_ROUNDS_MAX {
            for partition in &self.memory.partitions {
                loop {
                    let pages: Vec<PageId> = {
                        let books = partition.books.lock();
                        books.ledger.owed().take(pages_at_once()).collect()
                    };
                    if pages.is_empty() || self.background.is_closing() {
                        break;
                    }
                    let before = self.owed();
                    self.prefetch(&pages);
                    if self.owed() == before {
                        // Memory may be full of what is in use, or a page damaged: one by one.
                        let _failed = self.read(pages[0]).map(drop);
                        break;
                    }
                }
            }
            if self.owed() == 0 || self.background.is_closing() || terrace_rt::dead() {
                return;
            }
            sleep(DRAIN_NAP);
        }
    }
}
