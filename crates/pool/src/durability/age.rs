//! Cleaning by age: no change stays away from home for longer than so much log. The papers' cleaner
//! knows only how much of the flash is dirty: below lambda, a page that nobody uses holds the log,
//! and the redo of the next opening, for ever [sources.D7].
//!
//! ```text
//!  log:  ... | too old: brought home |          the bound, `clean_age`          | end
//!                          floor ----^  recLSNs of dirty pages, memory and flash
//! ```
//!
//! - A1: the age of a page is what the log has grown since its recLSN, in bytes: that is what redo
//!   would read for it. Memory is flushed below the floor, oldest first; flash is cleaned, by the
//!   cleaner in its order by recLSN, which the bound implies.
//! - A2: whoever makes the log grow looks, now and then, whether the floor has moved far enough;
//!   nobody waits, and there is no timer. Pages are brought home before the bound is reached, so
//!   that what is under way keeps it.
//! - Not kept by it: what an open transaction, a page that is still to be redone, or one that is
//!   damaged on flash holds of the log; and a home that cannot write as fast as pages change.

use std::sync::atomic::{AtomicU64, Ordering};

use terrace_page::Lsn;
use terrace_rt::Signal;

use crate::BufferPool;

/// The floor is looked at so often within the bound.
const LOOKS: u64 = 16;
/// This share of the bound is left for the pages under way.
const MARGIN: u64 = 8;

/// When the age of dirty pages is looked at.
#[derive(Default)]
pub(crate) struct AgeWatch {
    /// Given when the log has grown by a part of the bound on age.
    pub(crate) news: Signal,
    /// The end of the log at which it is given next.
    due: AtomicU64,
}

impl AgeWatch {
    /// Wakes the age writer.
    pub(crate) fn notify(&self) {
        self.news.notify_all();
    }
}

impl BufferPool {
    /// The log has grown to `end`: what has become too old is brought home.
    #[inline]
    pub fn log_grew(&self, end: Lsn) {
        if end.0 >= self.durability.age.due.load(Ordering::Relaxed) {
            self.grow_older(end);
        }
    }

    #[cold]
    fn grow_older(&self, end: Lsn) {
        let Some(age) = self.config.clean_age else {
            self.durability.age.due.store(u64::MAX, Ordering::Relaxed);
            return;
        };
        self.durability.age.due.store(end.0 + age / LOOKS, Ordering::Relaxed);
        self.durability.age.notify();
        self.cleaning.news.notify_all();
    }

    /// What is dirty since before this is too old; zero if nothing ever is.
    pub(crate) fn age_floor(&self) -> Lsn {
        let floor = self.config.clean_age.map_or(0, |age| {
            let end = self.journal.last_lsn().0;
            end.saturating_sub(age - age / MARGIN)
        });
        Lsn(floor)
    }
}
