//! Who watches page references: for traces of what a workload asks for, and of what memory misses.
//!
//! ```text
//!   caller --- Read, Change ---> memory --- Fetch, WriteOut ---> flash, home
//! ```
//!
//! - O1: a page request is seen once: `Read` when it was served, or `Change` instead when its guard
//!   is given back after a change.
//! - O2: `Fetch` is a page that memory lacked and that is read, for whatever reason; `WriteOut` is
//!   a changed page whose new version was written to flash or home from memory.
//! - Cost without an observer: a test of one word for each page request.

use std::fmt::Debug;

use terrace_page::PageId;

use crate::BufferPool;

/// What became of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageEvent {
    /// It was asked for, and not changed.
    Read,
    /// It was asked for, and changed.
    Change,
    /// Memory lacked it: it is read from flash or home.
    Fetch,
    /// What was changed of it was written to flash or home.
    WriteOut,
}

/// Sees what becomes of pages. Called with latches held, and with leaf locks: it must neither wait
/// for a task nor call the pool.
pub trait PageObserver: Debug + Send + Sync {
    /// `page` went through `event`.
    fn saw(&self, page: PageId, event: PageEvent);
}

impl BufferPool {
    /// Tells the observer, if there is one.
    #[inline]
    pub(crate) fn observe(&self, page: PageId, event: PageEvent) {
        if let Some(observer) = &self.config.observer {
            observer.saw(page, event);
        }
    }
}
