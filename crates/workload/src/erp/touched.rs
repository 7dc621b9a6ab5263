//! Which pages are asked for: the working set, and what memory lacked of tables and of indexes.

use std::fmt;
use std::sync::Arc;

use terrace::{PageEvent, PageId, PageObserver};
use terrace_rt::LeafMutex;

use super::run::Fetches;
use crate::PageRecording;

/// Notes every page, and passes on what it sees.
pub(super) struct Touched {
    /// Indexes begin here.
    first_index_page: PageId,
    /// Another recording, which is told the same.
    also: Option<Arc<dyn PageRecording>>,
    seen: LeafMutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// A bit for each page that was read or changed.
    touched: Vec<u64>,
    /// The last page that was written, and the one after it.
    end: u64,
    fetches: Fetches,
}

impl Touched {
    pub(super) fn new(first_index_page: PageId, also: Option<Arc<dyn PageRecording>>) -> Touched {
        Touched { first_index_page, also, seen: LeafMutex::new(Seen::default()) }
    }

    /// Pages that were asked for.
    pub(super) fn pages(&self) -> u64 {
        self.seen.lock().touched.iter().map(|bits| u64::from(bits.count_ones())).sum()
    }

    /// The page after the last that was written out.
    pub(super) fn end(&self) -> PageId {
        PageId(self.seen.lock().end)
    }

    /// What memory lacked.
    pub(super) fn fetches(&self) -> Fetches {
        self.seen.lock().fetches
    }
}

impl fmt::Debug for Touched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Touched(from {})", self.first_index_page)
    }
}

impl PageObserver for Touched {
    fn saw(&self, page: PageId, event: PageEvent) {
        if let Some(also) = &self.also {
            also.saw(page, event);
        }
        let mut seen = self.seen.lock();
        match event {
            PageEvent::Read | PageEvent::Change => {
                let at = (page.0 / 64) as usize;
                if at >= seen.touched.len() {
                    seen.touched.resize(at + 1, 0);
                }
                seen.touched[at] |= 1 << (page.0 % 64);
            }
            PageEvent::Fetch if page < self.first_index_page => seen.fetches.of_tables += 1,
            PageEvent::Fetch => seen.fetches.of_indexes += 1,
            PageEvent::WriteOut => seen.end = seen.end.max(page.0 + 1),
            PageEvent::Ahead | PageEvent::SlotTaken | PageEvent::SlotLost => {}
        }
    }
}

impl PageRecording for Touched {
    fn begin(&self) {
        self.also.iter().for_each(|also| also.begin());
    }

    fn end(&self) {
        self.also.iter().for_each(|also| also.end());
    }
}
